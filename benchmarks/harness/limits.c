/* What a core can do at most: multiply-adds of registers, and reading memory. Each returns what was done. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

/* 12 independent sums: two multiply-adds a cycle of latency four take eight. */
struct work {
    int64_t steps;
    const char *memory;
    int64_t bytes;
    double result;
};

#define SET(i) __m256 s##i = _mm256_set1_ps((float)i);
#define STEP(i) s##i = _mm256_fmadd_ps(s##i, f, a);
__attribute__((target("avx2,fma"))) void fma_avx2(void *context) {
    struct work *w = context;
    __m256 f = _mm256_set1_ps(0.5f), a = _mm256_set1_ps(1.0f);
    TWELVE(SET)
    for (int64_t i = 0; i < w->steps; i++) {
        TWELVE(STEP)
        __asm__ volatile("" : "+x"(s0), "+x"(s1), "+x"(s2), "+x"(s3), "+x"(s4), "+x"(s5));
        __asm__ volatile("" : "+x"(s6), "+x"(s7), "+x"(s8), "+x"(s9), "+x"(s10), "+x"(s11));
    }
    w->result = s0[0] + s11[0];
}
#undef SET
#undef STEP

#define SET(i) __m512 s##i = _mm512_set1_ps((float)i);
#define STEP(i) s##i = _mm512_fmadd_ps(s##i, f, a);
__attribute__((target("avx512f"))) void fma_avx512(void *context) {
    struct work *w = context;
    __m512 f = _mm512_set1_ps(0.5f), a = _mm512_set1_ps(1.0f);
    TWELVE(SET)
    for (int64_t i = 0; i < w->steps; i++) {
        TWELVE(STEP)
        __asm__ volatile("" : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5));
        __asm__ volatile("" : "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9), "+v"(s10), "+v"(s11));
    }
    w->result = s0[0] + s11[0];
}
#undef SET
#undef STEP

/* Reads `bytes` of memory, a multiple of 256, `steps` times. */
__attribute__((target("avx2"))) void read_avx2(void *context) {
    struct work *w = context;
    __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t i = 0; i < w->steps; i++)
        for (const char *p = w->memory, *end = p + w->bytes; p < end; p += 256) {
            const __m256i *q = (const __m256i *)p;
            s0 = _mm256_or_si256(_mm256_or_si256(s0, q[0]), q[1]);
            s1 = _mm256_or_si256(_mm256_or_si256(s1, q[2]), q[3]);
            s2 = _mm256_or_si256(_mm256_or_si256(s2, q[4]), q[5]);
            s3 = _mm256_or_si256(_mm256_or_si256(s3, q[6]), q[7]);
            __asm__ volatile("" : "+x"(s0), "+x"(s1), "+x"(s2), "+x"(s3));
        }
    s0 = _mm256_or_si256(_mm256_or_si256(s0, s1), _mm256_or_si256(s2, s3));
    w->result = (double)_mm256_extract_epi64(s0, 0);
}

__attribute__((target("avx512f"))) void read_avx512(void *context) {
    struct work *w = context;
    __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t i = 0; i < w->steps; i++)
        for (const char *p = w->memory, *end = p + w->bytes; p < end; p += 256) {
            const __m512i *q = (const __m512i *)p;
            s0 = _mm512_or_si512(s0, q[0]);
            s1 = _mm512_or_si512(s1, q[1]);
            s2 = _mm512_or_si512(s2, q[2]);
            s3 = _mm512_or_si512(s3, q[3]);
            __asm__ volatile("" : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3));
        }
    s0 = _mm512_or_si512(_mm512_or_si512(s0, s1), _mm512_or_si512(s2, s3));
    w->result = (double)_mm512_reduce_or_epi64(s0);
}
