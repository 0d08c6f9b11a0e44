/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of a group over several hosts: made in the seal, unless all hosts still have theirs,
 * and put to work by rounds. Of a group on devices it has the steps that are alike. Whatever it
 * cannot end fails the seal or the round that waits for it, from the group's timer: never inside
 * the event that found out. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

/* How long the failure of a connection between helpers waits for the word of what was behind it. */
#define GRACE_MS 500

/* How long one that is late waits for others that are, too; and then for one that is further back.
 */
#define LATE_MS   100
#define BEHIND_MS 200

/*
 * How long before the deadline of its round a helper that says nothing is given up. Hosts where the
 * round has ended hold the next one's deadline, which is hardly later, against the ranks here.
 */
#define AHEAD_MS 500

/* How much later than daemons its helpers find a host silent. */
#define SILENCE_AFTER_MS 500

/* The shortest time that it is given for a command: docs/hosts.md has what follows. */
#define LEAST_MS 1000

static void drop(struct engine *engine)
{
    uint64_t sent, received;
    if (!engine->fabric)
        return;
    fabric_traffic(engine->fabric, &sent, &received);
    engine->sent += sent;
    engine->received += received;
    fabric_close(engine->fabric);
    engine->fabric = NULL;
    engine->connected = false;
    engine->mapped = NULL;
}

void engine_close(struct hosts *hosts)
{
    drop(&hosts->engine);
    turn_end(hosts);
    hosts->engine.step = ENGINE_AT_REST;
}

void engine_abort(struct hosts *hosts, int status)
{
    struct engine *engine = &hosts->engine;
    if (engine->step == ENGINE_AT_REST || engine->step == ENGINE_QUEUES)
        return; /* works that are queued end by themselves */
    turn_end(hosts);
    atomic_store(&hosts->collective->run.reserve.is_abandoned, true);
    drop(engine);
    engine->step = ENGINE_FAILED;
    engine->is_late = false;
    engine->failure = status;
    engine->fails_at = uv_now(hosts->context->loop);
}

uint64_t engine_due(const struct hosts *hosts)
{
    const struct engine *engine = &hosts->engine;
    if (engine->step == ENGINE_HAS_AGREED || engine->step == ENGINE_HAS_REDUCED)
        return 0;
    if (engine->step != ENGINE_FAILED || engine->reserving || hosts->collective->run.computing)
        return ROUND_NEVER;
    return round_is_broken(hosts->collective->rounds) ? 0 : engine->fails_at;
}

void engine_forget_arena(struct hosts *hosts)
{
    hosts->engine.mapped = NULL;
}

bool engine_has_mapped(const struct hosts *hosts, const struct arena *arena)
{
    return arena && hosts->engine.mapped == arena;
}

void engine_go_on(struct hosts *hosts)
{
    struct collective *collective = hosts->collective;
    enum engine_step step = hosts->engine.step;
    hosts->engine.step = ENGINE_AT_REST;
    if (step == ENGINE_HAS_AGREED)
        collective_end_seal(collective, F8_OK);
    else if (step == ENGINE_HAS_REDUCED)
        collective_reduced(collective, hosts->engine.amaxes);
    else if (collective->run.round.kind == ROUND_SEAL)
        collective_end_seal(collective, hosts->engine.failure);
    else
        collective_fail(collective, hosts->engine.failure);
}

uint64_t engine_patience(const struct hosts *hosts)
{
    struct round_head head;
    uint64_t now = uv_now(hosts->context->loop);
    bool open = round_head(hosts->collective->rounds, &head);
    if (!open || head.deadline == ROUND_NEVER)
        return hosts->context->config->deadline_ms;
    return head.deadline > now + LEAST_MS ? head.deadline - now : LEAST_MS;
}

uint64_t helper_patience(const struct hosts *hosts)
{
    uint64_t left = engine_patience(hosts);
    return left - (left / 4 < AHEAD_MS ? left / 4 : AHEAD_MS);
}

bool engine_is_timed(const struct hosts *hosts)
{
    return hosts->engine.fabric && fabric_is_busy(hosts->engine.fabric);
}

bool collective_is_between_hosts(const struct group *group)
{
    const struct hosts *hosts = group->collective->hosts;
    enum engine_step step = hosts ? hosts->engine.step : ENGINE_AT_REST;
    return (step >= ENGINE_ASKS && step <= ENGINE_CONNECTS) ||
           (step >= ENGINE_AGREES && step <= ENGINE_EXCHANGES);
}

