#version 450
#extension GL_EXT_control_flow_attributes : require

// scores[kv_head][row][p] = q[row] . keys[p] for ROWS query rows and every position up to the unit's last.
//
// A lane has POSITIONS positions, LOCAL apart, and adds up each product with d ascending. Rows near the start of a
// unit get scores for positions after their own too, which nobody reads.

layout(local_size_x = LOCAL) in;

layout(std430, set = 1, binding = 0) readonly buffer Parameters { uint parameters[]; };
#ifdef TEXEL
layout(set = 1, binding = 1) uniform textureBuffer q;
layout(set = 2, binding = 0) uniform textureBuffer keys;
layout(set = 2, binding = 1) uniform textureBuffer values;
#define LOAD(buffer, i) texelFetch(buffer, int(i))
#else
layout(std430, set = 1, binding = 1) readonly buffer Queries { vec4 q[]; };
layout(std430, set = 2, binding = 0) readonly buffer Keys { vec4 keys[]; };
layout(std430, set = 2, binding = 1) readonly buffer Values { vec4 values[]; };
#define LOAD(buffer, i) buffer[i]
#endif
layout(std430, set = 1, binding = 2) writeonly buffer Scores { float scores[]; };

// `dims` and q_at in vec4.
layout(push_constant) uniform Push {
    uint positions_at, count, q_at, rows, dims, capacity, context;
} push;

void main() {
    uint kv_head = gl_WorkGroupID.y, dims = push.dims, capacity = push.capacity, context = push.context;
    uint first_row = kv_head * push.rows + gl_WorkGroupID.z * ROWS;
    uint last = min(parameters[push.positions_at] + push.count, capacity) - 1u;
    uint first = gl_WorkGroupID.x * (LOCAL * POSITIONS);
    if (first > last) return;
    first += gl_LocalInvocationID.x;

    uint key[POSITIONS], query = push.q_at + first_row * dims;
    precise float sums[POSITIONS][ROWS];
    [[unroll]] for (int j = 0; j < POSITIONS; j++) {
        key[j] = kv_head * dims * capacity + min(first + j * LOCAL, last);
        [[unroll]] for (int r = 0; r < ROWS; r++) sums[j][r] = 0.0;
    }
    [[dont_unroll]] for (uint d = 0u; d < dims; d++) {
        vec4 k[POSITIONS];
        [[unroll]] for (int j = 0; j < POSITIONS; j++) {
            k[j] = LOAD(keys, key[j]);
            key[j] += capacity;
        }
        [[unroll]] for (int r = 0; r < ROWS; r++) {
            vec4 v = LOAD(q, query + r * dims);
            [[unroll]] for (int j = 0; j < POSITIONS; j++) {
                precise float sum = sums[j][r];
                sum = k[j].x * v.x + sum;
                sum = k[j].y * v.y + sum;
                sum = k[j].z * v.z + sum;
                sum = k[j].w * v.w + sum;
                sums[j][r] = sum;
            }
        }
        query++;
    }
    [[unroll]] for (int j = 0; j < POSITIONS; j++) {
        uint p = first + j * LOCAL;
        if (p <= last) {
            [[unroll]] for (int r = 0; r < ROWS; r++) scores[(first_row + r) * context + p] = sums[j][r];
        }
    }
}
