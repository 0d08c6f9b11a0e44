/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds over loopback: they form, carry messages in order, and end in order or not. All hosts are
 * in this process, in one loop.
 */
#include "daemon/world.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/patience.h"
#include "tests/lib/worlds.h"

static const int families[] = {AF_INET, AF_INET6};

static void down_all(struct host *hosts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        host_down(&hosts[i]);
}

START_TEST(two_hosts_meet)
{
    struct host hosts[2];
    hosts_form(hosts, 2, families[_i]);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t count;
        const struct world_host *table = world_hosts(hosts[i].world, &count);
        const char *address, *name = world_interface(hosts[i].world, &address);
        ck_assert_uint_eq(count, 2);
        ck_assert_uint_eq(world_here(hosts[i].world), i);
        ck_assert_uint_eq(world_root(hosts[i].world), 0);
        ck_assert_str_eq(table[1].name, "host-1");
        ck_assert_uint_eq(table[1].num_ranks, 1);
        ck_assert_uint_eq(table[1].ranks[0].rank, 1);
        ck_assert_uint_eq(table[1].ranks[0].pid, 1001);
        ck_assert_str_eq(name, "lo");
        ck_assert_str_eq(address, families[_i] == AF_INET ? "127.0.0.1" : "::1");
        ck_assert_ptr_nonnull(
            strstr(table[0].address, families[_i] == AF_INET ? "127.0.0.1:" : "[::1]:"));
    }
    down_all(hosts, 2);
}
END_TEST

static Suite *world_suite(void)
{
    Suite *suite = suite_create("world");
    TCase *tcase = tcase_create("world");
    tcase_set_timeout(tcase, 4 * PATIENCE_S);
    tcase_add_checked_fixture(tcase, worlds_set_up, worlds_tear_down);
    tcase_add_loop_test(tcase, two_hosts_meet, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(world_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
