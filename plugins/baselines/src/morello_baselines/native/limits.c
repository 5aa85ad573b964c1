/* Measures the most that a core can do: multiply-adds of registers, and reading memory. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

struct work {
    int64_t steps;
    const char *memory;
    int64_t bytes;
    double result;
};

/* Twelve sums that do not depend on each other: two multiply-adds a cycle with a latency of four take eight. */
#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define DECLARE(i) s##i = one,
/* Nothing is known of y, so that no product is used twice. */
#define STEP(i)                                                                                                        \
    s##i = OPERATION(s##i, x, y);                                                                                      \
    __asm__ volatile("" : "+v"(y));
#define OPAQUE(i) __asm__ volatile("" : "+v"(s##i));
#define ADD(i) total += ((const float *)&s##i)[0];
#define MULTIPLY_ADDS(name, features, type, start)                                                                     \
    __attribute__((target(features))) void name(void *context) {                                                       \
        struct work *w = context;                                                                                      \
        type one = start, x = one, y = one, TWELVE(DECLARE) last = one;                                                \
        __asm__ volatile("" : "+v"(x));                                                                                \
        for (int64_t i = 0; i < w->steps; i++) {                                                                       \
            TWELVE(STEP)                                                                                               \
            TWELVE(OPAQUE)                                                                                             \
        }                                                                                                              \
        double total = ((const float *)&last)[0];                                                                      \
        TWELVE(ADD)                                                                                                    \
        w->result = total;                                                                                             \
    }

#define OPERATION(sum, x, y) _mm256_fmadd_ps(x, y, sum)
MULTIPLY_ADDS(fma_avx2, "avx2,fma", __m256, _mm256_set1_ps(0.5f))
#undef OPERATION
#define OPERATION(sum, x, y) _mm512_fmadd_ps(x, y, sum)
MULTIPLY_ADDS(fma_avx512, "avx512f", __m512, _mm512_set1_ps(0.5f))
#undef OPERATION
/* Sums of bytes in 16 bits are an instruction for products of pairs and one for adding them. */
#define OPERATION(sum, x, y) _mm256_adds_epi16(sum, _mm256_maddubs_epi16(x, y))
MULTIPLY_ADDS(bytes_avx2, "avx2", __m256i, _mm256_set1_epi8(1))
#undef OPERATION
#define OPERATION(sum, x, y) _mm256_dpbusd_avx_epi32(sum, x, y)
MULTIPLY_ADDS(vnni_avx2, "avx2,avxvnni", __m256i, _mm256_set1_epi8(1))
#undef OPERATION
#define OPERATION(sum, x, y) _mm512_dpbusd_epi32(sum, x, y)
MULTIPLY_ADDS(vnni_avx512, "avx512f,avx512vnni", __m512i, _mm512_set1_epi8(1))
#undef OPERATION
#define OPERATION(sum, x, y) _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y)
MULTIPLY_ADDS(bf16_avx512, "avx512f,avx512bf16", __m512, _mm512_set1_ps(0.5f))

/* Reads `bytes` of memory, a multiple of 256, `steps` times. */
#define READ(name, features, type, zero, either)                                                                       \
    __attribute__((target(features))) void name(void *context) {                                                       \
        struct work *w = context;                                                                                      \
        type s0 = zero, s1 = s0, s2 = s0, s3 = s0;                                                                     \
        for (int64_t i = 0; i < w->steps; i++)                                                                         \
            for (const char *p = w->memory, *end = p + w->bytes; p < end; p += 4 * sizeof(type)) {                     \
                const type *q = (const type *)p;                                                                       \
                s0 = either(s0, q[0]), s1 = either(s1, q[1]), s2 = either(s2, q[2]), s3 = either(s3, q[3]);            \
                __asm__ volatile("" : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3));                                         \
            }                                                                                                          \
        s0 = either(either(s0, s1), either(s2, s3));                                                                   \
        w->result = ((const float *)&s0)[0];                                                                           \
    }
READ(read_avx2, "avx2", __m256i, _mm256_setzero_si256(), _mm256_or_si256)
READ(read_avx512, "avx512f", __m512i, _mm512_setzero_si512(), _mm512_or_si512)
