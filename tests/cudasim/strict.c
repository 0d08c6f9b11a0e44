/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The findings that need only a little memory of what has happened: faults and notes, counters,
 * fork(), calls from host functions, and what must not be done while a collective is queued.
 */
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void say(const char *kind, const char *format, va_list arguments)
{
    char line[1024];
    int begin = snprintf(line, sizeof line, "cudasim: %s", kind);
    int length =
        begin + vsnprintf(line + begin, sizeof line - (size_t)begin - 1, format, arguments);
    if (length > (int)sizeof line - 2)
        length = (int)sizeof line - 2;
    line[length] = '\n';
    ssize_t written = write(STDERR_FILENO, line, (size_t)length + 1); /* one write: one line */
    (void)written;
}

void cudasim_fault(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say("fault: ", format, arguments);
    va_end(arguments);
    abort();
}

void cudasim_note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say("", format, arguments);
    va_end(arguments);
}

/* ---- counters ---- */

static struct cudasim_stats own_stats;
static struct cudasim_stats *stats = &own_stats;

static void stats_open(void)
{
    const char *prefix = settings_get()->stats;
    if (!prefix)
        return;
    char path[512];
    snprintf(path, sizeof path, "%s.%ld", prefix, (long)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *stats))
        cudasim_fault("CUDASIM_STATS: %s: %s", path, strerror(errno));
    void *map = mmap(NULL, sizeof *stats, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        cudasim_fault("CUDASIM_STATS: %s: %s", path, strerror(errno));
    stats = map;
    __atomic_store_n(&stats->magic, CUDASIM_STATS_MAGIC, __ATOMIC_RELEASE);
}

void cudasim_count(enum cudasim_counter counter, uint64_t amount)
{
    __atomic_fetch_add(&stats->counters[counter], amount, __ATOMIC_RELAXED);
}

uint64_t cudasim_counted(enum cudasim_counter counter)
{
    return __atomic_load_n(&stats->counters[counter], __ATOMIC_RELAXED);
}

/* ---- the process ---- */

static atomic_bool is_forked_child;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

static void note_fork(void)
{
    atomic_store(&is_forked_child, true);
}

/* Only after this does fork() matter: a child of an unused CUDA begins afresh. */
static void process_begin(void)
{
    stats_open();
    pthread_atfork(NULL, NULL, note_fork);
}

void cudasim_enter_anywhere(const char *function)
{
    if (atomic_load(&is_forked_child))
        cudasim_fault("use after fork: %s in a child of fork(), whose parent had used CUDA: exec "
                      "first, or fork first",
            function);
    const struct operation *operation = access_operation();
    if (operation)
        cudasim_fault("%s is called from \"%s\" on a stream: CUDA forbids calls there", function,
            operation->what);
    pthread_once(&process_once, process_begin);
}

CUresult cudasim_enter(const char *function)
{
    cudasim_enter_anywhere(function);
    if (settings_get()->driver_version == 0)
        return CUDA_ERROR_STUB_LIBRARY;
    return settings_get()->num_visible ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

static atomic_bool is_initialised;

void cudasim_initialise(void)
{
    atomic_store(&is_initialised, true);
}

bool cudasim_is_initialised(void)
{
    return atomic_load(&is_initialised);
}

static __thread CUresult last_error;

CUresult cudasim_remember(CUresult result)
{
    if (result && result != CUDA_ERROR_NOT_READY)
        last_error = result;
    return result;
}

CUresult cudasim_last_error(bool clears)
{
    CUresult result = last_error;
    if (clears)
        last_error = CUDA_SUCCESS;
    return result;
}

/* ---- collectives ---- */

static atomic_int num_collectives[CUDASIM_MAX_DEVICES];

void cudasim_collective_begin(int device)
{
    atomic_fetch_add(&num_collectives[device], 1);
}

void cudasim_collective_end(int device)
{
    if (atomic_fetch_sub(&num_collectives[device], 1) <= 0)
        cudasim_fault("more collectives end on device %d than began", device);
}

void strict_no_collective(const char *what, int device)
{
    int count = atomic_load(&num_collectives[device]);
    if (count > 0)
        cudasim_fault("%s while %d collective%s queued on device %d: it may wait for the device, "
                      "and the device for another rank",
            what, count, count == 1 ? " is" : "s are", device);
}

/* ---- chance ---- */

/* SplitMix64 of the seed, the sequence and the place in it. */
uint64_t cudasim_random(uint64_t who, uint64_t number)
{
    uint64_t x = settings_get()->seed + who * UINT64_C(0xd1342543de82ef95) +
                 number * UINT64_C(0x9e3779b97f4a7c15) + UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}
