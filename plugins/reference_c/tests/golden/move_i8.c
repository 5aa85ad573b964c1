/* Move(3×5): its meaning, in plain loops.
   Compile: cc -std=gnu11 -O3 -fno-math-errno -ffp-contract=off -c sample.c */

#include <stddef.h>
#include <stdint.h>

void sample(const int8_t *restrict src, float *restrict out);

/* src: i8 3×5, layout[0, 1] */
static inline ptrdiff_t src_at(ptrdiff_t i0, ptrdiff_t i1) {
    return i0 * 5 + i1;
}

/* out: f32 3×5, layout[0, 1] */
static inline ptrdiff_t out_at(ptrdiff_t i0, ptrdiff_t i1) {
    return i0 * 5 + i1;
}

void sample(const int8_t *restrict src, float *restrict out) {
    for (ptrdiff_t i0 = 0; i0 < 3; i0++) {
        for (ptrdiff_t i1 = 0; i1 < 5; i1++) {
            out[out_at(i0, i1)] = (float)src[src_at(i0, i1)];
        }
    }
}
