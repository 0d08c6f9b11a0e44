/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators see of the daemon, a page at a time: each view walks the registry, passes over
 * the rows that earlier pages had, and stops when the packet is full. On the loop; rows live in
 * the answer's scratch memory until it is sent.
 */
#include "daemon/inspect_private.h"

#include <assert.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "protocol.h"

/* Rows of one page at most, and the bytes that they may fill of a packet. */
#define PAGE_ROWS  1024
#define PAGE_BYTES (F8_PROTO_MAX_PACKET - 2048)
#define SCRATCH    ((size_t)1 << 19)

void *inspect_grab(struct page *page, size_t size)
{
    size_t rounded = (size + 7) & ~(size_t)7;
    if (page->used + rounded > SCRATCH) {
        page->full = true;
        return NULL;
    }
    void *memory = page->scratch + page->used;
    page->used += rounded;
    return memory;
}

/* Whether the next matching row belongs on this page: not if it was on an earlier one. */
bool inspect_wants_row(struct page *page)
{
    return page->row++ >= page->ask->cursor;
}

/*
 * How many of the next `count` rows, all of which match, were on earlier pages: passed over at
 * once, so that a list of many pages is not walked from its begin for each.
 */
static uint32_t pass_over(struct page *page, uint32_t count)
{
    uint64_t before = page->ask->cursor > page->row ? page->ask->cursor - page->row : 0;
    uint32_t passed = before < count ? (uint32_t)before : count;
    page->row += passed;
    return passed;
}

/* Puts a row into a list of the reply, unless the page is full. */
void inspect_put_row(struct page *page, void *message, void ***list, size_t *count)
{
    size_t bytes = protobuf_c_message_get_packed_size(message) + 8;
    if (page->bytes + bytes > PAGE_BYTES || *count == PAGE_ROWS) {
        page->full = true;
        return;
    }
    if (!*list)
        *list = inspect_grab(page, PAGE_ROWS * sizeof(void *));
    if (!*list)
        return;
    (*list)[(*count)++] = message;
    page->bytes += bytes;
}

bool session_matches(const char *glob, const char *name)
{
    return glob[0] == '\0' || fnmatch(glob, name, 0) == 0;
}

uint64_t inspect_now(const struct page *page)
{
    return uv_now(page->session->context->collective.loop);
}

static void fill_status(struct page *page)
{
    const struct session_context *context = page->session->context;
    const struct config *config = registry_config(context->registry);
    F8__StatusInfo *info = inspect_grab(page, sizeof(*info));
    struct registry_totals totals;
    registry_count(context->registry, &totals);
    f8__status_info__init(info);
    info->version = (char *)F8_VERSION;
    info->pid = (uint32_t)getpid();
    info->uptime_ms = inspect_now(page) - context->started;
    info->socket = (char *)config->socket;
    info->kernels = (char *)f8k_ops()->name;
    info->threads = config->threads;
    info->connections = context->connections;
    info->jobs = totals.jobs;
    info->groups = totals.groups;
    info->weights = totals.weights;
    info->region_bytes = totals.region_bytes;
    info->arena_bytes = totals.arena_bytes;
    info->gathers = context->collective.gathers;
    info->failed_rounds = context->collective.failed;
    info->memory_limit = config->memory_per_uid;
    info->backend = (char *)context->collective.backend->ops->name;
    if (context->metrics)
        info->metrics = (char *)context->metrics;
    inspect_devices(page, info);
    inspect_place(page, info);
    inspect_kept_engines(page, info);
    inspect_saved(page, info);
    page->reply->status = info;
}

static void add_job(struct page *page, const struct job *job)
{
    F8__JobInfo *info = inspect_wants_row(page) ? inspect_grab(page, sizeof(*info)) : NULL;
    if (!info)
        return;
    f8__job_info__init(info);
    info->name = job->name;
    info->uid = job->uid;
    info->clients = job->clients;
    for (const struct group *group = job->groups; group; group = group->next)
        info->groups++;
    info->region_bytes = job->region_bytes;
    info->arena_bytes = job->arena_bytes;
    info->age_ms = inspect_now(page) - job->opened;
    inspect_stored_of(page, info);
    inspect_put_row(page, info, (void ***)&page->reply->jobs, &page->reply->n_jobs);
}

static const char *state_name(enum group_state state)
{
    static const char *const names[] = {
        [GROUP_FORMING] = "forming", [GROUP_SEALED] = "sealed", [GROUP_BROKEN] = "broken"};
    return names[state];
}

static uint32_t *grab_pids(struct page *page, const struct group *group)
{
    uint32_t *pids = inspect_grab(page, group->world_size * sizeof(*pids));
    for (uint32_t r = 0; pids && r < group->world_size; r++)
        pids[r] = group->members[r] ? group->members[r]->pid : 0;
    return pids;
}