/* Whether the engine can do its part: not if a host is gone, or through with what begins here. */
bool engine_can_run(struct hosts *hosts)
{
    struct collective *collective = hosts->collective;
    uint64_t completed = hosts_completed(collective);
    bool futile = false;
    for (uint32_t h = 0; h < hosts->num_hosts; h++) {
        const struct host *host = &hosts->all[h];
        futile = futile ||
                 (h != hosts->here && (host->idle ? host->completed <= completed : host->lost));
    }
    bool there = hosts->engine.fabric || hosts->engine.on_devices;
    if (!futile && (there || hosts->engine.step == ENGINE_ASKS))
        return true;
    collective->refusal = collective->group->cause;
    engine_abort(hosts, collective_cause_status(collective));
    return false;
}

/* ---- the seal ---- */

void engine_prepare(struct hosts *hosts)
{
    struct engine *engine = &hosts->engine;
    struct host *here = &hosts->all[hosts->here];
    engine->on_devices = backend_is_device(hosts->collective->backend);
    if (engine->on_devices) {
        drop(engine);
        engine->connected = collective_arena_serves(hosts->collective);
    } else if (!engine->fabric) {
        warm_take(hosts);
    }
    engine->step = ENGINE_ASKS;
    engine->done = 0;
    here->engine_asked = true;
    here->engine_warm = engine->connected;
    here->engine_mesh = engine->connected ? engine->mesh : 0;
    hosts_tell_engine(hosts, here->engine_mesh, NULL, 0);
    (void)engine_can_run(hosts);
}

/* What comes after the engine: the arena. */
void engine_reserve(struct hosts *hosts)
{
    hosts->engine.step = ENGINE_RESERVES;
    int status = collective_reserve(hosts->collective);
    if (status < 0)
        engine_abort(hosts, status);
    else
        hosts->engine.reserving = true;
}

/* Whether all hosts have told; whether each still has its connections to all others. */
static bool all_asked(const struct hosts *hosts, bool *ret_warm)
{
    *ret_warm = true;
    for (uint32_t h = 0; h < hosts->num_hosts; h++) {
        const struct host *host = &hosts->all[h];
        if (!host->engine_asked)
            return false;
        *ret_warm = *ret_warm && host->engine_warm && host->engine_mesh == hosts->engine.mesh;
    }
    return true;
}

static bool all_have_addresses(const struct hosts *hosts)
{
    for (uint32_t h = 0; h < hosts->num_hosts; h++)
        if (!hosts->all[h].address)
            return false;
    return true;
}

static void done(struct fabric *fabric, enum fabric_command command);
static void failed(struct fabric *fabric, int status, const struct reason *reason);

const struct fabric_listener engine_listener = {.done = done, .failed = failed};

/* Later than their daemons find a host silent, who know more of it. */
static uint32_t silence_of(const struct config *config)
{
    uint64_t silence = (uint64_t)config->host_timeout_ms + config->heartbeat_ms + SILENCE_AFTER_MS;
    return silence < INT32_MAX ? (uint32_t)silence : INT32_MAX;
}

static void open_engine(struct hosts *hosts)
{
    struct collective *collective = hosts->collective;
    const char *address;
    const char *interface = world_interface(hosts->world, &address);
    const struct fabric_shape shape = {
        .hosts = hosts->num_hosts,
        .here = hosts->here,
        .interface = interface,
        .address = address,
        .silence_ms = silence_of(hosts->context->config),
        .listener = &engine_listener,
        .owner = hosts,
    };
    drop(&hosts->engine);
    hosts->engine.step = ENGINE_OPENS;
    int status = fabric_open(hosts->context->loop, &shape, helper_patience(hosts),
        &hosts->engine.fabric, &collective->refusal);
    if (status < 0)
        engine_abort(hosts, status);
}

static void tell_address(struct hosts *hosts)
{
    struct host *here = &hosts->all[hosts->here];
    size_t size;
    const uint8_t *address = fabric_address(hosts->engine.fabric, &size);
    hosts->engine.step = ENGINE_MEETS;
    here->address = malloc(size);
    if (!here->address) {
        engine_abort(hosts, reason_set(&hosts->collective->refusal, F8_ENOMEM,
                                "out of memory sealing group %s", hosts->collective->group->name));
        return;
    }
    memcpy(here->address, address, size);
    here->address_size = size;
    hosts_tell_engine(hosts, 0, address, size);
}

