/* Choose the step of solved nodes: the first in the target's order that leads to a cheapest program. */
#include "state.h"

enum { CHOSEN, NOT_YET, NEVER };

static int by_priority(const void *one, const void *other) {
    const Hyperedge *a = one, *b = other;
    return (a->priority > b->priority) - (a->priority < b->priority);
}

/* Store a choice. Its parts are solved. */
static void note(State *state, uint32_t number, const Hyperedge *edge) {
    const Node *node = &state->nodes[number];
    Choice *choice = PUSH(state, choices);
    *choice = (Choice){.priority = edge->priority, .peak = UNKNOWN_PEAK, .edge = *edge};
    choice->first = state->chosen_parts_count;
    for (int part = 0; part < edge->parts; ++part) {
        const uint32_t below = expansion_of(state, node)->parts[edge->first + (uint32_t)part].node;
        *PUSH(state, chosen_parts) = below;
    }
    expand(state, number)->choice = state->choices_count;
    state->nodes[number].flags &= ~(uint32_t)BY_PRIORITY;
    drop_edges(state, &state->nodes[number]);
}

/* Return an unsolved part of an edge, NULL if all are solved. */
static const Part *open_part(const State *state, const Node *node, const Hyperedge *edge) {
    const Part *first = expansion_of(state, node)->parts + edge->first;
    for (const Part *part = first; part < first + edge->parts; ++part) {
        if (!solved(&state->nodes[part->node])) {
            return part;
        }
    }
    return NULL;
}

/* Choose for one node. Return NOT_YET where a part has to be solved first. */
static int choose(State *state, uint32_t number) {
    const double cost = state->nodes[number].high;
    if (!(state->nodes[number].flags & BY_PRIORITY)) {
        generate(state, number, cost);
        const Expansion *own = expansion_of(state, &state->nodes[number]);
        if (own->count) {
            qsort(own->edges, own->count, sizeof(Hyperedge), by_priority);
        }
        state->nodes[number].flags |= BY_PRIORITY;
    }
    const Node *node = &state->nodes[number];
    const Expansion *own = expansion_of(state, node);
    for (uint32_t at = 0; at < own->count; ++at) {
        const Hyperedge *edge = &own->edges[at];
        const double low = edge_low(state, node, edge);
        if (low > cost) {
            continue;
        }
        const Part *part = open_part(state, node, edge);
        if (!part) {
            note(state, number, edge);
            return CHOSEN;
        }
        if (!state->settle) {
            return NEVER;
        }
        start(state, part->node, state->nodes[part->node].low + floor((cost - low) / state->times[part->times]));
        return NOT_YET;
    }
    return NEVER;
}

/* Return a part of a chosen step that this pass has not visited, 0 if it has visited all. */
static uint32_t next_part(State *state, const Choice *choice) {
    for (int part = 0; part < choice->edge.parts; ++part) {
        const uint32_t below = state->chosen_parts[choice->first + (uint32_t)part];
        const Expansion *own = expansion_of(state, &state->nodes[below]);
        const int whole = own->choice && state->choices[own->choice - 1].whole;
        if (!whole && own->pass != state->pass) {
            return below;
        }
    }
    return 0;
}

/* Store the peak of a chosen program, after those of its parts. */
static void finish(State *state, uint32_t number) {
    Choice *choice = &state->choices[expansion_of(state, &state->nodes[number])->choice - 1];
    uint64_t peaks[choice->edge.parts + 1];
    choice->whole = 1;
    for (int part = 0; part < choice->edge.parts; ++part) {
        const Node *node = &state->nodes[state->chosen_parts[choice->first + (uint32_t)part]];
        const uint32_t chosen = expansion_of(state, node)->choice;
        const Choice *below = chosen ? &state->choices[chosen - 1] : NULL;
        choice->whole &= below && below->whole;
        peaks[part] = below ? below->peak : UNKNOWN_PEAK;
    }
    choice->peak = peak_of(state, number, &choice->edge, state->chosen_parts + choice->first, peaks);
}

/* Take one turn on the node on top of the stack. */
static int turn(State *state) {
    const uint32_t number = state->choosing[state->choosing_count - 1];
    Node *node = &state->nodes[number];
    const uint32_t chosen = expansion_of(state, node)->choice;
    if (chosen) {
        Choice *choice = &state->choices[chosen - 1];
        const uint32_t below = choice->whole ? 0 : next_part(state, choice);
        if (below) {
            *PUSH(state, choosing) = below;
            return FINISHED;
        }
        if (!choice->whole) {
            finish(state, number);
        }
    } else if (solved(node) && node->high < INFINITY) {
        if (node->flags & RECALLED) {
            state->progress.waiting = number;
            return NEEDS_PROGRAM;
        }
        if (state->model->generic && !(node->flags & HAS_EXTRAS)) {
            state->progress.waiting = number;
            return NEEDS_STEPS;
        }
        const int outcome = choose(state, number);
        if (outcome != NEVER) {
            return FINISHED;
        }
        if (state->settle) {
            state->progress.waiting = number;
            return CONTRADICTION;
        }
        node = &state->nodes[number];
        node->flags &= ~(uint32_t)BY_PRIORITY;
        drop_edges(state, node);
    }
    expand(state, number)->pass = state->pass;
    --state->choosing_count;
    return FINISHED;
}

int engine_choice(State *state, uint32_t node, int32_t settle) {
    const int status = setjmp(state->failure);
    if (status) {
        return status;
    }
    release(state);
    state->slack = 1;
    state->settle = settle;
    state->choosing_count = 0;
    ++state->pass;
    *PUSH(state, choosing) = node;
    return FINISHED;
}

int engine_choose(State *state, int64_t quota) {
    int status = setjmp(state->failure);
    if (status) {
        return status;
    }
    while (state->choosing_count) {
        status = solve(state, &quota);
        if (status == FINISHED) {
            status = --quota < 0 ? PAUSED : turn(state);
        }
        if (status != FINISHED) {
            return status;
        }
    }
    return FINISHED;
}

ChoiceInfo engine_chosen(const State *state, uint32_t node) {
    const uint32_t at = expansion_of(state, &state->nodes[node])->choice;
    if (!at) {
        return (ChoiceInfo){.priority = -1, .peak = UNKNOWN_PEAK};
    }
    const Choice *choice = &state->choices[at - 1];
    return (ChoiceInfo){choice->priority, choice->peak, choice->edge.parts, state->chosen_parts + choice->first, NULL};
}

/* Drop a recalled program and the choice of a node. */
void engine_forget(State *state, uint32_t node) {
    state->nodes[node].flags &= ~(uint32_t)RECALLED;
    if (state->nodes[node].expansion) {
        state->expansions[state->nodes[node].expansion].choice = 0;
    }
}

int engine_set_program(State *state, uint32_t node, int32_t known, uint64_t peak) {
    const int status = setjmp(state->failure);
    if (!status && known) {
        *PUSH(state, choices) = (Choice){.priority = -2, .peak = peak, .whole = 1};
        expand(state, node)->choice = state->choices_count;
    } else if (!status) {
        engine_forget(state, node);
    }
    return status;
}
