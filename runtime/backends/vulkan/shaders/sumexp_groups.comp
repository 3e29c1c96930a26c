#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

// Stage 1 of the sum of exp(logit - highest): for each workgroup's stretch of 4,096, where `highest` is the value of
// an earlier result. A lane adds every 64th, ascending; the lanes' sums are added in a tree.

#define LANES 64u
#define STRETCH 4096u
layout(local_size_x = 64) in;

#include "exponential.glsl"
#include "tree.glsl"

layout(std430, set = 1, binding = 0) readonly buffer Logits { float logits[]; };
layout(std430, set = 1, binding = 1) writeonly buffer Partial { vec4 sums[]; };
layout(std430, set = 1, binding = 2) readonly buffer Results { vec4 results[]; };

// `logits_at` in floats; partial_at and highest in records of 16 bytes.
layout(push_constant) uniform Push {
    uint logits_at, count, partial_at, highest;
} push;

void main() {
    uint lane = gl_LocalInvocationID.x, count = push.count, at = push.logits_at;
    float highest = results[push.highest].x;
    uint start = gl_WorkGroupID.x * STRETCH;
    uint stop = min(start + STRETCH, count);
    precise float sum = 0.0;
    for (uint i = start + lane; i < stop; i += LANES) {
        precise float x = logits[at + i] - highest;
        sum += exponential(x);
    }
    float total = tree_sum(sum);
    if (lane == 0u) sums[push.partial_at + gl_WorkGroupID.x] = vec4(total, 0.0, 0.0, 0.0);
}
