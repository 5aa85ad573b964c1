/* A functional model of Gemmini's instructions, with counters.

   Before it, GEMMINI_DIM is defined as the number of processing elements along each side of the array,
   gemmini_elem_t and gemmini_acc_t as the types of values in scratchpad and accumulator, and
   GEMMINI_SCRATCHPAD_BYTES and GEMMINI_ACCUMULATOR_BYTES as their sizes.

   It models the weight-stationary dataflow. Both memories are addressed by rows of GEMMINI_DIM values. Bit 31 of an
   address selects the accumulator; bit 30 adds to the value there in a write; bit 29 reads values in the accumulator's
   type. A program that breaks a rule of the instructions is stopped with a message. Each thread has an accelerator of its own. */

/* Programs call a part of these functions. */
#pragma GCC diagnostic ignored "-Wunused-function"

#define GEMMINI_ACC 0x80000000u
#define GEMMINI_ADD 0x40000000u
#define GEMMINI_FULL 0x20000000u
#define GEMMINI_NONE 0xffffffffu
#define GEMMINI_SCRATCHPAD_ROWS (GEMMINI_SCRATCHPAD_BYTES / (GEMMINI_DIM * sizeof(gemmini_elem_t)))
#define GEMMINI_ACCUMULATOR_ROWS (GEMMINI_ACCUMULATOR_BYTES / (GEMMINI_DIM * sizeof(gemmini_acc_t)))

enum { GEMMINI_OUTPUT_STATIONARY, GEMMINI_WEIGHT_STATIONARY };
enum { GEMMINI_NO_ACTIVATION, GEMMINI_RELU };

/* Counts of instructions and of bytes moved from and to memory, since the process
   began. `mvin` and `read` are by the number of the instruction; `zeros` are those of any that read nothing. */
#ifndef GEMMINI_COUNTERS
#define GEMMINI_COUNTERS
struct gemmini_counters {
    uint64_t config, mvin[3], zeros, preload, compute, mvout, fence, read[3], written;
};

/* One for all files of a library. */
__attribute__((weak)) _Thread_local struct gemmini_counters gemmini_counters;
#endif

/* What an mvin instruction is configured for: `stride` in bytes, `block` in rows. */
typedef struct {
    size_t stride;
    float scale;
    uint32_t block;
} gemmini_load;

static _Thread_local struct {
    _Alignas(64) gemmini_elem_t scratchpad[GEMMINI_SCRATCHPAD_ROWS][GEMMINI_DIM];
    gemmini_acc_t accumulator[GEMMINI_ACCUMULATOR_ROWS][GEMMINI_DIM];
    gemmini_load load[3];
    size_t store_stride;
    float store_scale;
    int activation;
    uint32_t a_stride;
    /* Weights in the array, and those that preload has brought and compute_preloaded will take. */
    gemmini_elem_t weights[GEMMINI_DIM][GEMMINI_DIM], next[GEMMINI_DIM][GEMMINI_DIM];
    int has_next;
    uint32_t out, out_columns, out_rows;
} gemmini;

static inline void gemmini_require(int holds, const char *rule) {
    if (!holds) {
        fprintf(stderr, "gemmini: %s\n", rule);
        abort();
    }
}

static inline void gemmini_require_tile(uint32_t columns, uint32_t rows, uint32_t most_columns) {
    gemmini_require(1 <= rows && rows <= GEMMINI_DIM, "a tile has 1 to DIM rows");
    gemmini_require(1 <= columns && columns <= most_columns, "a tile has 1 to DIM columns, and mvin up to 4 DIM");
}

static inline gemmini_elem_t *gemmini_scratchpad_row(uint32_t address) {
    const uint32_t row = address & ~(GEMMINI_ADD | GEMMINI_FULL);
    gemmini_require(row < GEMMINI_SCRATCHPAD_ROWS, "the address is behind the end of the scratchpad");
    return gemmini.scratchpad[row];
}

static inline gemmini_acc_t *gemmini_accumulator_row(uint32_t address, uint32_t row) {
    const uint32_t first = address & ~(GEMMINI_ACC | GEMMINI_ADD | GEMMINI_FULL);
    gemmini_require(first + row < GEMMINI_ACCUMULATOR_ROWS, "the address is behind the end of the accumulator");
    return gemmini.accumulator[first + row];
}

/* `sum + value`; integers wrap around. */
static inline gemmini_acc_t gemmini_plus(gemmini_acc_t sum, gemmini_acc_t value) {
    return GEMMINI_IS_FLOAT ? sum + value : (gemmini_acc_t)((uint32_t)sum + (uint32_t)value);
}

