/*
 * Matmul(1×64×64×64, GL, GL, GL) for aarch64_neon, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mcpu=generic -c matmul_neon.c
 *
 * Cost 1620800; memory in bytes: VRF 512. Schedule:
 *     tile [0, 8, 0, 8]
 *     select RegisterTile
 */
#if !defined(__ARM_NEON)
#error "matmul_neon needs asimd: compile it with -mcpu=generic"
#endif

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void matmul_neon(const float *restrict lhs, const float *restrict rhs, float *restrict out);

typedef float f32x4 __attribute__((vector_size(16)));

static inline f32x4 load_f32x4(const float *from) {
    f32x4 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_f32x4(float *to, f32x4 v) {
    memcpy(to, &v, sizeof v);
}

void matmul_neon(const float *restrict lhs, const float *restrict rhs, float *restrict out) {
    /* Matmul(1×64×64×64, GL, GL, GL): tile [0, 8, 0, 8] */
    for (ptrdiff_t m = 0; m < 8; ++m) {
        for (ptrdiff_t n = 0; n < 8; ++n) {
            /* Matmul(1×8×64×8, GL, GL, GL): RegisterTile */
            {
                const float *const lhs2 = &lhs[512 * m];
                const float *rhs2 = &rhs[8 * n];
                float *const out2 = &out[512 * m + 8 * n];
                __asm__ volatile("" : "+r"(rhs2));
                __builtin_prefetch(out2, 0, 3);
                __builtin_prefetch(out2 + 64, 0, 3);
                __builtin_prefetch(out2 + 128, 0, 3);
                __builtin_prefetch(out2 + 192, 0, 3);
                __builtin_prefetch(out2 + 256, 0, 3);
                __builtin_prefetch(out2 + 320, 0, 3);
                __builtin_prefetch(out2 + 384, 0, 3);
                __builtin_prefetch(out2 + 448, 0, 3);
                f32x4 sum = (f32x4){0};
                f32x4 sum2 = (f32x4){0};
                f32x4 sum3 = (f32x4){0};
                f32x4 sum4 = (f32x4){0};
                f32x4 sum5 = (f32x4){0};
                f32x4 sum6 = (f32x4){0};
                f32x4 sum7 = (f32x4){0};
                f32x4 sum8 = (f32x4){0};
                f32x4 sum9 = (f32x4){0};
                f32x4 sum10 = (f32x4){0};
                f32x4 sum11 = (f32x4){0};
                f32x4 sum12 = (f32x4){0};
                f32x4 sum13 = (f32x4){0};
                f32x4 sum14 = (f32x4){0};
                f32x4 sum15 = (f32x4){0};
                f32x4 sum16 = (f32x4){0};
                for (ptrdiff_t k = 0; k < 64; k += 4) {
                    const float *const lhs2_k = lhs2 + k * 1;
                    const float *const rhs2_k = rhs2 + k * 64;
                    const f32x4 values = load_f32x4(lhs2_k);
                    const f32x4 values2 = load_f32x4(lhs2_k + 64);
                    const f32x4 values3 = load_f32x4(lhs2_k + 128);
                    const f32x4 values4 = load_f32x4(lhs2_k + 192);
                    const f32x4 values5 = load_f32x4(lhs2_k + 256);
                    const f32x4 values6 = load_f32x4(lhs2_k + 320);
                    const f32x4 values7 = load_f32x4(lhs2_k + 384);
                    const f32x4 values8 = load_f32x4(lhs2_k + 448);
                    const f32x4 factor = load_f32x4(rhs2_k);
                    const f32x4 factor2 = load_f32x4(rhs2_k + 4);
                    sum = vfmaq_laneq_f32(sum, factor, values, 0);
                    sum2 = vfmaq_laneq_f32(sum2, factor2, values, 0);
                    sum3 = vfmaq_laneq_f32(sum3, factor, values2, 0);
                    sum4 = vfmaq_laneq_f32(sum4, factor2, values2, 0);
                    sum5 = vfmaq_laneq_f32(sum5, factor, values3, 0);
                    sum6 = vfmaq_laneq_f32(sum6, factor2, values3, 0);
                    sum7 = vfmaq_laneq_f32(sum7, factor, values4, 0);
                    sum8 = vfmaq_laneq_f32(sum8, factor2, values4, 0);
                    sum9 = vfmaq_laneq_f32(sum9, factor, values5, 0);
                    sum10 = vfmaq_laneq_f32(sum10, factor2, values5, 0);
                    sum11 = vfmaq_laneq_f32(sum11, factor, values6, 0);
                    sum12 = vfmaq_laneq_f32(sum12, factor2, values6, 0);
                    sum13 = vfmaq_laneq_f32(sum13, factor, values7, 0);
                    sum14 = vfmaq_laneq_f32(sum14, factor2, values7, 0);
                    sum15 = vfmaq_laneq_f32(sum15, factor, values8, 0);
                    sum16 = vfmaq_laneq_f32(sum16, factor2, values8, 0);
                    const f32x4 factor3 = load_f32x4(rhs2_k + 64);
                    const f32x4 factor4 = load_f32x4(rhs2_k + 68);
                    sum = vfmaq_laneq_f32(sum, factor3, values, 1);
                    sum2 = vfmaq_laneq_f32(sum2, factor4, values, 1);
                    sum3 = vfmaq_laneq_f32(sum3, factor3, values2, 1);
                    sum4 = vfmaq_laneq_f32(sum4, factor4, values2, 1);
                    sum5 = vfmaq_laneq_f32(sum5, factor3, values3, 1);
                    sum6 = vfmaq_laneq_f32(sum6, factor4, values3, 1);
                    sum7 = vfmaq_laneq_f32(sum7, factor3, values4, 1);
                    sum8 = vfmaq_laneq_f32(sum8, factor4, values4, 1);
                    sum9 = vfmaq_laneq_f32(sum9, factor3, values5, 1);
                    sum10 = vfmaq_laneq_f32(sum10, factor4, values5, 1);
                    sum11 = vfmaq_laneq_f32(sum11, factor3, values6, 1);
                    sum12 = vfmaq_laneq_f32(sum12, factor4, values6, 1);
                    sum13 = vfmaq_laneq_f32(sum13, factor3, values7, 1);
                    sum14 = vfmaq_laneq_f32(sum14, factor4, values7, 1);
                    sum15 = vfmaq_laneq_f32(sum15, factor3, values8, 1);
                    sum16 = vfmaq_laneq_f32(sum16, factor4, values8, 1);
                    const f32x4 factor5 = load_f32x4(rhs2_k + 128);
                    const f32x4 factor6 = load_f32x4(rhs2_k + 132);
                    sum = vfmaq_laneq_f32(sum, factor5, values, 2);
                    sum2 = vfmaq_laneq_f32(sum2, factor6, values, 2);
                    sum3 = vfmaq_laneq_f32(sum3, factor5, values2, 2);
                    sum4 = vfmaq_laneq_f32(sum4, factor6, values2, 2);
                    sum5 = vfmaq_laneq_f32(sum5, factor5, values3, 2);
                    sum6 = vfmaq_laneq_f32(sum6, factor6, values3, 2);
                    sum7 = vfmaq_laneq_f32(sum7, factor5, values4, 2);
                    sum8 = vfmaq_laneq_f32(sum8, factor6, values4, 2);
                    sum9 = vfmaq_laneq_f32(sum9, factor5, values5, 2);
                    sum10 = vfmaq_laneq_f32(sum10, factor6, values5, 2);
                    sum11 = vfmaq_laneq_f32(sum11, factor5, values6, 2);
                    sum12 = vfmaq_laneq_f32(sum12, factor6, values6, 2);
                    sum13 = vfmaq_laneq_f32(sum13, factor5, values7, 2);
                    sum14 = vfmaq_laneq_f32(sum14, factor6, values7, 2);
                    sum15 = vfmaq_laneq_f32(sum15, factor5, values8, 2);
                    sum16 = vfmaq_laneq_f32(sum16, factor6, values8, 2);
                    const f32x4 factor7 = load_f32x4(rhs2_k + 192);
                    const f32x4 factor8 = load_f32x4(rhs2_k + 196);
                    sum = vfmaq_laneq_f32(sum, factor7, values, 3);
                    sum2 = vfmaq_laneq_f32(sum2, factor8, values, 3);
                    sum3 = vfmaq_laneq_f32(sum3, factor7, values2, 3);
                    sum4 = vfmaq_laneq_f32(sum4, factor8, values2, 3);
                    sum5 = vfmaq_laneq_f32(sum5, factor7, values3, 3);
                    sum6 = vfmaq_laneq_f32(sum6, factor8, values3, 3);
                    sum7 = vfmaq_laneq_f32(sum7, factor7, values4, 3);
                    sum8 = vfmaq_laneq_f32(sum8, factor8, values4, 3);
                    sum9 = vfmaq_laneq_f32(sum9, factor7, values5, 3);
                    sum10 = vfmaq_laneq_f32(sum10, factor8, values5, 3);
                    sum11 = vfmaq_laneq_f32(sum11, factor7, values6, 3);
                    sum12 = vfmaq_laneq_f32(sum12, factor8, values6, 3);
                    sum13 = vfmaq_laneq_f32(sum13, factor7, values7, 3);
                    sum14 = vfmaq_laneq_f32(sum14, factor8, values7, 3);
                    sum15 = vfmaq_laneq_f32(sum15, factor7, values8, 3);
                    sum16 = vfmaq_laneq_f32(sum16, factor8, values8, 3);
                }
                store_f32x4(out2, sum);
                store_f32x4(out2 + 4, sum2);
                store_f32x4(out2 + 64, sum3);
                store_f32x4(out2 + 68, sum4);
                store_f32x4(out2 + 128, sum5);
                store_f32x4(out2 + 132, sum6);
                store_f32x4(out2 + 192, sum7);
                store_f32x4(out2 + 196, sum8);
                store_f32x4(out2 + 256, sum9);
                store_f32x4(out2 + 260, sum10);
                store_f32x4(out2 + 320, sum11);
                store_f32x4(out2 + 324, sum12);
                store_f32x4(out2 + 384, sum13);
                store_f32x4(out2 + 388, sum14);
                store_f32x4(out2 + 448, sum15);
                store_f32x4(out2 + 452, sum16);
            }
        }
    }
}
