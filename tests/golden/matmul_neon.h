/* Matmul(1×64×64×64, GL, GL, GL) for aarch64_neon, made by Morello. */
#ifndef MORELLO_MATMUL_NEON_H
#define MORELLO_MATMUL_NEON_H

#include <stddef.h>
#include <stdint.h>

/* lhs: 1×64×64 f32, layout[1, 2] */
/* rhs: 1×64×64 f32, layout[1, 2] */
/* out: 1×64×64 f32, layout[1, 2] */
#ifdef __cplusplus
extern "C" {
#endif
void matmul_neon(const float *__restrict lhs, const float *__restrict rhs, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_MATMUL_NEON_H */
