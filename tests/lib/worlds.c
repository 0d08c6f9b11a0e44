/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts of a world over loopback: see worlds.h. */
#include "tests/lib/worlds.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "daemon/log.h"
#include "tests/lib/patience.h"

uv_loop_t worlds_loop, worlds_other_loop;
bool worlds_other_stopped;
#define MAX_HOSTS 64

static struct worlds *downs[MAX_HOSTS + 1]; /* owned: closed, until the loop has run out */
static uint32_t num_downs;
static uv_timer_t pulse; /* a turn does not wait for ever */

static void on_pulse(uv_timer_t *timer)
{
    (void)timer;
}

void worlds_set_up(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    worlds_other_stopped = false;
    ck_assert_int_eq(uv_loop_init(&worlds_loop), 0);
    ck_assert_int_eq(uv_loop_init(&worlds_other_loop), 0);
    ck_assert_int_eq(uv_timer_init(&worlds_loop, &pulse), 0);
    ck_assert_int_eq(uv_timer_start(&pulse, on_pulse, 5, 5), 0);
}

void worlds_turn(void)
{
    (void)uv_run(&worlds_loop, UV_RUN_ONCE);
    if (!worlds_other_stopped)
        (void)uv_run(&worlds_other_loop, UV_RUN_NOWAIT);
}

void worlds_pass(uint64_t ms)
{
    uint64_t end = uv_hrtime() + ms * 1000000;
    while (uv_hrtime() < end)
        worlds_turn();
}

bool worlds_have_family(int family)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    if (family != AF_INET6)
        return true;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool have = fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
    if (fd >= 0)
        (void)close(fd);
    if (!have)
        (void)printf("skipped for IPv6: there is no ::1 here\n");
    return have;
}

void worlds_tear_down(void)
{
    uint64_t limit = uv_hrtime() + (uint64_t)PATIENCE_S * 1000000000;
    worlds_other_stopped = false;
    uv_unref((uv_handle_t *)&pulse);
    while (uv_loop_alive(&worlds_loop) || uv_loop_alive(&worlds_other_loop)) {
        (void)uv_run(&worlds_loop, UV_RUN_NOWAIT);
        (void)uv_run(&worlds_other_loop, UV_RUN_NOWAIT);
        ck_assert_msg(uv_hrtime() < limit, "a loop does not end: something is left in it");
    }
    uv_close((uv_handle_t *)&pulse, NULL);
    (void)uv_run(&worlds_loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&worlds_loop), 0);
    ck_assert_int_eq(uv_loop_close(&worlds_other_loop), 0);
    while (num_downs > 0)
        worlds_free(downs[--num_downs]);
}

void host_up(struct host *host, const char *name, int family)
{
    host_up_on(host, name, family, &worlds_loop);
}

void host_up_on(struct host *host, const char *name, int family, uv_loop_t *loop)
{
    memset(host, 0, sizeof(*host));
    (void)snprintf(host->config.host_name, sizeof(host->config.host_name), "%s", name);
    (void)strcpy(host->config.socket_ifname, "lo");
    host->config.socket_family = family == AF_INET6 ? CONFIG_FAMILY_IPV6 : CONFIG_FAMILY_IPV4;
    host->config.world_deadline_ms = PATIENCE_MS;
    host->config.heartbeat_ms = 1000;
    host->config.host_timeout_ms = PATIENCE_MS;
    host->config.max_worlds = 4;
    ck_assert_int_eq(worlds_new(loop, &host->config, &host->worlds), F8_OK);
}

void host_leave(struct host *host)
{
    world_leave(host->world);
    host->world = NULL;
}

void host_down(struct host *host)
{
    if (!host->worlds)
        return;
    host_leave(host);
    worlds_close(host->worlds);
    downs[num_downs++] = host->worlds;
    ck_assert_uint_le(num_downs, MAX_HOSTS);
    host->worlds = NULL;
}

uint64_t worlds_mix(uint64_t sum, uint32_t from, const uint8_t *data, size_t size)
{
    return (sum ^ crc32_z(from, data, size)) * 0x9e3779b97f4a7c15u + size;
}

