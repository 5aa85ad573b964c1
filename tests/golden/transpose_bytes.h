/* Move(40×33, L1, L1) for x86_avx2, made by Morello. */
#ifndef MORELLO_TRANSPOSE_BYTES_H
#define MORELLO_TRANSPOSE_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* src: 40×33 u8, layout[0, 1] */
/* out: 40×33 u8, layout[1, 0] */
#ifdef __cplusplus
extern "C" {
#endif
void transpose_bytes(const uint8_t *__restrict src, uint8_t *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_TRANSPOSE_BYTES_H */
