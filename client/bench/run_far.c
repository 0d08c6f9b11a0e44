/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between a run and its meeting with those of other machines. Called by run.c and run_watch.c, in
 * the parent.
 */
#include "run_far.h"

#include <inttypes.h>
#include <stdlib.h>

#include "client/bench/harvest.h"
#include "client/bench/meeting.h"
#include "client/bench/settings.h"

/* A host's report on host 0. */
static int on_report(
    void *context, uint32_t host, const struct link_message *report, struct bench_error *error)
{
    struct runner *runner = context;
    const struct options *options = runner->options;
    struct shared *shared = runner->shared;
    char name[80];

    meeting_name(options, host, name, sizeof(name));
    if (report->size != harvest_size(options, host)) {
        return bench_fail(error, "%s reports %" PRIu64 " bytes, where %" PRIu64 " are right", name,
            report->size, harvest_size(options, host));
    }
    harvest_unpack(options, host, report->body, shared, &runner->outcome->probes[host]);
    for (uint32_t rank = 0; rank < options->ranks; rank++) {
        runner->meeting->mismatches |= shared->ranks[rank].check.mismatches > 0;
    }
    return 0;
}

int run_far_open(struct runner *runner)
{
    const struct options *options = runner->options;
    char *settings;
    int result;

    if (options->addresses.count == 0) {
        return 0;
    }
    settings = settings_text(options, runner->model);
    if (settings == NULL) {
        return bench_no_memory(&runner->outcome->error);
    }
    result = meeting_open(
        options, settings, runner->signal_fd, &runner->meeting, &runner->outcome->error);
    free(settings);
    if (result != 0) {
        return -1;
    }
    runner->meeting->on_report = on_report;
    runner->meeting->context = runner;
    for (uint32_t host = 1; host < options->hosts; host++) {
        uint64_t size = harvest_size(options, host);
        runner->meeting->report_size =
            size > runner->meeting->report_size ? size : runner->meeting->report_size;
    }
    return 0;
}

/* Another machine's failure is this run's. */
static int fail(struct runner *runner, const struct failure *failure)
{
    runner->failure = *failure;
    runner->outcome->error = failure->error;
    return -1;
}

int run_far_handle(struct runner *runner)
{
    struct failure failure = {.nearness = NEAR_NOTHING};

    if (runner->meeting == NULL || meeting_handle(runner->meeting, &failure) == 0) {
        return 0;
    }
    return fail(runner, &failure);
}

nfds_t run_far_list_links(const struct runner *runner, struct pollfd *fds)
{
    return runner->meeting != NULL ? meeting_list_links(runner->meeting, fds) : 0;
}

bool run_far_knows(struct runner *runner)
{
    struct failure failure = {.nearness = NEAR_NOTHING};

    if (runner->meeting == NULL || meeting_handle(runner->meeting, &failure) == 0) {
        return false;
    }
    if (failure.final || failure.nearness > runner->failure.nearness) {
        (void)fail(runner, &failure);
    }
    return failure.final || failure.nearness >= NEAR_GONE;
}

int run_far_report(struct runner *runner)
{
    const struct options *options = runner->options;
    struct failure failure = {.nearness = NEAR_NOTHING};
    uint8_t *report = NULL;
    int result;

    if (runner->meeting == NULL) {
        return 0;
    }
    for (uint32_t rank = 0; rank < options->ranks; rank++) {
        runner->meeting->mismatches |= runner->shared->ranks[rank].check.mismatches > 0;
    }
    if (options->host > 0) {
        report = harvest_pack(options, runner->shared, &runner->outcome->probes[options->host]);
        if (report == NULL) {
            return bench_no_memory(&runner->outcome->error);
        }
    }
    result =
        meeting_report(runner->meeting, report, harvest_size(options, options->host), &failure);
    free(report);
    return result == 0 ? 0 : fail(runner, &failure);
}

bool run_far_may_leave(const struct runner *runner)
{
    return runner->meeting == NULL || runner->meeting->left;
}

void run_far_close(struct runner *runner)
{
    struct outcome *outcome = runner->outcome;

    if (runner->meeting == NULL) {
        return;
    }
    if (outcome->failed) {
        struct failure failure = runner->failure;
        if (failure.nearness == NEAR_NOTHING) {
            failure.nearness = NEAR_DEATH; /* no rank's: the bench's own, or a signal */
        }
        failure.error = outcome->error;
        meeting_fail(runner->meeting, &failure);
        outcome->error = failure.error;
    } else {
        outcome->mismatch_anywhere = runner->meeting->mismatches > 0;
        if (runner->options->host == 0) {
            harvest_set_clocks(runner->options, runner->shared);
        }
    }
    meeting_close(runner->meeting);
    runner->meeting = NULL;
}
