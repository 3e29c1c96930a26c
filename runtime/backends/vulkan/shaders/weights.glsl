// One packed weight matrix, read in blocks of BLOCK inputs for one output row at a time. Included once; FORMAT says
// how it is stored, TEXEL whether through texel buffers (a CPU's driver gathers those well) or storage buffers.
//
// Memory is [block][row]: neighbouring rows are neighbours, so lanes that are rows load side by side. A block has
// STEPS steps, which have PARTS parts of GROUPS vec4 of weights: one vec4 on a CPU, whose loops are fast while they are
// short. Every weight comes out as the float32 that the format's own dequantization gives: products of a half and a
// small integer are exact, and what is added to them rounds once.

#define FORMAT_F32 0
#define FORMAT_F16 1
#define FORMAT_Q8_0 2
#define FORMAT_Q4_1 3
#define FORMAT_Q4_K 4

#if FORMAT == FORMAT_F32 || FORMAT == FORMAT_F16
#define STEPS 1
#define PARTS 1
#ifdef TEXEL
#define BLOCK 4u
#define GROUPS 1
#else
#define BLOCK 8u
#define GROUPS 2
#endif
#define BLOCKS(inputs) ((inputs) * (8u / BLOCK))
#else
#define BLOCK 32u
#define BLOCKS(inputs) (inputs)
#ifndef TEXEL
#define STEPS 2
#define PARTS 1
#define GROUPS 4
#elif FORMAT == FORMAT_Q4_1
#define STEPS 8
#define PARTS 1
#define GROUPS 1
#else
#define STEPS 2
#define PARTS 4
#define GROUPS 1
#endif
#endif

// Two halves, of any size: devices may take a half below 2^-14 for 0, and scales of Q4_K are often that small.
vec2 two_halves(uint packed) {
    uvec2 bits = uvec2(packed, packed >> 16u), magnitude = bits & 0x7FFFu;
    precise vec2 small = vec2(magnitude) * 5.9604644775390625e-8;
    small = mix(small, -small, notEqual(bits & 0x8000u, uvec2(0u)));
    return mix(unpackHalf2x16(packed), small, lessThan(magnitude, uvec2(0x400u)));
}

vec4 halves(uvec2 packed) { return vec4(unpackHalf2x16(packed.x), unpackHalf2x16(packed.y)); }

#ifdef TEXEL

#if FORMAT == FORMAT_F32
layout(set = 0, binding = 0) uniform textureBuffer values;
#define VALUES(i) texelFetch(values, int(i))
#elif FORMAT == FORMAT_F16
// A texel has four inputs of two neighbouring rows: a lane has both, and half as many to fetch.
layout(set = 0, binding = 0) uniform utextureBuffer values;
#define PAIRS
#else
layout(set = 0, binding = 0) uniform utextureBuffer codes;
#define CODES(i) texelFetch(codes, int(i))
#if FORMAT == FORMAT_Q4_K
layout(set = 0, binding = 1) uniform utextureBuffer scales;
#define SCALES(i) texelFetch(scales, int(i))
#else
layout(set = 0, binding = 1) uniform textureBuffer scales;
#define SCALES(i) texelFetch(scales, int(i)).xy
#endif
#endif

#else

#if FORMAT == FORMAT_F32
layout(std430, set = 0, binding = 0) readonly buffer Values { vec4 values[]; };
#define VALUES(i) values[i]
#elif FORMAT == FORMAT_F16
layout(std430, set = 0, binding = 0) readonly buffer Values { uvec2 values[]; };
#define VALUES(i) halves(values[i])
#else
layout(std430, set = 0, binding = 0) readonly buffer Codes { uvec4 codes[]; };
#define CODES(i) codes[i]
#if FORMAT == FORMAT_Q4_K
layout(std430, set = 0, binding = 1) readonly buffer Scales { uvec4 scales[]; };
#define SCALES(i) scales[i]
#elif FORMAT == FORMAT_Q4_1
layout(std430, set = 0, binding = 1) readonly buffer Scales { uint scales[]; };
#define SCALES(i) two_halves(scales[i])
#else
// Two rows share a word: no 16-bit storage is asked of the device.
layout(std430, set = 0, binding = 1) readonly buffer Scales { uint scales[]; };
#define SCALES(i) two_halves(scales[(i) >> 1u] >> (((i) & 1u) << 4u))
#endif
#endif

