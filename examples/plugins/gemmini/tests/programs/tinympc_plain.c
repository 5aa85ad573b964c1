/* Each product by itself, with all that it takes from memory; the CPU adds and negates. */

static void configure(size_t row_bytes) {
    gemmini_config_ex(GEMMINI_WEIGHT_STATIONARY, GEMMINI_NO_ACTIVATION, 1, 0, 0);
    gemmini_config_st(sizeof(float), 1.0f);
    gemmini_config_ld(row_bytes, 1.0f, 4, 0);
    gemmini_config_ld(sizeof(float), 1.0f, 4, 1);
    gemmini_config_ld(sizeof(float), 1.0f, 4, 2);
}

static void times(const float *matrix, uint32_t at, uint32_t m, uint32_t k, const float *vector, float *out) {
    configure(4 * k * sizeof(float));
    fetch_matrix(matrix, at, m, 4 * k);
    fetch_vector(vector, k);
    multiply(at, m, k, 0);
    put_vector(out, m);
    gemmini_fence();
}

void forward(const float *a, const float *b, const float *k, float *x, const float *d, float *u) {
    for (int step = 0; step < STEPS; step++) {
        float *now = x + STATES * step, *next = now + STATES, *chosen = u + INPUTS * step;
        float kx[INPUTS], ax[STATES], bu[STATES];
        times(k, K_AT, 1, 3, now, kx);
        for (int i = 0; i < INPUTS; i++) {
            chosen[i] = -kx[i] - d[INPUTS * step + i];
        }
        times(a, A_AT, 3, 3, now, ax);
        times(b, B_AT, 3, 1, chosen, bu);
        for (int i = 0; i < STATES; i++) {
            next[i] = ax[i] + bu[i];
        }
    }
}
