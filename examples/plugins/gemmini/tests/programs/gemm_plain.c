/* 12544×256 times 256×64: each tile of A comes with its rows of B, and sums begin as zeros. */
#define DEPTH 256
#define COLUMNS 64
#define TILES 784 /* of 16 rows */

void gemm(const int8_t *a, const int8_t *b, int8_t *c) {
    const uint32_t b_at = 256; /* Behind a tile of A: four times 64 rows. */
    gemmini_config_ex(GEMMINI_WEIGHT_STATIONARY, GEMMINI_NO_ACTIVATION, 1, 0, 0);
    gemmini_config_st(COLUMNS, 1.0f);
    gemmini_config_ld(0, 1.0f, 0, 0);
    gemmini_config_ld(DEPTH, 1.0f, 16, 1);
    gemmini_config_ld(COLUMNS, 1.0f, 16, 2);
    for (int tile = 0; tile < TILES; tile++) {
        for (uint32_t n = 0; n < 4; n++) {
            gemmini_mvin(NULL, GEMMINI_ACC | 16 * n, 16, 16);
        }
        for (uint32_t four = 0; four < 4; four++) {
            gemmini_mvin2(a + 16 * tile * DEPTH + 64 * four, 64 * four, 64, 16);
            for (uint32_t k = 4 * four; k < 4 * four + 4; k++) {
                gemmini_mvin3(b + 16 * k * COLUMNS, b_at + 64 * k, 64, 16);
            }
            for (uint32_t k = 4 * four; k < 4 * four + 4; k++) {
                for (uint32_t n = 0; n < 4; n++) {
                    gemmini_preload(b_at + 64 * k + 16 * n, GEMMINI_ACC | GEMMINI_ADD | 16 * n, 16, 16, 16, 16);
                    gemmini_compute_preloaded(16 * k, GEMMINI_NONE, 16, 16, 16, 16);
                }
            }
        }
        for (uint32_t n = 0; n < 4; n++) {
            gemmini_mvout(c + 16 * tile * COLUMNS + 16 * n, GEMMINI_ACC | 16 * n, 16, 16);
        }
    }
    gemmini_fence();
}
