/* SoftmaxComplete(4×32, L1, L1, L1, L1) for x86_avx512, made by Morello. */
#ifndef MORELLO_SOFTMAX_AVX512_H
#define MORELLO_SOFTMAX_AVX512_H

#include <stddef.h>
#include <stdint.h>

/* src: 4×32 f32, layout[0, 1] */
/* max: 4×1 f32, layout[0] */
/* denom: 4×1 f32, layout[0] */
/* out: 4×32 f32, layout[0, 1] */
#ifdef __cplusplus
extern "C" {
#endif
void softmax_avx512(const float *__restrict src, const float *__restrict max, const float *__restrict denom, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_SOFTMAX_AVX512_H */
