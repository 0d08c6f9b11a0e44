/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the loop and the device thread: commands go one way, completions the other. The loop
 * never waits for the thread, but at its end; the thread never calls anything of the loop's, but
 * wake(). Records of commands are kept for their next use, so that a step allocates nothing.
 * What the thread does with commands is in thread.c.
 */
#include "daemon/cuda/cuda_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/cuda/thread.h"
#include "proto/status.h"

uint64_t cuda_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void cuda_log(struct cuda *cuda, enum log_level level, const char *format, ...)
{
    char text[REASON_SIZE + 128];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    cuda->host.log(cuda->host.context, (int)level, text);
}

void cuda_beat(struct cuda *cuda, const char *what)
{
    atomic_store_explicit(&cuda->queue.busy_with, what, memory_order_relaxed);
    atomic_store_explicit(
        &cuda->queue.busy_since_ms, what ? cuda_now_ms() : 0, memory_order_release);
}

/* ---- completions ---- */

void cuda_complete(struct cuda *cuda, struct cuda_completion *completion)
{
    struct cuda_queue *queue = &cuda->queue;
    completion->next = NULL;
    (void)pthread_mutex_lock(&queue->lock);
    bool was_empty = !queue->done;
    *queue->done_end = completion;
    queue->done_end = &completion->next;
    (void)pthread_mutex_unlock(&queue->lock);
    if (was_empty)
        cuda->host.wake(cuda->host.context);
}

void cuda_queue_collect(struct cuda *cuda)
{
    struct cuda_queue *queue = &cuda->queue;
    (void)pthread_mutex_lock(&queue->lock);
    struct cuda_completion *completion = queue->done;
    queue->done = NULL;
    queue->done_end = &queue->done;
    (void)pthread_mutex_unlock(&queue->lock);
    while (completion) {
        struct cuda_completion *next = completion->next;
        completion->deliver(cuda, completion);
        completion = next;
    }
}

void cuda_finish(struct cuda *cuda, struct cuda_command *command, int status)
{
    command->status = status;
    cuda_complete(cuda, &command->completion);
}

/* ---- commands ---- */

struct cuda_command *cuda_command_new(struct cuda *cuda, const struct cuda_command *what)
{
    struct cuda_command *command = cuda->queue.spare;
    if (command)
        cuda->queue.spare = command->next;
    else
        command = malloc(sizeof(*command));
    if (command)
        *command = *what;
    return command;
}

void cuda_command_free(struct cuda *cuda, struct cuda_command *command)
{
    command->next = cuda->queue.spare;
    cuda->queue.spare = command;
}

void cuda_queue_push(struct cuda *cuda, struct cuda_command *command)
{
    struct cuda_queue *queue = &cuda->queue;
    command->next = NULL;
    (void)pthread_mutex_lock(&queue->lock);
    *queue->end = command;
    queue->end = &command->next;
    (void)pthread_cond_signal(&queue->changed);
    (void)pthread_mutex_unlock(&queue->lock);
}

/* It keeps its place: a landing that an earlier work has is still the earlier one. */
void cuda_queue_cancel(struct cuda *cuda, struct backend_work *work)
{
    struct cuda_queue *queue = &cuda->queue;
    (void)pthread_mutex_lock(&queue->lock);
    for (struct cuda_command *command = queue->first; command; command = command->next)
        if (command->kind == CUDA_WORK && command->work == work)
            command->cancelled = true;
    (void)pthread_mutex_unlock(&queue->lock);
}

/* ---- the device thread's side ---- */

struct cuda_command *cuda_queue_pop(struct cuda *cuda)
{
    struct cuda_queue *queue = &cuda->queue;
    (void)pthread_mutex_lock(&queue->lock);
    struct cuda_command *command = queue->first;
    if (command) {
        queue->first = command->next;
        if (!queue->first)
            queue->end = &queue->first;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return command;
}

static struct timespec after_ms(uint64_t ms)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_sec += (time_t)(ms / 1000);
    time.tv_nsec += (long)(ms % 1000) * 1000000;
    if (time.tv_nsec >= 1000000000) {
        time.tv_nsec -= 1000000000;
        time.tv_sec++;
    }
    return time;
}

