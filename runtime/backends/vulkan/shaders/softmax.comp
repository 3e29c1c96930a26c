#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

// weights[p] = exp(score[p] - highest) in place of the scores of one query row, for the positions up to the row's own,
// and 0 up to the next multiple of 4; shares[row] is 1 divided by what they add up to. Vulkan promises no exact
// division, so it is done here, in the one kernel for all tiles, and not in the two that use it.
//
// A lane has every 16th vec4 of positions, ascending, in four sums; the lanes' sums are added in a tree. The order
// depends on positions alone.

#define LANES 16u
layout(local_size_x = 16) in;

#include "exponential.glsl"
#include "tree.glsl"

layout(std430, set = 1, binding = 0) readonly buffer Parameters { uint parameters[]; };
#ifdef TEXEL
layout(set = 1, binding = 1) uniform textureBuffer scores;
#define SCORES(i) texelFetch(scores, int(i))
#else
layout(std430, set = 1, binding = 1) readonly buffer Scores { vec4 scores[]; };
#define SCORES(i) scores[i]
#endif
layout(std430, set = 1, binding = 2) writeonly buffer Weights { vec4 weights[]; };
layout(std430, set = 1, binding = 3) writeonly buffer Shares { float shares[]; };

layout(push_constant) uniform Push {
    uint positions_at, group, rows, context;
} push;

shared float highest_of[LANES];

float tree_max(float own) {
    uint lane = gl_LocalInvocationID.x;
    highest_of[lane] = own;
    barrier();
    [[dont_unroll]] for (uint span = LANES / 2u; span > 0u; span >>= 1u) {
        if (lane < span) highest_of[lane] = max(highest_of[lane], highest_of[lane + span]);
        barrier();
    }
    return highest_of[0];
}

#define LOWEST uintBitsToFloat(0xFF800000u)

void main() {
    uint row = gl_WorkGroupID.y * push.rows + gl_WorkGroupID.x, lane = gl_LocalInvocationID.x;
    uint positions = parameters[push.positions_at + gl_WorkGroupID.x / push.group] + 1u;
    uint at = row * (push.context / 4u), quads = (positions + 3u) / 4u;

    vec4 most = vec4(LOWEST);
    [[dont_unroll]] for (uint i = lane; i < quads; i += LANES) {
        bvec4 own = lessThan(uvec4(i * 4u) + uvec4(0, 1, 2, 3), uvec4(positions));
        most = max(most, mix(vec4(LOWEST), SCORES(at + i), own));
    }
    float highest = tree_max(max(max(most.x, most.y), max(most.z, most.w)));

    precise vec4 total = vec4(0.0);
    [[dont_unroll]] for (uint i = lane; i < quads; i += LANES) {
        bvec4 own = lessThan(uvec4(i * 4u) + uvec4(0, 1, 2, 3), uvec4(positions));
        precise vec4 x = SCORES(at + i) - highest;
        vec4 e = mix(vec4(0.0), vec4(exponential(x.x), exponential(x.y), exponential(x.z), exponential(x.w)), own);
        total += e;
        weights[at + i] = e;
    }
    precise float own = (total.x + total.y) + (total.z + total.w);
    precise float share = 1.0 / tree_sum(own);
    if (lane == 0u) shares[row] = share;
}
