/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups over several hosts in random orders of what happens, with and without faults: see
 * lib/hosts_model.h. With arguments, one run or some: test_hosts_explore HOSTS LOCAL_RANKS FAULTS
 * KINDS SEED [COUNT].
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/hosts_model.h"
#include "lib/suite.h"

#define ALL_KINDS                                                                                  \
    (MODEL_DEATHS | MODEL_LEAVES | MODEL_HELPERS | MODEL_PARTITIONS | MODEL_MISMATCHES)

#ifndef EXPLORE_RUNS
#define EXPLORE_RUNS 150
#endif

static struct hosts_model_shape given;
static uint64_t given_seed;
static uint32_t given_count = 1;

static void explore(const struct hosts_model_shape *shape)
{
    for (uint64_t seed = 1; seed <= EXPLORE_RUNS; seed++)
        (void)hosts_model_run(shape, seed);
}

START_TEST(nothing_goes_wrong)
{
    explore(&(struct hosts_model_shape){.num_hosts = 2, .local_ranks = 2});
    explore(&(struct hosts_model_shape){.num_hosts = 3, .local_ranks = 1});
}
END_TEST

START_TEST(ranks_go)
{
    const uint32_t kinds = MODEL_DEATHS | MODEL_LEAVES | MODEL_MISMATCHES;
    explore(&(struct hosts_model_shape){2, 2, 2, kinds});
    explore(&(struct hosts_model_shape){3, 2, 2, kinds});
    explore(&(struct hosts_model_shape){3, 1, 3, kinds});
}
END_TEST

START_TEST(anything_goes_wrong)
{
    explore(&(struct hosts_model_shape){2, 2, 3, ALL_KINDS});
    explore(&(struct hosts_model_shape){3, 2, 3, ALL_KINDS});
    explore(&(struct hosts_model_shape){3, 1, 4, ALL_KINDS});
}
END_TEST

/* The id that was given last counts, and who waits with another is told: all meet at last. */
START_TEST(ids_differ_on_a_host)
{
    explore(&(struct hosts_model_shape){2, 2, 3, MODEL_IDS});
    explore(&(struct hosts_model_shape){3, 2, 4, MODEL_IDS | MODEL_DEATHS | MODEL_LEAVES});
    explore(&(struct hosts_model_shape){2, 3, 5, MODEL_IDS | ALL_KINDS});
}
END_TEST

START_TEST(as_given)
{
    for (uint32_t i = 0; i < given_count; i++)
        (void)printf("seed %llu: %u events\n", (unsigned long long)given_seed + i,
            hosts_model_run(&given, given_seed + i));
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tcase = tcase_create("orders");
    tcase_set_timeout(tcase, 600);
    if (argc > 5) {
        given = (struct hosts_model_shape){(uint32_t)atoi(argv[1]), (uint32_t)atoi(argv[2]),
            (uint32_t)atoi(argv[3]), (uint32_t)strtoul(argv[4], NULL, 0)};
        given_seed = strtoull(argv[5], NULL, 10);
        given_count = argc > 6 ? (uint32_t)atoi(argv[6]) : 1;
        tcase_add_test(tcase, as_given);
    } else {
        tcase_add_test(tcase, nothing_goes_wrong);
        tcase_add_test(tcase, ranks_go);
        tcase_add_test(tcase, anything_goes_wrong);
        tcase_add_test(tcase, ids_differ_on_a_host);
    }
    return run_suite("hosts_explore", tcase);
}
