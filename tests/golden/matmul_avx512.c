/*
 * MatmulAccum(1×2×4×9, L1, L1, L1) for x86_avx512, made by Morello.
 *
 * Cost 56; memory in bytes: VRF 192. Schedule:
 *     tile [1, 1, 9]
 *     split 1
 *     select MaskedBroadcastMultAdd
 */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef float f32x16 __attribute__((vector_size(64)));

void matmul_avx512(const float *restrict lhs, const float *restrict rhs, float *restrict out) {
    /* MatmulAccum(1×2×4×9, L1, L1, L1): tile [1, 1, 9] */
    for (ptrdiff_t m = 0; m < 2; ++m) {
        /* MatmulAccum(1×1×4×9, L1, L1, L1): split 1 */
        for (ptrdiff_t k = 0; k < 4; ++k) {
            /* MatmulAccum(1×1×1×9, L1, L1, L1): MaskedBroadcastMultAdd */
            _mm512_mask_storeu_epi32(&out[9 * m], (__mmask16)0x1ff, (__m512i)_mm512_fmadd_ps(_mm512_set1_ps(lhs[4 * m + k]), (f32x16)_mm512_maskz_loadu_epi32((__mmask16)0x1ff, &rhs[9 * k]), (f32x16)_mm512_maskz_loadu_epi32((__mmask16)0x1ff, &out[9 * m])));
        }
    }
}
