/*
 * MatmulAccum(1×4×4×16, RF, VRF, L1) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c figure1.c
 *
 * Cost 752; memory in bytes: VRF 96. Schedule:
 *     tile [1, 1, 1, 16]
 *     move 2 to VRF as row_major v8
 *     subschedule [0] {
 *         select VectorMove
 *     }
 *     subschedule [2] {
 *         select VectorMove
 *     }
 *     select BroadcastVecMultAdd
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "figure1 needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void figure1(const float *restrict lhs, const float *restrict rhs, float *restrict out);

typedef float f32x8 __attribute__((vector_size(32)));

static inline f32x8 load_f32x8(const float *from) {
    f32x8 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_f32x8(float *to, f32x8 v) {
    memcpy(to, &v, sizeof v);
}

void figure1(const float *restrict lhs, const float *restrict rhs, float *restrict out) {
    float lhs_0_0, lhs_0_1, lhs_0_2, lhs_0_3, lhs_1_0, lhs_1_1, lhs_1_2, lhs_1_3;
    float lhs_2_0, lhs_2_1, lhs_2_2, lhs_2_3, lhs_3_0, lhs_3_1, lhs_3_2, lhs_3_3;
    lhs_0_0 = lhs[0];
    lhs_0_1 = lhs[1];
    lhs_0_2 = lhs[2];
    lhs_0_3 = lhs[3];
    lhs_1_0 = lhs[4];
    lhs_1_1 = lhs[5];
    lhs_1_2 = lhs[6];
    lhs_1_3 = lhs[7];
    lhs_2_0 = lhs[8];
    lhs_2_1 = lhs[9];
    lhs_2_2 = lhs[10];
    lhs_2_3 = lhs[11];
    lhs_3_0 = lhs[12];
    lhs_3_1 = lhs[13];
    lhs_3_2 = lhs[14];
    lhs_3_3 = lhs[15];
    f32x8 rhs_0_0, rhs_0_8, rhs_1_0, rhs_1_8, rhs_2_0, rhs_2_8, rhs_3_0, rhs_3_8;
    rhs_0_0 = load_f32x8(&rhs[0]);
    rhs_0_8 = load_f32x8(&rhs[8]);
    rhs_1_0 = load_f32x8(&rhs[16]);
    rhs_1_8 = load_f32x8(&rhs[24]);
    rhs_2_0 = load_f32x8(&rhs[32]);
    rhs_2_8 = load_f32x8(&rhs[40]);
    rhs_3_0 = load_f32x8(&rhs[48]);
    rhs_3_8 = load_f32x8(&rhs[56]);
    /* MatmulAccum(1×4×4×16, RF, VRF, L1): tile [1, 1, 1, 16], unrolled */
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out);
        out_8 = load_f32x8(out + 8);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_0_0), rhs_0_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_0_0), rhs_0_8, out_8);
        store_f32x8(out, out_0);
        store_f32x8(out + 8, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out);
        out_8 = load_f32x8(out + 8);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_0_1), rhs_1_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_0_1), rhs_1_8, out_8);
        store_f32x8(out, out_0);
        store_f32x8(out + 8, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out);
        out_8 = load_f32x8(out + 8);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_0_2), rhs_2_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_0_2), rhs_2_8, out_8);
        store_f32x8(out, out_0);
        store_f32x8(out + 8, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out);
        out_8 = load_f32x8(out + 8);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_0_3), rhs_3_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_0_3), rhs_3_8, out_8);
        store_f32x8(out, out_0);
        store_f32x8(out + 8, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out + 16);
        out_8 = load_f32x8(out + 24);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_1_0), rhs_0_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_1_0), rhs_0_8, out_8);
        store_f32x8(out + 16, out_0);
        store_f32x8(out + 24, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out + 16);
        out_8 = load_f32x8(out + 24);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_1_1), rhs_1_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_1_1), rhs_1_8, out_8);
        store_f32x8(out + 16, out_0);
        store_f32x8(out + 24, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out + 16);
        out_8 = load_f32x8(out + 24);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_1_2), rhs_2_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_1_2), rhs_2_8, out_8);
        store_f32x8(out + 16, out_0);
        store_f32x8(out + 24, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out + 16);
        out_8 = load_f32x8(out + 24);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_1_3), rhs_3_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_1_3), rhs_3_8, out_8);
        store_f32x8(out + 16, out_0);
        store_f32x8(out + 24, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out + 32);
        out_8 = load_f32x8(out + 40);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_2_0), rhs_0_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_2_0), rhs_0_8, out_8);
        store_f32x8(out + 32, out_0);
        store_f32x8(out + 40, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out + 32);
        out_8 = load_f32x8(out + 40);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_2_1), rhs_1_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_2_1), rhs_1_8, out_8);
        store_f32x8(out + 32, out_0);
        store_f32x8(out + 40, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out + 32);
        out_8 = load_f32x8(out + 40);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_2_2), rhs_2_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_2_2), rhs_2_8, out_8);
        store_f32x8(out + 32, out_0);
        store_f32x8(out + 40, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out + 32);
        out_8 = load_f32x8(out + 40);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_2_3), rhs_3_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_2_3), rhs_3_8, out_8);
        store_f32x8(out + 32, out_0);
        store_f32x8(out + 40, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out + 48);
        out_8 = load_f32x8(out + 56);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_3_0), rhs_0_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_3_0), rhs_0_8, out_8);
        store_f32x8(out + 48, out_0);
        store_f32x8(out + 56, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out + 48);
        out_8 = load_f32x8(out + 56);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_3_1), rhs_1_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_3_1), rhs_1_8, out_8);
        store_f32x8(out + 48, out_0);
        store_f32x8(out + 56, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out + 48);
        out_8 = load_f32x8(out + 56);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_3_2), rhs_2_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_3_2), rhs_2_8, out_8);
        store_f32x8(out + 48, out_0);
        store_f32x8(out + 56, out_8);
    }
    {
        f32x8 out_0, out_8;
        out_0 = load_f32x8(out + 48);
        out_8 = load_f32x8(out + 56);
        out_0 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_3_3), rhs_3_0, out_0);
        out_8 = _mm256_fmadd_ps(_mm256_set1_ps(lhs_3_3), rhs_3_8, out_8);
        store_f32x8(out + 48, out_0);
        store_f32x8(out + 56, out_8);
    }
}
