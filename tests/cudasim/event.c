/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events, which may be shared between processes: a page that says which records were issued, which
 * have completed, and by whom. A wait is for the last record issued when it is asked for. A record
 * of a process that has died counts as complete, so that no stream waits for ever.
 */
#include "core.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EVENT_MAGIC 0x65766e74
#define NUM_RECORDS 64 /* outstanding ones that are told apart */
#define NUM_WAITERS 64

/* Shared memory. Records are numbered from 1; number n has slot n % NUM_RECORDS. */
struct event_page {
    atomic_uint_fast64_t num_issued;
    atomic_uint progress; /* futex: changes whenever a record completes */
    atomic_bool is_destroyed;
    struct {
        atomic_uint_fast64_t completed; /* the highest number that has */
        atomic_int recorder;            /* its process */
        atomic_uint_fast64_t time_ns;
    } records[NUM_RECORDS];
    atomic_int waiters[NUM_WAITERS]; /* other processes with a wait queued, one entry for each */
};

struct CUevent_st {
    unsigned magic; /* 0 once destroyed */
    unsigned flags;
    int device;
    struct event_page *page; /* owned */
    int fd;                  /* owned; -1 unless interprocess and our own */
    ino_t inode;
    bool is_imported;
    atomic_int references; /* the program's and the queued operations' */
    struct CUevent_st *next_dead;
};

/* Kept, without their pages, so that late uses are found. */
static struct CUevent_st *dead;
static pthread_mutex_t dead_lock = PTHREAD_MUTEX_INITIALIZER;

/* 64 bytes, as CUDA's. */
struct event_handle {
    uint32_t magic;
    int32_t pid, fd, device;
    uint64_t inode;
    char rest[40];
};
_Static_assert(sizeof(struct event_handle) == sizeof(CUipcEventHandle), "size of an IPC handle");

static void event_unref(struct CUevent_st *event)
{
    if (atomic_fetch_sub(&event->references, 1) != 1)
        return;
    munmap(event->page, sizeof *event->page);
    if (event->fd >= 0)
        close(event->fd);
    pthread_mutex_lock(&dead_lock);
    event->next_dead = dead;
    dead = event;
    pthread_mutex_unlock(&dead_lock);
}

static void check_own(CUevent event, const char *what)
{
    if (!event)
        cudasim_fault("%s: the event is NULL", what);
    if (event->magic != EVENT_MAGIC)
        cudasim_fault("%s: %p is no event, or a destroyed one", what, (void *)event);
}

static void check(CUevent event, const char *what)
{
    check_own(event, what);
    if (event->is_imported && atomic_load(&event->page->is_destroyed))
        cudasim_fault("%s: the event was destroyed by the process that shared it", what);
}

/* ---- life ---- */

