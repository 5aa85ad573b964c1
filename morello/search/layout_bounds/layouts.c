/* The bounds of Moves by pattern: lowered by all steps, smaller shapes first. */
#include "layouts.h"

/* Working memory for one shape. */
typedef struct {
    double *total;            /* [places of source, places of destination] */
    double *before;           /* the same */
    double *change;           /* [places, places] */
    double *turned;           /* the same, transposed */
    int64_t *offset[2];       /* [places]: of a part's values, -1: none */
} Room;

void engine_start_layouts(const GridModel *model, int32_t number) {
    const Grid *grid = &model->grid[number];
    for (const GridKernel *kernel = grid->kernel; kernel < grid->kernel + grid->kernels; ++kernel) {
        for (int32_t entry = 0; entry < kernel->entries; ++entry) {
            const int32_t shape = kernel->shape[entry];
            const AbstractionClass *set[2] = {set_of(grid, 0, shape), set_of(grid, 1, shape)};
            for (int32_t source = 0; source < kernel->sources; ++source) {
                const int32_t row = set[0]->place[kernel->source[source]];
                double *values = grid->values + grid->first[shape] + row * set[1]->count;
                for (int32_t at = 0; row >= 0 && at < kernel->destinations; ++at) {
                    const int32_t column = set[1]->place[kernel->destination[at]];
                    if (column >= 0 && kernel->cost[entry] < values[column]) {
                        values[column] = kernel->cost[entry];
                    }
                }
            }
        }
    }
}

/* Compute the offsets of a part's values, by the places of the operand that is tiled. */
static void find_tiles(const GridModel *model, const Grid *grid, const GridPart *part, int operand, int32_t shape,
                       const Room *room) {
    const Grid *child = &model->grid[part->grid];
    const AbstractionClass *set = set_of(grid, part->arg[operand], shape);
    const AbstractionClass *below = set_of(child, operand, part->shape[shape]);
    const int64_t stride = operand ? 1 : set_of(child, 1, part->shape[shape])->count;
    const int32_t cut = part->cut[operand][shape];
    for (int at = 0; at < set->count; ++at) {
        const int32_t whole = set->pattern[at];
        const int32_t pattern = cut < 0 ? whole : model->tile[whole][model->kind[whole][cut]];
        const int32_t place = pattern < 0 ? -1 : below->place[pattern];
        room->offset[part->arg[operand]][at] = place < 0 ? -1 : place * stride;
    }
}

/* Add the cost of a part to the total of a loop, [height, width]. */
static void add_part_costs(const GridModel *model, const Grid *grid, const GridPart *part, int32_t shape,
                           const Room *room, int height, int width) {
    find_tiles(model, grid, part, 0, shape, room);
    find_tiles(model, grid, part, 1, shape, room);
    const Grid *child = &model->grid[part->grid];
    const double *values = child->values + child->first[part->shape[shape]];
    const double times = part->times[shape];
    for (int row = 0; row < height; ++row) {
        double *total = room->total + row * width;
        const int64_t source = room->offset[0][row];
        for (int column = 0; column < width; ++column) {
            const int64_t destination = room->offset[1][column];
            total[column] += source < 0 || destination < 0 ? INFINITY : times * values[source + destination];
        }
    }
}

static void take_loop(const GridModel *model, const Grid *grid, const GridLoop *loop, int32_t shape, const Room *room,
                      double *values, int height, int width) {
    for (int at = 0; at < height * width; ++at) {
        room->total[at] = loop->cost[shape];
    }
    for (const GridPart *part = loop->part; part < loop->part + loop->parts; ++part) {
        /* Without bounds by pattern, a part counts as free. */
        if (part->grid >= 0 && part->shape[shape] >= 0) {
            add_part_costs(model, grid, part, shape, room, height, width);
        }
    }
    for (int at = 0; at < height * width; ++at) {
        values[at] = room->total[at] < values[at] ? room->total[at] : values[at];
    }
}

/* Raise bounds to those by class. */
static void raise_all(const Grid *grid, int32_t shape, const AbstractionClass *const *set, double *values) {
    const float *by_class = grid->by_class + shape * grid->width;
    for (int row = 0; row < set[0]->count; ++row) {
        const int32_t *column = grid->column + (int64_t)set[0]->number[row] * grid->columns;
        for (int at = 0; at < set[1]->count; ++at, ++values) {
            *values = fmax(*values, by_class[column[set[1]->number[at]]]);
        }
    }
}

/* Take moves before and after. That may lower the cost of copies, hence of further moves. */
static void take_moves(const GridModel *model, const Grid *grid, int32_t shape, const Room *room, double *values,
                       int height, int width) {
    const size_t size = (size_t)height * (size_t)width * sizeof *values;
    do {
        memcpy(room->before, values, size);
        change_costs(model, &grid->moves[0], shape, room->change);
        lower_all(values, room->change, values, height, height, width);
        change_costs(model, &grid->moves[1], shape, room->change);
        for (int from = 0; from < width; ++from) {
            for (int to = 0; to < width; ++to) {
                room->turned[to * width + from] = room->change[from * width + to];
            }
        }
        lower_all(values, values, room->turned, height, width, width);
    } while (memcmp(room->before, values, size) != 0);
}

static void fill_shape(const GridModel *model, const Grid *grid, int32_t shape, const Room *room) {
    const AbstractionClass *set[2] = {set_of(grid, 0, shape), set_of(grid, 1, shape)};
    double *values = grid->values + grid->first[shape];
    for (const GridLoop *loop = grid->loop; loop < grid->loop + grid->loops; ++loop) {
        if (loop->cost[shape] < INFINITY) {
            take_loop(model, grid, loop, shape, room, values, set[0]->count, set[1]->count);
        }
    }
    raise_all(grid, shape, set, values);
    if (grid->moved) {
        take_moves(model, grid, shape, room, values, set[0]->count, set[1]->count);
    }
}

int engine_fill_layouts(const GridModel *model, int32_t number, int32_t from, int32_t to) {
    const Grid *grid = &model->grid[number];
    const size_t most = (size_t)model->most;
    double *values = malloc(4 * most * most * sizeof *values);
    int64_t *offsets = malloc(2 * most * sizeof *offsets);
    if (values && offsets) {
        const Room room = {values, values + most * most, values + 2 * most * most, values + 3 * most * most,
                           {offsets, offsets + most}};
        for (int32_t at = from; at < to; ++at) {
            fill_shape(model, grid, grid->order[at], &room);
        }
    }
    const int status = values && offsets ? 0 : -1;
    free(values);
    free(offsets);
    return status;
}
