/* Compose([Relu, Matmul])(1×4×32×8, L1, L1, L1) for x86_avx512, made by Morello. */
#ifndef MORELLO_COMPOSE_AVX512_H
#define MORELLO_COMPOSE_AVX512_H

#include <stddef.h>
#include <stdint.h>

/* lhs1: 1×4×8 f32, layout[1, 2] */
/* rhs1: 1×8×32 f32, layout[1, 2] */
/* out: 1×4×32 f32, layout[1, 2] */
#ifdef __cplusplus
extern "C" {
#endif
void compose_avx512(const float *__restrict lhs1, const float *__restrict rhs1, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_COMPOSE_AVX512_H */
