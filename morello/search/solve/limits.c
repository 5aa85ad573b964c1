/* Limits of memory as packed codes: what is left of them, and what a program needs at least. */
#include "state.h"

/* Put into `left` the limits while `used` bytes of a level are held. Return 0 if they do not fit. */
int lowered(const Model *model, int level, uint64_t limits, int64_t used, uint64_t *left) {
    const int64_t *values = model->values[level];
    const int code = code_of(model, level, limits);
    const int64_t rest = values[code] - used;
    if (rest < 0) {
        return 0;
    }
    int low = 0, high = code;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (values[middle] <= rest) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    *left = limits - ((uint64_t)(code - low) << model->shift[level]);
    return 1;
}

/* Return the least limits under which a program with this peak fits while `used` bytes of a level are held. */
uint64_t raised(const Model *model, int level, uint64_t peak, int64_t used) {
    if (peak == UNKNOWN_PEAK) {
        return peak;
    }
    const int64_t *values = model->values[level];
    const int code = code_of(model, level, peak);
    int least = code;
    while (least < model->counts[level] && values[least] < values[code] + used) {
        ++least;
    }
    return least < model->counts[level] ? peak + ((uint64_t)(least - code) << model->shift[level]) : UNKNOWN_PEAK;
}

/* Return the larger limit of each level. */
uint64_t larger(const Model *model, uint64_t one, uint64_t other) {
    if (one == UNKNOWN_PEAK || other == UNKNOWN_PEAK) {
        return UNKNOWN_PEAK;
    }
    uint64_t result = 0;
    for (int level = 0; level < model->levels; ++level) {
        const int mine = code_of(model, level, one), theirs = code_of(model, level, other);
        result |= (uint64_t)(mine > theirs ? mine : theirs) << model->shift[level];
    }
    return result;
}
