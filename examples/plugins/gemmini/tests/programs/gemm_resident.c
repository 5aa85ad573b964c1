/* The same product: all of B stays in the scratchpad, the next tile of A comes while one is multiplied, results leave
   one tile later, and the first product of each sum sets it. */
#define DEPTH 256
#define COLUMNS 64
#define TILES 784 /* of 16 rows */

static void fetch(const int8_t *a, int tile) {
    for (uint32_t four = 0; four < 4; four++) {
        gemmini_mvin2(a + 16 * tile * DEPTH + 64 * four, 256 * (tile % 2) + 64 * four, 64, 16);
    }
}

static void put(int8_t *c, int tile) {
    for (uint32_t n = 0; n < 4; n++) {
        gemmini_mvout(c + 16 * tile * COLUMNS + 16 * n, GEMMINI_ACC | (64 * (tile % 2) + 16 * n), 16, 16);
    }
}

void gemm(const int8_t *a, const int8_t *b, int8_t *c) {
    const uint32_t b_at = 512; /* Behind two tiles of A. */
    gemmini_config_ex(GEMMINI_WEIGHT_STATIONARY, GEMMINI_NO_ACTIVATION, 1, 0, 0);
    gemmini_config_st(COLUMNS, 1.0f);
    gemmini_config_ld(DEPTH, 1.0f, 16, 1);
    gemmini_config_ld(COLUMNS, 1.0f, 16, 2);
    for (uint32_t k = 0; k < 16; k++) {
        gemmini_mvin3(b + 16 * k * COLUMNS, b_at + 64 * k, 64, 16);
    }
    fetch(a, 0);
    for (int tile = 0; tile < TILES; tile++) {
        if (tile + 1 < TILES) {
            fetch(a, tile + 1);
        }
        if (tile > 0) {
            put(c, tile - 1);
        }
        const uint32_t sums = GEMMINI_ACC | 64 * (tile % 2);
        for (uint32_t k = 0; k < 16; k++) {
            for (uint32_t n = 0; n < 4; n++) {
                gemmini_preload(b_at + 64 * k + 16 * n, (sums + 16 * n) | (k ? GEMMINI_ADD : 0), 16, 16, 16, 16);
                gemmini_compute_preloaded(256 * (tile % 2) + 16 * k, GEMMINI_NONE, 16, 16, 16, 16);
            }
        }
    }
    put(c, TILES - 1);
    gemmini_fence();
}
