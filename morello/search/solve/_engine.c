/* What Python can ask of a search. */
#include "state.h"

/* The digest of what the library that is installed was built of: `library.py` looks for it in the file. */
#ifdef MORELLO_SOURCES
const char engine_sources[] = MORELLO_SOURCES;
#endif

/* Fewer changes of mind, for a little work too many: more of that where a turn finds out less. */
#define PATIENCE 0.003
#define ABSTRACT_PATIENCE 0.1

/* Enter cell 0, which stands for "none", and extra 0, which does so too. */
static int prepare(State *state) {
    const int status = setjmp(state->failure);
    if (!status) {
        *PUSH(state, cells) = (Cell){.flags = SOLVED};
        *PUSH(state, extras) = (Extra){0};
        state->progress.cells = 1;
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

void engine_free(State *state) {
    if (state->abstract) {
        engine_free(state->abstract);
    }
    for (uint32_t cell = 0; cell < state->cells_count; ++cell) {
        drop_edges(&state->cells[cell]);
    }
    for (uint32_t node = 0; node < state->nodes_count; ++node) {
        free(state->nodes[node].facts);
    }
    for (uint32_t extra = 0; extra < state->extras_count; ++extra) {
        free(state->extras[extra].part);
        free(state->extras[extra].live);
    }
    void *arrays[] = {state->states, state->tables, state->nodes, state->cells, state->frames, state->extras,
                      state->recalls, state->choices, state->choosing, state->chosen_parts, state->found,
                      state->found_parts, state->new_edges, state->new_parts, state->table_index.at,
                      state->node_index.at, state->cell_index.at};
    for (size_t at = 0; at < sizeof arrays / sizeof *arrays; ++at) {
        free(arrays[at]);
    }
    free(state);
}

const Progress *engine_progress(const State *state) {
    return &state->progress;
}

/* Return 1 + the number of a table, 0 where there is no memory. */
uint32_t engine_table(State *state, int32_t space, int32_t tuple, const int32_t *states) {
    if (setjmp(state->failure)) {
        return 0;
    }
    return 1 + table_of(state, space, tuple, states);
}

uint32_t engine_cell(State *state, uint32_t table, int32_t shape, uint64_t limits) {
    if (setjmp(state->failure)) {
        return 0;
    }
    return cell_of(state, table, shape, limits);
}

void engine_cells(const State *state, uint32_t from, uint32_t count, uint32_t *table, int32_t *shape,
                  uint64_t *limits, double *low, double *high, uint8_t *flags) {
    for (uint32_t at = 0; at < count; ++at) {
        const Cell *cell = &state->cells[from + at];
        table[at] = cell->table;
        shape[at] = (int32_t)cell->shape;
        limits[at] = cell->limits;
        low[at] = cell->low;
        high[at] = cell->high;
        flags[at] = (uint8_t)cell->flags;
    }
}

double engine_low(const State *state, uint32_t cell) {
    return state->cells[cell].low;
}

double engine_high(const State *state, uint32_t cell) {
    return state->cells[cell].high;
}

void engine_states(const State *state, uint32_t table, int32_t *space, int32_t *states) {
    const size_t width = (size_t)state->model->width;
    *space = state->tables[table].space;
    memcpy(states, state->states + table * width, width * sizeof *states);
}

int engine_begin(State *state, uint32_t cell, double budget, double slack) {
    const int status = setjmp(state->failure);
    if (!status) {
        abandon(state);
        state->slack = slack;
        begin(state, cell, budget);
    }
    return status;
}

int engine_run(State *state, int64_t quota) {
    const int status = setjmp(state->failure);
    return status ? status : run(state, &quota);
}

int engine_consult(State *state, uint32_t cell, double budget, int64_t quota) {
    const int status = setjmp(state->failure);
    if (status) {
        return status;
    }
    return !state->abstract || consult(state, cell, budget, &quota) == GOING_ON ? FINISHED : PAUSED;
}

uint32_t engine_best(const State *state, uint32_t cell) {
    return state->cells[cell].best;
}

void engine_found(const State *state, uint32_t program, ChoiceInfo *info) {
    const Found *found = &state->found[program - 1];
    *info = (ChoiceInfo){.priority = found->priority, .peak = UNKNOWN_PEAK, .parts = found->parts};
}

void engine_found_parts(const State *state, uint32_t program, uint32_t *cells, uint32_t *programs) {
    const Found *found = &state->found[program - 1];
    memcpy(cells, state->found_parts + found->first, found->parts * sizeof *cells);
    memcpy(programs, state->found_parts + found->first + found->parts, found->parts * sizeof *programs);
}

void engine_stop(State *state) {
    abandon(state);
    state->choosing_count = 0;
}

int engine_expand(State *state, uint32_t cell, double budget, uint32_t *count) {
    const int status = setjmp(state->failure);
    if (status) {
        return status;
    }
    if (state->model->unknown && !(state->cells[cell].flags & HAS_EXTRAS)) {
        state->progress.waiting = cell;
        return ASKS_STEPS;
    }
    generate(state, cell, budget);
    *count = state->cells[cell].count;
    return FINISHED;
}

void engine_step(const State *state, uint32_t cell, uint32_t index, StepInfo *info) {
    const Cell *own = &state->cells[cell];
    const Edge *edge = &own->edges[index];
    *info = (StepInfo){.priority = edge->priority,
                       .own = edge->own,
                       .low = edge_low(state, own, edge),
                       .high = edge_high(state, own, edge),
                       .parts = edge->parts};
}

void engine_step_parts(const State *state, uint32_t cell, uint32_t index, uint32_t *parts, double *times) {
    const Edge *edge = &state->cells[cell].edges[index];
    for (int at = 0; at < edge->parts; ++at) {
        const Part *part = &state->cells[cell].parts[edge->first + (uint32_t)at];
        parts[at] = part->cell;
        times[at] = part->times;
    }
}

int engine_add_step(State *state, uint32_t cell, int64_t priority, double cost, uint64_t needs, int32_t parts,
                    const uint32_t *part, const double *times, const int64_t *live) {
    const int status = setjmp(state->failure);
    if (status) {
        return status;
    }
    const size_t lanes = (size_t)parts * (size_t)state->model->levels;
    Extra extra = {.priority = priority, .own = cost, .needs = needs, .parts = (uint32_t)parts};
    extra.next = state->cells[cell].extra;
    extra.part = malloc(((size_t)parts + 1) * sizeof *extra.part);
    extra.live = malloc((lanes + 1) * sizeof *extra.live);
    if (!extra.part || !extra.live) {
        free(extra.part);
        free(extra.live);
        return NO_MEMORY;
    }
    for (int at = 0; at < parts; ++at) {
        extra.part[at] = (Part){.times = times[at], .cell = part[at]};
    }
    memcpy(extra.live, live, lanes * sizeof *live);
    *PUSH(state, extras) = extra;
    state->cells[cell].extra = state->extras_count - 1;
    return FINISHED;
}

void engine_steps_added(State *state, uint32_t cell) {
    state->cells[cell].flags |= HAS_EXTRAS;
}

int engine_answers(State *state, uint32_t table, const Answers *answers) {
    const int status = setjmp(state->failure);
    if (status) {
        return status;
    }
    state->tables[table].asked = 1;
    if (answers->count) {
        *PUSH(state, recalls) = *answers;
        state->tables[table].asked = 1 + (int32_t)state->recalls_count;
    }
    return FINISHED;
}

void engine_believe(State *state, uint32_t cell, double low, double high) {
    believe(state, cell, low, high);
}

int engine_know(State *state, uint32_t cell, double cost) {
    const int status = setjmp(state->failure);
    if (!status && cost < state->cells[cell].high) {
        learn(state, cell, 0, cost, UNKNOWN_PEAK, 0);
    }
    return status;
}
