/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that connects again by itself (reconnect_ms), and no daemon takes the place of the one
 * that ended: how long it looks, what ends that, and what it does all the same.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/in_turn.h"
#include "tests/lib/suite.h"

#define SHORT_MS 200

START_TEST(nobody_comes)
{
    struct one_rank rank;
    struct timespec from, to;
    one_rank_seal_as(&rank, in_turn_serve, SHORT_MS);
    one_rank_hold(&rank, EMBED);
    in_turn_away = true;
    in_turn_end();
    assert_fails(f8_changed(rank.group, 0, 1), F8_ENODAEMON, rank.daemon.socket);
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    assert_fails(f8_changed(rank.group, 0, 1), F8_ENODAEMON, rank.daemon.socket);
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    int64_t took_ms = (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
    ck_assert_int_ge(took_ms, SHORT_MS / 2);   /* it looked again */
    must(f8_release(rank.group, EMBED, NULL)); /* and this does not look */
    in_turn_away = false;
    fake_go(&rank.daemon);
    int status = F8_ENODAEMON;
    while (status == F8_ENODAEMON) /* each as long as that, on a busy machine */
        status = f8_changed(rank.group, 0, 1);
    assert_fails(status, F8_EBROKEN, "group dp is broken");
    in_turn_recover(&rank);
    one_rank_stop(&rank);
}
END_TEST

static void on_signal(int number)
{
    (void)number;
}

/* Signals the thread until the test has seen enough. */
struct ticker {
    pthread_t to, thread;
    atomic_bool over;
};

static void *tick(void *argument)
{
    struct ticker *ticker = argument;
    while (!ticker->over) {
        (void)pthread_kill(ticker->to, SIGUSR1);
        (void)usleep(10000);
    }
    return NULL;
}

/* Each with a signal, while nobody comes and the client is to look for longer than the test runs.
 */
static void interrupt_calls(struct f8_group *group, f8_ticket ticket)
{
    struct ticker ticker = {.to = pthread_self()};
    struct sigaction action = {.sa_handler = on_signal};
    ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
    ck_assert_int_eq(pthread_create(&ticker.thread, NULL, tick, &ticker), 0);
    assert_fails(f8_wait(group, ticket, F8_FOREVER, NULL), F8_EINTR, "a signal");
    in_turn_end();
    for (int times = 0; times < 3; times++)
        assert_fails(
            f8_changed(group, 1, 1), F8_EINTR, "a signal came while a daemon was looked for");
    ticker.over = true;
    pthread_join(ticker.thread, NULL);
}

/* With one that does not answer, or none. What a client can tell by itself it tells at once. */
START_TEST(a_signal_ends_the_looking)
{
    struct one_rank rank;
    f8_ticket ticket;
    struct f8_traffic traffic;
    struct f8_view view;
    uint64_t size, syncs;
    float copy[15];
    int has, done = 0;
    one_rank_seal_as(&rank, in_turn_serve, F8_FOREVER);
    must(f8_gather(rank.group, EMBED, 0, NULL));
    must(f8_post_gather(rank.group, EMBED, F8_FOREVER, &view, 1, NULL));
    rank.daemon.withhold = F8__REQUEST__BODY_PRECOMPUTE;
    must(f8_precompute(rank.group, 0, NULL, &ticket));
    in_turn_away = true;
    char moved[sizeof(rank.daemon.socket) + 2];
    (void)snprintf(moved, sizeof(moved), "%s.x", rank.daemon.socket);
    if (_i)
        ck_assert_int_eq(rename(rank.daemon.socket, moved), 0);
    interrupt_calls(rank.group, ticket);
    must(f8_view_check(rank.group, &view));
    must(f8_copy_size(rank.group, EMBED, F8_WEIGHT_MAJOR, &size));
    must(f8_copy_out(rank.group, EMBED, F8_WEIGHT_MAJOR, copy, sizeof(copy), NULL));
    must(f8_gather_test(rank.group, LAYER_0, &done));
    ck_assert_int_eq(done, 1);
    must(f8_syncs(rank.group, &syncs));
    must(f8_capability(rank.client, "flavour.static", &has));
    must(f8_traffic_read(rank.client, &traffic));
    must(f8_release(rank.group, EMBED, NULL));
    if (_i)
        ck_assert_int_eq(rename(moved, rank.daemon.socket), 0);
    rank.daemon.withhold = 0;
    in_turn_away = false;
    fake_go(&rank.daemon);
    assert_fails(f8_wait(rank.group, ticket, F8_FOREVER, NULL), F8_EBROKEN, "group dp is broken");
    in_turn_recover(&rank);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(closing_does_not_look)
{
    struct one_rank rank;
    one_rank_seal_as(&rank, in_turn_serve, SHORT_MS);
    in_turn_away = true;
    in_turn_end();
    if (_i)
        assert_fails(f8_changed(rank.group, 0, 1), F8_ENODAEMON, rank.daemon.socket);
    f8_close(rank.client);
    in_turn_away = false;
    fake_go(&rank.daemon);
    rank.client = NULL;
    one_rank_stop(&rank);
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_JOIN], 1);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("alone");
    tcase_add_test(tcase, nobody_comes);
    tcase_add_loop_test(tcase, a_signal_ends_the_looking, 0, 2);
    tcase_add_loop_test(tcase, closing_does_not_look, 0, 2);
    return run_suite("client_alone", tcase);
}
