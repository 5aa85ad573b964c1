/* Softmax(4×16, L1, L1) for x86_avx2, made by Morello. */
#ifndef MORELLO_IN_PLACE_H
#define MORELLO_IN_PLACE_H

#include <stddef.h>
#include <stdint.h>

/* x: 4×16 f32, layout[0, 1], overwritten */
#ifdef __cplusplus
extern "C" {
#endif
void in_place(float *__restrict x);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_IN_PLACE_H */
