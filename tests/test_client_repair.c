/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that connects again by itself (reconnect_ms), at a fake daemon that ends as often as the
 * test wants: what the call says that meets the end, what the others say, and who waits for whom.
 */
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "tests/lib/in_turn.h"
#include "tests/lib/patience.h"
#include "tests/lib/suite.h"

#define SHORT_MS 200
#define THREADS  4

/* ---- which calls, and what they say ---- */

struct one_call {
    struct one_rank *rank;
    f8_ticket ticket; /* open */
};

static int precompute(const struct one_call *with)
{
    f8_ticket ticket;
    return f8_precompute(with->rank->group, 0, NULL, &ticket);
}

static int wait_for(const struct one_call *with)
{
    return f8_wait(with->rank->group, with->ticket, F8_FOREVER, NULL);
}

static int test(const struct one_call *with)
{
    int done = 0, status = F8_OK;
    while (!done)
        status = f8_test(with->rank->group, with->ticket, &done, NULL);
    return status;
}

static int gather(const struct one_call *with)
{
    return f8_gather(with->rank->group, LAYER_1, 0, NULL);
}

static int post_gather(const struct one_call *with)
{
    int done = 0;
    while (!done)
        must(f8_gather_test(with->rank->group, EMBED, &done));
    return f8_post_gather(with->rank->group, EMBED, F8_FOREVER, NULL, 0, NULL);
}

static int pre_gather(const struct one_call *with)
{
    return f8_pre_gather(with->rank->group, LAYER_1, NULL);
}

static int changed(const struct one_call *with)
{
    return f8_changed(with->rank->group, 1, 1);
}

static int quiesce(const struct one_call *with)
{
    return f8_quiesce(with->rank->group, F8_FOREVER);
}

static int export(const struct one_call *with)
{
    void *data;
    size_t size;
    return f8_export(with->rank->group, &data, &size);
}

static int rejoin(const struct one_call *with)
{
    return f8_group_rejoin(with->rank->group);
}

static int (*const calls[])(const struct one_call *) = {
    precompute, wait_for, test, gather, post_gather, pre_gather, changed, quiesce, export, rejoin};

#define CALLS   ((int)(sizeof(calls) / sizeof(calls[0])))
#define REJOIN_ (CALLS - 1)

/* What another daemon gathered is in the same place, in the same generation, of the same use. */
static void check_gathered_anew(struct one_rank *rank, const struct f8_view old[2])
{
    struct f8_view views[2];
    rank->daemon.use = 0;
    must(f8_gather(rank->group, LAYER_0, 0, NULL));
    must(f8_post_gather(rank->group, LAYER_0, F8_FOREVER, views, 2, NULL));
    must(f8_view_check(rank->group, views));
    assert_fails(f8_view_check(rank->group, old), F8_ESTALE, "earlier gather");
}

/* Any of them meets the end, all of them know of it, and nothing is said to the new daemon. */
START_TEST(whatever_is_asked_is_broken)
{
    struct one_rank rank;
    struct f8_view views[2];
    struct one_call with = {.rank = &rank};
    one_rank_seal_as(&rank, in_turn_serve, PATIENCE_MS);
    must(f8_gather(rank.group, LAYER_0, 0, NULL));
    must(f8_post_gather(rank.group, LAYER_0, F8_FOREVER, views, 2, NULL));
    rank.daemon.withhold = F8__REQUEST__BODY_PRECOMPUTE;
    must(f8_precompute(rank.group, 0, NULL, &with.ticket));
    must(f8_changed(rank.group, 5, 1)); /* and when it answers this, it has seen the precompute */
    rank.daemon.withhold = F8__REQUEST__BODY_GATHER;
    if (calls[_i] != precompute) /* which it would be too early for */
        must(f8_gather(rank.group, EMBED, 0, NULL));
    in_turn_end();
    assert_fails(calls[_i](&with), F8_EBROKEN, "f8gatherd (pid 4711) at ");
    assert_text(rank.daemon.socket);
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_JOIN], 2);
    ck_assert_int_eq(rank.daemon.weights, 14);
    for (int i = 0; i < REJOIN_; i++)
        assert_fails(calls[i](&with), F8_EBROKEN, "group dp is broken: f8gatherd (pid 4711)");
    assert_fails(one_rank_seal_again(&rank), F8_EBROKEN, "call f8_group_rejoin");
    assert_fails(f8_view_check(rank.group, views), F8_EBROKEN, "group dp is broken");
    ck_assert_uint_eq(*(const unsigned char *)views[0].data, 0); /* mapped still */
    must(f8_release(rank.group, LAYER_0, NULL));
    assert_fails(f8_release(rank.group, LAYER_0, NULL), F8_EORDER, "does not hold");
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_RELEASE], 0);
    rank.daemon.withhold = 0;
    rank.daemon.generation = FAKE_GENERATION;
    in_turn_recover(&rank);
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_RELEASE], 1);
    check_gathered_anew(&rank, views);
    one_rank_stop(&rank);
}
END_TEST

