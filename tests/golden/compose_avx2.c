/*
 * Compose([Relu, Matmul])(1×4×16×8, L1, L1, L1) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c compose_avx2.c
 *
 * Cost 1232; memory in bytes: VRF 224. Schedule:
 *     tile [1, 2, 16]
 *     bufferize to VRF v8
 *     subschedule [0] {
 *         to_accum
 *         subschedule [0] {
 *             tile [1, 1, 8]
 *             select VectorZero
 *         }
 *         split 1
 *         move 1 to VRF as row_major v8
 *         subschedule [0] {
 *             select VectorMove
 *         }
 *         tile [1, 1, 8]
 *         select BroadcastVecMultAdd
 *     }
 *     subschedule [1] {
 *         select VectorRelu
 *     }
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "compose_avx2 needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void compose_avx2(const float *restrict lhs1, const float *restrict rhs1, float *restrict out);

typedef float f32x8 __attribute__((vector_size(32)));

static inline f32x8 load_f32x8(const float *from) {
    f32x8 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline f32x8 larger_number_f32x8(f32x8 a, f32x8 b) {
    return _mm256_max_ps(a, b);
}

static inline void store_f32x8(float *to, f32x8 v) {
    memcpy(to, &v, sizeof v);
}

void compose_avx2(const float *restrict lhs1, const float *restrict rhs1, float *restrict out) {
    /* Compose([Relu, Matmul])(1×4×16×8, L1, L1, L1): tile [1, 2, 16] */
    for (ptrdiff_t i1_0 = 0; i1_0 < 2; ++i1_0) {
        /* Compose([Relu, Matmul])(1×2×16×8, L1, L1, L1): bufferize to VRF v8 */
        f32x8 between_0_0, between_0_8, between_1_0, between_1_8;
        /* Matmul(1×2×8×16, L1, L1, VRF): to_accum */
        /* FillZero(1×2×16, VRF): tile [1, 1, 8], unrolled */
        between_0_0 = (f32x8){0};
        between_0_8 = (f32x8){0};
        between_1_0 = (f32x8){0};
        between_1_8 = (f32x8){0};
        /* MatmulAccum(1×2×8×16, L1, L1, VRF): split 1 */
        for (ptrdiff_t k = 0; k < 8; ++k) {
            /* MatmulAccum(1×2×1×16, L1, L1, VRF): move 1 to VRF as row_major v8 */
            f32x8 rhs1_0, rhs1_8;
            /* Move(1×1×16, L1, VRF): VectorMove */
            rhs1_0 = load_f32x8(&rhs1[16 * k]);
            rhs1_8 = load_f32x8(&rhs1[16 * k + 8]);
            /* MatmulAccum(1×2×1×16, L1, VRF, VRF): tile [1, 1, 8], unrolled */
            between_0_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs1[16 * i1_0 + k]), rhs1_0, between_0_0);
            between_0_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs1[16 * i1_0 + k]), rhs1_8, between_0_8);
            between_1_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs1[16 * i1_0 + k + 8]), rhs1_0, between_1_0);
            between_1_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs1[16 * i1_0 + k + 8]), rhs1_8, between_1_8);
        }
        /* Relu(1×2×16, VRF, L1): VectorRelu */
        {
            store_f32x8(&out[32 * i1_0], larger_number_f32x8((f32x8){0}, between_0_0));
            store_f32x8(&out[32 * i1_0 + 8], larger_number_f32x8((f32x8){0}, between_0_8));
            store_f32x8(&out[32 * i1_0 + 16], larger_number_f32x8((f32x8){0}, between_1_0));
            store_f32x8(&out[32 * i1_0 + 24], larger_number_f32x8((f32x8){0}, between_1_8));
        }
    }
}
