/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world of a group over several hosts: when it forms, whom it loses, and how it ends. On the
 * loop.
 */
#include "daemon/collective_hosts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "status.h"

/* How long a host that has done with a group keeps its engine for others that have not. */
#define PATIENCE_MS         10000
#define CLOSING_PATIENCE_MS 2000

const struct world *collective_world(const struct group *group)
{
    const struct hosts *hosts = group->collective->hosts;
    return hosts && hosts_formed(hosts) ? hosts->world : NULL;
}

void collective_engine(const struct group *group, struct collective_engine *ret_engine)
{
    const struct hosts *hosts = group->collective->hosts;
    *ret_engine = (struct collective_engine){.name = ""};
    if (!hosts)
        return;
    ret_engine->untold = hosts->engine.on_devices;
    if (hosts->engine.on_devices)
        ret_engine->name = "nccl";
    else if (hosts->engine.fabric || hosts->collective->was_sealed)
        ret_engine->name = "gloo";
    if (hosts->engine.fabric) {
        ret_engine->pid = (uint32_t)fabric_pid(hosts->engine.fabric);
        fabric_traffic(hosts->engine.fabric, &ret_engine->sent, &ret_engine->received);
    }
    ret_engine->sent += hosts->engine.sent;
    ret_engine->received += hosts->engine.received;
}

uint64_t hosts_completed(const struct collective *collective)
{
    return collective->was_sealed ? 1 + round_completed(collective->rounds) : 0;
}

const char *hosts_name_of(const struct hosts *hosts, const struct member *member)
{
    return world_host(hosts->world, member->far_host)->name;
}

bool hosts_have(const struct hosts *hosts, const char *name)
{
    for (uint32_t h = 0; h < hosts->num_hosts; h++)
        if (strcmp(world_host(hosts->world, h)->name, name) == 0)
            return true;
    return !hosts_formed(hosts);
}

const char *hosts_name_of_rank(const struct hosts *hosts, uint32_t rank)
{
    for (uint32_t h = 0; hosts && hosts_formed(hosts) && h < hosts->num_hosts; h++) {
        const struct world_host *host = world_host(hosts->world, h);
        for (uint32_t i = 0; i < host->num_ranks && h != hosts->here; i++)
            if (host->ranks[i].rank == rank)
                return host->name;
    }
    return NULL;
}

bool collective_rank_hosts(const struct group *group, const char **ret_names)
{
    const struct world *world = collective_world(group);
    uint32_t num_hosts = 0;
    const struct world_host *all = world ? world_hosts(world, &num_hosts) : NULL;
    if (num_hosts < 2)
        return false;
    for (uint32_t r = 0; r < group->world_size; r++)
        ret_names[r] = "";
    for (uint32_t h = 0; h < num_hosts; h++)
        for (uint32_t i = 0; i < all[h].num_ranks && h != world_here(world); i++)
            ret_names[all[h].ranks[i].rank] = all[h].name;
    return true;
}

void hosts_break(struct hosts *hosts, int status, const struct reason *reason)
{
    hosts->broken_afar = true;
    collective_break(hosts->collective, status, reason);
    hosts->broken_afar = false;
}

void hosts_fail(struct hosts *hosts, int status, const struct reason *reason)
{
    hosts_break(hosts, status, reason);
    hosts->collective->refusal = *reason;
    comm_break(hosts, status);
    engine_abort(hosts, status);
}

/* ---- the end ---- */

static void free_closed(uv_handle_t *timer)
{
    struct hosts *hosts = timer->data;
    for (uint32_t h = 0; h < hosts->num_hosts; h++) {
        host_begin_era(&hosts->all[h]);
        hosts_drop_held(&hosts->all[h]);
    }
    hosts_drop_told(hosts);
    free(hosts->all);
    free(hosts->engine.amaxes);
    free(hosts->engine.spans);
    free(hosts->engine.members);
    free(hosts);
}

static bool others_are_idle(const struct hosts *hosts)
{
    for (uint32_t h = 0; h < hosts->num_hosts; h++)
        if (h != hosts->here && !hosts->all[h].idle && !hosts->all[h].lost)
            return false;
    return true;
}

