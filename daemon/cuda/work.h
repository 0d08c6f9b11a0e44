/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What work*.c share: the plan of one work while it is issued, and how its tasks become tables.
 * Device thread.
 */
#ifndef F8_DAEMON_CUDA_WORK_H
#define F8_DAEMON_CUDA_WORK_H

#include "daemon/cuda/work_batch.h"

struct work_plan {
    struct cuda *cuda;            /* borrowed, as all of these */
    struct cuda_command *command; /* the work's */
    struct backend_work *work;
    struct backend_steps *steps;
    struct cuda_arena *arena;
    struct cuda_arena *amaxes; /* whose reduced amaxes give the scales; may be `arena` */
    uint64_t deadline_ms;      /* for a device to take it */
    int status;                /* F8_OK so far, or why it failed, and */
    struct reason reason;
};

/* F8_EINVAL, and nothing has been queued: something that the work names is not on its devices. */
int work_plan_check(struct work_plan *plan);

/* On the d-th device, which is the current one: zeroes amaxes, then takes those of AMAX tasks. */
int work_plan_amaxes(struct work_plan *plan, uint32_t d);

/* Likewise: sets scales, then runs all other tasks. */
int work_plan_writes(struct work_plan *plan, uint32_t d);

#endif
