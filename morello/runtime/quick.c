/* Calls a kernel again, on arrays like those of an earlier call. `quick.py` builds this, and makes what it reads. */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Of the kernel: how many OPERANDS it has and other NUMBERS it takes, its FUNCTION's type, and the ARGUMENTS of a call. */
#include "function.h"

#define RANK 64
/* Calls of fewer nanoseconds keep Python to themselves: where others wait for it, it is 5 ms until it is back. */
#define SHORT 10000

typedef struct object PyObject;

/* Functions of Python's stable ABI, and constants: handed in, as neither its headers nor its library need be there. */
struct python {
    PyObject *(*type)(PyObject *);
    PyObject *(*attribute)(PyObject *, PyObject *);
    void *(*capsule)(PyObject *, const char *);
    void *(*pointer)(PyObject *);
    PyObject *(*number)(void *);
    void (*hold)(PyObject *);
    void (*drop)(PyObject *);
    void (*clear)(void);
    void *(*let_go)(void);
    void (*take_back)(void *);
    PyObject *array_struct, *dtype, *requires_grad, *true, *false;
};
const struct python *morello_python;

/* numpy's word for an array: __array_struct__. */
struct array {
    int two, rank;
    char kind;
    int width, flags;
    const ptrdiff_t *shape, *strides;
    char *data;
};
#define WRITEABLE 0x400

/* DLPack's word for one: DLTensor. */
struct tensor {
    char *data;
    int32_t device, device_number, rank;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    const int64_t *shape, *strides;
    uint64_t offset;
};
#define CPU 1

/*
 * An array that was checked for an operand: its type, and what it is in numpy's words (dtype) or, with `exchange`, in
 * those of DLPack (code and bits). Of one at another address it takes the bytes from `low` up to `high`, and the
 * address is a multiple of `alignment`.
 */
struct operand {
    PyObject *type, *dtype;
    int (*exchange)(void *, struct tensor *);
    ptrdiff_t code, bits, gradients, rank, shape[RANK], strides[RANK];
    ptrdiff_t low, high, alignment, writes;
};

struct plan {
    FUNCTION *kernel;
    ptrdiff_t is_short, numbers[NUMBERS + 1];
    struct operand operands[OPERANDS];
};

static int alike(const struct operand *known, ptrdiff_t rank, const ptrdiff_t *shape, const ptrdiff_t *strides) {
    if (rank != known->rank) return 0;
    for (ptrdiff_t axis = 0; axis < rank; axis++) {
        if (shape[axis] != known->shape[axis]) return 0;
        if (strides[axis] != known->strides[axis] && shape[axis] != 1) return 0;
    }
    return 1;
}

/* Returns if an attribute is this object, which somebody else holds. */
static int is(PyObject *object, PyObject *name, PyObject *wanted) {
    PyObject *found = morello_python->attribute(object, name);
    if (found) morello_python->drop(found);
    else morello_python->clear();
    return found == wanted;
}

/* Returns where an array of numpy begins; NULL if it is not like the one known. */
static char *array_data(const struct operand *known, PyObject *object) {
    if (!is(object, morello_python->dtype, known->dtype)) return NULL;
    PyObject *capsule = morello_python->attribute(object, morello_python->array_struct);
    const struct array *array = capsule ? morello_python->capsule(capsule, NULL) : NULL;
    char *data = NULL;
    if (!array) morello_python->clear();
    else if (alike(known, array->rank, array->shape, array->strides) && (!known->writes || array->flags & WRITEABLE))
        data = array->data;
    if (capsule) morello_python->drop(capsule);
    return data;
}

static char *tensor_data(const struct operand *known, PyObject *object) {
    struct tensor tensor;
    /* __dlpack__ refuses such tensors, the exchange does not. */
    if (known->gradients && !is(object, morello_python->requires_grad, morello_python->false)) return NULL;
    if (known->exchange(object, &tensor)) {
        morello_python->clear();
        return NULL;
    }
    if (tensor.device != CPU || tensor.dtype.lanes != 1 || !tensor.strides) return NULL;
    if (tensor.dtype.code != known->code || tensor.dtype.bits != known->bits) return NULL;
    return alike(known, tensor.rank, tensor.shape, tensor.strides) ? tensor.data + tensor.offset : NULL;
}

/* Returns where the values of an object begin that is like the one that was checked; NULL if it is not. */
static char *fitting(const struct operand *known, PyObject *object) {
    PyObject *type = morello_python->type(object);
    morello_python->drop(type);
    if (type != known->type) return NULL;
    char *data = known->exchange ? tensor_data(known, object) : array_data(known, object);
    return (uintptr_t)data % (uintptr_t)known->alignment ? NULL : data;
}

/* Returns if no output's bytes lie among those of another operand. */
static int apart(const struct operand *known, char *const *data) {
    for (int i = 0; i < OPERANDS; i++)
        for (int j = 0; j < OPERANDS; j++)
            if (i != j && known[i].writes && data[i] + known[i].low < data[j] + known[j].high &&
                data[j] + known[j].low < data[i] + known[i].high)
                return 0;
    return 1;
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void run(struct plan *plan, char *const *data) {
    if (plan->is_short) {
        plan->kernel(ARGUMENTS);
        return;
    }
    void *state = morello_python->let_go();
    const int64_t start = now();
    plan->kernel(ARGUMENTS);
    plan->is_short = now() - start < SHORT;
    morello_python->take_back(state);
}

/* Calls the kernel and returns True; or returns False, where an object is not like the one that was checked. */
PyObject *morello_quick(PyObject *address, PyObject *const *objects, ptrdiff_t count) {
    struct plan *plan = morello_python->pointer(address);
    char *data[OPERANDS];
    int fit = count == OPERANDS;
    for (int i = 0; fit && i < OPERANDS; i++) fit = (data[i] = fitting(&plan->operands[i], objects[i])) != NULL;
    fit = fit && apart(plan->operands, data);
    if (fit) run(plan, data);
    PyObject *answer = fit ? morello_python->true : morello_python->false;
    morello_python->hold(answer);
    return answer;
}

/* Returns where an array of numpy begins, as a number: in a tenth of the time that its `ctypes.data` takes. */
PyObject *morello_address(PyObject *none, PyObject *object) {
    (void)none;
    PyObject *capsule = morello_python->attribute(object, morello_python->array_struct);
    if (!capsule) return NULL;
    const struct array *array = morello_python->capsule(capsule, NULL);
    PyObject *address = array ? morello_python->number(array->data) : NULL;
    morello_python->drop(capsule);
    return address;
}
