/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a group over several hosts that are told what to do: see fault_rank.h. */
#include "lib/fault_rank.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/device_memory.h"
#include "lib/fault_model.h"
#include "lib/patience.h"
#include "lib/test_daemon.h"

/* A rank's process. */
struct rank {
    struct fault_crew *crew; /* borrowed: as it was at the fork */
    uint32_t number;
    int socket;                   /* borrowed: from the crew */
    struct f8_client *client;     /* owned */
    struct f8_group *group;       /* borrowed: from the client */
    float *shards;                /* borrowed: from the client's region */
    struct device_memory *memory; /* owned: NULL on the host */
    void *stream;                 /* borrowed: from memory */
    bool sealed, fresh;
    bool precomputes; /* in this generation, where gathers find their scales else */
    uint64_t syncs, asked_ms;
    int64_t deadline_ms;
    const char *call; /* the last: a literal */
    char text[1536];  /* why it failed */
};

uint64_t fault_now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- in the rank ---- */

static int note(struct rank *rank, int status, const char *call)
{
    rank->call = call;
    (void)snprintf(rank->text, sizeof(rank->text), "%s", status == F8_OK ? "" : f8_error_text());
    return status;
}

static void leave(struct rank *rank)
{
    f8_close(rank->client);
    device_memory_close(rank->memory);
    rank->client = NULL;
    rank->memory = NULL;
}

static int join(struct rank *rank, const uint8_t *id)
{
    const struct fault_crew *crew = rank->crew;
    const struct fault_place *place = &crew->places[rank->number];
    const struct f8_connect_options options = {.socket = place->socket, .job = crew->job};
    const struct f8_hosts hosts = {.id = id, .local_ranks = place->local_ranks};
    struct f8_region *region;
    void *address;
    leave(rank);
    rank->sealed = false;
    int status = note(rank, f8_connect(&options, &rank->client), "f8_connect");
    if (status == F8_OK)
        status = note(
            rank, device_memory_open(rank->client, rank->number, &rank->memory), "f8_set_device");
    if (status == F8_OK && crew->one_host)
        status =
            note(rank, f8_group_join(rank->client, "dp", rank->number, crew->ranks, &rank->group),
                "f8_group_join");
    else if (status == F8_OK)
        status = note(rank,
            f8_group_join_hosts(
                rank->client, "dp", rank->number, crew->ranks, &hosts, &rank->group),
            "f8_group_join_hosts");
    if (status == F8_OK)
        status = note(rank,
            device_memory_alloc(
                rank->memory, rank->client, fault_model_bytes(crew->ranks), &region, &address),
            "f8_region_alloc");
    if (status < 0)
        return status;
    rank->shards = address;
    rank->stream = device_memory_stream(rank->memory);
    return note(rank, fault_model_register(rank->group, region, crew->ranks), "f8_register");
}

static int rejoin(struct rank *rank, const uint8_t *id)
{
    const struct f8_hosts hosts = {
        .id = id, .local_ranks = rank->crew->places[rank->number].local_ranks};
    rank->sealed = false;
    if (!id)
        return note(rank, f8_group_rejoin(rank->group), "f8_group_rejoin");
    return note(rank, f8_group_rejoin_hosts(rank->group, &hosts), "f8_group_rejoin_hosts");
}

static int seal(struct rank *rank)
{
    const struct f8_seal_options options = {.slots = 1,
        .state = rank->fresh ? F8_STATE_FRESH : F8_STATE_CONTINUE,
        .syncs = rank->fresh ? 0 : F8_ANY_SYNCS,
        .deadline_ms = rank->deadline_ms};
    rank->asked_ms = fault_now_ms();
    int status = note(rank, f8_seal(rank->group, &options), "f8_seal");
    if (status == F8_OK)
        status = note(rank, f8_syncs(rank->group, &rank->syncs), "f8_syncs");
    rank->sealed = status == F8_OK;
    rank->precomputes = rank->syncs % 2 == 1;
    return status;
}

/* For a request that was made just now. */
static int wait_for(struct rank *rank, int status, const f8_ticket *ticket, const char *call)
{
    rank->asked_ms = fault_now_ms();
    if (note(rank, status, call) < 0)
        return status;
    return note(rank, f8_wait(rank->group, *ticket, F8_FOREVER, rank->stream), call);
}