static void fill_counters(F8__GroupInfo *info, const struct counters_group *counters)
{
    info->gathered_bytes = counters->bytes;
    info->saturated = counters->saturated;
    info->nan = counters->nan;
    info->stale = counters->stale;
    info->failed = counters->failed;
}

static void add_group(struct page *page, const struct group *group)
{
    F8__GroupInfo *info = inspect_wants_row(page) ? inspect_grab(page, sizeof(*info)) : NULL;
    uint32_t *pids = info ? grab_pids(page, group) : NULL;
    if (!pids)
        return;
    f8__group_info__init(info);
    info->job = group->job->name;
    info->uid = group->job->uid;
    info->name = group->name;
    info->generation = group->generation;
    info->state = (char *)state_name(group->state);
    info->cause = group->state == GROUP_BROKEN ? (char *)group->cause.text : (char *)"";
    info->world_size = group->world_size;
    info->pids = pids;
    info->n_pids = group->world_size;
    info->weights = group->list ? group->list->num_weights : 0;
    info->buckets = group->list ? group->list->num_buckets : 0;
    info->slots = group->slots;
    info->arena_bytes = group->arena_bytes;
    info->collectives = collective_completed(group);
    info->gathers = group->gathers;
    info->float8_bytes = group->float8_bytes;
    fill_counters(info, collective_counters(group));
    inspect_group_hosts(page, group, info);
    if (inspect_group_devices(page, group, info))
        inspect_put_row(page, info, (void ***)&page->reply->groups, &page->reply->n_groups);
}

static void fill_weight(F8__WeightInfo *info, const struct group *group, uint32_t index)
{
    const struct weight *weight = &group->list->weights[index];
    const struct scaling *scaling = &group->scalings[index];
    f8__weight_info__init(info);
    info->job = group->job->name;
    info->uid = group->job->uid;
    info->group = group->name;
    info->bucket = (char *)group->list->buckets[weight->bucket].name;
    info->name = (char *)weight->name;
    info->shape = (uint64_t *)weight->shape;
    info->n_shape = weight->ndim;
    info->dtype = weight->dtype;
    info->flavour = weight->flavour;
    info->format = weight->format;
    info->power_of_two = weight->power_of_two;
    info->wire = (char *)f8_proto_wire_name(weight->wire);
    memcpy(&info->scale, &scaling->scale, sizeof(info->scale));
    info->amax = scaling->amax;
    info->scale_known = scaling->scale_seen;
    info->amax_known = scaling->amax_seen;
    info->version = scaling->version;
    info->scale_version = scaling->scale_version;
    info->gathers = scaling->gathers;
    info->saturated = scaling->saturated;
    info->nan = scaling->nan;
    info->stale = scaling->stale;
    info->bytes = weight_wire_bytes(weight);
    info->syncs = scaling->delayed.syncs;
    info->since_sync = scaling->delayed.since_sync;
    info->kept = scaling->delayed.kept;
    info->initialised = weight->flavour == F8_PROTO_DELAYED && scaling->ready;
    info->history_length = weight->history_length;
    info->history_algorithm = weight->history_algorithm;
    if (weight->amax_group != 0 && group->amax_group)
        info->amax_group = group->amax_group->name;
}

/* The history of a delayed weight, newest first. */
static bool fill_history(
    struct page *page, F8__WeightInfo *info, const struct group *group, uint32_t index)
{
    const struct weight *weight = &group->list->weights[index];
    info->n_history = weight->history_length;
    info->history = inspect_grab(page, weight->history_length * sizeof(*info->history));
    for (uint32_t i = 0; info->history && i < weight->history_length; i++)
        info->history[i] = scaling_history(&group->scalings[index], weight, i);
    return info->history;
}

static void add_weights(struct page *page, const struct group *group)
{
    if (!group->list || group->sources)
        return; /* the weights of an amax group are those of others, which are shown there */
    uint32_t num_weights = group->list->num_weights;
    uint32_t w = page->ask->name[0] == '\0' ? pass_over(page, num_weights) : 0;
    for (; w < num_weights && !page->full; w++) {
        if (!session_matches(page->ask->name, group->list->weights[w].name) ||
            !inspect_wants_row(page))
            continue;
        F8__WeightInfo *info = inspect_grab(page, sizeof(*info));
        if (!info)
            return;
        fill_weight(info, group, w);
        if (page->ask->view == F8__VIEW__AMAX && !fill_history(page, info, group, w))
            return;
        inspect_put_row(page, info, (void ***)&page->reply->weights, &page->reply->n_weights);
    }
}

