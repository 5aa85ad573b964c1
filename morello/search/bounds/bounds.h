/* Lowering the bounds of one space, shape by shape. */
#ifndef MORELLO_BOUNDS_H
#define MORELLO_BOUNDS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rounding.h"

#pragma GCC visibility push(default)
#include "_bounds.h"
#pragma GCC visibility pop

/* Steps of the limits left while memory is held, [levels][steps]; NULL: unchanged, -1: it does not fit. */
typedef const int32_t *const *Left;

/* Working memory for the bounds of one shape. */
typedef struct {
    const BoundModel *model;
    const BoundSpace *space;
    int32_t shape;
    float *row;               /* its bounds, [width] */
    float *before;            /* [width] */
    double *total, *part;     /* [steps] */
    double *cost;             /* [moves]: of each without its body */
    int32_t *after;           /* [moves or parts * levels, steps]: limits while memory is held */
    const int32_t **left;     /* [moves or parts, levels + 1]: where in `after` */
    int64_t *tried;           /* [all moves of class tuples]: time of the last attempt, 0: none */
    int64_t *changed;         /* [tuples]: time of the last change */
} Work;

#pragma GCC visibility push(hidden)

/* bounds.c */
void pin_nothing(Work *work, int32_t which);
int pin(Work *work, int32_t which, int32_t level, int64_t bytes);
void bounds_under(const BoundModel *model, const BoundSpace *space, int32_t shape, int32_t tuple, int32_t level,
                  Left left, double *found);
int lower(float *here, const double *found, int32_t count);

/* steps.c */
void take_kernels(const Work *work);
void take_loops(const Work *work);
void take_steps(Work *work, const BoundSteps *steps);

/* moves.c */
void take_moves(Work *work);

#pragma GCC visibility pop

static inline Left left_of(const Work *work, int32_t which) {
    return work->left + (int64_t)which * (work->model->levels + 1);
}

static inline const int32_t *per_level_of(const BoundModel *model, const BoundSpace *space, int32_t tuple) {
    return space->per_level + (int64_t)tuple * (model->levels + 1);
}

/* Return the bound of a class tuple and a shape under full limits. */
static inline double least_of(const BoundSpace *space, int32_t shape, int32_t tuple) {
    return space->values[shape * space->width + space->full[tuple]];
}

/* Return the bound of a class tuple, at least `least`, while memory of one level is held: `after` has the steps
 * left. */
static inline double while_held(const BoundModel *model, const float *row, const int32_t *per_level, int32_t level,
                                const int32_t *after, double least) {
    const int32_t at = after[model->level[level].steps - 1];
    const double held = at < 0 ? INFINITY : per_level[level] < 0 ? least : row[per_level[level] + at];
    return held > least ? held : least;
}

/* Return the bound of a class tuple for one step of a level, at least `least`. `there` are its bounds for that level,
 * NULL: none; `after` the steps left, NULL: all. */
static inline double bound_at(const float *there, const int32_t *after, int32_t step, double least) {
    const int32_t at = after ? after[step] : step;
    const double own = at < 0 ? INFINITY : there ? there[at] : least;
    return own > least ? own : least;
}

/* Lower a bound. Return 1 if it became less. */
static inline int lower_one(float *here, double found) {
    if (found < *here) {
        *here = rounded_down(found);
        return 1;
    }
    return 0;
}

#endif
