/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms, and the order of the formats: see counters.h. On the loop. */
#include "daemon/counters.h"

#include <assert.h>

#include "protocol.h"

#define US (uint64_t)1000
#define MS (1000 * US)
#define S  (1000 * MS)

/* From a reply at once, which takes some microseconds, to a rank that has stopped for minutes. */
const uint64_t counters_bounds[COUNTERS_BOUNDS] = {1 * US, 2500, 5 * US, 10 * US, 25 * US, 50 * US,
    100 * US, 250 * US, 500 * US, 1 * MS, 2500 * US, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS,
    250 * MS, 500 * MS, 1 * S, 2500 * MS, 5 * S, 10 * S, 30 * S, 60 * S, 300 * S};

void histogram_observe(struct histogram *histogram, uint64_t ns)
{
    uint32_t bucket = 0;
    while (bucket < COUNTERS_BOUNDS && ns > counters_bounds[bucket])
        bucket++;
    histogram->buckets[bucket]++;
    histogram->sum_ns += ns;
}

static const uint8_t wires[COUNTERS_WIRES] = {
#define WIRE_ROW(name) [COUNTERS_WIRE_##name] = F8_PROTO_WIRE_##name,
    COUNTERS_WIRE_LIST(WIRE_ROW)
#undef WIRE_ROW
};

enum counters_wire counters_wire(uint32_t wire)
{
    uint32_t i = 0;
    while (i < COUNTERS_WIRES && wires[i] != wire)
        i++;
    assert(i < COUNTERS_WIRES); /* a registered weight has one of them */
    return (enum counters_wire)i;
}

uint32_t counters_wire_proto(enum counters_wire wire)
{
    return wires[wire];
}
