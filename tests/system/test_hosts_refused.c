/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of several hosts that are at odds, or of which one does not come: all of them, on every
 * host, are told what is wrong and with whom, by name of the host, rank and pid; and the group can
 * be joined again. Ranks 0 and 1 are on host0, ranks 2 and 3 on host1.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/host_ranks.h"
#include "lib/suite.h"

#define WORLD 4

static struct test_hosts hosts;
static struct host_ranks ranks;

static void start(void)
{
    static const char *const arguments[] = {"--linger", "0", "--world-deadline", "2", NULL};
    test_hosts_start(&hosts, 2, arguments);
    host_ranks_init(&ranks, &host_plan_small, &hosts, 2);
}

static void stop(void)
{
    host_ranks_end(&ranks);
    test_hosts_stop(&hosts);
}

/* All have failed so, and the text names the rank as its own host and as the other one sees it. */
static void all_failed(int status, uint32_t culprit, const char *text)
{
    char who[64];
    (void)snprintf(who, sizeof(who), "rank %u (pid %d", culprit, (int)getpid());
    host_ranks_failed(&ranks, 0, WORLD, status, who);
    host_ranks_failed(&ranks, 0, WORLD, status, " on host host");
    host_ranks_failed(&ranks, 0, WORLD, status, text);
}

/* The same of those who may ask once the group is broken already: they are told of the same cause.
 */
static void told(uint32_t first, uint32_t end, int status, const char *text)
{
    for (uint32_t r = first; r < end; r++)
        host_ranks_failed(
            &ranks, r, r + 1, ranks.ranks[r].status == F8_EBROKEN ? F8_EBROKEN : status, text);
}

/* The group goes on. */
static void must_go_on(void)
{
    host_ranks_must(&ranks, 0, WORLD, host_rank_rejoin);
    host_ranks_must(&ranks, 0, WORLD, host_rank_seal);
    host_ranks_must(&ranks, 0, WORLD, host_rank_step);
    host_ranks_must(&ranks, 0, WORLD, host_rank_step);
}

/* These have the lists of another model, as they have after an update of one host alone. */
static void give_plan(uint32_t first, uint32_t end, const struct host_plan *other)
{
    for (uint32_t r = first; r < end; r++)
        ranks.ranks[r].plan = other;
}

static void close_all(void)
{
    host_ranks_must(&ranks, 0, WORLD, host_rank_close);
    give_plan(0, WORLD, &ranks.plan);
    host_ranks_new_id(&ranks);
}

START_TEST(registrations_that_differ)
{
    static const struct {
        uint32_t first; /* of the ranks that differ, up to the last */
        uint32_t rows, cols, buckets;
        enum f8_flavour flavour;
        const char *text;
    } others[] = {
        {2, 17, 10, 2, F8_DYNAMIC, "weight layers.0.w.0 as float32 [17, 10]"},
        {3, 17, 10, 2, F8_DYNAMIC, "weight layers.0.w.0 as float32 [17, 10]"},
        {2, 17, 9, 2, F8_DELAYED, "weight layers.0.w.0 as float32 [17, 9] delayed"},
        {2, 17, 9, 3, F8_DYNAMIC, "registered 12 weights where"},
    };
    struct host_plan other = host_plan_small;
    char who[64];
    other.rows = others[_i].rows;
    other.cols = others[_i].cols;
    other.buckets = others[_i].buckets;
    other.flavour = others[_i].flavour;
    give_plan(others[_i].first, WORLD, &other);
    host_ranks_must(&ranks, 0, WORLD, host_rank_join);
    host_ranks_all(&ranks, 0, WORLD, host_rank_seal);
    host_ranks_failed(&ranks, 0, WORLD, F8_EMISMATCH, others[_i].text);
    (void)snprintf(who, sizeof(who), "rank %u (pid %d", others[_i].first, (int)getpid());
    host_ranks_failed(&ranks, 0, WORLD, F8_EMISMATCH, who);
    host_ranks_failed(&ranks, 0, 2, F8_EMISMATCH, "host1");
    close_all(); /* lists stay as long as their ranks do */
    host_ranks_start(&ranks);
    host_ranks_must(&ranks, 0, WORLD, host_rank_step);
}
END_TEST

START_TEST(options_of_the_seal_that_differ)
{
    static const struct {
        struct f8_seal_options seal;
        const char *text;
    } others[] = {
        {{.slots = 1}, "sealed with 1 slots where"},
        {{.slots = 2, .poison = 1}, "sealed with poison where"},
        {{.slots = 2, .state = F8_STATE_CONTINUE}, "sealed with the stored state of sync 0 where"},
    };
    struct host_plan other = host_plan_small;
    other.seal = others[_i].seal;
    host_ranks_must(&ranks, 0, WORLD, host_rank_join);
    give_plan(2, WORLD, &other);
    host_ranks_all(&ranks, 0, WORLD, host_rank_seal);
    all_failed(F8_EMISMATCH, 2, others[_i].text);
    give_plan(2, WORLD, &ranks.plan);
    must_go_on();
}
END_TEST

static int gather_or_precompute(struct host_rank *rank)
{
    return rank->number < 2 ? host_rank_gather(rank) : host_rank_precompute(rank);
}

static int gather_own_bucket(struct host_rank *rank)
{
    int status = f8_gather(rank->group, rank->host, 0, NULL);
    return status == F8_OK ? f8_post_gather(rank->group, rank->host, F8_FOREVER, NULL, 0, NULL)
                           : status;
}

