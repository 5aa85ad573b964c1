/*
 * SoftmaxComplete(4×32, L1, L1, L1, L1) for x86_avx512, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign -c softmax_avx512.c
 *
 * Cost 812; memory in bytes: RF 8, VRF 512. Schedule:
 *     tile [1, 32]
 *     move 1 to RF
 *     subschedule [0] {
 *         select Assign
 *     }
 *     move 2 to RF
 *     subschedule [0] {
 *         select Assign
 *     }
 *     select VectorSoftmaxComplete
 */
#if !defined(__AVX512F__) || !defined(__AVX512VL__) || !defined(__AVX512BW__) || !defined(__FMA__)
#error "softmax_avx512 needs avx512f, avx512vl, avx512bw, fma: compile it with -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void softmax_avx512(const float *restrict src, const float *restrict max, const float *restrict denom, float *restrict out);

typedef float f32x16 __attribute__((vector_size(64)));

typedef int32_t i32x16 __attribute__((vector_size(64)));

typedef uint32_t u32x16 __attribute__((vector_size(64)));

static inline f32x16 repeat_f32x16(float value) {
    return (f32x16){value, value, value, value, value, value, value, value, value, value, value, value, value, value, value, value};
}

static inline f32x16 exp_polynomial_f32x16(f32x16 x, f32x16 *n, f32x16 *sum) {
    const f32x16 magic = _mm512_set1_ps(0x1.8001fcp23f);
    *sum = _mm512_fmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), magic);
    *n = *sum - magic;
    f32x16 r = _mm512_fnmadd_ps(*n, _mm512_set1_ps(0x1.62e430p-1f), x);
    r = _mm512_fnmadd_ps(*n, _mm512_set1_ps(-0x1.05c610p-29f), r);
    f32x16 p = _mm512_set1_ps(0x1.6a4d60p-10f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.12398ep-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558b0p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555492p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
}

static inline f32x16 exp_times_f32x16(f32x16 x, f32x16 y) {
    f32x16 n, sum;
    x = _mm512_min_ps(_mm512_set1_ps(1000.0f), _mm512_max_ps(_mm512_set1_ps(-1000.0f), x));
    const f32x16 p = exp_polynomial_f32x16(x, &n, &sum);
    return _mm512_scalef_ps(p * y, n);
}

static inline f32x16 softmax_f32x16(f32x16 x, f32x16 max, f32x16 denom) {
    const i32x16 small = (f32x16)((i32x16)denom & INT32_MAX) < 0x1p-64f;
    const f32x16 one = _mm512_set1_ps(1.0f), up = _mm512_set1_ps(0x1p64f), lowest = _mm512_set1_ps(-0x1.fffffep127f);
    const f32x16 scale = (f32x16)((small & (i32x16)up) | (~small & (i32x16)one));
    const f32x16 by = one / (denom * scale);
    return exp_times_f32x16(x - _mm512_max_ps(lowest, max), by) * (scale + (by - by));
}

static inline f32x16 load_f32x16(const float *from) {
    f32x16 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_f32x16(float *to, f32x16 v) {
    memcpy(to, &v, sizeof v);
}

void softmax_avx512(const float *restrict src, const float *restrict max, const float *restrict denom, float *restrict out) {
    /* SoftmaxComplete(4×32, L1, L1, L1, L1): tile [1, 32] */
    for (ptrdiff_t i0 = 0; i0 < 4; ++i0) {
        /* SoftmaxComplete(1×32, L1, L1, L1, L1): move 1 to RF */
        float max_0;
        /* Move(1×1, L1, RF): Assign */
        max_0 = max[i0];
        /* SoftmaxComplete(1×32, L1, RF, L1, L1): move 2 to RF */
        float denom_0;
        /* Move(1×1, L1, RF): Assign */
        denom_0 = denom[i0];
        /* SoftmaxComplete(1×32, L1, RF, RF, L1): VectorSoftmaxComplete */
        {
            const f32x16 max_all = repeat_f32x16(max_0);
            const f32x16 denom_all = repeat_f32x16(denom_0);
            const float *const src_at = &src[32 * i0];
            float *const out_at = &out[32 * i0];
            for (ptrdiff_t i = 0; i < 32; i += 16) {
                store_f32x16(out_at + i, softmax_f32x16(load_f32x16(src_at + i), max_all, denom_all));
            }
        }
    }
}
