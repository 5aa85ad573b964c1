/* Ladders: the bounds of a class tuple for the limits of one level. */
#include "bounds.h"

/* Leave all limits as they are. */
void pin_nothing(Work *work, int32_t which) {
    const int32_t levels = work->model->levels + 1;
    memset(work->left + (int64_t)which * levels, 0, (size_t)levels * sizeof *work->left);
}

/* Work out the limits of a level that are left while bytes of it are held. Return 0 if these never fit. */
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

/* Put the bounds of a class tuple into `found`, [steps]: for the limits of one level, while all others are full but for
 * what is held. */
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

/* Lower bounds to what was found. Return 1 if any became less. */
int lower(float *here, const double *found, int32_t count) {
    int changed = 0;
    for (int32_t step = 0; step < count; ++step) {
        changed |= lower_one(&here[step], found[step]);
    }
    return changed;
}
