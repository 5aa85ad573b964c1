/*
 * Move(2×100×40, GL, GL) for x86_avx2, made by Morello.
 *
 * Cost 2805080; memory in bytes: L1 4096, GL 16384. Schedule:
 *     tile [1, 0, 0]
 *     move 0 to GL as row_major
 *     subschedule [0] {
 *         tile [0, 1, 1]
 *         move 0 to L1
 *         move 1 to L1
 *         select Assign
 *     }
 *     tile [0, 32, 20] parallel
 *     subschedule [1] {
 *         tile [0, 1, 1]
 *         move 0 to L1
 *         move 1 to L1
 *         select Assign
 *     }
 *     move 1 to L1 as layout[0, 2, 1]
 *     subschedule [1] {
 *         tile [0, 1, 1]
 *         move 1 to L1
 *         select Assign
 *     }
 *     tile [0, 1, 1]
 *     move 0 to L1
 *     select Assign
 */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef _OPENMP
#include <pthread.h>
#endif

/* The tiles from `from` up to `to` of a parallel loop, as the share of one thread. */
typedef void morello_tiles(const void *loop, ptrdiff_t thread, ptrdiff_t from, ptrdiff_t to);

#ifndef _OPENMP
typedef struct {
    morello_tiles *body;
    const void *loop;
    ptrdiff_t thread, from, to;
} morello_share;

static void *morello_start(void *given) {
    const morello_share *const share = given;
    share->body(share->loop, share->thread, share->from, share->to);
    return NULL;
}
#endif

/* Runs `body` on `tiles` tiles. Shares for which there is no thread to be had are run by the caller. */
static void morello_parallel(morello_tiles *body, const void *loop, ptrdiff_t tiles, int threads) {
    const ptrdiff_t most = tiles < 1024 ? tiles : 1024;
    const ptrdiff_t shares = threads < 1 ? 1 : threads < most ? threads : most;
    if (shares == 1) {
        body(loop, 0, 0, tiles);
        return;
    }
#ifdef _OPENMP
    #pragma omp parallel for num_threads((int)shares) schedule(static, 1)
    for (ptrdiff_t t = 0; t < shares; ++t) {
        body(loop, t, tiles * t / shares, tiles * (t + 1) / shares);
    }
#else
    morello_share share[1024];
    pthread_t started[1024];
    ptrdiff_t count = 1;
    for (ptrdiff_t t = 0; t < shares; ++t) {
        share[t] = (morello_share){body, loop, t, tiles * t / shares, tiles * (t + 1) / shares};
    }
    while (count < shares && pthread_create(&started[count], NULL, morello_start, &share[count]) == 0) {
        ++count;
    }
    morello_start(&share[0]);
    for (ptrdiff_t t = count; t < shares; ++t) {
        morello_start(&share[t]);
    }
    for (ptrdiff_t t = 1; t < count; ++t) {
        pthread_join(started[t], NULL);
    }
#endif
}

struct threads_part1 {
    const float *restrict src_gl;
    float *restrict out;
    ptrdiff_t i0;
};

static void threads_part1(const void *given, ptrdiff_t thread, ptrdiff_t from, ptrdiff_t to) {
    const struct threads_part1 *const loop = given;
    const float *restrict const src_gl = loop->src_gl;
    float *restrict const out = loop->out;
    const ptrdiff_t i0 = loop->i0;
    (void)thread;
    for (ptrdiff_t tile = from; tile < to; ++tile) {
        const ptrdiff_t i1 = tile / 2;
        const ptrdiff_t i2 = tile % 2;
        /* Move(1×32×20, GL, GL): move 1 to L1 as layout[0, 2, 1] */
        {
            _Alignas(64) float out_l1[640];
            /* Move(1×32×20, GL, L1): tile [0, 1, 1] */
            for (ptrdiff_t i1_2 = 0; i1_2 < 32; ++i1_2) {
                for (ptrdiff_t i2_2 = 0; i2_2 < 20; ++i2_2) {
                    /* Move(1×1×1, L1, L1): Assign */
                    out_l1[32 * i2_2 + i1_2] = src_gl[1280 * i1 + 40 * i1_2 + 20 * i2 + i2_2];
                }
            }
            /* Move(1×32×20, L1, GL): tile [0, 1, 1] */
            for (ptrdiff_t i1_2 = 0; i1_2 < 32; ++i1_2) {
                for (ptrdiff_t i2_2 = 0; i2_2 < 20; ++i2_2) {
                    /* Move(1×1×1, L1, L1): Assign */
                    out[4000 * i0 + 1280 * i1 + 40 * i1_2 + 20 * i2 + i2_2] = out_l1[32 * i2_2 + i1_2];
                }
            }
        }
    }
}

void threads(const float *restrict src, ptrdiff_t src_stride0, ptrdiff_t src_stride1, float *restrict out, void *restrict workspace, int threads2) {
    /* Move(2×100×40, GL, GL): tile [1, 0, 0] */
    for (ptrdiff_t i0 = 0; i0 < 2; ++i0) {
        /* Move(1×100×40, GL, GL): move 0 to GL as row_major */
        {
            float *restrict const src_gl = (float *)(workspace);
            /* Move(1×100×40, GL, GL): tile [0, 1, 1] */
            for (ptrdiff_t i1 = 0; i1 < 100; ++i1) {
                for (ptrdiff_t i2 = 0; i2 < 40; ++i2) {
                    /* Move(1×1×1, L1, L1): Assign */
                    src_gl[40 * i1 + i2] = src[i2 + i1 * src_stride1 + i0 * src_stride0];
                }
            }
            /* Move(1×100×40, GL, GL): tile [0, 32, 20] parallel */
            {
                const struct threads_part1 given = {src_gl, out, i0};
                morello_parallel(threads_part1, &given, 6, threads2);
            }
            /* Move(1×100×40, GL, GL): tile [0, 32, 20] parallel (boundary) */
            for (ptrdiff_t i2 = 0; i2 < 2; ++i2) {
                /* Move(1×4×20, GL, GL): tile [0, 1, 1] */
                for (ptrdiff_t i1 = 0; i1 < 4; ++i1) {
                    for (ptrdiff_t i2_2 = 0; i2_2 < 20; ++i2_2) {
                        /* Move(1×1×1, L1, L1): Assign */
                        out[4000 * i0 + 40 * i1 + 20 * i2 + i2_2 + 3840] = src_gl[40 * i1 + 20 * i2 + i2_2 + 3840];
                    }
                }
            }
        }
    }
}
