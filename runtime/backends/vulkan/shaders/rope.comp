#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

// From a token's projections to attention's inputs: add the bias, normalize the head (NORM), rotate, and put queries
// into their scratch, scaled by 1 / sqrt(head_dim), keys and values at the token's position of the slot.
// One workgroup a head; a lane has every 32nd pair of the head.

#define LANES 32u
layout(local_size_x = 32) in;

#ifdef NORM
#include "tree.glsl"
#endif

layout(std430, set = 0, binding = 0) readonly buffer Vectors { float vectors[]; };
layout(std430, set = 1, binding = 0) readonly buffer Parameters { uint parameters[]; };
layout(std430, set = 1, binding = 1) readonly buffer Projections { float qkv[]; };
layout(std430, set = 1, binding = 2) writeonly buffer Queries { float q[]; };
layout(std430, set = 2, binding = 0) writeonly buffer Keys { float keys[]; };
layout(std430, set = 2, binding = 1) writeonly buffer Values { float values[]; };

layout(push_constant) uniform Push {
    uint positions_at, rotation_at, qkv_at, qkv_stride, q_at, heads, kv_heads, head_dim, rows, tile, capacity;
    uint interleaved, bias_at, q_norm_at, k_norm_at;
    float scale, eps;
} push;

const uint ABSENT = 0xFFFFFFFFu;

float projected(uint token, uint column) {
    precise float value = qkv[push.qkv_at + token * push.qkv_stride + column];
    if (push.bias_at != ABSENT) value = value + vectors[push.bias_at + column];
    return value;
}

void put(uint head, uint token, uint position, uint i, float value) {
    uint d = push.head_dim;
    if (head < push.heads) {
        uint group = push.heads / push.kv_heads;
        uint row = token % push.tile * group + head % group;
        uint tile = token / push.tile * push.kv_heads + head / group;
        precise float scaled = value * push.scale;
        q[push.q_at + (tile * push.rows + row) * d + i] = scaled;
    } else if (head < push.heads + push.kv_heads) {
        uint place = (head - push.heads) * (d / 4u) + i / 4u;
        keys[(place * push.capacity + position) * 4u + i % 4u] = value;
    } else {
        uint place = (head - push.heads - push.kv_heads) * push.capacity + position;
        values[place * d + i] = value;
    }
}

void main() {
    uint head = gl_WorkGroupID.x, token = gl_WorkGroupID.y, lane = gl_LocalInvocationID.x;
    uint half_dim = push.head_dim / 2u, column = head * push.head_dim;
    uint step = push.interleaved != 0u ? 2u : 1u, apart = push.interleaved != 0u ? 1u : half_dim;
    uint position = parameters[push.positions_at + token];
    if (position >= push.capacity) return;
#ifdef NORM
    // As in rms_norm: divided by the width first, squares stay float32.
    float part = 1.0 / float(push.head_dim);
    precise float squares = 0.0;
    for (uint i = lane; i < half_dim; i += LANES) {
        float a = projected(token, column + i * step), b = projected(token, column + i * step + apart);
        precise float left = a * part, right = b * part;
        squares = left * a + squares;
        squares = right * b + squares;
    }
    precise float root = sqrt(tree_sum(squares) + push.eps);
    uint norm_at = head < push.heads ? push.q_norm_at : push.k_norm_at;
#endif
    bool rotated = head < push.heads + push.kv_heads;
    for (uint i = lane; i < half_dim; i += LANES) {
        uint low = i * step, high = low + apart;
        precise float a = projected(token, column + low), b = projected(token, column + high);
        if (rotated) {
#ifdef NORM
            a = a / root * vectors[norm_at + low];
            b = b / root * vectors[norm_at + high];
#endif
            uint angle = push.rotation_at + token * push.head_dim + i * 2u;
            float c = uintBitsToFloat(parameters[angle]), s = uintBitsToFloat(parameters[angle + 1u]);
            precise float left = a * c - b * s, right = a * s + b * c;
            a = left;
            b = right;
        }
        put(head, token, position, low, a);
        put(head, token, position, high, b);
    }
}
