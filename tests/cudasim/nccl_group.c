/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups. What API functions want done is a job of the calling thread's group; the end of the
 * outermost group runs the jobs, or starts a thread that does if the communicators have blocking=0.
 * In that case operations reach their streams only when the communicators are ncclSuccess again:
 * who goes on before finds an empty stream, and wrong data.
 */
#include <stdlib.h>
#include <unistd.h>

#include "nccl_comm.h"

enum { BLOCKING_UNKNOWN = -1 };

struct group {
    unsigned depth;
    int blocking;
    ncclResult_t error;
    struct job *first, *last; /* owned */
};

static _Thread_local struct group group;

void group_begin(void)
{
    if (group.depth++ > 0)
        return;
    group.blocking = BLOCKING_UNKNOWN;
    group.error = ncclSuccess;
}

bool group_is_explicit(void)
{
    return group.depth > 1;
}

ncclResult_t group_error(ncclResult_t result)
{
    if (result != ncclSuccess && result != ncclInProgress)
        group.error = result;
    return result;
}

static void job_drop(struct job *job)
{
    if (job->operation != NULL)
        launch_drop(job->operation);
    if (job->window != NULL)
        window_drop(job->window);
    free(job);
}

ncclResult_t group_add(struct job content)
{
    int blocking = content.comm->config.blocking;
    struct job *job = malloc(sizeof(*job));
    if (job == NULL)
        abort();
    *job = content;
    job->next = NULL;
    if (job->kind == JOB_RECLAIM)
        group.blocking = 1;
    else if (group.blocking == BLOCKING_UNKNOWN)
        group.blocking = blocking;
    else if (group.blocking != blocking) {
        job_drop(job);
        return nccl_warn(ncclInvalidArgument,
            "Blocking and nonblocking communicators are not allowed in the same group.");
    }
    if (group.first == NULL)
        group.first = job;
    else
        group.last->next = job;
    group.last = job;
    return ncclSuccess;
}

/* ---- running the jobs ---- */

static void keep_first(ncclResult_t *result, ncclResult_t next)
{
    if (*result == ncclSuccess)
        *result = next;
}

bool group_is_aborted(const struct job *jobs)
{
    while (jobs != NULL && !jobs->comm->aborted)
        jobs = jobs->next;
    return jobs != NULL;
}

/* All join before the first waits, as the others may be waiting for any of them. */
static ncclResult_t run_inits(struct job *jobs)
{
    ncclResult_t result = ncclSuccess;
    for (struct job *job = jobs; job != NULL && result == ncclSuccess; job = job->next)
        if (job->kind == JOB_INIT)
            result = init_join(job->comm, jobs);
    for (struct job *job = jobs; job != NULL && result == ncclSuccess; job = job->next)
        if (job->kind == JOB_INIT)
            result = init_wait(job->comm, jobs);
    return result;
}

static void run_ends(struct job *jobs)
{
    for (struct job *job = jobs; job != NULL; job = job->next)
        if (job->kind == JOB_RECLAIM)
            comm_reclaim(job->comm);
}

static ncclResult_t run_windows(struct job *jobs)
{
    ncclResult_t result = ncclSuccess;
    for (struct job *job = jobs; job != NULL; job = job->next)
        if (job->kind == JOB_WINDOW)
            keep_first(&result, window_post(job->comm, job->window));
    for (struct job *job = jobs; job != NULL && result == ncclSuccess; job = job->next)
        if (job->kind == JOB_WINDOW)
            result = window_wait(job->comm, job->window, jobs);
    return result;
}

/* Messages of one communicator progress together: the first takes the others along. */
static void fuse_messages(struct job *first)
{
    struct operation *last = first->operation;
    if (last == NULL || last->signature.kind != MESSAGE)
        return;
    for (struct job *job = first->next; job != NULL; job = job->next) {
        struct operation *operation = job->operation;
        if (operation == NULL || operation->signature.kind != MESSAGE || job->comm != first->comm)
            continue;
        if (operation->stream != first->operation->stream)
            cudasim_fault("rank %d of %s: messages of one group on two streams, which is not "
                          "simulated",
                job->comm->rank, comm_name(job->comm));
        last->fused = operation;
        last = operation;
        job->operation = NULL;
    }
}

