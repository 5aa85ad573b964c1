/* Times calls, and knows how to call what peers offer. Contexts are filled in from Python. */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef void (*bench_run)(void *);

/* Return the seconds of `calls` calls: CPU time of this thread, or wall-clock time. */
double bench_time(bench_run run, void *context, int64_t calls, int wall) {
    clockid_t clock = wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
    struct timespec start, end;
    clock_gettime(clock, &start);
    for (int64_t call = 0; call < calls; call++)
        run(context);
    clock_gettime(clock, &end);
    return (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
}

/* cblas_sgemm with row-major operands, `batch` times. */
struct gemm {
    void *function;
    int64_t batch, m, k, n;
    const float *a, *b;
    float *c;
};
typedef void (*cblas32)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                        int);
typedef void (*cblas64)(int, int, int, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *,
                        int64_t, float, float *, int64_t);
#define GEMM(name, type, integer)                                                                                  \
    void name(void *context) {                                                                                     \
        const struct gemm *g = context;                                                                            \
        for (int64_t i = 0; i < g->batch; i++)                                                                     \
            ((type)g->function)(101, 111, 111, (integer)g->m, (integer)g->n, (integer)g->k, 1.0f,                  \
                                g->a + i * g->m * g->k, (integer)g->k, g->b + i * g->k * g->n, (integer)g->n, 0.0f, \
                                g->c + i * g->m * g->n, (integer)g->n);                                            \
    }
GEMM(run_cblas32, cblas32, int)
GEMM(run_cblas64, cblas64, int64_t)

/* A kernel of libxsmm: column-major, so that the operands are swapped. */
void run_xsmm(void *context) {
    const struct gemm *g = context;
    for (int64_t i = 0; i < g->batch; i++)
        ((void (*)(const float *, const float *, float *))g->function)(g->b + i * g->k * g->n, g->a + i * g->m * g->k,
                                                                       g->c + i * g->m * g->n);
}

/* dnnl_sgemm is row-major. */
typedef int (*dnnl_gemm)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t,
                         float, float *, int64_t);
void run_dnnl_sgemm(void *context) {
    const struct gemm *g = context;
    for (int64_t i = 0; i < g->batch; i++)
        ((dnnl_gemm)g->function)('N', 'N', g->m, g->n, g->k, 1.0f, g->a + i * g->m * g->k, g->k,
                                 g->b + i * g->k * g->n, g->n, 0.0f, g->c + i * g->m * g->n, g->n);
}

/* A primitive of oneDNN. */
struct primitive {
    int (*execute)(void *, void *, int, const void *);
    int (*wait)(void *);
    void *primitive, *stream;
    int64_t count;
    const void *arguments;
};
void run_primitive(void *context) {
    const struct primitive *p = context;
    p->execute(p->primitive, p->stream, (int)p->count, p->arguments);
    p->wait(p->stream);
}

/* A function of TVM; its arguments are tagged pointers to tensors. */
struct packed {
    int (*function)(void *, const void *, int, void *);
    const void *arguments;
    int64_t count;
};
void run_tvm(void *context) {
    const struct packed *p = context;
    int64_t result[2] = {0};
    p->function(NULL, p->arguments, (int)p->count, result);
}
