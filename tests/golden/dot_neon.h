/* Matmul(1×64×64×64, GL, GL, GL) for aarch64_neon, made by Morello. */
#ifndef MORELLO_DOT_NEON_H
#define MORELLO_DOT_NEON_H

#include <stddef.h>
#include <stdint.h>

/* lhs: 1×64×64 i8, layout[1, 2] */
/* rhs: 1×64×64 i8, layout[1, 2] */
/* out: 1×64×64 i32, layout[1, 2] */
#ifdef __cplusplus
extern "C" {
#endif
void dot_neon(const int8_t *__restrict lhs, const int8_t *__restrict rhs, int32_t *__restrict out);
#ifdef __cplusplus
}
#endif

#endif /* MORELLO_DOT_NEON_H */
