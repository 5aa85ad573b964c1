/* The state of one search: nodes, what is known of them, and the way down that it is on.
 *
 * Nothing here is global, so that searches do not meet. Arrays move when they grow: functions take numbers of nodes,
 * and pointers into arrays live no longer than to the next call that may make a node.
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

/* In place of a peak: no program is known that is looked into. */
#define UNKNOWN_PEAK UINT64_MAX
/* Costs are kept as doubles, which hold integers exactly up to here. */
#define EXACT 9007199254740992.0
/* What a turn of search returns besides the answers of `_engine.h`. */
#define GOING_ON 100

enum { KERNEL, LOOP, MOVE, PIPELINE, EXTRA, CLOSURE };
enum {
    SOLVED = IS_SOLVED,
    ON_PATH = 2,
    HAS_EXTRAS = 4,
    LOOKED_UP = 8,
    RECALLED = IS_RECALLED,
    BY_PRIORITY = 32,
    ABSTRACTED = 64           /* its abstract node has no more to tell */
};

/* A part of an edge, and how often it runs. */
typedef struct {
    double times;
    uint32_t node;
} Part;

/* A step on a node: no program that begins so costs less than `low`. `which` and `step` find it in its table. */
typedef struct {
    double low, own;
    int64_t priority;
    uint32_t first;           /* its parts, in the node's */
    uint32_t which, step;
    uint16_t parts;
    uint8_t kind;
} Hyperedge;

/* An operation with operand states. */
typedef struct {
    int32_t space, tuple;
    uint64_t relevant;        /* lanes of the limits that matter */
    uint32_t kernel, kernels; /* those that take these states */
    uint32_t open;            /* nodes that are not solved */
    int32_t asked;            /* 0: not yet; 1: nothing is known from earlier; else 2 + place in `recalls` */
} SubproblemTable;

/* What search has learnt of one node beyond its first bounds. */
typedef struct {
    uint64_t limits, peak;
    double low, high;
    uint32_t best;
} Fact;

/* A table and a shape: its nodes differ in limits. `version` counts what is learnt of them. */
typedef struct {
    Fact *facts;
    uint32_t table, shape, version, count, room;
    uint32_t abstract;        /* its abstract node, 0: not known yet */
} Family;

/* A Spec: low <= cost <= high. Edges are known up to the cost `reach`; `fact` is 1 + its place among the family's, and
 * `best` 1 + that of the program of cost `high` among all found, 0: it is not known step by step. */
typedef struct {
    double low, high;         /* what is asked for most lies together, and what it is found by */
    uint64_t limits;
    uint32_t table, shape;
    uint32_t flags, count, family, fact;
    double reach;
    uint64_t peak;
    Hyperedge *edges;              /* one block, with parts behind them */
    Part *parts;
    uint32_t version, choice, best, extra, pass;
} Node;

typedef struct {
    double budget;
    uint32_t node;
    uint32_t entered;         /* 0: just come here; else 1 + the edge to look at where every program is */
} Frame;

/* A step that only Python knows; those of a node are chained by `next`. */
typedef struct {
    int64_t priority;
    double own;
    uint64_t needs;
    uint32_t next, parts;
    Part *part;
    int64_t *live;
} Extra;

/* A program that was found: its first step, and programs of the parts, by place + 1. They never change, so that what
 * takes a program over from other limits has its peak for good. */
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
    uint8_t whole;            /* 1: all below it is chosen too */
} Choice;

/* Open addressing; `at` holds numbers + 1 of entries, whose keys are compared where they are kept. */
typedef struct {
    uint32_t *at;
    uint64_t mask, count;
} Index;

#define GROWING(type, name) \
    type *name;             \
    uint32_t name##_count, name##_room

