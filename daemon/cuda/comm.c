/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which communicators an arena has: its own for as long as it lives, then kept for a linger under
 * the name of the group and the devices, so that a trainer that comes back finds them warm. Only
 * those that have never failed are kept. Device thread.
 */
#include "daemon/cuda/comm.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/cuda/results.h"
#include "proto/status.h"

/* How often communicators with collectives under way are asked, and failed ones looked after. */
#define TICK_MS 20

void cuda_nccl_open(struct cuda *cuda)
{
    cuda->kept = calloc(1, sizeof(*cuda->kept));
    cuda->nccl = calloc(1, sizeof(*cuda->nccl));
    const char *why = "no memory for the record of NCCL";
    if (cuda->kept && cuda->nccl) {
        if (nccl_library_open(&cuda->nccl->library)) {
            cuda->nccl_version = (uint32_t)cuda->nccl->library.version;
            return;
        }
        why = cuda->nccl->library.reason.text;
    }
    (void)snprintf(cuda->nccl_reason, sizeof(cuda->nccl_reason), "%.127s", why);
    free(cuda->nccl);
    cuda->nccl = NULL;
}

/* NCCL itself stays loaded: its threads may outlive the last communicator for a while. */
void cuda_nccl_close(struct cuda *cuda)
{
    free(cuda->nccl);
    free(cuda->kept);
    cuda->nccl = NULL;
    cuda->kept = NULL;
}

/* ---- kept ones ---- */

static bool is_for(const struct cuda_comms *comms, const struct cuda_arena *arena, const char *key)
{
    if (comms->count != arena->base.num_devices || strcmp(comms->key, key) != 0)
        return false;
    for (uint32_t d = 0; d < comms->count; d++)
        if (comms->members[d].device != arena->devices[d].device)
            return false;
    return true;
}

/* Under the lock: out of the kept ones. */
static struct cuda_comms *unlink_locked(struct cuda *cuda, struct cuda_comms **link)
{
    struct cuda_comms *comms = *link;
    *link = comms->next;
    cuda->warm_communicators -= comms->count;
    comms->next = NULL;
    return comms;
}

/* What only this thread changes, it reads without the lock. */
static struct cuda_comms *unlink_kept(struct cuda *cuda, struct cuda_comms **link)
{
    (void)pthread_mutex_lock(&cuda->info_lock);
    struct cuda_comms *comms = unlink_locked(cuda, link);
    (void)pthread_mutex_unlock(&cuda->info_lock);
    return comms;
}

static bool is_dropped(struct cuda *cuda, const struct cuda_comms *comms)
{
    (void)pthread_mutex_lock(&cuda->info_lock);
    bool dropped = comms->is_dropped;
    (void)pthread_mutex_unlock(&cuda->info_lock);
    return dropped;
}

void cuda_comm_leave(struct cuda *cuda, struct cuda_arena *arena)
{
    (void)pthread_mutex_lock(&cuda->info_lock);
    arena->next_leaving = cuda->leaving;
    cuda->leaving = arena;
    (void)pthread_mutex_unlock(&cuda->info_lock);
}

/* It has gone; whether its communicators are wanted by nobody. */
static bool leave_at_last(struct cuda *cuda, struct cuda_arena *arena)
{
    struct cuda_arena **link = &cuda->leaving;
    (void)pthread_mutex_lock(&cuda->info_lock);
    while (*link && *link != arena)
        link = &(*link)->next_leaving;
    if (*link)
        *link = arena->next_leaving;
    bool is_unwanted = arena->is_unwanted;
    (void)pthread_mutex_unlock(&cuda->info_lock);
    return is_unwanted;
}

