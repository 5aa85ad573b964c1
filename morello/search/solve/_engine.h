/* The API of the compiled search, and its model: the tables and bounds that it reads.
 *
 * Python reads this file too (`structs.py`), so it holds declarations only. Python owns all arrays; all are read only.
 * A *class tuple* is a number for the state classes of a space's operands. Limits of memory are codes (`LimitCodes`),
 * packed into one word: a field per level, and above each field a guard bit that stays 0. Numbers of -1 mean "none".
 */

typedef struct {
    int32_t space;            /* of the part */
    int32_t operands;
    const int32_t *args;      /* [operands]: the operands of the whole that are tiled */
    const int32_t *tuples;    /* [class tuples of the whole]: that of the part */
    const int32_t *shape;     /* [entries] */
    const double *times;      /* [entries] */
    const int32_t *cut;       /* [entries, operands]: how tiles are cut, -1: they are the whole operand */
} LoopPart;

/* Loops with the same kinds of parts; the entries of shape s are first[s] to first[s + 1]. */
typedef struct {
    int32_t parts;
    const LoopPart *part;
    const uint8_t *fits;      /* [class tuples] */
    const int64_t *first;     /* [shapes + 1] */
    const double *cost;       /* [entries] */
    const int64_t *priority;  /* [entries] */
} LoopGroup;

/* Moves of one operand from one class of states to another. */
typedef struct {
    int32_t operand;
    int32_t level;
    int32_t view;             /* 1: a state as it is seen in a cache takes no copy */
    int32_t steps;
    int32_t copy_space;       /* of the Moves that copy; `load` and `store` are their class tuples, -1: no copy */
    int32_t load;
    int32_t store;
    int32_t cls;              /* of the new operand */
    const int64_t *priority;  /* [steps] */
    const uint8_t *keeps;     /* [steps]: 1: `into` goes by the old state, not by the tensor */
    const int64_t *const *into;  /* [steps][states or tensors]: the new state */
    const int64_t *seen;      /* [states]: the state as it is seen in the cache */
    const int32_t *copy_shape;   /* [shapes] */
} MoveClass;

typedef struct {
    int32_t space;
    int32_t operands;
    int32_t holding;          /* new tensors that are held while the part runs */
    const int32_t *args;      /* [operands]: from the number of operands on they are new tensors */
    const int64_t *const *seen;  /* [operands][states]: the state under other dimensions; NULL: its own */
    const int32_t *holds;     /* [holding] */
    const int32_t *shape;     /* [shapes] */
} PipelinePart;

/* Pipelines with the same parts, which differ in the states of their new tensors. */
typedef struct {
    int32_t parts;
    int32_t tensors;
    int32_t steps;
    int32_t free;             /* whether new tensors cost nothing */
    const PipelinePart *part;
    const int32_t *tuples;    /* [rows, parts]: class tuples */
    const int32_t *levels;    /* [tensors] */
    const int32_t *const *tensor;  /* [tensors][shapes] */
    const int32_t *const *fresh;   /* [steps * tensors][shapes]: states of new tensors */
    const int64_t *priority;       /* [steps] */
} PipelineTable;

/* The transition closure of one operand: the patterns that any number of moves can give it, and their least costs. In
 * `space` that operand moves no more. */
typedef struct {
    int32_t space;
    int32_t places;
    const int32_t *place;     /* [states]: -1: no place among those of the operand */
    const int32_t *row;       /* [shapes] */
    const int64_t *first;     /* [rows * places + 1] */
    const int32_t *into;      /* the new state, the cheapest first */
    const double *cost;
} TransitionClosure;

/* The patterns that an operand can have in some shapes. */
typedef struct {
    int32_t places;
    const int32_t *pattern;   /* [places] */
    const int32_t *place;     /* [patterns]: -1: none */
    const int32_t *tuple;     /* [places, others]: the class tuple, -1: none */
} OperandSet;

/* Bounds by the pattern of one operand and the classes of the others. Many rows are equal, and stored once. */
typedef struct {
    float *values;            /* [distinct rows, others] */
    int32_t *row;             /* [rows]: of `values` */
    int64_t rows;
    uint8_t *done;            /* [shapes]: 1: they are computed */
    const int64_t *first;     /* [shapes]: the first row, one for each place */
    const OperandSet *sets;
    const int32_t *set;       /* [shapes] */
    int32_t most;             /* places of a set */
    int32_t others;
    int32_t tuples;
    const int32_t *other;     /* [tuples]: the number of the classes of the other operands, -1: no program */
    int32_t kernels;          /* kernels that take the other operands in any pattern */
    const int32_t *kernel;    /* [kernels]: among those of the abstract space */
    const int32_t *kernel_pattern; /* [kernels] */
    const int32_t *kernel_other;   /* [kernels] */
} OperandBounds;

