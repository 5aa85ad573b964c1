/*
 * MatmulAccum(1×1×96×1, L1, L1, RF) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c dot.c
 *
 * Cost 170; memory in bytes: VRF 128. Schedule:
 *     select DotProductLoop
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "dot needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void dot(const float *restrict lhs, const float *restrict rhs, float *restrict out);

typedef float f32x8 __attribute__((vector_size(32)));

typedef float f32x4 __attribute__((vector_size(16)));

static inline f32x8 load_f32x8(const float *from) {
    f32x8 v;
    memcpy(&v, from, sizeof v);
    return v;
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

void dot(const float *restrict lhs, const float *restrict rhs, float *restrict out) {
    float out_0;
    out_0 = out[0];
    /* MatmulAccum(1×1×96×1, L1, L1, RF): DotProductLoop */
    {
        const float *const lhs_at = lhs;
        const float *const rhs_at = rhs;
        f32x8 sum = {0}, sum2 = {0}, sum3 = {0}, sum4 = {0};
        for (ptrdiff_t i = 0; i < 96; i += 32) {
            sum = _mm256_fmadd_ps(load_f32x8(lhs_at + i), load_f32x8(rhs_at + i), sum);
            sum2 = _mm256_fmadd_ps(load_f32x8(lhs_at + i + 8), load_f32x8(rhs_at + i + 8), sum2);
            sum3 = _mm256_fmadd_ps(load_f32x8(lhs_at + i + 16), load_f32x8(rhs_at + i + 16), sum3);
            sum4 = _mm256_fmadd_ps(load_f32x8(lhs_at + i + 24), load_f32x8(rhs_at + i + 24), sum4);
        }
        out_0 += add_of_f32x8(sum + sum2 + sum3 + sum4);
    }
    out[0] = out_0;
}
