/* MatmulAccum(1×4×4×16, RF, VRF, L1) for x86_avx2, made by Morello. */
#ifndef MORELLO_FIGURE1_H
#define MORELLO_FIGURE1_H

#include <stddef.h>
#include <stdint.h>

/* lhs: 1×4×4 f32, in order */
/* rhs: 1×4×16 f32, layout[1, 2] */
/* out: 1×4×16 f32, layout[1, 2] */
#ifdef __cplusplus
extern "C" {
#endif
void figure1(const float *__restrict lhs, const float *__restrict rhs, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_FIGURE1_H */
