/* Closures of moves: from each pattern of an operand to each, by any number of them. */
#include <math.h>
#include <stdint.h>

#include "_closure.h"

/* Lower a row to what another one has for so much more. */
static void lower_row(double *restrict row, const double *restrict other, double more, int64_t count) {
    for (int64_t at = 0; at < count; ++at) {
        const double found = more + other[at];
        row[at] = found < row[at] ? found : row[at];
    }
}

void closure_close(double *cost, int64_t matrices, int64_t count) {
    for (int64_t each = 0; each < matrices; ++each, cost += count * count) {
        for (int64_t over = 0; over < count; ++over) {
            for (int64_t from = 0; from < count; ++from) {
                const double more = cost[from * count + over];
                if (from != over && more < INFINITY) {
                    lower_row(cost + from * count, cost + over * count, more, count);
                }
            }
        }
    }
}

void closure_lower_sources(double *values, const double *cost, int64_t shapes, int64_t sources, int64_t destinations) {
    for (int64_t shape = 0; shape < shapes; ++shape, values += sources * destinations, cost += sources * sources) {
        for (int64_t into = 0; into < sources; ++into) {
            for (int64_t from = 0; from < sources; ++from) {
                const double more = cost[from * sources + into];
                if (from != into && more < INFINITY) {
                    lower_row(values + from * destinations, values + into * destinations, more, destinations);
                }
            }
        }
    }
}

void closure_lower_destinations(double *values, const double *cost, int64_t shapes, int64_t sources, int64_t destinations) {
    for (int64_t shape = 0; shape < shapes; ++shape, cost += destinations * destinations) {
        for (int64_t source = 0; source < sources; ++source, values += destinations) {
            for (int64_t into = 0; into < destinations; ++into) {
                if (values[into] < INFINITY) {
                    lower_row(values, cost + into * destinations, values[into], destinations);
                }
            }
        }
    }
}
