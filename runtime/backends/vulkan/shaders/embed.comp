#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

// y[t] = the dequantized row ids[t] of the embedding; a lane unpacks one block of one token.
// An id outside this piece of the matrix writes nothing: another dispatch has the piece that it is in.

layout(local_size_x = 32) in;

#include "weights.glsl"

layout(std430, set = 1, binding = 0) readonly buffer Parameters { uint parameters[]; };
layout(std430, set = 1, binding = 1) writeonly buffer Outputs { vec4 y[]; };

layout(push_constant) uniform Push {
    uint rows, padded, blocks, ids_at, first_row, y_at, y_stride;
} push;

void main() {
    uint block = gl_GlobalInvocationID.x, token = gl_GlobalInvocationID.y;
    uint id = parameters[push.ids_at + token];
    if (block >= push.blocks || id < push.first_row || id - push.first_row >= push.rows) return;
    uint place = push.y_at + token * push.y_stride + block * (BLOCK / 4u);
    Block opened = open_block(block, id - push.first_row, push.padded);
    for (uint step = 0u; step < STEPS; step++) {
        vec4 weights[GROUPS];
        unpack(opened, step_codes(opened, block, step, push.padded), 0u, push.padded, weights);
        [[unroll]] for (int i = 0; i < GROUPS; i++) y[place + step * GROUPS + i] = weights[i];
    }
}
