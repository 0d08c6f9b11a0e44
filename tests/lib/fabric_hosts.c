/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabrics of several hosts in one process: see fabric_hosts.h.
 */
#include "fabric_hosts.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/beside.h"
#include "loop_turn.h"
#include "proto/status.h"

void fabric_hosts_need(void)
{
    char path[PATH_MAX + 32];
    struct reason reason;
    if (beside_path(FABRIC_HELPER, path, sizeof(path), &reason) == F8_OK && access(path, X_OK) == 0)
        return;
    (void)printf("skipped: %s was not built; it needs libgloo (Debian: libgloo-dev)\n", path);
    exit(77);
}

static void on_done(struct fabric *fabric, enum fabric_command command)
{
    struct fabric_host *host = fabric_owner(fabric);
    ck_assert(!host->answered);
    host->answered = true;
    host->command = command;
}

static void on_failed(struct fabric *fabric, int status, const struct reason *reason)
{
    struct fabric_host *host = fabric_owner(fabric);
    ck_assert_int_lt(status, F8_OK);
    ck_assert_int_eq(host->status, F8_OK);
    ck_assert_int_gt((int)strlen(reason->text), 0);
    host->answered = true;
    host->status = status;
    host->reason = *reason;
    ck_assert_int_eq(kill(fabric_pid(fabric), 0), -1);
    ck_assert_int_eq(errno, ESRCH);
}

static const struct fabric_listener listener = {.done = on_done, .failed = on_failed};

/* ---- waiting ---- */

