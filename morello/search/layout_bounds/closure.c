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

void closure_lower(double *rows, const double *more, const double *others, int64_t matrices, int64_t height,
                   int64_t through, int64_t width) {
    for (int64_t each = 0; each < matrices; ++each) {
        for (int64_t over = 0; over < through; ++over) {
            for (int64_t from = 0; from < height; ++from) {
                double *row = rows + from * width;
                const double *other = others + over * width;
                const double cost = more[from * through + over];
                if (row != other && cost < INFINITY) {
                    lower_row(row, other, cost, width);
                }
            }
        }
        rows += height * width;
        more += height * through;
        others += through * width;
    }
}
