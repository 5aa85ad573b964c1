/* Steps that end in kernels, or lead to smaller shapes and other spaces: what they cost is known when they are taken. */
#include "bounds.h"

void take_kernels(const Work *work) {
    const BoundSpace *space = work->space;
    for (int32_t kernel = 0; kernel < space->kernels; ++kernel) {
        const double cost = space->kernel_cost[kernel][work->shape];
        for (int64_t at = space->kernel_first[kernel]; cost < INFINITY && at < space->kernel_first[kernel + 1]; ++at) {
            double *here = &work->row[space->kernel_column[at]];
            *here = cost < *here ? cost : *here;
        }
    }
}

/* Loops keep columns, so that all of a row go together. */
void take_loops(const Work *work) {
    const BoundSpace *space = work->space;
    double *restrict row = work->row;
    for (const BoundLoop *loop = space->loop; loop < space->loop + space->loops; ++loop) {
        const int32_t shape = loop->shape[0][work->shape];
        if (shape < 0) {
            continue;
        }
        const double *restrict tile = space->values + shape * space->width;
        const double times = loop->times[0][work->shape];
        const int32_t rest = loop->parts > 1 ? loop->shape[1][work->shape] : -1;
        if (rest < 0) {
            for (int64_t at = 0; at < space->width; ++at) {
                const double cost = tile[at] * times;
                row[at] = cost < row[at] ? cost : row[at];
            }
            continue;
        }
        const double *restrict left = space->values + rest * space->width;
        const double once = loop->times[1][work->shape];
        for (int64_t at = 0; at < space->width; ++at) {
            const double cost = tile[at] * times + left[at] * once;
            row[at] = cost < row[at] ? cost : row[at];
        }
    }
}

/* Work out the limits that are left while the parts of steps run. */
static void hold_all(Work *work, const BoundSteps *steps, int64_t entry) {
    const BoundModel *model = work->model;
    const int64_t entries = steps->first[work->space->shapes];
    for (int32_t at = 0; at < steps->parts; ++at) {
        const BoundPart *part = &steps->part[at];
        for (int32_t held = 0; held < part->holding; ++held) {
            const int32_t level = part->level[held];
            int32_t *after = work->after + (int64_t)(at * model->levels + level) * model->steps;
            hold(&model->level[level], part->held[held * entries + entry], after);
            work->lowered[at * model->levels + level] = after;
        }
    }
}

/* Return what a part costs under each limit of the step's class tuple, [count]. */
static const double *part_of(Work *work, const BoundSteps *steps, int32_t part, int32_t at, int64_t entry,
                             int64_t count) {
    const BoundPart *own = &steps->part[part];
    const Walk *walk = &work->model->walk[own->walk[at]];
    const double *there = bounds_of(&work->model->space[own->space], own->shape[entry], own->tuple[at]);
    if (walk->axes == 1 && walk->axis->level < 0 && walk->axis->there == 1) {
        return there + walk->there;
    }
    for (int64_t column = 0; column < count; ++column) {
        work->part[column] = INFINITY;
    }
    lower(walk, work->lowered + part * work->model->levels, work->part, there, 0);
    return work->part;
}

/* Return what a step costs at least with all memory free. */
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

static void take_step(Work *work, const BoundSteps *steps, int32_t at, int64_t entry) {
    const int32_t tuple = steps->tuple[at];
    const int64_t count = work->space->columns[tuple];
    double *restrict here = work->row + work->space->column[tuple];
    double *restrict total = work->total;
    if (!(least_cost(work, steps, at, entry) < here[0])) {
        return;
    }
    for (int64_t column = 0; column < count; ++column) {
        total[column] = steps->cost[entry];
    }
    for (int32_t part = 0; part < steps->parts; ++part) {
        if (steps->part[part].shape[entry] >= 0) {
            const double times = steps->part[part].times[entry];
            const double *restrict there = part_of(work, steps, part, at, entry, count);
            for (int64_t column = 0; column < count; ++column) {
                total[column] += times * there[column];
            }
        }
    }
    for (int64_t column = 0; column < count; ++column) {
        here[column] = total[column] < here[column] ? total[column] : here[column];
    }
}

/* Return 1 if several threads may be sooner done than one: it is not done before they are started. */
static int worth(const Work *work, const BoundSteps *steps, int32_t at) {
    const BoundPart *part = steps->part;
    const BoundSpace *below = &work->model->space[part->space];
    const double *cost = bounds_of(below, steps->serial[work->shape], part->tuple[at]);
    for (int32_t column = 0; column < below->columns[part->tuple[at]]; ++column) {
        if (cost[column] > steps->least && cost[column] < INFINITY) {
            return 1;
        }
    }
    return 0;
}

void take_steps(Work *work, const BoundSteps *steps) {
    for (int64_t entry = steps->first[work->shape]; entry < steps->first[work->shape + 1]; ++entry) {
        hold_all(work, steps, entry);
        for (int32_t at = 0; at < steps->tuples; ++at) {
            if (!steps->serial || worth(work, steps, at)) {
                take_step(work, steps, at, entry);
            }
        }
    }
}
