/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device thread: takes commands in order and runs them. Works run at once. What makes CUDA
 * allocate, map or create waits at the head until no collective is queued or runs, and all behind
 * it waits too. What is to go (clients' events, mappings, arenas) first waits beside the queue,
 * until the streams have run what they had when it came, and only then holds the queue up.
 */
#include "daemon/cuda/thread.h"

#include <assert.h>
#include <inttypes.h>

#include "daemon/cuda/results.h"
#include "proto/status.h"

/* Between two looks at streams that something to go waits for. */
#define GOING_POLL_MS 2

static const char *const kind_names[] = {
    [CUDA_ATTACH] = "opening a client's events",
    [CUDA_DETACH] = "closing a client's events",
    [CUDA_MAP] = "mapping a client's memory",
    [CUDA_UNMAP] = "unmapping a client's memory",
    [CUDA_RESERVE] = "reserving an arena",
    [CUDA_FREE_ARENA] = "freeing an arena",
    [CUDA_UNIQUE] = "making a unique id",
    [CUDA_FENCE] = "a fence",
    [CUDA_WORK] = "issuing a work",
    [CUDA_QUIT] = "ending",
};

static bool is_to_go(enum cuda_command_kind kind)
{
    return kind == CUDA_DETACH || kind == CUDA_UNMAP || kind == CUDA_FREE_ARENA;
}

/* ---- what is to go ---- */

static void note_drains(struct cuda *cuda, struct cuda_command *command)
{
    switch (command->kind) {
    case CUDA_DETACH:
        command->client->drain_need = cuda_drain_need(cuda, command->client->device);
        command->pid = command->client->pid;
        break;
    case CUDA_UNMAP:
        command->mapping->drain_need = cuda_drain_need(cuda, command->mapping->device);
        command->pid = command->mapping->pid;
        break;
    case CUDA_FREE_ARENA:
        for (uint32_t d = 0; d < command->arena->base.num_devices; d++) {
            struct cuda_arena_device *part = &command->arena->devices[d];
            part->drain_need = cuda_drain_need(cuda, part->device);
        }
        break;
    default:
        break;
    }
}

static bool has_drained(struct cuda *cuda, const struct cuda_command *command)
{
    bool drained = true;
    switch (command->kind) {
    case CUDA_DETACH:
        return cuda_drain_reached(cuda, command->client->device, command->client->drain_need);
    case CUDA_UNMAP:
        return cuda_drain_reached(cuda, command->mapping->device, command->mapping->drain_need);
    case CUDA_FREE_ARENA:
        for (uint32_t d = 0; d < command->arena->base.num_devices; d++) {
            const struct cuda_arena_device *part = &command->arena->devices[d];
            if (!cuda_drain_reached(cuda, part->device, part->drain_need))
                drained = false;
        }
        return drained;
    default:
        return true;
    }
}

static void append_going(struct cuda_queue *queue, struct cuda_command *command)
{
    command->next = NULL;
    *queue->going_end = command;
    queue->going_end = &command->next;
}

/* Takes the command that `link` points to out of the list. */
static struct cuda_command *take_going(struct cuda_queue *queue, struct cuda_command **link)
{
    struct cuda_command *command = *link;
    *link = command->next;
    if (queue->going_end == &command->next)
        queue->going_end = link;
    return command;
}

static void let_go(struct cuda *cuda, struct cuda_command *command)
{
    cuda_beat(cuda, kind_names[command->kind]);
    if (command->kind == CUDA_DETACH)
        cuda_client_free(cuda, command->client);
    else if (command->kind == CUDA_UNMAP)
        cuda_mapping_free(cuda, command->mapping);
    else
        cuda_arena_free(cuda, command->arena, true);
    cuda_finish(cuda, command, F8_OK);
}

/* What devices may still touch, until the process ends: nobody looks at it again. */
static struct cuda_command *left_alone;

/* Streams, or collectives, do not come to an end: what they may touch stays as it is for good. */
static void give_up(struct cuda *cuda, struct cuda_command *command)
{
    for (struct cuda_command *later = command->next; later; later = later->next)
        if (later->kind == CUDA_FENCE && (later->pid == 0 || later->pid == command->pid))
            later->status = F8_EDEADLINE;
    if (command->kind == CUDA_FREE_ARENA)
        cuda_arena_free(cuda, command->arena, false);
    else
        cuda_log(cuda, LOG_LEVEL_ERROR,
            "%s of pid %" PRIu32 " that are still in use on device %" PRId32
            " are left open until the daemon ends",
            command->kind == CUDA_DETACH ? "events" : "mappings", command->pid,
            command->kind == CUDA_DETACH ? command->client->device : command->mapping->device);
    command->next = left_alone;
    left_alone = command;
}

/* Whether something stands before a fence in the list that it has to wait for. */
static bool is_held(const struct cuda_queue *queue, const struct cuda_command *fence)
{
    for (const struct cuda_command *before = queue->going; before != fence; before = before->next)
        if (is_to_go(before->kind) && (fence->pid == 0 || fence->pid == before->pid))
            return true;
    return false;
}

/*
 * Goes over what is to go: lets go of what nothing uses any more, if it `may_free`, and gives up
 * what has waited for too long. Returns whether something could go and may hold the queue up.
 */
static bool look_at_going(struct cuda *cuda, bool may_free)
{
    struct cuda_queue *queue = &cuda->queue;
    bool has_ripe = false;
    uint64_t now = cuda_now_ms();
    struct cuda_command **link = &queue->going;
    while (*link) {
        struct cuda_command *command = *link;
        if (command->kind == CUDA_FENCE) {
            if (is_held(queue, command))
                link = &command->next;
            else
                cuda_finish(cuda, take_going(queue, link), command->status);
            continue;
        }
        bool is_ripe = has_drained(cuda, command);
        if (is_ripe && may_free) {
            let_go(cuda, take_going(queue, link));
        } else if (now >= command->deadline_ms && !(is_ripe && cuda_collectives_ended(cuda))) {
            give_up(cuda, take_going(queue, link));
        } else {
            has_ripe |= is_ripe;
            link = &command->next;
        }
    }
    return has_ripe && (now >= queue->going_after_ms || cuda_collectives_ended(cuda));
}

/* ---- the head ---- */

static struct reason *reason_of(struct cuda_command *command)
{
    if (command->kind == CUDA_ATTACH)
        return &command->attach->reason;
    if (command->kind == CUDA_UNIQUE)
        return &command->unique->reason;
    return command->kind == CUDA_MAP ? &command->map->reason : &command->reserve->reason;
}

static int run_exclusive(struct cuda *cuda, struct cuda_command *command)
{
    cuda_beat(cuda, kind_names[command->kind]);
    switch (command->kind) {
    case CUDA_ATTACH:
        return cuda_attach_run(cuda, command->attach);
    case CUDA_MAP:
        return cuda_map_run(cuda, command->map);
    case CUDA_UNIQUE:
        return cuda_comm_unique(cuda, command->unique->id, &command->unique->reason);
    default:
        assert(command->kind == CUDA_RESERVE);
        return cuda_reserve_run(cuda, command->reserve);
    }
}

/* Takes the next command, and runs it if it needs not wait. False if there is nothing to do. */
static bool take_next(struct cuda *cuda, bool *quits)
{
    struct cuda_command *command = cuda_queue_pop(cuda);
    if (!command)
        return false;
    command->deadline_ms = cuda_now_ms() + cuda->host.drain_limit_ms;
    if (command->kind == CUDA_QUIT) {
        *quits = true;
        for (struct cuda_command *going = cuda->queue.going; going; going = going->next)
            going->deadline_ms = cuda_now_ms() + cuda->host.end_limit_ms;
    } else if (command->kind == CUDA_WORK) {
        cuda_beat(cuda, kind_names[CUDA_WORK]);
        if (command->cancelled)
            cuda_finish(cuda, command, F8_ECANCELED);
        else
            cuda_work_run(cuda, command);
    } else if (command->kind == CUDA_LOOK) {
        cuda_finish(cuda, command, F8_OK);
    } else if (is_to_go(command->kind) || command->kind == CUDA_FENCE) {
        note_drains(cuda, command);
        append_going(&cuda->queue, command);
    } else {
        cuda->queue.head = command;
    }
    return true;
}

/* Collectives do not end: the head fails, and what is to go lets works pass for a while. */
static void end_quiet(struct cuda *cuda, bool quits)
{
    struct cuda_queue *queue = &cuda->queue;
    struct cuda_command *head = queue->head;
    double seconds = (double)(quits ? cuda->host.end_limit_ms : cuda->host.quiet_limit_ms) / 1000;
    queue->head = NULL;
    queue->going_after_ms = cuda_now_ms() + cuda->host.quiet_limit_ms;
    if (head)
        cuda_finish(cuda, head,
            reason_set(reason_of(head), F8_EDEADLINE,
                "%s must wait for the collectives of other groups, which have not ended for %g "
                "seconds",
                kind_names[head->kind], seconds));
    else
        cuda_log(cuda, LOG_LEVEL_WARNING,
            "what clients gave back is still open: collectives have not ended for %g seconds",
            seconds);
    while (quits && queue->going) {
        struct cuda_command *command = take_going(queue, &queue->going);
        if (command->kind == CUDA_FENCE)
            cuda_finish(cuda, command, command->status);
        else
            give_up(cuda, command);
    }
}

/* Runs what needs that no collective runs, or waits for that a little. */
static void step_quiet(struct cuda *cuda, bool quits)
{
    struct cuda_queue *queue = &cuda->queue;
    if (!cuda_collectives_ended(cuda)) {
        uint64_t now = cuda_now_ms();
        if (queue->quiet_deadline_ms == 0)
            queue->quiet_deadline_ms =
                now + (quits ? cuda->host.end_limit_ms : cuda->host.quiet_limit_ms);
        if (now >= queue->quiet_deadline_ms) {
            queue->quiet_deadline_ms = 0;
            end_quiet(cuda, quits);
        } else {
            cuda_beat(cuda, NULL);
            cuda_poll_pause();
        }
        return;
    }
    queue->quiet_deadline_ms = 0;
    (void)look_at_going(cuda, true);
    struct cuda_command *head = queue->head;
    queue->head = NULL;
    if (head) {
        int status = run_exclusive(cuda, head);
        cuda_finish(cuda, head, status);
    }
}

/* ---- the thread ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Whatever it is busy with, no host waits for long for what another one will not do. */
static void break_abandoned(struct cuda *cuda)
{
    for (struct cuda_arena *arena = cuda->arenas; arena; arena = arena->next)
        if (arena->broken == F8_OK && atomic_load(&arena->is_abandoned))
            cuda_results_break(cuda, arena, arena->abandoned, &arena->abandoned_reason);
}

void cuda_thread_serve(struct cuda *cuda)
{
    struct cuda_queue *queue = &cuda->queue;
    bool quits = false;
    for (;;) {
        uint64_t now = cuda_now_ms();
        break_abandoned(cuda);
        uint64_t tick = least(cuda_results_tick(cuda, now), cuda_comm_tick(cuda, now));
        bool has_ripe = look_at_going(cuda, false);
        if (queue->head || has_ripe) {
            step_quiet(cuda, quits);
        } else if (quits) {
            if (!queue->going)
                break;
            cuda_poll_pause();
        } else if (!take_next(cuda, &quits)) {
            cuda_beat(cuda, NULL);
            cuda_queue_wait(cuda, queue->going ? least(tick, GOING_POLL_MS) : tick);
        }
    }
    cuda_results_end(cuda);
    cuda_comm_end(cuda);
}
