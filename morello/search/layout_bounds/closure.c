/* Transition closures: the least cost of any number of moves of an operand, from each pattern to each. */
#include "layouts.h"

/* Lower a row to another one plus `more`. */
static void lower_row(double *restrict row, const double *restrict other, double more, int count) {
    for (int at = 0; at < count; ++at) {
        const double found = more + other[at];
        row[at] = found < row[at] ? found : row[at];
    }
}

/* Lower `rows`, [height, width], to the min-plus product of `more`, [height, through], and `others`, [through, width].
 * The arrays may be the same: then lowered values are used at once. */
void lower_all(double *rows, const double *more, const double *others, int height, int through, int width) {
    for (int over = 0; over < through; ++over) {
        for (int from = 0; from < height; ++from) {
            double *row = rows + from * width;
            const double *other = others + over * width;
            const double cost = more[from * through + over];
            if (row != other && cost < INFINITY) {
                lower_row(row, other, cost, width);
            }
        }
    }
}

/* The bounds of the Moves that copy an operand of one shape: values of their grid, NULL: none. */
typedef struct {
    const double *values;
    const int32_t *source;    /* [patterns]: places */
    const int32_t *destination;
    int width;
} Copies;

static Copies copies_of(const GridModel *model, const GridMoves *moves, int32_t shape) {
    const int32_t copy = moves->copy[shape];
    if (copy < 0) {
        return (Copies){0};
    }
    const Grid *grid = &model->grid[moves->grid];
    const AbstractionClass *into = set_of(grid, 1, copy);
    return (Copies){grid->values + grid->first[copy], set_of(grid, 0, copy)->place, into->place, into->count};
}

static double copy_cost(const Copies *copies, int32_t from, int32_t to) {
    const int32_t row = copies->source[from];
    const int32_t column = copies->destination[to];
    return row < 0 || column < 0 ? INFINITY : copies->values[row * copies->width + column];
}

void change_costs(const GridModel *model, const GridMoves *moves, int32_t shape, double *cost) {
    const AbstractionClass *set = &moves->sets[moves->set[shape]];
    const int64_t own = moves->row[shape];
    const int32_t tensor = moves->tensor[own];
    const Copies copies = copies_of(model, moves, shape);
    const int64_t numbers = moves->numbers;
    const uint8_t *offered = moves->offered + moves->kind[own] * numbers * numbers;
    for (int at = 0; at < set->count; ++at) {
        const int32_t from = set->pattern[at];
        const int64_t row = set->number[at] * numbers;
        for (int to_at = 0; to_at < set->count; ++to_at) {
            const int32_t to = set->pattern[to_at];
            double *found = &cost[at * set->count + to_at];
            if (!offered[row + set->number[to_at]]) {
                *found = INFINITY;
                continue;
            }
            *found = model->cost[from][tensor] + model->cost[to][tensor];
            if (copies.values && !moves->view[row + set->number[to_at]]) {
                const double load = moves->loads ? copy_cost(&copies, from, to) : 0;
                const double store = moves->stores ? copy_cost(&copies, to, from) : 0;
                *found += (load + store) / moves->threads;
            }
        }
    }
    lower_all(cost, cost, cost, set->count, set->count, set->count);
}

void engine_close_layouts(const GridModel *model, const GridMoves *moves, int32_t shapes, const int32_t *shape,
                     double *cost) {
    for (int32_t at = 0; at < shapes; ++at) {
        const int32_t count = moves->sets[moves->set[shape[at]]].count;
        change_costs(model, moves, shape[at], cost);
        for (int place = 0; place < count; ++place) {
            cost[place * count + place] = 0;
        }
        cost += count * count;
    }
}
