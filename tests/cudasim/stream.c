/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: a queue and a worker thread each, so that work on two streams is in no order but that
 * of events, and may be late (CUDASIM_DELAY_US). The host calls run on the program's threads, the
 * operations on the workers. A destroyed stream runs what it has, then its worker frees it.
 */
#include "core.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

struct work {
    const char *what;
    enum operation_kind kind;
    void (*run)(void *argument);
    void *argument; /* owned by run */
    struct work *next;
};

struct CUstream_st {
    int device;
    uint64_t id;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *head, **tail; /* owned */
    uint64_t num_queued, num_done;
    bool is_closing;
    int references;           /* under the list's lock: the worker's, and those who wait */
    struct CUstream_st *next; /* in the list */
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *streams; /* owned; the closing ones too */
static struct CUstream_st *device_streams[CUDASIM_MAX_DEVICES];
static uint64_t last_id;

static void stream_unref(struct CUstream_st *stream)
{
    pthread_mutex_lock(&list_lock);
    bool is_last = --stream->references == 0;
    struct CUstream_st **link = &streams;
    while (is_last && *link != stream)
        link = &(*link)->next;
    if (is_last)
        *link = stream->next;
    pthread_mutex_unlock(&list_lock);
    if (!is_last)
        return;
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

/* ---- the worker ---- */

static void delay(const struct CUstream_st *stream, uint64_t number)
{
    uint64_t max = settings_get()->delay_us;
    if (!max)
        return;
    uint64_t us = cudasim_random(stream->id, number) % (max + 1);
    struct timespec time = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    nanosleep(&time, NULL);
}

/* The oldest work; NULL once the stream is closing and empty. */
static struct work *take(struct CUstream_st *stream)
{
    pthread_mutex_lock(&stream->lock);
    while (!stream->head && !stream->is_closing)
        pthread_cond_wait(&stream->changed, &stream->lock);
    struct work *work = stream->head;
    if (work) {
        stream->head = work->next;
        if (!stream->head)
            stream->tail = &stream->head;
    }
    pthread_mutex_unlock(&stream->lock);
    return work;
}

static void *worker(void *argument)
{
    struct CUstream_st *stream = argument;
    device_set_current(stream->device);
    for (struct work *work; (work = take(stream));) {
        struct operation operation = {
            .what = work->what, .kind = work->kind, .device = stream->device};
        delay(stream, stream->num_done);
        access_begin(&operation);
        work->run(work->argument);
        access_end(&operation);
        free(work);
        pthread_mutex_lock(&stream->lock);
        stream->num_done++;
        pthread_cond_broadcast(&stream->changed);
        pthread_mutex_unlock(&stream->lock);
    }
    stream_unref(stream);
    return NULL;
}

/* Signals are for the program's own threads; only the faults are for this one. */
static bool worker_start(struct CUstream_st *stream)
{
    sigset_t all, old;
    pthread_t thread;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&thread, NULL, worker, stream);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!error)
        pthread_detach(thread);
    return !error;
}

/* ---- life ---- */

static struct CUstream_st *stream_new(int device)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->device = device;
    stream->references = 1;
    stream->tail = &stream->head;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    pthread_mutex_lock(&list_lock);
    stream->id = ++last_id;
    stream->next = streams;
    streams = stream;
    bool is_running = worker_start(stream);
    if (!is_running)
        streams = stream->next;
    pthread_mutex_unlock(&list_lock);
    if (is_running)
        return stream;
    free(stream);
    return NULL;
}

CUresult cudasim_stream_create(CUstream *ret, int device, unsigned flags, const char *what)
{
    if (!ret || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    strict_no_collective(what, device);
    struct CUstream_st *stream = stream_new(device);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    cudasim_count(CUDASIM_STREAM_CREATIONS, 1);
    *ret = stream;
    return CUDA_SUCCESS;
}

CUstream stream_of_device(int device)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!device_streams[device])
        device_streams[device] = stream_new(device);
    CUstream stream = device_streams[device];
    pthread_mutex_unlock(&lock);
    if (!stream)
        cudasim_fault("no thread can be made for a stream");
    return stream;
}

