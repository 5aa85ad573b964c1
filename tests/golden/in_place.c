/*
 * Softmax(4×16, L1, L1) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c in_place.c
 *
 * Cost 1640; memory in bytes: VRF 256. Schedule:
 *     tile [1, 16]
 *     select VectorSoftmax
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "in_place needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void in_place(float *restrict x);

typedef float f32x8 __attribute__((vector_size(32)));

typedef int32_t i32x8 __attribute__((vector_size(32)));

typedef uint32_t u32x8 __attribute__((vector_size(32)));

typedef float f32x4 __attribute__((vector_size(16)));

static inline f32x8 exp_below_own_f32x8(f32x8 x, f32x8 max) {
    x = _mm256_max_ps(_mm256_set1_ps(-130.0f), x - _mm256_max_ps(_mm256_set1_ps(-0x1.fffffep127f), max));
    const f32x8 magic = _mm256_set1_ps(0x1.80017ep23f);
    const f32x8 sum = _mm256_fmadd_ps(x, _mm256_set1_ps(0x1.715476p+0f), magic), n = sum - magic;
    f32x8 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e430p-1f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-0x1.05c610p-29f), r);
    const f32x8 low = _mm256_fmadd_ps(r, _mm256_set1_ps(0x1.555492p-3f), _mm256_set1_ps(0x1.fffffcp-2f));
    f32x8 p = _mm256_fmadd_ps(r, _mm256_set1_ps(0x1.6a4d60p-10f), _mm256_set1_ps(0x1.12398ep-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558b0p-5f));
    p = _mm256_fmadd_ps(p, r * r, low);
    p = _mm256_fmadd_ps(p, r * r, r) + 1.0f;
    return p * (f32x8)((u32x8)sum << 23) * 0x1p-64f;
}

static inline f32x8 repeat_f32x8(float value) {
    return (f32x8){value, value, value, value, value, value, value, value};
}

static inline f32x8 load_f32x8(const float *from) {
    f32x8 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline f32x8 larger_number_f32x8(f32x8 a, f32x8 b) {
    return _mm256_max_ps(a, b);
}

static inline f32x8 greater_f32x8(f32x8 a, f32x8 b) {
    return larger_number_f32x8(a, b);
}

static inline float greater_f32(float a, float b) {
    return a > b ? a : b;
}

static inline float greater_of_f32x4(f32x4 v) {
    float result = v[0];
    for (int i = 1; i < 4; ++i) {
        result = greater_f32(result, v[i]);
    }
    return result;
}

static inline f32x4 larger_number_f32x4(f32x4 a, f32x4 b) {
    return _mm_max_ps(a, b);
}

static inline f32x4 greater_f32x4(f32x4 a, f32x4 b) {
    return larger_number_f32x4(a, b);
}

static inline float greater_of_f32x8(f32x8 v) {
    f32x4 half[2];
    memcpy(half, &v, sizeof v);
    return greater_of_f32x4(greater_f32x4(half[0], half[1]));
}

static inline void store_f32x8(float *to, f32x8 v) {
    memcpy(to, &v, sizeof v);
}

static inline f32x8 add_f32x8(f32x8 a, f32x8 b) {
    return a + b;
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

void in_place(float *restrict x) {
    /* Softmax(4×16, L1, L1): tile [1, 16] */
    for (ptrdiff_t i0 = 0; i0 < 4; ++i0) {
        /* Softmax(1×16, L1, L1): VectorSoftmax */
        {
            f32x8 part = repeat_f32x8(-__builtin_inff());
            f32x8 part2 = repeat_f32x8(-__builtin_inff());
            const float *const x_at = &x[16 * i0];
            for (ptrdiff_t i = 0; i < 16; i += 16) {
                part = greater_f32x8(load_f32x8(x_at + i), part);
                part2 = greater_f32x8(load_f32x8(x_at + i + 8), part2);
            }
            const float result = greater_of_f32x8(greater_f32x8(part, part2));
            const f32x8 every = repeat_f32x8(result);
            f32x8 part3 = repeat_f32x8(0x0.0p+0f);
            f32x8 part4 = repeat_f32x8(0x0.0p+0f);
            const float *const x_at2 = &x[16 * i0];
            float *const x_at3 = &x[16 * i0];
            for (ptrdiff_t i2 = 0; i2 < 16; i2 += 16) {
                const f32x8 power0 = exp_below_own_f32x8(load_f32x8(x_at2 + i2), every);
                store_f32x8(x_at3 + i2, power0);
                part3 = add_f32x8(power0, part3);
                const f32x8 power1 = exp_below_own_f32x8(load_f32x8(x_at2 + i2 + 8), every);
                store_f32x8(x_at3 + i2 + 8, power1);
                part4 = add_f32x8(power1, part4);
            }
            const float result2 = add_of_f32x8(add_f32x8(part3, part4));
            const f32x8 factor = repeat_f32x8(1.0f / result2);
            float *const x_at4 = &x[16 * i0];
            for (ptrdiff_t i3 = 0; i3 < 16; i3 += 8) {
                store_f32x8(x_at4 + i3, load_f32x8(x_at4 + i3) * factor);
            }
        }
    }
}
