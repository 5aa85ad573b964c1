/* The abstract search: of patterns for states, without limits of memory. No Spec costs less than its abstraction.
 *
 * It is a search like any other, in cells of its own, which are looked into only where the search of Specs is about to,
 * and no further than to show that a Spec costs more than its budget.
 */
#include "state.h"

/* Return the pattern of a state of a tensor. */
int32_t pattern_of(const Model *model, int32_t state, int32_t tensor) {
    const int32_t pattern = model->pattern[state];
    const int32_t either = model->either[pattern];
    return either != pattern && model->blurred[pattern][tensor] ? either : pattern;
}

/* Take all that one operand can become, itself among it, to where it is not changed any more. */
void change_edges(State *state, uint32_t number, double budget) {
    const Model *model = state->model;
    const Table table = *table_at(state, &state->cells[number]);
    const Space *space = &model->space[table.space];
    if (space->changes < 0) {
        return;
    }
    const Changes *change = &space->change;
    const int32_t shape = (int32_t)state->cells[number].shape;
    int32_t states[model->width];
    memcpy(states, states_at(state, &state->cells[number]), sizeof states);
    const int32_t tensor = space->tensor[space->changes][shape];
    const int32_t place = change->place[pattern_of(model, states[space->changes], tensor)];
    if (place < 0) {
        return;
    }
    const int64_t row = (int64_t)change->row[shape] * change->places + place;
    for (int64_t at = change->first[row]; at < change->first[row + 1] && change->cost[at] <= budget; ++at) {
        const int32_t tuple = tuple_after(model, space, table.tuple, space->changes, model->cls[change->into[at]]);
        if (tuple < 0 || change->cost[at] + bound(model, space, tuple, shape, model->full) > budget) {
            continue;
        }
        states[space->changes] = change->into[at];
        Edge edge = new_edge(state, CHANGE, 0, 0, at - change->first[row], change->cost[at]);
        add_part(state, &edge, cell_of(state, table_of(state, change->space, tuple, states), shape, model->full), 1);
        keep_edge(state, &edge, budget);
    }
}

/* Return an abstract cell of a node: of the patterns of its states or, where it has patterns, of one of these alone. */
static uint32_t abstraction(State *state, uint32_t number, int kept) {
    const Model *model = state->model;
    const Node *node = &state->nodes[number];
    if (node->abstract) {
        return node->abstract;
    }
    const Table *table = &state->tables[node->table];
    const Space *space = &model->space[table->space];
    const int32_t *states = state->states + (size_t)node->table * (size_t)model->width;
    int32_t patterns[model->width];
    for (int operand = 0; operand < space->operands; ++operand) {
        const int32_t own = states[operand];
        patterns[operand] = !model->any ? pattern_of(model, own, space->tensor[operand][node->shape])
                            : operand == kept ? own : model->any[own];
    }
    const uint32_t below = table_of(state->abstract, model->abstract_space[table->space], table->tuple, patterns);
    const uint32_t found = cell_of(state->abstract, below, (int32_t)node->shape, model->abstract->full);
    if (!model->any) {
        state->nodes[number].abstract = found;
    }
    return found;
}

/* Have the abstract search look into one abstract cell. Return how that ended. */
static int look_into(State *state, uint32_t number, uint32_t below, double budget, int64_t *quota) {
    State *abstract = state->abstract;
    /* The Spec that it was asked of before may be done with by what was learnt on the way. */
    if (abstract->frames_count && (abstract->frames[0].cell != below || abstract->frames[0].budget != budget)) {
        abandon(abstract);
    }
    if (!abstract->frames_count) {
        begin(abstract, below, budget);
    }
    const int status = run(abstract, quota);
    state->progress.abstract_cells = abstract->cells_count - 1 + abstract->progress.abstract_cells;
    state->progress.abstract_expansions = abstract->progress.expansions + abstract->progress.abstract_expansions;
    /* While that takes long, too, so that what is found out of the goal is told. */
    learn(state, number, abstract->cells[below].low, INFINITY, UNKNOWN_PEAK, 0);
    if (status != PAUSED) {
        /* Where memory alone keeps steps from going round and round, there is no more to learn. */
        abandon(abstract);
    }
    return status;
}

/* Learn from the abstract search that a Spec costs more than the budget, or all that it knows. */
int consult(State *state, uint32_t number, double budget, int64_t *quota) {
    if (setjmp(state->abstract->failure)) {
        longjmp(state->failure, NO_MEMORY);
    }
    const int stages = state->model->any ? state->model->space[table_at(state, &state->cells[number])->space].alone : 1;
    if (state->consulted != number || state->consulted_within != budget) {
        state->consulted = number;
        state->consulted_within = budget;
        state->consulted_for = 0;
    }
    /* The turn that this takes is the abstract search's. */
    ++*quota;
    for (; state->consulted_for < stages; ++state->consulted_for) {
        const uint32_t below = abstraction(state, state->cells[number].node, state->consulted_for);
        const int status = look_into(state, number, below, budget, quota);
        if (status == PAUSED) {
            return PAUSED;
        }
        if (status == FINISHED && state->abstract->cells[below].low > budget) {
            return GOING_ON;
        }
    }
    state->cells[number].flags |= ABSTRACTED;
    return GOING_ON;
}
