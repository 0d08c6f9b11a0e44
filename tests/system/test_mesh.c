/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several groups of a job at a real daemon: data x tensor parallel meshes whose scales follow from
 * the full weights, what is refused there and what a death does; replicas and pipeline stages,
 * which know nothing of each other. Ranks are threads of this process but for the one that dies.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lib/mesh_rank.h"
#include "lib/raw_client.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define MOST_RANKS 6

static struct test_daemon daemon_;
static struct mesh_rank ranks[MOST_RANKS];
static int outcomes[MOST_RANKS];

static void start_daemon(void)
{
    /* Without linger no state outlives its group, so that nothing is left when the daemon ends. */
    static const char *const arguments[] = {"--linger", "0", NULL};
    test_daemon_start(&daemon_, arguments);
}

static void stop_daemon(void)
{
    for (uint32_t r = 0; r < MOST_RANKS; r++)
        mesh_rank_close(&ranks[r]);
    test_daemon_stop(&daemon_);
}

typedef int rank_call(struct mesh_rank *rank);

struct errand {
    rank_call *call;
    uint32_t rank;
};

static void *run_errand(void *argument)
{
    const struct errand *errand = argument;
    outcomes[errand->rank] = errand->call(&ranks[errand->rank]);
    return NULL;
}

static struct errand errands[MOST_RANKS];
static pthread_t threads[MOST_RANKS];

/* Each rank's call on a thread of its own. */
static void start_all(uint32_t first, uint32_t end, rank_call *call)
{
    for (uint32_t r = first; r < end; r++) {
        errands[r] = (struct errand){call, r};
        ck_assert_int_eq(pthread_create(&threads[r], NULL, run_errand, &errands[r]), 0);
    }
}

static void end_all(uint32_t first, uint32_t end)
{
    for (uint32_t r = first; r < end; r++)
        ck_assert_int_eq(pthread_join(threads[r], NULL), 0);
}

static void on_all(uint32_t first, uint32_t end, rank_call *call)
{
    start_all(first, end, call);
    end_all(first, end);
}

static void must(uint32_t first, uint32_t end, rank_call *call)
{
    on_all(first, end, call);
    for (uint32_t r = first; r < end; r++)
        ck_assert_msg(
            outcomes[r] == F8_OK, "rank %u: %s: %s", r, f8_status_name(outcomes[r]), ranks[r].text);
}

static void refused(uint32_t first, uint32_t end, int status, const char *text)
{
    for (uint32_t r = first; r < end; r++) {
        ck_assert_msg(outcomes[r] == status, "rank %u: %s: %s", r, f8_status_name(outcomes[r]),
            ranks[r].text);
        ck_assert_msg(
            strstr(ranks[r].text, text), "rank %u: \"%s\" lacks \"%s\"", r, ranks[r].text, text);
    }
}

static void plan(uint32_t dp, uint32_t tp, enum mesh_mode mode)
{
    for (uint32_t r = 0; r < dp * tp; r++)
        ranks[r] = (struct mesh_rank){.number = r,
            .plan = {.socket = daemon_.socket,
                .job = "run",
                .dp = dp,
                .tp = tp,
                .mode = mode,
                .seed = 3 + dp + 5 * tp}};
}

static const struct {
    uint32_t dp, tp;
} shapes[] = {{2, 2}, {2, 3}, {3, 2}};

#define NUM_SHAPES 3
#define NUM_MODES  3

START_TEST(scales_follow_from_full_weights)
{
    uint32_t dp = shapes[_i % NUM_SHAPES].dp, tp = shapes[_i % NUM_SHAPES].tp;
    plan(dp, tp, (enum mesh_mode)(_i / NUM_SHAPES));
    for (uint32_t r = 0; r < dp * tp; r++)
        ranks[r].plan.own = dp == tp;
    must(0, dp * tp, mesh_rank_join);
    must(0, dp * tp, mesh_rank_seal);
    must(0, dp * tp, mesh_rank_steps);
}
END_TEST

/* ---- What is refused ---- */

static int seal_mesh(struct mesh_rank *rank)
{
    return mesh_rank_note(rank, f8_seal(rank->mesh, NULL));
}

static int seal_gathers(struct mesh_rank *rank)
{
    return mesh_rank_note(rank, f8_seal(rank->gathers, NULL));
}