static void on_patience_lost(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

void fabric_host_await(struct fabric_hosts *hosts, uint32_t host)
{
    uv_timer_t patience;
    bool lost = false;
    (void)uv_timer_init(&hosts->loop, &patience);
    patience.data = &lost;
    uv_update_time(&hosts->loop);
    (void)uv_timer_start(&patience, on_patience_lost, PATIENCE_MS, 0);
    while (!hosts->host[host].answered && !lost)
        (void)loop_turn(&hosts->loop);
    ck_assert_msg(!lost, "host %u has not answered", host);
    uv_close((uv_handle_t *)&patience, NULL);
    (void)uv_run(&hosts->loop, UV_RUN_NOWAIT);
    ck_assert(hosts->host[host].answered);
}

void fabric_hosts_await(struct fabric_hosts *hosts)
{
    for (uint32_t i = 0; i < hosts->num; i++)
        fabric_host_await(hosts, i);
    for (uint32_t i = 0; i < hosts->num; i++)
        hosts->host[i].answered = false;
}

void fabric_hosts_await_done(struct fabric_hosts *hosts)
{
    fabric_hosts_await(hosts);
    for (uint32_t i = 0; i < hosts->num; i++)
        ck_assert_msg(hosts->host[i].status == F8_OK, "host %u: %s", i, hosts->host[i].reason.text);
}

void fabric_hosts_await_failed(struct fabric_hosts *hosts, int status)
{
    fabric_hosts_await(hosts);
    for (uint32_t i = 0; i < hosts->num; i++) {
        ck_assert_msg(hosts->host[i].status < 0, "host %u has not failed", i);
        if (status != F8_OK)
            ck_assert_msg(hosts->host[i].status == status, "host %u failed with %d: %s", i,
                hosts->host[i].status, hosts->host[i].reason.text);
    }
}

void fabric_hosts_await_lost(struct fabric_hosts *hosts)
{
    fabric_hosts_await(hosts);
    for (uint32_t i = 0; i < hosts->num; i++)
        ck_assert_msg(hosts->host[i].status == F8_EIO || hosts->host[i].status == F8_ECONN,
            "host %u failed with %d: %s", i, hosts->host[i].status, hosts->host[i].reason.text);
}

/* ---- beginning and end ---- */

void fabric_hosts_begin(struct fabric_hosts *hosts, uint32_t num)
{
    *hosts = (struct fabric_hosts){.num = num};
    ck_assert_int_eq(uv_loop_init(&hosts->loop), 0);
}

void fabric_host_ask_open(
    struct fabric_hosts *hosts, uint32_t host, const char *interface, const char *address)
{
    struct fabric_shape shape = {.hosts = hosts->num,
        .here = host,
        .interface = interface,
        .address = address,
        .silence_ms = hosts->silence_ms,
        .listener = &listener,
        .owner = &hosts->host[host]};
    struct reason reason = {""};
    int r = fabric_open(&hosts->loop, &shape, PATIENCE_MS, &hosts->host[host].fabric, &reason);
    ck_assert_msg(r == F8_OK, "%s", reason.text);
    ck_assert(!hosts->host[host].answered);
}

void fabric_hosts_ask_open(
    struct fabric_hosts *hosts, uint32_t num, const char *interface, const char *address)
{
    fabric_hosts_begin(hosts, num);
    for (uint32_t i = 0; i < num; i++)
        fabric_host_ask_open(hosts, i, interface, address);
}

void fabric_hosts_open(struct fabric_hosts *hosts, uint32_t num)
{
    fabric_hosts_ask_open(hosts, num, "lo", "127.0.0.1");
    fabric_hosts_await_done(hosts);
}

void fabric_hosts_ask_connect(struct fabric_hosts *hosts, uint32_t host, uint64_t deadline_ms)
{
    static const char *const names[MAX_FABRIC_HOSTS] = {"alpha", "beta", "gamma", "delta"};
    struct fabric_peer peers[MAX_FABRIC_HOSTS];
    for (uint32_t i = 0; i < hosts->num; i++) {
        peers[i].name = names[i];
        peers[i].address = fabric_address(hosts->host[i].fabric, &peers[i].address_size);
    }
    fabric_connect(hosts->host[host].fabric, peers, deadline_ms);
}

void fabric_hosts_connect(struct fabric_hosts *hosts)
{
    for (uint32_t i = 0; i < hosts->num; i++)
        fabric_hosts_ask_connect(hosts, i, PATIENCE_MS);
    fabric_hosts_await_done(hosts);
}

void fabric_hosts_map(struct fabric_hosts *hosts, uint64_t size)
{
    struct reason reason = {""};
    for (uint32_t i = 0; i < hosts->num; i++) {
        arena_free(hosts->host[i].arena);
        int r = arena_reserve(size, &hosts->host[i].arena, &reason);
        ck_assert_msg(r == F8_OK, "%s", reason.text);
        fabric_map(hosts->host[i].fabric, hosts->host[i].arena->fd, size, PATIENCE_MS);
    }
    fabric_hosts_await_done(hosts);
    for (uint32_t i = 0; i < hosts->num; i++)
        ck_assert_int_eq(arena_seal(hosts->host[i].arena, &reason), F8_OK);
}

void fabric_hosts_start(struct fabric_hosts *hosts, uint32_t num, uint64_t size)
{
    fabric_hosts_open(hosts, num);
    fabric_hosts_connect(hosts);
    fabric_hosts_map(hosts, size);
}

void fabric_host_exchange(struct fabric_hosts *hosts, uint32_t host,
    const struct fabric_span *spans, uint32_t num, uint64_t deadline_ms)
{
    fabric_exchange(hosts->host[host].fabric, spans, num, deadline_ms);
}

void fabric_hosts_exchange(
    struct fabric_hosts *hosts, const struct fabric_span *spans, uint32_t num, uint64_t deadline_ms)
{
    for (uint32_t i = 0; i < hosts->num; i++)
        fabric_host_exchange(hosts, i, spans, num, deadline_ms);
}

void fabric_hosts_close(struct fabric_hosts *hosts)
{
    pid_t pids[MAX_FABRIC_HOSTS];
    for (uint32_t i = 0; i < hosts->num; i++) {
        pids[i] = fabric_pid(hosts->host[i].fabric);
        fabric_close(hosts->host[i].fabric);
    }
    ck_assert_int_eq(uv_run(&hosts->loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&hosts->loop), 0);
    for (uint32_t i = 0; i < hosts->num; i++) {
        ck_assert_int_eq(kill(pids[i], 0), -1);
        arena_free(hosts->host[i].arena);
    }
}

/* ---- bytes ---- */

uint8_t fabric_byte(uint32_t host, uint32_t round, uint64_t offset)
{
    uint64_t mixed = (offset + 1) * UINT64_C(0x9e3779b97f4a7c15) + host * 131 + round * 31;
    return (uint8_t)(mixed >> 24) ^ (uint8_t)mixed;
}

static void fill_span(
    struct fabric_hosts *hosts, uint32_t at, const struct fabric_span *span, uint32_t round)
{
    uint8_t *data = hosts->host[at].arena->data;
    for (uint64_t i = span->offset; i < span->offset + span->size; i++)
        data[i] = fabric_byte(span->host, round, i) ^ (span->host == at ? 0 : 0xff);
}

void fabric_hosts_fill(
    struct fabric_hosts *hosts, const struct fabric_span *spans, uint32_t num, uint32_t round)
{
    for (uint32_t at = 0; at < hosts->num; at++)
        for (uint32_t i = 0; i < num; i++)
            fill_span(hosts, at, &spans[i], round);
}

static void check_span(
    struct fabric_hosts *hosts, uint32_t at, const struct fabric_span *span, uint32_t round)
{
    const uint8_t *data = hosts->host[at].arena->data;
    for (uint64_t i = span->offset; i < span->offset + span->size; i++)
        if (data[i] != fabric_byte(span->host, round, i))
            ck_abort_msg("host %u has a wrong byte of host %u at %llu in round %u", at, span->host,
                (unsigned long long)i, round);
}

void fabric_hosts_check(
    struct fabric_hosts *hosts, const struct fabric_span *spans, uint32_t num, uint32_t round)
{
    for (uint32_t at = 0; at < hosts->num; at++)
        for (uint32_t i = 0; i < num; i++)
            check_span(hosts, at, &spans[i], round);
}