/* As a daemon answers whose group is not broken; without a reconnection that is an error. */
START_TEST(rejoining_what_is_joined_is_harmless)
{
    struct one_rank rank;
    one_rank_seal_as(&rank, in_turn_serve, PATIENCE_MS);
    in_turn_end();
    assert_fails(f8_changed(rank.group, 0, 1), F8_EBROKEN, "ended");
    rank.daemon.fail_status = F8_EORDER;
    rank.daemon.fail_body = F8__REQUEST__BODY_JOIN;
    must(f8_group_rejoin(rank.group));
    must(f8_group_rejoin(rank.group));
    must(one_rank_seal_again(&rank));
    assert_fails(f8_group_rejoin(rank.group), F8_EORDER, "refused by the test");
    one_rank_stop(&rank);
}
END_TEST

/* What is of no group says the same, and is made again; it need not know that groups are broken. */
START_TEST(calls_of_no_group)
{
    struct one_rank rank;
    struct f8_region *region;
    struct f8_group *other;
    void *memory;
    one_rank_seal_as(&rank, in_turn_serve, PATIENCE_MS);
    in_turn_end();
    assert_fails(f8_region_alloc(rank.client, 4096, &region, &memory), F8_EBROKEN, "was told all");
    must(f8_region_alloc(rank.client, 4096, &region, &memory));
    in_turn_end();
    assert_fails(f8_group_join(rank.client, "mesh", 0, 2, &other), F8_EBROKEN, "was told all");
    must(f8_group_join(rank.client, "mesh", 0, 2, &other));
    in_turn_end();
    assert_fails(f8_region_free(region), F8_EBROKEN, "was told all");
    must(f8_region_free(region));
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_REGION_ADD], 3);
    in_turn_recover(&rank);
    assert_fails(f8_changed(other, 0, 0), F8_EBROKEN, "group mesh is broken");
    one_rank_stop(&rank);
}
END_TEST

/* f8_reconnect by hand: the trainer knows, and no re-join is asked for. */
START_TEST(by_hand_all_the_same)
{
    struct one_rank rank;
    one_rank_seal_as(&rank, in_turn_serve, PATIENCE_MS);
    in_turn_end();
    must(f8_reconnect(rank.client, PATIENCE_MS));
    must(one_rank_seal_again(&rank));
    in_turn_end();
    assert_fails(f8_changed(rank.group, 0, 1), F8_EBROKEN, "ended");
    must(f8_reconnect(rank.client, PATIENCE_MS));
    must(one_rank_seal_again(&rank));
    in_turn_recover(&rank);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(off_is_as_ever)
{
    struct one_rank rank;
    one_rank_seal_as(&rank, in_turn_serve, 0);
    in_turn_end();
    assert_fails(f8_changed(rank.group, 0, 1), F8_ECONN, "is lost");
    assert_fails(f8_changed(rank.group, 0, 1), F8_ECONN, "is lost");
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_JOIN], 1);
    one_rank_stop(&rank);
}
END_TEST

