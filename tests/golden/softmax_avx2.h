/* Softmax(4×16, L1, L1) for x86_avx2, made by Morello. */
#ifndef MORELLO_SOFTMAX_AVX2_H
#define MORELLO_SOFTMAX_AVX2_H

#include <stddef.h>
#include <stdint.h>

/* src: 4×16 f32, layout[0, 1] */
/* out: 4×16 f32, layout[0, 1] */
#ifdef __cplusplus
extern "C" {
#endif
void softmax_avx2(const float *__restrict src, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_SOFTMAX_AVX2_H */
