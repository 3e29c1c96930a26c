// exp(x) of float32 in a fixed order of operations, so that it doesn't depend on a driver's own approximation.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial of degree 6 (Cephes, expf), times 2^n in two steps, since
// 2^n alone may be out of range. NaN stays NaN, whatever the device does with comparisons.

float exponential(float x) {
    if ((floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u) return x;
    float held = min(max(x, -104.0), 89.0);
    precise float n = floor(held * 1.44269504088896341 + 0.5);
    precise float r = held - n * 0.693359375;
    r = r + n * 2.12194440e-4;
    precise float p = r * 1.9875691500e-4 + 1.3981999507e-3;
    p = p * r + 8.3334519073e-3;
    p = p * r + 4.1665795894e-2;
    p = p * r + 1.6666665459e-1;
    p = p * r + 5.0000001201e-1;
    precise float square = r * r;
    p = p * square + r + 1.0;
    int whole = int(n), half_of = whole >> 1;
    precise float scaled = p * uintBitsToFloat(uint(half_of + 127) << 23u);
    scaled = scaled * uintBitsToFloat(uint(whole - half_of + 127) << 23u);
    return scaled;
}
