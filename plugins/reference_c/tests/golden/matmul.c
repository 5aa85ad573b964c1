/* Matmul(2×4×6×8): its meaning, in plain loops.
   Compile: cc -std=gnu11 -O3 -fno-math-errno -ffp-contract=off -c sample.c */

#include <stddef.h>
#include <stdint.h>

void sample(const float *restrict lhs, const float *restrict rhs, float *restrict out);

/* lhs: f32 2×4×6, layout[0, 1, 2] */
static inline ptrdiff_t lhs_at(ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t i2) {
    return i0 * 24 + i1 * 6 + i2;
}

/* rhs: f32 2×6×8, layout[0, 1, 2] */
static inline ptrdiff_t rhs_at(ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t i2) {
    return i0 * 48 + i1 * 8 + i2;
}

/* out: f32 2×4×8, layout[0, 1, 2] */
static inline ptrdiff_t out_at(ptrdiff_t i0, ptrdiff_t i1, ptrdiff_t i2) {
    return i0 * 32 + i1 * 8 + i2;
}

void sample(const float *restrict lhs, const float *restrict rhs, float *restrict out) {
    for (ptrdiff_t b = 0; b < 2; b++) {
        for (ptrdiff_t m = 0; m < 4; m++) {
            for (ptrdiff_t n = 0; n < 8; n++) {
                float sum = 0;
                for (ptrdiff_t k = 0; k < 6; k++) {
                    sum += lhs[lhs_at(b, m, k)] * rhs[rhs_at(b, k, n)];
                }
                out[out_at(b, m, n)] = sum;
            }
        }
    }
}