void cuda_queue_wait(struct cuda *cuda, uint64_t ms)
{
    struct cuda_queue *queue = &cuda->queue;
    struct timespec until = ms == CUDA_NO_TICK ? (struct timespec){0} : after_ms(ms);
    int r = 0;
    (void)pthread_mutex_lock(&queue->lock);
    while (!queue->first && r == 0)
        r = ms == CUDA_NO_TICK ? pthread_cond_wait(&queue->changed, &queue->lock)
                               : pthread_cond_timedwait(&queue->changed, &queue->lock, &until);
    (void)pthread_mutex_unlock(&queue->lock);
}

void cuda_poll_pause(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

/* ---- the thread's life ---- */

static void signal_opened(struct cuda_queue *queue, int status)
{
    (void)pthread_mutex_lock(&queue->lock);
    queue->open_status = status;
    queue->has_opened = true;
    (void)pthread_cond_broadcast(&queue->changed);
    (void)pthread_mutex_unlock(&queue->lock);
}

static void *run(void *argument)
{
    struct cuda *cuda = argument;
    struct cuda_queue *queue = &cuda->queue;
    int status = cuda_devices_open(cuda, &queue->open_reason);
    signal_opened(queue, status);
    if (status == F8_OK) {
        cuda_thread_serve(cuda);
        cuda_devices_close(cuda);
    }
    cuda_beat(cuda, NULL);
    (void)pthread_mutex_lock(&queue->lock);
    queue->has_ended = true;
    (void)pthread_cond_broadcast(&queue->changed);
    (void)pthread_mutex_unlock(&queue->lock);
    return NULL;
}

static int init(struct cuda_queue *queue)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return F8_ENOMEM;
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int r = pthread_cond_init(&queue->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (r != 0)
        return F8_ENOMEM;
    if (pthread_mutex_init(&queue->lock, NULL) != 0) {
        (void)pthread_cond_destroy(&queue->changed);
        return F8_ENOMEM;
    }
    queue->end = &queue->first;
    queue->done_end = &queue->done;
    queue->going_end = &queue->going;
    return F8_OK;
}

static void done(struct cuda_queue *queue)
{
    while (queue->spare) {
        struct cuda_command *next = queue->spare->next;
        free(queue->spare);
        queue->spare = next;
    }
    (void)pthread_cond_destroy(&queue->changed);
    (void)pthread_mutex_destroy(&queue->lock);
}

/* Until one of the queue's flags is set; false if it is not in time. */
static bool wait_for(struct cuda_queue *queue, const bool *flag, uint64_t ms)
{
    struct timespec until = after_ms(ms);
    int r = 0;
    (void)pthread_mutex_lock(&queue->lock);
    while (!*flag && r == 0)
        r = pthread_cond_timedwait(&queue->changed, &queue->lock, &until);
    bool is_set = *flag;
    (void)pthread_mutex_unlock(&queue->lock);
    return is_set;
}

int cuda_queue_start(struct cuda *cuda, struct reason *reason)
{
    struct cuda_queue *queue = &cuda->queue;
    if (init(queue) < 0)
        return reason_set(reason, F8_ENOMEM, "no memory for the queue of the device thread");
    int r = pthread_create(&queue->thread, NULL, run, cuda);
    if (r != 0) {
        done(queue);
        return reason_set(reason, F8_ENOMEM, "cannot start the device thread: %s", strerror(r));
    }
    if (!wait_for(queue, &queue->has_opened, CUDA_OPEN_LIMIT_MS))
        return reason_set(reason, F8_EDEADLINE,
            "the CUDA driver has not answered for %d seconds, in %s", CUDA_OPEN_LIMIT_MS / 1000,
            atomic_load(&queue->busy_with));
    if (queue->open_status < 0) {
        (void)pthread_join(queue->thread, NULL);
        *reason = queue->open_reason;
        done(queue);
    }
    return queue->open_status;
}

bool cuda_queue_stop(struct cuda *cuda)
{
    struct cuda_queue *queue = &cuda->queue;
    queue->quit.kind = CUDA_QUIT;
    cuda_queue_push(cuda, &queue->quit);
    /* The thread has this limit once for streams, once for collectives, once for communicators. */
    if (!wait_for(queue, &queue->has_ended, 4 * cuda->host.end_limit_ms))
        return false;
    (void)pthread_join(queue->thread, NULL);
    cuda_queue_collect(cuda); /* what detach and its like have left: their records */
    done(queue);
    return true;
}
