/*
 * Move(4×16, L1, L1) for x86_avx2, made by Morello.
 * Compile: cc -std=gnu11 -O3 -fno-math-errno -mavx2 -mfma -mstackrealign -c strides.c
 *
 * Cost 88; memory in bytes: VRF 64. Schedule:
 *     tile [1, 16]
 *     move 0 to VRF as row_major v8
 *     subschedule [0] {
 *         select VectorMove
 *     }
 *     select VectorMove
 */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "strides needs avx2, fma: compile it with -mavx2 -mfma -mstackrealign"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void strides(const float *restrict src, ptrdiff_t src_stride0, float *restrict out, ptrdiff_t out_stride0);

typedef float f32x8 __attribute__((vector_size(32)));

static inline f32x8 load_f32x8(const float *from) {
    f32x8 v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_f32x8(float *to, f32x8 v) {
    memcpy(to, &v, sizeof v);
}

void strides(const float *restrict src, ptrdiff_t src_stride0, float *restrict out, ptrdiff_t out_stride0) {
    /* Move(4×16, L1, L1): tile [1, 16] */
    for (ptrdiff_t i0 = 0; i0 < 4; ++i0) {
        /* Move(1×16, L1, L1): move 0 to VRF as row_major v8 */
        f32x8 src_0, src_8;
        /* Move(1×16, L1, VRF): VectorMove */
        src_0 = load_f32x8(&src[i0 * src_stride0]);
        src_8 = load_f32x8(&src[i0 * src_stride0 + 8]);
        /* Move(1×16, VRF, L1): VectorMove */
        store_f32x8(&out[i0 * out_stride0], src_0);
        store_f32x8(&out[i0 * out_stride0 + 8], src_8);
    }
}
