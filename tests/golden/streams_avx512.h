/* Relu(3×100, GL, GL) for x86_avx512, made by Morello. */
#ifndef MORELLO_STREAMS_AVX512_H
#define MORELLO_STREAMS_AVX512_H

#include <stddef.h>
#include <stdint.h>

/* src: 3×100 f32, layout[0, 1] */
/* out: 3×100 f32, layout[0, 1] */
#ifdef __cplusplus
extern "C" {
#endif
void streams_avx512(const float *__restrict src, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_STREAMS_AVX512_H */
