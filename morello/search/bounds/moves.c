/* Moves: they connect the class tuples of one shape in circles, so they are repeated until none lowers a bound. */
#include "bounds.h"

/* Return the cost of a move without its body. */
static double cost_of(const Work *work, const BoundMove *move) {
    const BoundSpace *copies = &work->model->space[move->copy_space];
    const float *copied = copies->values + move->copy_shape[work->shape] * copies->width;
    const double load = move->load < 0 ? 0 : copied[copies->full[move->load]];
    const double store = move->store < 0 ? 0 : copied[copies->full[move->store]];
    const int32_t tensor = work->space->tensor[move->operand][work->shape];
    const double *const *cheapest = work->model->cheapest;
    return cheapest[move->cls][tensor] + cheapest[move->from][tensor] + (load + store);
}

/* Return 1 if copies are Specs of the same space, whose bounds fall meanwhile. */
static int copies_here(const Work *work, const BoundMove *move) {
    return &work->model->space[move->copy_space] == work->space;
}

/* Return the last time at which a bound that a move depends on became less. */
static int64_t newest(const Work *work, const BoundMove *move, int32_t into) {
    int64_t when = work->changed[into];
    if (copies_here(work, move) && move->load >= 0 && work->changed[move->load] > when) {
        when = work->changed[move->load];
    }
    if (copies_here(work, move) && move->store >= 0 && work->changed[move->store] > when) {
        when = work->changed[move->store];
    }
    return when;
}

/* Lower the bounds for one level to those after a move; `there`, `after` and `least` as in `bound_at`. Return 1 if any
 * became less. */
static int lower_to(float *here, const float *there, const int32_t *after, double least, double cost, int32_t count) {
    int changed = 0;
    for (int32_t step = 0; step < count; ++step) {
        changed |= lower_one(&here[step], bound_at(there, after, step, least) + cost);
    }
    return changed;
}

/* Lower the bounds of a class tuple by one move. Return 1 if any became less. */
static int take_move(Work *work, int32_t tuple, int64_t at) {
    const BoundModel *model = work->model;
    const BoundSpace *space = work->space;
    const int32_t number = space->move_number[at], into = space->move_into[at];
    const BoundMove *move = &space->move[number];
    const int32_t *per_level = per_level_of(model, space, tuple), *below = per_level_of(model, space, into);
    const int32_t *after = left_of(work, number)[move->level];
    const double cost = copies_here(work, move) ? cost_of(work, move) : work->cost[number];
    const double least = least_of(space, work->shape, into);
    double held = -1;
    int changed = 0;
    for (int32_t level = 0; level <= model->levels; ++level) {
        /* The first bound of a level is the largest. */
        if (per_level[level] < 0 || cost + least >= work->row[per_level[level]]) {
            continue;
        }
        float *here = work->row + per_level[level];
        const float *there = below[level] < 0 ? NULL : work->row + below[level];
        const int32_t count = model->level[level].steps;
        if (level == move->level) {
            changed |= lower_to(here, there, after, least, cost, count);
        } else {
            held = held < 0 ? while_held(model, work->row, below, move->level, after, least) : held;
            changed |= lower_to(here, there, NULL, held, cost, count);
        }
    }
    return changed;
}

void take_moves(Work *work) {
    const BoundSpace *space = work->space;
    int64_t clock = 0;
    for (int32_t at = 0; at < space->moves; ++at) {
        pin_nothing(work, at);
        const BoundMove *move = &space->move[at];
        const int32_t tensor = space->tensor[move->operand][work->shape];
        pin(work, at, move->level, work->model->smallest[move->cls][tensor]);
        work->cost[at] = cost_of(work, move);
    }
    memset(work->tried, 0, (size_t)space->move_first[space->movable] * sizeof *work->tried);
    memset(work->changed, 0, (size_t)space->tuples * sizeof *work->changed);
    for (int again = 1; again;) {
        again = 0;
        for (int32_t which = 0; which < space->movable; ++which) {
            const int32_t tuple = space->moved[which];
            for (int64_t at = space->move_first[which]; at < space->move_first[which + 1]; ++at) {
                const BoundMove *move = &space->move[space->move_number[at]];
                if (work->tried[at] && work->tried[at] >= newest(work, move, space->move_into[at])) {
                    continue;
                }
                work->tried[at] = ++clock;
                if (take_move(work, tuple, at)) {
                    work->changed[tuple] = clock;
                    again = 1;
                }
            }
        }
    }
}
