// The better of two records of logits, and the best one of a workgroup's lanes, in a tree. Needs LANES and Found.

const uint NOTHING = 0xFFFFFFFFu;

shared float values_of[LANES];
shared uint indices_of[LANES];
shared uint broken_of[LANES];

bool finite(float value) { return (floatBitsToUint(value) & 0x7F800000u) != 0x7F800000u; }

// The larger value, of equal ones the first; a record without an index has no value.
Found better(Found a, Found b) {
    uint broken = a.broken | b.broken;
    bool second = b.index != NOTHING && (a.index == NOTHING || b.value > a.value ||
        (b.value == a.value && b.index < a.index));
    Found best = a;
    if (second) best = b;
    best.broken = broken;
    return best;
}

Found tree_best(Found own) {
    uint lane = gl_LocalInvocationID.x;
    values_of[lane] = own.value;
    indices_of[lane] = own.index;
    broken_of[lane] = own.broken;
    barrier();
    [[dont_unroll]] for (uint span = LANES / 2u; span > 0u; span >>= 1u) {
        if (lane < span) {
            uint other = lane + span;
            own = better(own, Found(values_of[other], indices_of[other], broken_of[other], 0u));
            values_of[lane] = own.value;
            indices_of[lane] = own.index;
            broken_of[lane] = own.broken;
        }
        barrier();
    }
    return own;
}
