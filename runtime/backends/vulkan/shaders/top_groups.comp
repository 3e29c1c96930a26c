#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

// Stage 1 of finding the largest logit: for each workgroup's stretch of 4,096, the first of the largest ones, and
// whether all are finite.
//
// `below` names an earlier result: then only logits count that come after it, smaller ones, or equal ones behind it.
// So n passes give the n largest in order, equal ones by index.

#define LANES 64u
#define STRETCH 4096u
layout(local_size_x = 64) in;

struct Found {
    float value;
    uint index;
    uint broken;
    uint unused;
};

layout(std430, set = 1, binding = 0) readonly buffer Logits { float logits[]; };
layout(std430, set = 1, binding = 1) writeonly buffer Partial { Found partial[]; };
layout(std430, set = 1, binding = 2) readonly buffer Results { Found results[]; };

// `logits_at` in floats; partial_at, below and the results in records of 16 bytes.
layout(push_constant) uniform Push {
    uint logits_at, count, partial_at, below;
} push;

#include "top.glsl"

void main() {
    uint lane = gl_LocalInvocationID.x, count = push.count, at = push.logits_at;
    bool all = push.below == NOTHING;
    Found before = Found(0.0, 0u, 0u, 0u);
    if (!all) before = results[push.below];
    Found best = Found(0.0, NOTHING, 0u, 0u);
    uint start = gl_WorkGroupID.x * STRETCH;
    uint stop = min(start + STRETCH, count);
    for (uint i = start + lane; i < stop; i += LANES) {
        float value = logits[at + i];
        if (!finite(value)) {
            best.broken = 1u;
        } else if (all || value < before.value || (value == before.value && i > before.index)) {
            best = better(best, Found(value, i, best.broken, 0u));
        }
    }
    best = tree_best(best);
    if (lane == 0u) partial[push.partial_at + gl_WorkGroupID.x] = best;
}
