// The sum of one float per lane, added up in a tree whose shape is always the same. Needs LANES, a power of two.
// Every lane of the workgroup must call it.

shared float partial[LANES];

float tree_sum(float own) {
    uint lane = gl_LocalInvocationID.x;
    partial[lane] = own;
    barrier();
    [[dont_unroll]] for (uint span = LANES / 2u; span > 0u; span >>= 1u) {
        if (lane < span) {
            precise float sum = partial[lane] + partial[lane + span];
            partial[lane] = sum;
        }
        barrier();
    }
    return partial[0];
}
