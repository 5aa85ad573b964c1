/* Rounding of bounds, which are floats: costs are doubles. */
#ifndef MORELLO_ROUNDING_H
#define MORELLO_ROUNDING_H

#include <stdint.h>
#include <string.h>

/* Return a cost rounded down to 24 bits. */
static inline float rounded_down(double cost) {
    uint64_t bits;
    memcpy(&bits, &cost, sizeof bits);
    bits &= ~UINT64_C(0x1FFFFFFF);
    memcpy(&cost, &bits, sizeof bits);
    return (float)cost;
}

#endif
