/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes, ranks and patterns for the tests of the simulated NCCL.
 */
#include <check.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "nccl_support.h"

void need(bool condition, const char *text, const char *file, int line)
{
    if (condition)
        return;
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, text);
    _exit(EXIT_FAILURE);
}

void need_nccl(ncclResult_t got, ncclResult_t wanted, const char *text, const char *file, int line)
{
    if (got == wanted)
        return;
    fprintf(stderr, "%s:%d: %s: %s (%s), not %s\n", file, line, text, ncclGetErrorString(got),
        ncclGetLastError(NULL), ncclGetErrorString(wanted));
    _exit(EXIT_FAILURE);
}

/* ---- processes ---- */

struct shared *shared_new(int processes)
{
    pthread_barrierattr_t attributes;
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attributes, (unsigned)processes);
    pthread_barrierattr_destroy(&attributes);
    return shared;
}

void shared_free(struct shared *shared)
{
    munmap(shared, sizeof(*shared));
}

void meet(struct shared *shared)
{
    pthread_barrier_wait(&shared->barrier);
}

pid_t process_start(struct shared *shared, process_body *body, int process)
{
    fflush(NULL); /* or the child would write it again */
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid > 0)
        return pid;
    setenv("CUDASIM_DEVICES", "4", 0);
    body(shared, process);
    exit(EXIT_SUCCESS); /* sanitizers report at exit */
}

/* Ends what is left if one has failed: the others may be waiting for it. */
static bool wait_for_all(pid_t *pids, int processes)
{
    bool is_good = true;
    for (int left = processes; left > 0; left--) {
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        ck_assert_int_gt(pid, 0);
        bool is_first = is_good;
        is_good = is_good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        for (int i = 0; i < processes; i++) {
            if (pids[i] == pid)
                pids[i] = 0;
            else if (pids[i] != 0 && is_first && !is_good)
                kill(pids[i], SIGKILL);
        }
    }
    return is_good;
}

void processes_run(int processes, process_body *body)
{
    pid_t pids[MAX_PROCESSES];
    struct shared *shared = shared_new(processes);
    for (int i = 0; i < processes; i++)
        pids[i] = process_start(shared, body, i);
    ck_assert(wait_for_all(pids, processes));
    shared_free(shared);
}

/* Reads until a whole line of a fault is there, or all writers are gone. */
static void read_until_fault(int from, char *text)
{
    size_t used = 0;
    for (;;) {
        ssize_t got = read(from, text + used, TEXT_SIZE - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return;
        used += (size_t)got;
        text[used] = '\0';
        const char *fault = strstr(text, "cudasim: fault: ");
        if (fault != NULL && strchr(fault, '\n') != NULL)
            return;
    }
}

const char *processes_fault(int processes, process_body *body)
{
    static char text[TEXT_SIZE];
    pid_t pids[MAX_PROCESSES];
    int ends[2], aborted = 0;
    struct shared *shared = shared_new(processes);
    ck_assert_int_eq(pipe(ends), 0);
    int errors = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    for (int i = 0; i < processes; i++)
        pids[i] = process_start(shared, body, i);
    dup2(errors, STDERR_FILENO);
    close(errors);
    close(ends[1]);
    text[0] = '\0';
    read_until_fault(ends[0], text);
    /* The one with the fault ends by itself; then the others are ended, wherever they are. */
    for (int left = processes; left > 0; left--) {
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        ck_assert_int_gt(pid, 0);
        bool is_first = aborted == 0;
        aborted += WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
        for (int i = 0; i < processes; i++) {
            if (pids[i] == pid)
                pids[i] = 0;
            else if (pids[i] != 0 && is_first && aborted > 0)
                kill(pids[i], SIGKILL);
        }
    }
    close(ends[0]);
    shared_free(shared);
    ck_assert_msg(aborted > 0, "no fault, but: %s", text);
    return text;
}

/* ---- ranks ---- */

void rank_open(struct rank *rank, int number, int device, size_t size, bool is_vmm)
{
    *rank = (struct rank){.rank = number, .device = device, .size = size};
    NEED(cudaSetDevice(device) == cudaSuccess);
    NEED(cudaStreamCreateWithFlags(&rank->stream, cudaStreamNonBlocking) == cudaSuccess);
    if (is_vmm)
        NEED_NCCL(ncclMemAlloc((void **)&rank->memory, size));
    else
        NEED(cudaMalloc((void **)&rank->memory, size) == cudaSuccess);
    NEED(cudaMemsetAsync(rank->memory, 0xee, size, rank->stream) == cudaSuccess);
    NEED(cudaStreamSynchronize(rank->stream) == cudaSuccess);
}

void rank_close(struct rank *rank)
{
    NEED(cudaSetDevice(rank->device) == cudaSuccess);
    if (rank->comm != NULL)
        NEED_NCCL(ncclCommDestroy(rank->comm));
    NEED(cudaStreamDestroy(rank->stream) == cudaSuccess);
}

void rank_fill(struct rank *rank, size_t offset, const void *bytes, size_t size)
{
    NEED(cudaMemcpyAsync(rank->memory + offset, bytes, size, cudaMemcpyHostToDevice,
             rank->stream) == cudaSuccess);
    NEED(cudaStreamSynchronize(rank->stream) == cudaSuccess);
}

void rank_read(struct rank *rank, size_t offset, void *ret_bytes, size_t size)
{
    NEED(cudaMemcpyAsync(ret_bytes, rank->memory + offset, size, cudaMemcpyDeviceToHost,
             rank->stream) == cudaSuccess);
    NEED(cudaStreamSynchronize(rank->stream) == cudaSuccess);
}

void ranks_init(struct rank *ranks, int count, int world, const ncclUniqueId *id, int blocking)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < count; i++) {
        NEED(cudaSetDevice(ranks[i].device) == cudaSuccess);
        NEED_NCCL(ncclCommInitRankConfig(&ranks[i].comm, world, *id, ranks[i].rank, &config));
    }
    NEED_RESULT(ncclGroupEnd(), blocking ? ncclSuccess : ncclInProgress);
    for (int i = 0; i < count; i++)
        NEED_NCCL(rank_settle(&ranks[i]));
}

ncclResult_t rank_settle(struct rank *rank)
{
    ncclResult_t result;
    for (;;) {
        NEED_NCCL(ncclCommGetAsyncError(rank->comm, &result));
        if (result != ncclInProgress)
            return result;
        sched_yield();
    }
}

void pattern(uint8_t *ret_bytes, size_t size, int rank, int step)
{
    uint32_t state = (uint32_t)(rank * 7919 + step * 104729 + 1);
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525 + 1013904223;
        ret_bytes[i] = (uint8_t)(state >> 24);
    }
}
