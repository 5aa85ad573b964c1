/*
 * Matmul(1×1×64×4, L1, L1, L1) for x86_avx512, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign -mavx512bf16 -c bf16_avx512.c
 *
 * Cost 215; memory in bytes: VRF 384. Schedule:
 *     to_accum
 *     subschedule [0] {
 *         select MemsetZero
 *     }
 *     tile [1, 1, 1]
 *     select DotProductLoopVdpbf16ps
 */
#if !defined(__AVX512F__) || !defined(__AVX512VL__) || !defined(__AVX512BW__) || !defined(__FMA__) || !defined(__AVX512BF16__)
#error "bf16_avx512 needs avx512f, avx512vl, avx512bw, fma, avx512_bf16: compile it with -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign -mavx512bf16"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void bf16_avx512(const uint16_t *restrict lhs, const uint16_t *restrict rhs, float *restrict out);

typedef float f32x16 __attribute__((vector_size(64)));

typedef uint16_t bf16x32 __attribute__((vector_size(64)));

typedef float f32x4 __attribute__((vector_size(16)));

typedef float f32x8 __attribute__((vector_size(32)));

static inline bf16x32 load_bf16x32(const uint16_t *from) {
    bf16x32 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline f32x8 halves_of_f32x16(f32x16 v) {
    f32x8 half[2];
    memcpy(half, &v, sizeof v);
    return half[0] + half[1];
}

static inline f32x4 add_up_four_f32x8(f32x8 a, f32x8 b, f32x8 c, f32x8 d) {
    const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps((__m256)a, (__m256)b), _mm256_hadd_ps((__m256)c, (__m256)d));
    f32x4 half[2];
    memcpy(half, &pairs, sizeof pairs);
    return half[0] + half[1];
}

static inline f32x4 load_f32x4(const float *from) {
    f32x4 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_f32x4(float *to, f32x4 v) {
    memcpy(to, &v, sizeof v);
}

void bf16_avx512(const uint16_t *restrict lhs, const uint16_t *restrict rhs, float *restrict out) {
    /* Matmul(1×1×64×4, L1, L1, L1): to_accum */
    /* FillZero(1×1×4, L1): MemsetZero */
    memset(&out[0], 0, 16);
    /* MatmulAccum(1×1×64×4, L1, L1, L1): tile [1, 1, 1] */
    /* MatmulAccum(1×1×64×1, L1, L1, L1): DotProductLoopVdpbf16ps, 4 at once */
    {
        const uint16_t *const lhs_at = lhs;
        const uint16_t *const rhs_at = rhs;
        const uint16_t *const rhs_at2 = rhs + 64;
        const uint16_t *const rhs_at3 = rhs + 128;
        const uint16_t *const rhs_at4 = rhs + 192;
        f32x16 sum = {0}, sum2 = {0}, sum3 = {0}, sum4 = {0}, sum5 = {0}, sum6 = {0}, sum7 = {0}, sum8 = {0};
        for (ptrdiff_t i = 0; i < 64; i += 64) {
            sum = _mm512_dpbf16_ps(sum, (__m512bh)load_bf16x32(lhs_at + i), (__m512bh)load_bf16x32(rhs_at + i));
            sum3 = _mm512_dpbf16_ps(sum3, (__m512bh)load_bf16x32(lhs_at + i), (__m512bh)load_bf16x32(rhs_at2 + i));
            sum5 = _mm512_dpbf16_ps(sum5, (__m512bh)load_bf16x32(lhs_at + i), (__m512bh)load_bf16x32(rhs_at3 + i));
            sum7 = _mm512_dpbf16_ps(sum7, (__m512bh)load_bf16x32(lhs_at + i), (__m512bh)load_bf16x32(rhs_at4 + i));
            sum2 = _mm512_dpbf16_ps(sum2, (__m512bh)load_bf16x32(lhs_at + i + 32), (__m512bh)load_bf16x32(rhs_at + i + 32));
            sum4 = _mm512_dpbf16_ps(sum4, (__m512bh)load_bf16x32(lhs_at + i + 32), (__m512bh)load_bf16x32(rhs_at2 + i + 32));
            sum6 = _mm512_dpbf16_ps(sum6, (__m512bh)load_bf16x32(lhs_at + i + 32), (__m512bh)load_bf16x32(rhs_at3 + i + 32));
            sum8 = _mm512_dpbf16_ps(sum8, (__m512bh)load_bf16x32(lhs_at + i + 32), (__m512bh)load_bf16x32(rhs_at4 + i + 32));
        }
        store_f32x4(out, load_f32x4(out) + add_up_four_f32x8(halves_of_f32x16(sum + sum2), halves_of_f32x16(sum3 + sum4), halves_of_f32x16(sum5 + sum6), halves_of_f32x16(sum7 + sum8)));
    }
}
