/* Move(2×100×40, GL, GL) for x86_avx2, made by Morello. */
#ifndef MORELLO_THREADS_H
#define MORELLO_THREADS_H

#include <stddef.h>
#include <stdint.h>

/* src: 2×100×40 f32, layout[0, 1, 2] */
/* src_stride*: distance in values along its outer dimensions, slowest first */
/* out: 2×100×40 f32, layout[0, 1, 2] */
/* threads2: how many threads may be used, at least 1; results do not depend on it.
   Compile with OpenMP, or link with pthreads. The calling thread does the work that gets no other thread. */
/* threads_set_parallel: from now on run(body, data, count) shares the loops among threads of yours.
   It calls body(data, 0) to body(data, count - 1), in any order and on any threads, and returns when all have;
   count is at most threads2. With NULL the function uses its own threads again. */
/* workspace: THREADS_WORKSPACE(threads2) bytes, aligned to 64 */
#define THREADS_WORKSPACE(threads2) (16000 + (size_t)(threads2) * 0)
#ifdef __cplusplus
extern "C" {
#endif
void threads(const float *__restrict src, ptrdiff_t src_stride0, ptrdiff_t src_stride1, float *__restrict out, void *__restrict workspace, int threads2);
void threads_set_parallel(void (*run)(void (*body)(void *, int), void *data, int count));
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_THREADS_H */
