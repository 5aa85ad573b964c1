/* Matmul(1×1×64×4, L1, L1, L1) for x86_avx512, made by Morello. */
#ifndef MORELLO_BF16_AVX512_H
#define MORELLO_BF16_AVX512_H

#include <stddef.h>
#include <stdint.h>

/* lhs: 1×1×64 bf16, layout[2] */
/* rhs: 1×64×4 bf16, layout[2, 1] */
/* out: 1×1×4 f32, layout[2] */
#ifdef __cplusplus
extern "C" {
#endif
void bf16_avx512(const uint16_t *__restrict lhs, const uint16_t *__restrict rhs, float *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_BF16_AVX512_H */
