/*
 * MatmulAccum(1×2×4×9, L1, L1, L1) for x86_avx512, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign -c matmul_avx512.c
 *
 * Cost 240; memory in bytes: VRF 2048. Schedule:
 *     select RegisterTileAccum
 */
#if !defined(__AVX512F__) || !defined(__AVX512VL__) || !defined(__AVX512BW__) || !defined(__FMA__)
#error "matmul_avx512 needs avx512f, avx512vl, avx512bw, fma: compile it with -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void matmul_avx512(const float *restrict lhs, const float *restrict rhs, float *restrict out);

void matmul_avx512(const float *restrict lhs, const float *restrict rhs, float *restrict out) {
    /* MatmulAccum(1×2×4×9, L1, L1, L1): RegisterTileAccum */
    {
        const float *const lhs2 = lhs;
        const float *rhs2 = rhs;
        float *const out2 = out;
        __asm__ volatile("" : "+r"(rhs2));
        __m512 sum = _mm512_maskz_loadu_ps((__mmask16)0x1ff, out2);
        __m512 sum2 = _mm512_maskz_loadu_ps((__mmask16)0x1ff, out2 + 9);
        const __m512 factor = _mm512_maskz_loadu_ps((__mmask16)0x1ff, rhs2);
        const __m512 value = _mm512_set1_ps(*(lhs2));
        sum = _mm512_fmadd_ps(value, factor, sum);
        const __m512 value2 = _mm512_set1_ps(*(lhs2 + 4));
        sum2 = _mm512_fmadd_ps(value2, factor, sum2);
        const __m512 factor2 = _mm512_maskz_loadu_ps((__mmask16)0x1ff, rhs2 + 9);
        const __m512 value3 = _mm512_set1_ps(*(lhs2 + 1));
        sum = _mm512_fmadd_ps(value3, factor2, sum);
        const __m512 value4 = _mm512_set1_ps(*(lhs2 + 5));
        sum2 = _mm512_fmadd_ps(value4, factor2, sum2);
        const __m512 factor3 = _mm512_maskz_loadu_ps((__mmask16)0x1ff, rhs2 + 18);
        const __m512 value5 = _mm512_set1_ps(*(lhs2 + 2));
        sum = _mm512_fmadd_ps(value5, factor3, sum);
        const __m512 value6 = _mm512_set1_ps(*(lhs2 + 6));
        sum2 = _mm512_fmadd_ps(value6, factor3, sum2);
        const __m512 factor4 = _mm512_maskz_loadu_ps((__mmask16)0x1ff, rhs2 + 27);
        const __m512 value7 = _mm512_set1_ps(*(lhs2 + 3));
        sum = _mm512_fmadd_ps(value7, factor4, sum);
        const __m512 value8 = _mm512_set1_ps(*(lhs2 + 7));
        sum2 = _mm512_fmadd_ps(value8, factor4, sum2);
        _mm512_mask_storeu_ps(out2, (__mmask16)0x1ff, sum);
        _mm512_mask_storeu_ps(out2 + 9, (__mmask16)0x1ff, sum2);
    }
}