#endif

struct Block {
    uint at;
    vec2 scale;
    uvec4 codes;
};

#if FORMAT == FORMAT_Q4_K
// Scale and minimum of sub-block `part` (0..7), six bits each, packed as in ggml's get_scale_min_k4.
vec2 sub_scale(uvec4 header, uint part) {
    uint shift = (part & 3u) << 3u;
    uint low = header.y >> shift, middle = header.z >> shift, high = header.w >> shift;
    bool first = part < 4u;
    uint scale = first ? low & 63u : (high & 15u) | ((low >> 6u) & 3u) << 4u;
    uint least = first ? middle & 63u : ((high >> 4u) & 15u) | ((middle >> 6u) & 3u) << 4u;
    vec2 whole = two_halves(header.x);
    precise vec2 exact = vec2(whole.x * float(scale), -(whole.y * float(least)));
    return exact;
}
#endif

// What the steps of block `block` of row `row` share; `rows` are the rows in memory.
Block open_block(uint block, uint row, uint rows) {
    Block opened;
#if FORMAT == FORMAT_F32 || FORMAT == FORMAT_F16
    opened.at = block * GROUPS * rows + row;
#elif FORMAT == FORMAT_Q8_0
    opened.at = block * 2u * rows + row;
    opened.scale = SCALES(block * rows + row);
#elif FORMAT == FORMAT_Q4_1
    opened.at = block * rows + row;
    opened.scale = SCALES(opened.at);
    opened.codes = CODES(opened.at);
#else
    // A pair of sub-blocks shares 32 bytes: the first has their low halves, the second the high ones.
    opened.at = (block & ~1u) * rows + row;
    opened.scale = sub_scale(SCALES((block >> 3u) * rows + row), block & 7u);
#endif
    return opened;
}

// Four bytes (or nibbles, already masked) as floats, lowest first.
vec4 bytes(uint word) {
    return vec4(uvec4(word & 255u, (word >> 8u) & 255u, (word >> 16u) & 255u, word >> 24u));
}

vec4 signed_bytes(uint word) {
    return vec4(ivec4(int(word << 24u) >> 24, int(word << 16u) >> 24, int(word << 8u) >> 24, int(word) >> 24));
}

// The codes of step `step` of a block, a byte for each weight; steps of one part take the first word.
uvec4 step_codes(Block opened, uint block, uint step, uint rows) {
#if FORMAT == FORMAT_Q8_0
    return CODES(opened.at + step * rows);
#elif FORMAT == FORMAT_Q4_1
#if STEPS == 8
    return uvec4((opened.codes[step & 3u] >> (step & 4u)) & 0x0F0F0F0Fu);
#else
    return (opened.codes >> (step << 2u)) & 0x0F0F0F0Fu;
#endif
#elif FORMAT == FORMAT_Q4_K
    return (CODES(opened.at + step * rows) >> ((block & 1u) << 2u)) & 0x0F0F0F0Fu;
#else
    return uvec4(0u);
#endif
}

#ifdef PAIRS
// The weights of two neighbouring rows, the first of which is even.
void unpack_pair(Block opened, out vec4 first[GROUPS], out vec4 second[GROUPS]) {
    uvec4 both = texelFetch(values, int(opened.at >> 1u));
    first[0] = halves(both.xy);
    second[0] = halves(both.zw);
}
#else
// The weights of part `part` of a step, in the order of the inputs.
void unpack(Block opened, uvec4 codes, uint part, uint rows, out vec4 weights[GROUPS]) {
    [[unroll]] for (int i = 0; i < GROUPS; i++) {
#if FORMAT == FORMAT_F32 || FORMAT == FORMAT_F16
        weights[i] = VALUES(opened.at + i * rows);
#elif FORMAT == FORMAT_Q8_0
        precise vec4 exact = signed_bytes(codes[part * GROUPS + i]) * opened.scale.x;
        weights[i] = exact;
#else
        precise vec4 exact = bytes(codes[part * GROUPS + i]) * opened.scale.x + opened.scale.y;
        weights[i] = exact;
#endif
    }
}
#endif
