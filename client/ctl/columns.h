/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each view shows in its table: lists of columns over the rows of the protocol. Used by
 * views.c, and by options.c to know what --sort may name.
 */
#ifndef F8CTL_COLUMNS_H
#define F8CTL_COLUMNS_H

#include "client/ctl/print_table.h"

/* A list of columns and its length. */
struct columns {
    const struct table_column *columns; /* borrowed: static */
    size_t count;
};

extern const struct columns columns_status;
extern const struct columns columns_devices;
extern const struct columns columns_jobs;
extern const struct columns columns_groups;
extern const struct columns columns_weights;
extern const struct columns columns_scales;
extern const struct columns columns_amax;
extern const struct columns columns_buckets;
extern const struct columns columns_show;
extern const struct columns columns_syncs;
extern const struct columns columns_rounds;
extern const struct columns columns_hosts;
extern const struct columns columns_stats;
extern const struct columns columns_times;
extern const struct columns columns_top; /* of top.h's weights */

/* Whether the job, a row of columns_jobs, has more than states that are stored. */
bool columns_job_is_there(const void *row);

/* A row of columns_devices: a device and the daemon's number of it. */
struct device_row {
    uint32_t number;
    const struct F8__DeviceInfo *device; /* borrowed */
};

/* A row of columns_syncs: one sync of a delayed weight. */
struct sync_row {
    uint64_t number;
    uint32_t amax, scale; /* bits */
};

#endif
