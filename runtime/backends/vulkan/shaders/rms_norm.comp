#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require

// y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight; one workgroup a token.
//
// A lane adds x * (x / width) of every 64th vec4 in four sums, in ascending order; the sums of the lanes are added in
// a tree. Divided by the width first, the mean is float32 up to inputs of 1.8e19, whatever the width. Beyond that a
// square is infinite, and the outputs are 0.

#define LANES 64u
layout(local_size_x = 64) in;

#include "tree.glsl"

layout(std430, set = 0, binding = 0) readonly buffer Vectors { vec4 vectors[]; };
layout(std430, set = 1, binding = 0) readonly buffer Inputs { vec4 x[]; };
layout(std430, set = 1, binding = 1) writeonly buffer Outputs { vec4 y[]; };

// The width in floats; places and strides in vec4.
layout(push_constant) uniform Push {
    uint width, x_at, x_stride, y_at, y_stride, weight_at;
    float eps;
} push;

void main() {
    uint lane = gl_LocalInvocationID.x, count = push.width / 4u, weight_at = push.weight_at;
    uint x_at = push.x_at + gl_WorkGroupID.x * push.x_stride;
    uint y_at = push.y_at + gl_WorkGroupID.x * push.y_stride;
    float part = 1.0 / float(push.width);
    precise vec4 squares = vec4(0.0);
    for (uint i = lane; i < count; i += LANES) {
        precise vec4 v = x[x_at + i], share = v * part;
        squares = share * v + squares;
    }
    precise float own = (squares.x + squares.y) + (squares.z + squares.w);
    precise float root = sqrt(tree_sum(own) + push.eps);
    for (uint i = lane; i < count; i += LANES) {
        precise vec4 v = x[x_at + i] / root * vectors[weight_at + i];
        y[y_at + i] = v;
    }
}
