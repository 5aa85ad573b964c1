/* Move(16×16, L1, L1) for x86_avx2, made by Morello. */
#ifndef MORELLO_TRANSPOSE_H
#define MORELLO_TRANSPOSE_H

#include <stddef.h>
#include <stdint.h>

/* src: 16×16 f32, layout[0, 1] */
/* out: 16×16 f32, layout[1, 0] */
#ifdef __cplusplus
extern "C" {
#endif
void transpose(const float *__restrict src, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_TRANSPOSE_H */
