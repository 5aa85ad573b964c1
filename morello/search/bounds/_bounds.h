/* The steps of the relaxed problem, space by space.
 *
 * Python reads this file too (`structs.py`), so it holds declarations only. All arrays are those of Python, and read
 * only except `values`. Numbers of -1 mean "none". A *step* of a limit is one of the values that bounds distinguish
 * (`limit_steps`). A class tuple has a row of per-level bounds for each level that it tracks: a column for each step of
 * that level's limit, while all other limits are full. The last column of each row is the same. A class tuple that
 * tracks no level has one row of one column, for a pseudo-level of one step behind the others.
 */

typedef struct {
    int32_t codes;            /* values that the limit can have */
    int32_t steps;            /* those that bounds distinguish */
    const int64_t *bytes;     /* [codes], ascending */
    const int64_t *step;      /* [codes] */
    const int64_t *code;      /* [steps]: the largest limit of each */
} BoundLevel;

/* A part of steps, on each of their class tuples and for each of their entries. */
typedef struct {
    int32_t space;
    int32_t holding;          /* levels whose memory is held while it runs */
    const int32_t *level;     /* [holding] */
    const int64_t *held;      /* [holding, entries]: bytes */
    const int32_t *tuple;     /* [tuples] */
    const int32_t *shape;     /* [entries] */
    const double *times;      /* [entries] */
} BoundPart;

/* Steps with the same kinds of parts: loops to other spaces, or pipelines. Entries of shape s are first[s] to
 * first[s + 1]. */
typedef struct {
    int32_t tuples;
    int32_t parts;
    const int32_t *tuple;     /* [tuples] */
    const BoundPart *part;
    const int64_t *first;     /* [shapes + 1] */
    const double *cost;       /* [entries]: of the step itself */
    const int32_t *serial;    /* [shapes]: of parallel loops, the shape among those in series; else NULL */
    double least;             /* of parallel loops: the least cost of one */
} BoundSteps;

/* A loop inside a space: it keeps class tuples and limits, and costs nothing itself. */
typedef struct {
    int32_t parts;
    const int32_t *const *shape;   /* [parts][shapes] */
    const double *const *times;    /* [parts][shapes] */
} BoundLoop;

/* Moves of an operand from one class of states to another. */
typedef struct {
    int32_t operand;
    int32_t from;             /* classes */
    int32_t cls;
    int32_t level;            /* of the new operand */
    int32_t copy_space;       /* of the Moves that copy; `load` and `store` are their class tuples, -1: no copy */
    int32_t load;
    int32_t store;
    const int32_t *copy_shape;   /* [shapes] */
} BoundMove;

typedef struct {
    int32_t shapes;
    int32_t tuples;
    int64_t width;            /* columns, and one behind them */
    float *values;            /* [shapes + 1, width], rounded down */
    const int32_t *const *tensor;  /* [operands][shapes] */
    const int32_t *full;      /* [tuples]: the column of full limits */
    const int32_t *per_level; /* [tuples, levels + 1]: the first column of each row, -1: none */
    const int32_t *order;     /* [shapes]: smaller ones first */
    int32_t kernels;
    const int64_t *kernel_first;       /* [kernels + 1]: its columns among all */
    const int32_t *kernel_column;      /* columns with enough memory */
    const double *const *kernel_cost;  /* [kernels][shapes] */
    int32_t loops;
    const BoundLoop *loop;
    int32_t leaving;
    const BoundSteps *leave;
    int32_t pipelines;
    const BoundSteps *pipeline;
    int32_t moves;
    const BoundMove *move;
    int32_t movable;          /* class tuples with moves, fast levels first */
    const int32_t *moved;     /* [movable] */
    const int64_t *move_first;     /* [movable + 1]: those of each among the following */
    const int32_t *move_number;
    const int32_t *move_into;      /* the class tuple after the move */
} BoundSpace;

typedef struct {
    int32_t levels;
    int32_t steps;            /* the most of a level */
    const BoundLevel *level;  /* [levels + 1] */
    const BoundSpace *space;
    const double *const *cheapest;  /* [classes][tensors]: the least cost of moving a tensor */
    const int64_t *const *smallest; /* [classes][tensors]: its fewest bytes */
} BoundModel;

/* Lower the values of a space by all steps on it, given those of the spaces below. Return 1 if any became less, else 0;
 * -1: no memory. */
int engine_lower_bounds(const BoundModel *model, int32_t space);