typedef struct {
    int32_t shapes;
    int32_t operands;
    const int32_t *const *tensor;  /* [operands][shapes] */
    int64_t width;            /* columns of bounds */
    const float *bounds;      /* [shapes + 1, width] */
    const int32_t *column;    /* [class tuples]: that of full limits */
    const int32_t *per_level; /* [class tuples, levels]: the first column for the limits of one level, -1: none */
    const int32_t *const *after;   /* [operands][class tuples, classes]: the tuple with another class, -1: none */
    int32_t leaf;             /* 1: its nodes are solved at their bounds */
    const OperandBounds *by_operand; /* [operands], NULL: none */
    const int32_t *blank;     /* [class tuples, operands]: the unknown patterns, where there are such bounds */
    int32_t closed_operand;   /* the operand whose closure comes before all other steps, -1: none */
    TransitionClosure closure;
    const double *grid;       /* of a Move: bounds by layout, NULL: none */
    const int64_t *first;     /* [shapes]: the first of these, [places of operand 0, places of operand 1] */
    const int32_t *const *set;     /* [operands][shapes]: the set of patterns that its tensor can have */
    const int32_t *const *place;   /* [operands][sets, patterns]: where a pattern is in a set, -1: nowhere */
    const int32_t *places;    /* [sets of operand 1]: how many it has */
    int32_t patterns;
    int32_t kernels;          /* kernels, in the order of the operand states that they take */
    const int32_t *kernel_states;  /* [kernels, operands] */
    const int32_t *kernel_first;   /* [kernels + 1]: those of each among the following: the least counts */
    const int32_t *kernel_costs;   /* numbers of costs */
    const int32_t *cost_shapes;    /* [costs]: the set of shapes that each is for */
    const int64_t *cost_first;     /* [costs]: the first of its values, one for each shape of the set */
    const int32_t *shape_place;    /* [sets, shapes]: where a shape is in a set, -1: nowhere */
    const int32_t *set_first;      /* [sets + 1]: those of each among the following */
    const int32_t *set_shape;      /* shapes */
    const double *cost_values;
    const uint64_t *kernel_needs;  /* [kernels]: packed codes */
    const int64_t *kernel_priority;
    int32_t groups;
    const LoopGroup *group;
    const int32_t *move_first;     /* [operands * classes + 1] */
    const MoveClass *move;
    const PipelineTable *pipeline;
    const int32_t *pipeline_first; /* [class tuples + 1]: those of each among the following: a table and a row of it */
    const int32_t *pipeline_table;
    const int32_t *pipeline_row;
} Space;

typedef struct Model Model;
struct Model {
    int32_t spaces;
    int32_t states;
    int32_t classes;
    int32_t levels;
    int32_t width;            /* most operands of a space */
    int32_t generic;          /* 1: there are generic rewrites, whose steps Python provides */
    int32_t exhaustive;       /* 1: no bound excludes a program */
    int32_t recalls;          /* 1: Python may have answers of earlier searches */
    const Space *space;
    const int32_t *cls;       /* [states] */
    const int32_t *pattern;   /* [states] */
    const int32_t *join;      /* [patterns]: the join that replaces a pattern for `joined` tensors */
    const uint8_t *const *joined; /* [patterns][tensors] */
    const Model *abstract;    /* its abstraction, with patterns for states and without limits; NULL: none. Spaces have
                                 the same numbers there; others follow. */
    const uint64_t *relevant; /* [states]: fields of the limits that matter to an operand */
    const double *const *cost;     /* [states][tensors of the state's rank] */
    const int64_t *const *bytes;   /* the same */
    const double *const *cheapest; /* [classes][tensors]: the least over its states */
    const int64_t *const *smallest; /* the same of bytes */
    const int16_t *const *kind; /* [states][cuts of the state's rank]: of tiles, -1: no such tile */
    const int32_t *const *tile; /* [states][kinds]: the state of a tile */
    const int32_t *counts;    /* [levels]: codes */
    const int64_t *const *values;  /* [levels][codes]: bytes, ascending */
    const int64_t *const *steps;   /* [levels][codes]: the step of a limit (`limit_steps`) */
    const int32_t *shift;     /* [levels]: the lowest bit of the level's field */
    uint64_t full;            /* packed codes of full limits */
    uint64_t guard;           /* the bits above the fields */
};

/* Compute the bounds by the pattern of one operand, after those of the spaces below. `model` is abstract, `order`,
 * [shapes], has smaller shapes first; `values` has room for all rows, and holds the distinct ones afterwards. Return their
 * number; -1: no memory. */
int64_t engine_bound_operand(const Model *model, int32_t space, int32_t operand, const int32_t *order);

/* Answers of earlier searches to a table. Each covers a box of sizes and limits, in coordinates. */
typedef struct {
    int64_t count;
    int32_t rank;
    const int64_t *low;       /* [count, rank + levels] */
    const int64_t *high;
    const int8_t *kind;       /* [count]: 0: the cost; 1: a lower bound; 2: no program */
    const int8_t *unverified; /* [count]: 1: imported, not proven here */
    const int64_t *numerator; /* [count]: cost per point of the iteration space */
    const int64_t *denominator;
    const int64_t *const *size_at;   /* [rank][shapes]: coordinates */
    const int64_t *const *limit_at;  /* [levels][codes] */
    const int64_t *volume;    /* [shapes] */
} Answers;