static void sum_weights(F8__BucketInfo *info, const struct group *group, uint32_t bucket)
{
    const struct bucket_info *range = &group->list->buckets[bucket];
    info->weights = range->count;
    info->gathers = group->scalings[range->first].gathers;
    for (uint32_t w = range->first; w < range->first + range->count; w++) {
        const struct scaling *scaling = &group->scalings[w];
        info->bytes += weight_wire_bytes(&group->list->weights[w]);
        info->saturated += scaling->saturated;
        info->nan += scaling->nan;
        info->stale += scaling->stale;
    }
}

static void add_bucket(struct page *page, const struct group *group, uint32_t bucket)
{
    F8__BucketInfo *info = inspect_grab(page, sizeof(*info));
    uint32_t *holders = info ? inspect_grab(page, group->world_size * sizeof(*holders)) : NULL;
    if (!holders)
        return;
    f8__bucket_info__init(info);
    info->job = group->job->name;
    info->uid = group->job->uid;
    info->group = group->name;
    info->name = (char *)group->list->buckets[bucket].name;
    info->shared = group->list->buckets[bucket].shared;
    info->holders = holders;
    for (uint32_t r = 0; r < group->world_size; r++)
        if (collective_holds(group, r, bucket))
            holders[info->n_holders++] = r;
    sum_weights(info, group, bucket);
    inspect_put_row(page, info, (void ***)&page->reply->buckets, &page->reply->n_buckets);
}

static void add_buckets(struct page *page, const struct group *group)
{
    if (!group->list || group->sources)
        return;
    uint32_t num_buckets = group->list->num_buckets;
    uint32_t b = page->ask->name[0] == '\0' ? pass_over(page, num_buckets) : 0;
    for (; b < num_buckets && !page->full; b++)
        if (session_matches(page->ask->name, group->list->buckets[b].name) &&
            inspect_wants_row(page))
            add_bucket(page, group, b);
}

/* Any one weight's history fits a packet, so that pages end between weights. */
_Static_assert(HISTORY_SYNCS * 8 + 4 * F8_PROTO_MAX_NAME < PAGE_BYTES, "a history is a row");

static void add_history(struct page *page, const struct group *group, uint32_t weight)
{
    uint64_t newest = group->scalings[weight].delayed.syncs;
    uint32_t count = history_count(group->history, weight, newest);
    F8__HistoryInfo *info = inspect_grab(page, sizeof(*info));
    uint32_t *values = info ? inspect_grab(page, 2 * count * sizeof(*values)) : NULL;
    if (!values)
        return;
    f8__history_info__init(info);
    info->job = group->job->name;
    info->uid = group->job->uid;
    info->group = group->name;
    info->name = (char *)group->list->weights[weight].name;
    info->newest = newest;
    info->n_amax = info->n_scale = count;
    info->amax = values;
    info->scale = values + count;
    for (uint32_t i = 0; i < count; i++) {
        struct history_value value = history_at(group->history, weight, i);
        info->amax[i] = value.amax;
        info->scale[i] = value.scale;
    }
    inspect_put_row(page, info, (void ***)&page->reply->histories, &page->reply->n_histories);
}

/* Of the weights whose state is the group's own, also if others gather them. */
static void add_histories(struct page *page, const struct group *group)
{
    for (uint32_t w = 0; group->list && w < group->list->num_weights && !page->full; w++) {
        const struct weight *weight = &group->list->weights[w];
        if (weight->flavour == F8_PROTO_DELAYED && weight->amax_group == 0 &&
            session_matches(page->ask->name, weight->name) && inspect_wants_row(page))
            add_history(page, group, w);
    }
}

static const char *round_state(const struct group *group, const struct round_head *head)
{
    if (head->running)
        return collective_is_between_hosts(group) ? "in the engine between hosts" : "running";
    if (head->outside)
        return "waiting for another group";
    return head->complete ? "waiting for a place" : "waiting for ranks";
}

/* `hosts` is by rank, or NULL; those of the missing ranks move to its front. */
static void fill_missing(
    F8__RoundInfo *info, const struct group *group, uint32_t *ranks, char **hosts)
{
    info->missing_hosts = hosts;
    info->missing_ranks = ranks;
    info->missing_pids = ranks + group->world_size;
    for (uint32_t r = 0; r < group->world_size; r++) {
        if (!collective_missing(group, info->collective, r))
            continue;
        info->missing_ranks[info->n_missing_ranks++] = r;
        if (hosts)
            hosts[info->n_missing_hosts++] = hosts[r];
        info->missing_pids[info->n_missing_pids++] = group->members[r] ? group->members[r]->pid : 0;
    }
}

