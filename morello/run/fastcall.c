/* Calls a kernel on arrays like those of a checked call. `fastcall.py` builds this, and fills its structs. */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Defines the kernel's OPERANDS, its other NUMBERS, its FUNCTION type and the ARGUMENTS of a call. */
#include "function.h"

#define RANK 64
/* Shorter calls, in nanoseconds, keep the GIL: if other threads wait for it, it takes 5 ms to get it back. */
#define SHORT 10000

typedef struct object PyObject;

/* Functions and objects of Python's stable ABI, passed in: its headers and library may not be installed. */
struct python {
    PyObject *(*type)(PyObject *);
    PyObject *(*attribute)(PyObject *, PyObject *);
    void *(*capsule)(PyObject *, const char *);
    void *(*pointer)(PyObject *);
    PyObject *(*number)(void *);
    void (*hold)(PyObject *);
    void (*drop)(PyObject *);
    void (*clear)(void);
    PyObject *(*call)(PyObject *, PyObject *);
    PyObject *(*tuple)(ptrdiff_t);
    int (*set_item)(PyObject *, ptrdiff_t, PyObject *);
    void *(*let_go)(void);
    void (*take_back)(void *);
    PyObject *array_struct, *dtype, *requires_grad, *true, *false;
};
const struct python *morello_python;

/* An array in numpy's __array_struct__. */
struct array {
    int two, rank;
    char kind;
    int width, flags;
    const ptrdiff_t *shape, *strides;
    char *data;
};
#define WRITEABLE 0x400

/* DLPack's DLTensor. */
struct tensor {
    char *data;
    int32_t device, device_number, rank;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    const int64_t *shape, *strides;
    uint64_t offset;
};
#define CPU 1

/*
 * A checked array of an operand: its type, and its data type for numpy (dtype) or, with `exchange`, for DLPack (code and
 * bits). At another address it spans the bytes from `low` to `high`, and the address is a multiple of `alignment`.
 */
struct operand {
    PyObject *type, *dtype;
    int (*exchange)(void *, struct tensor *);
    ptrdiff_t code, bits, gradients, rank, shape[RANK], strides[RANK];
    ptrdiff_t low, high, alignment, writes;
};

/* The last `made` operands are allocated by calls, of functions with a tuple of arguments each. */
struct plan {
    FUNCTION *kernel;
    ptrdiff_t made;
    PyObject *allocate[OPERANDS], *arguments[OPERANDS];
    ptrdiff_t is_short, numbers[NUMBERS + 1];
    struct operand operands[OPERANDS];
};

static int alike(const struct operand *like, ptrdiff_t rank, const ptrdiff_t *shape, const ptrdiff_t *strides) {
    if (rank != like->rank) return 0;
    for (ptrdiff_t axis = 0; axis < rank; axis++) {
        if (shape[axis] != like->shape[axis]) return 0;
        if (strides[axis] != like->strides[axis] && shape[axis] != 1) return 0;
    }
    return 1;
}

/* Returns whether an attribute is this object; the caller holds a reference. */
static int is(PyObject *object, PyObject *name, PyObject *wanted) {
    PyObject *found = morello_python->attribute(object, name);
    if (found) morello_python->drop(found);
    else morello_python->clear();
    return found == wanted;
}

/* Returns the address of a numpy array, NULL if it differs from the checked one. */
static char *array_data(const struct operand *like, PyObject *object) {
    if (!is(object, morello_python->dtype, like->dtype)) return NULL;
    PyObject *capsule = morello_python->attribute(object, morello_python->array_struct);
    const struct array *array = capsule ? morello_python->capsule(capsule, NULL) : NULL;
    char *data = NULL;
    if (!array) morello_python->clear();
    else if (alike(like, array->rank, array->shape, array->strides) && (!like->writes || array->flags & WRITEABLE))
        data = array->data;
    if (capsule) morello_python->drop(capsule);
    return data;
}

static char *tensor_data(const struct operand *like, PyObject *object) {
    struct tensor tensor;
    /* __dlpack__ refuses such tensors, the exchange does not. */
    if (like->gradients && !is(object, morello_python->requires_grad, morello_python->false)) return NULL;
    if (like->exchange(object, &tensor)) {
        morello_python->clear();
        return NULL;
    }
    if (tensor.device != CPU || tensor.dtype.lanes != 1 || !tensor.strides) return NULL;
    if (tensor.dtype.code != like->code || tensor.dtype.bits != like->bits) return NULL;
    return alike(like, tensor.rank, tensor.shape, tensor.strides) ? tensor.data + tensor.offset : NULL;
}

/* Returns the address of an object's values, NULL if it differs from the checked one. */
static char *fitting(const struct operand *like, PyObject *object) {
    PyObject *type = morello_python->type(object);
    morello_python->drop(type);
    if (type != like->type) return NULL;
    char *data = like->exchange ? tensor_data(like, object) : array_data(like, object);
    return (uintptr_t)data % (uintptr_t)like->alignment ? NULL : data;
}

/* Returns whether no output overlaps another operand. */
static int apart(const struct operand *like, char *const *data) {
    for (int i = 0; i < OPERANDS; i++)
        for (int j = 0; j < OPERANDS; j++)
            if (i != j && like[i].writes && data[i] + like[i].low < data[j] + like[j].high &&
                data[j] + like[j].low < data[i] + like[i].high)
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

/* Returns the new operands of a call, with its references: one, or a tuple of several; True for none. */
static PyObject *result(PyObject *const *operands, ptrdiff_t made) {
    if (made == 1) return *operands;
    if (!made) {
        morello_python->hold(morello_python->true);
        return morello_python->true;
    }
    PyObject *tuple = morello_python->tuple(made);
    for (ptrdiff_t i = 0; i < made; i++)
        if (tuple) morello_python->set_item(tuple, i, operands[i]);
        else morello_python->drop(operands[i]);
    return tuple;
}

/* Calls the kernel and returns what `result` says, or returns False if an object differs from the checked one. */
PyObject *morello_fastcall(PyObject *address, PyObject *const *objects, ptrdiff_t count) {
    struct plan *plan = morello_python->pointer(address);
    const struct operand *like = plan->operands;
    char *data[OPERANDS];
    PyObject *made[OPERANDS];
    int fit = count == OPERANDS - plan->made;
    for (ptrdiff_t i = 0; fit && i < count; i++) fit = (data[i] = fitting(&like[i], objects[i])) != NULL;
    ptrdiff_t i = count;
    for (; fit && i < OPERANDS; i++) {
        PyObject *new = made[i - count] = morello_python->call(plan->allocate[i - count], plan->arguments[i - count]);
        if (!new) break;
        fit = (data[i] = fitting(&like[i], new)) != NULL;
    }
    if (fit && i == OPERANDS && apart(like, data)) {
        run(plan, data);
        return result(made, plan->made);
    }
    const int failed = fit && i < OPERANDS;
    for (ptrdiff_t old = 0; old < i - count; old++) morello_python->drop(made[old]);
    if (failed) return NULL;
    morello_python->hold(morello_python->false);
    return morello_python->false;
}

/* Returns the address of a numpy array as a number, ten times as fast as its `ctypes.data`. */
PyObject *morello_address(PyObject *none, PyObject *object) {
    (void)none;
    PyObject *capsule = morello_python->attribute(object, morello_python->array_struct);
    if (!capsule) return NULL;
    const struct array *array = morello_python->capsule(capsule, NULL);
    PyObject *address = array ? morello_python->number(array->data) : NULL;
    morello_python->drop(capsule);
    return address;
}
