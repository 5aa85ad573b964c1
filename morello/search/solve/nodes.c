/* Number subproblem tables, families and nodes, and store their bounds. */
#include "state.h"

static void inform(State *state, uint32_t number, double low, double high, uint64_t peak, uint32_t best);

/* Return an array with room for `needed` entries. Jumps to `failure` without memory or numbers. */
void *grown_array(State *state, void *array, uint32_t *room, uint32_t needed, size_t size) {
    uint64_t more = *room ? 2 * (uint64_t)*room : 1;
    if (more > UINT32_MAX) {
        more = UINT32_MAX;
    }
    if (needed > more || needed >= UINT32_MAX - 1) {
        longjmp(state->failure, TOO_LARGE);
    }
    void *grown = realloc(array, (size_t)more * size);
    if (!grown) {
        longjmp(state->failure, NO_MEMORY);
    }
    *room = (uint32_t)more;
    return grown;
}

static uint64_t mixed(uint64_t key) {
    key ^= key >> 32;
    key *= UINT64_C(0x9E3779B97F4A7C15);
    key ^= key >> 29;
    key *= UINT64_C(0xBF58476D1CE4E5B9);
    return key ^ (key >> 32);
}

static uint64_t table_hash(const State *state, int32_t space, const int32_t *states) {
    uint64_t hash = (uint64_t)space;
    for (int operand = 0; operand < state->model->space[space].operands; ++operand) {
        hash = mixed(hash * 0x100000001B3 + (uint64_t)states[operand]);
    }
    return mixed(hash);
}

static uint64_t pair_hash(uint64_t one, uint64_t other) {
    return mixed(one * UINT64_C(0x9E3779B97F4A7C15) + mixed(other));
}

static uint64_t node_hash(uint32_t table, uint32_t shape, uint64_t limits) {
    return mixed(limits + pair_hash(table, shape));
}

/* Make room for one more entry. */
static void make_room(State *state, Index *index) {
    if (4 * (index->count + 1) <= 3 * index->mask) {
        return;
    }
    /* Numbers of entries have 32 bits, and so have their hashes. */
    const uint64_t size = index->at ? 2 * (index->mask + 1) : 1 << 12;
    Slot *at = calloc((size_t)size, sizeof *at);
    if (!at) {
        longjmp(state->failure, NO_MEMORY);
    }
    for (uint64_t slot = 0; index->at && slot <= index->mask; ++slot) {
        if (index->at[slot].number) {
            uint64_t place = index->at[slot].hash & (size - 1);
            while (at[place].number) {
                place = (place + 1) & (size - 1);
            }
            at[place] = index->at[slot];
        }
    }
    free(index->at);
    index->at = at;
    index->mask = size - 1;
}

/* Return the first slot for a hash from `slot` on that has the same bits, or is free. */
static uint64_t next_slot(const Index *index, uint32_t hash, uint64_t slot) {
    slot &= index->mask;
    while (index->at[slot].number && index->at[slot].hash != hash) {
        slot = (slot + 1) & index->mask;
    }
    return slot;
}

static void fill_slot(Index *index, uint64_t slot, uint32_t hash, uint32_t number) {
    index->at[slot] = (Slot){.number = number, .hash = hash};
    ++index->count;
}

