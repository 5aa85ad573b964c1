/*
 * Matmul(1×384×384×384, GL, GL, GL) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c gemm_6x16.c
 *
 * Cost 259605743; memory in bytes: VRF 480, L1 24576, GL 1048576. Schedule:
 *     move 1 to GL as layout[0, 2, 1, 2p16]
 *     subschedule [0] {
 *         tile [1, 384, 16]
 *         tile [1, 1, 16]
 *         move 0 to L1
 *         move 1 to L1
 *         move 0 to VRF as row_major v8
 *         subschedule [0] {
 *             select VectorMove
 *         }
 *         select VectorMove
 *     }
 *     to_accum
 *     subschedule [0] {
 *         select MemsetZero
 *     }
 *     tile [1, 384, 192, 16]
 *     tile [1, 6, 16]
 *     move 0 to L1
 *     move 1 to L1
 *     move 2 to L1
 *     move 2 to VRF as row_major v8
 *     subschedule [0] {
 *         tile [1, 1, 16]
 *         select VectorMove
 *     }
 *     subschedule [2] {
 *         tile [1, 1, 16]
 *         select VectorMove
 *     }
 *     split 1
 *     move 1 to VRF as row_major v8
 *     subschedule [0] {
 *         select VectorMove
 *     }
 *     tile [1, 1, 16]
 *     select BroadcastVecMultAdd
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "gemm_6x16 needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void gemm_6x16(const float *restrict lhs, const float *restrict rhs, float *restrict out, void *restrict workspace);

typedef float f32x8 __attribute__((vector_size(32)));

static inline f32x8 load_f32x8(const float *from) {
    f32x8 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_f32x8(float *to, f32x8 v) {
    memcpy(to, &v, sizeof v);
}

void gemm_6x16(const float *restrict lhs, const float *restrict rhs, float *restrict out, void *restrict workspace) {
    /* Matmul(1×384×384×384, GL, GL, GL): move 1 to GL as layout[0, 2, 1, 2p16] */
    {
        float *restrict const rhs_gl = (float *)(workspace);
        /* Move(1×384×384, GL, GL): tile [1, 384, 16] */
        for (ptrdiff_t i2 = 0; i2 < 24; ++i2) {
            /* Move(1×384×16, GL, GL): tile [1, 1, 16] */
            for (ptrdiff_t i1 = 0; i1 < 384; ++i1) {
                /* Move(1×1×16, L1, L1): move 0 to VRF as row_major v8 */
                f32x8 rhs_0, rhs_8;
                /* Move(1×1×16, L1, VRF): VectorMove */
                rhs_0 = load_f32x8(&rhs[384 * i1 + 16 * i2]);
                rhs_8 = load_f32x8(&rhs[384 * i1 + 16 * i2 + 8]);
                /* Move(1×1×16, VRF, L1): VectorMove */
                store_f32x8(&rhs_gl[6144 * i2 + 16 * i1], rhs_0);
                store_f32x8(&rhs_gl[6144 * i2 + 16 * i1 + 8], rhs_8);
            }
        }
        /* Matmul(1×384×384×384, GL, GL, GL): to_accum */
        /* FillZero(1×384×384, GL): MemsetZero */
        memset(&out[0], 0, 589824);
        /* MatmulAccum(1×384×384×384, GL, GL, GL): tile [1, 384, 192, 16] */
        for (ptrdiff_t k = 0; k < 2; ++k) {
            for (ptrdiff_t n = 0; n < 24; ++n) {
                /* MatmulAccum(1×384×192×16, GL, GL, GL): tile [1, 6, 16] */
                for (ptrdiff_t m = 0; m < 64; ++m) {
                    /* MatmulAccum(1×6×192×16, L1, L1, L1): move 2 to VRF as row_major v8 */
                    f32x8 out_0_0, out_0_8, out_1_0, out_1_8, out_2_0, out_2_8, out_3_0, out_3_8;
                    f32x8 out_4_0, out_4_8, out_5_0, out_5_8;
                    /* Move(1×6×16, L1, VRF): tile [1, 1, 16], unrolled */
                    out_0_0 = load_f32x8(&out[2304 * m + 16 * n]);
                    out_0_8 = load_f32x8(&out[2304 * m + 16 * n + 8]);
                    out_1_0 = load_f32x8(&out[2304 * m + 16 * n + 384]);
                    out_1_8 = load_f32x8(&out[2304 * m + 16 * n + 392]);
                    out_2_0 = load_f32x8(&out[2304 * m + 16 * n + 768]);
                    out_2_8 = load_f32x8(&out[2304 * m + 16 * n + 776]);
                    out_3_0 = load_f32x8(&out[2304 * m + 16 * n + 1152]);
                    out_3_8 = load_f32x8(&out[2304 * m + 16 * n + 1160]);
                    out_4_0 = load_f32x8(&out[2304 * m + 16 * n + 1536]);
                    out_4_8 = load_f32x8(&out[2304 * m + 16 * n + 1544]);
                    out_5_0 = load_f32x8(&out[2304 * m + 16 * n + 1920]);
                    out_5_8 = load_f32x8(&out[2304 * m + 16 * n + 1928]);
                    /* MatmulAccum(1×6×192×16, L1, L1, VRF): split 1 */
                    for (ptrdiff_t k2 = 0; k2 < 192; ++k2) {
                        /* MatmulAccum(1×6×1×16, L1, L1, VRF): move 1 to VRF as row_major v8 */
                        f32x8 rhs_0, rhs_8;
                        /* Move(1×1×16, L1, VRF): VectorMove */
                        rhs_0 = load_f32x8(&rhs_gl[6144 * n + 3072 * k + 16 * k2]);
                        rhs_8 = load_f32x8(&rhs_gl[6144 * n + 3072 * k + 16 * k2 + 8]);
                        /* MatmulAccum(1×6×1×16, L1, VRF, VRF): tile [1, 1, 16], unrolled */
                        out_0_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs[2304 * m + 192 * k + k2]), rhs_0, out_0_0);
                        out_0_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs[2304 * m + 192 * k + k2]), rhs_8, out_0_8);
                        out_1_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs[2304 * m + 192 * k + k2 + 384]), rhs_0, out_1_0);
                        out_1_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs[2304 * m + 192 * k + k2 + 384]), rhs_8, out_1_8);
                        out_2_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs[2304 * m + 192 * k + k2 + 768]), rhs_0, out_2_0);
                        out_2_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs[2304 * m + 192 * k + k2 + 768]), rhs_8, out_2_8);
                        out_3_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs[2304 * m + 192 * k + k2 + 1152]), rhs_0, out_3_0);
                        out_3_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs[2304 * m + 192 * k + k2 + 1152]), rhs_8, out_3_8);
                        out_4_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs[2304 * m + 192 * k + k2 + 1536]), rhs_0, out_4_0);
                        out_4_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs[2304 * m + 192 * k + k2 + 1536]), rhs_8, out_4_8);
                        out_5_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs[2304 * m + 192 * k + k2 + 1920]), rhs_0, out_5_0);
                        out_5_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs[2304 * m + 192 * k + k2 + 1920]), rhs_8, out_5_8);
                    }
                    /* Move(1×6×16, VRF, L1): tile [1, 1, 16], unrolled */
                    store_f32x8(&out[2304 * m + 16 * n], out_0_0);
                    store_f32x8(&out[2304 * m + 16 * n + 8], out_0_8);
                    store_f32x8(&out[2304 * m + 16 * n + 384], out_1_0);
                    store_f32x8(&out[2304 * m + 16 * n + 392], out_1_8);
                    store_f32x8(&out[2304 * m + 16 * n + 768], out_2_0);
                    store_f32x8(&out[2304 * m + 16 * n + 776], out_2_8);
                    store_f32x8(&out[2304 * m + 16 * n + 1152], out_3_0);
                    store_f32x8(&out[2304 * m + 16 * n + 1160], out_3_8);
                    store_f32x8(&out[2304 * m + 16 * n + 1536], out_4_0);
                    store_f32x8(&out[2304 * m + 16 * n + 1544], out_4_8);
                    store_f32x8(&out[2304 * m + 16 * n + 1920], out_5_0);
                    store_f32x8(&out[2304 * m + 16 * n + 1928], out_5_8);
                }
            }
        }
    }
}
