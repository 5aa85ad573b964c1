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
#define restrict __restrict
#endif
void jam(const float *restrict lhs, const float *restrict rhs, float *restrict out);
#ifdef __cplusplus
#undef restrict
}
#endif

#endif /* MORELLO_JAM_H */