static void find_kernels(const Model *model, SubproblemTable *table, const int32_t *states) {
    const Space *space = &model->space[table->space];
    const size_t bytes = (size_t)space->operands * sizeof *states;
    int32_t low = 0, high = space->kernels;
    while (low < high) {
        const int32_t middle = (low + high) / 2;
        const int32_t *row = space->kernel_states + (size_t)middle * (size_t)space->operands;
        int order = 0;
        for (int operand = 0; operand < space->operands && !order; ++operand) {
            order = (row[operand] > states[operand]) - (row[operand] < states[operand]);
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    table->kernel = (uint32_t)low;
    while (low < space->kernels &&
           !memcmp(space->kernel_states + (size_t)low * (size_t)space->operands, states, bytes)) {
        ++low;
    }
    table->kernels = (uint32_t)low - table->kernel;
}

static void add_table(State *state, int32_t space, int32_t tuple, const int32_t *states) {
    const Model *model = state->model;
    const size_t width = (size_t)model->width;
    if (state->tables_count == state->states_room) {
        const uint32_t more = state->states_room ? 2 * state->states_room : 1024;
        int32_t *grown = realloc(state->states, (size_t)more * width * sizeof *grown);
        if (!grown) {
            longjmp(state->failure, NO_MEMORY);
        }
        state->states = grown;
        state->states_room = more;
    }
    const uint32_t number = state->tables_count;
    SubproblemTable *table = PUSH(state, tables);
    *table = (SubproblemTable){.space = space, .tuple = tuple, .answers = !model->recalls};
    for (int operand = 0; operand < model->width; ++operand) {
        const int there = operand < model->space[space].operands;
        state->states[(size_t)number * width + (size_t)operand] = there ? states[operand] : -1;
        table->relevant |= there ? model->relevant[states[operand]] : 0;
    }
    find_kernels(model, table, states);
    state->progress.tables = state->tables_count;
    ++state->progress.tables_done;
}

/* Return the number of a table, a new one if need be. */
uint32_t table_of(State *state, int32_t space, int32_t tuple, const int32_t *states) {
    Index *index = &state->table_index;
    make_room(state, index);
    const size_t width = (size_t)state->model->width;
    const size_t bytes = (size_t)state->model->space[space].operands * sizeof *states;
    const uint32_t hash = (uint32_t)table_hash(state, space, states);
    uint64_t slot = next_slot(index, hash, hash);
    for (; index->at[slot].number; slot = next_slot(index, hash, slot + 1)) {
        const uint32_t number = index->at[slot].number - 1;
        if (state->tables[number].space == space && !memcmp(state->states + (size_t)number * width, states, bytes)) {
            return number;
        }
    }
    add_table(state, space, tuple, states);
    fill_slot(index, slot, hash, state->tables_count);
    return state->tables_count - 1;
}

static uint32_t family_of(State *state, uint32_t table, uint32_t shape) {
    Index *index = &state->family_index;
    make_room(state, index);
    const uint32_t hash = (uint32_t)pair_hash(table, shape);
    uint64_t slot = next_slot(index, hash, hash);
    for (; index->at[slot].number; slot = next_slot(index, hash, slot + 1)) {
        const Family *family = &state->families[index->at[slot].number - 1];
        if (family->table == table && family->shape == shape) {
            return index->at[slot].number - 1;
        }
    }
    *PUSH(state, families) = (Family){.table = table, .shape = shape};
    fill_slot(index, slot, hash, state->families_count);
    return state->families_count - 1;
}

/* Return the family of a node, a new one if need be: most nodes are never visited, and have none. */
Family *family_at(State *state, uint32_t number) {
    Node *node = &state->nodes[number];
    if (!node->family) {
        node->family = 1 + family_of(state, node->table, node->shape);
    }
    return &state->families[node->family - 1];
}

/* Return the bound of a Move by the patterns of both operands, 0 without one. */
double move_bound(const Model *model, const Space *space, int32_t shape, const int32_t *states) {
    int64_t place[2];
    for (int operand = 0; operand < 2; ++operand) {
        const int32_t pattern = pattern_of(model, states[operand], space->tensor[operand][shape]);
        place[operand] = space->place[operand][space->set[operand][shape] * space->patterns + pattern];
        if (place[operand] < 0) {
            return 0;
        }
    }
    return space->grid[space->first[shape] + place[0] * space->places[space->set[1][shape]] + place[1]];
}

/* Return the bound by the pattern of one operand, 0 without one. */
double operand_bound(const Model *model, const Space *space, int operand, int32_t tuple, int32_t shape,
                     int32_t state) {
    const OperandBounds *bounds = &space->by_operand[operand];
    const OperandSet *set = &bounds->sets[bounds->set[shape]];
    const int32_t place = set->place[pattern_of(model, state, space->tensor[operand][shape])];
    const int32_t other = bounds->other[tuple];
    const int there = place >= 0 && other >= 0 && bounds->done[shape];
    return there ? operand_row(bounds, shape, place)[other] : 0;
}

/* Return the bound by layouts, 0 without one. */
static double layout_bound(const Model *model, const Space *space, int32_t tuple, int32_t shape,
                           const int32_t *states) {
    double low = space->grid ? move_bound(model, space, shape, states) : 0;
    for (int operand = 0; space->by_operand && operand < space->operands; ++operand) {
        low = greater(low, operand_bound(model, space, operand, tuple, shape, states[operand]));
    }
    return low;
}

/* Return the bound of a Spec before any search. */
static double initial_bound(const State *state, const SubproblemTable *table, uint32_t shape, uint64_t limits) {
    const Model *model = state->model;
    const Space *space = &model->space[table->space];
    const int32_t *states = state->states + (size_t)(table - state->tables) * (size_t)model->width;
    const double low = bound(model, space, table->tuple, (int32_t)shape, limits);
    return greater(low, layout_bound(model, space, table->tuple, (int32_t)shape, states));
}

static void add_node(State *state, uint32_t number, uint32_t shape, uint64_t limits, double low) {
    SubproblemTable *table = &state->tables[number];
    *PUSH(state, nodes) = (Node){.high = INFINITY, .limits = limits, .table = number, .shape = shape};
    state->progress.tables_done -= !table->open;
    ++table->open;
    state->progress.nodes = state->nodes_count;
    const double high = state->model->space[table->space].leaf ? low : INFINITY;
    inform(state, state->nodes_count - 1, low, high, UNKNOWN_PEAK, 0);
}

/* Return the number of a node, a new one if need be, but 0 in place of a new one that costs more than `most`. Limits that
 * do not matter to its table count as full. */
uint32_t node_within(State *state, uint32_t table, int32_t shape, uint64_t limits, double most) {
    const uint64_t relevant = state->tables[table].relevant;
    limits = (limits & relevant) | (state->model->full & ~relevant);
    Index *index = &state->node_index;
    make_room(state, index);
    const uint32_t hash = (uint32_t)node_hash(table, (uint32_t)shape, limits);
    uint64_t slot = next_slot(index, hash, hash);
    for (; index->at[slot].number; slot = next_slot(index, hash, slot + 1)) {
        const Node *node = &state->nodes[index->at[slot].number - 1];
        if (node->table == table && node->shape == (uint32_t)shape && node->limits == limits) {
            return index->at[slot].number - 1;
        }
    }
    const double low = initial_bound(state, &state->tables[table], (uint32_t)shape, limits);
    if (low > most) {
        return 0;
    }
    add_node(state, table, (uint32_t)shape, limits, low);
    fill_slot(index, slot, hash, state->nodes_count);
    return state->nodes_count - 1;
}

/* Return the index of a number of runs, a new one if need be. */
uint32_t times_of(State *state, double times) {
    if (state->times_count && state->times[0] == times) {
        return 0;
    }
    Index *index = &state->times_index;
    make_room(state, index);
    uint64_t bits;
    memcpy(&bits, &times, sizeof bits);
    const uint32_t hash = (uint32_t)mixed(bits);
    uint64_t slot = next_slot(index, hash, hash);
    for (; index->at[slot].number; slot = next_slot(index, hash, slot + 1)) {
        if (state->times[index->at[slot].number - 1] == times) {
            return index->at[slot].number - 1;
        }
    }
    *PUSH(state, times) = times;
    fill_slot(index, slot, hash, state->times_count);
    return state->times_count - 1;
}

/* Return the expansion of a node, a new one if need be. */
Expansion *expand(State *state, uint32_t number) {
    if (!state->nodes[number].expansion) {
        *PUSH(state, expansions) = (Expansion){.reach = -1, .peak = UNKNOWN_PEAK};
        state->nodes[number].expansion = state->expansions_count - 1;
    }
    return &state->expansions[state->nodes[number].expansion];
}

void drop_edges(State *state, const Node *node) {
    if (!node->expansion) {
        return;
    }
    Expansion *own = &state->expansions[node->expansion];
    free(own->edges);
    own->edges = NULL;
    own->parts = NULL;
    own->count = 0;
    own->reach = -1;
}

/* Tighten the bounds of a node alone: low <= cost <= high, where a program of cost `high` has this peak. */
static void inform(State *state, uint32_t number, double low, double high, uint64_t peak, uint32_t best) {
    Node *node = &state->nodes[number];
    if (high < node->high) {
        node->high = high;
        if (node->expansion || peak != UNKNOWN_PEAK || best) {
            Expansion *own = expand(state, number);
            own->peak = peak;
            own->best = best;
        }
    }
    if (low > node->low) {
        node->low = low < node->high ? low : node->high;
    }
    if (node->low >= node->high && !solved(node)) {
        SubproblemTable *table = &state->tables[node->table];
        node->flags |= SOLVED;
        ++state->progress.solved;
        --table->open;
        state->progress.tables_done += !table->open;
    }
}

/* Tighten the bounds of a node, and store them for the nodes that differ from it in limits only. */
void tighten(State *state, uint32_t number, double low, double high, uint64_t peak, uint32_t best) {
    Node *node = &state->nodes[number];
    Family *family = family_at(state, number);
    const double before_low = node->low, before_high = node->high;
    const int up_to_date = node->version == family->version + 1;
    inform(state, number, low, high, peak, best);
    if ((node->low <= before_low && node->high >= before_high) || !table_at(state, node)->relevant) {
        return;
    }
    Expansion *own = expand(state, number);
    if (!own->fact) {
        if (family->count == family->room) {
            family->facts = grown_array(state, family->facts, &family->room, family->count + 1, sizeof *family->facts);
        }
        own->fact = ++family->count;
    }
    family->facts[own->fact - 1] =
        (Fact){.limits = node->limits, .peak = own->peak, .low = node->low, .high = node->high, .best = own->best};
    ++family->version;
    node->version = up_to_date ? family->version + 1 : node->version;
}

/* Tighten the bounds of a node by those of nodes that differ in limits only: more memory never costs more, and a
 * program fits where its peak does. Initial bounds of the others are no use: they imply each other in the same way. */
void refresh(State *state, uint32_t number) {
    const Model *model = state->model;
    Node *node = &state->nodes[number];
    const Family *family = family_at(state, number);
    if (node->version == family->version + 1) {
        return;
    }
    node->version = family->version + 1;
    double low = 0, high = INFINITY;
    uint64_t peak = UNKNOWN_PEAK;
    uint32_t best = 0;
    for (const Fact *fact = family->facts; fact < family->facts + family->count; ++fact) {
        if (fact->low > low && dominates(model, fact->limits, node->limits)) {
            low = fact->low;
        }
        if (fact->high < high && fact->peak != UNKNOWN_PEAK && dominates(model, node->limits, fact->peak)) {
            high = fact->high;
            peak = fact->peak;
            best = fact->best;
        }
    }
    inform(state, number, low, high, peak, best);
}

static int contains(const State *state, const Answers *known, int64_t at, uint32_t shape, uint64_t limits) {
    const Model *model = state->model;
    const int axes = known->rank + model->levels;
    const int64_t *low = known->low + at * axes, *high = known->high + at * axes;
    for (int axis = 0; axis < axes; ++axis) {
        const int level = axis - known->rank;
        const int64_t here =
            level < 0 ? known->size_at[axis][shape] : known->limit_at[level][code_of(model, level, limits)];
        if (here < low[axis] || here > high[axis]) {
            return 0;
        }
    }
    return 1;
}

/* Tighten the bounds of a node by those of an earlier search. */
void assume(State *state, uint32_t number, double low, double high) {
    if (high < INFINITY && !solved(&state->nodes[number])) {
        state->nodes[number].flags |= RECALLED;
    }
    state->progress.recalled += low > 0;
    tighten(state, number, low, high, UNKNOWN_PEAK, 0);
}

/* Tighten the bounds of a node by earlier answers. Return 0 where they differ or are unverified: Python decides. */
int recall(State *state, uint32_t number, const Answers *known) {
    const Node *node = &state->nodes[number];
    const uint32_t shape = node->shape;
    double low = 0, high = INFINITY;
    int settled = 0, claimed = 0;
    for (int64_t at = 0; at < known->count; ++at) {
        if (!contains(state, known, at, shape, node->limits)) {
            continue;
        }
        if (known->unverified[at]) {
            claimed |= known->kind[at] == 0;
            continue;
        }
        const int64_t cost = known->numerator[at] * (known->volume[shape] / known->denominator[at]);
        const double least = known->kind[at] == 2 ? INFINITY : (double)cost;
        const double most = known->kind[at] == 0 ? (double)cost : INFINITY;
        if (known->kind[at] != 1) {
            if (settled && (least != low || most != high)) {
                return 0;
            }
            settled = 1;
            high = most;
        }
        low = fmax(low, least);
    }
    if ((claimed && !settled) || (settled && high < low)) {
        return 0;
    }
    assume(state, number, low, high);
    return 1;
}
