#version 450
#extension GL_EXT_control_flow_attributes : require

// out[token][head] = sum over p of weights[row][p] * values[p], times the row's share (1 / the sum of its weights), for
// ROWS query rows; each is added up with p ascending, over its own positions.
//
// A lane has WIDE vec4 of the head, LOCAL apart. Positions that all rows have go by without a question; the last few
// are asked for row by row, since what lies behind a row's own position must not touch it, not even times 0.

layout(local_size_x = LOCAL) in;

layout(std430, set = 1, binding = 0) readonly buffer Parameters { uint parameters[]; };
#ifdef TEXEL
layout(set = 1, binding = 1) uniform textureBuffer weights;
layout(set = 2, binding = 0) uniform textureBuffer keys;
layout(set = 2, binding = 1) uniform textureBuffer values;
#define LOAD(buffer, i) texelFetch(buffer, int(i))
#else
layout(std430, set = 1, binding = 1) readonly buffer Weights { vec4 weights[]; };
layout(std430, set = 2, binding = 0) readonly buffer Keys { vec4 keys[]; };
layout(std430, set = 2, binding = 1) readonly buffer Values { vec4 values[]; };
#define LOAD(buffer, i) buffer[i]
#endif
layout(std430, set = 1, binding = 2) readonly buffer Shares { float shares[]; };
layout(std430, set = 1, binding = 3) writeonly buffer Outputs { vec4 result[]; };

// `dims`, `context` and out in vec4.
layout(push_constant) uniform Push {
    uint positions_at, count, group, rows, dims, capacity, context, out_at, out_stride;
} push;

void main() {
    uint kv_head = gl_WorkGroupID.y, group = push.group, dims = push.dims, context = push.context;
    uint row = gl_WorkGroupID.z * ROWS, first_row = kv_head * push.rows + row;
    uint start = parameters[push.positions_at], last = min(start + push.count, push.capacity) - 1u;
    uint lane = gl_WorkGroupID.x * (LOCAL * WIDE) + gl_LocalInvocationID.x;

    uint value[WIDE], weight[ROWS];
    precise vec4 totals[ROWS][WIDE];
    [[unroll]] for (int j = 0; j < WIDE; j++) {
        value[j] = kv_head * push.capacity * dims + min(lane + j * LOCAL, dims - 1u);
    }
    [[unroll]] for (int r = 0; r < ROWS; r++) {
        weight[r] = (first_row + r) * context;
        [[unroll]] for (int j = 0; j < WIDE; j++) totals[r][j] = vec4(0.0);
    }

    uint quads = (start + 1u) / 4u;
    [[dont_unroll]] for (uint quad = 0u; quad < quads; quad++) {
        vec4 w[ROWS];
        [[unroll]] for (int r = 0; r < ROWS; r++) w[r] = LOAD(weights, weight[r] + quad);
        [[unroll]] for (int j = 0; j < WIDE; j++) {
            vec4 v[4];
            [[unroll]] for (int i = 0; i < 4; i++) {
                v[i] = LOAD(values, value[j]);
                value[j] += dims;
            }
            [[unroll]] for (int r = 0; r < ROWS; r++) {
                precise vec4 total = totals[r][j];
                [[unroll]] for (int i = 0; i < 4; i++) total = w[r][i] * v[i] + total;
                totals[r][j] = total;
            }
        }
    }
    [[dont_unroll]] for (uint p = quads * 4u; p <= last; p++) {
        vec4 v[WIDE];
        [[unroll]] for (int j = 0; j < WIDE; j++) {
            v[j] = LOAD(values, value[j]);
            value[j] += dims;
        }
        [[unroll]] for (int r = 0; r < ROWS; r++) {
            float w = LOAD(weights, weight[r] + p / 4u)[p & 3u];
            if (p <= start + (row + r) / group) {
                [[unroll]] for (int j = 0; j < WIDE; j++) totals[r][j] = w * v[j] + totals[r][j];
            }
        }
    }

    uint used = push.count * group;
    [[unroll]] for (int r = 0; r < ROWS; r++) {
        uint own = row + r, place = push.out_at + own / group * push.out_stride;
        if (own < used) {
            float share = shares[first_row + r];
            place += (kv_head * group + own % group) * dims;
            [[unroll]] for (int j = 0; j < WIDE; j++) {
                uint d = lane + j * LOCAL;
                precise vec4 mean = totals[r][j] * share;
                if (d < dims) result[place + d] = mean;
            }
        }
    }
}
