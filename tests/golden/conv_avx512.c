/*
 * Conv(1×4×2×4×16×3×3, L1, L1, L1) for x86_avx512, made by Morello.
 * Sizes: image 1×2×6×18.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign -c conv_avx512.c
 *
 * Cost 5016; memory in bytes: VRF 384. Schedule:
 *     tile [1, 4, 1, 16]
 *     move 2 to VRF as row_major v16
 *     subschedule [1] {
 *         tile [1, 1, 1, 16]
 *         select VectorMove
 *     }
 *     to_accum
 *     subschedule [0] {
 *         tile [1, 1, 1, 16]
 *         select VectorZero
 *     }
 *     tile [0, 0, 0, 0, 0, 1, 0]
 *     tile [0, 0, 0, 0, 0, 0, 1]
 *     spatial_split
 *     split 1
 *     move 0 to VRF as row_major v16
 *     subschedule [0] {
 *         select VectorMove
 *     }
 *     tile [1, 16, 1]
 *     select VecBroadcastMultAdd
 */
#if !defined(__AVX512F__) || !defined(__AVX512VL__) || !defined(__AVX512BW__) || !defined(__FMA__)
#error "conv_avx512 needs avx512f, avx512vl, avx512bw, fma: compile it with -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void conv_avx512(const float *restrict image, const float *restrict filters, float *restrict out);

typedef float f32x16 __attribute__((vector_size(64)));

static inline f32x16 load_f32x16(const float *from) {
    f32x16 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_f32x16(float *to, f32x16 v) {
    memcpy(to, &v, sizeof v);
}

void conv_avx512(const float *restrict image, const float *restrict filters, float *restrict out) {
    /* Conv(1×4×2×4×16×3×3, L1, L1, L1): tile [1, 4, 1, 16] */
    for (ptrdiff_t h = 0; h < 4; ++h) {
        /* Conv(1×4×2×1×16×3×3, L1, L1, L1): move 2 to VRF as row_major v16 */
        f32x16 out_0_0, out_1_0, out_2_0, out_3_0;
        /* Conv(1×4×2×1×16×3×3, L1, L1, VRF): to_accum */
        /* FillZero(1×4×1×16, VRF): tile [1, 1, 1, 16], unrolled */
        out_0_0 = (f32x16){0};
        out_1_0 = (f32x16){0};
        out_2_0 = (f32x16){0};
        out_3_0 = (f32x16){0};
        /* ConvAccum(1×4×2×1×16×3×3, L1, L1, VRF): tile [0, 0, 0, 0, 0, 1, 0] */
        for (ptrdiff_t fh = 0; fh < 3; ++fh) {
            /* ConvAccum(1×4×2×1×16×1×3, L1, L1, VRF): tile [0, 0, 0, 0, 0, 0, 1] */
            for (ptrdiff_t fw = 0; fw < 3; ++fw) {
                /* ConvAccum(1×4×2×1×16×1×1, L1, L1, VRF): spatial_split */
                /* MatmulAccum(1×16×2×4, L1, L1, VRF): split 1 */
                for (ptrdiff_t k = 0; k < 2; ++k) {
                    /* MatmulAccum(1×16×1×4, L1, L1, VRF): move 0 to VRF as row_major v16 */
                    f32x16 image_0;
                    /* Move(1×16×1, L1, VRF): VectorMove */
                    image_0 = load_f32x16(&image[108 * k + 18 * h + 18 * fh + fw]);
                    /* MatmulAccum(1×16×1×4, VRF, L1, VRF): tile [1, 16, 1], unrolled */
                    out_0_0 = _mm512_fmadd_ps(_mm512_set1_ps(filters[9 * k + 3 * fh + fw]), image_0, out_0_0);
                    out_1_0 = _mm512_fmadd_ps(_mm512_set1_ps(filters[9 * k + 3 * fh + fw + 18]), image_0, out_1_0);
                    out_2_0 = _mm512_fmadd_ps(_mm512_set1_ps(filters[9 * k + 3 * fh + fw + 36]), image_0, out_2_0);
                    out_3_0 = _mm512_fmadd_ps(_mm512_set1_ps(filters[9 * k + 3 * fh + fw + 54]), image_0, out_3_0);
                }
            }
        }
        /* Move(1×4×1×16, VRF, L1): tile [1, 1, 1, 16], unrolled */
        store_f32x16(&out[16 * h], out_0_0);
        store_f32x16(&out[16 * h + 64], out_1_0);
        store_f32x16(&out[16 * h + 128], out_2_0);
        store_f32x16(&out[16 * h + 192], out_3_0);
    }
}
