/*
 * MatmulAccum(1×7×5×3, L1, L1, L1) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c boundaries.c
 *
 * Cost 1155; memory in bytes: none. Schedule:
 *     tile [1, 4, 2]
 *     subschedule [0] {
 *         split 2
 *         subschedule [0] {
 *             tile [1, 1, 1]
 *             split 1
 *             select MultAdd
 *         }
 *         subschedule [1] {
 *             tile [1, 1, 1]
 *             select MultAdd
 *         }
 *     }
 *     subschedule [1] {
 *         tile [0, 1, 1, 1]
 *         select MultAdd
 *     }
 *     subschedule [2] {
 *         tile [0, 1, 1, 1]
 *         select MultAdd
 *     }
 *     subschedule [3] {
 *         tile [0, 1, 1, 1]
 *         select MultAdd
 *     }
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "boundaries needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void boundaries(const float *restrict lhs, const float *restrict rhs, float *restrict out);

void boundaries(const float *restrict lhs, const float *restrict rhs, float *restrict out) {
    /* MatmulAccum(1×7×5×3, L1, L1, L1): tile [1, 4, 2] */
    /* MatmulAccum(1×4×5×2, L1, L1, L1): split 2 */
    for (ptrdiff_t k = 0; k < 2; ++k) {
        /* MatmulAccum(1×4×2×2, L1, L1, L1): tile [1, 1, 1] */
        for (ptrdiff_t m = 0; m < 4; ++m) {
            for (ptrdiff_t n = 0; n < 2; ++n) {
                /* MatmulAccum(1×1×2×1, L1, L1, L1): split 1 */
                for (ptrdiff_t k2 = 0; k2 < 2; ++k2) {
                    /* MatmulAccum(1×1×1×1, L1, L1, L1): MultAdd */
                    out[3 * m + n] += lhs[5 * m + 2 * k + k2] * rhs[6 * k + 3 * k2 + n];
                }
            }
        }
    }
    /* MatmulAccum(1×4×5×2, L1, L1, L1): split 2 (boundary) */
    /* MatmulAccum(1×4×1×2, L1, L1, L1): tile [1, 1, 1] */
    for (ptrdiff_t m = 0; m < 4; ++m) {
        for (ptrdiff_t n = 0; n < 2; ++n) {
            /* MatmulAccum(1×1×1×1, L1, L1, L1): MultAdd */
            out[3 * m + n] += lhs[5 * m + 4] * rhs[n + 12];
        }
    }
    /* MatmulAccum(1×7×5×3, L1, L1, L1): tile [1, 4, 2] (boundary) */
    /* MatmulAccum(1×4×5×1, L1, L1, L1): tile [0, 1, 1, 1] */
    for (ptrdiff_t m = 0; m < 4; ++m) {
        for (ptrdiff_t k = 0; k < 5; ++k) {
            /* MatmulAccum(1×1×1×1, L1, L1, L1): MultAdd */
            out[3 * m + 2] += lhs[5 * m + k] * rhs[3 * k + 2];
        }
    }
    /* MatmulAccum(1×7×5×3, L1, L1, L1): tile [1, 4, 2] (boundary) */
    /* MatmulAccum(1×3×5×2, L1, L1, L1): tile [0, 1, 1, 1] */
    for (ptrdiff_t m = 0; m < 3; ++m) {
        for (ptrdiff_t k = 0; k < 5; ++k) {
            for (ptrdiff_t n = 0; n < 2; ++n) {
                /* MatmulAccum(1×1×1×1, L1, L1, L1): MultAdd */
                out[3 * m + n + 12] += lhs[5 * m + k + 20] * rhs[3 * k + n];
            }
        }
    }
    /* MatmulAccum(1×7×5×3, L1, L1, L1): tile [1, 4, 2] (boundary) */
    /* MatmulAccum(1×3×5×1, L1, L1, L1): tile [0, 1, 1, 1] */
    for (ptrdiff_t m = 0; m < 3; ++m) {
        for (ptrdiff_t k = 0; k < 5; ++k) {
            /* MatmulAccum(1×1×1×1, L1, L1, L1): MultAdd */
            out[3 * m + 14] += lhs[5 * m + k + 20] * rhs[3 * k + 2];
        }
    }
}
