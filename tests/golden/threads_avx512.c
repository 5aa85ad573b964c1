/*
 * MatmulAccum(1×64×8×16, L1, L1, L1) for x86_avx512, made by Morello.
 *
 * Cost 850640; memory in bytes: VRF 256. Schedule:
 *     tile [1, 2, 16] parallel
 *     move 2 to VRF as row_major v16
 *     subschedule [0] {
 *         tile [1, 1, 16]
 *         select VectorMove
 *     }
 *     subschedule [2] {
 *         tile [1, 1, 16]
 *         select VectorMove
 *     }
 *     split 1
 *     move 1 to VRF as row_major v16
 *     subschedule [0] {
 *         select VectorMove
 *     }
 *     tile [1, 1, 16]
 *     select BroadcastVecMultAdd
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

typedef float f32x16 __attribute__((vector_size(64)));

static inline f32x16 load_f32x16(const float *from) {
    f32x16 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_f32x16(float *to, f32x16 v) {
    memcpy(to, &v, sizeof v);
}

struct threads_avx512_part1 {
    const float *restrict lhs;
    const float *restrict rhs;
    float *restrict out;
};

static void threads_avx512_part1(const void *given, ptrdiff_t thread, ptrdiff_t from, ptrdiff_t to) {
    const struct threads_avx512_part1 *const loop = given;
    const float *restrict const lhs = loop->lhs;
    const float *restrict const rhs = loop->rhs;
    float *restrict const out = loop->out;
    (void)thread;
    for (ptrdiff_t tile = from; tile < to; ++tile) {
        const ptrdiff_t m = tile;
        /* MatmulAccum(1×2×8×16, L1, L1, L1): move 2 to VRF as row_major v16 */
        f32x16 out_0_0, out_1_0;
        /* Move(1×2×16, L1, VRF): tile [1, 1, 16], unrolled */
        out_0_0 = load_f32x16(&out[32 * m]);
        out_1_0 = load_f32x16(&out[32 * m + 16]);
        /* MatmulAccum(1×2×8×16, L1, L1, VRF): split 1 */
        for (ptrdiff_t k = 0; k < 8; ++k) {
            /* MatmulAccum(1×2×1×16, L1, L1, VRF): move 1 to VRF as row_major v16 */
            f32x16 rhs_0;
            /* Move(1×1×16, L1, VRF): VectorMove */
            rhs_0 = load_f32x16(&rhs[16 * k]);
            /* MatmulAccum(1×2×1×16, L1, VRF, VRF): tile [1, 1, 16], unrolled */
            out_0_0 = _mm512_fmadd_ps(_mm512_set1_ps(lhs[16 * m + k]), rhs_0, out_0_0);
            out_1_0 = _mm512_fmadd_ps(_mm512_set1_ps(lhs[16 * m + k + 8]), rhs_0, out_1_0);
        }
        /* Move(1×2×16, VRF, L1): tile [1, 1, 16], unrolled */
        store_f32x16(&out[32 * m], out_0_0);
        store_f32x16(&out[32 * m + 16], out_1_0);
    }
}

void threads_avx512(const float *restrict lhs, const float *restrict rhs, float *restrict out, int threads) {
    /* MatmulAccum(1×64×8×16, L1, L1, L1): tile [1, 2, 16] parallel */
    {
        const struct threads_avx512_part1 given = {lhs, rhs, out};
        morello_parallel(threads_avx512_part1, &given, 32, threads);
    }
}
