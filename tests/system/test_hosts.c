/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups over several hosts that do what they are for: every byte and scale is that of the same
 * ranks on one host, whatever is gathered and however the ranks lie; a precompute is one reduction;
 * no more passes the network than must; and many groups work side by side.
 */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "lib/host_ranks.h"
#include "lib/suite.h"

static struct test_hosts hosts;
static struct host_ranks ranks, alone;

static void start(void)
{
    /* Without linger no state outlives its group. */
    static const char *const arguments[] = {"--linger", "0", NULL};
    test_hosts_start(&hosts, TEST_HOSTS_MAX, arguments);
}

static void stop(void)
{
    test_hosts_stop(&hosts);
}

/* Uneven: with 5 or 6 ranks the last shard is short, with 7 the last rank has none. */
#define ROWS 17
/* Of 6 ranks: 2, 2, 2, 2, 1, and the last has none. */
#define ROWS_OF_5 9
#define COLS      9

static const struct host_plan plans[] = {
    {.world = 2, .flavour = F8_DYNAMIC},
    {.world = 2, .flavour = F8_DYNAMIC, .precompute = true},
    {.world = 5, .flavour = F8_DYNAMIC},
    {.world = 5, .flavour = F8_DYNAMIC, .dealt = true, .seal.slots = 2},
    {.world = 5, .flavour = F8_DYNAMIC, .dealt = true, .precompute = true, .seal.slots = 2},
    {.world = 7, .flavour = F8_DYNAMIC, .seal.slots = 2},
    {.world = 5, .flavour = F8_DELAYED, .sync = true},
    {.world = 7, .flavour = F8_DELAYED, .sync = true, .dealt = true, .seal.slots = 2},
    {.world = 5, .flavour = F8_DELAYED, .sync = true, .seal = {.slots = 2, .poison = 1}},
    {.world = 5, .flavour = F8_STATIC, .dealt = true, .seal.slots = 2},
    {.world = 7, .flavour = F8_RAW_BF16},
    /* Of 3 hosts each has 2. */
    {.world = 6, .flavour = F8_DYNAMIC, .seal.slots = 2},
    {.world = 6, .flavour = F8_DYNAMIC, .rows = ROWS_OF_5, .dealt = true},
    {.world = 6, .flavour = F8_DYNAMIC, .rows = ROWS_OF_5, .precompute = true},
    {.world = 6, .flavour = F8_DELAYED, .sync = true},
    {.world = 6, .flavour = F8_DELAYED, .rows = ROWS_OF_5, .sync = true, .dealt = true},
    {.world = 6, .flavour = F8_STATIC, .rows = ROWS_OF_5},
};

static const struct host_plan small_plan = {.world = 4,
    .buckets = 2,
    .weights = 2,
    .rows = ROWS,
    .cols = COLS,
    .flavour = F8_DYNAMIC,
    .keep = true};

#define NUM_PLANS (int)(sizeof(plans) / sizeof(plans[0]))

static void run_steps(struct host_ranks *what, uint32_t steps)
{
    host_ranks_start(what);
    for (uint32_t i = 0; i < steps; i++)
        host_ranks_must(what, 0, what->plan.world, host_rank_step);
}

START_TEST(bytes_and_scales_are_those_of_one_host)
{
    struct host_plan plan = plans[_i];
    plan.buckets = 3;
    plan.weights = 2;
    plan.rows = plan.rows > 0 ? plan.rows : ROWS;
    plan.cols = COLS;
    plan.keep = true;
    host_ranks_init(&alone, &plan, &hosts, 1);
    run_steps(&alone, 5);
    for (uint32_t n = 2; n <= TEST_HOSTS_MAX && n <= plan.world; n++) {
        plan.group = n == 2 ? "over2" : "over3";
        host_ranks_init(&ranks, &plan, &hosts, n);
        run_steps(&ranks, 5);
        ck_assert_uint_eq(test_hosts_engine(&hosts, 0, plan.group).hosts, n);
        host_ranks_same(&ranks, &alone);
        host_ranks_end(&ranks);
    }
    host_ranks_end(&alone);
}
END_TEST