/* Under the lock: of arenas that have not gone yet, whose communicators then are not kept. */
static uint32_t drop_leaving(struct cuda *cuda, const char *prefix)
{
    uint32_t count = 0;
    for (struct cuda_arena *arena = cuda->leaving; arena; arena = arena->next_leaving) {
        if (arena->is_unwanted || strncmp(arena->name, prefix, strlen(prefix)) != 0)
            continue;
        arena->is_unwanted = true;
        if (arena->base.path != BACKEND_PATH_NONE && !arena->base.spans)
            count += arena->base.num_devices;
    }
    return count;
}

uint32_t cuda_comm_drop_kept(struct cuda *cuda, const char *prefix)
{
    uint32_t count = 0;
    (void)pthread_mutex_lock(&cuda->info_lock);
    for (struct cuda_comms *comms = cuda->nccl ? cuda->kept->first : NULL; comms;
         comms = comms->next) {
        if (comms->is_dropped || strncmp(comms->key, prefix, strlen(prefix)) != 0)
            continue;
        comms->is_dropped = true;
        count += comms->count;
    }
    if (cuda->host.linger_ms > 0)
        count += drop_leaving(cuda, prefix);
    (void)pthread_mutex_unlock(&cuda->info_lock);
    return count;
}

/* In one step, so that none is in use again that cuda_comm_drop_kept has counted as ended. */
static struct cuda_comms *unlink_fitting(
    struct cuda *cuda, const struct cuda_arena *arena, const char *key)
{
    struct cuda_comms **link = &cuda->kept->first;
    (void)pthread_mutex_lock(&cuda->info_lock);
    while (*link && (!is_for(*link, arena, key) || (*link)->is_dropped))
        link = &(*link)->next;
    struct cuda_comms *comms = *link ? unlink_locked(cuda, link) : NULL;
    (void)pthread_mutex_unlock(&cuda->info_lock);
    return comms;
}

/* Takes a kept set for the arena; one that has failed meanwhile is not given. */
static struct cuda_comms *take_kept(
    struct cuda *cuda, const struct cuda_arena *arena, const char *key)
{
    struct reason reason;
    struct cuda_comms *comms = unlink_fitting(cuda, arena, key);
    if (!comms)
        return NULL;
    if (cuda_comms_are_well(cuda, comms, &reason))
        return comms;
    cuda_log(cuda, LOG_LEVEL_WARNING, "group %s: its kept communicators have failed: %s", key,
        reason.text);
    cuda_comms_doom(cuda, comms);
    return NULL;
}

static void keep(struct cuda *cuda, struct cuda_comms *comms)
{
    struct cuda_comms **link = &cuda->kept->first;
    unsigned sets = 1;
    for (; *link; link = &(*link)->next)
        sets++;
    comms->next = NULL;
    comms->expires_ms = cuda_now_ms() + cuda->host.linger_ms;
    (void)pthread_mutex_lock(&cuda->info_lock);
    comms->is_dropped = false;
    *link = comms;
    cuda->warm_communicators += comms->count;
    (void)pthread_mutex_unlock(&cuda->info_lock);
    if (sets > CUDA_MAX_KEPT)
        cuda_comms_free(cuda, unlink_kept(cuda, &cuda->kept->first));
}

/* ---- an arena's ---- */

static enum backend_path choose_path(const struct cuda_arena *arena)
{
    if (arena->num_members == 1)
        return BACKEND_PATH_NONE;
    for (uint32_t rank = 0; rank < arena->ranks; rank++)
        if (arena->ranks != arena->num_members || arena->member_of_rank[rank] != rank)
            return BACKEND_PATH_BROADCAST;
    return BACKEND_PATH_ALLGATHER;
}

int cuda_comm_unique(struct cuda *cuda, uint8_t ret_id[BACKEND_UNIQUE_SIZE], struct reason *reason)
{
    ncclUniqueId id;
    if (!cuda->nccl)
        return reason_set(reason, F8_ENOENT,
            "to exchange bytes between hosts the daemon needs NCCL, which it has not: %s",
            cuda->nccl_reason);
    const struct nccl_library *nccl = &cuda->nccl->library;
    cuda_beat(cuda, "ncclGetUniqueId");
    ncclResult_t result = nccl->ncclGetUniqueId(&id);
    if (result != ncclSuccess)
        return nccl_library_failed(nccl, "ncclGetUniqueId", result, NULL, reason);
    memcpy(ret_id, &id, sizeof(id));
    return F8_OK;
}

