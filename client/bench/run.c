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

#include "client/bench/run_far.h"

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
    return plant == PLANT_BYTE || model_is_float8(weight);
}

/* The n-th of the weights that can have a difference, n < their number. */
static uint32_t choose_weight(const struct model *model, enum plant plant, uint32_t n)
{
    uint32_t weight = 0;

    while (!may_plant(&model->weights[weight], plant) || n-- > 0) {
        weight++;
    }
    return weight;
}

/* Chooses where the difference is planted: job, gather group, weight, byte and step. */
static int make_plan(struct runner *runner)
{
    const struct options *options = runner->options;
    const struct model *model = runner->model;
    uint64_t random = source_mix(options->seed, UINT64_C(0x706c616e74));
    uint64_t other = source_mix(random, 0);
    struct plan *plan = &runner->jobs[other % options->jobs].run.plan;
    uint32_t checked = (options->steps - 1) / options->check_every + 1;
    uint32_t eligible = 0;
    const struct model_weight *weight;
    struct model_part part;

    for (uint32_t i = 0; i < model->num_weights; i++) {
        eligible += may_plant(&model->weights[i], options->plant);
    }
    if (eligible == 0) {
        return bench_fail(&runner->outcome->error,
            "--plant %s: no weight of %s has a scale, all are raw",
            options_plant_name(options->plant), model->name);
    }
    plan->plant = options->plant;
    plan->weight = choose_weight(model, options->plant, (uint32_t)(random % eligible));
    plan->group = (uint32_t)((other >> 20) % layout_num_groups(options));
    weight = &model->weights[plan->weight];
    part = layout_part(options, weight, plan->group);
    plan->byte = (random >> 20) % (model_part_size(&part) * model_wire_size(weight));
    plan->step = (uint32_t)(random >> 40) % checked * options->check_every;
    return 0;
}

/* A job's weights are its own; so are those of the first, whatever the number of jobs. */
static int prepare_job(struct runner *runner, uint32_t index)
{
    const struct options *options = runner->options;
    struct job *job = &runner->jobs[index];
    struct run *run = &job->run;
    uint64_t seed = index == 0 ? options->seed : source_mix(options->seed, index);

    *run = (struct run){.options = options,
        .model = runner->model,
        .source = &job->source,
        .shared = runner->shared,
        .index = index,
        .meeting_fd = runner->meeting != NULL ? runner->meeting->ranks_fd : -1};
    if (runner->meeting != NULL) {
        snprintf(run->job, sizeof(run->job), "%s", runner->meeting->job);
    } else if (options->jobs == 1) {
        snprintf(run->job, sizeof(run->job), "f8bench-%d", (int)getpid());
    } else {
        snprintf(run->job, sizeof(run->job), "f8bench-%d-%u", (int)getpid(), index);
    }
    return source_open(runner->model, seed, &job->source, &runner->outcome->error);
}

static int prepare(struct runner *runner)
{
    const struct options *options = runner->options;
    uint32_t num_ranks = runner->num_ranks;
    const struct shared_sizes sizes = {.jobs = options->jobs,
        .job_ranks = options->ranks,
        .crew = runner->crew,
        .steps = options->steps,
        .weights = runner->model->num_weights,
        .hosts = options->hosts > 0 ? options->hosts : 1,
        .groups = layout_num_groups(options) + 1}; /* the mesh is one too */

    runner->shared = shared_new(&sizes);
    runner->outcome->shared = runner->shared;
    runner->jobs = calloc(options->jobs, sizeof(*runner->jobs));
    runner->pids = calloc(num_ranks, sizeof(*runner->pids));
    runner->pidfds = malloc(num_ranks * sizeof(*runner->pidfds));
    if (runner->shared == NULL || runner->jobs == NULL || runner->pids == NULL ||
        runner->pidfds == NULL) {
        return bench_no_memory(&runner->outcome->error);
    }
    memset(runner->pidfds, 0xff, num_ranks * sizeof(*runner->pidfds));
    for (uint32_t i = 0; i < options->jobs; i++) {
        if (prepare_job(runner, i) != 0) {
            return -1;
        }
    }
    return options->plant != PLANT_NONE ? make_plan(runner) : 0;
}

/* In the child. SIGINT stays blocked: a Ctrl-C is the parent's to handle. */
__attribute__((noreturn)) static void become_rank(
    struct runner *runner, uint32_t index, pid_t parent)
{
    uint32_t ranks = runner->options->ranks;
    struct run *run = &runner->jobs[index / ranks].run;
    uint32_t host;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    host = layout_host(runner->options, index % ranks);
    if (runner->network != NULL && network_enter(runner->network, host) != 0) {
        _exit(1);
    }
    run->socket = runner->sockets[runner->meeting != NULL ? 0 : host].path;
    _exit(rank_main(run, index % ranks));
}

static int start_ranks(struct runner *runner)
{
    uint32_t ranks = runner->options->ranks;
    pid_t parent = getpid();

    fflush(NULL);
    for (uint32_t i = 0; i < runner->num_ranks; i++) {
        if (i % ranks < runner->first || i % ranks >= runner->first + runner->crew) {
            continue; /* another machine's */
        }
        runner->pids[i] = fork();
        if (runner->pids[i] == 0) {
            become_rank(runner, i, parent);
        }
        runner->pidfds[i] = runner->pids[i] > 0 ? pidfd_open(runner->pids[i], 0) : -1;
        if (runner->pidfds[i] < 0) {
            return bench_fail(&runner->outcome->error, "cannot start process %u of %u: %s", i,
                runner->num_ranks, strerror(errno));
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

    for (uint32_t i = 0; runner->pids != NULL && i < runner->num_ranks; i++) {
        if (runner->pids[i] > 0) {
            kill(runner->pids[i], SIGKILL);
            waitpid(runner->pids[i], NULL, 0);
        }
        if (runner->pidfds != NULL && runner->pidfds[i] >= 0) {
            close(runner->pidfds[i]);
        }
    }
    if (run_stop_hosts(runner, &error) != 0 && !outcome->failed) {
        outcome->failed = true;
        outcome->error = error;
    }
    for (uint32_t i = 0; runner->jobs != NULL && i < runner->options->jobs; i++) {
        source_close(&runner->jobs[i].source);
    }
    free(runner->jobs);
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
        .model = model,
        .outcome = ret_outcome,
        .num_ranks = options->jobs * options->ranks,
        .num_hosts = options->hosts > 0 && options->addresses.count == 0 ? options->hosts : 1,
        .first = layout_crew_first(options),
        .crew = layout_crew_size(options),
        .signal_fd = -1};

    *ret_outcome = (struct outcome){0};
    ret_outcome->failed = catch_signals(&runner) != 0 || run_far_open(&runner) != 0 ||
                          prepare(&runner) != 0 || run_start_hosts(&runner) != 0 ||
                          start_ranks(&runner) != 0 || run_watch(&runner) != 0;
    ret_outcome->interrupted = take_signals(&runner) && ret_outcome->failed;
    run_far_close(&runner);
    stop(&runner);
}

void run_outcome_done(struct outcome *outcome)
{
    shared_free(outcome->shared);
    free(outcome->ctl);
}