/* What a helper's message of a reduction has before its values: a tag and their number. */
#define GREETING_BYTES 16

START_TEST(a_precompute_of_many_weights_is_one_reduction)
{
    const struct host_plan plan = {.world = 4,
        .buckets = 8,
        .weights = 16,
        .bare = true,
        .rows = ROWS,
        .cols = COLS,
        .flavour = F8_DYNAMIC,
        .precompute = true};
    host_ranks_init(&ranks, &plan, &hosts, 2);
    host_ranks_start(&ranks);
    for (int i = 0; i < 3; i++) {
        struct test_engine before = test_hosts_engine(&hosts, 1, "dp");
        host_ranks_must(&ranks, 0, plan.world, host_rank_precompute);
        struct test_engine after = test_hosts_engine(&hosts, 1, "dp");
        uint64_t values = plan.buckets * plan.weights * sizeof(uint32_t);
        ck_assert_uint_eq(after.sent - before.sent, GREETING_BYTES + values);
        ck_assert_uint_eq(after.received - before.received, GREETING_BYTES + values);
    }
    host_ranks_end(&ranks);
}
END_TEST

/* Ethernet, IP and TCP with its timestamps. */
#define HEADER_BYTES 66

#define ONE_PERCENT_MORE(bytes) ((bytes) + (bytes) / 100)
/* Of what the network counts: TCP sends some again when a machine is too busy to acknowledge. */
#define TEN_PERCENT_MORE(bytes) ((bytes) + (bytes) / 10)

/* 1, 2 and 4 ranks a host; dealt or in rows. Each host's part goes once to each of the others. */
START_TEST(no_more_passes_the_network_than_must)
{
    const uint32_t world = 2U << _i % 3, steps = 4;
    const struct host_plan plan = {.world = world,
        .dealt = _i >= 3,
        .buckets = 2,
        .weights = 4,
        .rows = 1021,
        .cols = 512,
        .flavour = F8_DYNAMIC,
        .precompute = true};
    struct bench_error error;
    struct network_traffic before, after;
    host_ranks_init(&ranks, &plan, &hosts, 2);
    host_ranks_start(&ranks);
    struct test_engine engine = test_hosts_engine(&hosts, 0, "dp");
    ck_assert_int_eq(network_count(hosts.network, 0, &before, &error), 0);
    for (uint32_t i = 0; i < steps; i++)
        host_ranks_must(&ranks, 0, world, host_rank_step);
    ck_assert_int_eq(network_count(hosts.network, 0, &after, &error), 0);
    struct test_engine end = test_hosts_engine(&hosts, 0, "dp");
    struct network_traffic passed = network_traffic_between(&before, &after);
    uint64_t out = steps * host_ranks_bytes(&ranks, 0), in = steps * host_ranks_bytes(&ranks, 1);
    ck_assert_uint_ge(end.sent - engine.sent, out);
    ck_assert_uint_le(end.sent - engine.sent, ONE_PERCENT_MORE(out));
    ck_assert_uint_ge(end.received - engine.received, in);
    ck_assert_uint_le(end.received - engine.received, ONE_PERCENT_MORE(in));
    ck_assert_uint_ge(passed.out_bytes, out);
    ck_assert_uint_le(passed.out_bytes - passed.out_packets * HEADER_BYTES, TEN_PERCENT_MORE(out));
    ck_assert_uint_le(passed.in_bytes - passed.in_packets * HEADER_BYTES, TEN_PERCENT_MORE(in));
    host_ranks_end(&ranks);
}
END_TEST

#define MANY 8

static int three_steps(struct host_rank *rank)
{
    int status = F8_OK;
    for (int i = 0; i < 3 && status == F8_OK; i++)
        status = host_rank_step(rank);
    return status;
}

