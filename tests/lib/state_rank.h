/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of job x, group dp with one delayed weight, for tests of where its state comes from. All
 * of them fail the test, with the client's text, if what they do fails.
 */
#ifndef F8_STATE_RANK_H
#define F8_STATE_RANK_H

#include "f8client.h"
#include "lib/test_daemon.h"

/* The weight's elements. */
#define STATE_RANK_COUNT 64

struct state_rank {
    struct f8_client *client;
    struct f8_group *group;
    float *memory;
    struct device_memory *device_memory; /* owned: NULL on the host */
    void *stream;                        /* borrowed: from device_memory */
};

/* What a rank registers; zeros are the defaults. */
struct state_setup {
    const char *job, *token, *name;
    uint32_t rank, world_size, history;
    enum f8_dtype dtype;
    enum f8_flavour flavour; /* F8_DELAYED by default */
};

/* That the call ended well. */
void state_rank_well(int status);

/* Connects, joins and registers. */
void state_rank_join(
    const struct test_daemon *daemon, struct state_rank *rank, const struct state_setup *setup);

/* The seal's own status. */
int state_rank_seal(struct state_rank *rank, enum f8_state state, uint64_t syncs);

/* A gather with that amax, and a sync. */
void state_rank_step(struct state_rank *rank, float amax);

uint64_t state_rank_syncs(struct state_rank *rank);

/* Leaves. */
void state_rank_close(struct state_rank *rank);

/* A whole run of three syncs, of amaxes 1, 2 and 3. */
void state_rank_leave(const struct test_daemon *daemon, const char *token);

#endif
