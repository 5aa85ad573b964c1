/* The state of one search: nodes, their bounds, and the stack of the recursion.
 *
 * Nothing is global, so that several threads can search. Arrays move when they grow: functions take the numbers of
 * nodes, and a pointer into an array is valid until the next call that may add a node.
 */
#ifndef MORELLO_STATE_H
#define MORELLO_STATE_H

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)
#include "_engine.h"
#pragma GCC visibility pop

/* In place of a peak: unknown. */
#define UNKNOWN_PEAK UINT64_MAX
/* Doubles hold integers exactly up to here. */
#define EXACT 9007199254740992.0
/* The status of a turn after which search goes on; the others are in `_engine.h`. */
#define GOING_ON 100

enum { KERNEL, LOOP, MOVE, PIPELINE, EXTRA, CLOSURE };
enum {
    SOLVED = IS_SOLVED,
    ON_PATH = 2,
    HAS_EXTRAS = 4,
    LOOKED_UP = 8,
    RECALLED = IS_RECALLED,
    BY_PRIORITY = 32,
    ABSTRACTED = 64           /* the bound of its abstract node is taken over */
};

/* A step on a node: no program that begins with it costs less than `low`. `which` and `step` locate it in the model. */
struct Hyperedge {
    double low, own;
    int64_t priority;
    uint32_t first;           /* its parts, among those of the node */
    uint32_t which, step;
    uint16_t parts;
    uint8_t kind;
};

/* What search knows of a Spec that it has visited. Edges are generated up to the cost `reach`. `fact` is 1 + its place in
 * the family, and `best` 1 + the place of the program of cost `high` in `found`, 0: its steps are not known. */
typedef struct {
    double reach;
    uint64_t peak;
    Hyperedge *edges;         /* one block, followed by the parts */
    Part *parts;
    uint32_t count, fact, best, choice, extra, pass;
} Expansion;

/* An operation with operand states. */
typedef struct {
    int32_t space, tuple;
    uint64_t relevant;        /* fields of the limits that matter */
    uint32_t kernel, kernels; /* those that take these states */
    uint32_t open;            /* unsolved nodes */
    int32_t answers;           /* 0: not yet; 1: no earlier answers; else 2 + place in `recalls` */
} SubproblemTable;

/* Bounds of one node that are tighter than its initial ones. */
typedef struct {
    uint64_t limits, peak;
    double low, high;
    uint32_t best;
} Fact;

/* A table and a shape. Its nodes differ in limits. `version` counts changes of their bounds. */
typedef struct {
    Fact *facts;
    uint32_t table, shape, version, count, room;
    uint32_t abstract;        /* its abstract node, 0: not made yet */
} Family;

typedef struct {
    double budget;
    uint32_t node;
    uint32_t entered;         /* 0: new; else 1 + the edge to visit in an exhaustive search */
} Frame;

/* A step of a generic rewrite, which Python provides. Those of a node are chained by `next`. */
typedef struct {
    int64_t priority;
    double own;
    uint64_t needs;
    uint32_t next, parts;
    Part *part;
    int64_t *live;
} Extra;

/* A program: its first step, and the programs of its parts, by place + 1. It never changes, so that a node with other
 * limits can share it and its peak. */
typedef struct {
    int64_t priority;
    uint32_t first;           /* the parts' nodes, then their programs, in `found_parts` */
    uint16_t parts;
} Found;

typedef struct {
    int64_t priority;
    uint64_t peak;
    Hyperedge edge;
    uint32_t first;           /* its parts, in `chosen_parts` */
    uint8_t whole;            /* 1: all nodes below it have choices too */
} Choice;

/* A hash table with open addressing: `at` holds 1 + the numbers of entries, whose keys are in their own arrays, and bits
 * of their hashes, so that other keys are rarely read. */
typedef struct {
    uint32_t number, hash;
} Slot;

typedef struct {
    Slot *at;
    uint64_t mask, count;
} Index;

#define GROWING(type, name) \
    type *name;             \
    uint32_t name##_count, name##_room

struct State {
    const Model *model;
    State *abstract;          /* the abstract search, NULL: none */
    double lookup_low;        /* the bound of the lookup under way, and its expansions when that last rose */
    uint64_t lookup_risen;
    Progress progress;
    jmp_buf failure;
    Index table_index, family_index, node_index, times_index;
    int32_t *states;          /* [tables, width] */
    uint32_t states_room;
    GROWING(SubproblemTable, tables);
    GROWING(Family, families);
    GROWING(Node, nodes);
    GROWING(Expansion, expansions);
    GROWING(double, times);   /* the distinct numbers of runs */
    GROWING(Frame, frames);
    GROWING(Extra, extras);
    GROWING(Answers, recalls);
    GROWING(Choice, choices);
    GROWING(uint32_t, chosen_parts);
    GROWING(uint32_t, choosing);
    GROWING(Found, found);
    GROWING(uint32_t, found_parts);
    GROWING(Hyperedge, new_edges);
    GROWING(Part, new_parts);
    int32_t settle;
    uint32_t pass;
    double slack;             /* a node is finished when high <= slack * low; 1: exact */
    double patience;          /* share of a part's cost to explore beyond its budget */
};

/* The library exports the functions of `_engine.h` only. */
#pragma GCC visibility push(hidden)