static void *run_group(void *argument)
{
    struct host_ranks *group = argument;
    host_ranks_all(group, 0, group->plan.world, three_steps);
    return NULL;
}

START_TEST(many_groups_side_by_side)
{
    static struct host_ranks many[MANY];
    static char names[MANY][16];
    pthread_t threads[MANY];
    struct host_plan plan = small_plan;
    host_ranks_init(&alone, &plan, &hosts, 1);
    run_steps(&alone, 3);
    for (uint32_t g = 0; g < MANY; g++) {
        (void)snprintf(names[g], sizeof(names[g]), "g%u", g);
        plan.group = names[g];
        plan.dealt = g % 2 == 1;
        host_ranks_init(&many[g], &plan, &hosts, 2);
        host_ranks_start(&many[g]);
    }
    for (uint32_t g = 0; g < MANY; g++)
        ck_assert_int_eq(pthread_create(&threads[g], NULL, run_group, &many[g]), 0);
    for (uint32_t g = 0; g < MANY; g++)
        ck_assert_int_eq(pthread_join(threads[g], NULL), 0);
    for (uint32_t g = 0; g < MANY; g++) {
        host_ranks_failed(&many[g], 0, plan.world, F8_OK, "");
        host_ranks_same(&many[g], &alone);
        host_ranks_end(&many[g]);
    }
    host_ranks_end(&alone);
}
END_TEST

static struct host_ranks second;

/* Every rank has a gather of each group open at once, and asks for them in an order of its own. */
static int gather_both(struct host_rank *rank)
{
    struct f8_group *groups[] = {rank->group, second.ranks[rank->number].group};
    uint32_t first = rank->number % 2;
    int status = f8_gather(groups[first], 0, 0, NULL);
    if (status == F8_OK)
        status = f8_gather(groups[1 - first], 0, 0, NULL);
    for (uint32_t g = 0; g < 2 && status == F8_OK; g++) {
        status = f8_post_gather(groups[g], 0, F8_FOREVER, NULL, 0, NULL);
        if (status == F8_OK)
            status = f8_release(groups[g], 0, NULL);
    }
    return status;
}

START_TEST(a_client_has_two_groups)
{
    struct host_plan plan = small_plan;
    host_ranks_init(&alone, &plan, &hosts, 1);
    run_steps(&alone, 3);
    plan.group = "first";
    host_ranks_init(&ranks, &plan, &hosts, 2);
    plan.group = "second";
    host_ranks_init(&second, &plan, &hosts, 2);
    host_ranks_start(&ranks);
    for (uint32_t r = 0; r < plan.world; r++)
        second.ranks[r].client = ranks.ranks[r].client;
    host_ranks_start(&second);
    ranks.plan.keep = second.plan.keep = false;
    host_ranks_must(&ranks, 0, plan.world, gather_both);
    ranks.plan.keep = second.plan.keep = true;
    host_ranks_must(&ranks, 0, plan.world, three_steps);
    host_ranks_must(&second, 0, plan.world, three_steps);
    host_ranks_same(&ranks, &alone);
    host_ranks_same(&second, &alone);
    for (uint32_t r = 0; r < plan.world; r++)
        second.ranks[r].client = NULL; /* it is closed with the first group */
    host_ranks_end(&ranks);
    host_ranks_end(&second);
    host_ranks_end(&alone);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("hosts");
    TCase *cases = tcase_create("hosts");
    tcase_add_checked_fixture(cases, start, stop);
    tcase_add_loop_test(cases, bytes_and_scales_are_those_of_one_host, 0, NUM_PLANS);
    tcase_add_test(cases, a_precompute_of_many_weights_is_one_reduction);
    tcase_add_loop_test(cases, no_more_passes_the_network_than_must, 0, 6);
    tcase_add_test(cases, many_groups_side_by_side);
    tcase_add_test(cases, a_client_has_two_groups);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    return test_hosts_possible() ? run_cases(make_suite()) : TEST_HOSTS_SKIP;
}
