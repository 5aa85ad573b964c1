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
#define restrict __restrict
#endif
void softmax_avx512(const float *restrict src, const float *restrict max, const float *restrict denom, float *restrict out);
#ifdef __cplusplus
#undef restrict
}
#endif

#endif /* MORELLO_SOFTMAX_AVX512_H */
