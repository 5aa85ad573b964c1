/*
 * Conv(1×4×2×4×8×3×3, L1, L1, L1) for x86_avx2, made by Morello.
 * Sizes: image 1×2×6×10.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c conv_avx2.c
 *
 * Cost 5016; memory in bytes: VRF 192. Schedule:
 *     tile [1, 4, 1, 8]
 *     move 2 to VRF as row_major v8
 *     subschedule [1] {
 *         tile [1, 1, 1, 8]
 *         select VectorMove
 *     }
 *     to_accum
 *     subschedule [0] {
 *         tile [1, 1, 1, 8]
 *         select VectorZero
 *     }
 *     tile [0, 0, 0, 0, 0, 1, 0]
 *     tile [0, 0, 0, 0, 0, 0, 1]
 *     spatial_split
 *     split 1
 *     move 0 to VRF as row_major v8
 *     subschedule [0] {
 *         select VectorMove
 *     }
 *     tile [1, 8, 1]
 *     select VecBroadcastMultAdd
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "conv_avx2 needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void conv_avx2(const float *restrict image, const float *restrict filters, float *restrict out);

typedef float f32x8 __attribute__((vector_size(32)));

static inline f32x8 load_f32x8(const float *from) {
    f32x8 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_f32x8(float *to, f32x8 v) {
    memcpy(to, &v, sizeof v);
}

void conv_avx2(const float *restrict image, const float *restrict filters, float *restrict out) {
    /* Conv(1×4×2×4×8×3×3, L1, L1, L1): tile [1, 4, 1, 8] */
    for (ptrdiff_t h = 0; h < 4; ++h) {
        /* Conv(1×4×2×1×8×3×3, L1, L1, L1): move 2 to VRF as row_major v8 */
        f32x8 out_0_0, out_1_0, out_2_0, out_3_0;
        /* Conv(1×4×2×1×8×3×3, L1, L1, VRF): to_accum */
        /* FillZero(1×4×1×8, VRF): tile [1, 1, 1, 8], unrolled */
        out_0_0 = (f32x8){0};
        out_1_0 = (f32x8){0};
        out_2_0 = (f32x8){0};
        out_3_0 = (f32x8){0};
        /* ConvAccum(1×4×2×1×8×3×3, L1, L1, VRF): tile [0, 0, 0, 0, 0, 1, 0] */
        for (ptrdiff_t fh = 0; fh < 3; ++fh) {
            /* ConvAccum(1×4×2×1×8×1×3, L1, L1, VRF): tile [0, 0, 0, 0, 0, 0, 1] */
            for (ptrdiff_t fw = 0; fw < 3; ++fw) {
                /* ConvAccum(1×4×2×1×8×1×1, L1, L1, VRF): spatial_split */
                /* MatmulAccum(1×8×2×4, L1, L1, VRF): split 1 */
                for (ptrdiff_t k = 0; k < 2; ++k) {
                    /* MatmulAccum(1×8×1×4, L1, L1, VRF): move 0 to VRF as row_major v8 */
                    f32x8 image_0;
                    /* Move(1×8×1, L1, VRF): VectorMove */
                    image_0 = load_f32x8(&image[60 * k + 10 * h + 10 * fh + fw]);
                    /* MatmulAccum(1×8×1×4, VRF, L1, VRF): tile [1, 8, 1], unrolled */
                    out_0_0 = _mm256_fmadd_ps(_mm256_set1_ps(filters[9 * k + 3 * fh + fw]), image_0, out_0_0);
                    out_1_0 = _mm256_fmadd_ps(_mm256_set1_ps(filters[9 * k + 3 * fh + fw + 18]), image_0, out_1_0);
                    out_2_0 = _mm256_fmadd_ps(_mm256_set1_ps(filters[9 * k + 3 * fh + fw + 36]), image_0, out_2_0);
                    out_3_0 = _mm256_fmadd_ps(_mm256_set1_ps(filters[9 * k + 3 * fh + fw + 54]), image_0, out_3_0);
                }
            }
        }
        /* Move(1×4×1×8, VRF, L1): tile [1, 1, 1, 8], unrolled */
        store_f32x8(&out[8 * h], out_0_0);
        store_f32x8(&out[8 * h + 32], out_1_0);
        store_f32x8(&out[8 * h + 64], out_2_0);
        store_f32x8(&out[8 * h + 96], out_3_0);
    }
}
