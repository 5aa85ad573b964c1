/*
 * Move(40×33, L1, L1) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c transpose_matrix.c
 *
 * Cost 2835; memory in bytes: VRF 512. Schedule:
 *     select TransposeMatrix
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "transpose_matrix needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void transpose_matrix(const float *restrict src, float *restrict out);

typedef float f32x8 __attribute__((vector_size(32)));

static inline void transpose_f32x8(f32x8 r0, f32x8 r1, f32x8 r2, f32x8 r3, f32x8 r4, f32x8 r5, f32x8 r6, f32x8 r7, f32x8 c[8]) {
    const __m256 t0 = _mm256_unpacklo_ps(r0, r1);
    const __m256 t1 = _mm256_unpackhi_ps(r0, r1);
    const __m256 t2 = _mm256_unpacklo_ps(r2, r3);
    const __m256 t3 = _mm256_unpackhi_ps(r2, r3);
    const __m256 t4 = _mm256_unpacklo_ps(r4, r5);
    const __m256 t5 = _mm256_unpackhi_ps(r4, r5);
    const __m256 t6 = _mm256_unpacklo_ps(r6, r7);
    const __m256 t7 = _mm256_unpackhi_ps(r6, r7);
    const __m256 u0 = _mm256_shuffle_ps(t0, t2, 0x44);
    const __m256 u1 = _mm256_shuffle_ps(t0, t2, 0xEE);
    const __m256 u2 = _mm256_shuffle_ps(t1, t3, 0x44);
    const __m256 u3 = _mm256_shuffle_ps(t1, t3, 0xEE);
    const __m256 u4 = _mm256_shuffle_ps(t4, t6, 0x44);
    const __m256 u5 = _mm256_shuffle_ps(t4, t6, 0xEE);
    const __m256 u6 = _mm256_shuffle_ps(t5, t7, 0x44);
    const __m256 u7 = _mm256_shuffle_ps(t5, t7, 0xEE);
    c[0] = _mm256_permute2f128_ps(u0, u4, 0x20);
    c[1] = _mm256_permute2f128_ps(u1, u5, 0x20);
    c[2] = _mm256_permute2f128_ps(u2, u6, 0x20);
    c[3] = _mm256_permute2f128_ps(u3, u7, 0x20);
    c[4] = _mm256_permute2f128_ps(u0, u4, 0x31);
    c[5] = _mm256_permute2f128_ps(u1, u5, 0x31);
    c[6] = _mm256_permute2f128_ps(u2, u6, 0x31);
    c[7] = _mm256_permute2f128_ps(u3, u7, 0x31);
}

static inline f32x8 load_f32x8(const float *from) {
    f32x8 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void stream_f32x8(float *to, f32x8 v) {
    _mm256_stream_si256((__m256i *)to, (__m256i)v);
}

static inline void store_f32x8(float *to, f32x8 v) {
    memcpy(to, &v, sizeof v);
}

static inline void lines_of_f32x8(const float *from, ptrdiff_t row, float *to, ptrdiff_t column, int streams) {
    f32x8 c[2][8];
    for (int part = 0; part < 2; ++part) {
        f32x8 r[8];
        for (int i = 0; i < 8; ++i)
            r[i] = load_f32x8(from + (8 * part + i) * row);
        transpose_f32x8(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], c[part]);
    }
    for (int i = 0; i < 8; ++i)
        for (int part = 0; part < 2; ++part)
            if (streams)
                stream_f32x8(to + i * column + 8 * part, c[part][i]);
            else
                store_f32x8(to + i * column + 8 * part, c[part][i]);
}

static void matrix_of_f32x8(
    const float *from, ptrdiff_t row, float *to, ptrdiff_t column, ptrdiff_t rows, ptrdiff_t columns, int streams
) {
    const int lines = streams && ((uintptr_t)to | 4 * (uintptr_t)column) % 64 == 0;
    for (ptrdiff_t panel = 0; panel < rows; panel += 64)
        for (ptrdiff_t line = 0; line < columns; line += 16)
            for (ptrdiff_t r = panel; r < rows && r < panel + 64; r += 16)
                for (ptrdiff_t c = line; c < columns && c < line + 16; c += 8) {
                    const ptrdiff_t i = r < rows - 16 ? r : rows - 16, j = c < columns - 8 ? c : columns - 8;
                    lines_of_f32x8(from + i * row + j, row, to + j * column + i, column, lines && i == r);
                }
    if (lines)
        _mm_sfence();
}

void transpose_matrix(const float *restrict src, float *restrict out) {
    /* Move(40×33, L1, L1): TransposeMatrix */
    matrix_of_f32x8(src, 33, out, 40, 40, 33, 0);
}
