/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits of the library: timeouts, tickets, failures, and signals that end a wait of each kind
 * without losing anything.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/lib/one_rank.h"
#include "tests/lib/suite.h"

static void hold_back(struct one_rank *rank, int body)
{
    rank->daemon.withhold = body;
}

/* Lets withheld replies go once `count` requests of that kind have come. */
static void let_go(struct one_rank *rank, int body, int count)
{
    while (rank->daemon.counts[body] < count)
        usleep(100);
    fake_go(&rank->daemon);
}

/* ---- waiting ---- */

START_TEST(timeouts_leave_a_gather_open)
{
    struct one_rank rank;
    int done = 1;
    one_rank_seal(&rank, 2);
    hold_back(&rank, F8__REQUEST__BODY_GATHER);
    ck_assert_int_eq(f8_gather(rank.group, EMBED, 0, NULL), F8_OK);
    ck_assert_int_eq(f8_post_gather(rank.group, EMBED, 0, NULL, 0, NULL), F8_EDEADLINE);
    ck_assert_int_eq(f8_post_gather(rank.group, EMBED, 1, NULL, 0, NULL), F8_EDEADLINE);
    ck_assert_int_eq(f8_gather_test(rank.group, EMBED, &done), F8_OK);
    ck_assert_int_eq(done, 0);
    let_go(&rank, F8__REQUEST__BODY_GATHER, 1);
    while (!done)
        ck_assert_int_eq(f8_gather_test(rank.group, EMBED, &done), F8_OK);
    ck_assert_int_eq(f8_post_gather(rank.group, EMBED, 0, NULL, 0, NULL), F8_OK);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(failed_gather)
{
    struct one_rank rank;
    struct f8_view view = {.weight = 42};
    one_rank_seal(&rank, 2);
    rank.daemon.fail_status = F8_ERANKDEAD;
    rank.daemon.fail_body = F8__REQUEST__BODY_GATHER;
    ck_assert_int_eq(f8_gather(rank.group, EMBED, 0, NULL), F8_OK);
    assert_fails(f8_post_gather(rank.group, EMBED, F8_FOREVER, &view, 1, NULL), F8_ERANKDEAD,
        "refused by the test");
    ck_assert_uint_eq(view.weight, 42);
    assert_fails(f8_release(rank.group, EMBED, NULL), F8_EORDER, "does not hold");
    ck_assert_int_eq(f8_changed(rank.group, 0, 1), F8_OK);
    one_rank_stop(&rank);
}
END_TEST

/* A daemon that points outside the arena is not believed. */
START_TEST(place_outside_the_arena)
{
    struct one_rank rank;
    static const uint64_t offsets[] = {
        ONE_RANK_ARENA, ONE_RANK_ARENA - 4096, 100, UINT64_MAX - 4095};
    one_rank_seal(&rank, 2);
    rank.daemon.offset = offsets[_i];
    ck_assert_int_eq(f8_gather(rank.group, EMBED, 0, NULL), F8_OK);
    assert_fails(f8_post_gather(rank.group, EMBED, F8_FOREVER, NULL, 0, NULL), F8_EPROTO,
        "outside the arena");
    one_rank_stop(&rank);
}
END_TEST

START_TEST(tickets)
{
    struct one_rank rank;
    f8_ticket ticket, second;
    int done = 0;
    one_rank_seal(&rank, 2);
    hold_back(&rank, F8__REQUEST__BODY_PRECOMPUTE);
    ck_assert_int_eq(f8_precompute(rank.group, 0, NULL, &ticket), F8_OK);
    assert_fails(f8_changed(rank.group, 0, 7), F8_EBUSY,
        "weight 0 of bucket embed while a precompute of group dp is open");
    assert_fails(f8_weight_move(rank.group, 0, NULL, 0), F8_EBUSY, "call f8_wait first");
    ck_assert_int_eq(f8_changed(rank.group, 1, 6), F8_OK); /* static and raw: not read */
    ck_assert_int_eq(f8_wait(rank.group, ticket, 1, NULL), F8_EDEADLINE);
    ck_assert_int_eq(f8_precompute(rank.group, 0, NULL, &second), F8_OK);
    let_go(&rank, F8__REQUEST__BODY_PRECOMPUTE, 2);
    while (!done)
        ck_assert_int_eq(f8_test(rank.group, ticket, &done, NULL), F8_OK);
    assert_fails(f8_wait(rank.group, ticket, 0, NULL), F8_ENOENT, "it was waited for");
    assert_fails(f8_test(rank.group, 12345, &done, NULL), F8_ENOENT, "12345");
    ck_assert_int_eq(f8_wait(rank.group, second, F8_FOREVER, NULL), F8_OK);
    ck_assert_int_eq(f8_changed(rank.group, 0, 7), F8_OK);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(failed_precompute)
{
    struct one_rank rank;
    f8_ticket ticket;
    int done = 0, status = F8_OK;
    one_rank_seal(&rank, 2);
    rank.daemon.fail_status = F8_EDEADLINE;
    rank.daemon.fail_body = F8__REQUEST__BODY_PRECOMPUTE;
    ck_assert_int_eq(f8_precompute(rank.group, 0, NULL, &ticket), F8_OK);
    while (!done)
        status = f8_test(rank.group, ticket, &done, NULL);
    assert_fails(status, F8_EDEADLINE, "refused by the test");
    assert_fails(f8_wait(rank.group, ticket, 0, NULL), F8_ENOENT, "ticket");
    one_rank_stop(&rank);
}
END_TEST

START_TEST(too_many_tickets)
{
    struct one_rank rank;
    f8_ticket ticket;
    one_rank_seal(&rank, 2);
    hold_back(&rank, F8__REQUEST__BODY_PRECOMPUTE);
    for (int i = 0; i < 16; i++)
        ck_assert_int_eq(f8_precompute(rank.group, 0, NULL, &ticket), F8_OK);
    assert_fails(f8_precompute(rank.group, 0, NULL, &ticket), F8_ELIMIT, "16 tickets");
    one_rank_stop(&rank);
}
END_TEST

/* ---- signals ---- */

static void on_signal(int number)
{
    (void)number;
}

enum wait_kind { WAIT_POST_GATHER, WAIT_TICKET, WAIT_SEAL };

struct wait {
    struct f8_group *group;
    enum wait_kind kind;
    f8_ticket ticket;
    atomic_bool interrupted;
};

static int wait_once(const struct wait *wait)
{
    const struct f8_seal_options options = {.slots = 2};
    switch (wait->kind) {
    case WAIT_POST_GATHER:
        return f8_post_gather(wait->group, EMBED, F8_FOREVER, NULL, 0, NULL);
    case WAIT_TICKET:
        return f8_wait(wait->group, wait->ticket, F8_FOREVER, NULL);
    default:
        return f8_seal(wait->group, &options);
    }
}

static void *wait_through_a_signal(void *argument)
{
    struct wait *wait = argument;
    ck_assert_int_eq(wait_once(wait), F8_EINTR);
    assert_text("a signal");
    wait->interrupted = true;
    int status;
    do /* the same signal may be sent once more */
        status = wait_once(wait);
    while (status == F8_EINTR);
    ck_assert_msg(status == F8_OK, "%s", f8_error_text());
    return NULL;
}

/* Withholds the reply until the wait was interrupted, then lets it be finished. */
static void run_wait(struct one_rank *rank, struct wait *wait, int body, int replies)
{
    const struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART */
    sigaction(SIGUSR1, &action, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, wait_through_a_signal, wait);
    while (!wait->interrupted) { /* a signal may come before the wait begins: send another */
        pthread_kill(thread, SIGUSR1);
        usleep(1000);
    }
    let_go(rank, body, replies);
    pthread_join(thread, NULL);
}

START_TEST(signal_in_post_gather)
{
    struct one_rank rank;
    one_rank_seal(&rank, 2);
    hold_back(&rank, F8__REQUEST__BODY_GATHER);
    ck_assert_int_eq(f8_gather(rank.group, EMBED, 0, NULL), F8_OK);
    struct wait wait = {.group = rank.group, .kind = WAIT_POST_GATHER};
    run_wait(&rank, &wait, F8__REQUEST__BODY_GATHER, 1);
    ck_assert_int_eq(f8_release(rank.group, EMBED, NULL), F8_OK);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(signal_in_wait)
{
    struct one_rank rank;
    one_rank_seal(&rank, 2);
    hold_back(&rank, F8__REQUEST__BODY_PRECOMPUTE);
    struct wait wait = {.group = rank.group, .kind = WAIT_TICKET};
    ck_assert_int_eq(f8_precompute(rank.group, 0, NULL, &wait.ticket), F8_OK);
    run_wait(&rank, &wait, F8__REQUEST__BODY_PRECOMPUTE, 1);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(signal_in_seal)
{
    struct one_rank rank;
    one_rank_seal(&rank, 2);
    ck_assert_int_eq(f8_group_rejoin(rank.group), F8_OK);
    hold_back(&rank, F8__REQUEST__BODY_SEAL);
    struct wait wait = {.group = rank.group, .kind = WAIT_SEAL};
    run_wait(&rank, &wait, F8__REQUEST__BODY_SEAL, 2);
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_SEAL], 2); /* one a generation */
    one_rank_hold(&rank, EMBED);
    one_rank_stop(&rank);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("waits");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, timeouts_leave_a_gather_open);
    tcase_add_test(tcase, failed_gather);
    tcase_add_test(tcase, tickets);
    tcase_add_test(tcase, failed_precompute);
    tcase_add_test(tcase, too_many_tickets);
    tcase_add_test(tcase, signal_in_post_gather);
    tcase_add_test(tcase, signal_in_wait);
    tcase_add_test(tcase, signal_in_seal);
    tcase_add_loop_test(tcase, place_outside_the_arena, 0, 4);
    return run_suite("waits", tcase);
}
