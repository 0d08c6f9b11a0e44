/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work beside the running round: the early part of a gather, which a rank's pre-gather allows
 * (amaxes of its shards, or their casts where scale and place are known), and the cleaning of
 * places that were let go of, if the group poisons. On the loop; the backend computes.
 */
#include "daemon/collective_private.h"

#include <stdlib.h>

#include "status.h"

/* NaN in every format that is gathered: e4m3fn, e5m2, bf16, fp16, fp32. */
#define POISON 0xff

static uint32_t early_index(const struct collective *collective, uint32_t bucket, uint32_t rank)
{
    return bucket * collective->group->world_size + rank;
}

static void early_free(struct early *early)
{
    if (!early)
        return;
    free(early->tasks);
    free(early);
}

/* Back to the spare ones, which stand in order of their room: the first that fits fits best. */
static void spare_early(struct collective *collective, struct early *early)
{
    struct early **place = &collective->spare_earlies;
    while (*place && (*place)->max_tasks < early->max_tasks)
        place = &(*place)->next_spare;
    early->next_spare = *place;
    *place = early;
}

static struct early *new_early(uint32_t max_tasks)
{
    struct early *early = calloc(1, sizeof(*early));
    if (!early)
        return NULL;
    early->max_tasks = max_tasks;
    early->tasks = calloc(max_tasks, sizeof(*early->tasks));
    if (early->tasks)
        return early;
    early_free(early);
    return NULL;
}

/* A spare one if any fits, so that there are never more than were once open at the same time. */
static struct early *take_early(struct collective *collective, uint32_t num_tasks)
{
    struct early **place = &collective->spare_earlies;
    while (*place && (*place)->max_tasks < num_tasks)
        place = &(*place)->next_spare;
    struct early *early = *place;
    if (!early)
        return new_early(num_tasks);
    *place = early->next_spare;
    early->next_spare = NULL;
    return early;
}

/* The entry of the pair, made at its first use and kept until its gather has ended. */
static struct early *get_early(struct collective *collective, uint32_t rank, uint32_t bucket)
{
    struct early **entry = &collective->earlies[early_index(collective, bucket, rank)];
    if (*entry)
        return *entry;
    struct early *early = take_early(collective, collective->group->list->buckets[bucket].count);
    if (!early)
        return NULL;
    early->collective = collective;
    early->rank = rank;
    early->bucket = bucket;
    early->valid = false;
    *entry = early;
    return early;
}

static void early_finished(struct backend_work *work, int status)
{
    struct early *early = work->owner;
    early->running = false;
    early->valid = status == F8_OK;
    round_prepared(early->collective->rounds, early->rank, early->bucket);
    collective_settle(early->collective);
}

/* Fills in what can be done early; gives the number of tasks that do something. */
static uint32_t make_early_tasks(struct collective *collective, struct early *early, uint32_t place)
{
    const struct group *group = collective->group;
    const struct bucket_info *bucket = &group->list->buckets[early->bucket];
    const struct member *member = group->members[early->rank];
    uint32_t made = 0;
    for (uint32_t i = 0; i < bucket->count; i++) {
        struct backend_task *task = &early->tasks[i];
        uint32_t weight = bucket->first + i;
        *task = (struct backend_task){.op = BACKEND_FILL};
        if (collective_wants_amax(collective, weight))
            collective_amax_task(member, weight, task);
        else if (place != ROUND_NO_PLACE)
            collective_write_task(collective, member, weight,
                group->arena->data + collective_place_offset(group, place), task);
        made += task->op != BACKEND_FILL;
    }
    return made;
}

bool collective_prepare(void *context, uint32_t rank, uint32_t bucket, uint32_t place)
{
    struct collective *collective = context;
    if (collective->device)
        return false; /* nothing waits on the loop there: the events say when shards are final */
    struct early *early = get_early(collective, rank, bucket);
    /* Without memory, or without anything to do, the gather itself does it all. */
    if (!early || make_early_tasks(collective, early, place) == 0)
        return false;
    early->running = true;
    early->work = (struct backend_work){
        .tasks = early->tasks,
        .num_tasks = collective->group->list->buckets[bucket].count,
        .job = collective->group->job->id,
        .finished = early_finished,
        .owner = early,
    };
    backend_submit(collective->backend, &early->work);
    return true;
}

