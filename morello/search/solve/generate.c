/* Generate the hyperedges of a node within a budget.
 *
 * Candidates are compared with the bounds of their class tuples first. That rejects most of them before their parts
 * become nodes.
 */
#include "state.h"

/* Return an edge without parts. */
Hyperedge new_edge(const State *state, int kind, uint32_t which, uint32_t step, int64_t priority, double own) {
    return (Hyperedge){.low = own,
                  .own = own,
                  .priority = priority,
                  .first = state->new_parts_count,
                  .which = which,
                  .step = step,
                  .kind = (uint8_t)kind};
}

void add_part(State *state, Hyperedge *edge, uint32_t node, double times) {
    const uint32_t index = times_of(state, times);
    *PUSH(state, new_parts) = (Part){.times = index, .node = node};
    ++edge->parts;
    edge->low += times * state->nodes[node].low;
}

/* Add a part of a table. One that makes the edge cost more than the budget takes no new node: few others need it. */
void add_new_part(State *state, Hyperedge *edge, uint32_t table, int32_t shape, uint64_t limits, double times,
                  double budget) {
    const uint32_t node = node_within(state, table, shape, limits, (budget - edge->low) / times);
    if (node) {
        add_part(state, edge, node, times);
    } else {
        edge->low = INFINITY;
    }
}

/* Store an edge if its bound is within the budget. */
void keep_edge(State *state, Hyperedge *edge, double budget) {
    if (edge->low <= budget) {
        *PUSH(state, new_edges) = *edge;
    } else {
        state->new_parts_count = edge->first;
    }
}

/* Return the cost of a kernel, infinity where it does not apply. */
static double kernel_cost(const Space *space, uint32_t kernel, uint32_t shape) {
    double least = INFINITY;
    for (int32_t at = space->kernel_first[kernel]; at < space->kernel_first[kernel + 1]; ++at) {
        const int32_t cost = space->kernel_costs[at];
        const int32_t place = space->shape_place[(int64_t)space->cost_shapes[cost] * space->shapes + shape];
        if (place >= 0 && space->cost_values[space->cost_first[cost] + place] < least) {
            least = space->cost_values[space->cost_first[cost] + place];
        }
    }
    return least;
}

static void kernel_edges(State *state, uint32_t number, double budget) {
    const Node *node = &state->nodes[number];
    const SubproblemTable *table = table_at(state, node);
    const Space *space = &state->model->space[table->space];
    const uint32_t shape = node->shape;
    for (uint32_t row = table->kernel; row < table->kernel + table->kernels; ++row) {
        const double cost = kernel_cost(space, row, shape);
        if (cost <= budget && dominates(state->model, node->limits, space->kernel_needs[row])) {
            Hyperedge edge = new_edge(state, KERNEL, row, 0, space->kernel_priority[row], cost);
            keep_edge(state, &edge, budget);
        }
    }
}

/* Return the lower bound of a loop by the class tuples of its parts. */
static double loop_bound(const Model *model, const LoopGroup *group, int64_t entry, int32_t tuple, uint64_t limits,
                         double budget) {
    double total = group->cost[entry];
    for (int at = 0; at < group->parts && total <= budget; ++at) {
        const LoopPart *part = &group->part[at];
        const int32_t shape = part->shape[entry];
        if (shape >= 0) {
            const Space *space = &model->space[part->space];
            total += part->times[entry] * bound(model, space, part->tuples[tuple], shape, limits);
        }
    }
    return total;
}

/* Put the states of a part's operands into `made`. Return 0 where an operand has no such tiles. */
int tiles(const Model *model, const LoopPart *part, int64_t entry, const int32_t *states, int32_t *made) {
    for (int operand = 0; operand < part->operands; ++operand) {
        const int32_t whole = states[part->args[operand]];
        const int32_t cut = part->cut[entry * part->operands + operand];
        const int kind = cut < 0 ? 0 : model->kind[whole][cut];
        if (kind < 0) {
            return 0;
        }
        made[operand] = cut < 0 ? whole : model->tile[whole][kind];
    }
    return 1;
}

