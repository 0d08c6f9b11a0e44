/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank does because there are hosts: it joins groups that span them, and takes part in what
 * they are measured with: plain TCP, between the first ranks of the hosts, and torch.distributed,
 * between all. Those first ranks also count what passes the network. Called by rank.c and
 * rank_open.c, in the rank's only thread.
 */
#include <stdlib.h>
#include <unistd.h>

#include "client/bench/exchange.h"
#include "client/bench/meeting.h"
#include "client/bench/rank.h"
#include "client/bench/torch.h"

struct yardstick {
    struct exchange *exchange; /* owned; NULL: this is not the first rank of its host */
    struct exchange_sizes sizes;
    struct torch *torch; /* owned; NULL: it was not asked for */
    bool counts;         /* the interface is this host's alone, and this its first rank */
    struct network_traffic before;
};

static bool has_hosts(const struct rank *rank)
{
    return rank->run->options->hosts > 0;
}

static bool is_first(const struct rank *rank)
{
    return rank->place.rank == layout_first_rank(rank->run->options, rank->host);
}

/* Failures of the bench's own, not of a call of the library: the text is there. */
static int fail(struct rank *rank)
{
    rank->result->status = F8_EIO;
    return -1;
}

int rank_meet(struct rank *rank, void *bytes, size_t size)
{
    int result = 0;

    rank_barrier(rank);
    if (rank->run->meeting_fd >= 0 && rank->place.rank == rank->crew_first) {
        result = meeting_meet(rank->run->meeting_fd, bytes, size);
    }
    if (result != 0) {
        bench_fail(&rank->result->error, "the meeting with other hosts has ended");
        return fail(rank); /* the parent ends those that wait for this one */
    }
    if (rank->run->meeting_fd >= 0) {
        rank_barrier(rank);
    }
    return 0;
}

/* The first rank of each group asks; the ids are there when all have met. */
static int spread_id(struct rank *rank, const struct rank_group *what, bool spans)
{
    const struct run *run = rank->run;
    uint64_t num_groups = layout_num_groups(run->options) + 1;
    int status = F8_OK;

    if (spans && what->rank == 0) {
        status = f8_unique_id(rank->client, rank->run->shared->ids[what->number].bytes);
    }
    if (status != F8_OK) {
        return rank_fail(rank, status, "get a unique id for group", what->name);
    }
    return rank_meet(rank, run->shared->ids, num_groups * sizeof(struct shared_id));
}

int rank_join(struct rank *rank, const struct rank_group *what, struct f8_group **ret_group)
{
    bool spans = what->local_ranks < what->world_size;
    int status;

    if (has_hosts(rank) && spread_id(rank, what, spans) != 0) {
        return -1;
    }
    if (spans) {
        struct f8_hosts hosts = {
            .id = rank->run->shared->ids[what->number].bytes, .local_ranks = what->local_ranks};
        status = f8_group_join_hosts(
            rank->client, what->name, what->rank, what->world_size, &hosts, ret_group);
    } else {
        status = f8_group_join(rank->client, what->name, what->rank, what->world_size, ret_group);
    }
    return status == F8_OK ? 0 : rank_fail(rank, status, "join group", what->name);
}

/* The listener stays until all have connected. */
static int open_exchange(struct rank *rank, int listener)
{
    const struct run *run = rank->run;
    struct yardstick *yardstick = rank->yardstick;
    struct exchange_place place = {.host = rank->host,
        .num_hosts = run->options->hosts,
        .addresses = run->shared->addresses,
        .listener = listener,
        .patience_s = run->options->addresses.count > 0 ? run->options->deadline_s : 0};

    for (uint32_t other = 0; other < run->options->hosts; other++) {
        yardstick->sizes.out[other] = layout_exchanged(run->options, run->model, rank->host, other);
        yardstick->sizes.in[other] = layout_exchanged(run->options, run->model, other, rank->host);
    }
    return exchange_open(&place, &yardstick->sizes, &yardstick->exchange, &rank->result->error);
}

/* A process beside each rank, with as many bytes as all ranks together gather. */
static int open_torch(struct rank *rank)
{
    const struct run *run = rank->run;
    uint64_t ranks = run->options->ranks;
    uint64_t gathered = layout_bytes(run->options, run->model).gathered;
    struct torch_place place = {.rank = rank->place.rank,
        .world_size = run->options->ranks,
        .interface = options_interface(run->options),
        .master = &run->shared->torch_master,
        .bytes = (gathered + ranks - 1) / ranks};

    if (rank->place.rank == 0) {
        run->shared->torch_master = run->shared->addresses[0];
        if (torch_choose_port(&run->shared->torch_master) != 0) {
            bench_fail(&rank->result->error, "--torch: no port is free for rank 0");
            return -1;
        }
    }
    if (rank_meet(rank, &run->shared->torch_master, sizeof(run->shared->torch_master)) != 0) {
        return -1;
    }
    return torch_open(&place, &rank->yardstick->torch, &rank->result->error);
}

