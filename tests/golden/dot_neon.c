/*
 * Matmul(1×64×64×64, GL, GL, GL) for aarch64_neon, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mcpu=generic+dotprod -c dot_neon.c
 *
 * Cost 413696; memory in bytes: VRF 512, L1 6144. Schedule:
 *     move 1 to L1 as layout[0, 1, 2, 1p4]
 *     subschedule [0] {
 *         select Pack4Of8Bits
 *     }
 *     tile [0, 8, 0, 8]
 *     select RegisterTileDot
 */
#if !defined(__ARM_NEON) || !defined(__ARM_FEATURE_DOTPROD)
#error "dot_neon needs asimd, asimddp: compile it with -mcpu=generic+dotprod"
#endif

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void dot_neon(const int8_t *restrict lhs, const int8_t *restrict rhs, int32_t *restrict out);

typedef int8_t i8x16 __attribute__((vector_size(16)));

typedef uint16_t u16x8 __attribute__((vector_size(16)));

typedef uint32_t u32x4 __attribute__((vector_size(16)));

typedef int32_t i32x4 __attribute__((vector_size(16)));

static inline i8x16 load_i8x16(const int8_t *from) {
    i8x16 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_i8x16(int8_t *to, i8x16 v) {
    memcpy(to, &v, sizeof v);
}

static inline void pairs_i8x16(i8x16 r0, i8x16 r1, i8x16 c[2]) {
    c[0] = __builtin_shufflevector(r0, r1, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    c[1] = __builtin_shufflevector(r0, r1, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

static inline void pairs_u16x8(u16x8 r0, u16x8 r1, u16x8 c[2]) {
    c[0] = __builtin_shufflevector(r0, r1, 0, 8, 1, 9, 2, 10, 3, 11);
    c[1] = __builtin_shufflevector(r0, r1, 4, 12, 5, 13, 6, 14, 7, 15);
}

static inline void fours_i8x16(i8x16 r0, i8x16 r1, i8x16 r2, i8x16 r3, i8x16 c[4]) {
    i8x16 first[2], second[2];
    pairs_i8x16(r0, r1, first);
    pairs_i8x16(r2, r3, second);
    u16x8 half[2];
    for (int i = 0; i < 2; ++i) {
        pairs_u16x8((u16x8)first[i], (u16x8)second[i], half);
        c[2 * i] = (i8x16)half[0];
        c[2 * i + 1] = (i8x16)half[1];
    }
}

static inline void store_i32x4(int32_t *to, i32x4 v) {
    memcpy(to, &v, sizeof v);
}

void dot_neon(const int8_t *restrict lhs, const int8_t *restrict rhs, int32_t *restrict out) {
    /* Matmul(1×64×64×64, GL, GL, GL): move 1 to L1 as layout[0, 1, 2, 1p4] */
    {
        _Alignas(64) int8_t rhs_l1[4096];
        /* Move(1×64×64, GL, L1): Pack4Of8Bits */
        for (ptrdiff_t k = 0; k < 16; ++k) {
            const int8_t *const src = rhs + k * 256;
            int8_t *const dst = rhs_l1 + k * 256;
            for (ptrdiff_t c = 0; c < 64; c += 16) {
                i8x16 strips[4];
                fours_i8x16(load_i8x16(src + c), load_i8x16(src + 64 + c), load_i8x16(src + 128 + c), load_i8x16(src + 192 + c), strips);
                store_i8x16(dst + c * 4 + 0, strips[0]);
                store_i8x16(dst + c * 4 + 16, strips[1]);
                store_i8x16(dst + c * 4 + 32, strips[2]);
                store_i8x16(dst + c * 4 + 48, strips[3]);
            }
        }
        /* Matmul(1×64×64×64, GL, L1, GL): tile [0, 8, 0, 8] */
        for (ptrdiff_t m = 0; m < 8; ++m) {
            for (ptrdiff_t n = 0; n < 8; ++n) {
                /* Matmul(1×8×64×8, GL, L1, GL): RegisterTileDot */
                {
                    const int8_t *const lhs2 = &lhs[512 * m];
                    const int8_t *rhs2 = &rhs_l1[32 * n];
                    int32_t *const out2 = &out[512 * m + 8 * n];
                    __asm__ volatile("" : "+r"(rhs2));
                    u32x4 sum = (u32x4){0};
                    u32x4 sum2 = (u32x4){0};
                    u32x4 sum3 = (u32x4){0};
                    u32x4 sum4 = (u32x4){0};
                    u32x4 sum5 = (u32x4){0};
                    u32x4 sum6 = (u32x4){0};
                    u32x4 sum7 = (u32x4){0};
                    u32x4 sum8 = (u32x4){0};
                    u32x4 sum9 = (u32x4){0};
                    u32x4 sum10 = (u32x4){0};
                    u32x4 sum11 = (u32x4){0};
                    u32x4 sum12 = (u32x4){0};
                    u32x4 sum13 = (u32x4){0};
                    u32x4 sum14 = (u32x4){0};
                    u32x4 sum15 = (u32x4){0};
                    u32x4 sum16 = (u32x4){0};
                    for (ptrdiff_t k2 = 0; k2 < 16; k2 += 4) {
                        const int8_t *const lhs2_k = lhs2 + k2 * 4;
                        const int8_t *const rhs2_k = rhs2 + k2 * 256;
                        const i8x16 values = load_i8x16(lhs2_k);
                        const i8x16 values2 = load_i8x16(lhs2_k + 64);
                        const i8x16 values3 = load_i8x16(lhs2_k + 128);
                        const i8x16 values4 = load_i8x16(lhs2_k + 192);
                        const i8x16 values5 = load_i8x16(lhs2_k + 256);
                        const i8x16 values6 = load_i8x16(lhs2_k + 320);
                        const i8x16 values7 = load_i8x16(lhs2_k + 384);
                        const i8x16 values8 = load_i8x16(lhs2_k + 448);
                        const i8x16 factor = load_i8x16(rhs2_k);
                        const i8x16 factor2 = load_i8x16(rhs2_k + 16);
                        sum = (u32x4)vdotq_laneq_s32((int32x4_t)sum, (int8x16_t)factor, (int8x16_t)values, 0);
                        sum2 = (u32x4)vdotq_laneq_s32((int32x4_t)sum2, (int8x16_t)factor2, (int8x16_t)values, 0);
                        sum3 = (u32x4)vdotq_laneq_s32((int32x4_t)sum3, (int8x16_t)factor, (int8x16_t)values2, 0);
                        sum4 = (u32x4)vdotq_laneq_s32((int32x4_t)sum4, (int8x16_t)factor2, (int8x16_t)values2, 0);
                        sum5 = (u32x4)vdotq_laneq_s32((int32x4_t)sum5, (int8x16_t)factor, (int8x16_t)values3, 0);
                        sum6 = (u32x4)vdotq_laneq_s32((int32x4_t)sum6, (int8x16_t)factor2, (int8x16_t)values3, 0);
                        sum7 = (u32x4)vdotq_laneq_s32((int32x4_t)sum7, (int8x16_t)factor, (int8x16_t)values4, 0);
                        sum8 = (u32x4)vdotq_laneq_s32((int32x4_t)sum8, (int8x16_t)factor2, (int8x16_t)values4, 0);
                        sum9 = (u32x4)vdotq_laneq_s32((int32x4_t)sum9, (int8x16_t)factor, (int8x16_t)values5, 0);
                        sum10 = (u32x4)vdotq_laneq_s32((int32x4_t)sum10, (int8x16_t)factor2, (int8x16_t)values5, 0);
                        sum11 = (u32x4)vdotq_laneq_s32((int32x4_t)sum11, (int8x16_t)factor, (int8x16_t)values6, 0);
                        sum12 = (u32x4)vdotq_laneq_s32((int32x4_t)sum12, (int8x16_t)factor2, (int8x16_t)values6, 0);
                        sum13 = (u32x4)vdotq_laneq_s32((int32x4_t)sum13, (int8x16_t)factor, (int8x16_t)values7, 0);
                        sum14 = (u32x4)vdotq_laneq_s32((int32x4_t)sum14, (int8x16_t)factor2, (int8x16_t)values7, 0);
                        sum15 = (u32x4)vdotq_laneq_s32((int32x4_t)sum15, (int8x16_t)factor, (int8x16_t)values8, 0);
                        sum16 = (u32x4)vdotq_laneq_s32((int32x4_t)sum16, (int8x16_t)factor2, (int8x16_t)values8, 0);
                        const i8x16 factor3 = load_i8x16(rhs2_k + 256);
                        const i8x16 factor4 = load_i8x16(rhs2_k + 272);
                        sum = (u32x4)vdotq_laneq_s32((int32x4_t)sum, (int8x16_t)factor3, (int8x16_t)values, 1);
                        sum2 = (u32x4)vdotq_laneq_s32((int32x4_t)sum2, (int8x16_t)factor4, (int8x16_t)values, 1);
                        sum3 = (u32x4)vdotq_laneq_s32((int32x4_t)sum3, (int8x16_t)factor3, (int8x16_t)values2, 1);
                        sum4 = (u32x4)vdotq_laneq_s32((int32x4_t)sum4, (int8x16_t)factor4, (int8x16_t)values2, 1);
                        sum5 = (u32x4)vdotq_laneq_s32((int32x4_t)sum5, (int8x16_t)factor3, (int8x16_t)values3, 1);
                        sum6 = (u32x4)vdotq_laneq_s32((int32x4_t)sum6, (int8x16_t)factor4, (int8x16_t)values3, 1);
                        sum7 = (u32x4)vdotq_laneq_s32((int32x4_t)sum7, (int8x16_t)factor3, (int8x16_t)values4, 1);
                        sum8 = (u32x4)vdotq_laneq_s32((int32x4_t)sum8, (int8x16_t)factor4, (int8x16_t)values4, 1);
                        sum9 = (u32x4)vdotq_laneq_s32((int32x4_t)sum9, (int8x16_t)factor3, (int8x16_t)values5, 1);
                        sum10 = (u32x4)vdotq_laneq_s32((int32x4_t)sum10, (int8x16_t)factor4, (int8x16_t)values5, 1);
                        sum11 = (u32x4)vdotq_laneq_s32((int32x4_t)sum11, (int8x16_t)factor3, (int8x16_t)values6, 1);
                        sum12 = (u32x4)vdotq_laneq_s32((int32x4_t)sum12, (int8x16_t)factor4, (int8x16_t)values6, 1);
                        sum13 = (u32x4)vdotq_laneq_s32((int32x4_t)sum13, (int8x16_t)factor3, (int8x16_t)values7, 1);
                        sum14 = (u32x4)vdotq_laneq_s32((int32x4_t)sum14, (int8x16_t)factor4, (int8x16_t)values7, 1);
                        sum15 = (u32x4)vdotq_laneq_s32((int32x4_t)sum15, (int8x16_t)factor3, (int8x16_t)values8, 1);
                        sum16 = (u32x4)vdotq_laneq_s32((int32x4_t)sum16, (int8x16_t)factor4, (int8x16_t)values8, 1);
                        const i8x16 factor5 = load_i8x16(rhs2_k + 512);
                        const i8x16 factor6 = load_i8x16(rhs2_k + 528);
                        sum = (u32x4)vdotq_laneq_s32((int32x4_t)sum, (int8x16_t)factor5, (int8x16_t)values, 2);
                        sum2 = (u32x4)vdotq_laneq_s32((int32x4_t)sum2, (int8x16_t)factor6, (int8x16_t)values, 2);
                        sum3 = (u32x4)vdotq_laneq_s32((int32x4_t)sum3, (int8x16_t)factor5, (int8x16_t)values2, 2);
                        sum4 = (u32x4)vdotq_laneq_s32((int32x4_t)sum4, (int8x16_t)factor6, (int8x16_t)values2, 2);
                        sum5 = (u32x4)vdotq_laneq_s32((int32x4_t)sum5, (int8x16_t)factor5, (int8x16_t)values3, 2);
                        sum6 = (u32x4)vdotq_laneq_s32((int32x4_t)sum6, (int8x16_t)factor6, (int8x16_t)values3, 2);
                        sum7 = (u32x4)vdotq_laneq_s32((int32x4_t)sum7, (int8x16_t)factor5, (int8x16_t)values4, 2);
                        sum8 = (u32x4)vdotq_laneq_s32((int32x4_t)sum8, (int8x16_t)factor6, (int8x16_t)values4, 2);
                        sum9 = (u32x4)vdotq_laneq_s32((int32x4_t)sum9, (int8x16_t)factor5, (int8x16_t)values5, 2);
                        sum10 = (u32x4)vdotq_laneq_s32((int32x4_t)sum10, (int8x16_t)factor6, (int8x16_t)values5, 2);
                        sum11 = (u32x4)vdotq_laneq_s32((int32x4_t)sum11, (int8x16_t)factor5, (int8x16_t)values6, 2);
                        sum12 = (u32x4)vdotq_laneq_s32((int32x4_t)sum12, (int8x16_t)factor6, (int8x16_t)values6, 2);
                        sum13 = (u32x4)vdotq_laneq_s32((int32x4_t)sum13, (int8x16_t)factor5, (int8x16_t)values7, 2);
                        sum14 = (u32x4)vdotq_laneq_s32((int32x4_t)sum14, (int8x16_t)factor6, (int8x16_t)values7, 2);
                        sum15 = (u32x4)vdotq_laneq_s32((int32x4_t)sum15, (int8x16_t)factor5, (int8x16_t)values8, 2);
                        sum16 = (u32x4)vdotq_laneq_s32((int32x4_t)sum16, (int8x16_t)factor6, (int8x16_t)values8, 2);
                        const i8x16 factor7 = load_i8x16(rhs2_k + 768);
                        const i8x16 factor8 = load_i8x16(rhs2_k + 784);
                        sum = (u32x4)vdotq_laneq_s32((int32x4_t)sum, (int8x16_t)factor7, (int8x16_t)values, 3);
                        sum2 = (u32x4)vdotq_laneq_s32((int32x4_t)sum2, (int8x16_t)factor8, (int8x16_t)values, 3);
                        sum3 = (u32x4)vdotq_laneq_s32((int32x4_t)sum3, (int8x16_t)factor7, (int8x16_t)values2, 3);
                        sum4 = (u32x4)vdotq_laneq_s32((int32x4_t)sum4, (int8x16_t)factor8, (int8x16_t)values2, 3);
                        sum5 = (u32x4)vdotq_laneq_s32((int32x4_t)sum5, (int8x16_t)factor7, (int8x16_t)values3, 3);
                        sum6 = (u32x4)vdotq_laneq_s32((int32x4_t)sum6, (int8x16_t)factor8, (int8x16_t)values3, 3);
                        sum7 = (u32x4)vdotq_laneq_s32((int32x4_t)sum7, (int8x16_t)factor7, (int8x16_t)values4, 3);
                        sum8 = (u32x4)vdotq_laneq_s32((int32x4_t)sum8, (int8x16_t)factor8, (int8x16_t)values4, 3);
                        sum9 = (u32x4)vdotq_laneq_s32((int32x4_t)sum9, (int8x16_t)factor7, (int8x16_t)values5, 3);
                        sum10 = (u32x4)vdotq_laneq_s32((int32x4_t)sum10, (int8x16_t)factor8, (int8x16_t)values5, 3);
                        sum11 = (u32x4)vdotq_laneq_s32((int32x4_t)sum11, (int8x16_t)factor7, (int8x16_t)values6, 3);
                        sum12 = (u32x4)vdotq_laneq_s32((int32x4_t)sum12, (int8x16_t)factor8, (int8x16_t)values6, 3);
                        sum13 = (u32x4)vdotq_laneq_s32((int32x4_t)sum13, (int8x16_t)factor7, (int8x16_t)values7, 3);
                        sum14 = (u32x4)vdotq_laneq_s32((int32x4_t)sum14, (int8x16_t)factor8, (int8x16_t)values7, 3);
                        sum15 = (u32x4)vdotq_laneq_s32((int32x4_t)sum15, (int8x16_t)factor7, (int8x16_t)values8, 3);
                        sum16 = (u32x4)vdotq_laneq_s32((int32x4_t)sum16, (int8x16_t)factor8, (int8x16_t)values8, 3);
                    }
                    store_i32x4(out2, (i32x4)sum);
                    store_i32x4(out2 + 4, (i32x4)sum2);
                    store_i32x4(out2 + 64, (i32x4)sum3);
                    store_i32x4(out2 + 68, (i32x4)sum4);
                    store_i32x4(out2 + 128, (i32x4)sum5);
                    store_i32x4(out2 + 132, (i32x4)sum6);
                    store_i32x4(out2 + 192, (i32x4)sum7);
                    store_i32x4(out2 + 196, (i32x4)sum8);
                    store_i32x4(out2 + 256, (i32x4)sum9);
                    store_i32x4(out2 + 260, (i32x4)sum10);
                    store_i32x4(out2 + 320, (i32x4)sum11);
                    store_i32x4(out2 + 324, (i32x4)sum12);
                    store_i32x4(out2 + 384, (i32x4)sum13);
                    store_i32x4(out2 + 388, (i32x4)sum14);
                    store_i32x4(out2 + 448, (i32x4)sum15);
                    store_i32x4(out2 + 452, (i32x4)sum16);
                }
            }
        }
    }
}