static void add_round(struct page *page, const struct group *group)
{
    static const char *const kinds[] = {[ROUND_SEAL] = "seal",
        [ROUND_PRECOMPUTE] = "precompute",
        [ROUND_SYNC] = "sync",
        [ROUND_INVALIDATE] = "invalidate",
        [ROUND_GATHER] = "gather"};
    struct round_head head;
    if (!collective_head(group, &head) || !inspect_wants_row(page))
        return;
    F8__RoundInfo *info = inspect_grab(page, sizeof(*info));
    uint32_t *ranks = info ? inspect_grab(page, 2 * group->world_size * sizeof(*ranks)) : NULL;
    char **hosts = ranks ? inspect_rank_hosts(page, group) : NULL;
    if (page->full)
        return;
    uint64_t now = inspect_now(page);
    f8__round_info__init(info);
    info->job = group->job->name;
    info->uid = group->job->uid;
    info->group = group->name;
    info->collective = head.run.number;
    info->kind = (char *)kinds[head.run.kind];
    if (head.run.kind == ROUND_GATHER)
        info->bucket = (char *)group->list->buckets[head.run.bucket].name;
    info->waited_ms = now - head.opened;
    info->state = (char *)round_state(group, &head);
    info->deadline_ms = head.deadline > now ? head.deadline - now : 0;
    fill_missing(info, group, ranks, hosts);
    inspect_put_row(page, info, (void ***)&page->reply->rounds, &page->reply->n_rounds);
}

/* The rows of one group, in a view whose rows are not jobs. */
static void add_of_group(struct page *page, const struct group *group)
{
    switch (page->ask->view) {
    case F8__VIEW__WEIGHTS:
    case F8__VIEW__AMAX:
        add_weights(page, group);
        break;
    case F8__VIEW__BUCKETS:
        add_buckets(page, group);
        break;
    case F8__VIEW__HISTORY:
        add_histories(page, group);
        break;
    default:
        if (!session_matches(page->ask->name, group->name))
            break;
        if (page->ask->view == F8__VIEW__GROUPS)
            add_group(page, group);
        else if (page->ask->view == F8__VIEW__HOSTS)
            inspect_hosts(page, group);
        else
            add_round(page, group);
    }
}

static void fill_lists(struct page *page)
{
    const struct job *job = registry_jobs(page->session->context->registry);
    for (; job && !page->full; job = job->next) {
        if (!session_matches(page->ask->job, job->name))
            continue;
        if (page->ask->view == F8__VIEW__JOBS)
            add_job(page, job);
        else if (page->ask->view == F8__VIEW__STATS)
            inspect_job_stats(page, job);
        else
            for (struct group *group = job->groups; group && !page->full; group = group->next)
                add_of_group(page, group);
    }
    if (page->ask->view == F8__VIEW__HOSTS)
        inspect_guests(page);
    if (page->ask->view == F8__VIEW__JOBS)
        inspect_stored_alone(page);
}

static size_t rows_of(const F8__InspectReply *reply)
{
    return reply->n_jobs + reply->n_groups + reply->n_weights + reply->n_rounds + reply->n_buckets +
           reply->n_histories + reply->n_hosts + reply->n_stats;
}

int session_inspect(struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__Inspect *ask = incoming->request->inspect;
    if (!protobuf_c_enum_descriptor_get_value(&f8__view__descriptor, (int)ask->view))
        return reason_set(&answer->reason, F8_EUNKNOWN, "view %d is not known to f8gatherd %s",
            (int)ask->view, F8_VERSION);
    answer->scratch = malloc(SCRATCH);
    if (!answer->scratch)
        return reason_set(&answer->reason, F8_ENOMEM, "out of memory inspecting");
    f8__inspect_reply__init(&answer->body.inspect);
    struct page page = {
        .session = session, .ask = ask, .reply = &answer->body.inspect, .scratch = answer->scratch};
    if (ask->view == F8__VIEW__JOBS && inspect_stored_begin(&page) < 0)
        return reason_set(&answer->reason, F8_ENOMEM, "out of memory inspecting");
    if (ask->view == F8__VIEW__STATUS)
        fill_status(&page);
    else if (ask->view == F8__VIEW__STATS && ask->job[0] == '\0')
        inspect_stats(&page);
    else
        fill_lists(&page);
    free(page.stored);
    /* Any one row fits: the longest is a group of as many ranks as --max-ranks allows. Were there
       none on a full page, a cursor of 0 would end the list without a word. */
    assert(!page.full || rows_of(page.reply) > 0);
    if (page.full)
        page.reply->cursor = ask->cursor + rows_of(page.reply);
    answer->reply.body_case = F8__REPLY__BODY_INSPECT;
    answer->reply.inspect = page.reply;
    return F8_OK;
}
