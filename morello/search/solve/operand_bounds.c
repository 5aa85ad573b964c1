/* Bounds by the pattern of one operand: the abstract problem in which the other operands have unknown patterns.
 *
 * It is small enough to be solved for all shapes, smaller ones first: steps, then moves of each operand, in one pass.
 */
#include "rounding.h"
#include "state.h"

typedef struct {
    const Model *model;
    int32_t number;
    const Space *space;       /* with the bounds */
    const Space *steps;       /* with all steps except moves */
    const OperandBounds *bounds;
    int operand;
    int32_t shape;
    const OperandSet *set;    /* the patterns of the shape */
    int32_t pipelines;
    int32_t *after;           /* [operands, others, classes]: the others with another class of one of them, -1: none */
    int32_t *sample;          /* [others]: a class tuple with these classes, -1: none */
    double *now;              /* [places, others]: the costs of the shape */
} Work;

/* Return the bounds of a shape and a place, [others]. */
float *operand_row(const OperandBounds *bounds, int32_t shape, int32_t place) {
    return bounds->values + (int64_t)bounds->row[bounds->first[shape] + place] * bounds->others;
}

/* Return the transitions of an operand by number. */
static const TransitionClosure *closure_of(const Model *model, const Space *space, int operand) {
    while (space->closed_operand != operand) {
        space = &model->space[space->closure.space];
    }
    return &space->closure;
}

/* Return the bound of a Spec by the known patterns of its operands, one at a time, and by class. */
double part_bound(const Model *model, int32_t number, int32_t tuple, int32_t shape, const int32_t *states) {
    const Space *space = &model->space[number];
    double low = space->bounds[shape * space->width + space->column[tuple]];
    if (space->grid) {
        return greater(low, move_bound(model, space, shape, states));
    }
    const int32_t *blank = space->blank + (int64_t)tuple * space->operands;
    for (int operand = 0; space->by_operand && operand < space->operands; ++operand) {
        if (states[operand] != blank[operand]) {
            low = greater(low, operand_bound(model, space, operand, tuple, shape, states[operand]));
        }
    }
    return low;
}

/* Find the numbers of the other operands' classes after a move of one of them. */
static void find_others(Work *work) {
    const Space *space = work->space;
    const OperandBounds *bounds = work->bounds;
    const int32_t classes = work->model->classes;
    for (int64_t at = 0; at < (int64_t)space->operands * bounds->others * classes; ++at) {
        work->after[at] = -1;
    }
    for (int32_t other = 0; other < bounds->others; ++other) {
        work->sample[other] = -1;
    }
    for (int32_t tuple = 0; tuple < bounds->tuples; ++tuple) {
        const int32_t other = bounds->other[tuple];
        if (other < 0) {
            continue;
        }
        work->sample[other] = tuple;
        for (int operand = 0; operand < space->operands; ++operand) {
            int32_t *after = work->after + ((int64_t)operand * bounds->others + other) * classes;
            for (int32_t cls = 0; cls < classes; ++cls) {
                const int32_t moved = tuple_after(work->model, space, tuple, operand, cls);
                after[cls] = moved < 0 || bounds->other[moved] < 0 ? after[cls] : bounds->other[moved];
            }
        }
    }
}

/* Lower the costs of a kernel, [shapes], to one of its costs. */
static void lower_costs(const Space *steps, int32_t cost, double *least) {
    const int32_t *first = steps->set_first + steps->cost_shapes[cost];
    const double *values = steps->cost_values + steps->cost_first[cost];
    for (int32_t at = first[0]; at < first[1]; ++at, ++values) {
        double *own = &least[steps->set_shape[at]];
        *own = lesser(*values, *own);
    }
}

/* Store the costs of kernels. `least`, [shapes], is working memory. */
static void store_kernels(const Work *work, double *least) {
    const OperandBounds *bounds = work->bounds;
    const Space *steps = work->steps;
    for (int32_t at = 0; at < bounds->kernels; ++at) {
        for (int32_t shape = 0; shape < steps->shapes; ++shape) {
            least[shape] = INFINITY;
        }
        const int32_t kernel = bounds->kernel[at];
        for (int32_t cost = steps->kernel_first[kernel]; cost < steps->kernel_first[kernel + 1]; ++cost) {
            lower_costs(steps, steps->kernel_costs[cost], least);
        }
        for (int32_t shape = 0; shape < steps->shapes; ++shape) {
            const int32_t place = bounds->sets[bounds->set[shape]].place[bounds->kernel_pattern[at]];
            if (place >= 0 && least[shape] < INFINITY) {
                float *value = &operand_row(bounds, shape, place)[bounds->kernel_other[at]];
                *value = fminf(*value, rounded_down(least[shape]));
            }
        }
    }
}

