/* MatmulAccum(1×2×4×9, L1, L1, L1) for x86_avx512, made by Morello. */
#ifndef MORELLO_MATMUL_AVX512_H
#define MORELLO_MATMUL_AVX512_H

#include <stddef.h>
#include <stdint.h>

/* lhs: 1×2×4 f32, layout[1, 2] */
/* rhs: 1×4×9 f32, layout[1, 2] */
/* out: 1×2×9 f32, layout[1, 2] */
#ifdef __cplusplus
extern "C" {
#endif
void matmul_avx512(const float *__restrict lhs, const float *__restrict rhs, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_MATMUL_AVX512_H */