static void loop_edge(State *state, uint32_t number, const LoopGroup *group, uint32_t which, int64_t entry,
                      double budget) {
    const Model *model = state->model;
    int32_t made[model->width];
    Hyperedge edge = new_edge(state, LOOP, which, 0, group->priority[entry], group->cost[entry]);
    for (int at = 0; at < group->parts; ++at) {
        const LoopPart *part = &group->part[at];
        if (part->shape[entry] < 0) {
            continue;
        }
        const Node *node = &state->nodes[number];
        const int32_t tuple = table_at(state, node)->tuple;
        if (!tiles(model, part, entry, states_at(state, node), made)) {
            edge.low = INFINITY;
            break;
        }
        const uint64_t limits = node->limits;
        const uint32_t table = table_of(state, part->space, part->tuples[tuple], made);
        add_new_part(state, &edge, table, part->shape[entry], limits, part->times[entry], budget);
    }
    keep_edge(state, &edge, budget);
}

static void loop_edges(State *state, uint32_t number, double budget) {
    const Model *model = state->model;
    const int32_t tuple = table_at(state, &state->nodes[number])->tuple;
    const Space *space = &model->space[table_at(state, &state->nodes[number])->space];
    const uint64_t limits = state->nodes[number].limits;
    const uint32_t shape = state->nodes[number].shape;
    for (int32_t which = 0; which < space->groups; ++which) {
        const LoopGroup *group = &space->group[which];
        if (!group->fits[tuple]) {
            continue;
        }
        for (int64_t entry = group->first[shape]; entry < group->first[shape + 1]; ++entry) {
            if (loop_bound(model, group, entry, tuple, limits, budget) <= budget) {
                loop_edge(state, number, group, (uint32_t)which, entry, budget);
            }
        }
    }
}

/* A candidate move: `own` is the cost of moving the operand in its present state, `shape` that of the node. */
typedef struct {
    const MoveClass *move;
    uint32_t which;
    int operand;
    int32_t state, tensor, tuple, shape;
    double own;
    uint64_t limits;
} Trial;

static void move_edge(State *state, uint32_t number, const Trial *trial, int32_t step, int32_t fresh, double own,
                      uint64_t left, int view, double budget) {
    const Model *model = state->model;
    const MoveClass *move = trial->move;
    int32_t states[model->width];
    memcpy(states, states_at(state, &state->nodes[number]), sizeof states);
    states[trial->operand] = fresh;
    const int32_t space = table_at(state, &state->nodes[number])->space;
    Hyperedge edge = new_edge(state, MOVE, trial->which, (uint32_t)step, move->priority[step], own);
    add_new_part(state, &edge, table_of(state, space, trial->tuple, states), trial->shape, left, 1, budget);
    const int32_t load[2] = {trial->state, fresh}, store[2] = {fresh, trial->state};
    const int32_t shape = move->copy_shape[trial->shape];
    if (!view && move->load >= 0) {
        const uint32_t table = table_of(state, move->copy_space, move->load, load);
        add_new_part(state, &edge, table, shape, left, 1, budget);
    }
    if (!view && move->store >= 0) {
        const uint32_t table = table_of(state, move->copy_space, move->store, store);
        add_new_part(state, &edge, table, shape, left, 1, budget);
    }
    keep_edge(state, &edge, budget);
}

/* Return the lower bound of loading and storing with all memory free. */
static double copy_bound(const Model *model, const MoveClass *move, int32_t shape) {
    const Space *space = &model->space[move->copy_space];
    const float *row = space->bounds + move->copy_shape[shape] * space->width;
    return (move->load < 0 ? 0 : row[space->column[move->load]]) +
           (move->store < 0 ? 0 : row[space->column[move->store]]);
}

