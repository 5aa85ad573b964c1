/*
 * Move(16×16, L1, L1) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c transpose.c
 *
 * Cost 928; memory in bytes: VRF 512. Schedule:
 *     tile [8, 8]
 *     move 0 to VRF as row_major v8
 *     subschedule [0] {
 *         tile [1, 8]
 *         select VectorMove
 *     }
 *     move 1 to VRF as col_major v8
 *     subschedule [1] {
 *         tile [8, 1]
 *         select VectorMove
 *     }
 *     select Transpose8x8Rows
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "transpose needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void transpose(const float *restrict src, float *restrict out);

typedef float f32x8 __attribute__((vector_size(32)));

static inline f32x8 load_f32x8(const float *from) {
    f32x8 v;
    memcpy(&v, from, sizeof v);
    return v;
}

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

static inline void store_f32x8(float *to, f32x8 v) {
    memcpy(to, &v, sizeof v);
}

void transpose(const float *restrict src, float *restrict out) {
    /* Move(16×16, L1, L1): tile [8, 8] */
    for (ptrdiff_t i0 = 0; i0 < 2; ++i0) {
        for (ptrdiff_t i1 = 0; i1 < 2; ++i1) {
            /* Move(8×8, L1, L1): move 0 to VRF as row_major v8 */
            f32x8 src_0_0, src_1_0, src_2_0, src_3_0, src_4_0, src_5_0, src_6_0, src_7_0;
            /* Move(8×8, L1, VRF): tile [1, 8], unrolled */
            src_0_0 = load_f32x8(&src[128 * i0 + 8 * i1]);
            src_1_0 = load_f32x8(&src[128 * i0 + 8 * i1 + 16]);
            src_2_0 = load_f32x8(&src[128 * i0 + 8 * i1 + 32]);
            src_3_0 = load_f32x8(&src[128 * i0 + 8 * i1 + 48]);
            src_4_0 = load_f32x8(&src[128 * i0 + 8 * i1 + 64]);
            src_5_0 = load_f32x8(&src[128 * i0 + 8 * i1 + 80]);
            src_6_0 = load_f32x8(&src[128 * i0 + 8 * i1 + 96]);
            src_7_0 = load_f32x8(&src[128 * i0 + 8 * i1 + 112]);
            /* Move(8×8, VRF, L1): move 1 to VRF as col_major v8 */
            f32x8 out_0_0, out_0_1, out_0_2, out_0_3, out_0_4, out_0_5, out_0_6, out_0_7;
            /* Move(8×8, VRF, VRF): Transpose8x8Rows */
            f32x8 columns[8];
            transpose_f32x8(src_0_0, src_1_0, src_2_0, src_3_0, src_4_0, src_5_0, src_6_0, src_7_0, columns);
            out_0_0 = columns[0];
            out_0_1 = columns[1];
            out_0_2 = columns[2];
            out_0_3 = columns[3];
            out_0_4 = columns[4];
            out_0_5 = columns[5];
            out_0_6 = columns[6];
            out_0_7 = columns[7];
            /* Move(8×8, VRF, L1): tile [8, 1], unrolled */
            store_f32x8(&out[128 * i1 + 8 * i0], out_0_0);
            store_f32x8(&out[128 * i1 + 8 * i0 + 16], out_0_1);
            store_f32x8(&out[128 * i1 + 8 * i0 + 32], out_0_2);
            store_f32x8(&out[128 * i1 + 8 * i0 + 48], out_0_3);
            store_f32x8(&out[128 * i1 + 8 * i0 + 64], out_0_4);
            store_f32x8(&out[128 * i1 + 8 * i0 + 80], out_0_5);
            store_f32x8(&out[128 * i1 + 8 * i0 + 96], out_0_6);
            store_f32x8(&out[128 * i1 + 8 * i0 + 112], out_0_7);
        }
    }
}
