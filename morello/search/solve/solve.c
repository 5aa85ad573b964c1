/* Recursive best-first search with memory [Korf1993]: expand the edge of a node with the lowest bound until another
 * edge has a lower one or the bound exceeds the budget.
 *
 * The `low` of a node rises to the lowest bound of its edges, its `high` falls to the cheapest program found; it is
 * solved when they meet. Bounds stay with the node, so returning to it is cheap. The recursion has a stack of its own:
 * search can pause anywhere, and depth is limited by memory only.
 */
#include "state.h"

/* The largest patience: a search for any program, rather than a proof, should switch edges rarely. */
#define HASTE 0.1
/* Edges are generated for budgets this much larger than needed, since budgets rise in small steps. */
#define AHEAD 1.05

double edge_low(const State *state, const Node *node, const Hyperedge *edge) {
    double total = edge->own;
    const Part *first = expansion_of(state, node)->parts + edge->first;
    for (const Part *part = first; part < first + edge->parts; ++part) {
        total += state->times[part->times] * state->nodes[part->node].low;
    }
    return total;
}

double edge_high(const State *state, const Node *node, const Hyperedge *edge) {
    double total = edge->own;
    const Part *first = expansion_of(state, node)->parts + edge->first;
    for (const Part *part = first; part < first + edge->parts; ++part) {
        total += state->times[part->times] * state->nodes[part->node].high;
    }
    return total;
}

void start(State *state, uint32_t number, double budget) {
    *PUSH(state, frames) = (Frame){.budget = budget, .node = number};
    state->nodes[number].flags |= ON_PATH;
    if (state->frames_count > state->progress.depth) {
        state->progress.depth = state->frames_count;
    }
}

static void leave(State *state) {
    Node *node = &state->nodes[state->frames[--state->frames_count].node];
    node->flags &= ~(uint32_t)ON_PATH;
    if (solved(node)) {
        drop_edges(state, node);
    }
}

void release(State *state) {
    if (state->abstract) {
        release(state->abstract);
    }
    while (state->frames_count) {
        leave(state);
    }
}

/* Push a part on the stack. */
static int enter(State *state, uint32_t number, double budget) {
    if (state->nodes[number].flags & ON_PATH) {
        state->progress.waiting = number;
        return CIRCLE;
    }
    start(state, number, budget);
    return GOING_ON;
}

/* Recall earlier answers to a node. Return GOING_ON, or what Python has to provide. */
static int look_up(State *state, uint32_t number) {
    Node *node = &state->nodes[number];
    const SubproblemTable *table = table_at(state, node);
    state->progress.waiting = number;
    if (!table->answers) {
        return NEEDS_ANSWERS;
    }
    node->flags |= LOOKED_UP;
    const int settled = table->answers == 1 || recall(state, number, &state->recalls[table->answers - 2]);
    return settled ? GOING_ON : NEEDS_ASSUMPTION;
}

/* Store the program that the parts of an edge have, if it is the cheapest so far. */
static void adopt(State *state, uint32_t number, const Hyperedge *edge) {
    const Node *node = &state->nodes[number];
    const double high = edge_high(state, node, edge);
    if (high >= node->high) {
        return;
    }
    uint32_t parts[edge->parts + 1];
    uint64_t peaks[edge->parts + 1];
    for (int part = 0; part < edge->parts; ++part) {
        parts[part] = expansion_of(state, node)->parts[edge->first + (uint32_t)part].node;
        peaks[part] = expansion_of(state, &state->nodes[parts[part]])->peak;
    }
    uint64_t peak = peak_of(state, number, edge, parts, peaks);
    if (peak != UNKNOWN_PEAK) {
        peak &= table_at(state, node)->relevant;
    }
    *PUSH(state, found) =
        (Found){.priority = edge->priority, .first = state->found_parts_count, .parts = edge->parts};
    for (int part = 0; part < edge->parts; ++part) {
        *PUSH(state, found_parts) = parts[part];
    }
    for (int part = 0; part < edge->parts; ++part) {
        *PUSH(state, found_parts) = expansion_of(state, &state->nodes[parts[part]])->best;
    }
    tighten(state, number, 0, high, peak, state->found_count);
}

/* Move the edge with the lowest current bound to the front. Return that bound. */
static double settle_front(State *state, uint32_t number) {
    const Node *node = &state->nodes[number];
    Expansion *own = &state->expansions[node->expansion];
    while (own->count) {
        Hyperedge front = own->edges[0];
        const double low = edge_low(state, node, &front);
        if (low <= front.low) {
            return front.low;
        }
        front.low = low;
        uint32_t place = 0;
        while (place + 1 < own->count && (own->edges[place + 1].low < low ||
               (own->edges[place + 1].low == low && own->edges[place + 1].priority < front.priority))) {
            own->edges[place] = own->edges[place + 1];
            ++place;
        }
        if (low == INFINITY) {
            --own->count;
            memmove(own->edges + place, own->edges + place + 1, (own->count - place) * sizeof front);
        } else {
            own->edges[place] = front;
        }
    }
    return INFINITY;
}