static void end(struct hosts *hosts)
{
    world_leave(hosts->world);
    hosts->world = NULL;
    if (hosts_formed(hosts) && others_are_idle(hosts))
        warm_keep(hosts);
    engine_close(hosts);
    uv_close((uv_handle_t *)&hosts->timer, free_closed);
}

/* Nobody here needs it any more: ends it if no other host does. */
static void end_if_idle(struct hosts *hosts)
{
    if (hosts->over.text[0] != '\0' || others_are_idle(hosts))
        end(hosts);
}

static void on_patience(uv_timer_t *timer)
{
    end(timer->data);
}

static void drop_far_members(struct hosts *hosts)
{
    struct group *group = hosts->collective->group;
    for (uint32_t r = 0; r < group->world_size; r++)
        if (group->members[r] && group->members[r]->far)
            group_remove_member(group->members[r]);
}

void hosts_release_bucket(struct hosts *hosts, uint32_t bucket)
{
    const struct collective *collective = hosts->collective;
    const struct group *group = collective->group;
    for (uint32_t r = 0; r < group->world_size; r++)
        if (group->members[r] && group->members[r]->far)
            (void)round_release(collective->rounds, r, bucket);
}

void hosts_quiet(struct hosts *hosts)
{
    /* On devices what has ended was queued; whether it was done is known now. */
    if (hosts->world && !hosts->told_idle)
        hosts_tell_idle(hosts, hosts->engine.gave_up ? 0 : hosts_completed(hosts->collective));
}

void hosts_release(struct hosts *hosts)
{
    if (!hosts)
        return;
    if (hosts_formed(hosts))
        drop_far_members(hosts);
    hosts_quiet(hosts);
    hosts->collective = NULL;
    (void)uv_timer_stop(&hosts->timer);
    if (hosts_formed(hosts) && hosts->over.text[0] == '\0' && !others_are_idle(hosts))
        (void)uv_timer_start(&hosts->timer, on_patience,
            hosts->context->closing ? CLOSING_PATIENCE_MS : PATIENCE_MS, 0);
    else
        end(hosts);
}

/* ---- what the world says ---- */

/* Members of the ranks that are on other hosts. F8_ENOMEM. */
static int seat_far(struct hosts *hosts, const struct world_host *table)
{
    struct group *group = hosts->collective->group;
    for (uint32_t h = 0; h < hosts->num_hosts; h++)
        for (uint32_t i = 0; i < table[h].num_ranks && h != hosts->here; i++) {
            const struct world_rank *rank = &table[h].ranks[i];
            struct member *member = group_add_member(group, rank->rank, rank->pid, NULL);
            if (!member)
                return F8_ENOMEM;
            member->far = true;
            member->far_host = h;
            round_enter(hosts->collective->rounds, rank->rank);
        }
    return F8_OK;
}

/* As its host told last: a rank that was replaced has another pid than when the hosts met. */
static uint32_t pid_of(const struct hosts *hosts, const struct world_rank *rank)
{
    const struct member *member =
        hosts->collective ? hosts->collective->group->members[rank->rank] : NULL;
    return member && member->far ? member->pid : rank->pid;
}

/* "; it had rank 1 (pid 4711), rank 3 (pid 4712)" */
static void append_ranks(
    const struct hosts *hosts, struct reason *reason, const struct world_host *host)
{
    for (uint32_t i = 0; i < host->num_ranks && i < 8; i++) {
        uint32_t pid = pid_of(hosts, &host->ranks[i]);
        reason_append(reason, "%s rank %u", i == 0 ? "; it had" : ",", host->ranks[i].rank);
        if (pid > 0)
            reason_append(reason, " (pid %u)", pid);
    }
    if (host->num_ranks > 8)
        reason_append(reason, " and %u more", host->num_ranks - 8);
}