/* Return whether a loop leads to Specs of the same space and class tuples only. */
static int stays(const Work *work, const LoopGroup *group) {
    for (const LoopPart *part = group->part; part < group->part + group->parts; ++part) {
        if (part->space != work->number || part->operands != work->space->operands) {
            return 0;
        }
        for (int operand = 0; operand < part->operands; ++operand) {
            if (part->args[operand] != operand) {
                return 0;
            }
        }
    }
    return group->parts <= 2;
}

/* Return the bounds of a tile by the classes of the other operands, [others], NULL: there is no such tile. */
static const float *tile_row(const Work *work, const LoopPart *part, int64_t entry, int32_t place) {
    const OperandBounds *bounds = work->bounds;
    const int32_t shape = part->shape[entry];
    const int32_t cut = part->cut[entry * part->operands + work->operand];
    const OperandSet *set = &bounds->sets[bounds->set[shape]];
    int32_t pattern = work->set->pattern[place];
    if (cut >= 0) {
        const int kind = work->model->kind[pattern][cut];
        if (kind < 0) {
            return NULL;
        }
        pattern = work->model->tile[pattern][kind];
    }
    const int32_t below = set->place[pattern_of(work->model, pattern, work->space->tensor[work->operand][shape])];
    return below < 0 ? NULL : operand_row(bounds, shape, below);
}

/* Take a loop within the space for all classes of the other operands at once. */
static void take_inner_loop(Work *work, const LoopGroup *group, int64_t entry) {
    const int32_t others = work->bounds->others;
    const LoopPart *main = &group->part[0];
    const LoopPart *rest = group->parts > 1 && group->part[1].shape[entry] >= 0 ? &group->part[1] : NULL;
    const double cost = group->cost[entry], times = main->times[entry], once = rest ? rest->times[entry] : 0;
    for (int32_t place = 0; place < work->set->places; ++place) {
        double *restrict now = work->now + (int64_t)place * others;
        const float *restrict tile = tile_row(work, main, entry, place);
        const float *restrict left = rest && tile ? tile_row(work, rest, entry, place) : NULL;
        if (!tile || (rest && !left)) {
            continue;
        }
        if (!rest) {
            for (int32_t other = 0; other < others; ++other) {
                now[other] = lesser(cost + times * tile[other], now[other]);
            }
            continue;
        }
        for (int32_t other = 0; other < others; ++other) {
            now[other] = lesser(cost + times * tile[other] + once * left[other], now[other]);
        }
    }
}

/* Return the bound of a loop, given the patterns of all operands. */
static double loop_cost(const Model *model, const LoopGroup *group, int64_t entry, int32_t tuple,
                        const int32_t *states, double most) {
    int32_t made[model->width];
    double total = group->cost[entry];
    for (const LoopPart *part = group->part; part < group->part + group->parts && total < most; ++part) {
        const int32_t shape = part->shape[entry];
        if (shape < 0) {
            continue;
        }
        const int32_t below = part->tuples[tuple];
        if (below < 0 || !tiles(model, part, entry, states, made)) {
            return INFINITY;
        }
        total += part->times[entry] * part_bound(model, part->space, below, shape, made);
    }
    return total;
}

/* Put the patterns of all operands into `states`: all but one are unknown. */
static void patterns_at(const Work *work, int32_t place, int32_t tuple, int32_t *states) {
    const size_t operands = (size_t)work->space->operands;
    memcpy(states, work->space->blank + (size_t)tuple * operands, operands * sizeof *states);
    states[work->operand] = work->set->pattern[place];
}

static void take_other_loop(Work *work, const LoopGroup *group, int64_t entry) {
    const OperandBounds *bounds = work->bounds;
    int32_t states[work->model->width];
    for (int32_t at = 0; at < work->set->places * bounds->others; ++at) {
        const int32_t tuple = work->set->tuple[at];
        if (tuple >= 0 && group->fits[tuple]) {
            patterns_at(work, at / bounds->others, tuple, states);
            double *now = &work->now[at];
            *now = lesser(loop_cost(work->model, group, entry, tuple, states, *now), *now);
        }
    }
}

