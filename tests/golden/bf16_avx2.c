/*
 * Matmul(1×1×64×4, L1, L1, L1) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c bf16_avx2.c
 *
 * Cost 455; memory in bytes: VRF 192. Schedule:
 *     to_accum
 *     subschedule [0] {
 *         select MemsetZero
 *     }
 *     tile [1, 1, 1]
 *     select DotProductLoopBf16Bf16F32
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "bf16_avx2 needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void bf16_avx2(const uint16_t *restrict lhs, const uint16_t *restrict rhs, float *restrict out);

typedef float f32x8 __attribute__((vector_size(32)));

typedef uint16_t bf16x16 __attribute__((vector_size(32)));

typedef uint32_t u32x8 __attribute__((vector_size(32)));

typedef float f32x4 __attribute__((vector_size(16)));

static inline bf16x16 load_bf16x16(const uint16_t *from) {
    bf16x16 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline f32x8 even_f32x8(bf16x16 v) {
    return (f32x8)((u32x8)v << 16);
}

static inline f32x8 odd_f32x8(bf16x16 v) {
    return (f32x8)((u32x8)v & 0xffff0000);
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

void bf16_avx2(const uint16_t *restrict lhs, const uint16_t *restrict rhs, float *restrict out) {
    /* Matmul(1×1×64×4, L1, L1, L1): to_accum */
    /* FillZero(1×1×4, L1): MemsetZero */
    memset(&out[0], 0, 16);
    /* MatmulAccum(1×1×64×4, L1, L1, L1): tile [1, 1, 1] */
    /* MatmulAccum(1×1×64×1, L1, L1, L1): DotProductLoopBf16Bf16F32, 4 at once */
    {
        const uint16_t *const lhs_at = lhs;
        const uint16_t *const rhs_at = rhs;
        const uint16_t *const rhs_at2 = rhs + 64;
        const uint16_t *const rhs_at3 = rhs + 128;
        const uint16_t *const rhs_at4 = rhs + 192;
        f32x8 sum = {0}, sum2 = {0}, sum3 = {0}, sum4 = {0}, sum5 = {0}, sum6 = {0}, sum7 = {0}, sum8 = {0};
        for (ptrdiff_t i = 0; i < 64; i += 32) {
            sum = _mm256_fmadd_ps(odd_f32x8(load_bf16x16(lhs_at + i)), odd_f32x8(load_bf16x16(rhs_at + i)), _mm256_fmadd_ps(even_f32x8(load_bf16x16(lhs_at + i)), even_f32x8(load_bf16x16(rhs_at + i)), sum));
            sum3 = _mm256_fmadd_ps(odd_f32x8(load_bf16x16(lhs_at + i)), odd_f32x8(load_bf16x16(rhs_at2 + i)), _mm256_fmadd_ps(even_f32x8(load_bf16x16(lhs_at + i)), even_f32x8(load_bf16x16(rhs_at2 + i)), sum3));
            sum5 = _mm256_fmadd_ps(odd_f32x8(load_bf16x16(lhs_at + i)), odd_f32x8(load_bf16x16(rhs_at3 + i)), _mm256_fmadd_ps(even_f32x8(load_bf16x16(lhs_at + i)), even_f32x8(load_bf16x16(rhs_at3 + i)), sum5));
            sum7 = _mm256_fmadd_ps(odd_f32x8(load_bf16x16(lhs_at + i)), odd_f32x8(load_bf16x16(rhs_at4 + i)), _mm256_fmadd_ps(even_f32x8(load_bf16x16(lhs_at + i)), even_f32x8(load_bf16x16(rhs_at4 + i)), sum7));
            sum2 = _mm256_fmadd_ps(odd_f32x8(load_bf16x16(lhs_at + i + 16)), odd_f32x8(load_bf16x16(rhs_at + i + 16)), _mm256_fmadd_ps(even_f32x8(load_bf16x16(lhs_at + i + 16)), even_f32x8(load_bf16x16(rhs_at + i + 16)), sum2));
            sum4 = _mm256_fmadd_ps(odd_f32x8(load_bf16x16(lhs_at + i + 16)), odd_f32x8(load_bf16x16(rhs_at2 + i + 16)), _mm256_fmadd_ps(even_f32x8(load_bf16x16(lhs_at + i + 16)), even_f32x8(load_bf16x16(rhs_at2 + i + 16)), sum4));
            sum6 = _mm256_fmadd_ps(odd_f32x8(load_bf16x16(lhs_at + i + 16)), odd_f32x8(load_bf16x16(rhs_at3 + i + 16)), _mm256_fmadd_ps(even_f32x8(load_bf16x16(lhs_at + i + 16)), even_f32x8(load_bf16x16(rhs_at3 + i + 16)), sum6));
            sum8 = _mm256_fmadd_ps(odd_f32x8(load_bf16x16(lhs_at + i + 16)), odd_f32x8(load_bf16x16(rhs_at4 + i + 16)), _mm256_fmadd_ps(even_f32x8(load_bf16x16(lhs_at + i + 16)), even_f32x8(load_bf16x16(rhs_at4 + i + 16)), sum8));
        }
        store_f32x4(out, load_f32x4(out) + add_up_four_f32x8(sum + sum2, sum3 + sum4, sum5 + sum6, sum7 + sum8));
    }
}