/* NCCL launches the communicators of a group in the order in which the group met them first. */
static ncclResult_t run_launches(struct job *jobs)
{
    ncclResult_t result = ncclSuccess;
    for (struct job *leader = jobs; leader != NULL; leader = leader->next) {
        if (leader->operation == NULL)
            continue;
        uint64_t clique = leader->comm->clique;
        for (struct job *job = leader; job != NULL; job = job->next) {
            if (job->operation == NULL || job->comm->clique != clique)
                continue;
            fuse_messages(job);
            keep_first(&result, launch_queue(job->operation));
            job->operation = NULL;
        }
        order_group(leader->comm);
    }
    return result;
}

static ncclResult_t run(struct job *jobs)
{
    ncclResult_t result = run_inits(jobs);
    run_ends(jobs);
    if (result == ncclSuccess)
        result = run_windows(jobs);
    if (result == ncclSuccess)
        result = run_launches(jobs);
    return result;
}

/* Gives the communicators their result and lets go of them. */
static void finish(struct job *jobs, ncclResult_t result)
{
    while (jobs != NULL) {
        struct job *job = jobs;
        struct ncclComm *comm = job->comm;
        int in_progress = ncclInProgress;
        jobs = job->next;
        if (job->kind == JOB_LAUNCH)
            comm->launching = false;
        atomic_compare_exchange_strong(&comm->result, &in_progress, (int)result);
        if (job->kind != JOB_RECLAIM)
            comm_release(comm);
        job_drop(job);
    }
}

static ncclResult_t run_and_finish(struct job *jobs)
{
    ncclResult_t result = run(jobs);
    /* Ends run the longest, and hold nothing. */
    for (struct job *job = jobs; job != NULL; job = job->next)
        if (job->kind == JOB_FINALIZE) {
            comm_release(job->comm);
            comm_drain(job->comm, "ncclCommFinalize");
            comm_hold(job->comm);
        }
    finish(jobs, result);
    return result;
}

static void *run_in_background(void *argument)
{
    struct job *jobs = argument;
    const char *delay = getenv("CUDASIM_DELAY_US");
    unsigned long most = delay == NULL ? 0 : strtoul(delay, NULL, 10);
    const struct ncclComm *comm = jobs->comm;
    if (most > 0)
        usleep((useconds_t)(cudasim_random((uint64_t)comm->rank, comm->tickets) % (most + 1)));
    run_and_finish(jobs);
    return NULL;
}

static ncclResult_t start_in_background(struct job *jobs)
{
    pthread_attr_t attributes;
    pthread_t thread;
    for (struct job *job = jobs; job != NULL; job = job->next) {
        job->comm->result = ncclInProgress;
        job->comm->launching = job->kind == JOB_LAUNCH;
    }
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&thread, &attributes, run_in_background, jobs);
    pthread_attr_destroy(&attributes);
    if (failed == 0)
        return ncclInProgress;
    finish(jobs, ncclSystemError);
    return ncclSystemError;
}

/* After an error nothing is done but to end what has been told to end. */
static ncclResult_t give_up(struct job *jobs, ncclResult_t error)
{
    run_ends(jobs);
    finish(jobs, error);
    return error;
}

ncclResult_t group_end(void)
{
    if (group.depth == 0)
        return nccl_warn(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    if (--group.depth > 0)
        return ncclSuccess;
    struct job *jobs = group.first;
    group.first = group.last = NULL;
    for (struct job *job = jobs; job != NULL; job = job->next)
        if (job->kind != JOB_RECLAIM)
            comm_hold(job->comm);
    if (group.error != ncclSuccess)
        return give_up(jobs, group.error);
    if (jobs == NULL)
        return ncclSuccess;
    for (struct job *job = jobs; job != NULL; job = job->next)
        if (job->operation != NULL)
            launch_begin(job->operation);
    return group.blocking ? run_and_finish(jobs) : start_in_background(jobs);
}

/* nccl.h declares these two without prototypes. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    ncclResult_t result = nccl_from_cuda((int)cudasim_enter(__func__), __func__);
    if (result == ncclSuccess)
        group_begin();
    return result;
}

ncclResult_t ncclGroupEnd(void)
{
    return group_end();
}
