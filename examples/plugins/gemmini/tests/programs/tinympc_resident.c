/* Matrices stay in the scratchpad, sums in the accumulator; subtrahends come negated, d as a bias. The state
   after the last step, which is not needed, is omitted. */

void forward(const float *a, const float *b, const float *k, float *x, const float *d, float *u) {
    gemmini_config_ex(GEMMINI_WEIGHT_STATIONARY, GEMMINI_NO_ACTIVATION, 1, 0, 0);
    gemmini_config_st(sizeof(float), 1.0f);
    gemmini_config_ld(STATES * sizeof(float), 1.0f, 4, 0);
    fetch_matrix(k, K_AT, 1, STATES);
    gemmini_config_ld(STATES * sizeof(float), 1.0f, 4, 0);
    fetch_matrix(a, A_AT, 3, STATES);
    gemmini_config_ld(INPUTS * sizeof(float), 1.0f, 4, 0);
    fetch_matrix(b, B_AT, 3, INPUTS);
    for (int step = 0; step < STEPS; step++) {
        float *now = x + STATES * step, *chosen = u + INPUTS * step;
        gemmini_config_ld(sizeof(float), -1.0f, 4, 1);
        fetch_vector(now, 3);
        multiply(K_AT, 1, 3, 0);
        gemmini_mvin2(d + INPUTS * step, D_AT, 1, 4);
        gemmini_config_ld(sizeof(float), 1.0f, 4, 1);
        gemmini_mvin2(NULL, ZEROS_AT, 1, 4);
        gemmini_preload(ZEROS_AT, GEMMINI_ACC | GEMMINI_ADD, 1, 4, 1, 4);
        gemmini_compute_accumulated(ZEROS_AT, D_AT, 1, 4, 1, 4);
        put_vector(chosen, 1);
        if (step + 1 < STEPS) {
            fetch_vector(now, 3);
            multiply(A_AT, 3, 3, 0);
            fetch_vector(chosen, 1);
            multiply(B_AT, 3, 1, GEMMINI_ADD);
            put_vector(now + STATES, 3);
            gemmini_fence();
        }
    }
}
