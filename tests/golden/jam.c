/*
 * MatmulAccum(1×5×64×16, GL, L1, GL) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c jam.c
 *
 * Cost 57038; memory in bytes: VRF 128, L1 512. Schedule:
 *     tile [1, 4, 16]
 *     subschedule [0] {
 *         tile [1, 2, 16]
 *         tile [1, 1, 16]
 *         move 0 to L1
 *         tile [1, 1, 8]
 *         move 2 to L1
 *         tile [1, 1, 1]
 *         select DotProductLoop
 *     }
 *     subschedule [1] {
 *         move 0 to L1
 *         move 2 to L1
 *         tile [1, 1, 6]
 *         subschedule [0] {
 *             tile [1, 1, 1]
 *             select DotProductLoop
 *         }
 *         subschedule [1] {
 *             tile [1, 1, 1]
 *             select DotProductLoop
 *         }
 *     }
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "jam needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void jam(const float *restrict lhs, const float *restrict rhs, float *restrict out);

typedef float f32x8 __attribute__((vector_size(32)));

typedef float f32x4 __attribute__((vector_size(16)));

static inline f32x8 load_f32x8(const float *from) {
    f32x8 v;
    memcpy(&v, from, sizeof v);
    return v;
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

static inline float add_f32(float a, float b) {
    return a + b;
}

static inline float add_of_f32x4(f32x4 v) {
    float result = v[0];
    for (int i = 1; i < 4; ++i) {
        result = add_f32(result, v[i]);
    }
    return result;
}

static inline f32x4 add_f32x4(f32x4 a, f32x4 b) {
    return a + b;
}

static inline float add_of_f32x8(f32x8 v) {
    f32x4 half[2];
    memcpy(half, &v, sizeof v);
    return add_of_f32x4(add_f32x4(half[0], half[1]));
}

void jam(const float *restrict lhs, const float *restrict rhs, float *restrict out) {
    /* MatmulAccum(1×5×64×16, GL, L1, GL): tile [1, 4, 16] */
    /* MatmulAccum(1×4×64×16, GL, L1, GL): tile [1, 2, 16] to [1, 1, 16] */
    for (ptrdiff_t m = 0; m < 4; ++m) {
        /* MatmulAccum(1×1×64×16, L1, L1, GL): tile [1, 1, 8] to [1, 1, 1] */
        for (ptrdiff_t n = 0; n < 2; ++n) {
            /* MatmulAccum(1×1×64×1, L1, L1, L1): DotProductLoop, 8 at once */
            {
                const float *const lhs_at = &lhs[64 * m];
                const float *const rhs_at = &rhs[512 * n];
                const float *const rhs_at2 = &rhs[512 * n + 64];
                const float *const rhs_at3 = &rhs[512 * n + 128];
                const float *const rhs_at4 = &rhs[512 * n + 192];
                const float *const rhs_at5 = &rhs[512 * n + 256];
                const float *const rhs_at6 = &rhs[512 * n + 320];
                const float *const rhs_at7 = &rhs[512 * n + 384];
                const float *const rhs_at8 = &rhs[512 * n + 448];
                f32x8 sum = {0}, sum2 = {0}, sum3 = {0}, sum4 = {0}, sum5 = {0}, sum6 = {0}, sum7 = {0}, sum8 = {0};
                for (ptrdiff_t i = 0; i < 64; i += 8) {
                    sum = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at + i), sum);
                    sum2 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at2 + i), sum2);
                    sum3 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at3 + i), sum3);
                    sum4 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at4 + i), sum4);
                    sum5 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at5 + i), sum5);
                    sum6 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at6 + i), sum6);
                    sum7 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at7 + i), sum7);
                    sum8 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at8 + i), sum8);
                }
                store_f32x4(&out[16 * m + 8 * n], load_f32x4(&out[16 * m + 8 * n]) + add_up_four_f32x8(sum, sum2, sum3, sum4));
                store_f32x4(&out[16 * m + 8 * n + 4], load_f32x4(&out[16 * m + 8 * n + 4]) + add_up_four_f32x8(sum5, sum6, sum7, sum8));
            }
        }
    }
    /* MatmulAccum(1×5×64×16, GL, L1, GL): tile [1, 4, 16] (boundary) */
    /* MatmulAccum(1×1×64×16, L1, L1, L1): tile [1, 1, 6] to [1, 1, 1] */
    for (ptrdiff_t n = 0; n < 2; ++n) {
        /* MatmulAccum(1×1×64×1, L1, L1, L1): DotProductLoop, 6 at once */
        {
            const float *const lhs_at = lhs + 256;
            const float *const rhs_at = &rhs[384 * n];
            const float *const rhs_at2 = &rhs[384 * n + 64];
            const float *const rhs_at3 = &rhs[384 * n + 128];
            const float *const rhs_at4 = &rhs[384 * n + 192];
            const float *const rhs_at5 = &rhs[384 * n + 256];
            const float *const rhs_at6 = &rhs[384 * n + 320];
            f32x8 sum = {0}, sum2 = {0}, sum3 = {0}, sum4 = {0}, sum5 = {0}, sum6 = {0};
            for (ptrdiff_t i = 0; i < 64; i += 8) {
                sum = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at + i), sum);
                sum2 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at2 + i), sum2);
                sum3 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at3 + i), sum3);
                sum4 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at4 + i), sum4);
                sum5 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at5 + i), sum5);
                sum6 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at6 + i), sum6);
            }
            store_f32x4(&out[6 * n + 64], load_f32x4(&out[6 * n + 64]) + add_up_four_f32x8(sum, sum2, sum3, sum4));
            out[6 * n + 68] += add_of_f32x8(sum5);
            out[6 * n + 69] += add_of_f32x8(sum6);
        }
    }
    /* MatmulAccum(1×1×64×16, L1, L1, L1): tile [1, 1, 6] (boundary) */
    /* MatmulAccum(1×1×64×4, L1, L1, L1): tile [1, 1, 1] */
    /* MatmulAccum(1×1×64×1, L1, L1, L1): DotProductLoop, 4 at once */
    {
        const float *const lhs_at = lhs + 256;
        const float *const rhs_at = rhs + 768;
        const float *const rhs_at2 = rhs + 832;
        const float *const rhs_at3 = rhs + 896;
        const float *const rhs_at4 = rhs + 960;
        f32x8 sum = {0}, sum2 = {0}, sum3 = {0}, sum4 = {0}, sum5 = {0}, sum6 = {0}, sum7 = {0}, sum8 = {0};
        for (ptrdiff_t i = 0; i < 64; i += 16) {
            sum = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at + i), sum);
            sum3 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at2 + i), sum3);
            sum5 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at3 + i), sum5);
            sum7 = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at4 + i), sum7);
            sum2 = _mm256_fmadd_ps(load_f32x8(lhs_at + i + 8), load_f32x8(rhs_at + i + 8), sum2);
            sum4 = _mm256_fmadd_ps(load_f32x8(lhs_at + i + 8), load_f32x8(rhs_at2 + i + 8), sum4);
            sum6 = _mm256_fmadd_ps(load_f32x8(lhs_at + i + 8), load_f32x8(rhs_at3 + i + 8), sum6);
            sum8 = _mm256_fmadd_ps(load_f32x8(lhs_at + i + 8), load_f32x8(rhs_at4 + i + 8), sum8);
        }
        store_f32x4(out + 76, load_f32x4(out + 76) + add_up_four_f32x8(sum + sum2, sum3 + sum4, sum5 + sum6, sum7 + sum8));
    }
}
