/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts of a world over loopback, all in one loop: each has its own `struct worlds`, as a daemon
 * has, and keeps what its listener is told. The tests turn the loop.
 */
#ifndef F8_TESTS_WORLDS_H
#define F8_TESTS_WORLDS_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/config.h"
#include "daemon/world.h"

/* One host, and one world of it. */
struct host {
    struct config config;
    struct worlds *worlds;        /* owned; NULL: its daemon is down */
    struct world *world;          /* owned; NULL: left */
    uint32_t formed, ended, lost; /* calls */
    int status;                   /* of ended */
    struct reason reason;         /* of ended, or of the last lost */
    uint32_t lost_host;
    bool in_order;
    uint64_t messages, bytes; /* received */
    uint32_t last_from;
    uint64_t sum; /* over all that was received, and its order */
    void (*received)(struct host *host, uint32_t from, const uint8_t *data, size_t size);
};

/* Where hosts are, and another one for hosts that are to be stopped, as by SIGSTOP. */
extern uv_loop_t worlds_loop, worlds_other_loop;
extern bool worlds_other_stopped;

/* A loop, and after all hosts are down, its end: nothing may be left in it. */
void worlds_set_up(void);
void worlds_tear_down(void);

/* A daemon on loopback with these settings; family AF_INET or AF_INET6. */
void host_up(struct host *host, const char *name, int family);

void host_up_on(struct host *host, const char *name, int family, uv_loop_t *loop);

/* Leaves what it has not left, and ends. */
void host_down(struct host *host);

/* Joins with ranks [first, first + count). A status. */
int host_join(struct host *host, const uint8_t *id, const char *group, uint32_t world_size,
    uint32_t first, uint32_t count, struct reason *reason);

/* The same, which must work, of group "job/g"; `deadline_ms` 0: a minute. */
void host_join_ok(
    struct host *host, const uint8_t *id, uint32_t world_size, uint32_t first, uint32_t count);
void host_join_within(struct host *host, const uint8_t *id, uint32_t world_size, uint32_t first,
    uint32_t count, uint64_t deadline_ms);

/* With `count` ranks, every `step`-th. */
void host_join_every(struct host *host, const uint8_t *id, uint32_t world_size, uint32_t first,
    uint32_t step, uint32_t count);

void host_leave(struct host *host);

/* Makes an id, which must work. */
void host_unique_id(struct host *host, uint8_t id[F8_PROTO_UNIQUE_ID_SIZE]);

/* `count` hosts with a rank each, the first the root, that have formed a world. */
void hosts_form(struct host *hosts, uint32_t count, int family);

/* Turns the loop until it holds; fails after patience. */
#define worlds_await(condition)                                                                    \
    do {                                                                                           \
        uint64_t limit = uv_hrtime() + (uint64_t)PATIENCE_S * 1000000000;                          \
        while (!(condition)) {                                                                     \
            worlds_turn();                                                                         \
            ck_assert_msg(uv_hrtime() < limit, "not in time: %s", #condition);                     \
        }                                                                                          \
    } while (0)

/* One turn, at most some milliseconds. */
void worlds_turn(void);

/* Turns the loop for so long. Nothing that must happen may depend on it. */
void worlds_pass(uint64_t ms);

/* Whether ::1 is there; says so if not. */
bool worlds_have_family(int family);

/* How a received message changes host->sum: order counts. */
uint64_t worlds_mix(uint64_t sum, uint32_t from, const uint8_t *data, size_t size);

#endif
