/* Recursive best-first search with memory [Korf1993]: of each cell the cheapest step is looked into, as long as no
 * other seems cheaper, within a budget that says when to come back.
 *
 * A cell's `low` rises to what its most promising edge costs at least, `high` falls to the programs that are found, and
 * when they meet it is solved. What is learnt stays with the cell, so to come back costs next to nothing. The way down
 * is a stack of its own: search can pause anywhere, and no problem is too deep.
 */
#include "state.h"

/* To look for any program, rather than for a proof, it is better not to change one's mind too often. */
#define HASTE 0.1
/* Edges are made for budgets this much larger than asked for, as budgets rise in small steps. */
#define AHEAD 1.2


double edge_low(const State *state, const Cell *cell, const Edge *edge) {
    double total = edge->own;
    for (const Part *part = cell->parts + edge->first; part < cell->parts + edge->first + edge->parts; ++part) {
        total += part->times * state->cells[part->cell].low;
    }
    return total;
}

double edge_high(const State *state, const Cell *cell, const Edge *edge) {
    double total = edge->own;
    for (const Part *part = cell->parts + edge->first; part < cell->parts + edge->first + edge->parts; ++part) {
        total += part->times * state->cells[part->cell].high;
    }
    return total;
}

void begin(State *state, uint32_t number, double budget) {
    *PUSH(state, frames) = (Frame){.budget = budget, .cell = number};
    state->cells[number].flags |= ON_PATH;
    if (state->frames_count > state->progress.depth) {
        state->progress.depth = state->frames_count;
    }
}

static void leave(State *state) {
    Cell *cell = &state->cells[state->frames[--state->frames_count].cell];
    cell->flags &= ~(uint32_t)ON_PATH;
    if (solved(cell)) {
        drop_edges(cell);
    }
}

void abandon(State *state) {
    if (state->abstract) {
        abandon(state->abstract);
    }
    while (state->frames_count) {
        leave(state);
    }
}

/* Go down to a part. */
static int enter(State *state, uint32_t number, double budget) {
    if (state->cells[number].flags & ON_PATH) {
        state->progress.waiting = number;
        return CIRCLE;
    }
    begin(state, number, budget);
    return GOING_ON;
}

/* Learn what is known from earlier of a cell; return what has to be asked for that, else GOING_ON. */
static int look_up(State *state, uint32_t number) {
    Cell *cell = &state->cells[number];
    const Table *table = table_at(state, cell);
    state->progress.waiting = number;
    if (!table->asked) {
        return ASKS_ANSWERS;
    }
    cell->flags |= LOOKED_UP;
    return table->asked == 1 || recall(state, number, &state->recalls[table->asked - 2]) ? GOING_ON : ASKS_BELIEF;
}

/* Take the programs that an edge is known to lead to. */
static void adopt(State *state, uint32_t number, const Edge *edge) {
    const Cell *cell = &state->cells[number];
    const double high = edge_high(state, cell, edge);
    if (high >= cell->high) {
        return;
    }
    uint32_t parts[edge->parts + 1];
    uint64_t peaks[edge->parts + 1];
    for (int part = 0; part < edge->parts; ++part) {
        parts[part] = cell->parts[edge->first + (uint32_t)part].cell;
        peaks[part] = state->cells[parts[part]].peak;
    }
    uint64_t peak = peak_of(state, number, edge, parts, peaks);
    if (peak != UNKNOWN_PEAK) {
        peak &= table_at(state, cell)->relevant;
    }
    *PUSH(state, found) =
        (Found){.priority = edge->priority, .first = state->found_parts_count, .parts = edge->parts};
    for (int part = 0; part < edge->parts; ++part) {
        *PUSH(state, found_parts) = parts[part];
    }
    for (int part = 0; part < edge->parts; ++part) {
        *PUSH(state, found_parts) = state->cells[parts[part]].best;
    }
    learn(state, number, 0, high, peak, state->found_count);
}

/* Bring the edge to the front that costs the least by what is known by now. Return that cost. */
static double settle_front(State *state, uint32_t number) {
    Cell *cell = &state->cells[number];
    while (cell->count) {
        Edge front = cell->edges[0];
        const double low = edge_low(state, cell, &front);
        if (low <= front.low) {
            return front.low;
        }
        front.low = low;
        uint32_t place = 0;
        while (place + 1 < cell->count && (cell->edges[place + 1].low < low ||
               (cell->edges[place + 1].low == low && cell->edges[place + 1].priority < front.priority))) {
            cell->edges[place] = cell->edges[place + 1];
            ++place;
        }
        if (low == INFINITY) {
            --cell->count;
            memmove(cell->edges + place, cell->edges + place + 1, (cell->count - place) * sizeof front);
        } else {
            cell->edges[place] = front;
        }
    }
    return INFINITY;
}