/* Faults for what is no stream that lives. */
static void check(CUstream stream, const char *what)
{
    if (stream == NULL || stream == CU_STREAM_LEGACY)
        cudasim_fault(
            "%s uses the legacy default stream, which waits for the others of its device", what);
    if (stream == CU_STREAM_PER_THREAD)
        cudasim_fault("%s uses a per-thread default stream, which is not simulated", what);
    pthread_mutex_lock(&list_lock);
    struct CUstream_st *found = streams;
    while (found && found != stream)
        found = found->next;
    bool is_live = found && !found->is_closing;
    pthread_mutex_unlock(&list_lock);
    if (!is_live)
        cudasim_fault("%s: %p is no stream, or a destroyed one", what, (void *)stream);
}

CUresult cudasim_stream_destroy(CUstream stream, const char *what)
{
    check(stream, what);
    pthread_mutex_lock(&list_lock);
    pthread_mutex_lock(&stream->lock);
    stream->is_closing = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_mutex_unlock(&list_lock);
    return CUDA_SUCCESS;
}

int cudasim_stream_device(CUstream stream)
{
    check(stream, "a call");
    return stream->device;
}

/* ---- work ---- */

CUresult stream_push(CUstream stream, const char *what, enum operation_kind kind,
    void (*run)(void *argument), void *argument)
{
    check(stream, what);
    struct work *work = malloc(sizeof *work);
    if (!work)
        cudasim_fault("out of host memory");
    *work = (struct work){what, kind, run, argument, NULL};
    pthread_mutex_lock(&stream->lock);
    *stream->tail = work;
    stream->tail = &work->next;
    stream->num_queued++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return CUDA_SUCCESS;
}

CUresult cudasim_enqueue(
    CUstream stream, const char *what, void (*run)(void *argument), void *argument)
{
    return stream_push(stream, what, OPERATION_DEVICE, run, argument);
}

struct host_call {
    void (*function)(void *data);
    void *data;
};

static void run_host_call(void *argument)
{
    struct host_call *call = argument;
    call->function(call->data);
    free(call);
}

CUresult cudasim_host_function(
    CUstream stream, void (*function)(void *data), void *data, const char *what)
{
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    struct host_call *call = malloc(sizeof *call);
    if (!call)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *call = (struct host_call){function, data};
    cudasim_count(CUDASIM_HOST_FUNCTIONS, 1);
    return stream_push(stream, what, OPERATION_HOST, run_host_call, call);
}

/* ---- waiting ---- */

void stream_drain(CUstream stream)
{
    pthread_mutex_lock(&stream->lock);
    uint64_t goal = stream->num_queued;
    while (stream->num_done < goal)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

CUresult cudasim_stream_synchronize(CUstream stream, const char *what)
{
    check(stream, what);
    cudasim_count(CUDASIM_HOST_SYNCS, 1);
    stream_drain(stream);
    return CUDA_SUCCESS;
}

CUresult cudasim_stream_query(CUstream stream, const char *what)
{
    check(stream, what);
    pthread_mutex_lock(&stream->lock);
    bool is_done = stream->num_done == stream->num_queued;
    pthread_mutex_unlock(&stream->lock);
    return is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* A reference to a stream with work, destroyed ones too; NULL. */
static struct CUstream_st *busy_stream(int device)
{
    pthread_mutex_lock(&list_lock);
    struct CUstream_st *busy = NULL;
    for (struct CUstream_st *stream = streams; stream && !busy; stream = stream->next) {
        pthread_mutex_lock(&stream->lock);
        if (stream->device == device && stream->num_done < stream->num_queued)
            busy = stream;
        pthread_mutex_unlock(&stream->lock);
    }
    if (busy)
        busy->references++;
    pthread_mutex_unlock(&list_lock);
    return busy;
}

void stream_drain_device(int device)
{
    for (struct CUstream_st *stream; (stream = busy_stream(device));) {
        stream_drain(stream);
        stream_unref(stream);
    }
}

CUresult cudasim_device_synchronize(int device)
{
    cudasim_count(CUDASIM_HOST_SYNCS, 1);
    stream_drain_device(device);
    return CUDA_SUCCESS;
}
