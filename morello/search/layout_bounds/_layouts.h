/* What Python and the compiled layout bounds share: the bounds of Moves by the patterns of their operands.
 *
 * Python reads this file too (`library.py`), so it holds declarations only. Arrays belong to Python; all but `values`
 * are read only. A *place* is where a pattern is among those that tensors of a shape can have, a *number* where it is
 * among those of all shapes of an operand. Numbers of -1 stand for "none".
 */

/* The patterns that tensors of some shapes can have. */
typedef struct {
    int32_t count;
    const int32_t *pattern;   /* [count] */
    const int32_t *number;    /* [count] */
    const int32_t *place;     /* [patterns] */
} AbstractionClass;

/* A kernel, on states for which patterns stand. */
typedef struct {
    int32_t entries;
    const int32_t *shape;     /* [entries] */
    const double *cost;       /* [entries] */
    int32_t sources;
    const int32_t *source;    /* [sources]: patterns */
    int32_t destinations;
    const int32_t *destination;
} GridKernel;

typedef struct {
    int32_t grid;             /* -1: nothing is known of it by pattern */
    const int32_t *arg;       /* [2]: its operands are tiles of these */
    const int32_t *shape;     /* [shapes] */
    const double *times;      /* [shapes] */
    const int32_t *const *cut;     /* [2][shapes], -1: the whole */
} GridPart;

typedef struct {
    const double *cost;       /* [shapes]: of its own, infinite where it cannot be taken */
    int32_t parts;
    const GridPart *part;
} GridLoop;

/* The moves of one operand. */
typedef struct {
    int32_t grid;             /* of the Moves that copy it */
    int32_t loads;            /* 1: it is copied in, or out */
    int32_t stores;
    double threads;           /* that share a copy */
    const int32_t *tensor;    /* [tensors]: those that the operand is */
    const int32_t *row;       /* [shapes]: which of these */
    const int32_t *copy;      /* [shapes]: the Move's; -1: it costs nothing that is known */
    const AbstractionClass *sets;
    const int32_t *set;       /* [shapes] */
    int32_t numbers;
    const int32_t *kind;      /* [tensors] */
    const uint8_t *offered;   /* [kinds, numbers, numbers]: from and to */
    const uint8_t *view;      /* [numbers, numbers]: where nothing is copied */
} GridMoves;

typedef struct {
    double *values;
    const int64_t *first;     /* [shapes]: the first of `values`, [places of source, places of destination] */
    const AbstractionClass *const *sets;      /* [2] */
    const int32_t *const *set;          /* [2][shapes] */
    const int32_t *order;     /* [shapes]: smaller ones first */
    const float *by_class;    /* [shapes + 1, width]: bounds that forget layouts */
    int64_t width;
    int32_t columns;
    const int32_t *column;    /* [numbers of source, columns]: of `by_class`, by number of the destination */
    int32_t kernels;
    const GridKernel *kernel;
    int32_t loops;
    const GridLoop *loop;
    int32_t moved;            /* operands that are moved: 0 or 2 */
    const GridMoves *moves;
} Grid;

typedef struct {
    int32_t most;             /* patterns in a set */
    const double *const *cost;          /* [patterns][tensors] */
    const int16_t *const *kind;         /* [patterns][cuts of its rank]: of tiles */
    const int32_t *const *tile;         /* [patterns][kinds]: patterns of tiles */
    const Grid *grid;
} GridModel;

/* Fill in the values of one grid, which are infinite, for the shapes `order[from]` to `order[to]`; those before and
 * grids below are filled in. Return 0, -1: there is no memory. */
int engine_fill_layouts(const GridModel *model, int32_t grid, int32_t from, int32_t to);

/* Enter what kernels on one grid cost. */
void engine_start_layouts(const GridModel *model, int32_t grid);

/* Return at `cost` what any number of moves of an operand costs at least on some shapes: each [places, places]. */
void engine_close_layouts(const GridModel *model, const GridMoves *moves, int32_t shapes, const int32_t *shape,
                     double *cost);
