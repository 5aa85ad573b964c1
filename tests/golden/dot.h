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
#endif
void dot(const float *__restrict lhs, const float *__restrict rhs, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_DOT_H */
