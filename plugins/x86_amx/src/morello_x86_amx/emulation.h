/* AMX's instructions in plain C, for CPUs without them: `cc -include emulation.h`. Misuse ends the process. */
#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbusd
#undef _tile_dpbuud
#define _tile_loadconfig emulated_loadconfig
#define _tile_release emulated_release
#define _tile_zero emulated_zero
#define _tile_loadd emulated_loadd
#define _tile_stored emulated_stored
#define _tile_dpbf16ps emulated_dpbf16ps
#define _tile_dpbssd(out, lhs, rhs) emulated_bytes(out, lhs, rhs, 1, 1)
#define _tile_dpbsud(out, lhs, rhs) emulated_bytes(out, lhs, rhs, 1, 0)
#define _tile_dpbusd(out, lhs, rhs) emulated_bytes(out, lhs, rhs, 0, 1)
#define _tile_dpbuud(out, lhs, rhs) emulated_bytes(out, lhs, rhs, 0, 0)
#ifndef MORELLO_ASK_FOR_TILES
#define MORELLO_ASK_FOR_TILES() 1
#endif

/* The tiles of a thread; without a configuration they have no rows. */
static _Thread_local struct {
    uint8_t rows[8];
    uint16_t bytes[8];
    _Alignas(64) uint8_t values[8][16][64];
} emulated;

static inline void emulated_require(int holds, const char *rule) {
    if (!holds) {
        fprintf(stderr, "AMX: %s\n", rule);
        abort();
    }
}

static inline void emulated_loadconfig(const void *from) {
    const uint8_t *const shape = from;
    emulated_require(shape[0] == 1, "the palette is 1");
    memset(&emulated, 0, sizeof emulated);
    memcpy(emulated.bytes, shape + 16, sizeof emulated.bytes);
    memcpy(emulated.rows, shape + 48, sizeof emulated.rows);
    for (int tile = 0; tile < 8; ++tile) {
        emulated_require(emulated.rows[tile] <= 16 && emulated.bytes[tile] <= 64, "a tile has up to 16 rows of 64 bytes");
    }
}

static inline void emulated_release(void) {
    memset(&emulated, 0, sizeof emulated);
}

static inline void emulated_zero(int out) {
    emulated_require(emulated.rows[out], "tiles are configured");
    memset(emulated.values[out], 0, sizeof emulated.values[out]);
}

static inline void emulated_loadd(int out, const void *from, ptrdiff_t stride) {
    emulated_zero(out);
    for (int row = 0; row < emulated.rows[out]; ++row) {
        memcpy(emulated.values[out][row], (const char *)from + row * stride, emulated.bytes[out]);
    }
}

static inline void emulated_stored(int from, void *out, ptrdiff_t stride) {
    emulated_require(emulated.rows[from], "tiles are configured");
    for (int row = 0; row < emulated.rows[from]; ++row) {
        memcpy((char *)out + row * stride, emulated.values[from][row], emulated.bytes[from]);
    }
}

/* Checks the shapes of a product's tiles: lhs rows×4k bytes, rhs k×4n bytes, out rows×4n bytes. */
static inline void emulated_product(int out, int lhs, int rhs) {
    emulated_require(emulated.rows[out], "tiles are configured");
    emulated_require(out != lhs && out != rhs && lhs != rhs, "the tiles of a product differ");
    emulated_require(
        emulated.rows[out] == emulated.rows[lhs] && emulated.bytes[lhs] == 4 * emulated.rows[rhs] &&
            emulated.bytes[rhs] == emulated.bytes[out],
        "the shapes of a product's tiles agree");
}

static inline float emulated_flushed(float value) {
    return fabsf(value) < FLT_MIN ? copysignf(0.0f, value) : value;
}

static inline float emulated_widened(const uint8_t *from) {
    uint16_t half;
    memcpy(&half, from, sizeof half);
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return emulated_flushed(value);
}

/* The products of even and of odd neighbours are added up apart, each with one rounding, and then added to the sum. */
static inline void emulated_dpbf16ps(int out, int lhs, int rhs) {
    emulated_product(out, lhs, rhs);
    for (int row = 0; row < emulated.rows[out]; ++row) {
        for (int column = 0; column < emulated.bytes[out]; column += 4) {
            float sum, pair[2] = {0.0f, 0.0f};
            for (int k = 0; k < emulated.rows[rhs]; ++k) {
                for (int odd = 0; odd < 2; ++odd) {
                    const float a = emulated_widened(emulated.values[lhs][row] + 4 * k + 2 * odd);
                    const float b = emulated_widened(emulated.values[rhs][k] + column + 2 * odd);
                    pair[odd] = emulated_flushed(fmaf(a, b, pair[odd]));
                }
            }
            memcpy(&sum, emulated.values[out][row] + column, sizeof sum);
            sum = emulated_flushed(emulated_flushed(sum) + emulated_flushed(pair[0] + pair[1]));
            memcpy(emulated.values[out][row] + column, &sum, sizeof sum);
        }
    }
}

static inline void emulated_bytes(int out, int lhs, int rhs, int lhs_signed, int rhs_signed) {
    emulated_product(out, lhs, rhs);
    for (int row = 0; row < emulated.rows[out]; ++row) {
        for (int column = 0; column < emulated.bytes[out]; column += 4) {
            uint32_t sum;
            memcpy(&sum, emulated.values[out][row] + column, sizeof sum);
            for (int k = 0; k < emulated.bytes[lhs]; ++k) {
                const uint8_t a = emulated.values[lhs][row][k];
                const uint8_t b = emulated.values[rhs][k / 4][column + k % 4];
                const int first = lhs_signed ? (int8_t)a : a, second = rhs_signed ? (int8_t)b : b;
                sum += (uint32_t)(first * second);
            }
            memcpy(emulated.values[out][row] + column, &sum, sizeof sum);
        }
    }
}
