/* MatmulAccum(1×5×64×16, GL, L1, GL) for x86_avx2, made by Morello. */
#ifndef MORELLO_JAM_H
#define MORELLO_JAM_H

#include <stddef.h>
#include <stdint.h>

/* lhs: 1×5×64 f32, layout[1, 2] */
/* rhs: 1×64×16 f32, layout[2, 1] */
/* out: 1×5×16 f32, layout[1, 2] */
#ifdef __cplusplus
extern "C" {
#endif
void jam(const float *__restrict lhs, const float *__restrict rhs, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_JAM_H */