/* Whoever comes second is at odds; on each host that may be another. */
START_TEST(collectives_that_differ)
{
    host_ranks_start(&ranks);
    host_ranks_all(&ranks, 0, WORLD, _i == 0 ? gather_or_precompute : gather_own_bucket);
    told(0, WORLD, F8_EMISMATCH, " asked for gather of layers.0");
    told(0, WORLD, F8_EMISMATCH,
        _i == 0 ? " asked for precompute" : " asked for gather of layers.1");
    told(0, WORLD, F8_EMISMATCH, " on host host");
    must_go_on();
}
END_TEST

static int change_on_host1(struct host_rank *rank)
{
    int status = rank->host == 1 ? f8_changed(rank->group, 2, 1) : F8_OK;
    return status == F8_OK ? host_rank_gather(rank) : status;
}

START_TEST(versions_that_differ)
{
    host_ranks_start(&ranks);
    host_ranks_must(&ranks, 0, WORLD, host_rank_step);
    host_ranks_all(&ranks, 0, WORLD, change_on_host1);
    all_failed(F8_EMISMATCH, 2, "weight layers.0.norm.2: rank 2 (pid ");
    all_failed(F8_EMISMATCH, 0, " is at version ");
    must_go_on();
}
END_TEST

/* ---- who does not come ---- */

static int seal_soon(struct host_rank *rank)
{
    struct f8_seal_options options = rank->plan->seal;
    options.deadline_ms = 4000;
    return f8_seal(rank->group, &options);
}

START_TEST(a_host_that_does_not_come)
{
    host_ranks_must(&ranks, 0, 2, host_rank_join);
    host_ranks_all(&ranks, 0, 2, host_rank_seal);
    host_ranks_failed(&ranks, 0, 2, F8_EDEADLINE, "world of group run/dp: 2 of 4 ranks missing");
    host_ranks_failed(&ranks, 0, 2, F8_EDEADLINE, "ranks 2, 3; there are host host0 (");
    host_ranks_failed(&ranks, 0, 2, F8_EDEADLINE, ": ranks 0, 1)");
    close_all();
    host_ranks_start(&ranks);
    host_ranks_must(&ranks, 0, WORLD, host_rank_step);
}
END_TEST

/* Its host waits for it, and the others for its host. */
START_TEST(a_rank_that_does_not_come)
{
    host_ranks_must(&ranks, 0, 3, host_rank_join);
    host_ranks_all(&ranks, 0, 3, seal_soon);
    host_ranks_failed(&ranks, 0, 2, F8_EDEADLINE, "2 of 4 ranks missing");
    host_ranks_failed(&ranks, 0, 2, F8_EDEADLINE, "ranks 2, 3; there are host host0 (");
    host_ranks_failed(
        &ranks, 2, 3, F8_EDEADLINE, "1 of the 2 ranks that it is to have on this host have joined");
    close_all();
    host_ranks_start(&ranks);
    host_ranks_must(&ranks, 0, WORLD, host_rank_step);
}
END_TEST

/* Rank 3 does not take part in what the others ask for with a short deadline. */
static void miss(host_rank_call *call)
{
    char who[64];
    for (uint32_t r = 0; r < WORLD; r++)
        ranks.ranks[r].deadline_ms = 300;
    host_ranks_all(&ranks, 0, 3, call);
    (void)snprintf(who, sizeof(who), "rank 3 (pid %d", (int)getpid());
    told(0, 3, F8_EDEADLINE, "the deadline of ");
    told(0, 3, F8_EDEADLINE, who);
    told(0, 3, F8_EDEADLINE, " did not ask for it");
    told(0, 2, F8_EDEADLINE, "host1");
    for (uint32_t r = 0; r < WORLD; r++)
        ranks.ranks[r].deadline_ms = 0;
    host_ranks_all(&ranks, 3, WORLD, call);
    host_ranks_failed(&ranks, 3, WORLD, F8_EBROKEN, who); /* it comes too late */
}

static int seal_with_deadline(struct host_rank *rank)
{
    struct f8_seal_options options = rank->plan->seal;
    options.deadline_ms = rank->deadline_ms;
    return f8_seal(rank->group, &options);
}

START_TEST(a_rank_that_is_missing_in_a_round)
{
    host_ranks_start(&ranks);
    miss(host_rank_gather);
    must_go_on();
    miss(host_rank_precompute);
    host_ranks_must(&ranks, 0, WORLD, host_rank_rejoin);
    miss(seal_with_deadline);
    must_go_on();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("hosts_refused");
    TCase *cases = tcase_create("hosts_refused");
    tcase_add_checked_fixture(cases, start, stop);
    tcase_add_loop_test(cases, registrations_that_differ, 0, 4);
    tcase_add_loop_test(cases, options_of_the_seal_that_differ, 0, 3);
    tcase_add_loop_test(cases, collectives_that_differ, 0, 2);
    tcase_add_test(cases, versions_that_differ);
    tcase_add_test(cases, a_host_that_does_not_come);
    tcase_add_test(cases, a_rank_that_does_not_come);
    tcase_add_test(cases, a_rank_that_is_missing_in_a_round);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    return test_hosts_possible() ? run_cases(make_suite()) : TEST_HOSTS_SKIP;
}