static void finish(struct hosts *hosts, int status, const struct reason *reason)
{
    struct collective *collective = hosts->collective;
    hosts->over = *reason;
    /* Not to be taken for the loss of one's own daemon. */
    if (hosts_formed(hosts) && status == F8_ECONN)
        status = F8_ERANKDEAD;
    /* What runs here may still come to the engine, where it would wait for them. */
    for (uint32_t h = 0; h < hosts->num_hosts; h++)
        hosts->all[h].lost = h != hosts->here;
    if (hosts_formed(hosts) && world_root(hosts->world) < hosts->num_hosts) {
        const struct world_host *root = world_host(hosts->world, world_root(hosts->world));
        append_ranks(hosts, &hosts->over, root);
        collective_tell_host_lost(hosts, root, &hosts->over);
    }
    if (!collective) {
        end_if_idle(hosts);
        return;
    }
    hosts_fail(hosts, status, &hosts->over);
    collective_settle(collective);
}

static void formed(struct world *world)
{
    struct hosts *hosts = world_owner(world);
    const struct world_host *table = world_hosts(world, &hosts->num_hosts);
    struct reason reason;
    hosts->here = world_here(world);
    hosts->all = calloc(hosts->num_hosts, sizeof(*hosts->all));
    if (!hosts->all)
        hosts->num_hosts = 0;
    if (!hosts->all || seat_far(hosts, table) < 0) {
        (void)reason_set(&reason, F8_ENOMEM, "out of memory as the hosts of group %s met",
            hosts->collective->group->name);
        finish(hosts, F8_ENOMEM, &reason);
        return;
    }
    const struct log_fields fields = collective_fields(hosts->collective->group);
    log_of(&fields, LOG_LEVEL_INFO, "job %s, group %s: %u ranks on %u hosts", fields.job,
        fields.group, hosts->collective->group->world_size, hosts->num_hosts);
    hosts_flush(hosts);
    round_poke(hosts->collective->rounds); /* a seal may have waited for this */
    collective_settle(hosts->collective);
}

static void received(struct world *world, uint32_t host, const uint8_t *data, size_t size)
{
    struct hosts *hosts = world_owner(world);
    if (!hosts_formed(hosts))
        return; /* there was no memory for it, and it is over */
    hosts_hear(hosts, host, data, size);
    if (hosts->collective)
        collective_settle(hosts->collective);
    else
        end_if_idle(hosts);
}

static void lost(struct world *world, uint32_t host, bool in_order, const struct reason *why)
{
    struct hosts *hosts = world_owner(world);
    struct reason reason = *why;
    if (!hosts_formed(hosts))
        return;
    hosts->all[host].lost = true;
    append_ranks(hosts, &reason, world_host(world, host));
    if (!in_order)
        collective_tell_host_lost(hosts, world_host(world, host), &reason);
    if (hosts->over.text[0] == '\0')
        hosts->over = reason;
    if (!hosts->collective) {
        end_if_idle(hosts);
        return;
    }
    /* One that left in order has done its part of what runs; one that was lost has not. */
    if (in_order)
        hosts_break(hosts, F8_ERANKDEAD, &reason);
    else
        hosts_fail(hosts, F8_ERANKDEAD, &reason);
    collective_settle(hosts->collective);
}

static void ended(struct world *world, int status, const struct reason *reason)
{
    finish(world_owner(world), status, reason);
}

static const struct world_listener listener = {
    .formed = formed,
    .received = received,
    .lost = lost,
    .ended = ended,
};

/* ---- the beginning ---- */

static uint32_t count_here(const struct group *group)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < group->world_size; r++)
        count += group->members[r] && !group->members[r]->far &&
                 group->members[r]->generation == group->generation;
    return count;
}

/* The root has been waiting for as long: those who have come here are told that it is in vain. */
static void on_incomplete(uv_timer_t *timer)
{
    struct hosts *hosts = timer->data;
    struct collective *collective = hosts->collective;
    (void)reason_set(&hosts->over, F8_EDEADLINE,
        "group %.120s: %u of the %u ranks that it is to have on this host have joined within %g s",
        collective->group->name, count_here(collective->group), hosts->local_ranks,
        (double)hosts->context->config->world_deadline_ms / 1000);
    hosts_break(hosts, F8_EDEADLINE, &hosts->over);
    collective_settle(collective);
}

