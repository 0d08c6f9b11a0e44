/* SPDX-License-Identifier: Apache-2.0 */
/* A rank with a state: see state_rank.h. */
#include "lib/state_rank.h"

#include <check.h>

#include "lib/device_memory.h"

void state_rank_well(int status)
{
    ck_assert_msg(status == F8_OK, "%s: %s", f8_status_name(status), f8_error_text());
}

void state_rank_join(
    const struct test_daemon *daemon, struct state_rank *rank, const struct state_setup *setup)
{
    const struct f8_connect_options options = {
        .socket = daemon->socket, .job = setup->job ? setup->job : "x", .token = setup->token};
    uint32_t world_size = setup->world_size ? setup->world_size : 1;
    struct f8_region *region;
    void *address;
    state_rank_well(f8_connect(&options, &rank->client));
    state_rank_well(device_memory_open(rank->client, setup->rank, &rank->device_memory));
    rank->stream = device_memory_stream(rank->device_memory);
    state_rank_well(f8_group_join(rank->client, "dp", setup->rank, world_size, &rank->group));
    state_rank_well(
        device_memory_alloc(rank->device_memory, rank->client, 4096, &region, &address));
    rank->memory = address;
    const struct f8_weight_desc weight = {
        .name = setup->name ? setup->name : "layers.0.wq",
        .ndim = 1,
        .shape = {STATE_RANK_COUNT},
        .dtype = setup->dtype ? setup->dtype : F8_F32,
        .flavour = setup->flavour ? setup->flavour : F8_DELAYED,
        .format = F8_E4M3FN,
        .history_length = setup->history,
        .region = region,
    };
    const struct f8_bucket_desc bucket = {.name = "b", .count = 1};
    state_rank_well(f8_register(rank->group, &weight, 1, &bucket, 1));
}

int state_rank_seal(struct state_rank *rank, enum f8_state state, uint64_t syncs)
{
    const struct f8_seal_options options = {.state = state, .syncs = syncs};
    return f8_seal(rank->group, &options);
}

void state_rank_step(struct state_rank *rank, float amax)
{
    f8_ticket ticket;
    rank->memory[0] = amax;
    state_rank_well(device_memory_put(rank->device_memory, rank->memory, sizeof(float)));
    state_rank_well(f8_gather(rank->group, 0, F8_DEFAULT_DEADLINE, rank->stream));
    state_rank_well(f8_post_gather(rank->group, 0, F8_FOREVER, NULL, 0, rank->stream));
    state_rank_well(f8_release(rank->group, 0, rank->stream));
    state_rank_well(f8_sync(rank->group, F8_DEFAULT_DEADLINE, &ticket));
    state_rank_well(f8_wait(rank->group, ticket, F8_FOREVER, rank->stream));
}

uint64_t state_rank_syncs(struct state_rank *rank)
{
    uint64_t syncs;
    state_rank_well(f8_syncs(rank->group, &syncs));
    return syncs;
}

void state_rank_close(struct state_rank *rank)
{
    f8_close(rank->client);
    device_memory_close(rank->device_memory);
}

void state_rank_leave(const struct test_daemon *daemon, const char *token)
{
    struct state_rank rank;
    state_rank_join(daemon, &rank, &(struct state_setup){.token = token});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 0)); /* with nothing stored: fresh */
    ck_assert_uint_eq(state_rank_syncs(&rank), 0);
    for (int i = 1; i <= 3; i++)
        state_rank_step(&rank, (float)i);
    state_rank_close(&rank);
}
