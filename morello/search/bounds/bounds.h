/* Lowering the bounds of one space, shape by shape. */
#ifndef MORELLO_BOUNDS_H
#define MORELLO_BOUNDS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_bounds.h"

/* What is at hand while the bounds of one shape are lowered. */
typedef struct {
    const BoundModel *model;
    const BoundSpace *space;
    int32_t shape;
    double *row;              /* its bounds, [width] */
    double *before;           /* [width] */
    double *total, *part;     /* [columns of a class tuple] */
    int32_t *after;           /* [moves or parts * levels, steps]: limits while memory is held */
    const int32_t **lowered;  /* [moves or parts, levels]: where in `after`, NULL: limits are as they are */
    int64_t *tried;           /* [all moves of class tuples]: when, 0: never */
    int64_t *changed;         /* [tuples] */
} Work;

/* walks.c: `after`, [steps], are the limits that are left while bytes are held, -1: they do not fit. */
void hold(const BoundLevel *level, int64_t bytes, int32_t *after);
int lower(const Walk *walk, const int32_t *const *lowered, double *here, const double *there, double cost);

/* steps.c */
void take_kernels(const Work *work);
void take_loops(const Work *work);
void take_steps(Work *work, const BoundSteps *steps);

/* moves.c */
void take_moves(Work *work);

/* Return the bounds of a class tuple and a shape: its first column. */
static inline double *bounds_of(const BoundSpace *space, int32_t shape, int32_t tuple) {
    return space->values + shape * space->width + space->column[tuple];
}

/* Return the least of bounds that go down as limits go up. */
static inline double least_of(const BoundSpace *space, int32_t shape, int32_t tuple) {
    return bounds_of(space, shape, tuple)[space->columns[tuple] - 1];
}

#endif