/* On devices a gather is answered when it is queued: whether it came to its end is known later. */
static bool was_in_vain(struct rank *rank, uint32_t bucket)
{
    int status = note(rank, f8_quiesce(rank->group, F8_FOREVER), "f8_quiesce");
    if (status == F8_OK)
        status = note(rank,
            f8_changed(rank->group, fault_model_first(bucket), fault_model_count(bucket)),
            "f8_changed");
    return status < 0;
}

static int use(struct rank *rank, uint32_t bucket)
{
    struct f8_view views[FAULT_WEIGHTS];
    int status = note(rank,
        f8_post_gather(
            rank->group, bucket, F8_FOREVER, views, fault_model_count(bucket), rank->stream),
        "f8_post_gather");
    if (status == F8_OK)
        status = note(rank, device_memory_see_all(rank->memory, views, fault_model_count(bucket)),
            "seeing the views");
    if (status < 0)
        return status;
    const char *wrong = fault_model_check(bucket, views, rank->syncs);
    if (wrong && rank->memory && was_in_vain(rank, bucket))
        return F8_EBROKEN;
    if (!wrong)
        return note(rank, f8_release(rank->group, bucket, rank->stream), "f8_release");
    (void)snprintf(rank->text, sizeof(rank->text), "%s", wrong);
    return F8_EINTERNAL;
}

static int step(struct rank *rank)
{
    f8_ticket ticket;
    uint32_t ranks = rank->crew->ranks;
    fault_model_fill(rank->shards, rank->number, ranks, rank->syncs);
    int status = note(rank, device_memory_put(rank->memory, rank->shards, fault_model_bytes(ranks)),
        "filling shards");
    if (status == F8_OK)
        status = note(rank, f8_changed(rank->group, 0, FAULT_WEIGHTS), "f8_changed");
    if (status == F8_OK && rank->precomputes)
        status =
            wait_for(rank, f8_precompute(rank->group, rank->deadline_ms, rank->stream, &ticket),
                &ticket, "f8_precompute");
    if (status == F8_OK && rank->syncs % 3 == 1)
        status = note(rank, f8_pre_gather(rank->group, 0, rank->stream), "f8_pre_gather");
    rank->asked_ms = fault_now_ms();
    for (uint32_t b = 0; b < FAULT_BUCKETS && status == F8_OK; b++)
        status =
            note(rank, f8_gather(rank->group, b, rank->deadline_ms, rank->stream), "f8_gather");
    for (uint32_t b = 0; b < FAULT_BUCKETS && status == F8_OK; b++)
        status = use(rank, b);
    if (status == F8_OK)
        status =
            wait_for(rank, f8_sync(rank->group, rank->deadline_ms, &ticket), &ticket, "f8_sync");
    return status;
}

/* Rank 0 alone knows that no other has begun the step after its own. */
static void choose_last(struct rank *rank)
{
    struct fault_board *board = rank->crew->board;
    if (rank->number == 0 && board->stop && board->last == UINT64_MAX)
        board->last = rank->syncs + 1;
}

static int run(struct rank *rank, uint64_t steps)
{
    struct fault_board *board = rank->crew->board;
    int status = rank->sealed ? F8_OK : seal(rank);
    uint64_t end = rank->syncs + steps < steps ? UINT64_MAX : rank->syncs + steps;
    while (status == F8_OK && rank->syncs < end) {
        if (steps == UINT64_MAX) {
            choose_last(rank);
            if (rank->syncs >= board->last)
                break;
        }
        status = step(rank);
        rank->syncs += status == F8_OK;
        board->steps += rank->number == 0 && status == F8_OK;
    }
    return status;
}

static void report(const struct rank *rank, enum fault_task task, int status)
{
    struct fault_report report = {.task = task,
        .status = status,
        .call = rank->call,
        .at_ms = fault_now_ms(),
        .asked_ms = rank->asked_ms,
        .syncs = rank->syncs};
    (void)snprintf(report.text, sizeof(report.text), "%s", rank->text);
    if (write(rank->socket, &report, sizeof(report)) != (ssize_t)sizeof(report))
        _exit(3); /* the test is gone */
}

