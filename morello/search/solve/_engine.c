/* The functions that Python calls. */
#include "state.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

/* The digest of the sources: `library.py` searches the installed file for it. */
#ifdef MORELLO_SOURCES
const char engine_sources[] = MORELLO_SOURCES;
#endif

/* Share of a part's cost that is explored beyond the budget before returning: fewer returns for a little extra work.
 * A turn of the abstract search proves less, so its share is larger. */
#define PATIENCE 0.003
#define ABSTRACT_PATIENCE 0.1

/* Add node 0, expansion 0 and extra 0, which stand for "none". */
static int prepare(State *state) {
    const int status = setjmp(state->failure);
    if (!status) {
        *PUSH(state, nodes) = (Node){.flags = SOLVED};
        *PUSH(state, expansions) = (Expansion){.reach = -1, .peak = UNKNOWN_PEAK};
        *PUSH(state, extras) = (Extra){0};
        state->progress.nodes = 1;
        state->slack = 1;
    }
    return status;
}

State *engine_new(const Model *model) {
    State *state = calloc(1, sizeof *state);
    if (state) {
        state->model = model;
        state->abstract = model->abstract ? engine_new(model->abstract) : NULL;
        state->patience = PATIENCE;
        if (state->abstract) {
            state->abstract->patience = ABSTRACT_PATIENCE;
        }
        if ((model->abstract && !state->abstract) || prepare(state)) {
            engine_free(state);
            state = NULL;
        }
    }
    return state;
}

static void free_all(State *state) {
    if (state->abstract) {
        free_all(state->abstract);
    }
    for (uint32_t at = 0; at < state->expansions_count; ++at) {
        free(state->expansions[at].edges);
    }
    for (uint32_t family = 0; family < state->families_count; ++family) {
        free(state->families[family].facts);
    }
    for (uint32_t extra = 0; extra < state->extras_count; ++extra) {
        free(state->extras[extra].part);
        free(state->extras[extra].live);
    }
    void *arrays[] = {state->states, state->tables, state->families, state->nodes, state->expansions, state->times,
                      state->frames, state->extras,
                      state->recalls, state->choices, state->choosing, state->chosen_parts, state->found,
                      state->found_parts, state->new_edges, state->new_parts, state->table_index.at,
                      state->family_index.at, state->node_index.at, state->times_index.at};
    for (size_t at = 0; at < sizeof arrays / sizeof *arrays; ++at) {
        free(arrays[at]);
    }
    free(state);
}

void engine_free(State *state) {
    free_all(state);
#ifdef __GLIBC__
    /* The edges of nodes are millions of small blocks: without this, glibc would keep their memory. */
    malloc_trim(0);
#endif
}

const Progress *engine_progress(const State *state) {
    return &state->progress;
}

uint32_t engine_table(State *state, int32_t space, int32_t tuple, const int32_t *states) {
    if (setjmp(state->failure)) {
        return 0;
    }
    return 1 + table_of(state, space, tuple, states);
}

uint32_t engine_node(State *state, uint32_t table, int32_t shape, uint64_t limits) {
    if (setjmp(state->failure)) {
        return 0;
    }
    return node_within(state, table, shape, limits, INFINITY);
}

const Node *engine_nodes(const State *state) {
    return state->nodes;
}

const double *engine_times(const State *state) {
    return state->times;
}

uint32_t engine_best(const State *state, uint32_t node) {
    return expansion_of(state, &state->nodes[node])->best;
}

int32_t engine_space(const State *state, uint32_t table) {
    return state->tables[table].space;
}

const int32_t *engine_states(const State *state, uint32_t table) {
    return state->states + table * (size_t)state->model->width;
}

int engine_start(State *state, uint32_t node, double budget, double slack) {
    const int status = setjmp(state->failure);
    if (!status) {
        release(state);
        state->slack = slack;
        start(state, node, budget);
    }
    return status;
}

int engine_solve(State *state, int64_t quota) {
    const int status = setjmp(state->failure);
    return status ? status : solve(state, &quota);
}

int engine_lookup(State *state, uint32_t node, double budget, int64_t quota) {
    const int status = setjmp(state->failure);
    if (status) {
        return status;
    }
    return !state->abstract || lookup_abstract(state, node, budget, &quota) == GOING_ON ? FINISHED : PAUSED;
}

ChoiceInfo engine_found(const State *state, uint32_t program) {
    const Found *found = &state->found[program - 1];
    const uint32_t *nodes = state->found_parts + found->first;
    return (ChoiceInfo){found->priority, UNKNOWN_PEAK, found->parts, nodes, nodes + found->parts};
}

void engine_release(State *state) {
    release(state);
    state->choosing_count = 0;
}

int engine_expand(State *state, uint32_t node, double budget) {
    const int status = setjmp(state->failure);
    if (status) {
        return status;
    }
    if (state->model->generic && !(state->nodes[node].flags & HAS_EXTRAS)) {
        state->progress.waiting = node;
        return NEEDS_STEPS;
    }
    generate(state, node, budget);
    return FINISHED;
}

uint32_t engine_steps(const State *state, uint32_t node) {
    return expansion_of(state, &state->nodes[node])->count;
}

StepInfo engine_step(const State *state, uint32_t node, uint32_t index) {
    const Node *own = &state->nodes[node];
    const Hyperedge *edge = &expansion_of(state, own)->edges[index];
    return (StepInfo){.priority = edge->priority,
                      .own = edge->own,
                      .low = edge_low(state, own, edge),
                      .high = edge_high(state, own, edge),
                      .parts = edge->parts,
                      .part = expansion_of(state, own)->parts + edge->first};
}

int engine_add_step(State *state, uint32_t node, int64_t priority, double cost, uint64_t needs, int32_t parts,
                    const uint32_t *part, const double *times, const int64_t *live) {
    const int status = setjmp(state->failure);
    if (status) {
        return status;
    }
    const size_t amounts = (size_t)parts * (size_t)state->model->levels;
    Extra extra = {.priority = priority, .own = cost, .needs = needs, .parts = (uint32_t)parts};
    extra.next = expansion_of(state, &state->nodes[node])->extra;
    extra.part = malloc(((size_t)parts + 1) * sizeof *extra.part);
    extra.live = malloc((amounts + 1) * sizeof *extra.live);
    if (!extra.part || !extra.live) {
        free(extra.part);
        free(extra.live);
        return NO_MEMORY;
    }
    for (int at = 0; at < parts; ++at) {
        extra.part[at] = (Part){.times = times_of(state, times[at]), .node = part[at]};
    }
    memcpy(extra.live, live, amounts * sizeof *live);
    *PUSH(state, extras) = extra;
    expand(state, node)->extra = state->extras_count - 1;
    return FINISHED;
}

void engine_steps_added(State *state, uint32_t node) {
    state->nodes[node].flags |= HAS_EXTRAS;
}

int engine_answers(State *state, uint32_t table, const Answers *answers) {
    const int status = setjmp(state->failure);
    if (status) {
        return status;
    }
    state->tables[table].answers = 1;
    if (answers->count) {
        *PUSH(state, recalls) = *answers;
        state->tables[table].answers = 1 + (int32_t)state->recalls_count;
    }
    return FINISHED;
}

int engine_assume(State *state, uint32_t node, double low, double high) {
    const int status = setjmp(state->failure);
    if (!status) {
        assume(state, node, low, high);
    }
    return status;
}

int engine_tighten(State *state, uint32_t node, double cost) {
    const int status = setjmp(state->failure);
    if (!status && cost < state->nodes[node].high) {
        tighten(state, node, 0, cost, UNKNOWN_PEAK, 0);
    }
    return status;
}
