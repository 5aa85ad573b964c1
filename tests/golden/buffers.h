/* FillZero(64×64, GL) for x86_avx2, made by Morello. */
#ifndef MORELLO_BUFFERS_H
#define MORELLO_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

/* out: 64×64 f32, layout[0, 1] */
/* workspace: 16384 bytes, aligned to 64 */
#define BUFFERS_WORKSPACE 16384
#ifdef __cplusplus
extern "C" {
#endif
void buffers(float *__restrict out, void *__restrict workspace);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_BUFFERS_H */
