/* Conv(1×4×2×4×16×3×3, L1, L1, L1) for x86_avx512, made by Morello. */
#ifndef MORELLO_CONV_AVX512_H
#define MORELLO_CONV_AVX512_H

#include <stddef.h>
#include <stdint.h>

/* image: 1×2×6×18 f32, layout[1, 2, 3] */
/* filters: 4×2×3×3 f32, layout[0, 1, 2, 3] */
/* out: 1×4×4×16 f32, layout[1, 2, 3] */
#ifdef __cplusplus
extern "C" {
#endif
void conv_avx512(const float *__restrict image, const float *__restrict filters, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_CONV_AVX512_H */