/* ---- one that refuses ---- */

/* A daemon that refuses is none to go on with: all is told anew by the next call. */
START_TEST(a_refusal_is_told_and_tried_again)
{
    struct one_rank rank;
    uint64_t syncs;
    one_rank_seal_as(&rank, in_turn_serve, PATIENCE_MS);
    rank.daemon.fail_status = F8_ELIMIT;
    rank.daemon.fail_body = F8__REQUEST__BODY_REGISTER;
    in_turn_end();
    for (int times = 0; times < 2; times++)
        assert_fails(f8_changed(rank.group, 0, 1), F8_ELIMIT, "refused by the test");
    must(f8_syncs(rank.group, &syncs)); /* which asks no daemon */
    rank.daemon.fail_body = 0;
    assert_fails(f8_changed(rank.group, 0, 1), F8_EBROKEN, "group dp is broken");
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_JOIN], 4);
    in_turn_recover(&rank);
    one_rank_stop(&rank);
}
END_TEST

/* Lets joins succeed once some more of them were refused. */
static void *permit_joins(void *argument)
{
    struct one_rank *rank = argument;
    while (rank->daemon.counts[F8__REQUEST__BODY_JOIN] < 4)
        usleep(100);
    rank->daemon.fail_body = 0;
    return NULL;
}

/* One that was told to end lets nobody join: as good as gone, also while it is there, for a group
 * that must re-join, or if no group goes on. */
START_TEST(a_daemon_that_drains)
{
    struct one_rank rank;
    struct f8_group *other;
    pthread_t thread;
    one_rank_seal_as(&rank, in_turn_serve, PATIENCE_MS);
    if (_i == 0)
        must(f8_group_rejoin(rank.group)); /* it is not sealed then */
    rank.daemon.fail_status = F8_ECONN;
    rank.daemon.fail_body = F8__REQUEST__BODY_JOIN;
    ck_assert_int_eq(pthread_create(&thread, NULL, permit_joins, &rank), 0);
    int status = _i ? f8_group_rejoin(rank.group) : f8_group_join(rank.client, "x", 0, 1, &other);
    pthread_join(thread, NULL);
    assert_fails(status, F8_EBROKEN, "ended");
    in_turn_recover(&rank);
    one_rank_stop(&rank);
}
END_TEST

/* But while another group goes on, what the daemon waits for before it ends is not cut. */
START_TEST(a_refused_join_cuts_nothing)
{
    struct one_rank rank;
    struct f8_group *other;
    one_rank_seal_as(&rank, in_turn_serve, PATIENCE_MS);
    rank.daemon.withhold = F8__REQUEST__BODY_GATHER;
    must(f8_gather(rank.group, EMBED, 0, NULL));
    rank.daemon.fail_status = F8_ECONN;
    rank.daemon.fail_body = F8__REQUEST__BODY_JOIN;
    for (int times = 0; times < 2; times++)
        assert_fails(
            f8_group_join(rank.client, "x", 0, 1, &other), F8_ECONN, "refused by the test");
    fake_go(&rank.daemon);
    must(f8_post_gather(rank.group, EMBED, F8_FOREVER, NULL, 0, NULL));
    must(f8_release(rank.group, EMBED, NULL));
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_JOIN], 3);
    rank.daemon.fail_body = 0;
    rank.daemon.withhold = 0;
    in_turn_end();
    assert_fails(f8_group_join(rank.client, "x", 0, 1, &other), F8_EBROKEN, "was told all");
    must(f8_group_join(rank.client, "x", 0, 1, &other));
    one_rank_stop(&rank);
}
END_TEST

/* ---- threads ---- */

struct waiter {
    struct one_call call;
    pthread_t thread;
    int status;
};

static void *wait_as_thread(void *argument)
{
    struct waiter *waiter = argument;
    waiter->status = wait_for(&waiter->call);
    return NULL;
}