static void connect_engine(struct hosts *hosts)
{
    struct fabric_peer *peers = calloc(hosts->num_hosts, sizeof(*peers));
    if (!peers) {
        engine_abort(hosts, reason_set(&hosts->collective->refusal, F8_ENOMEM,
                                "out of memory sealing group %s", hosts->collective->group->name));
        return;
    }
    for (uint32_t h = 0; h < hosts->num_hosts; h++)
        peers[h] = (struct fabric_peer){.name = world_host(hosts->world, h)->name,
            .address = hosts->all[h].address,
            .address_size = hosts->all[h].address_size};
    hosts->engine.step = ENGINE_CONNECTS;
    fabric_connect(hosts->engine.fabric, peers, helper_patience(hosts));
    free(peers);
}

void engine_poke(struct hosts *hosts)
{
    bool warm;
    if (hosts->engine.step == ENGINE_ASKS && all_asked(hosts, &warm)) {
        if (warm)
            engine_reserve(hosts);
        else if (hosts->engine.on_devices)
            comm_open(hosts);
        else
            open_engine(hosts);
    }
    if (hosts->engine.on_devices)
        comm_poke(hosts);
    else if (hosts->engine.step == ENGINE_MEETS && all_have_addresses(hosts))
        connect_engine(hosts);
}

/* All hosts have what the group needs, or none goes on. */
static void agree(struct hosts *hosts)
{
    hosts->engine.step = ENGINE_AGREES;
    if (hosts->engine.on_devices)
        comm_reduce(hosts, 0);
    else
        fabric_reduce(hosts->engine.fabric, hosts->era, NULL, 0, helper_patience(hosts));
}

/* A number for these connections, from what only their ends know. */
static uint64_t name_mesh(const struct hosts *hosts)
{
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
    for (uint32_t h = 0; h < hosts->num_hosts; h++)
        for (size_t i = 0; i < hosts->all[h].address_size; i++)
            hash = (hash ^ hosts->all[h].address[i]) * 0x100000001b3;
    return hash != 0 ? hash : 1;
}

/* The arena has come with its communicators. */
static void formed_on_devices(struct hosts *hosts)
{
    struct engine *engine = &hosts->engine;
    if (engine->mapped != hosts->collective->group->arena)
        engine->mesh = name_mesh(hosts);
    engine->mapped = hosts->collective->group->arena;
    agree(hosts);
}

void engine_reserved(struct hosts *hosts, int status)
{
    struct engine *engine = &hosts->engine;
    struct arena *arena = hosts->collective->group->arena;
    engine->reserving = false;
    turn_end(hosts);
    if (status < 0)
        engine_abort(hosts, status);
    if (engine->step == ENGINE_FAILED || !engine_can_run(hosts)) {
        comm_break(hosts, engine->failure); /* the timer ends the seal */
    } else if (engine->on_devices) {
        formed_on_devices(hosts);
    } else if (!arena || engine->mapped == arena) {
        agree(hosts);
    } else {
        engine->step = ENGINE_MAPS;
        fabric_map(engine->fabric, arena->fd, arena->size, helper_patience(hosts));
    }
    collective_settle(hosts->collective);
}

/* From here on nobody else can ever map it writable. */
static void mapped(struct hosts *hosts)
{
    struct collective *collective = hosts->collective;
    struct arena *arena = collective->group->arena;
    int status = arena_seal(arena, &collective->refusal);
    if (status < 0) {
        engine_abort(hosts, status);
        return;
    }
    hosts->engine.mapped = arena;
    agree(hosts);
}

/* ---- rounds ---- */

/* Which reduction it is, for hosts that have lost step: of the era, the round, and what it is. */
static uint64_t tag_of(const struct hosts *hosts)
{
    const struct round_run *run = &hosts->collective->run.round;
    return hosts->era << 56 | (hosts_completed(hosts->collective) & 0xffffffff) << 24 |
           (uint64_t)run->kind << 20 | (run->bucket & 0xfffff);
}