bool collective_meeting(const struct group *group, struct world_meeting *ret_meeting)
{
    const struct hosts *hosts = group->collective->hosts;
    if (!hosts || group->state != GROUP_FORMING || hosts_formed(hosts))
        return false;
    if (hosts->world)
        return world_meeting(hosts->world, ret_meeting);
    ret_meeting->ends_ms = uv_now(hosts->context->loop) + uv_timer_get_due_in(&hosts->timer);
    ret_meeting->began_ms = ret_meeting->ends_ms - hosts->context->config->world_deadline_ms;
    ret_meeting->missing = 0;
    (void)reason_set(&ret_meeting->waits_for, F8_OK,
        "ranks of this host: %u of the %u that it is to have have joined", count_here(group),
        hosts->local_ranks);
    return uv_is_active((const uv_handle_t *)&hosts->timer);
}

/* Until all local ranks are there, nobody else looks at the clock. */
static void await_others(struct hosts *hosts)
{
    (void)uv_timer_start(
        &hosts->timer, on_incomplete, hosts->context->config->world_deadline_ms, 0);
}

int hosts_new(
    struct collective *collective, const struct collective_span *span, struct hosts **ret_hosts)
{
    struct hosts *hosts = calloc(1, sizeof(*hosts));
    if (!hosts)
        return F8_ENOMEM;
    hosts->collective = collective;
    hosts->context = collective->context;
    hosts->local_ranks = span->local_ranks;
    hosts->era = 1;
    hosts->told_end = &hosts->told;
    memcpy(hosts->id, span->id, sizeof(hosts->id));
    (void)snprintf(hosts->name, sizeof(hosts->name), "%u/%s/%s",
        (unsigned)collective->group->job->uid, collective->group->job->name,
        collective->group->name);
    (void)uv_timer_init(collective->context->loop, &hosts->timer); /* cannot fail */
    hosts->timer.data = hosts;
    await_others(hosts);
    *ret_hosts = hosts;
    return F8_OK;
}

void hosts_next_era(struct hosts *hosts)
{
    if (!hosts->world) { /* nobody has heard of the first */
        hosts_drop_told(hosts);
        await_others(hosts);
        return;
    }
    hosts->era++;
    hosts->told_idle = false;
    hosts->engine.gave_up = false;
    for (uint32_t h = 0; h < hosts->num_hosts; h++)
        host_begin_era(&hosts->all[h]);
}

/* All local ranks are there: their daemon reports them. */
static int meet(struct hosts *hosts, struct reason *reason)
{
    const struct group *group = hosts->collective->group;
    struct world_rank *ranks = calloc(hosts->local_ranks, sizeof(*ranks));
    if (!ranks)
        return reason_set(reason, F8_ENOMEM, "out of memory as group %s was to meet", group->name);
    uint32_t count = 0;
    for (uint32_t r = 0; r < group->world_size && count < hosts->local_ranks; r++)
        if (group->members[r] && group->members[r]->generation == group->generation)
            ranks[count++] = (struct world_rank){.rank = r, .pid = group->members[r]->pid};
    char name[2 * (F8_PROTO_MAX_NAME + 1)];
    (void)snprintf(name, sizeof(name), "%s/%s", group->job->name, group->name);
    const struct world_part part = {
        .id = hosts->id,
        .group = name,
        .world_size = group->world_size,
        .ranks = ranks,
        .num_ranks = count,
        .deadline_ms = hosts->context->config->world_deadline_ms,
        .listener = &listener,
        .owner = hosts,
    };
    int status = world_join(hosts->context->worlds, &part, &hosts->world, reason);
    free(ranks);
    return status;
}

void hosts_entered(struct hosts *hosts, const struct member *member)
{
    struct collective *collective = hosts->collective;
    if (hosts->world) {
        hosts_tell_entered(hosts, member);
        return;
    }
    if (count_here(collective->group) < hosts->local_ranks)
        return;
    (void)uv_timer_stop(&hosts->timer);
    struct reason reason;
    int status = meet(hosts, &reason);
    if (status == F8_OK)
        return;
    hosts->over = reason;
    hosts_break(hosts, status, &reason);
}
