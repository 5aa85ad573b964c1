/* MatmulAccum(1×64×8×8, L1, L1, L1) for x86_avx2, made by Morello. */
#ifndef MORELLO_THREADS_AVX2_H
#define MORELLO_THREADS_AVX2_H

#include <stddef.h>
#include <stdint.h>

/* lhs: 1×64×8 f32, layout[1, 2] */
/* rhs: 1×8×8 f32, layout[1, 2] */
/* out: 1×64×8 f32, layout[1, 2] */
/* threads: how many threads may be used, at least 1; results do not depend on it.
   Compile with OpenMP, or link with pthreads. The calling thread does the work that gets no other thread. */
/* threads_avx2_set_parallel: from now on run(body, data, count) shares the loops among threads of yours.
   It calls body(data, 0) to body(data, count - 1), in any order and on any threads, and returns when all have;
   count is at most threads. With NULL the function uses its own threads again. */
#ifdef __cplusplus
extern "C" {
#endif
void threads_avx2(const float *__restrict lhs, const float *__restrict rhs, float *__restrict out, int threads);
void threads_avx2_set_parallel(void (*run)(void (*body)(void *, int), void *data, int count));
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_THREADS_AVX2_H */
