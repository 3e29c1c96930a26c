#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

// Stage 2 of the sum of exp(logit - highest): the workgroups' sums, as record `result`: the sum alone.

#define LANES 64u
layout(local_size_x = 64) in;

#include "tree.glsl"

layout(std430, set = 1, binding = 0) readonly buffer Logits { float logits[]; };
layout(std430, set = 1, binding = 1) readonly buffer Partial { vec4 sums[]; };
layout(std430, set = 1, binding = 2) writeonly buffer Results { vec4 results[]; };

layout(push_constant) uniform Push {
    uint partial_at, groups, result;
} push;

void main() {
    uint lane = gl_LocalInvocationID.x, groups = push.groups;
    precise float sum = 0.0;
    for (uint i = lane; i < groups; i += LANES) sum += sums[push.partial_at + i].x;
    float total = tree_sum(sum);
    if (lane == 0u) results[push.result] = vec4(total, 0.0, 0.0, 0.0);
}
