/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators see of groups over several hosts: the hosts, where they reach this one, and what
 * moves bytes between them. On the loop; as inspect.c.
 */
#include "daemon/inspect_private.h"
#include "daemon/world.h"

/* The newest; of more there is no need to know. */
#define MAX_KEPT 16

static void add_host(
    struct page *page, const struct group *group, const struct world *world, uint32_t index)
{
    uint32_t num_hosts;
    const struct world_host *host = &world_hosts(world, &num_hosts)[index];
    F8__HostInfo *info = inspect_grab(page, sizeof(*info));
    uint32_t *ranks = info ? inspect_grab(page, host->num_ranks * sizeof(*ranks)) : NULL;
    if (!ranks)
        return;
    uint64_t now = inspect_now(page);
    f8__host_info__init(info);
    info->job = group->job->name;
    info->uid = group->job->uid;
    info->group = group->name;
    info->name = (char *)host->name;
    info->address = (char *)host->address;
    info->ranks = ranks;
    for (; info->n_ranks < host->num_ranks; info->n_ranks++)
        ranks[info->n_ranks] = host->ranks[info->n_ranks].rank;
    info->here = index == world_here(world);
    info->root = index == world_root(world);
    info->lost = host->lost;
    info->silent_ms = info->here || now < host->heard_ms ? 0 : now - host->heard_ms;
    inspect_put_row(page, info, (void ***)&page->reply->hosts, &page->reply->n_hosts);
}

void inspect_hosts(struct page *page, const struct group *group)
{
    const struct world *world = collective_world(group);
    uint32_t num_hosts = 0;
    if (world)
        (void)world_hosts(world, &num_hosts);
    for (uint32_t h = 0; h < num_hosts && !page->full; h++)
        if (inspect_wants_row(page))
            add_host(page, group, world, h);
}

void inspect_place(struct page *page, F8__StatusInfo *info)
{
    struct world_place *place = inspect_grab(page, sizeof(*place));
    struct reason *reason = inspect_grab(page, sizeof(*reason));
    const struct config *config = registry_config(page->session->context->registry);
    if (!place || !reason)
        return;
    if (world_place(config, place, reason) < 0) {
        info->hosts_reason = reason->text;
        return;
    }
    info->hosts_interface = place->interface;
    info->hosts_address = place->address;
}

void inspect_kept_engines(struct page *page, F8__StatusInfo *info)
{
    struct collective_kept kept[MAX_KEPT];
    uint32_t count = collective_list_kept(&page->session->context->collective, kept, MAX_KEPT);
    F8__KeptEngine *engines = inspect_grab(page, (count + 1) * sizeof(*engines));
    info->kept_engines = inspect_grab(page, (count + 1) * sizeof(*info->kept_engines));
    for (uint32_t i = 0; engines && info->kept_engines && i < count; i++) {
        f8__kept_engine__init(&engines[i]);
        engines[i].group = (char *)kept[i].group;
        engines[i].pid = (uint32_t)kept[i].pid;
        engines[i].hosts = kept[i].hosts;
        engines[i].left_ms = kept[i].left_ms;
        info->kept_engines[info->n_kept_engines++] = &engines[i];
    }
}

/* Only groups over hosts have any on others. */
static void add_rank_hosts(struct page *page, const struct group *group, F8__GroupInfo *info)
{
    info->rank_hosts = inspect_grab(page, group->world_size * sizeof(*info->rank_hosts));
    for (uint32_t r = 0; info->rank_hosts && r < group->world_size; r++)
        info->rank_hosts[info->n_rank_hosts++] = (char *)collective_host_of(group, r);
}

void inspect_group_hosts(struct page *page, const struct group *group, F8__GroupInfo *info)
{
    const struct world *world = collective_world(group);
    struct collective_engine engine;
    const char *address;
    if (!world)
        return;
    (void)world_hosts(world, &info->hosts);
    info->interface = (char *)world_interface(world, &address);
    world_traffic(world, &info->control_sent, &info->control_received);
    add_rank_hosts(page, group, info);
    collective_engine(group, &engine);
    info->engine = (char *)"gloo";
    info->engine_pid = engine.pid;
    info->bytes_sent = engine.sent;
    info->bytes_received = engine.received;
}
