/* Pipelines, which make new tensors, and the memory that steps hold while their parts run. */
#include "state.h"

/* Put into `left` the limits that remain while `used` bytes of a level are held. Return 0 if they do not fit. */
int lowered(const Model *model, int level, uint64_t limits, int64_t used, uint64_t *left) {
    const int64_t *values = model->values[level];
    const int code = code_of(model, level, limits);
    const int64_t rest = values[code] - used;
    if (rest < 0) {
        return 0;
    }
    int low = 0, high = code;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (values[middle] <= rest) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    *left = limits - ((uint64_t)(code - low) << model->shift[level]);
    return 1;
}

/* Return the least limits under which a program with this peak fits while `used` bytes of a level are held. */
static uint64_t raised(const Model *model, int level, uint64_t peak, int64_t used) {
    if (peak == UNKNOWN_PEAK) {
        return peak;
    }
    const int64_t *values = model->values[level];
    const int code = code_of(model, level, peak);
    int least = code;
    while (least < model->counts[level] && values[least] < values[code] + used) {
        ++least;
    }
    return least < model->counts[level] ? peak + ((uint64_t)(least - code) << model->shift[level]) : UNKNOWN_PEAK;
}

/* Return the larger limit of each level. */
static uint64_t larger(const Model *model, uint64_t one, uint64_t other) {
    if (one == UNKNOWN_PEAK || other == UNKNOWN_PEAK) {
        return UNKNOWN_PEAK;
    }
    uint64_t result = 0;
    for (int level = 0; level < model->levels; ++level) {
        const int mine = code_of(model, level, one), theirs = code_of(model, level, other);
        result |= (uint64_t)(mine > theirs ? mine : theirs) << model->shift[level];
    }
    return result;
}

/* A candidate pipeline: its table, the class tuples of its parts, one step, and the states of its new tensors. */
typedef struct {
    const PipelineTable *table;
    const int32_t *tuples;
    uint32_t which;
    int32_t step;
    uint32_t shape;
    const int32_t *fresh;
} Stage;

/* Put the states of new tensors into `fresh`. Return their cost, infinity where the step does not apply. */
static double new_tensors(const Model *model, const PipelineTable *table, int32_t step, uint32_t shape,
                          int32_t *fresh) {
    double cost = table->part[0].shape[shape] >= 0 ? 0 : INFINITY;
    for (int tensor = 0; tensor < table->tensors && cost < INFINITY; ++tensor) {
        fresh[tensor] = table->fresh[step * table->tensors + tensor][shape];
        if (fresh[tensor] < 0) {
            return INFINITY;
        }
        cost += table->free ? 0 : model->cost[fresh[tensor]][table->tensor[tensor][shape]];
    }
    return cost;
}

/* Return the bytes of a level that a pipeline's new tensors hold while one of its parts runs. */
static int64_t held_by(const Model *model, const PipelineTable *table, int32_t step, uint32_t shape,
                       const PipelinePart *part, int level) {
    int64_t bytes = 0;
    for (int at = 0; at < part->holding; ++at) {
        const int32_t tensor = part->holds[at];
        if (table->levels[tensor] == level) {
            const int32_t fresh = table->fresh[step * table->tensors + tensor][shape];
            bytes += model->bytes[fresh][table->tensor[tensor][shape]];
        }
    }
    return bytes;
}

/* Put the limits of a part into `left`. Return 0 if the tensors held meanwhile do not fit. */
static int limits_left(const Model *model, const Stage *stage, const PipelinePart *part, uint64_t limits,
                       uint64_t *left) {
    *left = limits;
    for (int level = 0; level < model->levels; ++level) {
        const int64_t bytes = held_by(model, stage->table, stage->step, stage->shape, part, level);
        if (bytes && !lowered(model, level, *left, bytes, left)) {
            return 0;
        }
    }
    return 1;
}

/* Return the lower bound of a pipeline by the class tuples of its parts. */
static double pipeline_bound(const Model *model, const Stage *stage, uint64_t limits, double own, double budget) {
    const PipelineTable *table = stage->table;
    for (int at = 0; at < table->parts && own <= budget; ++at) {
        const PipelinePart *part = &table->part[at];
        uint64_t left;
        if (part->shape[stage->shape] < 0 || !limits_left(model, stage, part, limits, &left)) {
            return INFINITY;
        }
        const Space *space = &model->space[part->space];
        own += bound(model, space, stage->tuples[at], part->shape[stage->shape], left);
    }
    return own;
}

/* Put the states of a part's operands into `made`. Return 0 where an operand has no such view. */
static int operands_of(const Space *space, const PipelinePart *part, const int32_t *states, const int32_t *fresh,
                       int32_t *made) {
    for (int operand = 0; operand < part->operands; ++operand) {
        const int32_t arg = part->args[operand];
        made[operand] = arg < space->operands ? states[arg] : fresh[arg - space->operands];
        if (part->seen[operand]) {
            made[operand] = (int32_t)part->seen[operand][made[operand]];
        }
        if (made[operand] < 0) {
            return 0;
        }
    }
    return 1;
}

