/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A path between two hosts that loses all packets, while both reach the third, where the daemons'
 * root is, so that no daemon misses another: each rank is told of the two hosts, and those at one
 * end of the path of the other end. Rank r is on host r.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/host_ranks.h"
#include "lib/suite.h"

#define WORLD 3

static struct test_hosts hosts;
static struct host_ranks ranks;

static const struct host_plan plan = {.world = WORLD,
    .buckets = 2,
    .weights = 2,
    .rows = 17,
    .cols = 9,
    .flavour = F8_DYNAMIC,
    .precompute = true,
    .seal.slots = 2};

static void start(void)
{
    static const char *const arguments[] = {
        "--linger", "0", "--deadline", "20", "--heartbeat", "300", "--host-timeout", "2000", NULL};
    test_hosts_start(&hosts, WORLD, arguments);
    host_ranks_init(&ranks, &plan, &hosts, WORLD);
}

static void stop(void)
{
    host_ranks_end(&ranks);
    test_hosts_stop(&hosts);
}

static void part(void)
{
    struct bench_error error;
    ck_assert_msg(network_part(hosts.network, 1, 2, &error) == 0, "%s", error.text);
}

/* No rank is said to be missing: all asked for what hangs. */
static void all_know_the_path(void)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        const struct host_rank *rank = &ranks.ranks[r];
        ck_assert_msg(rank->status != F8_OK && rank->status != F8_EBROKEN &&
                          (r == 1 || strstr(rank->text, "host host1")) &&
                          (r == 2 || strstr(rank->text, "host host2")) &&
                          !strstr(rank->text, "did not ask"),
            "rank %u: %s: %s", r, f8_status_name(rank->status), rank->text);
    }
}

static int gather_on(struct host_rank *rank)
{
    int status = F8_OK;
    while (status == F8_OK)
        status = host_rank_step(rank);
    return status;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

START_TEST(it_is_dead_before_the_seal)
{
    host_ranks_must(&ranks, 0, WORLD, host_rank_join);
    ranks.plan.seal.deadline_ms = 3000;
    part();
    host_ranks_all(&ranks, 0, WORLD, host_rank_seal);
    all_know_the_path();
}
END_TEST

START_TEST(it_dies_and_the_deadline_comes_first)
{
    host_ranks_start(&ranks);
    host_ranks_must(&ranks, 0, WORLD, host_rank_step);
    for (uint32_t r = 0; r < WORLD; r++)
        ranks.ranks[r].deadline_ms = 1500;
    part();
    host_ranks_all(&ranks, 0, WORLD, gather_on);
    all_know_the_path();
}
END_TEST

START_TEST(it_dies_long_before_the_deadline)
{
    host_ranks_start(&ranks);
    host_ranks_must(&ranks, 0, WORLD, host_rank_step);
    part();
    uint64_t began = now_ms();
    host_ranks_all(&ranks, 0, WORLD, gather_on);
    all_know_the_path();
    ck_assert_uint_ge(now_ms() - began, 2000);
    ck_assert_uint_lt(now_ms() - began, 15000);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("hosts_path");
    TCase *cases = tcase_create("hosts_path");
    tcase_add_checked_fixture(cases, start, stop);
    tcase_add_test(cases, it_is_dead_before_the_seal);
    tcase_add_test(cases, it_dies_and_the_deadline_comes_first);
    tcase_add_test(cases, it_dies_long_before_the_deadline);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    return test_hosts_possible() ? run_cases(make_suite()) : TEST_HOSTS_SKIP;
}
