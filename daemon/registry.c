/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and what their uids hold: see registry.h; groups and members are in group.c. */
#include "daemon/registry.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

struct registry {
    const struct config *config; /* borrowed: outlives it */
    struct job *jobs;            /* owned list */
    registry_held *held;         /* what else a uid holds; NULL: nothing */
    const void *held_context;    /* borrowed */
    uint32_t num_jobs;
    uint32_t last_id;
};

struct registry *registry_new(const struct config *config)
{
    struct registry *registry = calloc(1, sizeof(*registry));
    if (registry)
        registry->config = config;
    return registry;
}

void registry_free(struct registry *registry)
{
    free(registry);
}

const struct config *registry_config(const struct registry *registry)
{
    return registry->config;
}

void registry_count_also(struct registry *registry, registry_held *held, const void *context)
{
    registry->held = held;
    registry->held_context = context;
}

struct job *registry_jobs(const struct registry *registry)
{
    return registry->jobs;
}

static void job_free(struct job *job)
{
    if (!job)
        return;
    free(job->name);
    free(job->token);
    free(job);
}

/* What the first client gives to its job. */
static int job_begin(struct job *job, const uint8_t *token, size_t token_size, uint64_t now)
{
    uint8_t *copy = token_size ? malloc(token_size) : NULL;
    if (token_size && !copy)
        return F8_ENOMEM;
    if (token_size)
        memcpy(copy, token, token_size);
    free(job->token);
    job->token = copy;
    job->token_size = token_size;
    job->opened = now;
    return F8_OK;
}

static struct job *job_new(struct registry *registry, uid_t uid, const char *name)
{
    struct job *job = calloc(1, sizeof(*job));
    if (!job)
        return NULL;
    job->registry = registry;
    job->uid = uid;
    job->name = strdup(name);
    if (!job->name) {
        job_free(job);
        return NULL;
    }
    job->id = ++registry->last_id;
    job->next = registry->jobs;
    registry->jobs = job;
    registry->num_jobs++;
    return job;
}

/* In time that does not depend on where they differ. */
static bool same_token(const struct job *job, const uint8_t *token, size_t token_size)
{
    if (job->token_size != token_size)
        return false;
    uint8_t difference = 0;
    for (size_t i = 0; i < token_size; i++)
        difference |= job->token[i] ^ token[i];
    return difference == 0;
}

/* A job goes with its last client and its last group, whichever is later; NULL is allowed. */
static void release_job(struct job *job)
{
    if (!job || job->clients > 0 || job->groups)
        return;
    struct job **link = &job->registry->jobs;
    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
    job->registry->num_jobs--;
    job_free(job);
}

int registry_enter_job(struct registry *registry, uid_t uid, const char *name, const uint8_t *token,
    size_t token_size, uint64_t now, struct job **ret_job, struct reason *reason)
{
    struct job *job = registry->jobs;
    while (job && !(job->uid == uid && strcmp(job->name, name) == 0))
        job = job->next;
    if (job && job->clients > 0 && !same_token(job, token, token_size))
        return reason_set(reason, F8_EPERM,
            "job %s has another token than the one given: it belongs to another run", name);
    if (!job && registry->num_jobs >= registry->config->max_jobs)
        return reason_set(reason, F8_ELIMIT,
            "job %s is one more than the limit of %u jobs (--max-jobs)", name,
            registry->config->max_jobs);
    if (!job)
        job = job_new(registry, uid, name);
    /* One that is there without clients belongs to nobody: the last work of its groups runs. */
    if (!job || (job->clients == 0 && job_begin(job, token, token_size, now) < 0)) {
        release_job(job);
        return reason_set(reason, F8_ENOMEM, "out of memory opening job %s", name);
    }
    job->clients++;
    *ret_job = job;
    return F8_OK;
}

void registry_leave_job(struct job *job)
{
    job->clients--;
    release_job(job);
}

static uint64_t held_elsewhere(const struct registry *registry, uid_t uid)
{
    return registry->held ? registry->held(registry->held_context, uid) : 0;
}

