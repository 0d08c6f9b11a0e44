/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When something ends, nothing of it is left: memory, descriptors, mappings, threads, files. The
 * daemon is compared with itself after a few cycles, many cycles and many killed ranks; a killed
 * daemon leaves a socket, its lock and a log, which the next one takes over.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/crew.h"
#include "lib/device_memory.h"
#include "lib/proc.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"

#define ARENA       "memfd:f8gather-arena"
#define RANKS       4
#define WARM_CYCLES 5
#ifdef F8_SANITIZED /* several times slower */
#define CYCLES 20
#define KILLS  15
#else
#define CYCLES 100
#define KILLS  60
#endif

/* The allocator may keep pages that it has used once. */
#define ANON_TOLERANCE_KB 2048

static struct toy_job job_at(const struct test_daemon *daemon)
{
    return (struct toy_job){.socket = daemon->socket,
        .name = "leftovers",
        .ranks = RANKS,
        .buckets = 4,
        .weights = 3,
        .rows = 509,
        .cols = 256,
        .flavour = F8_DYNAMIC,
        .slots = 2,
        .precompute = true,
        .pre_gather = true};
}

static struct proc_holdings show(const struct test_daemon *daemon, const char *when)
{
    proc_await_sleep(daemon->pid);
    struct proc_holdings now = proc_holdings(daemon->pid);
    printf("%s: %u descriptors, %u mappings, %u threads, %llu KiB anonymous, %llu KiB shared\n",
        when, now.descriptors, now.mappings, now.threads, (unsigned long long)now.anon_kb,
        (unsigned long long)now.shmem_kb);
    return now;
}

static void check_same(const struct proc_holdings *before, const struct proc_holdings *after)
{
    ck_assert_uint_eq(after->descriptors, before->descriptors);
    ck_assert_uint_eq(after->threads, before->threads);
    if (device_memory_used()) /* simulators keep things: test_cuda_leftovers asks them themselves */
        return;
    ck_assert_uint_eq(after->shmem_kb, before->shmem_kb);
#ifndef F8_SANITIZED /* whose allocators map and keep as they like */
    ck_assert_uint_le(after->mappings, before->mappings);
    ck_assert_uint_le(after->anon_kb, before->anon_kb + ANON_TOLERANCE_KB);
#endif
}

/* Connect, join, seal, step, leave; a mark before each cycle and after the last. */
static int cycling_rank(struct crew_member *member, const void *argument)
{
    const struct toy_job *job = argument;
    int status = 0;
    for (int i = 0; status == 0 && i < WARM_CYCLES + CYCLES; i++) {
        struct toy_rank toy;
        crew_mark(member);
        status = toy_rank_join(&toy, job, member->index);
        if (status == 0)
            status = toy_rank_seal(&toy);
        if (status == 0)
            status = toy_rank_step(&toy);
        if (status == 0)
            crew_mark(member); /* the first to leave would break it for the others */
        toy_rank_close(&toy);
    }
    if (status == 0)
        crew_mark(member);
    return status != 0;
}

START_TEST(cycles_leave_nothing)
{
    struct test_daemon daemon;
    struct proc_holdings warm = {0};
    test_daemon_start(&daemon, NULL);
    const struct toy_job job = job_at(&daemon);
    struct crew crew;
    crew_start(&crew, RANKS, cycling_rank, &job);
    for (int i = 0; i < WARM_CYCLES + CYCLES; i++) {
        crew_await(&crew);
        if (i == WARM_CYCLES)
            warm = show(&daemon, "after the first cycles");
        crew_go(&crew);
        crew_await(&crew);
        crew_go(&crew);
    }
    crew_await(&crew);
    struct proc_holdings end = show(&daemon, "after all cycles");
    check_same(&warm, &end);
    crew_go(&crew);
    crew_end(&crew, 0);
    test_daemon_stop(&daemon);
}
END_TEST

/* A job whose ranks will die, and the pipe by which children that they leave behind live. */
struct doomed {
    struct toy_job job;
    int alive[2];
    bool leave_child;
};

/* A data loader's worker, say: holds all of its parent's descriptors until the test lets it go. */
static void leave_child(const struct doomed *doomed)
{
    char end;
    if (fork() != 0)
        return;
    (void)read(doomed->alive[0], &end, 1);
    _exit(0);
}

/* Seals, comes to the mark, and steps until the death of another rank ends it. */
static int doomed_rank(struct crew_member *member, const void *argument)
{
    const struct doomed *doomed = argument;
    struct toy_rank toy;
    (void)close(doomed->alive[1]);
    int status = toy_rank_join(&toy, &doomed->job, member->index);
    if (status == 0 && doomed->leave_child)
        leave_child(doomed);
    if (status == 0)
        status = toy_rank_seal(&toy);
    if (status == 0)
        crew_mark(member);
    while (status == 0)
        status = toy_rank_step(&toy);
    bool expected = status == F8_ERANKDEAD || status == F8_EBROKEN;
    if (!expected)
        (void)fprintf(stderr, "rank %u ended with %s: %s\n", member->index, f8_status_name(status),
            f8_error_text());
    toy_rank_close(&toy);
    return expected ? 0 : 1;
}

