/* The bounds of Moves by the patterns of their operands.
 *
 * Python reads this file too (`structs.py`), so it holds declarations only. All arrays are those of Python, and read
 * only except `values`. A *place* is the index of a pattern among those that tensors of a shape can have, a *number*
 * that among those of all shapes of an operand. Numbers of -1 mean "none".
 */

/* The patterns that tensors of some shapes can have. */
typedef struct {
    int32_t count;
    const int32_t *pattern;   /* [count] */
    const int32_t *number;    /* [count] */
    const int32_t *place;     /* [patterns] */
} AbstractionClass;

/* A kernel, and the patterns of the states that it takes. */
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
    int32_t grid;             /* -1: it has no bounds by pattern */
    const int32_t *arg;       /* [2]: the operands that are tiled */
    const int32_t *shape;     /* [shapes] */
    const double *times;      /* [shapes] */
    const int32_t *const *cut;     /* [2][shapes], -1: the whole */
} GridPart;

typedef struct {
    const double *cost;       /* [shapes]: of the loop itself, infinite where it does not apply */
    int32_t parts;
    const GridPart *part;
} GridLoop;

/* The moves of one operand. */
typedef struct {
    int32_t grid;             /* of the Moves that copy it */
    int32_t loads;            /* 1: it is copied in, or out */
    int32_t stores;
    double threads;           /* that share a copy */
    const int32_t *tensor;    /* [tensors]: the distinct ones of the operand */
    const int32_t *row;       /* [shapes]: the index in `tensor` */
    const int32_t *copy;      /* [shapes]: that of the Move; -1: its cost is not bounded */
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
    const float *by_class;    /* [shapes + 1, width]: bounds by class */
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

/* Lower the values of one grid, initially infinite, for the shapes `order[from]` to `order[to]`, after those before and
 * the grids below. Return 0; -1: no memory. */
int engine_fill_layouts(const GridModel *model, int32_t grid, int32_t from, int32_t to);

/* Store the costs of kernels in one grid. */
void engine_start_layouts(const GridModel *model, int32_t grid);

/* Put the least cost of any number of moves of an operand into `cost`: [places, places] for each shape. */
void engine_close_layouts(const GridModel *model, const GridMoves *moves, int32_t shapes, const int32_t *shape,
                     double *cost);