/* A new set of communicators, for a world that is this process alone. */
static int form_new(struct cuda *cuda, const struct cuda_arena *arena, uint64_t deadline_ms,
    struct cuda_comms **ret_comms, struct reason *reason)
{
    ncclUniqueId id;
    int r = cuda_comm_unique(cuda, (uint8_t *)&id, reason);
    if (r < 0)
        return r;
    const struct cuda_forming forming = {.id = &id, .deadline_ms = deadline_ms};
    return cuda_comms_new(cuda, arena, &forming, ret_comms, reason);
}

static void give(struct cuda_arena *arena, struct cuda_comms *comms)
{
    comms->is_held = true;
    arena->comms = comms;
}

/*
 * One whose ranks are on several hosts: always a new one, as the others could have none that fits a
 * kept one; and without windows, which serve the copy engines within a host.
 */
static int form_over_hosts(struct cuda *cuda, struct cuda_arena *arena,
    struct backend_reserve *reserve, uint64_t deadline_ms, struct reason *reason)
{
    ncclUniqueId id;
    struct cuda_comms *comms;
    memcpy(&id, reserve->world->unique, sizeof(id));
    const struct cuda_forming forming = {
        .id = &id, .deadline_ms = deadline_ms, .is_abandoned = &reserve->is_abandoned};
    int r = cuda_comms_new(cuda, arena, &forming, &comms, reason);
    if (r < 0)
        return r;
    comms->is_abandoned = &arena->is_abandoned;
    give(arena, comms);
    return F8_OK;
}

static bool has_window(const struct cuda_comms *comms)
{
    for (uint32_t d = 0; d < comms->count; d++)
        if (!comms->members[d].window)
            return false;
    return true;
}

static int form(
    struct cuda *cuda, struct cuda_arena *arena, uint64_t deadline_ms, struct reason *reason)
{
    struct cuda_comms *comms = take_kept(cuda, arena, arena->name);
    bool is_warm = comms != NULL;
    if (!comms) {
        int r = form_new(cuda, arena, deadline_ms, &comms, reason);
        if (r < 0)
            return r;
    }
    bool wants_window = arena->size > 0 && cuda->nccl->library.ncclCommWindowRegister;
    if (wants_window && !cuda_comms_add_window(cuda, arena, comms, deadline_ms)) {
        /* An error is a communicator's for good. */
        cuda_comms_doom(cuda, comms);
        is_warm = false;
        int r = form_new(cuda, arena, deadline_ms, &comms, reason);
        if (r < 0)
            return r;
    }
    give(arena, comms);
    arena->base.warm = is_warm;
    arena->base.window = has_window(comms);
    return F8_OK;
}

int cuda_comm_form(struct cuda *cuda, struct cuda_arena *arena, struct backend_reserve *reserve,
    struct reason *reason)
{
    uint64_t deadline_ms = cuda_now_ms() + reserve->deadline_ms;
    arena->base.path = choose_path(arena);
    if (arena->base.path == BACKEND_PATH_NONE)
        return F8_OK;
    if (!cuda->nccl)
        return reason_set(reason, F8_ENOENT,
            "group %s is on %u devices, and to exchange bytes between them the daemon needs NCCL, "
            "which it has not: %s",
            arena->name, arena->num_members, cuda->nccl_reason);
    struct reason why;
    int r = reserve->world ? form_over_hosts(cuda, arena, reserve, deadline_ms, &why)
                           : form(cuda, arena, deadline_ms, &why);
    if (r < 0)
        return reason_set(reason, r, "group %s: cannot form communicators over %u devices: %s",
            arena->name, arena->num_members, why.text);
    return F8_OK;
}

