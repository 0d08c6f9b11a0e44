/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One gathered copy per host: the arena's Pss, which the kernel divides among those that map a
 * page, is summed over the daemon and all ranks after every rank has read every view. It must be
 * one unsharded float8 model, or the slots; also on a kernel without MADV_COLLAPSE.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/crew.h"
#include "lib/proc.h"
#include "lib/shim.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"

#define ARENA "memfd:f8gather-arena"
#define RANKS 4

#ifdef F8_SANITIZED /* an order of magnitude slower */
#define COLS 64
#else
#define COLS 1024
#endif

/* 32 MiB of float8; 1021 rows so that the last rank has padding. */
static struct toy_job model(const struct test_daemon *daemon, uint32_t slots)
{
    return (struct toy_job){.socket = daemon->socket,
        .name = "one-copy",
        .ranks = RANKS,
        .buckets = 8,
        .weights = 4,
        .rows = 1021,
        .cols = COLS,
        .flavour = F8_DYNAMIC,
        .slots = slots,
        .precompute = true};
}

/* Own places: holds all buckets at the mark. Slots: as many as there are at a time, to the last. */
static int rank(struct crew_member *member, const void *argument)
{
    const struct toy_job *job = argument;
    struct toy_rank toy;
    int status = toy_rank_join(&toy, job, member->index);
    if (status == 0)
        status = toy_rank_seal(&toy);
    for (uint32_t b = 0; status == 0 && b < job->buckets; b++) {
        status = toy_rank_hold(&toy, b);
        if (status == 0 && job->slots > 0 && b + 1 >= job->slots)
            status = f8_release(toy.group, b + 1 - job->slots, toy.stream);
    }
    if (status == 0)
        crew_mark(member);
    toy_rank_close(&toy);
    return status != 0;
}

/* Adds the arena of one process; it must be the one file, mapped once and whole. */
static uint64_t add_arena(pid_t pid, uint64_t bytes, uint64_t *inode)
{
    struct proc_mapping arena = proc_find_mapping(pid, ARENA);
    ck_assert_msg(arena.inode != 0, "process %d maps no arena", (int)pid);
    ck_assert_msg(*inode == 0 || *inode == arena.inode, "process %d maps another arena", (int)pid);
    ck_assert_uint_eq(arena.count, 1);
    ck_assert_uint_eq(arena.size, bytes);
    *inode = arena.inode;
    return arena.pss_kb;
}

/* Besides the arena and the shards nothing of the model's size may lie anywhere. */
static void check_anonymous(pid_t pid, uint64_t bytes)
{
    (void)pid;
    (void)bytes;
#ifndef F8_SANITIZED /* whose shadow memory is anonymous and large */
    ck_assert_uint_lt(proc_holdings(pid).anon_kb * 1024, bytes / 4);
#endif
}

static void check_one_copy(const char *title, uint32_t slots)
{
    struct test_daemon daemon;
    test_daemon_start(&daemon, NULL);
    const struct toy_job job = model(&daemon, slots);
    uint64_t bytes = toy_arena_bytes(&job), inode = 0;
    struct crew crew;
    crew_start(&crew, RANKS, rank, &job);
    crew_await(&crew);
    const char *shim = getenv("LD_PRELOAD");
    if (shim)
        ck_assert_msg(proc_find_mapping(daemon.pid, shim).count > 0, "the daemon has no shim");
    uint64_t pss_kb = add_arena(daemon.pid, bytes, &inode);
    check_anonymous(daemon.pid, toy_model_bytes(&job));
    for (uint32_t i = 0; i < RANKS; i++) {
        pss_kb += add_arena(crew.pids[i], bytes, &inode);
        check_anonymous(crew.pids[i], toy_model_bytes(&job));
    }
    crew_go(&crew);
    crew_end(&crew, 0);
    test_daemon_stop(&daemon);

    printf("%s: Pss of the arena over %d processes %llu KiB; arena %llu KiB, model in float8 %llu "
           "KiB\n",
        title, RANKS + 1, (unsigned long long)pss_kb, (unsigned long long)(bytes / 1024),
        (unsigned long long)(toy_model_bytes(&job) / 1024));
    /* The kernel rounds each process's share down to a KiB; a page each is granted. */
    ck_assert_uint_le(pss_kb * 1024, bytes);
    ck_assert_uint_ge(pss_kb * 1024 + (RANKS + 1) * 4096, bytes);
    if (slots == 0) /* all that is not the model: padding and scales, at most two pages a weight */
        ck_assert_uint_le(
            bytes, toy_model_bytes(&job) + (uint64_t)job.buckets * (job.weights * 2 + 1) * 4096);
}

START_TEST(own_places)
{
    check_one_copy("own places", 0);
}
END_TEST

START_TEST(two_slots)
{
    check_one_copy("2 slots", 2);
}
END_TEST

/* The daemon, which alone prepares the pages of the arena, finds a kernel without the advice. */
static void use_old_kernel(void)
{
    shim_preload(F8_SHIM_OLD_KERNEL);
}

START_TEST(own_places_on_an_old_kernel)
{
    check_one_copy("own places, no MADV_COLLAPSE", 0);
}
END_TEST

START_TEST(two_slots_on_an_old_kernel)
{
    check_one_copy("2 slots, no MADV_COLLAPSE", 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("one copy");
    TCase *current = tcase_create("this kernel");
    TCase *old = tcase_create("old kernel");
    tcase_set_timeout(current, 120);
    tcase_set_timeout(old, 120);
    tcase_add_test(current, own_places);
    tcase_add_test(current, two_slots);
    tcase_add_checked_fixture(old, use_old_kernel, shim_unload);
    tcase_add_test(old, own_places_on_an_old_kernel);
    tcase_add_test(old, two_slots_on_an_old_kernel);
    suite_add_tcase(suite, current);
    suite_add_tcase(suite, old);
    return run_cases(suite);
}
