/* Lowering the bounds of one class tuple by those of another, for all limits at once. */
#include "bounds.h"

void hold(const BoundLevel *level, int64_t bytes, int32_t *after) {
    int32_t code = -1;
    for (int32_t step = 0; step < level->steps; ++step) {
        const int64_t left = level->bytes[level->code[step]] - bytes;
        while (code + 1 < level->codes && level->bytes[code + 1] <= left) {
            ++code;
        }
        after[step] = code < 0 ? -1 : (int32_t)level->step[code];
    }
}

/* Lower bounds along the last axis by others that lie side by side. Return 1 if any became less. */
static int lower_run(int64_t count, double *restrict here, const double *restrict there, double cost) {
    int64_t at = 0;
    while (at < count && there[at] + cost >= here[at]) {
        ++at;
    }
    const int changed = at < count;
    for (; at < count; ++at) {
        const double moved = there[at] + cost;
        here[at] = moved < here[at] ? moved : here[at];
    }
    return changed;
}

static int lower_line(const Axis *axis, const int32_t *after, double *here, const double *there, double cost) {
    if (!after && axis->there == 1) {
        /* Bounds go down along an axis, so that the last one there is the least, and the first one here the largest. */
        return there[axis->count - 1] + cost < here[0] && lower_run(axis->count, here, there, cost);
    }
    int changed = 0;
    for (int32_t step = axis->first; step < axis->count; ++step) {
        const int64_t at = after ? after[step] : step;
        const double moved = at < 0 ? INFINITY : there[at * axis->there] + cost;
        if (moved < here[step * axis->here]) {
            here[step * axis->here] = moved;
            changed = 1;
        }
    }
    return changed;
}

static int lower_along(const Axis *axis, const Axis *last, const int32_t *const *lowered, double *here,
                       const double *there, double cost) {
    const int32_t *after = axis->level < 0 ? NULL : lowered[axis->level];
    if (axis == last) {
        return lower_line(axis, after, here, there, cost);
    }
    int changed = 0;
    for (int32_t step = axis->first; step < axis->count; ++step) {
        const int64_t at = after ? after[step] : step;
        if (at >= 0) {
            changed |= lower_along(axis + 1, last, lowered, here + step * axis->here, there + at * axis->there, cost);
        }
    }
    return changed;
}

/* Lower bounds to what others are and a cost on top. `lowered`, [levels], are limits as `hold` gives them. Return 1 if
 * any became less. */
int lower(const Walk *walk, const int32_t *const *lowered, double *here, const double *there, double cost) {
    return lower_along(walk->axis, walk->axis + walk->axes - 1, lowered, here, there + walk->there, cost);
}
