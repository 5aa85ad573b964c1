/* The hot loop of search on blocks: what cells cost, from the steps that were taken on them.
 *
 * `morello/search/solve/propagate.py` says what the arguments are and does the same in numpy.
 */
#include <stddef.h>
#include <stdint.h>

static double total(size_t edge, size_t edges, size_t parts, const double *cost, const int64_t *child,
                    const double *times, const double *known) {
    double sum = cost[edge];
    for (size_t part = 0; part < parts; ++part) {
        const int64_t cell = child[part * edges + edge];
        if (cell) {
            sum += times[part * edges + edge] * known[cell];
        }
    }
    return sum;
}

void morello_propagate(size_t groups, const int64_t *cell_ends, const int64_t *cells, const int64_t *edge_ends,
                       size_t edges, size_t parts, const int64_t *parent, const double *cost, const int64_t *child,
                       const double *times, const double *budget, double *low, double *high, double *new_low,
                       double *new_high) {
    int changed = 1;
    while (changed) {
        changed = 0;
        for (size_t group = 0; group < groups; ++group) {
            const size_t first_cell = group ? (size_t)cell_ends[group - 1] : 0;
            const size_t first_edge = group ? (size_t)edge_ends[group - 1] : 0;
            for (size_t i = first_cell; i < (size_t)cell_ends[group]; ++i) {
                new_low[cells[i]] = budget[cells[i]] + 1;
                new_high[cells[i]] = high[cells[i]];
            }
            for (size_t edge = first_edge; edge < (size_t)edge_ends[group]; ++edge) {
                const int64_t cell = parent[edge];
                const double least = total(edge, edges, parts, cost, child, times, low);
                if (least < new_low[cell]) {
                    new_low[cell] = least;
                }
                /* A program costs at least the bound, so only then can it be better than what is known. */
                if (least < new_high[cell]) {
                    const double found = total(edge, edges, parts, cost, child, times, high);
                    if (found < new_high[cell]) {
                        new_high[cell] = found;
                    }
                }
            }
            for (size_t i = first_cell; i < (size_t)cell_ends[group]; ++i) {
                const int64_t cell = cells[i];
                if (new_low[cell] > low[cell]) {
                    low[cell] = new_low[cell];
                    changed = 1;
                }
                if (new_high[cell] < high[cell]) {
                    high[cell] = new_high[cell];
                    changed = 1;
                }
            }
        }
    }
}
