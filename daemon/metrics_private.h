/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of metrics share: the list of all families, metrics_text.c (OpenMetrics' syntax),
 * metrics.c (the daemon), metrics_groups.c and metrics_weights.c. On the loop.
 */
#ifndef F8_DAEMON_METRICS_PRIVATE_H
#define F8_DAEMON_METRICS_PRIVATE_H

#include "daemon/metrics.h"

/*
 * X(ID, "name", "type", "unit", "help"): every family of samples. A name ends with its unit; the
 * samples of counters have _total after it, that of an info _info. docs/metrics.md lists them
 * too, and a test compares.
 */
#define METRICS_LIST(X)                                                                            \
    X(BUILD, "build", "info", "", "The daemon's version and the kernels that it chose")            \
    X(UPTIME, "uptime_seconds", "gauge", "seconds", "Time since the daemon began")                 \
    X(CONNECTIONS, "connections", "gauge", "", "Clients that are connected, f8ctl included")       \
    X(JOBS, "jobs", "gauge", "", "Training runs")                                                  \
    X(GROUPS, "groups", "gauge", "", "Groups of ranks, by state")                                  \
    X(WEIGHTS, "weights", "gauge", "", "Registered weights of all groups")                         \
    X(REGION_BYTES, "region_bytes", "gauge", "bytes", "Memory of clients that is mapped")          \
    X(ARENA_BYTES, "arena_bytes", "gauge", "bytes", "Memory for gathered weights")                 \
    X(STATE_BYTES, "state_bytes", "gauge", "bytes", "Files of scaling states")                     \
    X(STATES, "states", "gauge", "",                                                               \
        "Scaling states that are stored: held by a group, or lingering for one to continue")       \
    X(SNAPSHOTS, "snapshots", "gauge", "", "Scaling states that have a snapshot on the disk")      \
    X(SNAPSHOT_BYTES, "snapshot_bytes", "gauge", "bytes", "The newest snapshots of these")         \
    X(SNAPSHOT_AGE, "snapshot_age_seconds", "gauge", "seconds",                                    \
        "Since all states were on the disk, or the daemon began; not without --state-dir")         \
    X(SNAPSHOT_WRITTEN, "snapshot_written_bytes", "counter", "bytes", "Snapshots written")         \
    X(SNAPSHOT_FAILED, "failed_snapshots", "counter", "",                                          \
        "Passes over the states that did not get all of them to the disk")                         \
    X(UNUSED, "unused_state_files", "gauge", "",                                                   \
        "Files of states that the daemon does not use, by place and cause")                        \
    X(GATHERS, "gathers", "counter", "", "Gathers that ended well")                                \
    X(GATHERED_BYTES, "gathered_bytes", "counter", "bytes",                                        \
        "Bytes of gathered weights without padding, by format on the wire")                        \
    X(SATURATED, "saturated_elements", "counter", "", "Elements that a cast clamped")              \
    X(NAN, "nan_elements", "counter", "", "Elements that were NaN at a cast")                      \
    X(STALE, "stale_gathers", "counter", "",                                                       \
        "Weights gathered with a scale from before their values changed")                          \
    X(FAILED, "failed_rounds", "counter", "", "Rounds that broke their group, by cause")           \
    X(ROUNDS, "open_rounds", "gauge", "", "Groups whose next round waits or runs")                 \
    X(OLDEST, "oldest_wait_seconds", "gauge", "seconds",                                           \
        "Age of the round that has waited longest; 0 if none waits")                               \
    X(LEASES, "leases", "gauge", "",                                                               \
        "Gathered buckets that ranks have and have not released, once for each rank")              \
    X(OLDEST_LEASE, "oldest_lease_seconds", "gauge", "seconds",                                    \
        "Time since the gather of the lease that has lasted longest; 0 if there is none")          \
    X(GATHER_TIME, "gather_seconds", "histogram", "seconds",                                       \
        "From the first rank's request for a gather to its end")                                   \
    X(WAIT_TIME, "wait_seconds", "histogram", "seconds",                                           \
        "From the first rank's request for a gather to the last's")                                \
    X(RPC_TIME, "rpc_seconds", "histogram", "seconds",                                             \
        "From a request to its reply, of requests that are answered at once")                      \
    X(GROUP_GATHERS, "group_gathers", "counter", "", "As gathers, of a group")                     \
    X(GROUP_BYTES, "group_gathered_bytes", "counter", "bytes", "As gathered_bytes, of a group")    \
    X(GROUP_SATURATED, "group_saturated_elements", "counter", "",                                  \
        "As saturated_elements, of a group")                                                       \
    X(GROUP_NAN, "group_nan_elements", "counter", "", "As nan_elements, of a group")               \
    X(GROUP_STALE, "group_stale_gathers", "counter", "", "As stale_gathers, of a group")           \
    X(GROUP_FAILED, "group_failed_rounds", "counter", "", "As failed_rounds, of a group")          \
    X(GROUP_ARENA, "group_arena_bytes", "gauge", "bytes", "As arena_bytes, of a group")            \
    X(GROUP_LEASES, "group_leases", "gauge", "", "As leases, of a group")                          \
    X(GROUP_OLDEST_LEASE, "group_oldest_lease_seconds", "gauge", "seconds",                        \
        "As oldest_lease_seconds, of a group")                                                     \
    X(GROUP_HOSTS, "group_hosts", "gauge", "", "Hosts of a group that spans several, by state")    \
    X(GROUP_ENGINE, "group_engine_bytes", "counter", "bytes",                                      \
        "Bytes that a group's engine moved between hosts, by direction")                           \
    X(WEIGHT_SCALE, "weight_scale", "gauge", "", "Scale of the last cast, or precomputed")         \
    X(WEIGHT_AMAX, "weight_amax", "gauge", "", "Largest magnitude that was last reduced")          \
    X(WEIGHT_GATHERS, "weight_gathers", "counter", "", "As gathers, of a weight")                  \
    X(WEIGHT_SATURATED, "weight_saturated_elements", "counter", "",                                \
        "As saturated_elements, of a weight")                                                      \
    X(WEIGHT_NAN, "weight_nan_elements", "counter", "", "As nan_elements, of a weight")            \
    X(WEIGHT_STALE, "weight_stale_gathers", "counter", "", "As stale_gathers, of a weight")        \
    X(WEIGHTS_UNLISTED, "unlisted_weights", "gauge", "",                                           \
        "Weights that are not shown alone, as there are too many")

enum metrics_family {
#define METRICS_ENUM(id, name, type, unit, help) METRICS_##id,
    METRICS_LIST(METRICS_ENUM)
#undef METRICS_ENUM
};

/* metrics_text.c: the head of a family, whose samples must follow. */
void metrics_family(struct metrics_text *text, enum metrics_family family);

/* Labels being written: begun empty, and used in one sample or several. */
struct metrics_labels {
    char text[7 * (F8_PROTO_MAX_NAME + 1) + 256]; /* three names, each byte escaped, and more */
    size_t size;
};
void metrics_label(struct metrics_labels *labels, const char *name, const char *value);

/* One sample of a family; `labels` may be NULL. */
void metrics_count(struct metrics_text *text, enum metrics_family family,
    const struct metrics_labels *labels, uint64_t value);
void metrics_value(struct metrics_text *text, enum metrics_family family,
    const struct metrics_labels *labels, double value);
void metrics_histogram(
    struct metrics_text *text, enum metrics_family family, const struct histogram *histogram);
void metrics_end(struct metrics_text *text);

/* "uid", "run" (its job) and "group" of a group; with no group, of all that are not listed. */
void metrics_group_labels(struct metrics_labels *ret_labels, const struct group *group);

/* metrics_groups.c: the groups that have a name in the text, and their families. */
struct metrics_groups {
    const struct group *listed[COUNTERS_MAX_GROUPS];      /* borrowed */
    struct collective_leases leases[COUNTERS_MAX_GROUPS]; /* theirs */
    struct collective_leases all_leases, other_leases;
    uint32_t num_listed;
    uint64_t by_state[GROUP_BROKEN + 1];
    uint64_t waiting, running; /* rounds */
    uint64_t oldest_ms;        /* since when the oldest has waited */
    uint64_t other_arena_bytes;
};
void metrics_find_groups(const struct metrics_source *source, struct metrics_groups *ret_groups);
void metrics_group_families(struct metrics_text *text, const struct metrics_source *source,
    const struct metrics_groups *groups);

/* metrics_weights.c */
void metrics_weight_families(struct metrics_text *text, const struct metrics_source *source,
    const struct metrics_groups *groups);

#endif
