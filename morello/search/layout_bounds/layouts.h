#ifndef MORELLO_LAYOUTS_H
#define MORELLO_LAYOUTS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)
#include "_layouts.h"
#pragma GCC visibility pop

static inline const AbstractionClass *set_of(const Grid *grid, int operand, int32_t shape) {
    return &grid->sets[operand][grid->set[operand][shape]];
}

#pragma GCC visibility push(hidden)
/* closure.c */
void change_costs(const GridModel *model, const GridMoves *moves, int32_t shape, double *cost);
void lower_all(double *rows, const double *more, const double *others, int height, int through, int width);
#pragma GCC visibility pop

#endif
