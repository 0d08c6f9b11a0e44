/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client on a host without a CUDA driver: what asks for a device says that there is none, and all
 * else goes on. Where there is a driver the suite is skipped; tests/cuda has the others.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "tests/lib/one_rank.h"
#include "tests/lib/suite.h"

START_TEST(test_no_driver)
{
    struct one_rank rank;
    struct f8_region *region = NULL;
    fake_start(&rank.daemon, fake_serve);
    rank.arena = NULL;
    const struct f8_connect_options options = {.socket = rank.daemon.socket, .job = "test"};
    ck_assert_int_eq(f8_connect(&options, &rank.client), F8_OK);
    for (int i = 0; i < 2; i++) {
        assert_fails(f8_set_device(rank.client, 0), F8_ENOENT, "there is no CUDA driver");
        assert_text("libcuda.so.1");
        assert_fails(f8_region_share_pointer(rank.client, &rank, sizeof(rank), &region), F8_ENOENT,
            "libcuda.so.1");
    }
    ck_assert_ptr_null(region);
    assert_fails(f8_region_share_pointer(rank.client, &rank, 0, &region), F8_EINVAL, "0 bytes");
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_DEVICE_ADD], 0);
    ck_assert_int_eq(f8_group_join(rank.client, "dp", 0, 1, &rank.group), F8_OK);
    one_rank_stop(&rank);
}
END_TEST

/* A daemon that names events to a client on the host. */
START_TEST(test_events_on_the_host)
{
    struct one_rank rank;
    one_rank_seal(&rank, 1);
    rank.daemon.done = 3;
    ck_assert_int_eq(f8_gather(rank.group, EMBED, F8_DEFAULT_DEADLINE, NULL), F8_OK);
    assert_fails(f8_post_gather(rank.group, EMBED, F8_FOREVER, NULL, 0, NULL), F8_EPROTO,
        "event 3 of group dp");
    rank.daemon.done = 0;
    one_rank_hold(&rank, EMBED);
    one_rank_stop(&rank);
}
END_TEST

static void *ask(void *argument)
{
    int *status = argument;
    struct one_rank rank;
    fake_start(&rank.daemon, fake_serve);
    rank.arena = NULL;
    const struct f8_connect_options options = {.socket = rank.daemon.socket, .job = "test"};
    *status = f8_connect(&options, &rank.client);
    if (*status == F8_OK)
        *status = f8_set_device(rank.client, 0);
    one_rank_stop(&rank);
    return NULL;
}

START_TEST(test_threads_look_for_the_driver)
{
    pthread_t threads[8];
    int statuses[8];
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, ask, &statuses[i]), 0);
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(statuses[i], F8_ENOENT);
    }
}
END_TEST

int main(void)
{
    if (dlopen("libcuda.so.1", RTLD_LAZY)) {
        printf("skipped: this host has a CUDA driver\n");
        return 77;
    }
    TCase *tcase = tcase_create("client without a driver");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_no_driver);
    tcase_add_test(tcase, test_events_on_the_host);
    tcase_add_test(tcase, test_threads_look_for_the_driver);
    return run_suite("client_device", tcase);
}