static struct event_page *map_page(int fd)
{
    int flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0);
    void *map = mmap(NULL, sizeof(struct event_page), PROT_READ | PROT_WRITE, flags, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

static struct CUevent_st *event_new(int fd, unsigned flags, int device)
{
    struct CUevent_st *event = calloc(1, sizeof *event);
    if (event)
        event->page = map_page(fd);
    if (!event || !event->page) {
        free(event);
        return NULL;
    }
    event->magic = EVENT_MAGIC;
    event->flags = flags;
    event->device = device;
    event->fd = fd;
    atomic_store(&event->references, 1);
    return event;
}

CUresult cudasim_event_create(CUevent *ret, int device, unsigned flags, const char *what)
{
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    bool is_shared = flags & CU_EVENT_INTERPROCESS;
    if (!ret || flags & ~known || (is_shared && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    strict_no_collective(what, device);
    struct stat status = {0};
    int fd = is_shared ? memfd_create("cudasim-event", MFD_CLOEXEC) : -1;
    if (is_shared && (fd < 0 || ftruncate(fd, sizeof(struct event_page)) || fstat(fd, &status)))
        cudasim_fault("%s: an event's memfd: %s", what, strerror(errno));
    struct CUevent_st *event = event_new(fd, flags, device);
    if (!event) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->inode = status.st_ino;
    cudasim_count(CUDASIM_EVENT_CREATIONS, 1);
    *ret = event;
    return CUDA_SUCCESS;
}

static bool is_complete(struct event_page *page, uint64_t number)
{
    return !number || atomic_load(&page->records[number % NUM_RECORDS].completed) >= number;
}

/* A living process other than this one that has a wait queued; 0. */
static pid_t foreign_waiter(struct event_page *page)
{
    for (int i = 0; i < NUM_WAITERS; i++) {
        pid_t pid = atomic_load(&page->waiters[i]);
        if (pid && pid != getpid() && process_is_alive(pid))
            return pid;
    }
    return 0;
}

CUresult cudasim_event_destroy(CUevent event, const char *what)
{
    check_own(event, what); /* an imported one may be gone at its exporter */
    struct event_page *page = event->page;
    if (!event->is_imported) {
        pid_t waiter = is_complete(page, atomic_load(&page->num_issued)) ? 0 : foreign_waiter(page);
        if (waiter)
            cudasim_fault("%s: the event's record is outstanding, and process %ld waits for it",
                what, (long)waiter);
        atomic_store(&page->is_destroyed, true);
    }
    event->magic = 0;
    event_unref(event);
    return CUDA_SUCCESS;
}

/* ---- records ---- */

struct event_job {
    struct CUevent_st *event; /* a reference */
    uint64_t number;
    atomic_int *waiter; /* borrowed: of the page; NULL unless the event is another process's */
};

static struct event_job *event_job_new(struct CUevent_st *event, uint64_t number)
{
    struct event_job *job = calloc(1, sizeof *job);
    if (!job)
        cudasim_fault("out of host memory");
    atomic_fetch_add(&event->references, 1);
    job->event = event;
    job->number = number;
    return job;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void run_record(void *argument)
{
    struct event_job *job = argument;
    struct event_page *page = job->event->page;
    uint_fast64_t done = atomic_load(&page->records[job->number % NUM_RECORDS].completed);
    atomic_store(&page->records[job->number % NUM_RECORDS].time_ns, now_ns());
    while (done < job->number &&
           !atomic_compare_exchange_weak(
               &page->records[job->number % NUM_RECORDS].completed, &done, job->number)) {
    }
    atomic_fetch_add(&page->progress, 1);
    syscall(SYS_futex, &page->progress, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    event_unref(job->event);
    free(job);
}

CUresult cudasim_event_record(CUevent event, CUstream stream, const char *what)
{
    check(event, what);
    if (cudasim_stream_device(stream) != event->device)
        return CUDA_ERROR_INVALID_HANDLE;
    cudasim_count(CUDASIM_EVENT_RECORDS, 1);
    struct event_page *page = event->page;
    uint64_t number = atomic_load(&page->num_issued) + 1;
    atomic_store(&page->records[number % NUM_RECORDS].recorder, getpid());
    atomic_store(&page->num_issued, number);
    return stream_push(stream, what, OPERATION_DEVICE, run_record, event_job_new(event, number));
}

/* ---- waits ---- */

/* Sleeps until something completes; true if there is no point in waiting on. */
static bool wait_once(struct event_page *page, uint64_t number)
{
    struct timespec period = {0, 20 * 1000 * 1000};
    unsigned progress = atomic_load(&page->progress);
    if (is_complete(page, number))
        return true;
    long error = syscall(SYS_futex, &page->progress, FUTEX_WAIT, progress, &period, NULL, 0);
    if (error == 0 || errno != ETIMEDOUT)
        return is_complete(page, number);
    pid_t recorder = atomic_load(&page->records[number % NUM_RECORDS].recorder);
    if (recorder == getpid() || process_is_alive(recorder) || is_complete(page, number))
        return is_complete(page, number);
    cudasim_note("a wait ends: process %ld died before the event it had recorded", (long)recorder);
    return true;
}

static void run_wait(void *argument)
{
    struct event_job *job = argument;
    while (!wait_once(job->event->page, job->number)) {
    }
    if (job->waiter)
        atomic_store(job->waiter, 0);
    event_unref(job->event);
    free(job);
}

/* So that the exporter can be told off for destroying it; with too many waiters it is not. */
static atomic_int *note_waiter(struct event_page *page)
{
    for (int i = 0; i < NUM_WAITERS; i++) {
        int nobody = 0;
        if (atomic_compare_exchange_strong(&page->waiters[i], &nobody, getpid()))
            return &page->waiters[i];
    }
    return NULL;
}

CUresult cudasim_event_wait(CUevent event, CUstream stream, const char *what)
{
    check(event, what);
    cudasim_count(CUDASIM_EVENT_WAITS, 1);
    struct event_job *job = event_job_new(event, atomic_load(&event->page->num_issued));
    if (event->is_imported)
        job->waiter = note_waiter(event->page);
    return stream_push(stream, what, OPERATION_DEVICE, run_wait, job);
}

CUresult cudasim_event_query(CUevent event, const char *what)
{
    check(event, what);
    struct event_page *page = event->page;
    uint64_t number = atomic_load(&page->num_issued);
    if (is_complete(page, number))
        return CUDA_SUCCESS;
    pid_t recorder = atomic_load(&page->records[number % NUM_RECORDS].recorder);
    bool is_lost = recorder != getpid() && !process_is_alive(recorder);
    return is_lost ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cudasim_event_synchronize(CUevent event, const char *what)
{
    check(event, what);
    cudasim_count(CUDASIM_HOST_SYNCS, 1);
    uint64_t number = atomic_load(&event->page->num_issued);
    while (!wait_once(event->page, number)) {
    }
    return CUDA_SUCCESS;
}

CUresult cudasim_event_elapsed(float *ret_ms, CUevent begin, CUevent end, const char *what)
{
    check(begin, what);
    check(end, what);
    uint64_t first = atomic_load(&begin->page->num_issued);
    uint64_t last = atomic_load(&end->page->num_issued);
    if ((begin->flags | end->flags) & CU_EVENT_DISABLE_TIMING || !first || !last)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!is_complete(begin->page, first) || !is_complete(end->page, last))
        return CUDA_ERROR_NOT_READY;
    uint64_t from = atomic_load(&begin->page->records[first % NUM_RECORDS].time_ns);
    uint64_t to = atomic_load(&end->page->records[last % NUM_RECORDS].time_ns);
    *ret_ms = (float)((double)(int64_t)(to - from) / 1e6);
    return CUDA_SUCCESS;
}

/* ---- between processes ---- */

CUresult cudasim_event_export(CUevent event, void *ret_handle64, const char *what)
{
    check(event, what);
    if (event->is_imported || !(event->flags & CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_HANDLE;
    struct event_handle handle = {
        .magic = EVENT_MAGIC,
        .pid = getpid(),
        .fd = event->fd,
        .device = event->device,
        .inode = event->inode,
    };
    memcpy(ret_handle64, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

CUresult cudasim_event_import(CUevent *ret, const void *handle64, const char *what)
{
    struct event_handle handle;
    memcpy(&handle, handle64, sizeof handle);
    if (handle.magic != EVENT_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    strict_no_collective(what, handle.device);
    int fd = process_open_fd(handle.pid, handle.fd, handle.inode);
    if (fd < 0)
        return CUDA_ERROR_MAP_FAILED;
    struct CUevent_st *event =
        event_new(fd, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, handle.device);
    close(fd);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->fd = -1;
    event->is_imported = true;
    cudasim_count(CUDASIM_IPC_OPENS, 1);
    *ret = event;
    return CUDA_SUCCESS;
}
