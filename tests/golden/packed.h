/* Move(8×32, L1, L1) for x86_avx2, made by Morello. */
#ifndef MORELLO_PACKED_H
#define MORELLO_PACKED_H

#include <stddef.h>
#include <stdint.h>

/* src: 8×32 f32, layout[1, 0, 1p8] */
/* out: 8×32 f32, layout[0, 1, 1oe16] */
#ifdef __cplusplus
extern "C" {
#endif
void packed(const float *__restrict src, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_PACKED_H */