void collective_cancel(void *context)
{
    struct collective *collective = context;
    collective_withdraw(collective);
    for (uint32_t i = 0; i < collective->num_earlies; i++) {
        struct early *early = collective->earlies[i];
        if (early && early->running)
            backend_cancel(collective->backend, &early->work);
    }
}

const struct backend_task *collective_early_task(
    const struct collective *collective, uint32_t weight, uint32_t rank)
{
    const struct weight_list *list = collective->group->list;
    uint32_t bucket = list->weights[weight].bucket;
    const struct early *early = collective->earlies[early_index(collective, bucket, rank)];
    return early && early->valid ? &early->tasks[weight - list->buckets[bucket].first] : NULL;
}

void collective_forget_early(struct collective *collective, uint32_t bucket)
{
    for (uint32_t r = 0; r < collective->group->world_size; r++) {
        struct early **entry = &collective->earlies[early_index(collective, bucket, r)];
        struct early *early = *entry;
        if (!early)
            continue;
        early->valid = false;
        if (early->running)
            continue;
        *entry = NULL;
        spare_early(collective, early);
    }
}

static void cleaning_finished(struct backend_work *work, int status)
{
    (void)status; /* a cleaning is never cancelled */
    struct cleaning *cleaning = work->owner;
    round_cleaned(cleaning->collective->rounds, cleaning->place);
    collective_settle(cleaning->collective);
}

/* On devices each has its own. */
static uint32_t num_copies(const struct group *group)
{
    return group->arena && group->arena->device ? group->arena->device->num_devices : 1;
}

bool collective_clean(void *context, uint32_t place)
{
    struct collective *collective = context;
    const struct group *group = collective->group;
    if (!group->poison)
        return false;
    struct cleaning *cleaning = &collective->cleanings[place];
    cleaning->collective = collective;
    cleaning->place = place;
    uint32_t copies = num_copies(group);
    for (uint32_t d = 0; d < copies; d++) {
        const struct arena_device *device =
            group->arena->device ? &group->arena->device->devices[d] : NULL;
        cleaning->tasks[d] = (struct backend_task){
            .op = BACKEND_FILL,
            .dst = (device ? device->base : group->arena->data) +
                   collective_place_offset(group, place),
            .count = place < group->slots ? collective->layout.slot_span
                                          : group->list->buckets[place - group->slots].span,
            .byte = POISON,
            .device = device ? device->device : 0,
        };
    }
    cleaning->steps = (struct backend_steps){.arena = group->arena};
    cleaning->work = (struct backend_work){
        .tasks = cleaning->tasks,
        .num_tasks = copies,
        .steps = group->arena->device ? &cleaning->steps : NULL,
        .job = group->job->id,
        .finished = cleaning_finished,
        .owner = cleaning,
    };
    backend_submit(collective->backend, &cleaning->work);
    return true;
}

int collective_prepare_earlies(struct collective *collective)
{
    const struct group *group = collective->group;
    collective_drop_earlies(collective);
    uint32_t num_earlies = group->list->num_buckets * group->world_size;
    collective->earlies = calloc(num_earlies, sizeof(struct early *));
    if (!collective->earlies)
        return F8_ENOMEM;
    collective->num_earlies = num_earlies;
    if (!group->poison)
        return F8_OK;
    uint32_t places = group->slots + group->list->num_buckets;
    uint32_t copies = num_copies(group);
    collective->cleanings = calloc(places, sizeof(*collective->cleanings));
    struct backend_task *tasks = calloc((size_t)places * copies, sizeof(*tasks));
    collective->cleaning_tasks = tasks;
    for (uint32_t p = 0; p < places && tasks && collective->cleanings; p++)
        collective->cleanings[p].tasks = tasks + (size_t)p * copies;
    return tasks && collective->cleanings ? F8_OK : F8_ENOMEM;
}

void collective_drop_earlies(struct collective *collective)
{
    for (uint32_t i = 0; i < collective->num_earlies; i++)
        early_free(collective->earlies[i]);
    while (collective->spare_earlies)
        early_free(take_early(collective, 0));
    free(collective->earlies);
    free(collective->cleanings);
    free(collective->cleaning_tasks);
    collective->cleaning_tasks = NULL;
    collective->earlies = NULL;
    collective->cleanings = NULL;
    collective->num_earlies = 0;
}