/* The status with which search returns. */
enum {
    FINISHED = 0,
    PAUSED = 1,               /* its quota is used up */
    NEEDS_STEPS = 2,          /* the steps of generic rewrites on node `waiting` */
    NEEDS_ANSWERS = 3,        /* earlier answers to the table of `waiting` */
    NEEDS_PROGRAM = 4,        /* the recalled program of `waiting` */
    NEEDS_ASSUMPTION = 5,     /* bounds of `waiting`: its earlier answers differ or are unverified */
    NO_MEMORY = -1,
    TOO_LARGE = -2,           /* more nodes than can be numbered */
    CIRCLE = -3,              /* steps lead from `waiting` back to itself */
    CONTRADICTION = -4        /* no step on `waiting` has its proven cost */
};

typedef struct {
    uint32_t waiting;
    uint32_t nodes;           /* node 0 means "none" */
    uint32_t tables;
    uint32_t tables_done;     /* without a node that is not solved */
    uint64_t solved;
    uint64_t expansions;
    uint64_t hyperedges;
    uint64_t visits;
    uint64_t depth;           /* the most nodes on the way down */
    uint64_t recalled;        /* earlier answers that raised a bound */
    uint64_t abstract_nodes;  /* of the search among patterns: as above */
    uint64_t abstract_expansions;
} Progress;

/* A part of a step, and how many times it runs: the index of that number in `engine_times`. */
typedef struct {
    uint32_t node;
    uint32_t times;
} Part;

/* Pointers in what follows are valid until the next call that may change the state. */
typedef struct {
    int64_t priority;
    double own;
    double low;               /* no program that begins so costs less */
    double high;
    int32_t parts;
    const Part *part;
} StepInfo;

/* A chosen step; priority -1: none, -2: a recalled program. `peak` as packed codes, all bits set: unknown. */
typedef struct {
    int64_t priority;
    uint64_t peak;
    int32_t parts;
    const uint32_t *nodes;    /* [parts] */
    const uint32_t *programs; /* [parts]: of the best program found; NULL for a choice */
} ChoiceInfo;

/* Flags of nodes. */
enum {
    IS_SOLVED = 1,
    IS_RECALLED = 16          /* it has a program of an earlier search */
};

typedef struct State State;
typedef struct Hyperedge Hyperedge;

/* A Spec: low <= cost <= high. Most Specs are never expanded, and have no `expansion`, 0. `family` is 1 + its number,
 * 0: not made yet. */
typedef struct {
    double low, high;
    uint64_t limits;
    uint32_t table, shape;
    uint32_t flags, family, version, expansion;
} Node;

State *engine_new(const Model *model); /* NULL: no memory */
void engine_free(State *state);
const Progress *engine_progress(const State *state);

/* Return 1 + the number of a table, and the number of a node, new ones if need be; 0: no memory. */
uint32_t engine_table(State *state, int32_t space, int32_t tuple, const int32_t *states);
uint32_t engine_node(State *state, uint32_t table, int32_t shape, uint64_t limits);

const Node *engine_nodes(const State *state);
const double *engine_times(const State *state);
/* Return the number of the best program found so far for a node, 0: its steps are not known. */
uint32_t engine_best(const State *state, uint32_t node);
/* Return the space of a table, and the states of its operands, [width]. */
int32_t engine_space(const State *state, uint32_t table);
const int32_t *engine_states(const State *state, uint32_t table);

/* Solve a node to a program that costs at most `slack` times its bound, or prove that it costs more than the budget:
 * start, then call `engine_solve` until FINISHED. */
int engine_start(State *state, uint32_t node, double budget, double slack);
int engine_solve(State *state, int64_t quota);
/* Raise the bound of a node by the abstract search until it exceeds the budget or cannot rise further. */
int engine_lookup(State *state, uint32_t node, double budget, int64_t quota);
void engine_release(State *state);

/* Return the first step of a program, such as the best one of a node. */
ChoiceInfo engine_found(const State *state, uint32_t program);

/* Choose for a solved node and all below it: call `engine_choice`, then `engine_choose` until FINISHED. */
int engine_choice(State *state, uint32_t node, int32_t settle);
int engine_choose(State *state, int64_t quota);
ChoiceInfo engine_chosen(const State *state, uint32_t node);
void engine_forget(State *state, uint32_t node);

/* Generate the edges of a node within a budget, and read them one by one. */
int engine_expand(State *state, uint32_t node, double budget);
uint32_t engine_steps(const State *state, uint32_t node);
StepInfo engine_step(const State *state, uint32_t node, uint32_t index);

/* Provide what search needs. `live` is [parts, levels] in bytes. */
int engine_add_step(State *state, uint32_t node, int64_t priority, double cost, uint64_t needs, int32_t parts,
                    const uint32_t *part, const double *times, const int64_t *live);
void engine_steps_added(State *state, uint32_t node);
int engine_answers(State *state, uint32_t table, const Answers *answers);
int engine_assume(State *state, uint32_t node, double low, double high);
int engine_tighten(State *state, uint32_t node, double cost);
int engine_set_program(State *state, uint32_t node, int32_t known, uint64_t peak);