/* `value` times `scale`; integers are rounded to nearest even and clamped to [`low`, `high`]. */
static inline double gemmini_scaled(double value, float scale, double low, double high) {
    if (GEMMINI_IS_FLOAT) {
        return (float)value * scale;
    }
    const double whole = nearbyint(value * scale);
    return whole < low ? low : whole > high ? high : whole;
}

static inline gemmini_elem_t gemmini_narrow(double value, float scale) {
    return (gemmini_elem_t)gemmini_scaled(value, scale, INT8_MIN, INT8_MAX);
}

/* Instructions. */

static inline void gemmini_config_ex(int dataflow, int activation, uint32_t a_stride, int a_transpose,
                                      int b_transpose) {
    gemmini_require(dataflow == GEMMINI_WEIGHT_STATIONARY, "only the weight-stationary dataflow is modelled");
    gemmini_require(activation == GEMMINI_NO_ACTIVATION || activation == GEMMINI_RELU,
                    "of activations, only RELU is modelled");
    gemmini_require(!a_transpose && !b_transpose, "transposed operands are not modelled");
    gemmini_counters.config++;
    gemmini.activation = activation;
    gemmini.a_stride = a_stride;
}

/* For instruction mvin (`id` 0), mvin2 (1) or mvin3 (2): rows in memory are `stride` bytes apart, and blocks of DIM
   columns are `block` rows apart in the accelerator. */
static inline void gemmini_config_ld(size_t stride, float scale, uint32_t block, uint32_t id) {
    gemmini_require(id < 3, "there are three mvin instructions, 0 to 2");
    gemmini_counters.config++;
    gemmini.load[id] = (gemmini_load){stride, scale, block};
}

/* For mvout: rows in memory are `stride` bytes apart. */
static inline void gemmini_config_st(size_t stride, float scale) {
    gemmini_counters.config++;
    gemmini.store_stride = stride;
    gemmini.store_scale = scale;
}

/* Sets or adds to `count` values of an accumulator's row; zeros without `from`. */
static inline void gemmini_accumulate(gemmini_acc_t *to, const void *from, uint32_t count, int add, float scale) {
    for (uint32_t column = 0; column < count; column++) {
        gemmini_acc_t value = 0;
        if (from) {
            memcpy(&value, (const gemmini_acc_t *)from + column, sizeof value);
            if (scale != 1.0f) {
                value = (gemmini_acc_t)gemmini_scaled(value, scale, INT32_MIN, INT32_MAX);
            }
        }
        to[column] = add ? gemmini_plus(to[column], value) : value;
    }
}

static inline void gemmini_mvin_by(uint32_t id, const void *dram, uint32_t address, uint32_t columns,
                                    uint32_t rows) {
    const gemmini_load load = gemmini.load[id];
    const int to_accumulator = (address & GEMMINI_ACC) != 0;
    const size_t size = to_accumulator ? sizeof(gemmini_acc_t) : sizeof(gemmini_elem_t);
    gemmini_require_tile(columns, rows, dram ? 4 * GEMMINI_DIM : GEMMINI_DIM);
    gemmini_counters.mvin[id]++;
    gemmini_counters.zeros += !dram;
    gemmini_counters.read[id] += dram ? columns * rows * size : 0;
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t first = 0; first < columns; first += GEMMINI_DIM) {
            const uint32_t count = columns - first < GEMMINI_DIM ? columns - first : GEMMINI_DIM;
            const uint32_t at = first / GEMMINI_DIM * load.block + row;
            const char *from = dram ? (const char *)dram + row * load.stride + first * size : NULL;
            if (to_accumulator) {
                gemmini_accumulate(gemmini_accumulator_row(address, at), from, count, (address & GEMMINI_ADD) != 0,
                                   load.scale);
                continue;
            }
            gemmini_elem_t *to = gemmini_scratchpad_row(address + at);
            if (!from) {
                memset(to, 0, count * size);
                continue;
            }
            memcpy(to, from, count * size);
            for (uint32_t column = 0; load.scale != 1.0f && column < count; column++) {
                to[column] = gemmini_narrow(to[column], load.scale);
            }
        }
    }
}

/* Moves a tile from memory; without `dram`, a tile of zeros. */
static inline void gemmini_mvin(const void *dram, uint32_t address, uint32_t columns, uint32_t rows) {
    gemmini_mvin_by(0, dram, address, columns, rows);
}

static inline void gemmini_mvin2(const void *dram, uint32_t address, uint32_t columns, uint32_t rows) {
    gemmini_mvin_by(1, dram, address, columns, rows);
}

static inline void gemmini_mvin3(const void *dram, uint32_t address, uint32_t columns, uint32_t rows) {
    gemmini_mvin_by(2, dram, address, columns, rows);
}

