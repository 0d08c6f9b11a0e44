/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parent does while ranks run: it sleeps in poll on a pidfd of each child, the signals,
 * and the ranks' eventfd, and turns whatever comes first into the outcome. A rank that dies drags
 * others down, so of several failures the one nearest to the cause is told.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/bench/progress.h"
#include "client/bench/run_far.h"

/*
 * How long a process may take to be seen dead after others have told of its death: the kernel
 * closes its sockets before its parent can wait for it.
 */
#define DEATH_SECONDS 2

/* Places in the list that is polled; the daemons, the ranks and other machines follow. */
enum {
    SLOT_SIGNAL,
    SLOT_PROGRESS,
    NUM_SLOTS,
};

/* How near a rank's failure is to the cause. */
static enum nearness nearness(const struct shared_rank *result, const siginfo_t *ended)
{
    if (ended->si_pid != 0 && ended->si_code != CLD_EXITED) {
        return NEAR_DEATH;
    }
    switch (result->status) {
    case F8_OK:
        return ended->si_pid != 0 && ended->si_status != 0 ? NEAR_GONE : NEAR_NOTHING;
    case F8_ERANKDEAD:
    case F8_EBROKEN:
    case F8_ECONN:
    case F8_ENODAEMON:
        return NEAR_HEARD;
    default:
        return NEAR_ERROR;
    }
}

/* "rank 2 (pid 17)"; with several jobs, of which. */
static void name_rank(const struct runner *runner, uint32_t index, char *name, size_t size)
{
    uint32_t ranks = runner->options->ranks;
    int pid = (int)runner->pids[index];

    if (runner->options->jobs == 1) {
        snprintf(name, size, "rank %u (pid %d)", index, pid);
    } else {
        snprintf(name, size, "job %u: rank %u (pid %d)", index / ranks, index % ranks, pid);
    }
}

static int explain_rank(struct runner *runner, uint32_t index, const siginfo_t *ended)
{
    const struct shared_rank *result = &runner->shared->ranks[index];
    struct bench_error *error = &runner->outcome->error;
    char name[64];

    name_rank(runner, index, name, sizeof(name));
    if (ended->si_pid != 0 && ended->si_code != CLD_EXITED) {
        return bench_fail(error, "%s was ended by signal %d (%s)", name, ended->si_status,
            strsignal(ended->si_status));
    }
    if (result->status == F8_OK) {
        return bench_fail(
            error, "%s ended with status %d without saying why", name, ended->si_status);
    }
    return bench_fail(error, "%s: %.700s", name, result->error.text);
}

/* A rank that failed or died, and how. */
struct failed {
    uint32_t rank;
    enum nearness nearness;
    siginfo_t ended; /* si_pid is 0 while it runs */
};

static siginfo_t end_of(const struct runner *runner, uint32_t rank)
{
    siginfo_t ended = {0};

    if (runner->pids[rank] > 0) {
        waitid(P_PIDFD, (id_t)runner->pidfds[rank], &ended, WEXITED | WNOHANG | WNOWAIT);
    }
    return ended;
}

/* Looks at all ranks, ended or not, for the one nearest to the cause. */
static struct failed find_cause(const struct runner *runner)
{
    struct failed cause = {0};

    for (uint32_t i = 0; i < runner->num_ranks; i++) {
        siginfo_t ended = end_of(runner, i);
        enum nearness near = nearness(&runner->shared->ranks[i], &ended);
        if (near > cause.nearness) {
            cause = (struct failed){.rank = i, .nearness = near, .ended = ended};
        }
    }
    return cause;
}

/* Waits until one more process of the run ends, or another machine says something; false: neither
 * happens until then, or no process is left. */
static bool await_another_end(const struct runner *runner, double deadline)
{
    int left_ms = (int)((deadline - shared_now()) * 1000);
    struct pollfd *fds =
        calloc(runner->num_ranks + runner->num_daemons + MEETING_MAX_FDS, sizeof(*fds));
    nfds_t count = 0;
    bool more = false;

    for (uint32_t i = 0; fds != NULL && i < runner->num_daemons; i++) {
        fds[count++] = (struct pollfd){.fd = runner->daemons[i].pidfd, .events = POLLIN};
    }
    for (uint32_t i = 0; fds != NULL && i < runner->num_ranks; i++) {
        if (runner->pids[i] > 0 && end_of(runner, i).si_pid == 0) {
            fds[count++] = (struct pollfd){.fd = runner->pidfds[i], .events = POLLIN};
        }
    }
    if (count > 0 && left_ms > 0) {
        count += run_far_list_links(runner, &fds[count]);
        more = poll(fds, count, left_ms) > 0;
    }
    free(fds);
    return more;
}

/* The first daemon that has ended; NULL: all run. */
static struct daemon *dead_daemon(const struct runner *runner)
{
    for (uint32_t i = 0; i < runner->num_daemons; i++) {
        struct pollfd ended = {.fd = runner->daemons[i].pidfd, .events = POLLIN};
        if (poll(&ended, 1, 0) > 0) {
            return &runner->daemons[i];
        }
    }
    return NULL;
}

/*
 * Tells of what failed first. While all that can be seen is ranks that were told of another's
 * death, or lost the daemon, who died is about to be seen, here or on another machine.
 */
