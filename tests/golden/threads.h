/* Move(2×100×40, GL, GL) for x86_avx2, made by Morello. */
#ifndef MORELLO_THREADS_H
#define MORELLO_THREADS_H

#include <stddef.h>
#include <stdint.h>

/* src: 2×100×40 f32, layout[0, 1, 2] */
/* src_stride*: distance in values along its outer dimensions, slowest first */
/* out: 2×100×40 f32, layout[0, 1, 2] */
/* threads2: how many threads may be used, at least 1; results do not depend on it.
   Compile with OpenMP, or link with pthreads. What no thread is to be had for, the calling one does. */
/* workspace: THREADS_WORKSPACE(threads2) bytes, aligned to 64 */
#define THREADS_WORKSPACE(threads2) (16000 + (size_t)(threads2) * 0)
#ifdef __cplusplus
extern "C" {
#endif
void threads(const float *__restrict src, ptrdiff_t src_stride0, ptrdiff_t src_stride1, float *__restrict out, void *__restrict workspace, int threads2);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_THREADS_H */
