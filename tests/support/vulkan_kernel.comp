#version 450

// y[i] = w[i] * x[i] + a, for i < n: one binding of each kind that a device must serve.

layout(local_size_x = 64) in;
layout(set = 0, binding = 0) uniform textureBuffer w;
layout(std430, set = 1, binding = 0) readonly buffer Inputs { float x[]; };
layout(std430, set = 1, binding = 1) writeonly buffer Outputs { float y[]; };
layout(push_constant) uniform Push { uint n; float a; } push;

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < push.n) y[i] = texelFetch(w, int(i)).x * x[i] + push.a;
}