static uint64_t held_by(const struct registry *registry, uid_t uid)
{
    uint64_t bytes = held_elsewhere(registry, uid);
    for (const struct job *job = registry->jobs; job; job = job->next)
        if (job->uid == uid)
            bytes += job->region_bytes + job->arena_bytes;
    return bytes;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* "; job a holds regions of 1.0 MiB and arenas of 2.0 MiB", for as many jobs as fit. */
static void append_holdings(const struct registry *registry, uid_t uid, struct reason *reason)
{
    for (const struct job *job = registry->jobs; job; job = job->next)
        if (job->uid == uid && job->region_bytes + job->arena_bytes > 0)
            reason_append(reason, "; job %s holds regions of %.1f MiB and arenas of %.1f MiB",
                job->name, mib(job->region_bytes), mib(job->arena_bytes));
    if (held_elsewhere(registry, uid) > 0)
        reason_append(reason, "; stored states have %.1f MiB", mib(held_elsewhere(registry, uid)));
}

int registry_check_room(const struct registry *registry, uid_t uid, const char *what,
    uint64_t bytes, struct reason *reason)
{
    uint64_t limit = registry->config->memory_per_uid;
    uint64_t held = held_by(registry, uid);
    if (held <= limit && bytes <= limit - held)
        return F8_OK;
    (void)reason_set(reason, F8_ELIMIT,
        "%s needs %.1f MiB, but uid %u holds %.1f MiB of its %.1f MiB (--memory-per-uid)", what,
        mib(bytes), (unsigned)uid, mib(held), mib(limit));
    append_holdings(registry, uid, reason);
    return F8_ELIMIT;
}

static int charge(
    struct job *job, const char *what, uint64_t bytes, uint64_t *account, struct reason *reason)
{
    int status = registry_check_room(job->registry, job->uid, what, bytes, reason);
    if (status == F8_OK)
        *account += bytes;
    return status;
}

int registry_charge_region(struct job *job, const char *what, uint64_t bytes, struct reason *reason)
{
    return charge(job, what, bytes, &job->region_bytes, reason);
}

int registry_charge_arena(struct job *job, const char *what, uint64_t bytes, struct reason *reason)
{
    return charge(job, what, bytes, &job->arena_bytes, reason);
}

void registry_discharge_region(struct job *job, uint64_t bytes)
{
    job->region_bytes -= bytes;
}

void registry_discharge_arena(struct job *job, uint64_t bytes)
{
    job->arena_bytes -= bytes;
}

void registry_count(const struct registry *registry, struct registry_totals *ret_totals)
{
    struct registry_totals totals = {.jobs = registry->num_jobs};
    for (const struct job *job = registry->jobs; job; job = job->next) {
        totals.region_bytes += job->region_bytes;
        totals.arena_bytes += job->arena_bytes;
        for (const struct group *group = job->groups; group; group = group->next) {
            totals.groups++;
            totals.weights += group->list && !group->sources ? group->list->num_weights : 0;
        }
    }
    *ret_totals = totals;
}

struct group *registry_find_group(const struct job *job, const char *name)
{
    struct group *group = job->groups;
    while (group && strcmp(group->name, name) != 0)
        group = group->next;
    return group;
}

struct group *registry_add_group(struct job *job, const char *name, uint32_t world_size)
{
    struct group *group = calloc(1, sizeof(*group));
    if (!group)
        return NULL;
    group->name = strdup(name);
    group->members = calloc(world_size, sizeof(*group->members));
    if (!group->name || !group->members) {
        free(group->name);
        free(group->members);
        free(group);
        return NULL;
    }
    group->job = job;
    group->world_size = world_size;
    group->generation = 1;
    group->id = ++job->registry->last_id;
    group->next = job->groups;
    job->groups = group;
    return group;
}

void registry_free_group(struct group *group)
{
    struct job *job = group->job;
    struct group **link = &job->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    group_unlink(group);
    while (group->sources)
        group_unlink(group->sources);
    group_bury(group);
    registry_discharge_arena(job, group->arena_bytes);
    arena_free(group->arena);
    free(group->devices);
    free(group->arena_counts);
    weights_unref(group->list);
    free(group->scalings);
    history_free(group->history);
    free(group->members);
    free(group->name);
    free(group);
    release_job(job);
}
