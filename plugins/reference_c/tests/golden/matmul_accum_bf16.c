/* MatmulAccum(1×4×6×8): its meaning, in plain loops.
   Compile: cc -std=gnu11 -O3 -fno-math-errno -ffp-contract=off -c sample.c */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

void sample(const uint16_t *restrict lhs, const float *restrict rhs, uint16_t *restrict out, ptrdiff_t out_stride0);

static inline float bf16_to_float(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static inline uint16_t float_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) {
        return (uint16_t)((bits >> 16) | 0x40); /* NaN, made quiet */
    }
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* lhs: bf16 1×4×6, layout[1, 2] */
static inline ptrdiff_t lhs_at(ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t i2) {
    (void)i0;
    return i1 * 6 + i2;
}

/* rhs: f32 1×6×8, layout[1, 2, 1p2, 2oe4] */
static inline ptrdiff_t rhs_at(ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t i2) {
    (void)i0;
    return i1 / 2 * 16 + i2 / 4 * 8 + i1 % 2 * 4 + (i2 % 4 / 2 + i2 % 4 % 2 * 2);
}

/* out: bf16 1×4×8, layout[1, 2] */
static inline ptrdiff_t out_at(ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t i2, ptrdiff_t s0) {
    (void)i0;
    return i1 * s0 + i2;
}

void sample(const uint16_t *restrict lhs, const float *restrict rhs, uint16_t *restrict out, ptrdiff_t out_stride0) {
    for (ptrdiff_t b = 0; b < 1; b++) {
        for (ptrdiff_t m = 0; m < 4; m++) {
            for (ptrdiff_t n = 0; n < 8; n++) {
                float sum = bf16_to_float(out[out_at(b, m, n, out_stride0)]);
                for (ptrdiff_t k = 0; k < 6; k++) {
                    sum += bf16_to_float(lhs[lhs_at(b, m, k)]) * rhs[rhs_at(b, k, n)];
                }
                out[out_at(b, m, n, out_stride0)] = float_to_bf16(sum);
            }
        }
    }
}
