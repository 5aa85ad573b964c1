/* RandMatmul[seed=1](1×2×8×16, L1, L1, L1, L1) for x86_avx512, made by Morello. */
#ifndef MORELLO_RANDOM_AVX512_H
#define MORELLO_RANDOM_AVX512_H

#include <stddef.h>
#include <stdint.h>

/* rows: 1×2×1 u32, layout[1] */
/* columns: 1×1×8 u32, layout[2] */
/* rhs: 1×8×16 f32, layout[1, 2] */
/* out: 1×2×16 f32, layout[1, 2] */
#ifdef __cplusplus
extern "C" {
#endif
void random_avx512(const uint32_t *__restrict rows, const uint32_t *__restrict columns, const float *__restrict rhs, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_RANDOM_AVX512_H */