/* Return the part of an edge that is not done with and adds the most to its cost, NULL if there is none. */
static const Part *heaviest(const State *state, const Cell *cell, const Edge *edge) {
    const Part *found = NULL;
    double most = -1;
    for (const Part *part = cell->parts + edge->first; part < cell->parts + edge->first + edge->parts; ++part) {
        const Cell *below = &state->cells[part->cell];
        if (!done(state, below) && part->times * below->low > most) {
            most = part->times * below->low;
            found = part;
        }
    }
    return found;
}

/* Go down the front edge, until something else seems cheaper or it costs too much. */
static int descend(State *state, uint32_t number, double budget) {
    const Cell *cell = &state->cells[number];
    const Edge *front = &cell->edges[0];
    const Part *part = heaviest(state, cell, front);
    if (!part) {
        /* Sums of what is exact enough are so too, but for rounding. */
        state->slack = done(state, cell) ? state->slack : 1;
        return GOING_ON;
    }
    const double least = state->cells[part->cell].low;
    const double most = fmin(budget, cell->high);
    const double second = cell->count > 1 ? cell->edges[1].low : INFINITY;
    const double patience = fmin(fmax((state->slack - 1) / 10, state->patience), HASTE);
    const double until = fmin(most, fmin(second, cell->reach + 1));
    double below = fmax(least + floor((until - front->low) / part->times), floor(least * (1 + patience)));
    below = fmin(below, least + floor((most - front->low) / part->times));
    /* Past that, sums are not exact: what is left to find out is whether there is a program at all. */
    return enter(state, part->cell, below < EXACT ? below : INFINITY);
}

/* Look at every step, whatever it costs. */
static int visit_every(State *state, Frame *frame) {
    Cell *cell = &state->cells[frame->cell];
    while (frame->entered - 1 < cell->count) {
        const Edge *edge = &cell->edges[frame->entered - 1];
        const Part *part = heaviest(state, cell, edge);
        if (part) {
            return enter(state, part->cell, INFINITY);
        }
        adopt(state, frame->cell, edge);
        ++frame->entered;
    }
    learn(state, frame->cell, cell->high, INFINITY, UNKNOWN_PEAK, 0);
    return GOING_ON;
}

/* Make edges: a little more than the budget asks for, and twice as many where that was not enough. */
static void reach_further(State *state, uint32_t number, double budget) {
    const Cell *cell = &state->cells[number];
    double reach = AHEAD * fmax(budget < INFINITY ? budget : 0, cell->low);
    reach = fmin(fmax(reach, 2 * cell->reach), cell->high);
    if (state->model->exhaustive || cell->low >= EXACT || reach >= EXACT) {
        reach = INFINITY;
    }
    generate(state, number, floor(fmax(reach, cell->low)));
}

/* Take one turn on the cell at the end of the way. */
static int visit(State *state, int64_t *quota) {
    Frame *frame = &state->frames[state->frames_count - 1];
    const uint32_t number = frame->cell;
    const Cell *cell = &state->cells[number];
    if (!frame->entered) {
        const int status = cell->flags & LOOKED_UP ? GOING_ON : look_up(state, number);
        if (status != GOING_ON) {
            return status;
        }
        frame->entered = 1;
        refresh(state, number);
    }
    if (done(state, cell) || cell->low > frame->budget) {
        leave(state);
        return GOING_ON;
    }
    if (state->abstract && !(cell->flags & ABSTRACTED)) {
        return consult(state, number, frame->budget, quota);
    }
    if (state->model->unknown && !(cell->flags & HAS_EXTRAS)) {
        state->progress.waiting = number;
        return ASKS_STEPS;
    }
    if (cell->reach < cell->low || (state->model->exhaustive && cell->reach < INFINITY)) {
        reach_further(state, number, frame->budget);
        return GOING_ON;
    }
    if (state->model->exhaustive) {
        return visit_every(state, frame);
    }
    if (cell->count) {
        adopt(state, number, &cell->edges[0]);
    }
    const double least = settle_front(state, number);
    /* Steps beyond reach are not known. */
    learn(state, number, fmin(least, cell->reach + 1), INFINITY, UNKNOWN_PEAK, 0);
    if (done(state, cell) || cell->low > frame->budget || least > cell->reach) {
        return GOING_ON;
    }
    return descend(state, number, frame->budget);
}

/* Go on until the way is at its end, the quota used up, or something has to be asked. */
int run(State *state, int64_t *quota) {
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