/* nodes.c. Without memory, functions jump to `failure`. */
void *grown_array(State *state, void *array, uint32_t *room, uint32_t needed, size_t size);
#define ROOM(state, name)                                                                                             \
    ((state)->name##_count < (state)->name##_room                                                                     \
         ? (void)0                                                                                                    \
         : (void)((state)->name = grown_array((state), (state)->name, &(state)->name##_room,                         \
                                               (state)->name##_count + 1, sizeof *(state)->name)))
#define PUSH(state, name) (ROOM(state, name), &(state)->name[(state)->name##_count++])

uint32_t table_of(State *state, int32_t space, int32_t tuple, const int32_t *states);
uint32_t node_within(State *state, uint32_t table, int32_t shape, uint64_t limits, double most);
Family *family_at(State *state, uint32_t number);
uint32_t times_of(State *state, double times);
Expansion *expand(State *state, uint32_t node);
void tighten(State *state, uint32_t node, double low, double high, uint64_t peak, uint32_t best);
void assume(State *state, uint32_t node, double low, double high);
void refresh(State *state, uint32_t node);
void drop_edges(State *state, const Node *node);
int recall(State *state, uint32_t node, const Answers *known);
double move_bound(const Model *model, const Space *space, int32_t shape, const int32_t *states);
double operand_bound(const Model *model, const Space *space, int operand, int32_t tuple, int32_t shape,
                     int32_t state);

/* abstract.c */
int32_t pattern_of(const Model *model, int32_t state, int32_t tensor);
void closure_edges(State *state, uint32_t node, double budget);
int lookup_abstract(State *state, uint32_t node, double budget, int64_t *quota);

int lowered(const Model *model, int level, uint64_t limits, int64_t used, uint64_t *left);
/* generate.c and pipelines.c */
void generate(State *state, uint32_t node, double budget);
void pipeline_edges(State *state, uint32_t node, double budget);
int tiles(const Model *model, const LoopPart *part, int64_t entry, const int32_t *states, int32_t *made);
double pipeline_cost(const Model *model, const Space *space, int32_t tuple, uint32_t shape, const int32_t *states);
uint64_t peak_of(const State *state, uint32_t node, const Hyperedge *edge, const uint32_t *parts,
                 const uint64_t *below);
Hyperedge new_edge(const State *state, int kind, uint32_t which, uint32_t step, int64_t priority, double own);
void keep_edge(State *state, Hyperedge *edge, double budget);
void add_part(State *state, Hyperedge *edge, uint32_t node, double times);
void add_new_part(State *state, Hyperedge *edge, uint32_t table, int32_t shape, uint64_t limits, double times,
                  double budget);

/* operand_bounds.c */
float *operand_row(const OperandBounds *bounds, int32_t shape, int32_t place);
double part_bound(const Model *model, int32_t number, int32_t tuple, int32_t shape, const int32_t *states);

/* solve.c */
int solve(State *state, int64_t *quota);
void release(State *state);
void start(State *state, uint32_t node, double budget);
double edge_low(const State *state, const Node *node, const Hyperedge *edge);
double edge_high(const State *state, const Node *node, const Hyperedge *edge);

#pragma GCC visibility pop

/* Unlike `fmin` and `fmax` these are no calls, and compilers make vectors of them. */
static inline double lesser(double one, double other) {
    return one < other ? one : other;
}

static inline double greater(double one, double other) {
    return one > other ? one : other;
}

static inline int code_of(const Model *model, int level, uint64_t limits) {
    const uint64_t above = level + 1 < model->levels ? limits & ((UINT64_C(1) << model->shift[level + 1]) - 1) : limits;
    return (int)(above >> model->shift[level]);
}

/* Return whether no level has less. The guard bit above each field takes the borrow. */
static inline int dominates(const Model *model, uint64_t limits, uint64_t other) {
    return (((limits | model->guard) - other) & model->guard) == model->guard;
}

static inline double bound(const Model *model, const Space *space, int32_t tuple, int32_t shape, uint64_t limits) {
    const float *row = space->bounds + shape * space->width;
    const int32_t *per_level = space->per_level + (int64_t)tuple * model->levels;
    double low = row[space->column[tuple]];
    for (int level = 0; level < model->levels; ++level) {
        if (per_level[level] >= 0) {
            const double under = row[per_level[level] + model->steps[level][code_of(model, level, limits)]];
            low = under > low ? under : low;
        }
    }
    return low;
}

/* Return the class tuple with another class of one operand, -1: none. */
static inline int32_t tuple_after(const Model *model, const Space *space, int32_t tuple, int operand, int32_t cls) {
    return space->after[operand][tuple * model->classes + cls];
}

static inline int solved(const Node *node) {
    return node->flags & SOLVED;
}

/* Return whether the bounds of a node are within the slack. */
static inline int done(const State *state, const Node *node) {
    return solved(node) || node->high <= state->slack * node->low;
}

/* Return the expansion of a node, or an empty one. */
static inline const Expansion *expansion_of(const State *state, const Node *node) {
    return &state->expansions[node->expansion];
}

static inline const SubproblemTable *table_at(const State *state, const Node *node) {
    return &state->tables[node->table];
}

static inline const int32_t *states_at(const State *state, const Node *node) {
    return state->states + (size_t)node->table * (size_t)state->model->width;
}

#endif