static int precompute_gathers(struct mesh_rank *rank)
{
    f8_ticket ticket;
    return mesh_rank_note(rank, f8_precompute(rank->gathers, 0, rank->stream, &ticket) == F8_OK
                                    ? f8_wait(rank->gathers, ticket, F8_FOREVER, rank->stream)
                                    : F8_EINTERNAL);
}

START_TEST(mesh_sealed_first_is_told_the_order)
{
    plan(2, 2, MESH_IN_GATHER);
    must(0, 4, mesh_rank_join);
    on_all(0, 4, seal_mesh);
    refused(0, 4, F8_EORDER, "seal the groups first whose weights name this one");
}
END_TEST

START_TEST(gather_before_the_mesh_is_sealed)
{
    plan(2, 2, MESH_IN_GATHER);
    must(0, 4, mesh_rank_join);
    must(0, 4, seal_gathers);
    on_all(0, 4, mesh_rank_gather);
    refused(0, 2, F8_EORDER, "amax group mesh, which weights of group dp@tp=0 name, is not sealed");
    refused(2, 4, F8_EORDER, "amax group mesh, which weights of group dp@tp=1 name, is not sealed");
    must(0, 4, seal_mesh); /* nothing is broken */
    must(0, 4, mesh_rank_steps);
}
END_TEST

START_TEST(precompute_of_the_gather_group)
{
    plan(2, 2, MESH_IN_GATHER);
    must(0, 4, mesh_rank_join);
    must(0, 4, mesh_rank_seal);
    on_all(0, 4, precompute_gathers);
    refused(0, 4, F8_EINVAL, "have their amaxes taken over group mesh: ask it there");
    must(0, 4, mesh_rank_steps);
}
END_TEST

START_TEST(precompute_while_a_gather_is_open)
{
    plan(2, 2, MESH_IN_GATHER);
    must(0, 4, mesh_rank_join);
    must(0, 4, mesh_rank_seal);
    ck_assert_int_eq(f8_gather(ranks[0].gathers, 0, 0, ranks[0].stream), F8_OK);
    outcomes[0] = mesh_rank_whole(&ranks[0]);
    refused(0, 1, F8_EBUSY,
        "f8_precompute of group mesh while bucket b0 of group dp@tp=0 is being gathered: call "
        "f8_post_gather first");
}
END_TEST

static int seal_mesh_soon(struct mesh_rank *rank)
{
    return mesh_rank_note(rank, f8_seal(rank->mesh, &(struct f8_seal_options){.deadline_ms = 100}));
}

START_TEST(rank_missing_in_the_mesh)
{
    plan(2, 2, MESH_IN_GATHER);
    must(0, 4, mesh_rank_join);
    must(0, 4, seal_gathers);
    start_all(1, 3, seal_mesh);
    daemon_await_missing(&daemon_, "seal", 1U << 0 | 1U << 3);
    on_all(0, 1, seal_mesh_soon); /* the nearest deadline counts for all */
    end_all(1, 3);
    refused(0, 3, F8_EDEADLINE, "the deadline of the seal, collective 1 of group mesh, passed");
    refused(0, 3, F8_EDEADLINE, "rank 3 (pid");
    on_all(0, 4, mesh_rank_gather);
    refused(0, 4, F8_EBROKEN, "which shares amaxes with group dp@tp=");
    must(0, 4, mesh_rank_rejoin);
    must(0, 4, mesh_rank_seal);
    must(0, 4, mesh_rank_steps);
}
END_TEST

static int gather_other_bucket(struct mesh_rank *rank)
{
    uint32_t bucket = rank->number < 2 ? 0 : 1;
    int status = f8_gather(rank->gathers, bucket, 0, rank->stream);
    if (status == F8_OK)
        status = f8_post_gather(rank->gathers, bucket, F8_FOREVER, NULL, 0, rank->stream);
    return mesh_rank_note(rank, status);
}

START_TEST(opposite_order)
{
    plan(2, 2, MESH_IN_GATHER);
    must(0, 4, mesh_rank_join);
    must(0, 4, mesh_rank_seal);
    on_all(0, 4, gather_other_bucket);
    refused(0, 4, F8_EMISMATCH, " where group dp@tp=");
    refused(0, 4, F8_EMISMATCH, "and both need amaxes over group mesh");
    must(0, 4, mesh_rank_rejoin);
    must(0, 4, mesh_rank_seal);
    must(0, 4, mesh_rank_steps);
}
END_TEST