/* Communicators as they are without an arena. */
static void take_back(struct cuda *cuda, struct cuda_arena *arena, bool healthy)
{
    struct cuda_comms *comms = arena->comms;
    arena->comms = NULL;
    comms->is_held = false;
    comms->is_abandoned = NULL;
    if (healthy && !comms->is_failed && arena->broken == F8_OK)
        cuda_comms_remove_window(cuda, comms);
    else
        cuda_comms_doom(cuda, comms);
}

void cuda_comm_release(struct cuda *cuda, struct cuda_arena *arena, bool healthy)
{
    struct cuda_comms *comms = arena->comms;
    if (comms)
        take_back(cuda, arena, healthy);
    bool is_unwanted = leave_at_last(cuda, arena);
    if (!comms || comms->is_failed)
        return;
    bool may_come_back = comms->key[0] != '\0' && !arena->base.spans && !is_unwanted;
    if (cuda->host.linger_ms > 0 && may_come_back)
        keep(cuda, comms);
    else
        cuda_comms_free(cuda, comms);
}

void cuda_comm_abort(struct cuda *cuda, struct cuda_arena *arena)
{
    if (arena->comms)
        cuda_comms_doom(cuda, arena->comms);
}

/* ---- the passing of time ---- */

static void look_for_errors(struct cuda *cuda)
{
    struct reason reason, why;
    for (struct cuda_arena *arena = cuda->arenas; arena; arena = arena->next) {
        if (!arena->comms || arena->comms->is_failed ||
            cuda_comms_are_well(cuda, arena->comms, &why))
            continue;
        int r = reason_set(&reason, F8_EIO, "group %s: %s", arena->name, why.text);
        cuda_results_break(cuda, arena, r, &reason);
    }
}

/* A kept set whose time is over; NULL: there is none. */
static struct cuda_comms **find_over(struct cuda *cuda, uint64_t now_ms)
{
    struct cuda_comms **link = &cuda->kept->first;
    while (*link && (*link)->expires_ms > now_ms && !is_dropped(cuda, *link))
        link = &(*link)->next;
    return *link ? link : NULL;
}

uint64_t cuda_comm_tick(struct cuda *cuda, uint64_t now_ms)
{
    uint64_t next = CUDA_NO_TICK;
    if (!cuda->nccl)
        return next;
    struct cuda_kept *kept = cuda->kept;
    if (now_ms < kept->next_look_ms) /* works may come much more often */
        return kept->next_look_ms - now_ms;
    kept->next_look_ms = 0;
    bool is_quiet = cuda_collectives_ended(cuda);
    if (!is_quiet) {
        look_for_errors(cuda);
        next = TICK_MS;
    }
    if (kept->doomed && !cuda_comms_bury(cuda))
        next = TICK_MS;
    if (next == TICK_MS)
        kept->next_look_ms = now_ms + TICK_MS;
    struct cuda_comms **over;
    while (is_quiet && (over = find_over(cuda, now_ms)))
        cuda_comms_free(cuda, unlink_kept(cuda, over));
    if (is_quiet && kept->first && kept->first->expires_ms - now_ms < next)
        next = kept->first->expires_ms - now_ms;
    return next;
}

void cuda_comm_end(struct cuda *cuda)
{
    if (!cuda->nccl)
        return;
    while (cuda->kept->first)
        cuda_comms_free(cuda, unlink_kept(cuda, &cuda->kept->first));
    uint64_t deadline_ms = cuda_now_ms() + cuda->host.end_limit_ms;
    while (cuda->kept->doomed && !cuda_comms_bury(cuda) && cuda_now_ms() < deadline_ms) {
        cuda_beat(cuda, "ncclCommAbort");
        cuda_poll_pause();
    }
}
