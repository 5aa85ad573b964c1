/* Matmul(1×384×384×384, GL, GL, GL) for x86_avx2, made by Morello. */
#ifndef MORELLO_GEMM_6X16_H
#define MORELLO_GEMM_6X16_H

#include <stddef.h>
#include <stdint.h>

/* lhs: 1×384×384 f32, layout[1, 2] */
/* rhs: 1×384×384 f32, layout[1, 2] */
/* out: 1×384×384 f32, layout[1, 2] */
/* workspace: 589824 bytes, aligned to 64 */
#define GEMM_6X16_WORKSPACE 589824
#ifdef __cplusplus
extern "C" {
#endif
void gemm_6x16(const float *__restrict lhs, const float *__restrict rhs, float *__restrict out, void *__restrict workspace);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_GEMM_6X16_H */
