#version 450
#extension GL_GOOGLE_include_directive : require

// out = gate / (1 + exp(-gate)) * up. For a gate far below 0 the exponential is infinite, and the result -0.

layout(local_size_x = 64) in;

#include "exponential.glsl"

layout(std430, set = 1, binding = 0) readonly buffer Gates { vec4 gate[]; };
layout(std430, set = 1, binding = 1) readonly buffer Ups { vec4 up[]; };
layout(std430, set = 1, binding = 2) writeonly buffer Outputs { vec4 result[]; };

// All in vec4.
layout(push_constant) uniform Push {
    uint width, gate_at, gate_stride, up_at, up_stride, out_at, out_stride;
} push;

float silu(float x) {
    precise float below = 1.0 + exponential(-x);
    precise float gated = x / below;
    return gated;
}

void main() {
    uint i = gl_GlobalInvocationID.x, token = gl_GlobalInvocationID.y;
    if (i >= push.width) return;
    vec4 g = gate[push.gate_at + token * push.gate_stride + i];
    vec4 u = up[push.up_at + token * push.up_stride + i];
    precise vec4 value = vec4(silu(g.x), silu(g.y), silu(g.z), silu(g.w)) * u;
    result[push.out_at + token * push.out_stride + i] = value;
}
