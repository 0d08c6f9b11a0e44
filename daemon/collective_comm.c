/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of a group over hosts whose ranks work on devices: NCCL's communicators, one a device
 * of every host, which go with the arena. They are formed in the seal, from a unique id that the
 * daemon of the first host makes, unless all hosts still have theirs. Rounds put their operations
 * into works (collective_device.c), each in its turn (collective_turn.c). What is reduced without a
 * device, amaxes of a sync, goes by the control connections. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

/* ---- the seal ---- */

/* On which host and device a rank is, as that host numbers its devices. */
static uint32_t place_of(const struct hosts *hosts, uint32_t rank, int32_t *ret_device)
{
    const struct member *member = group_member_of(hosts->collective->group, rank);
    *ret_device = member->far ? member->far_number : member->device->number;
    return member->far ? member->far_host : hosts->here;
}

/* Numbers the devices of a host, by their lowest ranks, from world->count on. */
static void number_devices(struct hosts *hosts, uint32_t host)
{
    struct engine *engine = &hosts->engine;
    int32_t device, other;
    for (uint32_t r = 0; r < hosts->collective->group->world_size; r++) {
        if (place_of(hosts, r, &device) != host)
            continue;
        uint32_t before = 0;
        while (place_of(hosts, before, &other) != host || other != device)
            before++;
        engine->members[r] = before == r ? engine->world.count++ : engine->members[before];
    }
}

int comm_lay_out(struct hosts *hosts, const struct backend_world **ret_world)
{
    struct engine *engine = &hosts->engine;
    uint32_t ranks = hosts->collective->group->world_size;
    if (!engine->members)
        engine->members = calloc(ranks, sizeof(*engine->members));
    if (!engine->members)
        return reason_set(&hosts->collective->refusal, F8_ENOMEM, "out of memory sealing group %s",
            hosts->collective->group->name);
    engine->world = (struct backend_world){
        .unique = hosts->all[0].address,
        .members = engine->members,
    };
    for (uint32_t h = 0; h < hosts->num_hosts; h++) {
        if (h == hosts->here)
            engine->world.first = engine->world.count;
        number_devices(hosts, h);
    }
    *ret_world = &engine->world;
    return F8_OK;
}

static void unique_made(struct backend_unique *unique, int status)
{
    struct hosts *hosts = unique->owner;
    struct host *here = &hosts->all[hosts->here];
    hosts->engine.reserving = false;
    if (hosts->engine.step != ENGINE_OPENS) {
        collective_settle(hosts->collective); /* the timer ends the seal */
        return;
    }
    if (status == F8_OK) {
        here->address = malloc(sizeof(unique->id));
        if (!here->address)
            status = reason_set(&unique->reason, F8_ENOMEM, "out of memory sealing group %s",
                hosts->collective->group->name);
    }
    if (status < 0) {
        hosts->collective->refusal = unique->reason;
        engine_abort(hosts, status);
    } else {
        memcpy(here->address, unique->id, sizeof(unique->id));
        here->address_size = sizeof(unique->id);
        hosts->engine.step = ENGINE_MEETS;
        hosts_tell_engine(hosts, 0, here->address, here->address_size);
    }
    collective_settle(hosts->collective);
}

void comm_open(struct hosts *hosts)
{
    struct engine *engine = &hosts->engine;
    struct backend *backend = hosts->collective->backend;
    engine->mapped = NULL; /* others have none that fit what is left of it */
    engine->step = hosts->here == 0 ? ENGINE_OPENS : ENGINE_MEETS;
    if (hosts->here != 0)
        return;
    engine->unique.finished = unique_made;
    engine->unique.owner = hosts;
    engine->reserving = true;
    backend->ops->device->unique(backend, &engine->unique);
}

bool comm_meets(struct hosts *hosts)
{
    const struct host *first = &hosts->all[0];
    if (!first->address)
        return false;
    if (first->address_size == BACKEND_UNIQUE_SIZE)
        return true;
    engine_abort(
        hosts, reason_set(&hosts->collective->refusal, F8_EPROTO,
                   "the first host of group %s gave an id of %zu bytes for its "
                   "communicators; must be %d",
                   hosts->collective->group->name, first->address_size, BACKEND_UNIQUE_SIZE));
    return false;
}