static void take_all_loops(Work *work) {
    const Space *steps = work->steps;
    for (const LoopGroup *group = steps->group; group < steps->group + steps->groups; ++group) {
        const int inner = stays(work, group);
        for (int64_t entry = group->first[work->shape]; entry < group->first[work->shape + 1]; ++entry) {
            if (inner && group->part[0].shape[entry] >= 0) {
                take_inner_loop(work, group, entry);
            } else {
                take_other_loop(work, group, entry);
            }
        }
    }
}

/* Return whether any pipeline applies to a shape. */
static int has_pipelines(const Work *work) {
    for (const PipelineTable *table = work->steps->pipeline; table < work->steps->pipeline + work->pipelines; ++table) {
        if (table->part[0].shape[work->shape] >= 0) {
            return 1;
        }
    }
    return 0;
}

static void take_all_pipelines(Work *work) {
    const OperandBounds *bounds = work->bounds;
    const int32_t size = has_pipelines(work) ? work->set->places * bounds->others : 0;
    int32_t states[work->model->width];
    for (int32_t at = 0; at < size; ++at) {
        const int32_t tuple = work->set->tuple[at];
        if (tuple >= 0) {
            patterns_at(work, at / bounds->others, tuple, states);
            const double cost = pipeline_cost(work->model, work->steps, tuple, (uint32_t)work->shape, states);
            work->now[at] = lesser(cost, work->now[at]);
        }
    }
}

/* Lower costs, [count], to those of other Specs plus the cost of a step. */
static void lower_row(double *restrict now, const double *restrict moved, double cost, int32_t count) {
    for (int32_t at = 0; at < count; ++at) {
        now[at] = lesser(cost + moved[at], now[at]);
    }
}

/* Move the operand itself to any pattern. Closures are transitive, so costs may be lowered in place. */
static void move_operand(Work *work, const TransitionClosure *closure) {
    const OperandBounds *bounds = work->bounds;
    for (int32_t place = 0; place < work->set->places; ++place) {
        const int32_t own = closure->place[work->set->pattern[place]];
        const int64_t row = (int64_t)closure->row[work->shape] * closure->places + own;
        for (int64_t at = closure->first[row]; at < closure->first[row + 1]; ++at) {
            const int32_t into = work->set->place[closure->into[at]];
            if (into != place) {
                lower_row(work->now + (int64_t)place * bounds->others, work->now + (int64_t)into * bounds->others,
                          closure->cost[at], bounds->others);
            }
        }
    }
}

/* Move another operand to any class. */
static void move_other(Work *work, const TransitionClosure *closure, int operand) {
    const OperandBounds *bounds = work->bounds;
    const Model *model = work->model;
    /* Of the patterns of a class, the cheapest suffices, which comes first. */
    int32_t met[bounds->others + 1];
    memset(met, -1, sizeof met);
    for (int32_t other = 0; other < bounds->others; ++other) {
        const int32_t tuple = work->sample[other];
        const int32_t pattern = tuple < 0 ? -1 : work->space->blank[(int64_t)tuple * work->space->operands + operand];
        const int32_t *after = work->after + ((int64_t)operand * bounds->others + other) * model->classes;
        if (pattern < 0 || closure->place[pattern] < 0) {
            continue;
        }
        const int64_t row = (int64_t)closure->row[work->shape] * closure->places + closure->place[pattern];
        for (int64_t at = closure->first[row]; at < closure->first[row + 1]; ++at) {
            const int32_t into = after[model->cls[closure->into[at]]];
            if (into < 0 || into == other || met[into] == other) {
                continue;
            }
            met[into] = other;
            for (int32_t place = 0; place < work->set->places; ++place) {
                double *now = work->now + (int64_t)place * bounds->others;
                now[other] = lesser(closure->cost[at] + now[into], now[other]);
            }
        }
    }
}

/* Store the bounds of the shape, none below that by class. */
static void store(const Work *work) {
    const OperandBounds *bounds = work->bounds;
    const int32_t size = work->set->places * bounds->others;
    const float *by_class = work->space->bounds + work->shape * work->space->width;
    float *values = bounds->values + bounds->first[work->shape] * bounds->others;
    for (int32_t at = 0; at < size; ++at) {
        const int32_t tuple = work->set->tuple[at];
        values[at] = tuple < 0 ? INFINITY : rounded_down(greater(work->now[at], by_class[work->space->column[tuple]]));
    }
}

