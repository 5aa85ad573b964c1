/* The abstract search: patterns replace operand states, and memory is unlimited. No Spec costs less than its
 * abstraction.
 *
 * It is a search with a state of its own. It solves the abstraction of a Spec just before that Spec is expanded, and
 * stops as soon as the Spec provably costs more than its budget.
 */
#include "state.h"

/* Expansions without a rise of the bound after which a lookup ends. */
#define STALLED 65536

/* Return the pattern of a state of a tensor. */
int32_t pattern_of(const Model *model, int32_t state, int32_t tensor) {
    const int32_t pattern = model->pattern[state];
    const int32_t join = model->join[pattern];
    return join != pattern && model->joined[pattern][tensor] ? join : pattern;
}

/* Add an edge for each pattern that any number of moves can give one operand, its own among them. The parts are in the
 * space where that operand moves no more. */
void closure_edges(State *state, uint32_t number, double budget) {
    const Model *model = state->model;
    const SubproblemTable table = *table_at(state, &state->nodes[number]);
    const Space *space = &model->space[table.space];
    if (space->closed_operand < 0) {
        return;
    }
    const TransitionClosure *closure = &space->closure;
    const int32_t shape = (int32_t)state->nodes[number].shape;
    int32_t states[model->width];
    memcpy(states, states_at(state, &state->nodes[number]), sizeof states);
    const int32_t tensor = space->tensor[space->closed_operand][shape];
    const int32_t place = closure->place[pattern_of(model, states[space->closed_operand], tensor)];
    if (place < 0) {
        return;
    }
    const int64_t row = (int64_t)closure->row[shape] * closure->places + place;
    for (int64_t at = closure->first[row]; at < closure->first[row + 1] && closure->cost[at] <= budget; ++at) {
        const int32_t cls = model->cls[closure->into[at]];
        const int32_t tuple = tuple_after(model, space, table.tuple, space->closed_operand, cls);
        if (tuple < 0 || closure->cost[at] + bound(model, space, tuple, shape, model->full) > budget) {
            continue;
        }
        states[space->closed_operand] = closure->into[at];
        Hyperedge edge = new_edge(state, CLOSURE, 0, 0, at - closure->first[row], closure->cost[at]);
        const uint32_t below = table_of(state, closure->space, tuple, states);
        add_new_part(state, &edge, below, shape, model->full, 1, budget);
        keep_edge(state, &edge, budget);
    }
}

/* Return the abstract node of a node. */
static uint32_t abstraction(State *state, uint32_t number) {
    const Model *model = state->model;
    Family *family = family_at(state, number);
    if (family->abstract) {
        return family->abstract;
    }
    const SubproblemTable *table = &state->tables[family->table];
    const Space *space = &model->space[table->space];
    const int32_t *states = state->states + (size_t)family->table * (size_t)model->width;
    int32_t patterns[model->width];
    for (int operand = 0; operand < space->operands; ++operand) {
        patterns[operand] = pattern_of(model, states[operand], space->tensor[operand][family->shape]);
    }
    const uint32_t below = table_of(state->abstract, table->space, table->tuple, patterns);
    family->abstract = node_within(state->abstract, below, (int32_t)family->shape, model->abstract->full, INFINITY);
    return family->abstract;
}

/* Raise the bound of a node by the abstract search until it exceeds the budget, is exact for the abstraction, or has not
 * risen for long. */
int lookup_abstract(State *state, uint32_t number, double budget, int64_t *quota) {
    State *abstract = state->abstract;
    if (setjmp(abstract->failure)) {
        longjmp(state->failure, NO_MEMORY);
    }
    /* The abstract search counts this turn. */
    ++*quota;
    const uint32_t below = abstraction(state, number);
    /* The node of the previous lookup may be solved by now, through bounds of others. */
    if (abstract->frames_count && (abstract->frames[0].node != below || abstract->frames[0].budget != budget)) {
        release(abstract);
    }
    if (!abstract->frames_count) {
        start(abstract, below, budget);
        state->lookup_low = -1;
    }
    const int status = solve(abstract, quota);
    if (abstract->nodes[below].low > state->lookup_low) {
        state->lookup_low = abstract->nodes[below].low;
        state->lookup_risen = abstract->progress.expansions;
    }
    state->progress.abstract_nodes = abstract->nodes_count - 1;
    state->progress.abstract_expansions = abstract->progress.expansions;
    /* Also while it is paused, so that the bound of the goal rises in the meantime. */
    tighten(state, number, abstract->nodes[below].low, INFINITY, UNKNOWN_PEAK, 0);
    if (status == PAUSED && abstract->progress.expansions - state->lookup_risen < STALLED) {
        return PAUSED;
    }
    /* Without limits of memory, steps may form a circle: then the bound stays as it is. */
    release(abstract);
    state->nodes[number].flags |= ABSTRACTED;
    return GOING_ON;
}
