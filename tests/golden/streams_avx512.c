/*
 * Relu(3×100, GL, GL) for x86_avx512, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign -c streams_avx512.c
 *
 * Cost 12465; memory in bytes: VRF 128. Schedule:
 *     select VectorReluStreamed
 */
#if !defined(__AVX512F__) || !defined(__AVX512VL__) || !defined(__AVX512BW__) || !defined(__FMA__)
#error "streams_avx512 needs avx512f, avx512vl, avx512bw, fma: compile it with -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void streams_avx512(const float *restrict src, float *restrict out);

typedef float f32x16 __attribute__((vector_size(64)));

static inline f32x16 load_f32x16(const float *from) {
    f32x16 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline f32x16 larger_number_f32x16(f32x16 a, f32x16 b) {
    return _mm512_max_ps(a, b);
}

static inline void store_f32x16(float *to, f32x16 v) {
    memcpy(to, &v, sizeof v);
}

static inline void stream_f32x16(float *to, f32x16 v) {
    _mm512_stream_si512((__m512i *)to, (__m512i)v);
}

void streams_avx512(const float *restrict src, float *restrict out) {
    /* Relu(3×100, GL, GL): VectorReluStreamed */
    {
        const float *const src_at = src;
        float *const out_at = out;
        {
            store_f32x16(out_at + 0, larger_number_f32x16((f32x16){0}, load_f32x16(src_at + 0)));
        }
        ptrdiff_t i = 16 - (ptrdiff_t)((uintptr_t)out_at % 64 / 4);
        for (; i <= 284; i += 16) {
            stream_f32x16(out_at + i, larger_number_f32x16((f32x16){0}, load_f32x16(src_at + i)));
        }
        {
            store_f32x16(out_at + 284, larger_number_f32x16((f32x16){0}, load_f32x16(src_at + 284)));
        }
        _mm_sfence();
    }
}
