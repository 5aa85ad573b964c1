/* Conv[stride=2](1×13×3×1×3×3×2, L1, L1, L1) for x86_avx2, made by Morello. */
#ifndef MORELLO_CONV_TILE_H
#define MORELLO_CONV_TILE_H

#include <stddef.h>
#include <stdint.h>

/* image: 1×3×3×6 f32, layout[1, 2, 3] */
/* filters: 13×3×3×2 f32, layout[1, 2, 3, 0] */
/* out: 1×13×1×3 f32, layout[3, 1] */
#ifdef __cplusplus
extern "C" {
#endif
void conv_tile(const float *__restrict image, const float *__restrict filters, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_CONV_TILE_H */