static void wait_a_moment(unsigned int *seed)
{
    struct timespec moment = {.tv_nsec = rand_r(seed) % 4000000};
    (void)nanosleep(&moment, NULL);
}

/* Kills one of four ranks at a random moment; its group ends, its child may live on. */
static void kill_one(const struct test_daemon *daemon, unsigned int *seed, bool child,
    const struct proc_holdings *before)
{
    struct doomed doomed = {.job = job_at(daemon), .leave_child = child};
    struct crew crew;
    doomed.job.quiet = true;
    ck_assert_int_eq(pipe2(doomed.alive, O_CLOEXEC), 0);
    crew_start(&crew, RANKS, doomed_rank, &doomed);
    crew_await(&crew);
    crew_go(&crew);
    wait_a_moment(seed);
    crew_kill(&crew, (uint32_t)rand_r(seed) % RANKS);
    crew_end(&crew, 0);
    if (child && before) { /* though the children still hold the sockets */
        proc_await_sleep(daemon->pid);
        ck_assert_uint_eq(proc_holdings(daemon->pid).descriptors, before->descriptors);
    }
    (void)close(doomed.alive[0]);
    (void)close(doomed.alive[1]);
}

START_TEST(killed_ranks_leave_nothing)
{
    struct test_daemon daemon;
    unsigned int seed = 1;
    test_daemon_start(&daemon, NULL);
    for (int i = 0; i < WARM_CYCLES; i++)
        kill_one(&daemon, &seed, false, NULL);
    struct proc_holdings warm = show(&daemon, "after the first killed ranks");
    for (int i = 0; i < KILLS; i++)
        kill_one(&daemon, &seed, i % 3 == 0, &warm);
    struct proc_holdings end = show(&daemon, "after all killed ranks");
    check_same(&warm, &end);
    test_daemon_stop(&daemon);
}
END_TEST

/* Steps until the daemon's death ends it. */
static int orphaned_rank(struct crew_member *member, const void *argument)
{
    const struct toy_job *job = argument;
    struct toy_rank toy;
    int status = toy_rank_join(&toy, job, member->index);
    if (status == 0)
        status = toy_rank_seal(&toy);
    if (status == 0) {
        crew_mark(member);
        do
            status = toy_rank_step(&toy);
        while (status == 0);
    }
    if (status != F8_ECONN)
        (void)fprintf(stderr, "rank %u ended with %s: %s\n", member->index, f8_status_name(status),
            f8_error_text());
    toy_rank_close(&toy);
    return status == F8_ECONN ? 0 : 1;
}

/* Whether the daemon's directory holds its socket, the lock of it and the log, and nothing else. */
static bool only_its_own(const struct test_daemon *daemon)
{
    DIR *directory = opendir(daemon->directory);
    uint32_t known = 0, others = 0;
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (strcmp(entry->d_name, "s") == 0 || strcmp(entry->d_name, "s.lock") == 0 ||
            strcmp(entry->d_name, "log") == 0)
            known++;
        else
            others++;
    }
    (void)closedir(directory);
    return known == 3 && others == 0;
}

START_TEST(killed_daemon_leaves_nothing)
{
    struct test_daemon daemon;
    struct crew crew;
    test_daemon_start(&daemon, NULL);
    struct toy_job job = job_at(&daemon);
    job.quiet = true;
    crew_start(&crew, RANKS, orphaned_rank, &job);
    crew_await(&crew);
    uint64_t inode = proc_find_mapping(daemon.pid, ARENA).inode;
    ck_assert_int_eq(inode == 0, device_memory_used());
    if (inode != 0)
        ck_assert_uint_eq(proc_count_holders(ARENA, inode), RANKS + 1);
    crew_go(&crew);
    test_daemon_kill(&daemon);
    crew_end(&crew, 0);
    if (inode != 0)
        ck_assert_uint_eq(proc_count_holders(ARENA, inode), 0);
    ck_assert(only_its_own(&daemon));
    test_daemon_restart(&daemon, NULL);
    ck_assert(only_its_own(&daemon));
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
    /* glibc gives each worker an arena at its first malloc, whenever that is: two mappings that are
     * not a leak. */
    (void)setenv("MALLOC_ARENA_MAX", "1", 1);
    TCase *tcase = tcase_create("daemon and ranks");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, cycles_leave_nothing);
    tcase_add_test(tcase, killed_ranks_leave_nothing);
    tcase_add_test(tcase, killed_daemon_leaves_nothing);
    return run_suite("leftovers", tcase);
}