static int reserve_amaxes(struct engine *engine, uint32_t count)
{
    if (count <= engine->amaxes_capacity)
        return F8_OK;
    uint32_t *amaxes = realloc(engine->amaxes, count * sizeof(*amaxes));
    if (!amaxes)
        return F8_ENOMEM;
    engine->amaxes = amaxes;
    engine->amaxes_capacity = count;
    return F8_OK;
}

void engine_no_memory(struct hosts *hosts)
{
    struct collective *collective = hosts->collective;
    engine_abort(hosts,
        reason_set(&collective->refusal, F8_ENOMEM, "out of memory in collective %llu of group %s",
            (unsigned long long)collective->run.round.number, collective->group->name));
}

void engine_reduce(struct hosts *hosts)
{
    struct engine *engine = &hosts->engine;
    struct collective *collective = hosts->collective;
    uint32_t count = collective_count_amaxes(collective);
    engine->step = ENGINE_REDUCES;
    if (!engine_can_run(hosts))
        return;
    if (reserve_amaxes(engine, count) < 0) {
        engine_no_memory(hosts);
        return;
    }
    if (count > 0) /* else the hosts only meet */
        collective_write_amaxes(collective, engine->amaxes);
    if (engine->on_devices)
        comm_reduce(hosts, count);
    else
        fabric_reduce(engine->fabric, tag_of(hosts), engine->amaxes, count, helper_patience(hosts));
}

/* ---- what the helper answers ---- */

static void done(struct fabric *fabric, enum fabric_command command)
{
    struct hosts *hosts = fabric_owner(fabric);
    struct collective *collective = hosts->collective;
    enum engine_step step = hosts->engine.step;
    (void)command;
    hosts->engine.step = ENGINE_AT_REST;
    hosts->engine.done += step >= ENGINE_AGREES;
    switch (step) {
    case ENGINE_OPENS:
        tell_address(hosts);
        break;
    case ENGINE_CONNECTS:
        hosts->engine.connected = true;
        hosts->engine.mesh = name_mesh(hosts);
        engine_reserve(hosts);
        break;
    case ENGINE_MAPS:
        mapped(hosts);
        break;
    case ENGINE_AGREES:
        collective_end_seal(collective, F8_OK);
        return;
    case ENGINE_REDUCES:
        collective_reduced(collective, hosts->engine.amaxes);
        return;
    case ENGINE_EXCHANGES:
        spread_go_on(hosts);
        return;
    default:
        break;
    }
    collective_settle(collective);
}

void engine_hear_late(struct hosts *hosts, uint32_t host, uint64_t done)
{
    struct engine *engine = &hosts->engine;
    hosts->all[host].is_late = true;
    hosts->all[host].late_done = done;
    if (engine->is_late && done < engine->done)
        engine->fails_at = uv_now(hosts->context->loop) + BEHIND_MS;
}

/* Hosts that wait for those that wait for a culprit know less than these, and may be as quick. */
static void be_late(struct hosts *hosts)
{
    struct engine *engine = &hosts->engine;
    bool is_ahead = false;
    for (uint32_t h = 0; h < hosts->num_hosts; h++) {
        const struct host *host = &hosts->all[h];
        is_ahead = is_ahead || (host->is_late && host->late_done < engine->done);
    }
    engine->is_late = true;
    engine->fails_at += is_ahead ? BEHIND_MS : LATE_MS;
    hosts_tell_late(hosts, engine->done);
}

static void failed(struct fabric *fabric, int status, const struct reason *reason)
{
    struct hosts *hosts = fabric_owner(fabric);
    struct collective *collective = hosts->collective;
    struct engine *engine = &hosts->engine;
    bool at_rest = engine->step == ENGINE_AT_REST;
    drop(engine);
    if (!collective)
        return;
    if (at_rest && (collective->group->state == GROUP_SEALED || collective->is_settling)) {
        collective_break(collective, status, reason);
    } else if (!at_rest) {
        collective->refusal = *reason;
        /* Not to be taken for the loss of one's own daemon. */
        engine_abort(hosts, status == F8_ECONN ? F8_EIO : status);
        /* A peer's helper is gone, or more than that: its daemon, or ours, is about to know. */
        if (status == F8_ECONN)
            engine->fails_at += GRACE_MS;
        if (status == F8_EDEADLINE)
            be_late(hosts);
    }
    collective_settle(collective);
}