static int explain(struct runner *runner)
{
    double deadline = shared_now() + DEATH_SECONDS;
    struct failed cause = find_cause(runner);

    while (cause.nearness == NEAR_HEARD && dead_daemon(runner) == NULL &&
           await_another_end(runner, deadline)) {
        if (run_far_knows(runner)) {
            return -1;
        }
        cause = find_cause(runner);
    }
    if (cause.nearness == NEAR_HEARD && dead_daemon(runner) != NULL) {
        runner->failure = (struct failure){.nearness = NEAR_DEATH};
        return daemon_explain(dead_daemon(runner), &runner->outcome->error);
    }
    if (runner->failure.nearness > cause.nearness) {
        return -1; /* what another machine has said */
    }
    runner->failure = (struct failure){.nearness = cause.nearness};
    return explain_rank(runner, cause.rank, &cause.ended);
}

/* Takes leave of a rank that has ended; -1 if it did not end well. */
static int reap(struct runner *runner, uint32_t rank)
{
    siginfo_t ended = {0};

    waitid(P_PIDFD, (id_t)runner->pidfds[rank], &ended, WEXITED | WNOWAIT);
    if (ended.si_code != CLD_EXITED || ended.si_status != 0) {
        return explain(runner);
    }
    waitpid(runner->pids[rank], NULL, 0);
    close(runner->pidfds[rank]);
    runner->pids[rank] = 0;
    runner->pidfds[rank] = -1;
    runner->running--;
    return 0;
}

/* All ranks of all jobs here are through with their steps: looks at what they hold. */
static int look(struct runner *runner)
{
    const struct options *options = runner->options;

    for (uint32_t host = 0; host < runner->num_hosts; host++) {
        for (uint32_t i = 0; i < options->jobs; i++) {
            probe_daemon(runner->sockets[host].path, runner->jobs[i].run.job,
                &runner->outcome->probes[options->host + host]);
        }
    }
    runner->looked = true;
    if (options->ctl && options->host == 0 && run_ctl(runner) != 0) {
        return -1;
    }
    return run_far_report(runner);
}

/* Lets the ranks go, once those of all machines are through. */
static int go_ahead(struct runner *runner)
{
    uint32_t here = runner->options->jobs * runner->crew;

    if (!runner->looked && atomic_load(&runner->shared->ranks_done) == here && look(runner) != 0) {
        return -1;
    }
    if (runner->looked && !runner->gone_ahead && run_far_may_leave(runner)) {
        runner->gone_ahead = true;
        eventfd_write(runner->shared->go_fd, here);
    }
    return 0;
}

static void on_progress(struct runner *runner)
{
    struct shared *shared = runner->shared;
    eventfd_t value;

    eventfd_read(shared->progress_fd, &value);
    progress_draw(atomic_load(&shared->steps_done), runner->options->jobs * runner->options->steps);
}

/* What poll has found. */
static int handle(struct runner *runner, const struct pollfd *fds)
{
    const struct pollfd *daemons = fds + NUM_SLOTS;
    const struct pollfd *ranks = daemons + runner->num_daemons;

    if (fds[SLOT_SIGNAL].revents != 0) {
        return bench_fail(&runner->outcome->error, "interrupted");
    }
    for (uint32_t i = 0; i < runner->num_ranks; i++) {
        if (ranks[i].revents != 0 && reap(runner, i) != 0) {
            return -1;
        }
    }
    for (uint32_t i = 0; i < runner->num_daemons; i++) {
        if (daemons[i].revents != 0 && runner->running > 0) {
            return daemon_explain(&runner->daemons[i], &runner->outcome->error);
        }
    }
    if (fds[SLOT_PROGRESS].revents != 0) {
        on_progress(runner);
    }
    return run_far_handle(runner) != 0 ? -1 : go_ahead(runner);
}

/* Lists what is to be polled; how much it is. */
static nfds_t list(const struct runner *runner, struct pollfd *fds)
{
    struct pollfd *at = fds + NUM_SLOTS;
    nfds_t count;

    fds[SLOT_SIGNAL].fd = runner->signal_fd;
    fds[SLOT_PROGRESS].fd = runner->shared->progress_fd;
    for (uint32_t i = 0; i < runner->num_daemons; i++) {
        (at++)->fd = runner->daemons[i].pidfd;
    }
    for (uint32_t i = 0; i < runner->num_ranks; i++) {
        (at++)->fd = runner->pidfds[i];
    }
    count = (nfds_t)(at - fds);
    while (at-- > fds) {
        at->events = POLLIN;
    }
    if (runner->meeting != NULL) {
        count += meeting_list(runner->meeting, &fds[count]);
    }
    return count;
}

int run_watch(struct runner *runner)
{
    uint32_t most = NUM_SLOTS + runner->num_daemons + runner->num_ranks + MEETING_MAX_FDS;
    struct pollfd *fds = calloc(most, sizeof(*fds));
    int result = 0;

    if (fds == NULL) {
        return bench_no_memory(&runner->outcome->error);
    }
    while (result == 0 && runner->running > 0) {
        nfds_t count = list(runner, fds);
        int timeout = runner->meeting != NULL ? meeting_timeout(runner->meeting) : -1;
        if (poll(fds, count, timeout) < 0) {
            continue; /* EINTR: a debugger */
        }
        result = handle(runner, fds);
    }
    progress_clear();
    free(fds);
    return result;
}