static void bound_shape(Work *work) {
    const int32_t size = work->set->places * work->bounds->others;
    const float *values = work->bounds->values + work->bounds->first[work->shape] * work->bounds->others;
    for (int32_t at = 0; at < size; ++at) {
        work->now[at] = values[at];
    }
    take_all_loops(work);
    take_all_pipelines(work);
    for (int operand = 0; operand < work->space->operands; ++operand) {
        const TransitionClosure *closure = closure_of(work->model, work->space, operand);
        if (operand == work->operand) {
            move_operand(work, closure);
        } else {
            move_other(work, closure, operand);
        }
    }
    store(work);
    work->bounds->done[work->shape] = 1;
}

static void bound_all(Work *work, const int32_t *order) {
    const Space *steps = work->steps;
    for (int32_t which = 0; which < steps->pipeline_first[work->bounds->tuples]; ++which) {
        const int32_t table = steps->pipeline_table[which];
        work->pipelines = table >= work->pipelines ? table + 1 : work->pipelines;
    }
    find_others(work);
    for (int32_t at = 0; at < work->space->shapes; ++at) {
        work->shape = order[at];
        work->set = &work->bounds->sets[work->bounds->set[work->shape]];
        bound_shape(work);
    }
}

/* Store each distinct row once, in front. Return their number; -1: no memory. */
static int64_t share_rows(const OperandBounds *bounds) {
    const size_t others = (size_t)bounds->others, bytes = others * sizeof *bounds->values;
    uint64_t mask = 1;
    while (mask < 2 * (uint64_t)bounds->rows) {
        mask *= 2;
    }
    int32_t *known = calloc((size_t)mask, sizeof *known);
    if (!known) {
        return -1;
    }
    --mask;
    int32_t count = 0;
    for (int64_t at = 0; at < bounds->rows; ++at) {
        const float *values = bounds->values + (size_t)at * others;
        uint64_t hash = 0;
        for (size_t other = 0; other < others; ++other) {
            uint32_t own;
            memcpy(&own, &values[other], sizeof own);
            hash = (hash ^ own) * UINT64_C(0x9E3779B97F4A7C15);
            hash ^= hash >> 29;
        }
        uint64_t slot = hash & mask;
        while (known[slot] && memcmp(bounds->values + (size_t)(known[slot] - 1) * others, values, bytes)) {
            slot = (slot + 1) & mask;
        }
        if (!known[slot]) {
            memmove(bounds->values + (size_t)count * others, values, bytes);
            known[slot] = ++count;
        }
        bounds->row[at] = known[slot] - 1;
    }
    free(known);
    return count;
}

/* Make all bounds infinite, each row on its own. */
static void clear(const OperandBounds *bounds) {
    for (int64_t at = 0; at < bounds->rows; ++at) {
        bounds->row[at] = (int32_t)at;
    }
    for (int64_t at = 0; at < bounds->rows * bounds->others; ++at) {
        bounds->values[at] = INFINITY;
    }
}

int64_t engine_bound_operand(const Model *model, int32_t space, int32_t operand, const int32_t *order) {
    const Space *first = &model->space[space], *steps = first;
    while (steps->closed_operand >= 0) {
        steps = &model->space[steps->closure.space];
    }
    const OperandBounds *bounds = &first->by_operand[operand];
    const size_t others = (size_t)bounds->others, operands = (size_t)first->operands;
    Work work = {.model = model, .number = space, .space = first, .steps = steps, .bounds = bounds, .operand = operand};
    work.after = malloc((operands * others * (size_t)model->classes + 1) * sizeof *work.after);
    work.sample = malloc((others + 1) * sizeof *work.sample);
    work.now = malloc(((size_t)bounds->most * others + 1) * sizeof *work.now);
    double *least = malloc(((size_t)first->shapes + 1) * sizeof *least);
    int64_t distinct = -1;
    if (work.after && work.sample && work.now && least) {
        clear(bounds);
        store_kernels(&work, least);
        bound_all(&work, order);
        distinct = share_rows(bounds);
    }
    free(work.after);
    free(work.sample);
    free(work.now);
    free(least);
    return distinct;
}