static int seal_and_continue(struct mesh_rank *rank)
{
    const struct f8_seal_options options = {.state = F8_STATE_CONTINUE, .syncs = MESH_STEPS};
    int status = f8_seal(rank->gathers, NULL);
    if (status == F8_OK)
        status = f8_seal(rank->mesh, &options);
    return mesh_rank_note(rank, status);
}

/* The state is the amax group's, and with it that of all whose weights name it. */
START_TEST(state_outlives_a_break)
{
    uint64_t syncs = 0;
    plan(2, 2, MESH_DELAYED);
    must(0, 4, mesh_rank_join);
    must(0, 4, mesh_rank_seal);
    must(0, 4, mesh_rank_steps);
    must(0, 2, mesh_rank_gather); /* not synced: forgotten */
    for (uint32_t r = 0; r < 2; r++)
        outcomes[r] = mesh_rank_note(&ranks[r], f8_gather(ranks[r].gathers, r, 0, ranks[r].stream));
    outcomes[0] = mesh_rank_note(
        &ranks[0], f8_post_gather(ranks[0].gathers, 0, F8_FOREVER, NULL, 0, ranks[0].stream));
    refused(0, 1, F8_EMISMATCH, "collective 13 of group dp@tp=0"); /* whoever came first */
    must(0, 4, mesh_rank_rejoin);
    must(0, 4, seal_and_continue);
    ck_assert_int_eq(f8_syncs(ranks[2].mesh, &syncs), F8_OK);
    ck_assert_uint_eq(syncs, MESH_STEPS);
    for (uint32_t r = 0; r < 4; r++)
        ranks[r].plan.first = MESH_STEPS;
    must(0, 4, mesh_rank_steps);
}
END_TEST

/* ---- A death ---- */

static int victims_life(void *argument)
{
    struct mesh_rank *rank = &ranks[3];
    const int *ready = argument;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = mesh_rank_join(rank);
    if (status == F8_OK)
        status = mesh_rank_seal(rank);
    if (status == F8_OK)
        status = mesh_rank_steps(rank);
    if (write(*ready, status == F8_OK ? "+" : "-", 1) != 1)
        return EXIT_FAILURE;
    for (;;)
        (void)pause();
}

static int live_until_there(struct mesh_rank *rank)
{
    int status = mesh_rank_seal(rank);
    return status == F8_OK ? mesh_rank_steps(rank) : status;
}

/* Forks rank 3 first, as fork wants it: this process has no threads then. */
static pid_t start_with_victim(enum mesh_mode mode)
{
    int ready[2];
    char byte = 0;
    plan(2, 2, mode);
    ck_assert_int_eq(pipe(ready), 0);
    pid_t victim = test_fork(victims_life, &ready[1]);
    must(0, 3, mesh_rank_join);
    must(0, 3, live_until_there);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(byte, '+');
    (void)close(ready[0]);
    (void)close(ready[1]);
    return victim;
}

static void kill_victim(pid_t victim)
{
    ck_assert_int_eq(kill(victim, SIGKILL), 0);
    ck_assert_int_eq(test_wait(victim), -SIGKILL);
}

/* All come back, rank 3 as another process's thread, and begin afresh: seeds and all. */
static void begin_anew(void)
{
    must(3, 4, mesh_rank_join);
    must(0, 3, mesh_rank_rejoin);
    for (uint32_t r = 0; r < 4; r++)
        ranks[r].plan.seed += 1;
    must(0, 4, mesh_rank_seal);
    must(0, 4, mesh_rank_steps);
}

START_TEST(death_breaks_all_groups)
{
    char who[64];
    pid_t victim = start_with_victim((enum mesh_mode)_i);
    kill_victim(victim);
    (void)snprintf(who, sizeof(who), "rank 3 (pid %d) died", (int)victim);
    on_all(0, 3, mesh_rank_whole);
    for (uint32_t r = 0; r < 3; r++) /* asked before the daemon knew of it, or after */
        refused(r, r + 1, outcomes[r] == F8_EBROKEN ? F8_EBROKEN : F8_ERANKDEAD, who);
    on_all(0, 3, mesh_rank_gather);
    (void)snprintf(who, sizeof(who), "(pid %d) died", (int)victim);
    refused(0, 3, F8_EBROKEN, who);
    begin_anew();
}
END_TEST

