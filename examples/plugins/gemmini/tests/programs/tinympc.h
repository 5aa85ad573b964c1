/* Both programs for u[i] = -K·x[i] - d[i] and x[i + 1] = A·x[i] + B·u[i] on a 4×4 array of floats. */
#define STEPS 5
#define STATES 12
#define INPUTS 4

/* Rows of the scratchpad. A vector takes a row for each value. */
enum { A_AT = 0, B_AT = 36, K_AT = 48, X_AT = 60, D_AT = 72, ZEROS_AT = 76 };

/* Fetches 4·m rows of `columns` values each, in blocks of 4 columns. */
static void fetch_matrix(const float *matrix, uint32_t at, uint32_t m, uint32_t columns) {
    for (uint32_t i = 0; i < m; i++) {
        gemmini_mvin(matrix + 4 * i * columns, at + columns * i, columns, 4);
    }
}

static void fetch_vector(const float *vector, uint32_t k) {
    for (uint32_t i = 0; i < k; i++) {
        gemmini_mvin2(vector + 4 * i, X_AT + 4 * i, 1, 4);
    }
}

/* Sets the sums to a matrix of 4·m×4·k times the vector, or adds that to them. The vector is what stays in the array. */
static void multiply(uint32_t matrix, uint32_t m, uint32_t k, uint32_t add) {
    for (uint32_t j = 0; j < k; j++) {
        for (uint32_t i = 0; i < m; i++) {
            gemmini_preload(i ? GEMMINI_NONE : X_AT + 4 * j, GEMMINI_ACC | 4 * i | (j ? GEMMINI_ADD : add), 1, 4, 1, 4);
            (i ? gemmini_compute_accumulated : gemmini_compute_preloaded)(matrix + 4 * (k * i + j), GEMMINI_NONE, 4, 4,
                                                                          4, 4);
        }
    }
}

static void put_vector(float *vector, uint32_t m) {
    for (uint32_t i = 0; i < m; i++) {
        gemmini_mvout(vector + 4 * i, GEMMINI_ACC | 4 * i, 1, 4);
    }
}
