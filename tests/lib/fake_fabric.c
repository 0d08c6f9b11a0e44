/* SPDX-License-Identifier: Apache-2.0 */
/* Fabrics and works that a test lets end, and all events: see fake_hosts.h. */
#include "daemon/fabric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/arena.h"
#include "status.h"
#include "tests/lib/fake_private.h"

#define FABRICS  256
#define COMMANDS 64 /* of one fabric that all take part in */
#define VALUES   8
#define WORKS    64

/* A command as it was asked. */
struct asked {
    enum fabric_command command;
    uint64_t tag; /* of an exchange: a sum of its spans */
    uint32_t count;
    uint32_t values[VALUES];
};

struct fabric {
    const struct fabric_listener *listener;
    void *owner;
    uint32_t number, host; /* among all; host of the process */
    uint32_t hosts, here;
    uint32_t peers[FAKE_HOSTS]; /* numbers, by host of the world */
    uint32_t cut;               /* hosts of the process that it does not reach, a bit each */
    bool busy, dead, closed;
    enum fabric_command command;
    uint32_t num_asked; /* commands that all take part in */
    uint32_t num_done;  /* of them */
    struct asked asked[COMMANDS];
    uint32_t *values; /* borrowed: until done */
};

uint32_t fake_host;

static struct fabric *fabrics[FABRICS];
static uint32_t num_fabrics;
static struct backend_work *works[WORKS];
static struct backend_reserve *reserves[WORKS];
static uint32_t work_hosts[WORKS], reserve_hosts[WORKS];
static uint32_t num_works, num_reserves;
static const char *violation;

void fake_enter(uint32_t host)
{
    fake_host = host;
}

const char *fake_violation(void)
{
    return violation;
}

/* ---- as daemon/fabric.h says ---- */

int fabric_open(uv_loop_t *loop, const struct fabric_shape *shape, uint64_t deadline_ms,
    struct fabric **ret_fabric, struct reason *reason)
{
    struct fabric *fabric = calloc(1, sizeof(*fabric));
    (void)loop;
    (void)deadline_ms;
    (void)reason;
    if (!fabric || num_fabrics == FABRICS)
        abort();
    *fabric = (struct fabric){.listener = shape->listener,
        .owner = shape->owner,
        .number = num_fabrics,
        .host = fake_host,
        .hosts = shape->hosts,
        .here = shape->here,
        .busy = true,
        .command = FABRIC_OPEN};
    fabrics[num_fabrics++] = fabric;
    *ret_fabric = fabric;
    return F8_OK;
}

void *fabric_owner(const struct fabric *fabric)
{
    return fabric->owner;
}

void fabric_hand_over(struct fabric *fabric, const struct fabric_listener *listener, void *owner)
{
    fabric->listener = listener;
    fabric->owner = owner;
}

pid_t fabric_pid(const struct fabric *fabric)
{
    return (pid_t)(1000 + fabric->number);
}

bool fabric_is_busy(const struct fabric *fabric)
{
    return fabric->busy;
}

const uint8_t *fabric_address(const struct fabric *fabric, size_t *ret_size)
{
    *ret_size = sizeof(fabric->number);
    return (const uint8_t *)&fabric->number;
}

static struct asked *ask(struct fabric *fabric, enum fabric_command command)
{
    if (fabric->busy || fabric->dead || fabric->closed)
        violation = "a fabric was asked that is busy or gone";
    if (fabric->num_asked == COMMANDS)
        abort();
    fabric->busy = true;
    fabric->command = command;
    struct asked *asked = &fabric->asked[fabric->num_asked];
    *asked = (struct asked){.command = command};
    fabric->num_asked += command != FABRIC_MAP;
    return asked;
}

void fabric_connect(struct fabric *fabric, const struct fabric_peer *peers, uint64_t deadline_ms)
{
    (void)deadline_ms;
    (void)ask(fabric, FABRIC_CONNECT);
    for (uint32_t h = 0; h < fabric->hosts; h++)
        memcpy(&fabric->peers[h], peers[h].address, sizeof(fabric->peers[h]));
}