/* Where this host listens for plain TCP. */
static int listen_here(struct rank *rank)
{
    const struct options *options = rank->run->options;
    struct sockaddr_storage *address = &rank->run->shared->addresses[rank->host];

    if (options->addresses.count == 0) {
        return exchange_listen(options_interface(options), address, &rank->result->error);
    }
    *address = options->addresses.hosts[rank->host];
    addresses_set_port(address, 0);
    return exchange_listen_at(address, &rank->result->error);
}

int rank_yardstick_open(struct rank *rank)
{
    const struct options *options = rank->run->options;
    struct sockaddr_storage *addresses = rank->run->shared->addresses;
    int listener = -1;
    int result = 0;

    if (!has_hosts(rank)) {
        return 0;
    }
    rank->yardstick = calloc(1, sizeof(*rank->yardstick));
    if (rank->yardstick == NULL) {
        return rank_no_memory(rank, "the yardsticks");
    }
    rank->yardstick->counts = is_first(rank) && options_counts(options);
    if (is_first(rank)) {
        listener = listen_here(rank);
        if (listener < 0) {
            return fail(rank);
        }
    }
    if (rank_meet(rank, addresses, options->hosts * sizeof(*addresses)) != 0) {
        return -1;
    }
    if (listener >= 0) {
        result = open_exchange(rank, listener);
        close(listener);
    }
    if (result == 0 && options->torch) {
        result = open_torch(rank);
    }
    return result == 0 ? 0 : fail(rank);
}

static int measure_raw(struct rank *rank, uint32_t step)
{
    struct shared *shared = rank->run->shared;
    struct yardstick *yardstick = rank->yardstick;
    int result = 0;

    if (rank_meet(rank, NULL, 0) != 0) {
        return -1;
    }
    if (yardstick->exchange != NULL) {
        *shared_time_of(shared, step, rank->index, TIME_RAW_BEGIN) = shared_now();
        result = exchange_direct(yardstick->exchange, &yardstick->sizes, &rank->result->error);
        *shared_time_of(shared, step, rank->index, TIME_RAW_END) = shared_now();
    }
    if (result == 0 && yardstick->exchange != NULL && step == 0) {
        result = exchange_check(yardstick->exchange, &yardstick->sizes, &rank->result->error);
    }
    return result == 0 ? rank_meet(rank, NULL, 0) : -1;
}

static int measure_torch(struct rank *rank, uint32_t step)
{
    struct shared *shared = rank->run->shared;
    int result;

    *shared_time_of(shared, step, rank->index, TIME_TORCH_BEGIN) = shared_now();
    result = torch_gather(rank->yardstick->torch, &rank->result->error);
    *shared_time_of(shared, step, rank->index, TIME_TORCH_END) = shared_now();
    rank_barrier(rank);
    return result;
}

int rank_yardstick_measure(struct rank *rank, uint32_t step)
{
    int result = 0;

    if (rank->yardstick == NULL) {
        return 0;
    }
    if (measure_raw(rank, step) != 0) {
        return fail(rank);
    }
    if (rank->yardstick->torch != NULL) {
        result = measure_torch(rank, step);
    }
    return result == 0 ? 0 : fail(rank);
}

void rank_yardstick_close(struct rank *rank)
{
    if (rank->yardstick != NULL) {
        exchange_close(rank->yardstick->exchange);
        torch_close(rank->yardstick->torch);
        free(rank->yardstick);
    }
}

int rank_count_begin(struct rank *rank)
{
    if (rank->yardstick == NULL) {
        return 0;
    }
    if (rank->yardstick->counts) {
        /* Should it fail, the end does too. */
        (void)network_count_own(options_interface(rank->run->options), &rank->yardstick->before);
    }
    return rank_meet(rank, NULL, 0); /* nobody sends before all have looked */
}

int rank_count_end(struct rank *rank, uint32_t step)
{
    struct network_traffic after;
    const char *interface;

    if (rank->yardstick == NULL) {
        return 0;
    }
    if (rank_meet(rank, NULL, 0) != 0) { /* all that was sent for this step has come */
        return -1;
    }
    if (rank->yardstick->counts) {
        interface = options_interface(rank->run->options);
        if (network_count_own(interface, &after) != 0) {
            bench_fail(&rank->result->error, "there is no interface %s to count on", interface);
            return fail(rank);
        }
        *shared_traffic_of(rank->run->shared, step, rank->host) =
            network_traffic_between(&rank->yardstick->before, &after);
    }
    return 0;
}
