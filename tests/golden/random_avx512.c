/*
 * RandMatmul[seed=1](1×2×8×16, L1, L1, L1, L1) for x86_avx512, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign -c random_avx512.c
 *
 * Cost 369; memory in bytes: VRF 2048, L1 64. Schedule:
 *     materialize to L1
 *     subschedule [0] {
 *         tile [1, 1, 8]
 *         select VectorRandom
 *     }
 *     subschedule [1] {
 *         select RegisterTile
 *     }
 */
#if !defined(__AVX512F__) || !defined(__AVX512VL__) || !defined(__AVX512BW__) || !defined(__FMA__)
#error "random_avx512 needs avx512f, avx512vl, avx512bw, fma: compile it with -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void random_avx512(const uint32_t *restrict rows, const uint32_t *restrict columns, const float *restrict rhs, float *restrict out);

typedef uint32_t u32x8 __attribute__((vector_size(32)));

typedef int32_t i32x8 __attribute__((vector_size(32)));

typedef float f32x8 __attribute__((vector_size(32)));

static inline u32x8 repeat_u32x8(uint32_t value) {
    return (u32x8){value, value, value, value, value, value, value, value};
}

static inline u32x8 mixed_u32x8(u32x8 x) {
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    x ^= x >> 16;
    return x;
}

static inline f32x8 random_f32x8(u32x8 key, u32x8 column) {
    const u32x8 x = mixed_u32x8(key ^ column * 0x9e3779b9u);
    return __builtin_convertvector(((i32x8)x >> 8), f32x8) * 0x1.0000000000000p-23f;
}

static inline u32x8 load_u32x8(const uint32_t *from) {
    u32x8 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_f32x8(float *to, f32x8 v) {
    memcpy(to, &v, sizeof v);
}

void random_avx512(const uint32_t *restrict rows, const uint32_t *restrict columns, const float *restrict rhs, float *restrict out) {
    /* RandMatmul[seed=1](1×2×8×16, L1, L1, L1, L1): materialize to L1 */
    {
        _Alignas(64) float between_l1[16];
        /* Random[seed=1](1×2×8, L1, L1, L1): tile [1, 1, 8] */
        for (ptrdiff_t m = 0; m < 2; ++m) {
            /* Random[seed=1](1×1×8, L1, L1, L1): VectorRandom */
            {
                const u32x8 rows_all = repeat_u32x8(rows[m]);
                const uint32_t *const columns_at = columns;
                float *const between_l1_at = &between_l1[8 * m];
                for (ptrdiff_t i = 0; i < 8; i += 8) {
                    store_f32x8(between_l1_at + i, random_f32x8(mixed_u32x8(rows_all ^ 0x514e28b7u), load_u32x8(columns_at + i)));
                }
            }
        }
        /* Matmul(1×2×8×16, L1, L1, L1): RegisterTile */
        {
            const float *const lhs = between_l1;
            const float *rhs2 = rhs;
            float *const out2 = out;
            __asm__ volatile("" : "+r"(rhs2));
            __m512 sum = _mm512_setzero_ps();
            __m512 sum2 = _mm512_setzero_ps();
            for (ptrdiff_t k = 0; k < 8; k += 4) {
                const float *const lhs_k = lhs + k * 1;
                const float *const rhs2_k = rhs2 + k * 16;
                const __m512 factor = _mm512_loadu_ps(rhs2_k);
                const __m512 value = _mm512_set1_ps(*(lhs_k));
                sum = _mm512_fmadd_ps(value, factor, sum);
                const __m512 value2 = _mm512_set1_ps(*(lhs_k + 8));
                sum2 = _mm512_fmadd_ps(value2, factor, sum2);
                const __m512 factor2 = _mm512_loadu_ps(rhs2_k + 16);
                const __m512 value3 = _mm512_set1_ps(*(lhs_k + 1));
                sum = _mm512_fmadd_ps(value3, factor2, sum);
                const __m512 value4 = _mm512_set1_ps(*(lhs_k + 9));
                sum2 = _mm512_fmadd_ps(value4, factor2, sum2);
                const __m512 factor3 = _mm512_loadu_ps(rhs2_k + 32);
                const __m512 value5 = _mm512_set1_ps(*(lhs_k + 2));
                sum = _mm512_fmadd_ps(value5, factor3, sum);
                const __m512 value6 = _mm512_set1_ps(*(lhs_k + 10));
                sum2 = _mm512_fmadd_ps(value6, factor3, sum2);
                const __m512 factor4 = _mm512_loadu_ps(rhs2_k + 48);
                const __m512 value7 = _mm512_set1_ps(*(lhs_k + 3));
                sum = _mm512_fmadd_ps(value7, factor4, sum);
                const __m512 value8 = _mm512_set1_ps(*(lhs_k + 11));
                sum2 = _mm512_fmadd_ps(value8, factor4, sum2);
            }
            _mm512_storeu_ps(out2, sum);
            _mm512_storeu_ps(out2 + 16, sum2);
        }
    }
}