/* Brings weights to the array, or leaves those that are there (GEMMINI_NONE), and says where results go. */
static inline void gemmini_preload(uint32_t b, uint32_t c, uint32_t b_columns, uint32_t b_rows, uint32_t c_columns,
                                    uint32_t c_rows) {
    gemmini_require_tile(b_columns, b_rows, GEMMINI_DIM);
    gemmini_require_tile(c_columns, c_rows, GEMMINI_DIM);
    gemmini_require((c & GEMMINI_ACC) != 0, "results go to the accumulator");
    gemmini_counters.preload++;
    gemmini.out = c;
    gemmini.out_columns = c_columns;
    gemmini.out_rows = c_rows;
    gemmini.has_next = b != GEMMINI_NONE;
    if (gemmini.has_next) {
        memset(gemmini.next, 0, sizeof gemmini.next);
        for (uint32_t row = 0; row < b_rows; row++) {
            memcpy(gemmini.next[row], gemmini_scratchpad_row(b + row), b_columns * sizeof(gemmini_elem_t));
        }
    }
}

/* C (+)= A·B + D for the weights B in the array; D is left out with GEMMINI_NONE. */
static inline void gemmini_compute(uint32_t a, uint32_t d, uint32_t a_columns, uint32_t a_rows, uint32_t d_columns,
                                    uint32_t d_rows) {
    gemmini_require_tile(a_columns, a_rows, GEMMINI_DIM);
    gemmini_require_tile(d_columns, d_rows, GEMMINI_DIM);
    gemmini_counters.compute++;
    for (uint32_t row = 0; row < gemmini.out_rows; row++) {
        gemmini_acc_t sums[GEMMINI_DIM] = {0};
        if (d != GEMMINI_NONE && row < d_rows) {
            const gemmini_elem_t *added = gemmini_scratchpad_row(d + row);
            for (uint32_t column = 0; column < d_columns; column++) {
                sums[column] = added[column];
            }
        }
        if (row < a_rows) {
            const gemmini_elem_t *factors = gemmini_scratchpad_row(a + row * gemmini.a_stride);
            for (uint32_t k = 0; k < a_columns; k++) {
                for (uint32_t column = 0; column < GEMMINI_DIM; column++) {
                    const gemmini_acc_t product = (gemmini_acc_t)factors[k] * gemmini.weights[k][column];
                    sums[column] = gemmini_plus(sums[column], product);
                }
            }
        }
        gemmini_accumulate(gemmini_accumulator_row(gemmini.out, row), sums, gemmini.out_columns,
                           (gemmini.out & GEMMINI_ADD) != 0, 1.0f);
    }
}

/* Computes with the weights that the last preload brought. */
static inline void gemmini_compute_preloaded(uint32_t a, uint32_t d, uint32_t a_columns, uint32_t a_rows,
                                              uint32_t d_columns, uint32_t d_rows) {
    if (gemmini.has_next) {
        memcpy(gemmini.weights, gemmini.next, sizeof gemmini.weights);
        gemmini.has_next = 0;
    }
    gemmini_compute(a, d, a_columns, a_rows, d_columns, d_rows);
}

/* Computes with the weights that were used before. */
static inline void gemmini_compute_accumulated(uint32_t a, uint32_t d, uint32_t a_columns, uint32_t a_rows,
                                                uint32_t d_columns, uint32_t d_rows) {
    gemmini_compute(a, d, a_columns, a_rows, d_columns, d_rows);
}

/* Moves a tile to memory. */
static inline void gemmini_mvout(void *dram, uint32_t address, uint32_t columns, uint32_t rows) {
    const int from_accumulator = (address & GEMMINI_ACC) != 0, full = (address & GEMMINI_FULL) != 0;
    const size_t size = from_accumulator && full ? sizeof(gemmini_acc_t) : sizeof(gemmini_elem_t);
    gemmini_require_tile(columns, rows, GEMMINI_DIM);
    gemmini_counters.mvout++;
    gemmini_counters.written += columns * rows * size;
    for (uint32_t row = 0; row < rows; row++) {
        char *to = (char *)dram + row * gemmini.store_stride;
        if (!from_accumulator) {
            memcpy(to, gemmini_scratchpad_row(address + row), columns * size);
            continue;
        }
        const gemmini_acc_t *from = gemmini_accumulator_row(address, row);
        if (full) {
            memcpy(to, from, columns * size);
            continue;
        }
        for (uint32_t column = 0; column < columns; column++) {
            const int cut = gemmini.activation == GEMMINI_RELU && from[column] < 0;
            const gemmini_elem_t value = cut ? 0 : gemmini_narrow(from[column], gemmini.store_scale);
            memcpy(to + column * size, &value, size);
        }
    }
}

/* Waits until everything is done; here, all is at once. */
static inline void gemmini_fence(void) {
    gemmini_counters.fence++;
}
