/*
 * Move(40×33, L1, L1) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c transpose_bytes.c
 *
 * Cost 2400; memory in bytes: VRF 512. Schedule:
 *     select TransposeMatrixOf8Bits
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "transpose_bytes needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void transpose_bytes(const uint8_t *restrict src, uint8_t *restrict out);

typedef uint8_t u8x16 __attribute__((vector_size(16)));

static inline void transpose_u8x16(u8x16 r0, u8x16 r1, u8x16 r2, u8x16 r3, u8x16 r4, u8x16 r5, u8x16 r6, u8x16 r7, u8x16 r8, u8x16 r9, u8x16 r10, u8x16 r11, u8x16 r12, u8x16 r13, u8x16 r14, u8x16 r15, u8x16 c[16]) {
    const __m128i t0 = _mm_unpacklo_epi8((__m128i)r0, (__m128i)r8);
    const __m128i t1 = _mm_unpackhi_epi8((__m128i)r0, (__m128i)r8);
    const __m128i t2 = _mm_unpacklo_epi8((__m128i)r1, (__m128i)r9);
    const __m128i t3 = _mm_unpackhi_epi8((__m128i)r1, (__m128i)r9);
    const __m128i t4 = _mm_unpacklo_epi8((__m128i)r2, (__m128i)r10);
    const __m128i t5 = _mm_unpackhi_epi8((__m128i)r2, (__m128i)r10);
    const __m128i t6 = _mm_unpacklo_epi8((__m128i)r3, (__m128i)r11);
    const __m128i t7 = _mm_unpackhi_epi8((__m128i)r3, (__m128i)r11);
    const __m128i t8 = _mm_unpacklo_epi8((__m128i)r4, (__m128i)r12);
    const __m128i t9 = _mm_unpackhi_epi8((__m128i)r4, (__m128i)r12);
    const __m128i t10 = _mm_unpacklo_epi8((__m128i)r5, (__m128i)r13);
    const __m128i t11 = _mm_unpackhi_epi8((__m128i)r5, (__m128i)r13);
    const __m128i t12 = _mm_unpacklo_epi8((__m128i)r6, (__m128i)r14);
    const __m128i t13 = _mm_unpackhi_epi8((__m128i)r6, (__m128i)r14);
    const __m128i t14 = _mm_unpacklo_epi8((__m128i)r7, (__m128i)r15);
    const __m128i t15 = _mm_unpackhi_epi8((__m128i)r7, (__m128i)r15);
    const __m128i t16 = _mm_unpacklo_epi8(t0, t8);
    const __m128i t17 = _mm_unpackhi_epi8(t0, t8);
    const __m128i t18 = _mm_unpacklo_epi8(t1, t9);
    const __m128i t19 = _mm_unpackhi_epi8(t1, t9);
    const __m128i t20 = _mm_unpacklo_epi8(t2, t10);
    const __m128i t21 = _mm_unpackhi_epi8(t2, t10);
    const __m128i t22 = _mm_unpacklo_epi8(t3, t11);
    const __m128i t23 = _mm_unpackhi_epi8(t3, t11);
    const __m128i t24 = _mm_unpacklo_epi8(t4, t12);
    const __m128i t25 = _mm_unpackhi_epi8(t4, t12);
    const __m128i t26 = _mm_unpacklo_epi8(t5, t13);
    const __m128i t27 = _mm_unpackhi_epi8(t5, t13);
    const __m128i t28 = _mm_unpacklo_epi8(t6, t14);
    const __m128i t29 = _mm_unpackhi_epi8(t6, t14);
    const __m128i t30 = _mm_unpacklo_epi8(t7, t15);
    const __m128i t31 = _mm_unpackhi_epi8(t7, t15);
    const __m128i t32 = _mm_unpacklo_epi8(t16, t24);
    const __m128i t33 = _mm_unpackhi_epi8(t16, t24);
    const __m128i t34 = _mm_unpacklo_epi8(t17, t25);
    const __m128i t35 = _mm_unpackhi_epi8(t17, t25);
    const __m128i t36 = _mm_unpacklo_epi8(t18, t26);
    const __m128i t37 = _mm_unpackhi_epi8(t18, t26);
    const __m128i t38 = _mm_unpacklo_epi8(t19, t27);
    const __m128i t39 = _mm_unpackhi_epi8(t19, t27);
    const __m128i t40 = _mm_unpacklo_epi8(t20, t28);
    const __m128i t41 = _mm_unpackhi_epi8(t20, t28);
    const __m128i t42 = _mm_unpacklo_epi8(t21, t29);
    const __m128i t43 = _mm_unpackhi_epi8(t21, t29);
    const __m128i t44 = _mm_unpacklo_epi8(t22, t30);
    const __m128i t45 = _mm_unpackhi_epi8(t22, t30);
    const __m128i t46 = _mm_unpacklo_epi8(t23, t31);
    const __m128i t47 = _mm_unpackhi_epi8(t23, t31);
    const __m128i t48 = _mm_unpacklo_epi8(t32, t40);
    const __m128i t49 = _mm_unpackhi_epi8(t32, t40);
    const __m128i t50 = _mm_unpacklo_epi8(t33, t41);
    const __m128i t51 = _mm_unpackhi_epi8(t33, t41);
    const __m128i t52 = _mm_unpacklo_epi8(t34, t42);
    const __m128i t53 = _mm_unpackhi_epi8(t34, t42);
    const __m128i t54 = _mm_unpacklo_epi8(t35, t43);
    const __m128i t55 = _mm_unpackhi_epi8(t35, t43);
    const __m128i t56 = _mm_unpacklo_epi8(t36, t44);
    const __m128i t57 = _mm_unpackhi_epi8(t36, t44);
    const __m128i t58 = _mm_unpacklo_epi8(t37, t45);
    const __m128i t59 = _mm_unpackhi_epi8(t37, t45);
    const __m128i t60 = _mm_unpacklo_epi8(t38, t46);
    const __m128i t61 = _mm_unpackhi_epi8(t38, t46);
    const __m128i t62 = _mm_unpacklo_epi8(t39, t47);
    const __m128i t63 = _mm_unpackhi_epi8(t39, t47);
    c[0] = (u8x16)t48;
    c[1] = (u8x16)t49;
    c[2] = (u8x16)t50;
    c[3] = (u8x16)t51;
    c[4] = (u8x16)t52;
    c[5] = (u8x16)t53;
    c[6] = (u8x16)t54;
    c[7] = (u8x16)t55;
    c[8] = (u8x16)t56;
    c[9] = (u8x16)t57;
    c[10] = (u8x16)t58;
    c[11] = (u8x16)t59;
    c[12] = (u8x16)t60;
    c[13] = (u8x16)t61;
    c[14] = (u8x16)t62;
    c[15] = (u8x16)t63;
}

static inline u8x16 load_u8x16(const uint8_t *from) {
    u8x16 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void stream_u8x16(uint8_t *to, u8x16 v) {
    _mm_stream_si128((__m128i *)to, (__m128i)v);
}

static inline void store_u8x16(uint8_t *to, u8x16 v) {
    memcpy(to, &v, sizeof v);
}

static inline void lines_of_u8x16(const uint8_t *from, ptrdiff_t row, uint8_t *to, ptrdiff_t column, int streams) {
    u8x16 c[1][16];
    for (int part = 0; part < 1; ++part) {
        u8x16 r[16];
        for (int i = 0; i < 16; ++i)
            r[i] = load_u8x16(from + (16 * part + i) * row);
        transpose_u8x16(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15], c[part]);
    }
    for (int i = 0; i < 16; ++i)
        for (int part = 0; part < 1; ++part)
            if (streams)
                stream_u8x16(to + i * column + 16 * part, c[part][i]);
            else
                store_u8x16(to + i * column + 16 * part, c[part][i]);
}

static void matrix_of_u8x16(
    const uint8_t *from, ptrdiff_t row, uint8_t *to, ptrdiff_t column, ptrdiff_t rows, ptrdiff_t columns, int streams
) {
    const int lines = streams && ((uintptr_t)to | 1 * (uintptr_t)column) % 64 == 0;
    for (ptrdiff_t panel = 0; panel < rows; panel += 64)
        for (ptrdiff_t line = 0; line < columns; line += 16)
            for (ptrdiff_t r = panel; r < rows && r < panel + 64; r += 16)
                for (ptrdiff_t c = line; c < columns && c < line + 16; c += 16) {
                    const ptrdiff_t i = r < rows - 16 ? r : rows - 16, j = c < columns - 16 ? c : columns - 16;
                    lines_of_u8x16(from + i * row + j, row, to + j * column + i, column, lines && i == r);
                }
    if (lines)
        _mm_sfence();
}

void transpose_bytes(const uint8_t *restrict src, uint8_t *restrict out) {
    /* Move(40×33, L1, L1): TransposeMatrixOf8Bits */
    matrix_of_u8x16(src, 33, out, 40, 40, 33, 0);
}