/* Return the least bound of the pipelines of a class tuple, by the patterns of its operands. */
double pipeline_cost(const Model *model, const Space *space, int32_t tuple, uint32_t shape, const int32_t *states) {
    double least = INFINITY;
    int32_t made[model->width];
    for (int32_t which = space->pipeline_first[tuple]; which < space->pipeline_first[tuple + 1]; ++which) {
        const PipelineTable *table = &space->pipeline[space->pipeline_table[which]];
        const int32_t *tuples = table->tuples + (int64_t)space->pipeline_row[which] * table->parts;
        int32_t fresh[table->tensors + 1];
        for (int32_t step = 0; step < table->steps; ++step) {
            double cost = new_tensors(model, table, step, shape, fresh);
            for (int at = 0; at < table->parts && cost < least; ++at) {
                const PipelinePart *part = &table->part[at];
                const int32_t own = part->shape[shape];
                const int there = own >= 0 && tuples[at] >= 0 && operands_of(space, part, states, fresh, made);
                cost += there ? part_bound(model, part->space, tuples[at], own, made) : INFINITY;
            }
            least = lesser(cost, least);
        }
    }
    return least;
}

static void pipeline_edge(State *state, uint32_t number, const Stage *stage, double own, double budget) {
    const Model *model = state->model;
    const PipelineTable *table = stage->table;
    const Space *space = &model->space[table_at(state, &state->nodes[number])->space];
    const uint64_t limits = state->nodes[number].limits;
    int32_t made[model->width];
    const int64_t priority = table->priority[stage->step];
    Hyperedge edge = new_edge(state, PIPELINE, stage->which, (uint32_t)stage->step, priority, own);
    for (int at = 0; at < table->parts; ++at) {
        const PipelinePart *part = &table->part[at];
        uint64_t left;
        if (!operands_of(space, part, states_at(state, &state->nodes[number]), stage->fresh, made) ||
            !limits_left(model, stage, part, limits, &left)) {
            edge.low = INFINITY;
            break;
        }
        const uint32_t below = table_of(state, part->space, stage->tuples[at], made);
        add_new_part(state, &edge, below, part->shape[stage->shape], left, 1, budget);
    }
    keep_edge(state, &edge, budget);
}

void pipeline_edges(State *state, uint32_t number, double budget) {
    const Model *model = state->model;
    const SubproblemTable table = *table_at(state, &state->nodes[number]);
    const Space *space = &model->space[table.space];
    const uint32_t shape = state->nodes[number].shape;
    for (int32_t which = space->pipeline_first[table.tuple]; which < space->pipeline_first[table.tuple + 1]; ++which) {
        const PipelineTable *pipeline = &space->pipeline[space->pipeline_table[which]];
        const int32_t *tuples = pipeline->tuples + (int64_t)space->pipeline_row[which] * pipeline->parts;
        int32_t fresh[pipeline->tensors + 1];
        Stage stage = {
            .table = pipeline, .tuples = tuples, .which = (uint32_t)which, .shape = shape, .fresh = fresh};
        for (stage.step = 0; stage.step < pipeline->steps; ++stage.step) {
            const double own = new_tensors(model, pipeline, stage.step, shape, fresh);
            if (own <= budget &&
                pipeline_bound(model, &stage, state->nodes[number].limits, own, budget) <= budget) {
                pipeline_edge(state, number, &stage, own, budget);
            }
        }
    }
}

/* Return the bytes of a level that a step holds while one of its parts runs. */
static int64_t held(const State *state, uint32_t number, const Hyperedge *edge, const uint32_t *parts, int part,
                    int level) {
    const Model *model = state->model;
    const Node *node = &state->nodes[number];
    const Space *space = &model->space[table_at(state, node)->space];
    const uint32_t shape = node->shape;
    if (edge->kind == MOVE && space->move[edge->which].level == level) {
        const int operand = space->move[edge->which].operand;
        const int32_t fresh = states_at(state, &state->nodes[parts[0]])[operand];
        return model->bytes[fresh][space->tensor[operand][shape]];
    }
    if (edge->kind == PIPELINE) {
        const PipelineTable *table = &space->pipeline[space->pipeline_table[edge->which]];
        return held_by(model, table, (int32_t)edge->step, shape, &table->part[part], level);
    }
    return edge->kind == EXTRA ? state->extras[edge->which].live[part * model->levels + level] : 0;
}

/* Return the peak of a program that begins with a step, given its parts and their peaks, `below`. */
uint64_t peak_of(const State *state, uint32_t number, const Hyperedge *edge, const uint32_t *parts,
                 const uint64_t *below) {
    const Model *model = state->model;
    const Space *space = &model->space[table_at(state, &state->nodes[number])->space];
    uint64_t peak = edge->kind == KERNEL ? space->kernel_needs[edge->which] : 0;
    peak = edge->kind == EXTRA ? state->extras[edge->which].needs : peak;
    for (int part = 0; part < edge->parts; ++part) {
        uint64_t own = below[part];
        for (int level = 0; level < model->levels && own != UNKNOWN_PEAK; ++level) {
            const int64_t bytes = held(state, number, edge, parts, part, level);
            own = bytes ? raised(model, level, own, bytes) : own;
        }
        peak = larger(model, peak, own);
    }
    return peak;
}