void fabric_map(struct fabric *fabric, int fd, uint64_t size, uint64_t deadline_ms)
{
    (void)fd;
    (void)size;
    (void)deadline_ms;
    (void)ask(fabric, FABRIC_MAP);
}

void fabric_reduce(
    struct fabric *fabric, uint64_t tag, uint32_t *values, uint32_t count, uint64_t deadline_ms)
{
    struct asked *asked = ask(fabric, FABRIC_REDUCE);
    (void)deadline_ms;
    if (count > VALUES)
        abort();
    asked->tag = tag;
    asked->count = count;
    if (count > 0)
        memcpy(asked->values, values, count * sizeof(*values));
    fabric->values = values;
}

void fabric_exchange(struct fabric *fabric, const struct fabric_span *spans, uint32_t num_spans,
    uint64_t deadline_ms)
{
    struct asked *asked = ask(fabric, FABRIC_EXCHANGE);
    (void)deadline_ms;
    asked->count = num_spans;
    for (uint32_t i = 0; i < num_spans; i++)
        asked->tag = asked->tag * 31 + spans[i].offset * 7 + spans[i].size * 3 + spans[i].host;
}

void fabric_traffic(const struct fabric *fabric, uint64_t *ret_sent, uint64_t *ret_received)
{
    (void)fabric;
    *ret_sent = *ret_received = 0;
}

void fabric_close(struct fabric *fabric)
{
    if (!fabric)
        return;
    if (fabric->closed)
        violation = "a fabric was closed twice";
    fabric->closed = true;
}

/* ---- the backend ---- */

static void submit(struct backend *backend, struct backend_work *work)
{
    (void)backend;
    if (num_works == WORKS)
        abort();
    if (work->submitted)
        violation = "a work was submitted that runs";
    for (uint32_t t = 0; t < work->num_tasks; t++) {
        work->tasks[t].amax = 0;
        work->tasks[t].counts = (struct f8k_counts){0};
    }
    work->cancelled = false;
    work->submitted = true;
    work_hosts[num_works] = fake_host;
    works[num_works++] = work;
}

static void cancel(struct backend *backend, struct backend_work *work)
{
    (void)backend;
    work->cancelled = work->submitted;
}

static void reserve(struct backend *backend, struct backend_reserve *asked)
{
    (void)backend;
    if (num_reserves == WORKS)
        abort();
    asked->reason.text[0] = '\0';
    reserve_hosts[num_reserves] = fake_host;
    reserves[num_reserves++] = asked;
}

static const struct backend_ops backend_ops = {
    .name = "fake", .submit = submit, .cancel = cancel, .reserve = reserve};

struct backend *fake_backend(void)
{
    static struct backend backend = {.ops = &backend_ops};
    return &backend;
}

static void end_work(uint32_t w)
{
    struct backend_work *work = works[w];
    fake_enter(work_hosts[w]);
    work_hosts[w] = work_hosts[--num_works];
    works[w] = works[num_works];
    work->submitted = false;
    work->finished(work, work->cancelled ? F8_ECANCELED : F8_OK);
}

static void end_reserve(uint32_t r)
{
    struct backend_reserve *asked = reserves[r];
    fake_enter(reserve_hosts[r]);
    reserve_hosts[r] = reserve_hosts[--num_reserves];
    reserves[r] = reserves[num_reserves];
    asked->finished(asked, arena_reserve(asked->size, &asked->arena, &asked->reason));
}

/* ---- what fabrics do ---- */

static bool reaches(const struct fabric *fabric, const struct fabric *peer)
{
    return (fabric->cut & 1u << peer->host) == 0;
}

/* Whether its command may end: done, if all have asked; failed, if a peer is gone that might not
 * have done its part. */