/* Add the moves of one class. The bound of its cheapest state comes first: mostly that rejects the whole class. */
static void try_moves(State *state, uint32_t number, const Trial *trial, double budget) {
    const Model *model = state->model;
    const MoveClass *move = trial->move;
    const Space *space = &model->space[table_at(state, &state->nodes[number])->space];
    uint64_t left;
    if (!lowered(model, move->level, trial->limits, model->smallest[move->cls][trial->tensor], &left)) {
        return;
    }
    const double copies = copy_bound(model, move, trial->shape);
    const double rest = bound(model, space, trial->tuple, trial->shape, left) + (move->view ? 0 : copies);
    if (!(trial->own + model->cheapest[move->cls][trial->tensor] + rest <= budget)) {
        return;
    }
    for (int32_t step = 0; step < move->steps; ++step) {
        const int32_t fresh = (int32_t)move->into[step][move->keeps[step] ? trial->state : trial->tensor];
        if (fresh < 0 || fresh == trial->state) {
            continue;
        }
        if (!lowered(model, move->level, trial->limits, model->bytes[fresh][trial->tensor], &left)) {
            continue;
        }
        const int view = move->view && fresh == move->seen[trial->state];
        const double own = trial->own + model->cost[fresh][trial->tensor];
        if (own + bound(model, space, trial->tuple, trial->shape, left) + (view ? 0 : copies) <= budget) {
            move_edge(state, number, trial, step, fresh, own, left, view, budget);
        }
    }
}

static void move_edges(State *state, uint32_t number, double budget) {
    const Model *model = state->model;
    const SubproblemTable table = *table_at(state, &state->nodes[number]);
    const Space *space = &model->space[table.space];
    const int32_t shape = (int32_t)state->nodes[number].shape;
    for (int operand = 0; operand < space->operands; ++operand) {
        const int32_t own = states_at(state, &state->nodes[number])[operand];
        const int32_t *first = space->move_first + operand * model->classes + model->cls[own];
        for (int32_t which = first[0]; which < first[1]; ++which) {
            const MoveClass *move = &space->move[which];
            Trial trial = {.move = move,
                           .which = (uint32_t)which,
                           .operand = operand,
                           .state = own,
                           .tensor = space->tensor[operand][shape],
                           .tuple = tuple_after(model, space, table.tuple, operand, move->cls),
                           .shape = shape,
                           .limits = state->nodes[number].limits};
            trial.own = model->cost[own][trial.tensor];
            if (trial.tuple >= 0) {
                try_moves(state, number, &trial, budget);
            }
        }
    }
}

static void extra_edges(State *state, uint32_t number, double budget) {
    for (uint32_t at = expansion_of(state, &state->nodes[number])->extra; at; at = state->extras[at].next) {
        const Extra *extra = &state->extras[at];
        Hyperedge edge = new_edge(state, EXTRA, at, 0, extra->priority, extra->own);
        for (uint32_t part = 0; part < extra->parts; ++part) {
            add_part(state, &edge, extra->part[part].node, state->times[extra->part[part].times]);
        }
        keep_edge(state, &edge, budget);
    }
}

static int by_low_and_priority(const void *one, const void *other) {
    const Hyperedge *a = one, *b = other;
    if (a->low != b->low) {
        return a->low < b->low ? -1 : 1;
    }
    return (a->priority > b->priority) - (a->priority < b->priority);
}

/* Generate all edges of a node whose bounds are within the budget, the lowest first. */
void generate(State *state, uint32_t number, double budget) {
    /* An infinite cost marks an impossible step, which no budget covers. */
    const double most = fmin(budget, DBL_MAX);
    state->new_edges_count = state->new_parts_count = 0;
    kernel_edges(state, number, most);
    loop_edges(state, number, most);
    pipeline_edges(state, number, most);
    move_edges(state, number, most);
    extra_edges(state, number, most);
    closure_edges(state, number, most);
    drop_edges(state, &state->nodes[number]);
    Expansion *own = expand(state, number);
    const size_t edges = state->new_edges_count * sizeof(Hyperedge), parts = state->new_parts_count * sizeof(Part);
    if (edges) {
        qsort(state->new_edges, state->new_edges_count, sizeof(Hyperedge), by_low_and_priority);
        own->edges = malloc(edges + parts);
        if (!own->edges) {
            longjmp(state->failure, NO_MEMORY);
        }
        own->parts = (Part *)(void *)(own->edges + state->new_edges_count);
        memcpy(own->edges, state->new_edges, edges);
        if (parts) {
            memcpy(own->parts, state->new_parts, parts);
        }
    }
    own->count = state->new_edges_count;
    own->reach = budget;
    ++state->progress.expansions;
    state->progress.hyperedges += own->count;
}
