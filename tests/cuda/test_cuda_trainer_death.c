/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer on a device that is killed while its shards are read, or while it maps the arena: the
 * others are told who died, and may still use what they hold; the daemon goes on. Real processes;
 * the kill comes at a random moment, and the devices are slow, so that much is under way then.
 */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "lib/crew.h"
#include "lib/device_memory.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"

#define RANKS 3
#define KILLS 12

/* When the victim is killed. */
enum moment {
    WHILE_SHARDS_ARE_READ,
    WHILE_ARENA_IS_MAPPED, /* some time from the seal's first message on */
};

struct doomed {
    struct toy_job job;
    enum moment moment;
    uint32_t victim;
    pid_t *victim_pid; /* borrowed: shared with the ranks; 0: not killed yet */
};

static struct test_daemon daemon_;
static pid_t *victim_pid;

static struct toy_job job_at(void)
{
    return (struct toy_job){.socket = daemon_.socket,
        .name = "run",
        .ranks = RANKS,
        .buckets = 3,
        .weights = 2,
        .rows = 67,
        .cols = 24,
        .flavour = F8_DYNAMIC,
        .precompute = true,
        .pre_gather = true};
}

/* Whether the cause names the victim; who was killed is known only after the kill. */
static bool names_victim(const struct toy_rank *toy, const struct doomed *doomed, int status)
{
    char text[512], who[64];
    (void)snprintf(text, sizeof(text), "%s", f8_error_text());
    pid_t pid;
    while ((pid = __atomic_load_n(doomed->victim_pid, __ATOMIC_ACQUIRE)) == 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    (void)snprintf(who, sizeof(who), "rank %u (pid %d) died", doomed->victim, (int)pid);
    bool named = (status == F8_ERANKDEAD || status == F8_EBROKEN) && strstr(text, who);
    if (!named)
        (void)fprintf(
            stderr, "rank %u, for \"%s\": %s: %s\n", toy->rank, who, f8_status_name(status), text);
    return named;
}

/* The arena outlives the victim: what is held is still there, and is read once more. */
static int check_held(struct toy_rank *toy)
{
    int status = toy_rank_read(toy);
    return status == F8_OK ? f8_release(toy->group, 0, toy->stream) : status;
}

/* Holds a bucket, and goes on with the others until the death ends it. */
static int step_until_death(struct toy_rank *toy, bool *ret_holds)
{
    int status = toy_rank_hold(toy, 0);
    *ret_holds = status == F8_OK;
    while (status == F8_OK)
        for (uint32_t b = 1; b < toy->job.buckets && status == F8_OK; b++) {
            status = f8_gather(toy->group, b, F8_DEFAULT_DEADLINE, toy->stream);
            if (status == F8_OK)
                status = f8_post_gather(toy->group, b, F8_FOREVER, NULL, 0, toy->stream);
            if (status == F8_OK)
                status = f8_release(toy->group, b, toy->stream);
        }
    return status;
}

static int doomed_rank(struct crew_member *member, const void *argument)
{
    const struct doomed *doomed = argument;
    struct toy_rank toy;
    bool holds = false, well;
    int status = toy_rank_join(&toy, &doomed->job, member->index);
    if (status == F8_OK && doomed->moment == WHILE_ARENA_IS_MAPPED)
        crew_mark(member);
    if (status == F8_OK)
        status = toy_rank_seal(&toy);
    /* The victim's shards are in place before any gather: else the others would hold what was there
     * before, for a stream of the dead writes nothing more. */
    if (status == F8_OK)
        status = device_memory_await(toy.memory);
    if (status == F8_OK && doomed->moment == WHILE_SHARDS_ARE_READ)
        crew_mark(member);
    if (status == F8_OK)
        status = step_until_death(&toy, &holds);
    well = names_victim(&toy, doomed, status);
    if (holds && check_held(&toy) != F8_OK)
        well = false;
    toy_rank_close(&toy);
    return well ? 0 : 1;
}

/* What the daemon can do for others, after all. */
static int sound_rank(struct crew_member *member, const void *argument)
{
    struct toy_rank toy;
    int status = toy_rank_join(&toy, argument, member->index);
    if (status == F8_OK)
        status = toy_rank_seal(&toy);
    for (int i = 0; i < 3 && status == F8_OK; i++)
        status = toy_rank_step(&toy);
    if (status == F8_OK)
        status = toy_rank_hold(&toy, 0);
    if (status == F8_OK)
        crew_mark(member);
    toy_rank_close(&toy);
    return status != F8_OK;
}

static void kill_one(enum moment moment, unsigned *seed)
{
    struct doomed doomed = {.job = job_at(), .moment = moment, .victim_pid = victim_pid};
    struct crew crew;
    doomed.job.quiet = true;
    doomed.victim = (uint32_t)rand_r(seed) % RANKS;
    *victim_pid = 0;
    crew_start(&crew, RANKS, doomed_rank, &doomed);
    crew_await(&crew);
    pid_t pid = crew.pids[doomed.victim];
    crew_go(&crew);
    (void)nanosleep(&(struct timespec){.tv_nsec = rand_r(seed) % 20000000}, NULL);
    crew_kill(&crew, doomed.victim);
    __atomic_store_n(victim_pid, pid, __ATOMIC_RELEASE);
    crew_end(&crew, 0);
}

static void check_daemon(void)
{
    const struct toy_job job = job_at();
    struct crew crew;
    crew_start(&crew, RANKS, sound_rank, &job);
    crew_await(&crew);
    crew_go(&crew);
    crew_end(&crew, 0);
}

static void set_up(void)
{
    test_daemon_start(&daemon_, NULL);
    victim_pid =
        mmap(NULL, sizeof(*victim_pid), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(victim_pid, MAP_FAILED);
}

static void tear_down(void)
{
    (void)munmap(victim_pid, sizeof(*victim_pid));
    test_daemon_stop(&daemon_);
}

START_TEST(others_are_told_and_go_on)
{
    unsigned seed = 5;
    for (int i = 0; i < KILLS; i++)
        kill_one((enum moment)_i, &seed);
    check_daemon();
}
END_TEST

int main(void)
{
    if (!device_memory_used()) {
        printf("skipped: F8_TEST_DEVICE names no device\n");
        return 77;
    }
    TCase *tcase = tcase_create("processes");
    tcase_set_timeout(tcase, 240);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(
        tcase, others_are_told_and_go_on, WHILE_SHARDS_ARE_READ, WHILE_ARENA_IS_MAPPED + 1);
    return run_suite("trainer death", tcase);
}
