/* What is known from earlier: answers of a table, each to all Specs in a box of sizes and limits. */
#include "state.h"

static int contains(const State *state, const Answers *known, int64_t at, uint32_t shape, uint64_t limits) {
    const Model *model = state->model;
    const int axes = known->rank + model->levels;
    const int64_t *low = known->low + at * axes, *high = known->high + at * axes;
    for (int axis = 0; axis < axes; ++axis) {
        const int level = axis - known->rank;
        const int64_t here =
            level < 0 ? known->size_at[axis][shape] : known->limit_at[level][code_of(model, level, limits)];
        if (here < low[axis] || here > high[axis]) {
            return 0;
        }
    }
    return 1;
}

/* Take a cost, or bounds of it, for known from earlier. */
void assume(State *state, uint32_t number, double low, double high) {
    if (high < INFINITY && !solved(&state->nodes[number])) {
        state->nodes[number].flags |= RECALLED;
    }
    state->progress.recalled += low > 0;
    tighten(state, number, low, high, UNKNOWN_PEAK, 0);
}

/* Learn what answers from earlier say of a node. Return 0 where it takes more to know which of them to assume. */
int recall(State *state, uint32_t number, const Answers *known) {
    const Node *node = &state->nodes[number];
    const uint32_t shape = node->shape;
    double low = 0, high = INFINITY;
    int settled = 0, claimed = 0;
    for (int64_t at = 0; at < known->count; ++at) {
        if (!contains(state, known, at, shape, node->limits)) {
            continue;
        }
        if (known->foreign[at]) {
            claimed |= known->kind[at] == 0;
            continue;
        }
        const int64_t cost = known->numerator[at] * (known->volume[shape] / known->denominator[at]);
        const double least = known->kind[at] == 2 ? INFINITY : (double)cost;
        const double most = known->kind[at] == 0 ? (double)cost : INFINITY;
        if (known->kind[at] != 1) {
            if (settled && (least != low || most != high)) {
                return 0;
            }
            settled = 1;
            high = most;
        }
        low = fmax(low, least);
    }
    if ((claimed && !settled) || (settled && high < low)) {
        return 0;
    }
    assume(state, number, low, high);
    return 1;
}
