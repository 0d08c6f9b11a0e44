/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators see of groups over several hosts: the hosts, where they reach this one, and what
 * moves bytes between them. On the loop; as inspect.c.
 */
#include "daemon/inspect_private.h"
#include "daemon/world.h"

#include <string.h>

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

/* Copies what is gone when the world is left, before the page is sent. */
static char *keep(struct page *page, const char *text, size_t length)
{
    char *copy = inspect_grab(page, length + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

static void add_guest(struct page *page, const struct world_guest *guest, F8__HostInfo *info)
{
    size_t size = guest->num_ranks * sizeof(*info->ranks);
    uint64_t now = inspect_now(page);
    info->name = keep(page, guest->name, strlen(guest->name));
    info->address = keep(page, guest->address, strlen(guest->address));
    info->ranks = inspect_grab(page, size);
    if (!info->name || !info->address || !info->ranks)
        return;
    if (size > 0)
        memcpy(info->ranks, guest->ranks, size);
    info->n_ranks = guest->num_ranks;
    info->here = guest->here;
    info->root = guest->root;
    info->silent_ms = guest->silent_ms;
    info->meeting = true;
    info->meeting_ms = now - guest->came_ms;
    info->meeting_left_ms = guest->ends_ms > now ? guest->ends_ms - now : 0;
    inspect_put_row(page, info, (void ***)&page->reply->hosts, &page->reply->n_hosts);
}

/* Its group may be none of this daemon's, which is but its root, and is known as "job/group": of
 * slashes within names, those of the job's are likelier. */
static void on_guest(void *context, const struct world_guest *guest)
{
    struct page *page = context;
    const char *slash = strrchr(guest->group, '/');
    if (!slash || page->full)
        return;
    F8__HostInfo *info = inspect_grab(page, sizeof(*info));
    char *job = info ? keep(page, guest->group, (size_t)(slash - guest->group)) : NULL;
    char *group = job ? keep(page, slash + 1, strlen(slash + 1)) : NULL;
    if (!group || !session_matches(page->ask->job, job) ||
        !session_matches(page->ask->name, group) || !inspect_wants_row(page))
        return;
    f8__host_info__init(info);
    info->job = job;
    info->group = group;
    add_guest(page, guest, info);
}

void inspect_guests(struct page *page)
{
    if (!page->full)
        worlds_guests(page->session->context->collective.worlds, on_guest, page);
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

/* Before they have met. */
static void fill_meeting(struct page *page, const struct group *group, F8__GroupInfo *info)
{
    struct world_meeting meeting;
    uint64_t now = inspect_now(page);
    if (!collective_meeting(group, &meeting))
        return;
    char *text = keep(page, meeting.waits_for.text, strlen(meeting.waits_for.text));
    if (text)
        info->meeting = text;
    info->meeting_ms = now - meeting.began_ms;
    info->meeting_left_ms = meeting.ends_ms > now ? meeting.ends_ms - now : 0;
    info->ranks_missing = meeting.missing;
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

char **inspect_rank_hosts(struct page *page, const struct group *group)
{
    if (!collective_world(group))
        return NULL; /* with many ranks the names of none would fill the page */
    const char **names = inspect_grab(page, group->world_size * sizeof(*names));
    return names && collective_rank_hosts(group, names) ? (char **)(uintptr_t)names : NULL;
}

void inspect_group_hosts(struct page *page, const struct group *group, F8__GroupInfo *info)
{
    const struct world *world = collective_world(group);
    struct collective_engine engine;
    const char *address;
    fill_meeting(page, group, info);
    if (!world)
        return;
    (void)world_hosts(world, &info->hosts);
    info->interface = (char *)world_interface(world, &address);
    world_traffic(world, &info->control_sent, &info->control_received);
    info->rank_hosts = inspect_rank_hosts(page, group);
    info->n_rank_hosts = info->rank_hosts ? group->world_size : 0;
    collective_engine(group, &engine);
    info->engine = (char *)engine.name;
    info->engine_untold = engine.untold;
    info->engine_pid = engine.pid;
    info->bytes_sent = engine.sent;
    info->bytes_received = engine.received;
}
