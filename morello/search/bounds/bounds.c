/* Lowering the bounds of one space by all steps, smaller shapes first. */
#include "bounds.h"

static int64_t larger(int64_t one, int64_t other) {
    return one > other ? one : other;
}

/* Return how many class tuples and limits at most are worked on at once: parts of steps, or moves. */
static int64_t most_held(const BoundSpace *space) {
    int64_t most = space->moves;
    for (int32_t at = 0; at < space->pipelines; ++at) {
        most = larger(most, space->pipeline[at].parts);
    }
    for (int32_t at = 0; at < space->leaving; ++at) {
        most = larger(most, space->leave[at].parts);
    }
    return most + 1;
}

/* Make room for one space. Return 0 if there is none. */
static int prepare(Work *work) {
    const BoundSpace *space = work->space;
    const size_t held = (size_t)most_held(space), steps = (size_t)work->model->steps;
    const size_t levels = (size_t)work->model->levels;
    work->before = malloc((size_t)space->width * sizeof *work->before);
    work->total = malloc(steps * sizeof *work->total);
    work->part = malloc(steps * sizeof *work->part);
    work->cost = malloc(((size_t)space->moves + 1) * sizeof *work->cost);
    work->after = malloc(held * levels * steps * sizeof *work->after);
    work->left = calloc(held * (levels + 1), sizeof *work->left);
    work->tried = malloc(((size_t)space->move_first[space->movable] + 1) * sizeof *work->tried);
    work->changed = malloc(((size_t)space->tuples + 1) * sizeof *work->changed);
    return work->before && work->total && work->part && work->cost && work->after && work->left && work->tried &&
           work->changed;
}

static void clean(Work *work) {
    free(work->before);
    free(work->total);
    free(work->part);
    free(work->cost);
    free(work->after);
    free(work->left);
    free(work->tried);
    free(work->changed);
}

/* Lower the bounds of one shape. Return 1 if any became less. */
static int lower_shape(Work *work) {
    const BoundSpace *space = work->space;
    const size_t size = (size_t)space->width * sizeof *work->row;
    memcpy(work->before, work->row, size);
    take_kernels(work);
    take_loops(work);
    for (int32_t at = 0; at < space->leaving; ++at) {
        take_steps(work, &space->leave[at]);
    }
    for (int32_t at = 0; at < space->pipelines; ++at) {
        take_steps(work, &space->pipeline[at]);
    }
    take_moves(work);
    return memcmp(work->before, work->row, size) != 0;
}

int engine_lower_bounds(const BoundModel *model, int32_t space) {
    Work work = {.model = model, .space = &model->space[space]};
    int changed = prepare(&work) ? 0 : -1;
    for (int32_t at = 0; at < work.space->shapes && changed >= 0; ++at) {
        work.shape = work.space->order[at];
        work.row = work.space->values + work.shape * work.space->width;
        changed |= lower_shape(&work);
    }
    clean(&work);
    return changed;
}
