/*
 * Move(8×32, L1, L1) for x86_avx2, made by Morello.
 *
 * Cost 1280; memory in bytes: none. Schedule:
 *     tile [1, 1]
 *     select Assign
 */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void packed(const float *restrict src, float *restrict out) {
    /* Move(8×32, L1, L1): tile [1, 1] */
    for (ptrdiff_t i0 = 0; i0 < 8; ++i0) {
        for (ptrdiff_t i1 = 0; i1 < 32; ++i1) {
            /* Move(1×1, L1, L1): Assign */
            out[32 * i0 + 16 * (i1 / 16) + 8 * ((i1 % 16) % 2) + ((i1 % 16) / 2)] = src[64 * (i1 / 8) + 8 * i0 + (i1 % 8)];
        }
    }
}
