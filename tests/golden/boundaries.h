/* MatmulAccum(1×7×5×3, L1, L1, L1) for x86_avx2, made by Morello. */
#ifndef MORELLO_BOUNDARIES_H
#define MORELLO_BOUNDARIES_H

#include <stddef.h>
#include <stdint.h>

/* lhs: 1×7×5 f32, layout[1, 2] */
/* rhs: 1×5×3 f32, layout[1, 2] */
/* out: 1×7×3 f32, layout[1, 2] */
#ifdef __cplusplus
extern "C" {
#endif
void boundaries(const float *__restrict lhs, const float *__restrict rhs, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_BOUNDARIES_H */
