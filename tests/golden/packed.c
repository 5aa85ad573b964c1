/*
 * Move(8×32, L1, L1) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c packed.c
 *
 * Cost 2304; memory in bytes: none. Schedule:
 *     tile [1, 1]
 *     select Assign
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "packed needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void packed(const float *restrict src, float *restrict out);

void packed(const float *restrict src, float *restrict out) {
    /* Move(8×32, L1, L1): tile [1, 1] */
    for (ptrdiff_t i0 = 0; i0 < 8; ++i0) {
        for (ptrdiff_t i1 = 0; i1 < 2; ++i1) {
            for (ptrdiff_t i1_2 = 0; i1_2 < 2; ++i1_2) {
                for (ptrdiff_t i1_3 = 0; i1_3 < 4; ++i1_3) {
                    for (ptrdiff_t i1_4 = 0; i1_4 < 2; ++i1_4) {
                        /* Move(1×1, L1, L1): Assign */
                        out[32 * i0 + 16 * i1 + 8 * i1_4 + 4 * i1_2 + i1_3] = src[128 * i1 + 64 * i1_2 + 8 * i0 + 2 * i1_3 + i1_4];
                    }
                }
            }
        }
    }
}
