#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

// Stage 2 of finding the largest logit: the best of all workgroups' records, as record `result`: value, index, and
// whether a logit was not finite. A record without a logit has the index 0xFFFFFFFF.

#define LANES 64u
layout(local_size_x = 64) in;

struct Found {
    float value;
    uint index;
    uint broken;
    uint unused;
};

layout(std430, set = 1, binding = 0) readonly buffer Logits { float logits[]; };
layout(std430, set = 1, binding = 1) readonly buffer Partial { Found partial[]; };
layout(std430, set = 1, binding = 2) writeonly buffer Results { Found results[]; };

layout(push_constant) uniform Push {
    uint partial_at, groups, result;
} push;

#include "top.glsl"

void main() {
    uint lane = gl_LocalInvocationID.x, groups = push.groups;
    Found best = Found(0.0, NOTHING, 0u, 0u);
    for (uint i = lane; i < groups; i += LANES) best = better(best, partial[push.partial_at + i]);
    best = tree_best(best);
    if (lane == 0u) results[push.result] = best;
}
