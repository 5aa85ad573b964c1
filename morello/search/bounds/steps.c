/* Kernels, and steps to smaller shapes or other spaces, whose bounds are final. */
#include "bounds.h"

void take_kernels(const Work *work) {
    const BoundSpace *space = work->space;
    for (int32_t kernel = 0; kernel < space->kernels; ++kernel) {
        const float cost = rounded_down(space->kernel_cost[kernel][work->shape]);
        for (int64_t at = space->kernel_first[kernel]; cost < INFINITY && at < space->kernel_first[kernel + 1]; ++at) {
            float *here = &work->row[space->kernel_column[at]];
            *here = cost < *here ? cost : *here;
        }
    }
}

/* Loops keep columns, so whole rows are computed at once. */
void take_loops(const Work *work) {
    const BoundSpace *space = work->space;
    float *restrict row = work->row;
    for (const BoundLoop *loop = space->loop; loop < space->loop + space->loops; ++loop) {
        const int32_t shape = loop->shape[0][work->shape];
        if (shape < 0) {
            continue;
        }
        const float *restrict tile = space->values + shape * space->width;
        const double times = loop->times[0][work->shape];
        const int32_t rest = loop->parts > 1 ? loop->shape[1][work->shape] : -1;
        if (rest < 0) {
            for (int64_t at = 0; at < space->width; ++at) {
                const float cost = rounded_down(tile[at] * times);
                row[at] = cost < row[at] ? cost : row[at];
            }
            continue;
        }
        const float *restrict left = space->values + rest * space->width;
        const double once = loop->times[1][work->shape];
        for (int64_t at = 0; at < space->width; ++at) {
            const float cost = rounded_down(tile[at] * times + left[at] * once);
            row[at] = cost < row[at] ? cost : row[at];
        }
    }
}

/* Compute the limits that are left while the parts of steps run. Return 0 if a tensor does not fit. */
static int pin_all(Work *work, const BoundSteps *steps, int64_t entry) {
    const int64_t entries = steps->first[work->space->shapes];
    for (int32_t at = 0; at < steps->parts; ++at) {
        const BoundPart *part = &steps->part[at];
        pin_nothing(work, at);
        for (int32_t held = 0; held < part->holding; ++held) {
            if (!pin(work, at, part->level[held], part->held[held * entries + entry])) {
                return 0;
            }
        }
    }
    return 1;
}

/* Return the bound of a step with all memory free. */
static double least_cost(const Work *work, const BoundSteps *steps, int32_t at, int64_t entry) {
    double cost = steps->cost[entry];
    for (const BoundPart *part = steps->part; part < steps->part + steps->parts && cost < INFINITY; ++part) {
        if (part->shape[entry] >= 0) {
            const BoundSpace *below = &work->model->space[part->space];
            cost += part->times[entry] * least_of(below, part->shape[entry], part->tuple[at]);
        }
    }
    return cost;
}

/* Lower the bounds of a class tuple for one level by a step. */
static void lower_level(Work *work, const BoundSteps *steps, int32_t at, int64_t entry, int32_t level, float *here) {
    const BoundModel *model = work->model;
    const int32_t count = model->level[level].steps;
    for (int32_t step = 0; step < count; ++step) {
        work->total[step] = steps->cost[entry];
    }
    for (int32_t which = 0; which < steps->parts; ++which) {
        const BoundPart *part = &steps->part[which];
        if (part->shape[entry] >= 0) {
            const BoundSpace *below = &model->space[part->space];
            bounds_under(model, below, part->shape[entry], part->tuple[at], level, left_of(work, which), work->part);
            for (int32_t step = 0; step < count; ++step) {
                work->total[step] += part->times[entry] * work->part[step];
            }
        }
    }
    lower(here, work->total, count);
}

static void take_step(Work *work, const BoundSteps *steps, int32_t at, int64_t entry) {
    const int32_t *per_level = per_level_of(work->model, work->space, steps->tuple[at]);
    const double least = least_cost(work, steps, at, entry);
    for (int32_t level = 0; level <= work->model->levels; ++level) {
        if (per_level[level] >= 0 && least < work->row[per_level[level]]) {
            lower_level(work, steps, at, entry, level, work->row + per_level[level]);
        }
    }
}

/* Return 1 if several threads may be faster than one: if one takes longer than starting them. */
static int worth(const Work *work, const BoundSteps *steps, int32_t at) {
    const BoundPart *part = steps->part;
    const BoundSpace *below = &work->model->space[part->space];
    const float *row = below->values + steps->serial[work->shape] * below->width;
    const int32_t *per_level = per_level_of(work->model, below, part->tuple[at]);
    for (int32_t level = 0; level <= work->model->levels; ++level) {
        for (int32_t step = 0; per_level[level] >= 0 && step < work->model->level[level].steps; ++step) {
            const double cost = row[per_level[level] + step];
            if (cost > steps->least && cost < INFINITY) {
                return 1;
            }
        }
    }
    return 0;
}

void take_steps(Work *work, const BoundSteps *steps) {
    for (int64_t entry = steps->first[work->shape]; entry < steps->first[work->shape + 1]; ++entry) {
        const int fits = pin_all(work, steps, entry);
        for (int32_t at = 0; fits && at < steps->tuples; ++at) {
            if (!steps->serial || worth(work, steps, at)) {
                take_step(work, steps, at, entry);
            }
        }
    }
}
