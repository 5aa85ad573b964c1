/* Relu(3×100, GL, GL) for x86_avx512, made by Morello. */
#ifndef MORELLO_STREAMS_AVX512_H
#define MORELLO_STREAMS_AVX512_H

#include <stddef.h>
#include <stdint.h>

/* src: 3×100 f32, layout[0, 1] */
/* out: 3×100 f32, layout[0, 1] */
#ifdef __cplusplus
extern "C" {
#define restrict __restrict
#endif
void streams_avx512(const float *restrict src, float *restrict out);
#ifdef __cplusplus
#undef restrict
}
#endif

#endif /* MORELLO_STREAMS_AVX512_H */
