/* Move(4×16, L1, L1) for x86_avx2, made by Morello. */
#ifndef MORELLO_STRIDES_H
#define MORELLO_STRIDES_H

#include <stddef.h>
#include <stdint.h>

/* src: 4×16 f32, layout[0, 1] */
/* src_stride*: distance in values along its outer dimensions, slowest first */
/* out: 4×16 f32, layout[0, 1] */
/* out_stride*: distance in values along its outer dimensions, slowest first */
#ifdef __cplusplus
extern "C" {
#endif
void strides(const float *__restrict src, ptrdiff_t src_stride0, float *__restrict out, ptrdiff_t out_stride0);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_STRIDES_H */