/* All wait as it ends; one of them looks for the next, and tells it all once. */
static void end_under_threads(struct one_rank *rank, int expected)
{
    struct waiter waiters[THREADS];
    rank->daemon.withhold = F8__REQUEST__BODY_PRECOMPUTE;
    for (int i = 0; i < THREADS; i++) {
        waiters[i].call.rank = rank;
        must(f8_precompute(rank->group, 0, NULL, &waiters[i].call.ticket));
        ck_assert_int_eq(pthread_create(&waiters[i].thread, NULL, wait_as_thread, &waiters[i]), 0);
    }
    in_turn_end();
    int status = f8_changed(rank->group, 1, 1);
    ck_assert_msg(status == expected, "%s: %s", f8_status_name(status), f8_error_text());
    for (int i = 0; i < THREADS; i++) {
        pthread_join(waiters[i].thread, NULL);
        ck_assert_msg(waiters[i].status == expected, "%s", f8_status_name(waiters[i].status));
    }
    rank->daemon.withhold = 0;
}

START_TEST(one_thread_for_all)
{
    struct one_rank rank;
    one_rank_seal_as(&rank, in_turn_serve, PATIENCE_MS);
    for (int times = 1; times <= 10; times++) {
        end_under_threads(&rank, F8_EBROKEN);
        ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_JOIN], 2 * times);
        in_turn_recover(&rank);
    }
    one_rank_stop(&rank);
}
END_TEST

START_TEST(all_are_told_that_nobody_comes)
{
    struct one_rank rank;
    one_rank_seal_as(&rank, in_turn_serve, SHORT_MS);
    in_turn_away = true;
    end_under_threads(&rank, F8_ENODAEMON);
    in_turn_away = false;
    fake_go(&rank.daemon);
    one_rank_stop(&rank);
}
END_TEST

/* While one looks for a daemon: f8_reconnect has no turn, and calls that begin wait for it. */
START_TEST(meanwhile)
{
    struct one_rank rank;
    struct waiter waiter = {.call.rank = &rank};
    struct f8_region *region;
    void *memory;
    one_rank_seal_as(&rank, in_turn_serve, PATIENCE_MS);
    one_rank_hold(&rank, EMBED);
    rank.daemon.withhold = F8__REQUEST__BODY_PRECOMPUTE;
    must(f8_precompute(rank.group, 0, NULL, &waiter.call.ticket));
    ck_assert_int_eq(pthread_create(&waiter.thread, NULL, wait_as_thread, &waiter), 0);
    in_turn_away = true;
    in_turn_end();
    struct pollfd listener = {.fd = rank.daemon.listener, .events = POLLIN};
    ck_assert_int_eq(poll(&listener, 1, PATIENCE_MS), 1); /* the thread has found the end */
    assert_fails(f8_reconnect(rank.client, 0), F8_EBUSY, "has not returned");
    in_turn_away = false;
    fake_go(&rank.daemon);
    must(f8_release(rank.group, EMBED, NULL));
    must(f8_region_alloc(rank.client, 4096, &region, &memory));
    pthread_join(waiter.thread, NULL);
    ck_assert_int_eq(waiter.status, F8_EBROKEN);
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_JOIN], 2);
    one_rank_stop(&rank);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("repair");
    tcase_add_loop_test(tcase, whatever_is_asked_is_broken, 0, CALLS);
    tcase_add_test(tcase, rejoining_what_is_joined_is_harmless);
    tcase_add_test(tcase, calls_of_no_group);
    tcase_add_test(tcase, by_hand_all_the_same);
    tcase_add_test(tcase, off_is_as_ever);
    tcase_add_test(tcase, a_refusal_is_told_and_tried_again);
    tcase_add_loop_test(tcase, a_daemon_that_drains, 0, 2);
    tcase_add_test(tcase, a_refused_join_cuts_nothing);
    tcase_add_test(tcase, one_thread_for_all);
    tcase_add_test(tcase, all_are_told_that_nobody_comes);
    tcase_add_test(tcase, meanwhile);
    return run_suite("client_repair", tcase);
}
