/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts the private daemons of an index, forks the ranks of each run, and turns what they found
 * into counts. Called by main.c; single-threaded, as fork wants it. Ranks die with this process,
 * and a collective that hangs ends by its deadline, so that nothing is waited for without end.
 */
#include "tests/conformance/daemon_run.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void start_ranks(const struct daemon_run *run, pid_t *pids)
{
    pid_t parent = getpid();
    (void)fflush(NULL);
    for (uint32_t r = 0; r < run->world; r++) {
        pids[r] = fork();
        if (pids[r] != 0)
            continue;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(EXIT_FAILURE);
        _exit(run->steps ? delayed_rank_run(run, r) : rank_run(run, r));
    }
}

/* Waits for all; who ended in a way of which it could not tell itself is told of. */
static void await_ranks(const struct daemon_run *run, const pid_t *pids)
{
    for (uint32_t r = 0; r < run->world; r++) {
        struct excuse *excuse = &run->excuses[r];
        int status = 0;
        if (pids[r] < 0 || waitpid(pids[r], &status, 0) != pids[r])
            (void)snprintf(excuse->text, sizeof(excuse->text), "cannot be started");
        else if (WIFSIGNALED(status))
            (void)snprintf(
                excuse->text, sizeof(excuse->text), "was ended by signal %d", WTERMSIG(status));
        else if (status != 0 && excuse->text[0] == '\0')
            (void)snprintf(
                excuse->text, sizeof(excuse->text), "ended with status %d", WEXITSTATUS(status));
    }
}

static const struct row *row_of(const struct daemon_run *run, size_t t)
{
    return run->steps ? &run->steps->items[t].row : &run->tensors[t]->row;
}

/* What a failure is told of: the tensor, or the step. */
static const char *name_of(const struct daemon_run *run, size_t t, char *buffer, size_t size)
{
    if (!run->steps)
        return run->tensors[t]->name;
    (void)snprintf(buffer, size, "step %zu", run->steps->items[t].number);
    return buffer;
}

/*
 * One count for a tensor or step: every rank must have found it right. What a rank did not come to
 * because it could not go on is told once, as its excuse, not for each tensor.
 */
static void count_tensor(const struct daemon_run *run, size_t t)
{
    const struct row *row = row_of(run, t);
    char name[32];
    for (uint32_t r = 0; r < run->world; r++) {
        const struct verdict *verdict = &run->verdicts[r * run->count + t];
        if (verdict->compared && verdict->wrong[0] == '\0')
            continue;
        if (!verdict->compared && run->excuses[r].text[0] != '\0')
            return;
        row_fail(row, "daemon, %u ranks, %u slots, rank %u, '%s': %s", run->world, run->slots, r,
            name_of(run, t, name, sizeof(name)),
            verdict->compared ? verdict->wrong : "was not gathered");
        return;
    }
    row_pass(row);
}

static void count_run(const struct row *index, const struct daemon_run *run)
{
    for (size_t t = 0; t < run->count; t++)
        count_tensor(run, t);
    for (uint32_t r = 0; r < run->world; r++)
        if (run->excuses[r].text[0] != '\0')
            row_fail(index, "daemon, %u ranks, %u slots: rank %u: %s", run->world, run->slots, r,
                run->excuses[r].text);
}

/* Shared slots are run with ranks that are dealt to the hosts, so that both orders are. */
static void run_ranks(
    const struct row *index, const struct daemons *daemons, struct daemon_run *run)
{
    run->placement =
        (struct placement){.daemons = daemons, .world = run->world, .dealt = run->slots > 0};
    size_t verdicts = run->world * run->count * sizeof(*run->verdicts);
    size_t size = verdicts + run->world * sizeof(*run->excuses);
    pid_t *pids = calloc(run->world, sizeof(*pids));
    uint8_t *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pids && map != MAP_FAILED) {
        run->verdicts = (struct verdict *)(void *)map;
        run->excuses = (struct excuse *)(void *)(map + verdicts);
        if (placement_prepare(&run->placement, run->job) == F8_OK) {
            start_ranks(run, pids);
            await_ranks(run, pids);
            count_run(index, run);
        } else {
            row_fail(index, "no unique id for a run of %u ranks: %s", run->world, f8_error_text());
        }
    } else {
        row_fail(index, "no memory for a run of %u ranks", run->world);
    }
    if (map != MAP_FAILED)
        (void)munmap(map, size);
    free(pids);
}

/* The tensors of a world size, those by precompute last, once with each kind of places. */
static void run_world(const struct row *index, const struct daemons *daemons, uint32_t world)
{
    const struct tensors *all = index->tensors;
    struct daemon_run run = {.world = world};
    run.tensors = calloc(all->count, sizeof(*run.tensors));
    if (!run.tensors)
        row_fail(index, "no memory for a list of %zu tensors", all->count);
    for (int precompute = 0; run.tensors && precompute < 2; precompute++)
        for (size_t i = 0; i < all->count; i++)
            if (all->items[i].world == world && all->items[i].precompute == (precompute == 1))
                run.tensors[run.count++] = &all->items[i];
    for (run.slots = 0; run.count > 0 && run.slots <= 2; run.slots += 2) {
        (void)snprintf(run.job, sizeof(run.job), "conformance-%u-%u", world, run.slots);
        run_ranks(index, daemons, &run);
    }
    free(run.tensors);
}

/* Whether a tensor is the first of its world size. */
static bool opens_world(const struct tensors *tensors, size_t i)
{
    for (size_t before = 0; before < i; before++)
        if (tensors->items[before].world == tensors->items[i].world)
            return false;
    return true;
}

/* All steps with both kinds of places. */
static void run_steps_over(const struct row *index, const struct daemons *daemons, uint32_t world)
{
    struct daemon_run run = {.steps = index->steps, .world = world};
    run.count = index->steps->count;
    for (run.slots = 0; run.count > 0 && run.slots <= 2; run.slots += 2) {
        (void)snprintf(run.job, sizeof(run.job), "conformance-delayed-%u-%u", world, run.slots);
        run_ranks(index, daemons, &run);
    }
}

/* Over 1, 2 and 3 ranks. Hosts get one rank more than there are, so that one of them has two, and
 * then two each. */
static void run_steps(const struct row *index, const struct daemons *daemons)
{
    uint32_t most = daemons->hosts > 0 ? daemons->hosts + 1 : 3;
    for (uint32_t world = 1; world <= most; world++)
        run_steps_over(index, daemons, world);
    if (2 * daemons->hosts > most)
        run_steps_over(index, daemons, 2 * daemons->hosts);
}

void daemon_run(const struct row *index)
{
    const struct tensors *tensors = index->tensors;
    struct daemons daemons;
    struct bench_error error;
    if (tensors->count + index->steps->count == 0)
        return;
    if (daemons_start(index->hosts, &daemons, &error) != 0) {
        row_fail(index, "%s", error.text);
        return;
    }
    for (size_t i = 0; i < tensors->count; i++)
        if (opens_world(tensors, i))
            run_world(index, &daemons, tensors->items[i].world);
    run_steps(index, &daemons);
    if (daemons_stop(&daemons, &error) != 0)
        row_fail(index, "%s", error.text);
}