/* Ranks 0 and 1 wait in the exchange, rank 2 for its gather, when rank 3 dies. */
START_TEST(death_in_the_exchange)
{
    char who[64];
    pid_t victim = start_with_victim(MESH_IN_GATHER);
    for (uint32_t r = 0; r < 3; r++)
        ck_assert_int_eq(f8_gather(ranks[r].gathers, 0, 0, ranks[r].stream), F8_OK);
    kill_victim(victim);
    (void)snprintf(who, sizeof(who), "(pid %d) died", (int)victim);
    for (uint32_t r = 0; r < 3; r++)
        outcomes[r] = mesh_rank_note(
            &ranks[r], f8_post_gather(ranks[r].gathers, 0, F8_FOREVER, NULL, 0, ranks[r].stream));
    for (uint32_t r = 0; r < 3; r++) /* read by the daemon before it knew of the death, or after */
        refused(r, r + 1, outcomes[r] == F8_EBROKEN ? F8_EBROKEN : F8_ERANKDEAD, who);
    begin_anew();
}
END_TEST

/* ---- Groups that share nothing ---- */

/* Two replicas of a sharded model: gather groups of two ranks each, without an amax group. */
START_TEST(replicas_take_no_part)
{
    plan(2, 2, MESH_IN_GATHER);
    for (uint32_t r = 0; r < 4; r++) {
        /* A mesh of one tensor parallel part is a replica: another job's name is not needed, as the
           groups are told apart by theirs. */
        ranks[r].plan.tp = 1;
        ranks[r].plan.replica = r / 2 + 1;
        ranks[r].plan.seed = r / 2;
        ranks[r].number = r % 2;
    }
    must(0, 4, mesh_rank_join);
    must(0, 2, mesh_rank_seal); /* neither waits for the other */
    must(0, 2, mesh_rank_steps);
    must(2, 4, mesh_rank_seal);
    must(0, 4, mesh_rank_steps); /* other values, other scales */
    mesh_rank_close(&ranks[0]);
    must(2, 4, mesh_rank_steps);
    on_all(1, 2, mesh_rank_gather);
    refused(1, 2, F8_EBROKEN, "left");
}
END_TEST

/* Two stages a client: that one waits does not hold up the other. */
START_TEST(stages_do_not_wait_for_each_other)
{
    static struct mesh_rank stages[2];
    plan(2, 1, MESH_PRECOMPUTE);
    must(0, 2, mesh_rank_join);
    must(0, 2, mesh_rank_seal);
    for (uint32_t r = 0; r < 2; r++) {
        stages[r] = ranks[r];
        stages[r].plan.replica = 7;
        ck_assert_int_eq(mesh_rank_join(&stages[r]), F8_OK);
    }
    struct mesh_rank first[2] = {ranks[0], ranks[1]};
    ranks[0] = stages[0];
    ranks[1] = stages[1];
    must(0, 2, mesh_rank_seal);
    ck_assert_int_eq(
        f8_gather(first[0].gathers, 0, 0, first[0].stream), F8_OK); /* waits for rank 1 */
    must(0, 2, mesh_rank_steps);
    int done = 1;
    ck_assert_int_eq(f8_gather_test(first[0].gathers, 0, &done), F8_OK);
    ck_assert_int_eq(done, 0);
    ck_assert_int_eq(f8_gather(first[1].gathers, 0, 0, first[1].stream), F8_OK);
    for (uint32_t r = 0; r < 2; r++) {
        ck_assert_int_eq(
            f8_post_gather(first[r].gathers, 0, F8_FOREVER, NULL, 0, first[r].stream), F8_OK);
        ck_assert_int_eq(f8_release(first[r].gathers, 0, first[r].stream), F8_OK);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("mesh");
    TCase *tcase = tcase_create("mesh");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, start_daemon, stop_daemon);
    tcase_add_loop_test(tcase, scales_follow_from_full_weights, 0, NUM_SHAPES * NUM_MODES);
    tcase_add_test(tcase, mesh_sealed_first_is_told_the_order);
    tcase_add_test(tcase, gather_before_the_mesh_is_sealed);
    tcase_add_test(tcase, precompute_of_the_gather_group);
    tcase_add_test(tcase, precompute_while_a_gather_is_open);
    tcase_add_test(tcase, rank_missing_in_the_mesh);
    tcase_add_test(tcase, opposite_order);
    tcase_add_test(tcase, state_outlives_a_break);
    tcase_add_loop_test(tcase, death_breaks_all_groups, 0, NUM_MODES);
    tcase_add_test(tcase, death_in_the_exchange);
    tcase_add_test(tcase, replicas_take_no_part);
    tcase_add_test(tcase, stages_do_not_wait_for_each_other);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return run_cases(make_suite());
}
