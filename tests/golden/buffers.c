/*
 * FillZero(64×64, GL) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c buffers.c
 *
 * Cost 13337718; memory in bytes: L1 20480. Schedule:
 *     move 0 to L1 as col_major
 *     subschedule [1] {
 *         tile [1, 1]
 *         move 1 to L1
 *         select Assign
 *     }
 *     tile [64, 8]
 *     move 0 to L1 as row_major
 *     subschedule [1] {
 *         tile [1, 1]
 *         select Assign
 *     }
 *     select MemsetZero
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "buffers needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void buffers(float *restrict out, void *restrict workspace);

void buffers(float *restrict out, void *restrict workspace) {
    /* FillZero(64×64, GL): move 0 to L1 as col_major */
    {
        float *restrict const out_l1 = (float *)(workspace);
        /* FillZero(64×64, L1): tile [64, 8] */
        for (ptrdiff_t i1 = 0; i1 < 8; ++i1) {
            /* FillZero(64×8, L1): move 0 to L1 as row_major */
            {
                _Alignas(64) float out_l1_2[512];
                /* FillZero(64×8, L1): MemsetZero */
                memset(&out_l1_2[0], 0, 2048);
                /* Move(64×8, L1, L1): tile [1, 1] */
                for (ptrdiff_t i0 = 0; i0 < 64; ++i0) {
                    for (ptrdiff_t i1_2 = 0; i1_2 < 8; ++i1_2) {
                        /* Move(1×1, L1, L1): Assign */
                        out_l1[512 * i1 + 64 * i1_2 + i0] = out_l1_2[8 * i0 + i1_2];
                    }
                }
            }
        }
        /* Move(64×64, L1, GL): tile [1, 1] */
        for (ptrdiff_t i0 = 0; i0 < 64; ++i0) {
            for (ptrdiff_t i1 = 0; i1 < 64; ++i1) {
                /* Move(1×1, L1, L1): Assign */
                out[64 * i0 + i1] = out_l1[64 * i1 + i0];
            }
        }
    }
}
