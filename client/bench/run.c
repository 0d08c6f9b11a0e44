/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The course of a run in the parent process: signals, memory, daemon, ranks; watching; and the end
 * of all of them in every case. Called by main; the ranks are forked here and never return.
 */
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/bench/run_private.h"

/* SIGINT and SIGTERM come by descriptor from here on, so that nothing is left behind. */
static int catch_signals(struct runner *runner)
{
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &runner->old_signals);
    runner->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (runner->signal_fd < 0) {
        return bench_fail(&runner->outcome->error, "no signalfd: %s", strerror(errno));
    }
    return 0;
}

static bool may_plant(const struct model_weight *weight, enum plant plant)
{
    bool float8 = weight->flavour == F8_DYNAMIC || weight->flavour == F8_STATIC;
    return plant == PLANT_BYTE || float8;
}

/* Chooses where the difference is planted: the n-th of the weights that can have one. */
static int make_plan(struct runner *runner)
{
    const struct options *options = runner->options;
    const struct model *model = runner->run.model;
    struct plan *plan = &runner->run.plan;
    uint64_t random = source_mix(options->seed, UINT64_C(0x706c616e74));
    uint32_t checked = (options->steps - 1) / options->check_every + 1;
    uint32_t eligible = 0;

    for (uint32_t i = 0; i < model->num_weights; i++) {
        eligible += may_plant(&model->weights[i], options->plant);
    }
    if (eligible == 0) {
        return bench_fail(&runner->outcome->error,
            "--plant %s: no weight of %s has a scale, all are raw",
            options_plant_name(options->plant), model->name);
    }
    eligible = (uint32_t)(random % eligible);
    for (uint32_t i = 0; i < model->num_weights; i++) {
        if (may_plant(&model->weights[i], options->plant) && eligible-- == 0) {
            uint64_t size =
                model_elements(&model->weights[i]) * model_wire_size(&model->weights[i]);
            plan->weight = i;
            plan->byte = (random >> 20) % size;
            break;
        }
    }
    plan->plant = options->plant;
    plan->step = (uint32_t)(random >> 40) % checked * options->check_every;
    return 0;
}

static int prepare(struct runner *runner)
{
    const struct options *options = runner->options;
    struct run *run = &runner->run;

    snprintf(run->job, sizeof(run->job), "f8bench-%d", (int)getpid());
    if (source_open(run->model, options->seed, &runner->source, &runner->outcome->error) != 0) {
        return -1;
    }
    run->source = &runner->source;
    run->shared = shared_new(options->ranks, options->steps, run->model->num_weights);
    runner->outcome->shared = run->shared;
    runner->pids = calloc(options->ranks, sizeof(*runner->pids));
    runner->pidfds = malloc(options->ranks * sizeof(*runner->pidfds));
    if (run->shared == NULL || runner->pids == NULL || runner->pidfds == NULL) {
        return bench_no_memory(&runner->outcome->error);
    }
    memset(runner->pidfds, 0xff, options->ranks * sizeof(*runner->pidfds));
    return options->plant != PLANT_NONE ? make_plan(runner) : 0;
}

static int start_daemon(struct runner *runner)
{
    if (runner->options->socket != NULL) {
        runner->run.socket = runner->options->socket;
        return 0;
    }
    if (daemon_start(runner->options->daemon, runner->signal_fd, &runner->daemon,
            &runner->outcome->error) != 0) {
        return -1;
    }
    runner->run.socket = runner->daemon.socket;
    return 0;
}

/* In the child. SIGINT stays blocked: a Ctrl-C is the parent's to handle. */
__attribute__((noreturn)) static void become_rank(
    struct runner *runner, uint32_t rank, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    _exit(rank_main(&runner->run, rank));
}

static int start_ranks(struct runner *runner)
{
    pid_t parent = getpid();

    fflush(NULL);
    for (uint32_t i = 0; i < runner->options->ranks; i++) {
        runner->pids[i] = fork();
        if (runner->pids[i] == 0) {
            become_rank(runner, i, parent);
        }
        runner->pidfds[i] = runner->pids[i] > 0 ? pidfd_open(runner->pids[i], 0) : -1;
        if (runner->pidfds[i] < 0) {
            return bench_fail(&runner->outcome->error, "cannot start rank %u of %u: %s", i,
                runner->options->ranks, strerror(errno));
        }
        runner->running++;
    }
    return 0;
}

/* Takes a signal that came; whether one did. One left pending would end us before the report. */
static bool take_signals(const struct runner *runner)
{
    struct signalfd_siginfo signal;
    bool any = false;

    while (read(runner->signal_fd, &signal, sizeof(signal)) == (ssize_t)sizeof(signal)) {
        any = true;
    }
    return any;
}

/* Ends all processes. A daemon that does not end well fails a run that was well until then. */
static void stop(struct runner *runner)
{
    struct outcome *outcome = runner->outcome;
    struct bench_error error;

    for (uint32_t i = 0; runner->pids != NULL && i < runner->options->ranks; i++) {
        if (runner->pids[i] > 0) {
            kill(runner->pids[i], SIGKILL);
            waitpid(runner->pids[i], NULL, 0);
        }
        if (runner->pidfds != NULL && runner->pidfds[i] >= 0) {
            close(runner->pidfds[i]);
        }
    }
    if (daemon_stop(&runner->daemon, &error) != 0 && !outcome->failed) {
        outcome->failed = true;
        outcome->error = error;
    }
    source_close(&runner->source);
    free(runner->pids);
    free(runner->pidfds);
    if (runner->signal_fd >= 0) {
        close(runner->signal_fd);
    }
    sigprocmask(SIG_SETMASK, &runner->old_signals, NULL);
}

void run_bench(
    const struct options *options, const struct model *model, struct outcome *ret_outcome)
{
    struct runner runner = {.options = options,
        .outcome = ret_outcome,
        .run = {.options = options, .model = model},
        .daemon = DAEMON_NONE,
        .signal_fd = -1};

    *ret_outcome = (struct outcome){0};
    ret_outcome->failed = catch_signals(&runner) != 0 || prepare(&runner) != 0 ||
                          start_daemon(&runner) != 0 || start_ranks(&runner) != 0 ||
                          run_watch(&runner) != 0;
    ret_outcome->interrupted = take_signals(&runner) && ret_outcome->failed;
    stop(&runner);
}

void run_outcome_done(struct outcome *outcome)
{
    shared_free(outcome->shared);
    free(outcome->ctl);
}
