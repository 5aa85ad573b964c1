/*
 * Compose([Relu, Matmul])(1×4×32×8, L1, L1, L1) for x86_avx512, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign -c compose_avx512.c
 *
 * Cost 1264; memory in bytes: VRF 448. Schedule:
 *     tile [1, 2, 32]
 *     bufferize to VRF v16
 *     subschedule [0] {
 *         to_accum
 *         subschedule [0] {
 *             tile [1, 1, 16]
 *             select VectorZero
 *         }
 *         split 1
 *         move 1 to VRF as row_major v16
 *         subschedule [0] {
 *             select VectorMove
 *         }
 *         tile [1, 1, 16]
 *         select BroadcastVecMultAdd
 *     }
 *     subschedule [1] {
 *         select VectorRelu
 *     }
 */
#if !defined(__AVX512F__) || !defined(__AVX512VL__) || !defined(__AVX512BW__) || !defined(__FMA__)
#error "compose_avx512 needs avx512f, avx512vl, avx512bw, fma: compile it with -mavx512f -mavx512vl -mavx512bw -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void compose_avx512(const float *restrict lhs1, const float *restrict rhs1, float *restrict out);

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

void compose_avx512(const float *restrict lhs1, const float *restrict rhs1, float *restrict out) {
    /* Compose([Relu, Matmul])(1×4×32×8, L1, L1, L1): tile [1, 2, 32] */
    for (ptrdiff_t i1_0 = 0; i1_0 < 2; ++i1_0) {
        /* Compose([Relu, Matmul])(1×2×32×8, L1, L1, L1): bufferize to VRF v16 */
        f32x16 between_0_0, between_0_16, between_1_0, between_1_16;
        /* Matmul(1×2×8×32, L1, L1, VRF): to_accum */
        /* FillZero(1×2×32, VRF): tile [1, 1, 16], unrolled */
        between_0_0 = (f32x16){0};
        between_0_16 = (f32x16){0};
        between_1_0 = (f32x16){0};
        between_1_16 = (f32x16){0};
        /* MatmulAccum(1×2×8×32, L1, L1, VRF): split 1 */
        for (ptrdiff_t k = 0; k < 8; ++k) {
            /* MatmulAccum(1×2×1×32, L1, L1, VRF): move 1 to VRF as row_major v16 */
            f32x16 rhs1_0, rhs1_16;
            /* Move(1×1×32, L1, VRF): VectorMove */
            rhs1_0 = load_f32x16(&rhs1[32 * k]);
            rhs1_16 = load_f32x16(&rhs1[32 * k + 16]);
            /* MatmulAccum(1×2×1×32, L1, VRF, VRF): tile [1, 1, 16], unrolled */
            between_0_0 = _mm512_fmadd_ps(_mm512_set1_ps(lhs1[16 * i1_0 + k]), rhs1_0, between_0_0);
            between_0_16 = _mm512_fmadd_ps(_mm512_set1_ps(lhs1[16 * i1_0 + k]), rhs1_16, between_0_16);
            between_1_0 = _mm512_fmadd_ps(_mm512_set1_ps(lhs1[16 * i1_0 + k + 8]), rhs1_0, between_1_0);
            between_1_16 = _mm512_fmadd_ps(_mm512_set1_ps(lhs1[16 * i1_0 + k + 8]), rhs1_16, between_1_16);
        }
        /* Relu(1×2×32, VRF, L1): VectorRelu */
        {
            store_f32x16(&out[64 * i1_0], larger_number_f32x16((f32x16){0}, between_0_0));
            store_f32x16(&out[64 * i1_0 + 16], larger_number_f32x16((f32x16){0}, between_0_16));
            store_f32x16(&out[64 * i1_0 + 32], larger_number_f32x16((f32x16){0}, between_1_0));
            store_f32x16(&out[64 * i1_0 + 48], larger_number_f32x16((f32x16){0}, between_1_16));
        }
    }
}