void comm_break(struct hosts *hosts, int status)
{
    const struct collective *collective = hosts->collective;
    const struct arena *arena = collective->group->arena;
    if (!hosts->engine.on_devices || !arena || !arena->device || !arena->device->spans)
        return;
    comm_failed(hosts);
    struct backend *backend = arena->device->backend;
    backend->ops->device->break_arena(backend, arena->device, status, collective->refusal.text);
}

void comm_failed(struct hosts *hosts)
{
    hosts->engine.mapped = NULL;
    hosts->engine.gave_up = true;
}

/* ---- reductions by the control connections ---- */

/* Another host's part of the reduction that is under way, or NULL. */
static const struct host *part_of(const struct hosts *hosts, uint32_t host)
{
    const struct host *far = &hosts->all[host];
    return far->reduction == hosts->engine.reduction ? far : NULL;
}

void comm_reduce(struct hosts *hosts, uint32_t count)
{
    struct engine *engine = &hosts->engine;
    engine->reduction = hosts_completed(hosts->collective) + 1;
    engine->reduction_count = count;
    hosts_tell_reduction(hosts, engine->reduction, engine->amaxes, count);
}

bool comm_hear_reduction(
    struct hosts *hosts, uint32_t host, uint64_t number, uint32_t *amaxes, uint32_t count)
{
    struct host *far = &hosts->all[host];
    if (far->reduction != 0)
        return false;
    far->reduction = number;
    far->amaxes = amaxes;
    far->num_amaxes = count;
    return true;
}

static int take_part(struct hosts *hosts, struct host *far)
{
    struct engine *engine = &hosts->engine;
    struct collective *collective = hosts->collective;
    if (far->num_amaxes != engine->reduction_count)
        return reason_set(&collective->refusal, F8_EMISMATCH,
            "the hosts of group %s give %u and %u amaxes to collective %llu",
            collective->group->name, engine->reduction_count, far->num_amaxes,
            (unsigned long long)collective->run.round.number);
    for (uint32_t i = 0; i < engine->reduction_count; i++)
        if (far->amaxes[i] > engine->amaxes[i])
            engine->amaxes[i] = far->amaxes[i];
    host_drop_reduction(far);
    return F8_OK;
}

static bool has_reduced(struct hosts *hosts)
{
    int status = F8_OK;
    for (uint32_t h = 0; h < hosts->num_hosts; h++)
        if (h != hosts->here && !part_of(hosts, h))
            return false;
    for (uint32_t h = 0; h < hosts->num_hosts && status == F8_OK; h++)
        if (h != hosts->here)
            status = take_part(hosts, &hosts->all[h]);
    if (status < 0)
        engine_abort(hosts, status);
    return status == F8_OK;
}

/* ---- turns ---- */

void comm_await_turn(struct hosts *hosts)
{
    hosts->engine.step = ENGINE_AWAITS_TURN;
    if (engine_can_run(hosts))
        turn_ask(hosts);
}

void comm_end_turn(struct hosts *hosts)
{
    if (hosts->engine.step == ENGINE_QUEUES)
        hosts->engine.step = ENGINE_AT_REST;
    turn_end(hosts);
}

static void begin_turn(struct hosts *hosts)
{
    struct collective *collective = hosts->collective;
    if (collective->run.round.kind == ROUND_SEAL) {
        engine_reserve(hosts);
        return;
    }
    hosts->engine.step = ENGINE_QUEUES;
    int status = collective_device_begin(collective);
    if (status == F8_OK)
        return;
    hosts->engine.step = ENGINE_AWAITS_TURN; /* nothing is queued */
    engine_abort(hosts, status);
}

void comm_poke(struct hosts *hosts)
{
    struct engine *engine = &hosts->engine;
    if (engine->step == ENGINE_MEETS && comm_meets(hosts))
        turn_ask(hosts);
    if (turn_has_come(hosts))
        begin_turn(hosts);
    bool reduces = engine->step == ENGINE_AGREES || engine->step == ENGINE_REDUCES;
    if (reduces && has_reduced(hosts))
        engine->step = engine->step == ENGINE_AGREES ? ENGINE_HAS_AGREED : ENGINE_HAS_REDUCED;
}
