/*
 * Conv[stride=2](1×13×3×1×3×3×2, L1, L1, L1) for x86_avx2, made by Morello.
 * Sizes: image 1×3×3×6.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c conv_tile.c
 *
 * Cost 798; memory in bytes: VRF 512. Schedule:
 *     select ConvTile
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "conv_tile needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void conv_tile(const float *restrict image, const float *restrict filters, float *restrict out);

void conv_tile(const float *restrict image, const float *restrict filters, float *restrict out) {
    /* Conv[stride=2](1×13×3×1×3×3×2, L1, L1, L1): ConvTile */
    {
        const float *const lhs = image;
        const float *rhs = filters;
        float *const out2 = out;
        __asm__ volatile("" : "+r"(rhs));
        const __m256i mask = _mm256_setr_epi32(-1, -1, -1, -1, -1, 0, 0, 0);
        __m256 sum = _mm256_setzero_ps();
        __m256 sum2 = _mm256_setzero_ps();
        __m256 sum3 = _mm256_setzero_ps();
        __m256 sum4 = _mm256_setzero_ps();
        __m256 sum5 = _mm256_setzero_ps();
        __m256 sum6 = _mm256_setzero_ps();
        for (ptrdiff_t turn = 0; turn < 9; ++turn) {
            const float *const lhs_turn = lhs + turn * 6;
            const float *const rhs_turn = rhs + turn * 26;
            const __m256 factor = _mm256_loadu_ps(rhs_turn);
            const __m256 factor2 = _mm256_maskload_ps(rhs_turn + 8, mask);
            const __m256 value = _mm256_set1_ps(*(lhs_turn));
            sum = _mm256_fmadd_ps(value, factor, sum);
            sum2 = _mm256_fmadd_ps(value, factor2, sum2);
            const __m256 value2 = _mm256_set1_ps(*(lhs_turn + 2));
            sum3 = _mm256_fmadd_ps(value2, factor, sum3);
            sum4 = _mm256_fmadd_ps(value2, factor2, sum4);
            const __m256 value3 = _mm256_set1_ps(*(lhs_turn + 4));
            sum5 = _mm256_fmadd_ps(value3, factor, sum5);
            sum6 = _mm256_fmadd_ps(value3, factor2, sum6);
            const __m256 factor3 = _mm256_loadu_ps(rhs_turn + 13);
            const __m256 factor4 = _mm256_maskload_ps(rhs_turn + 21, mask);
            const __m256 value4 = _mm256_set1_ps(*(lhs_turn + 1));
            sum = _mm256_fmadd_ps(value4, factor3, sum);
            sum2 = _mm256_fmadd_ps(value4, factor4, sum2);
            const __m256 value5 = _mm256_set1_ps(*(lhs_turn + 3));
            sum3 = _mm256_fmadd_ps(value5, factor3, sum3);
            sum4 = _mm256_fmadd_ps(value5, factor4, sum4);
            const __m256 value6 = _mm256_set1_ps(*(lhs_turn + 5));
            sum5 = _mm256_fmadd_ps(value6, factor3, sum5);
            sum6 = _mm256_fmadd_ps(value6, factor4, sum6);
        }
        _mm256_storeu_ps(out2, sum);
        memcpy(out2 + 8, (__m256[]){sum2}, 20);
        _mm256_storeu_ps(out2 + 13, sum3);
        memcpy(out2 + 21, (__m256[]){sum4}, 20);
        _mm256_storeu_ps(out2 + 26, sum5);
        memcpy(out2 + 34, (__m256[]){sum6}, 20);
    }
}
