/* MatmulAccum(1×1×96×1, L1, L1, RF) for x86_avx2, made by Morello. */
#ifndef MORELLO_DOT_H
#define MORELLO_DOT_H

#include <stddef.h>
#include <stdint.h>

/* lhs: 1×1×96 f32, layout[2] */
/* rhs: 1×96×1 f32, layout[1] */
/* out: 1×1×1 f32, in order */
#ifdef __cplusplus
extern "C" {
#define restrict __restrict
#endif
void dot(const float *restrict lhs, const float *restrict rhs, float *restrict out);
#ifdef __cplusplus
#undef restrict
}
#endif

#endif /* MORELLO_DOT_H */