static void carry_out(struct rank *rank, const struct fault_order *order)
{
    int status = F8_OK;
    rank->fresh = order->fresh;
    rank->deadline_ms = order->deadline_ms;
    if (order->task == FAULT_JOIN)
        status = join(rank, order->id);
    else if (order->task == FAULT_REJOIN)
        status = rejoin(rank, NULL);
    else if (order->task == FAULT_REJOIN_HOSTS)
        status = rejoin(rank, order->id);
    else if (order->task == FAULT_RUN)
        status = run(rank, order->steps);
    report(rank, order->task, status);
    if (order->task != FAULT_RUN || !order->eager || status == F8_OK)
        return;
    rank->deadline_ms = 0;
    status = rejoin(rank, NULL);
    report(rank, FAULT_REJOIN, status);
    if (status == F8_OK)
        report(rank, FAULT_RUN, run(rank, order->then));
}

static int be_rank(void *argument)
{
    struct rank *rank = argument;
    struct fault_order order = {.task = FAULT_RUN};
    while (order.task != FAULT_LEAVE) {
        if (read(rank->socket, &order, sizeof(order)) != (ssize_t)sizeof(order))
            return 2; /* the test is gone */
        if (order.task != FAULT_LEAVE)
            carry_out(rank, &order);
    }
    leave(rank);
    return 0;
}

/* ---- in the test ---- */

void fault_crew_init(struct fault_crew *crew)
{
    crew->board =
        mmap(NULL, sizeof(*crew->board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(crew->board, MAP_FAILED);
    crew->board->last = UINT64_MAX;
    for (uint32_t r = 0; r < FAULT_RANKS; r++)
        crew->sockets[r] = -1;
}

void fault_crew_spawn(struct fault_crew *crew, uint32_t rank)
{
    int ends[2];
    ck_assert_int_eq(crew->pids[rank], 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    struct rank child = {.crew = crew, .number = rank, .socket = ends[1], .call = "nothing"};
    crew->pids[rank] = test_fork(be_rank, &child);
    (void)close(ends[1]);
    crew->sockets[rank] = ends[0];
}

void fault_crew_bury(struct fault_crew *crew, uint32_t rank)
{
    (void)test_wait(crew->pids[rank]);
    (void)close(crew->sockets[rank]);
    crew->pids[rank] = 0;
    crew->sockets[rank] = -1;
}

void fault_crew_order(struct fault_crew *crew, uint32_t rank, const struct fault_order *order)
{
    ck_assert_int_eq(write(crew->sockets[rank], order, sizeof(*order)), sizeof(*order));
}

bool fault_crew_has_report(const struct fault_crew *crew, uint32_t rank)
{
    struct pollfd ready = {.fd = crew->sockets[rank], .events = POLLIN};
    return poll(&ready, 1, 0) == 1;
}

struct fault_report fault_crew_report(struct fault_crew *crew, uint32_t rank)
{
    struct fault_report report;
    struct pollfd ready = {.fd = crew->sockets[rank], .events = POLLIN};
    ck_assert_msg(poll(&ready, 1, PATIENCE_MS) == 1, "job %s: rank %u (pid %d) does not answer",
        crew->job, rank, (int)crew->pids[rank]);
    ck_assert_msg(read(ready.fd, &report, sizeof(report)) == sizeof(report),
        "job %s: rank %u (pid %d) is gone", crew->job, rank, (int)crew->pids[rank]);
    return report;
}

uint64_t fault_crew_all(struct fault_crew *crew, const struct fault_order *order)
{
    uint64_t syncs = 0;
    for (uint32_t r = 0; r < crew->ranks; r++)
        fault_crew_order(crew, r, order);
    for (uint32_t r = 0; r < crew->ranks; r++) {
        struct fault_report report = fault_crew_report(crew, r);
        ck_assert_msg(report.status == F8_OK, "job %s: rank %u: %s: %s: %s", crew->job, r,
            report.call, f8_status_name(report.status), report.text);
        ck_assert_msg(order->task != FAULT_RUN || r == 0 || report.syncs == syncs,
            "job %s: rank %u has seen %llu syncs where rank 0 has seen %llu", crew->job, r,
            (unsigned long long)report.syncs, (unsigned long long)syncs);
        syncs = report.syncs;
    }
    return syncs;
}

void fault_crew_end(struct fault_crew *crew)
{
    for (uint32_t r = 0; r < crew->ranks; r++)
        fault_crew_order(crew, r, &(struct fault_order){.task = FAULT_LEAVE});
    for (uint32_t r = 0; r < crew->ranks; r++) {
        ck_assert_int_eq(test_wait(crew->pids[r]), 0);
        (void)close(crew->sockets[r]);
    }
    (void)munmap(crew->board, sizeof(*crew->board));
}
