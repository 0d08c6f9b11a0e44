/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a host hears of its world's root: the table of hosts, what the others said, and who of them
 * is lost. Called by the link, on the loop.
 */
#include "daemon/world_private.h"

#include <stdlib.h>

/* ---- the table ---- */

static int refuse_table(struct reason *reason)
{
    return reason_set(reason, F8_EPROTO, "the table of hosts does not say who has which rank");
}

/* All ranks are in it once, and this host's are where they should be. */
static int check_table(
    const struct world *world, const F8__WorldTable *table, struct reason *reason)
{
    uint64_t ranks = 0;
    bool found = false;
    for (size_t i = 0; i < table->n_hosts; i++) {
        const F8__WorldTableHost *host = table->hosts[i];
        if (host->n_ranks == 0 || host->n_ranks != host->n_pids)
            return refuse_table(reason);
        ranks += host->n_ranks;
        for (size_t j = 0; j < host->n_ranks; j++)
            if (host->ranks[j] >= world->world_size ||
                (j > 0 && host->ranks[j] <= host->ranks[j - 1]))
                return refuse_table(reason);
        found |= host->ranks[0] == world->ranks[0].rank && host->n_ranks == world->num_ranks;
    }
    return found && ranks == world->world_size && table->root <= table->n_hosts
               ? F8_OK
               : refuse_table(reason);
}

static void take_host(struct world *world, const F8__WorldTableHost *from, struct world_host *host,
    struct world_rank *ranks)
{
    world_clean_name(from->name, host->name);
    (void)snprintf(host->address, sizeof(host->address), "%.63s", from->address);
    host->ranks = ranks;
    host->num_ranks = (uint32_t)from->n_ranks;
    host->heard_ms = uv_now(world->worlds->loop);
    for (size_t i = 0; i < from->n_ranks; i++)
        ranks[i] = (struct world_rank){.rank = from->ranks[i], .pid = from->pids[i]};
}

static int take_table(struct world *world, const F8__WorldTable *table, struct reason *reason)
{
    int status = check_table(world, table, reason);
    if (status < 0)
        return status;
    world->hosts = calloc(table->n_hosts, sizeof(*world->hosts));
    world->of_hosts = calloc(world->world_size, sizeof(*world->of_hosts));
    if (!world->hosts || !world->of_hosts)
        return reason_set(reason, F8_ENOMEM, "out of memory for the table of hosts");
    struct world_rank *ranks = world->of_hosts;
    for (uint32_t i = 0; i < table->n_hosts; i++) {
        take_host(world, table->hosts[i], &world->hosts[i], ranks);
        if (ranks[0].rank == world->ranks[0].rank)
            world->here = i;
        ranks += world->hosts[i].num_ranks;
    }
    world->num_hosts = (uint32_t)table->n_hosts;
    world->root = table->root;
    return F8_OK;
}

/* ---- what the root says ---- */

static void on_table(struct world *world, const F8__WorldTable *table)
{
    struct reason reason;
    if (world->state != WORLD_JOINED)
        return;
    int status = take_table(world, table, &reason);
    if (status < 0) {
        world_end(world, status, &reason);
        return;
    }
    world->state = WORLD_FORMED;
    (void)uv_timer_stop(&world->deadline);
    world->listener->formed(world);
}

/* The root says of whom it is sure: the silence of a host may be longer than was thought here.
 * Those it does not name were heard not long ago, but nobody says when. */
static void on_heartbeat(struct world *world, const F8__WorldHeartbeat *heartbeat)
{
    uint64_t now = uv_now(world->worlds->loop);
    uint64_t usual_ms = WORLD_UNNAMED_BEATS * world->worlds->config->heartbeat_ms;
    uint32_t next = 0;
    for (uint32_t i = 0; i < world->num_hosts; i++) {
        struct world_host *host = &world->hosts[i];
        bool named = next < heartbeat->n_hosts && next < heartbeat->n_silent_ms &&
                     heartbeat->hosts[next] == i;
        uint64_t silent_ms = named ? heartbeat->silent_ms[next++] : 0;
        if (host->lost)
            continue;
        if (i == world->root)
            host->heard_ms = now;
        else if (named)
            host->heard_ms = now - silent_ms;
        else if (host->heard_ms + usual_ms < now)
            host->heard_ms = now - usual_ms;
    }
}

static void on_host_lost(struct world *world, const F8__WorldLost *lost)
{
    struct reason reason;
    if (world->state != WORLD_FORMED || lost->host >= world->num_hosts ||
        world->hosts[lost->host].lost)
        return;
    struct world_host *host = &world->hosts[lost->host];
    host->lost = true;
    if (lost->in_order)
        (void)reason_set(&reason, F8_OK, "host %s (%s) has left", host->name, host->address);
    else
        (void)reason_set(
            &reason, F8_OK, "host %s (%s) is lost: %.300s", host->name, host->address, lost->text);
    world->listener->lost(world, lost->host, lost->in_order, &reason);
}

static void on_end(struct world *world, const F8__WorldEnd *message)
{
    struct reason reason;
    if (world->state == WORLD_FORMED) {
        world_lose_root(world, message->text);
        return;
    }
    (void)reason_set(&reason, F8_OK, "%s", message->text);
    world_end(world, message->status < 0 ? message->status : F8_EPROTO, &reason);
}

void world_hear(struct world_link *link, const F8__WorldMessage *message)
{
    struct world *world = world_link_owner(link);
    switch (message->body_case) {
    case F8__WORLD_MESSAGE__BODY_TABLE:
        on_table(world, message->table);
        break;
    case F8__WORLD_MESSAGE__BODY_HEARTBEAT:
        on_heartbeat(world, message->heartbeat);
        break;
    case F8__WORLD_MESSAGE__BODY_LOST:
        on_host_lost(world, message->lost);
        break;
    case F8__WORLD_MESSAGE__BODY_END:
        on_end(world, message->end);
        break;
    default: /* what a later version says */
        break;
    }
}

void world_receive(struct world_link *link, uint32_t tag, struct world_frame *frame)
{
    struct world *world = world_link_owner(link);
    if (world->state != WORLD_FORMED || tag >= world->num_hosts || tag == world->here)
        return;
    world->hosts[tag].heard_ms = uv_now(world->worlds->loop);
    world->listener->received(
        world, tag, frame->bytes + WORLD_HEAD_SIZE, frame->size - WORLD_HEAD_SIZE);
}
