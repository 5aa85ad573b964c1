/* What Morello's programs call: instructions on pointers into the model's memories, configured as they need it. */

/* Which mvin instruction each configuration was given to, in the order in which they take turns. */
static _Thread_local struct {
    gemmini_load load[3];
    int known[3], turn, stored;
    size_t store_stride;
} gemmini_driver;

/* Forgets how instructions are configured, as other programs may have run. */
static inline void gemmini_begin(void) {
    memset(&gemmini_driver, 0, sizeof gemmini_driver);
    gemmini_config_ex(GEMMINI_WEIGHT_STATIONARY, GEMMINI_NO_ACTIVATION, 1, 0, 0);
}

/* Returns the address of the row that begins at a pointer into scratchpad or accumulator. */
static inline uint32_t gemmini_address(const void *pointer) {
    const size_t row = GEMMINI_DIM * sizeof(gemmini_elem_t), sums = GEMMINI_DIM * sizeof(gemmini_acc_t);
    const uintptr_t scratchpad = (uintptr_t)pointer - (uintptr_t)gemmini.scratchpad;
    const uintptr_t accumulator = (uintptr_t)pointer - (uintptr_t)gemmini.accumulator;
    const int inside = scratchpad < sizeof gemmini.scratchpad;
    gemmini_require(inside || accumulator < sizeof gemmini.accumulator, "the pointer is to neither of its memories");
    gemmini_require((inside ? scratchpad % row : accumulator % sums) == 0, "the pointer is not to a row's start");
    return (uint32_t)(inside ? scratchpad / row : GEMMINI_ACC | accumulator / sums);
}

/* Moves a tile in, by mvin2, mvin3 or mvin, whichever is configured for it, or was configured first. */
static inline void gemmini_fetch(const void *dram, size_t stride, const void *to, uint32_t block, uint32_t columns,
                                  uint32_t rows) {
    static void (*const by[3])(const void *, uint32_t, uint32_t, uint32_t) = {gemmini_mvin, gemmini_mvin2,
                                                                              gemmini_mvin3};
    for (int id = 0; id < 3; id++) {
        if (gemmini_driver.known[id] && gemmini_driver.load[id].stride == stride &&
            gemmini_driver.load[id].block == block) {
            by[id](dram, gemmini_address(to), columns, rows);
            return;
        }
    }
    const int id = gemmini_driver.turn = (gemmini_driver.turn + 1) % 3;
    gemmini_config_ld(stride, 1.0f, block, (uint32_t)id);
    gemmini_driver.known[id] = 1;
    gemmini_driver.load[id] = gemmini.load[id];
    by[id](dram, gemmini_address(to), columns, rows);
}

/* Moves a tile out, as it is. */
static inline void gemmini_put(void *dram, size_t stride, const void *from, uint32_t columns, uint32_t rows) {
    if (!gemmini_driver.stored || gemmini_driver.store_stride != stride) {
        gemmini_config_st(stride, 1.0f);
        gemmini_driver.stored = 1;
        gemmini_driver.store_stride = stride;
    }
    gemmini_mvout(dram, gemmini_address(from) | GEMMINI_FULL, columns, rows);
}

#ifndef GEMMINI_COUNT
/* Functions by which metrics ask for counts. */
#define GEMMINI_COUNT(name, count) \
    __attribute__((weak)) uint64_t gemmini_count_##name(void) { \
        const struct gemmini_counters *const c = &gemmini_counters; \
        return count; \
    }

GEMMINI_COUNT(config, c->config)
GEMMINI_COUNT(zero, c->zeros)
GEMMINI_COUNT(mvin, c->mvin[0])
GEMMINI_COUNT(mvin2, c->mvin[1])
GEMMINI_COUNT(mvin3, c->mvin[2])
GEMMINI_COUNT(preload, c->preload)
GEMMINI_COUNT(compute, c->compute)
GEMMINI_COUNT(mvout, c->mvout)
GEMMINI_COUNT(fence, c->fence)
GEMMINI_COUNT(read, c->read[0])
GEMMINI_COUNT(read2, c->read[1])
GEMMINI_COUNT(read3, c->read[2])
GEMMINI_COUNT(written, c->written)
GEMMINI_COUNT(traffic, c->read[0] + c->read[1] + c->read[2] + c->written)
GEMMINI_COUNT(issued, c->mvin[0] + c->mvin[1] + c->mvin[2] + c->preload + c->compute + c->mvout)
GEMMINI_COUNT(work, c->read[0] + c->read[1] + c->read[2] + c->written +
                        GEMMINI_INSTRUCTION_COST * (c->mvin[0] + c->mvin[1] + c->mvin[2] + c->preload + c->compute +
                                                    c->mvout))
#endif