static void on_formed(struct world *world)
{
    struct host *host = world_owner(world);
    host->formed++;
}

static void on_received(struct world *world, uint32_t from, const uint8_t *data, size_t size)
{
    struct host *host = world_owner(world);
    host->messages++;
    host->bytes += size;
    host->last_from = from;
    host->sum = worlds_mix(host->sum, from, data, size);
    if (host->received)
        host->received(host, from, data, size);
}

static void on_lost(struct world *world, uint32_t lost, bool in_order, const struct reason *reason)
{
    struct host *host = world_owner(world);
    host->lost++;
    host->lost_host = lost;
    host->in_order = in_order;
    host->reason = *reason;
}

static void on_ended(struct world *world, int status, const struct reason *reason)
{
    struct host *host = world_owner(world);
    host->ended++;
    host->status = status;
    host->reason = *reason;
}

static const struct world_listener listener = {
    .formed = on_formed,
    .received = on_received,
    .lost = on_lost,
    .ended = on_ended,
};

static int join_every(struct host *host, struct world_part *part, uint32_t first, uint32_t step,
    uint32_t count, struct reason *reason)
{
    struct world_rank ranks[64];
    ck_assert_uint_le(count, 64);
    for (uint32_t i = 0; i < count; i++)
        ranks[i] = (struct world_rank){.rank = first + step * i, .pid = 1000 + first + step * i};
    part->ranks = ranks;
    part->num_ranks = count;
    part->listener = &listener;
    part->owner = host;
    return world_join(host->worlds, part, &host->world, reason);
}

static int join(struct host *host, struct world_part *part, uint32_t first, uint32_t count,
    struct reason *reason)
{
    return join_every(host, part, first, 1, count, reason);
}

void host_join_every(struct host *host, const uint8_t *id, uint32_t world_size, uint32_t first,
    uint32_t step, uint32_t count)
{
    struct reason reason = {""};
    struct world_part part = {
        .id = id, .group = "job/g", .world_size = world_size, .deadline_ms = PATIENCE_MS};
    int status = join_every(host, &part, first, step, count, &reason);
    ck_assert_msg(status == F8_OK, "%s", reason.text);
}

int host_join(struct host *host, const uint8_t *id, const char *group, uint32_t world_size,
    uint32_t first, uint32_t count, struct reason *reason)
{
    struct world_part part = {
        .id = id, .group = group, .world_size = world_size, .deadline_ms = PATIENCE_MS};
    return join(host, &part, first, count, reason);
}

void host_join_within(struct host *host, const uint8_t *id, uint32_t world_size, uint32_t first,
    uint32_t count, uint64_t deadline_ms)
{
    struct reason reason = {""};
    struct world_part part = {
        .id = id, .group = "job/g", .world_size = world_size, .deadline_ms = deadline_ms};
    int status = join(host, &part, first, count, &reason);
    ck_assert_msg(status == F8_OK, "%s", reason.text);
}

void host_join_ok(
    struct host *host, const uint8_t *id, uint32_t world_size, uint32_t first, uint32_t count)
{
    host_join_within(host, id, world_size, first, count, PATIENCE_MS);
}

void host_unique_id(struct host *host, uint8_t id[F8_PROTO_UNIQUE_ID_SIZE])
{
    struct reason reason = {""};
    int status = world_unique_id(host->worlds, id, &reason);
    ck_assert_msg(status == F8_OK, "%s", reason.text);
}

static bool all_formed(const struct host *hosts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_msg(hosts[i].ended == 0, "host %u: %s", i, hosts[i].reason.text);
        if (!hosts[i].formed)
            return false;
    }
    return true;
}

void hosts_form(struct host *hosts, uint32_t count, int family)
{
    uint8_t id[F8_PROTO_UNIQUE_ID_SIZE];
    for (uint32_t i = 0; i < count; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "host-%u", i);
        host_up(&hosts[i], name, family);
    }
    host_unique_id(&hosts[0], id);
    for (uint32_t i = 0; i < count; i++)
        host_join_ok(&hosts[i], id, count, i, 1);
    worlds_await(all_formed(hosts, count));
}
