/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon counts of its own work: plain numbers that grow where things happen, as metrics
 * shows them on demand. Incremented by collective and session on the loop; no locks, no memory of
 * their own.
 */
#ifndef F8_DAEMON_COUNTERS_H
#define F8_DAEMON_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

/* Groups that are shown under their own name, at once; the others are counted as one. */
#define COUNTERS_MAX_GROUPS 64

/* Upper bounds of a histogram's buckets, in nanoseconds; one more has no bound. */
#define COUNTERS_BOUNDS 25
extern const uint64_t counters_bounds[COUNTERS_BOUNDS];

/* Durations. Buckets are disjoint here; those of the text add up. */
struct histogram {
    uint64_t buckets[COUNTERS_BOUNDS + 1];
    uint64_t sum_ns;
};

void histogram_observe(struct histogram *histogram, uint64_t ns);

/* Why rounds fail: X(NAME, "label"). */
#define COUNTERS_CAUSE_LIST(X)                                                                     \
    X(MISMATCH, "mismatch")   /* ranks asked for different things */                               \
    X(DEADLINE, "deadline")   /* not all asked in time */                                          \
    X(RANK_DIED, "rank_died") /* a process is gone without a goodbye */                            \
    X(RANK_LEFT, "rank_left") /* a rank left while others waited */                                \
    X(ELSEWHERE, "elsewhere") /* another host, or a group that it depends on */                    \
    X(WORK, "work")           /* the work itself was refused or failed */

enum counters_cause {
#define COUNTERS_CAUSE_ENUM(name, label) COUNTERS_##name,
    COUNTERS_CAUSE_LIST(COUNTERS_CAUSE_ENUM)
#undef COUNTERS_CAUSE_ENUM
        COUNTERS_CAUSES
};

/* What gathered elements are on the wire: X(NAME), of enum f8_proto_wire. */
#define COUNTERS_WIRE_LIST(X) X(F32) X(BF16) X(F16) X(E4M3FN) X(E5M2)

enum counters_wire {
#define COUNTERS_WIRE_ENUM(name) COUNTERS_WIRE_##name,
    COUNTERS_WIRE_LIST(COUNTERS_WIRE_ENUM)
#undef COUNTERS_WIRE_ENUM
        COUNTERS_WIRES
};

/* Of one group since it was made, or of all that have no name in the text. */
struct counters_group {
    uint64_t gathers, bytes;
    uint64_t saturated, nan; /* elements */
    uint64_t stale;          /* gathers of a weight with a scale older than its values */
    uint64_t failed;
};

/* Of the daemon since it began. */
struct counters {
    uint64_t failed[COUNTERS_CAUSES];
    uint64_t bytes[COUNTERS_WIRES]; /* gathered, whole weights without padding */
    uint64_t saturated, nan, stale;
    struct histogram gather; /* from the first rank's request to the end of the gather */
    struct histogram wait;   /* from the first rank's request to the last's */
    struct histogram rpc;    /* from a request to its reply, of those answered at once */
    struct counters_group other;
    uint32_t listed;   /* groups that have a name in the text now */
    bool has_unlisted; /* there was a group that found no room there */
};

/* Where an f8_proto_wire is counted. */
enum counters_wire counters_wire(uint32_t wire);

/* Its f8_proto_wire. */
uint32_t counters_wire_proto(enum counters_wire wire);

#endif