static void look(const struct fabric *fabric, bool *ret_done, bool *ret_failed)
{
    bool local = fabric->command == FABRIC_OPEN || fabric->command == FABRIC_MAP;
    *ret_done = fabric->busy;
    *ret_failed = false;
    for (uint32_t h = 0; h < fabric->hosts && !local; h++) {
        const struct fabric *peer = fabrics[fabric->peers[h]];
        if (peer == fabric)
            continue;
        if (peer->num_asked < fabric->num_asked || !reaches(fabric, peer))
            *ret_done = false;
        /* What a helper that had done its part has sent arrives, though it is gone. */
        if ((peer->closed || peer->dead) && peer->num_done < fabric->num_asked &&
            reaches(fabric, peer))
            *ret_failed = fabric->busy;
    }
}

static bool alike(const struct asked *one, const struct asked *other)
{
    return one->command == other->command && one->tag == other->tag && one->count == other->count;
}

static void finish(struct fabric *fabric)
{
    fake_enter(fabric->host);
    fabric->busy = false;
    if (fabric->command != FABRIC_MAP)
        fabric->num_done = fabric->num_asked;
    if (fabric->command >= FABRIC_REDUCE)
        for (uint32_t h = 0; h < fabric->hosts; h++) {
            const struct asked *own = &fabric->asked[fabric->num_asked - 1];
            const struct asked *other = &fabrics[fabric->peers[h]]->asked[fabric->num_asked - 1];
            if (!alike(own, other))
                violation = "hosts gave their engines different commands";
            for (uint32_t i = 0; i < own->count && fabric->command == FABRIC_REDUCE; i++)
                if (other->values[i] > fabric->values[i])
                    fabric->values[i] = other->values[i];
        }
    fabric->listener->done(fabric, fabric->command);
}

static void fail(struct fabric *fabric, int status)
{
    struct reason reason;
    fake_enter(fabric->host);
    fabric->busy = false;
    fabric->dead = true;
    (void)reason_set(&reason, status, "the engine of host-%u (pid %d) failed", fabric->host,
        (int)fabric_pid(fabric));
    fabric->listener->failed(fabric, status, &reason);
}

bool fake_kill_helper(uint32_t host)
{
    for (uint32_t f = 0; f < num_fabrics; f++)
        if (fabrics[f]->host == host && !fabrics[f]->closed && !fabrics[f]->dead) {
            fail(fabrics[f], F8_EIO);
            return true;
        }
    return false;
}

void fake_partition(uint32_t host, uint32_t (*random)(uint32_t count))
{
    for (uint32_t f = 0; f < num_fabrics; f++)
        fabrics[f]->cut |= fabrics[f]->host == host ? ~(1u << host) : 1u << host;
    fake_partition_worlds(host, random);
}

/* ---- events ---- */

void fake_begin(void)
{
    fake_begin_worlds();
    for (uint32_t f = 0; f < num_fabrics; f++)
        free(fabrics[f]);
    num_fabrics = num_works = num_reserves = 0;
    violation = NULL;
}

uint32_t fake_events(struct fake_event events[FAKE_EVENTS])
{
    uint32_t count = fake_world_events(events, 0);
    for (uint32_t f = 0; f < num_fabrics && count + 2 <= FAKE_EVENTS; f++) {
        bool done, failed;
        if (fabrics[f]->closed || fabrics[f]->dead)
            continue;
        look(fabrics[f], &done, &failed);
        if (done)
            events[count++] = (struct fake_event){FAKE_DONE, f};
        if (failed)
            events[count++] = (struct fake_event){FAKE_FAILED, f};
    }
    for (uint32_t w = 0; w < num_works && count < FAKE_EVENTS; w++)
        events[count++] = (struct fake_event){FAKE_WORK, w};
    for (uint32_t r = 0; r < num_reserves && count < FAKE_EVENTS; r++)
        events[count++] = (struct fake_event){FAKE_RESERVATION, r};
    return count;
}

void fake_apply(const struct fake_event *event)
{
    if (event->kind == FAKE_UP)
        fake_world_up(event->what);
    else if (event->kind == FAKE_DOWN)
        fake_world_down(event->what);
    else if (event->kind == FAKE_DONE)
        finish(fabrics[event->what]);
    else if (event->kind == FAKE_FAILED)
        fail(fabrics[event->what], F8_ECONN);
    else if (event->kind == FAKE_WORK)
        end_work(event->what);
    else
        end_reserve(event->what);
}