/* Return the unfinished part of an edge that adds the most to its cost, NULL if all are finished. */
static const Part *heaviest(const State *state, const Node *node, const Hyperedge *edge) {
    const Part *found = NULL;
    double most = -1;
    const Part *first = expansion_of(state, node)->parts + edge->first;
    for (const Part *part = first; part < first + edge->parts; ++part) {
        const Node *below = &state->nodes[part->node];
        const double cost = done(state, below) ? -1 : state->times[part->times] * below->low;
        if (cost > most) {
            most = cost;
            found = part;
        }
    }
    return found;
}

/* Push the heaviest part of the front edge, within the budget at which another edge has a lower bound. */
static int descend(State *state, uint32_t number, double budget) {
    const Node *node = &state->nodes[number];
    const Expansion *own = expansion_of(state, node);
    const Hyperedge *front = &own->edges[0];
    const Part *part = heaviest(state, node, front);
    if (!part) {
        /* Sums of costs within the slack are within it too, except for rounding. */
        state->slack = done(state, node) ? state->slack : 1;
        return GOING_ON;
    }
    const double least = state->nodes[part->node].low, times = state->times[part->times];
    const double most = fmin(budget, node->high);
    const double second = own->count > 1 ? own->edges[1].low : INFINITY;
    const double patience = fmin(fmax((state->slack - 1) / 10, state->patience), HASTE);
    const double until = fmin(most, fmin(second, own->reach + 1));
    double below = fmax(least + floor((until - front->low) / times), floor(least * (1 + patience)));
    below = fmin(below, least + floor((most - front->low) / times));
    /* Beyond EXACT, sums are not exact: only whether a program exists is left to decide. */
    return enter(state, part->node, below < EXACT ? below : INFINITY);
}

/* Solve the parts of every edge, whatever its cost. */
static int visit_every(State *state, Frame *frame) {
    const Node *node = &state->nodes[frame->node];
    while (frame->entered - 1 < expansion_of(state, node)->count) {
        const Hyperedge *edge = &expansion_of(state, node)->edges[frame->entered - 1];
        const Part *part = heaviest(state, node, edge);
        if (part) {
            return enter(state, part->node, INFINITY);
        }
        adopt(state, frame->node, edge);
        ++frame->entered;
    }
    tighten(state, frame->node, node->high, INFINITY, UNKNOWN_PEAK, 0);
    return GOING_ON;
}

/* Generate edges somewhat beyond the budget, and up to twice the previous reach where that was not enough. */
static void reach_further(State *state, uint32_t number, double budget) {
    const Node *node = &state->nodes[number];
    double reach = AHEAD * fmax(budget < INFINITY ? budget : 0, node->low);
    reach = fmin(fmax(reach, 1.3 * expansion_of(state, node)->reach), node->high);
    if (state->model->exhaustive || node->low >= EXACT || reach >= EXACT) {
        reach = INFINITY;
    }
    generate(state, number, floor(fmax(reach, node->low)));
}

/* Take one turn on the node on top of the stack. */
static int visit(State *state, int64_t *quota) {
    Frame *frame = &state->frames[state->frames_count - 1];
    const uint32_t number = frame->node;
    const Node *node = &state->nodes[number];
    if (!frame->entered) {
        const int status = node->flags & LOOKED_UP ? GOING_ON : look_up(state, number);
        if (status != GOING_ON) {
            return status;
        }
        frame->entered = 1;
        refresh(state, number);
    }
    if (done(state, node) || node->low > frame->budget) {
        leave(state);
        return GOING_ON;
    }
    if (state->abstract && !(node->flags & ABSTRACTED)) {
        return lookup_abstract(state, number, frame->budget, quota);
    }
    if (state->model->generic && !(node->flags & HAS_EXTRAS)) {
        state->progress.waiting = number;
        return NEEDS_STEPS;
    }
    const double reach = expansion_of(state, node)->reach;
    if (reach < node->low || (state->model->exhaustive && reach < INFINITY)) {
        reach_further(state, number, frame->budget);
        return GOING_ON;
    }
    if (state->model->exhaustive) {
        return visit_every(state, frame);
    }
    if (expansion_of(state, node)->count) {
        adopt(state, number, &expansion_of(state, node)->edges[0]);
    }
    const double least = settle_front(state, number);
    /* Edges beyond the reach are not generated: each costs at least reach + 1. */
    tighten(state, number, fmin(least, reach + 1), INFINITY, UNKNOWN_PEAK, 0);
    if (done(state, node) || node->low > frame->budget || least > reach) {
        return GOING_ON;
    }
    return descend(state, number, frame->budget);
}

/* Go on until the stack is empty, the quota is used up, or Python has to provide something. */
int solve(State *state, int64_t *quota) {
    while (state->frames_count) {
        if (--*quota < 0) {
            return PAUSED;
        }
        ++state->progress.visits;
        const int status = visit(state, quota);
        if (status != GOING_ON) {
            return status;
        }
    }
    return FINISHED;
}
