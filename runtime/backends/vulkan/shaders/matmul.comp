#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

// y[t][r] (+)= sum over k of W[r][k] * x[t][k]; a workgroup has TOKENS rows t of x, the last one up to that.
// Groups of the same rows of W come one after another, so that a CPU's cache keeps these.
//
// A lane has ROWS rows of W, LOCAL apart, or pairs of neighbours, and one float32 accumulator for each of its results.
// It adds the products one by one, k ascending, so a result's bits depend neither on TOKENS, nor on the other tokens,
// nor on which rows share the dispatch. Weights are unpacked once and used for all tokens.
//
// Here and in every kernel a product is rounded before it is added: `precise` pins a multiplication and an addition
// (NoContraction), while compilers leave it off a fused one and may then move its terms about.

layout(local_size_x = LOCAL) in;

#include "weights.glsl"

#ifdef TEXEL
layout(set = 1, binding = 0) uniform textureBuffer x;
#define X(i) texelFetch(x, int(i))
#else
layout(std430, set = 1, binding = 0) readonly buffer Inputs { vec4 x[]; };
#define X(i) x[i]
#endif
layout(std430, set = 1, binding = 1) buffer Outputs { float y[]; };

// Rows of W that are there, and in memory; x in vec4, y in floats.
layout(push_constant) uniform Push {
    uint rows, padded, blocks, tokens, x_at, x_stride, y_at, y_stride, add;
} push;

// Loops stay loops, short ones, where there is more than one turn.
#if STEPS == 1
#define STEP_LOOP [[unroll]]
#else
#define STEP_LOOP [[dont_unroll]]
#endif
#if PARTS == 1
#define PART_LOOP [[unroll]]
#else
#define PART_LOOP [[dont_unroll]]
#endif

// The rows of a lane: the first, and how far behind it the others are.
#ifdef PAIRS
#define FIRST(lane) (2u * (lane))
#define BEHIND(j) uint((j) / 2 * 2 * LOCAL + (j) % 2)
#else
#define FIRST(lane) (lane)
#define BEHIND(j) uint((j) * LOCAL)
#endif

void main() {
    // Constants are kept in variables: a CPU's driver would read them again in every turn of the loop.
    uint rows = push.rows, padded = push.padded, blocks = BLOCKS(push.blocks), tile = gl_WorkGroupID.x * TOKENS;
    uint x_stride = push.x_stride, y_stride = push.y_stride, tokens = push.tokens - tile;
    uint x_at = push.x_at + tile * x_stride, y_at = push.y_at + tile * y_stride;
    uint first = gl_WorkGroupID.y * (LOCAL * ROWS) + FIRST(gl_LocalInvocationID.x);
    uint row[ROWS], at[TOKENS];
    precise float sums[ROWS][TOKENS];
    [[unroll]] for (int j = 0; j < ROWS; j++) {
        row[j] = min(first + BEHIND(j), padded - 1u);
        [[unroll]] for (int t = 0; t < TOKENS; t++) sums[j][t] = 0.0;
    }
    [[unroll]] for (int t = 0; t < TOKENS; t++) at[t] = x_at + t * x_stride;

    [[dont_unroll]] for (uint block = 0u; block < blocks; block++) {
        Block opened[ROWS];
        [[unroll]] for (int j = 0; j < ROWS; j++) opened[j] = open_block(block, row[j], padded);
        STEP_LOOP for (uint step = 0u; step < STEPS; step++) {
            uvec4 codes[ROWS];
            [[unroll]] for (int j = 0; j < ROWS; j++) codes[j] = step_codes(opened[j], block, step, padded);
            PART_LOOP for (uint part = 0u; part < PARTS; part++) {
                vec4 w[ROWS][GROUPS];
#ifdef PAIRS
                [[unroll]] for (int j = 0; j < ROWS; j += 2) unpack_pair(opened[j], w[j], w[j + 1]);
#else
                [[unroll]] for (int j = 0; j < ROWS; j++) unpack(opened[j], codes[j], part, padded, w[j]);
#endif
                [[unroll]] for (int t = 0; t < TOKENS; t++) {
                    [[unroll]] for (int i = 0; i < GROUPS; i++) {
                        vec4 v = X(at[t] + i);
                        [[unroll]] for (int j = 0; j < ROWS; j++) {
                            precise float sum = sums[j][t];
                            sum = w[j][i].x * v.x + sum;
                            sum = w[j][i].y * v.y + sum;
                            sum = w[j][i].z * v.z + sum;
                            sum = w[j][i].w * v.w + sum;
                            sums[j][t] = sum;
                        }
                    }
                    at[t] += GROUPS;
                }
            }
        }
    }

    bool add = push.add != 0u;
    [[unroll]] for (int j = 0; j < ROWS; j++) {
        uint own = first + BEHIND(j);
        if (own < rows) {
            [[unroll]] for (int t = 0; t < TOKENS; t++) {
                if (t < tokens) {
                    uint place = y_at + t * y_stride + own;
                    float before = 0.0;
                    if (add) before = y[place];
                    precise float total = before + sums[j][t];
                    y[place] = total;
                }
            }
        }
    }
}
