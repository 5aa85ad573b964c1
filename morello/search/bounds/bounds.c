/* Lowering the bounds of one space by all steps, smaller shapes first. */
#include "bounds.h"

/* Leave all limits unchanged. */
void pin_nothing(Work *work, int32_t which) {
    const int32_t levels = work->model->levels + 1;
    memset(work->left + (int64_t)which * levels, 0, (size_t)levels * sizeof *work->left);
}

/* Compute the limits of a level that are left while bytes of it are held. Return 0 if these never fit. */
int pin(Work *work, int32_t which, int32_t number, int64_t bytes) {
    const BoundLevel *level = &work->model->level[number];
    const int64_t place = (int64_t)which * work->model->levels + number;
    int32_t *after = work->after + place * work->model->steps;
    int32_t code = -1;
    for (int32_t step = 0; step < level->steps; ++step) {
        const int64_t left = level->bytes[level->code[step]] - bytes;
        while (code + 1 < level->codes && level->bytes[code + 1] <= left) {
            ++code;
        }
        after[step] = code < 0 ? -1 : (int32_t)level->step[code];
    }
    work->left[place + which] = after;
    return code >= 0;
}

/* Put the bounds of a class tuple into `found`, [steps]: for the limits of one level, while the others are full except
 * for the memory held. */
void bounds_under(const BoundModel *model, const BoundSpace *space, int32_t shape, int32_t tuple, int32_t level,
                  Left left, double *found) {
    const float *row = space->values + shape * space->width;
    const int32_t *per_level = per_level_of(model, space, tuple);
    double least = row[space->full[tuple]];
    for (int32_t other = 0; other < model->levels; ++other) {
        if (other != level && left[other]) {
            least = while_held(model, row, per_level, other, left[other], least);
        }
    }
    const int32_t count = model->level[level].steps;
    const float *there = per_level[level] < 0 ? NULL : row + per_level[level];
    for (int32_t step = 0; step < count; ++step) {
        found[step] = bound_at(there, left[level], step, least);
    }
}

/* Lower bounds to `found`. Return 1 if any became less. */
int lower(float *here, const double *found, int32_t count) {
    int changed = 0;
    for (int32_t step = 0; step < count; ++step) {
        changed |= lower_one(&here[step], found[step]);
    }
    return changed;
}

static int64_t larger(int64_t one, int64_t other) {
    return one > other ? one : other;
}

/* Return the most parts of steps, or moves, whose limits are held at once. */
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

/* Allocate working memory for one space. Return 0 without memory. */
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