struct State {
    const Model *model;
    State *abstract;          /* the search among patterns, NULL: none */
    uint32_t looked_up;       /* the node that it looks into last, within which budget, and for which operand */
    int looked_up_for;
    double looked_up_within;
    Progress progress;
    jmp_buf failure;
    Index table_index, family_index, node_index;
    int32_t *states;          /* [tables, width] */
    uint32_t states_room;
    GROWING(SubproblemTable, tables);
    GROWING(Family, families);
    GROWING(Node, nodes);
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
    double slack;             /* a node is done with when high <= slack * low: 1 for proofs */
    double patience;          /* to return to a part only when it costs this much more: a part of its cost */
};

/* The library exports the functions of `_engine.h` only. */
#pragma GCC visibility push(hidden)

/* nodes.c. What lacks memory leaves by `failure`. */
void *grown_array(State *state, void *array, uint32_t *room, uint32_t needed, size_t size);
#define ROOM(state, name)                                                                                             \
    ((state)->name##_count < (state)->name##_room                                                                     \
         ? (void)0                                                                                                    \
         : (void)((state)->name = grown_array((state), (state)->name, &(state)->name##_room,                         \
                                               (state)->name##_count + 1, sizeof *(state)->name)))
#define PUSH(state, name) (ROOM(state, name), &(state)->name[(state)->name##_count++])

uint32_t table_of(State *state, int32_t space, int32_t tuple, const int32_t *states);
uint32_t node_of(State *state, uint32_t table, int32_t shape, uint64_t limits);
void tighten(State *state, uint32_t node, double low, double high, uint64_t peak, uint32_t best);
void refresh(State *state, uint32_t node);
void drop_edges(Node *node);

/* abstract.c */
int32_t pattern_of(const Model *model, int32_t state, int32_t tensor);
void closure_edges(State *state, uint32_t node, double budget);
int lookup_abstract(State *state, uint32_t node, double budget, int64_t *quota);

/* limits.c */
int lowered(const Model *model, int level, uint64_t limits, int64_t used, uint64_t *left);
uint64_t raised(const Model *model, int level, uint64_t peak, int64_t used);
uint64_t larger(const Model *model, uint64_t one, uint64_t other);

/* generate.c and pipelines.c */
void generate(State *state, uint32_t node, double budget);
void pipeline_edges(State *state, uint32_t node, double budget);
uint64_t peak_of(const State *state, uint32_t node, const Hyperedge *edge, const uint32_t *parts, const uint64_t *below);
Hyperedge new_edge(const State *state, int kind, uint32_t which, uint32_t step, int64_t priority, double own);
void keep_edge(State *state, Hyperedge *edge, double budget);
void add_part(State *state, Hyperedge *edge, uint32_t node, double times);

/* recall.c */
int recall(State *state, uint32_t node, const Answers *known);
void assume(State *state, uint32_t node, double low, double high);

/* solve.c */
int solve(State *state, int64_t *quota);
void release(State *state);
void start(State *state, uint32_t node, double budget);
double edge_low(const State *state, const Node *node, const Hyperedge *edge);
double edge_high(const State *state, const Node *node, const Hyperedge *edge);

#pragma GCC visibility pop

static inline int code_of(const Model *model, int level, uint64_t limits) {
    const uint64_t above = level + 1 < model->levels ? limits & ((UINT64_C(1) << model->shift[level + 1]) - 1) : limits;
    return (int)(above >> model->shift[level]);
}

/* No level has less of it. The bit above each lane takes the borrow. */
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

/* Return the class tuple with another class of one operand, -1: there is none. */
static inline int32_t tuple_after(const Model *model, const Space *space, int32_t tuple, int operand, int32_t cls) {
    return space->after[operand][tuple * model->classes + cls];
}

static inline int solved(const Node *node) {
    return node->flags & SOLVED;
}

/* What is known of a node is exact enough for now. */
static inline int done(const State *state, const Node *node) {
    return solved(node) || node->high <= state->slack * node->low;
}

static inline const SubproblemTable *table_at(const State *state, const Node *node) {
    return &state->tables[node->table];
}

static inline const int32_t *states_at(const State *state, const Node *node) {
    return state->states + (size_t)node->table * (size_t)state->model->width;
}

#endif
