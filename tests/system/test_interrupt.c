/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals and forks: a wait that Ctrl-C ends returns F8_EINTR and can be taken up again, whoever
 * of the waiting threads reads the socket; a forked child can do nothing but close, and the
 * parent does not notice.
 */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/device_memory.h"
#include "lib/ranks.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

/* ---- signals ---- */

/* A thread of rank 0 that waits, is interrupted, and waits again. */
struct waiter {
    int (*wait)(struct rank *rank);
    struct rank *rank;     /* borrowed: from the test */
    int interrupted;       /* what the wait returned when the signal came */
    int resumed;           /* and when it was taken up again */
    atomic_int is_resumed; /* the signals have done their work */
    pthread_t thread;
};

static void on_interrupt(int number)
{
    (void)number;
}

static void *run_waiter(void *argument)
{
    struct waiter *waiter = argument;
    waiter->interrupted = waiter->wait(waiter->rank);
    atomic_store(&waiter->is_resumed, 1);
    do
        waiter->resumed = waiter->wait(waiter->rank);
    while (waiter->resumed == F8_EINTR); /* a signal that was under way already */
    return NULL;
}

static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    ck_assert_int_eq(sigaction(SIGINT, &action, NULL), 0);
}

static void start_waiter(struct waiter *waiter, struct rank *rank, int (*wait)(struct rank *rank))
{
    *waiter = (struct waiter){.wait = wait, .rank = rank};
    ck_assert_int_eq(pthread_create(&waiter->thread, NULL, run_waiter, waiter), 0);
}

/* Signals until one meets the wait: it may come before the thread has begun to wait. */
static void interrupt(struct waiter *waiter)
{
    while (!atomic_load(&waiter->is_resumed)) {
        ck_assert_int_eq(pthread_kill(waiter->thread, SIGINT), 0);
        (void)poll(NULL, 0, 1);
    }
}

static void check_waiter(struct waiter *waiter)
{
    ck_assert_int_eq(pthread_join(waiter->thread, NULL), 0);
    ck_assert_msg(waiter->interrupted == F8_EINTR, "it was no interruption but %s",
        f8_status_name(waiter->interrupted));
    ck_assert_msg(waiter->resumed == F8_OK, "taken up again: %s", f8_status_name(waiter->resumed));
}

static f8_ticket ticket; /* of rank 0's precompute */

static int ask_layer(struct rank *rank)
{
    return f8_gather(rank->group, LAYER_0, 0, rank->stream);
}

static int wait_layer(struct rank *rank)
{
    return f8_post_gather(
        rank->group, LAYER_0, F8_FOREVER, rank->views[LAYER_0], BUCKET_WEIGHTS, rank->stream);
}

static int gather_layer(struct rank *rank)
{
    return rank_gather(rank, LAYER_0, 0);
}

static int ask_precompute(struct rank *rank)
{
    return f8_precompute(rank->group, 0, rank->stream, &ticket);
}

static int wait_precompute(struct rank *rank)
{
    return f8_wait(rank->group, ticket, F8_FOREVER, rank->stream);
}

static int precompute(struct rank *rank)
{
    f8_ticket own;
    int status = f8_precompute(rank->group, 0, rank->stream, &own);
    return status == F8_OK ? f8_wait(rank->group, own, F8_FOREVER, rank->stream) : status;
}

static int wait_quiet(struct rank *rank)
{
    return f8_quiesce(rank->group, F8_FOREVER);
}

/* What rank 0 asks for, waits for, and what rank 1 then does to end the wait. */
static const struct {
    int (*ask)(struct rank *rank);
    int (*wait)(struct rank *rank);
    int (*answer)(struct rank *rank);
} waits[] = {
    {NULL, rank_seal, rank_seal},
    {ask_layer, wait_layer, gather_layer},
    {ask_precompute, wait_precompute, precompute},
    {ask_layer, wait_quiet, gather_layer},
};

START_TEST(wait_is_interrupted)
{
    struct test_daemon daemon;
    struct rank ranks[2];
    struct waiter waiter;
    catch_interrupts();
    test_daemon_start(&daemon, NULL);
    for (uint32_t r = 0; r < 2; r++) {
        rank_connect(&ranks[r], daemon.socket);
        rank_join(&ranks[r], r, 2);
        rank_register(&ranks[r]);
    }
    if (waits[_i].ask) {
        ranks_must(ranks, 2, rank_seal);
        ck_assert_int_eq(waits[_i].ask(&ranks[0]), F8_OK);
    }
    start_waiter(&waiter, &ranks[0], waits[_i].wait);
    interrupt(&waiter);
    ck_assert_int_eq(waits[_i].answer(&ranks[1]), F8_OK);
    check_waiter(&waiter);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_stop(&daemon);
}
END_TEST

static int wait_embed(struct rank *rank)
{
    return f8_post_gather(rank->group, EMBED, F8_FOREVER, NULL, 0, rank->stream);
}

/* Of two threads that wait one reads the socket for both: each is interrupted, in either order. */
START_TEST(two_waits_are_interrupted)
{
    struct test_daemon daemon;
    struct rank ranks[2];
    struct waiter waiters[2];
    catch_interrupts();
    test_daemon_start(&daemon, NULL);
    ranks_start(ranks, 2, daemon.socket);
    ck_assert_int_eq(f8_gather(ranks[0].group, EMBED, 0, ranks[0].stream), F8_OK);
    ck_assert_int_eq(f8_gather(ranks[0].group, LAYER_0, 0, ranks[0].stream), F8_OK);
    start_waiter(&waiters[0], &ranks[0], wait_embed);
    start_waiter(&waiters[1], &ranks[0], wait_layer);
    interrupt(&waiters[_i]);
    interrupt(&waiters[1 - _i]);
    ck_assert_int_eq(rank_gather(&ranks[1], EMBED, 0), F8_OK);
    ck_assert_int_eq(rank_gather(&ranks[1], LAYER_0, 0), F8_OK);
    check_waiter(&waiters[0]);
    check_waiter(&waiters[1]);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_stop(&daemon);
}
END_TEST

/* A time limit is no end either: the wait can be taken up again, any number of times. */
START_TEST(quiesce_is_taken_up_again)
{
    struct test_daemon daemon;
    struct rank ranks[2];
    test_daemon_start(&daemon, NULL);
    ranks_start(ranks, 2, daemon.socket);
    ck_assert_int_eq(ask_layer(&ranks[0]), F8_OK);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(f8_quiesce(ranks[0].group, i % 2), F8_EDEADLINE);
    ck_assert_int_eq(gather_layer(&ranks[1]), F8_OK);
    ck_assert_int_eq(wait_quiet(&ranks[0]), F8_OK);
    ck_assert_int_eq(wait_layer(&ranks[0]), F8_OK);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_stop(&daemon);
}
END_TEST

/* ---- forks ---- */

/* All calls of a client, a group and a region; the number of the first that goes through, or 0. */
static int call_all(struct rank *rank)
{
    struct f8_group *group = rank->group;
    struct f8_region *region;
    struct f8_traffic traffic;
    struct f8_view *views = rank->views[EMBED];
    void *memory;
    int done;
    uint64_t size;
    f8_ticket own;
    const int statuses[] = {
        f8_region_alloc(rank->client, 1, &region, &memory),
        f8_region_share(rank->client, 0, &region),
        f8_region_free(rank->region),
        f8_traffic_read(rank->client, &traffic),
        f8_group_join(rank->client, "tp", 0, 1, &group),
        f8_group_rejoin(rank->group),
        f8_register(rank->group, NULL, 0, NULL, 0),
        f8_seal(rank->group, NULL),
        f8_precompute(rank->group, 0, rank->stream, &own),
        f8_wait(rank->group, 1, F8_FOREVER, rank->stream),
        f8_test(rank->group, 1, &done, rank->stream),
        f8_pre_gather(rank->group, LAYER_0, rank->stream),
        f8_gather(rank->group, LAYER_0, 0, rank->stream),
        f8_post_gather(rank->group, EMBED, F8_FOREVER, views, BUCKET_WEIGHTS, rank->stream),
        f8_gather_test(rank->group, EMBED, &done),
        f8_view_check(rank->group, &views[0]),
        f8_release(rank->group, EMBED, rank->stream),
        f8_changed(rank->group, 0, 1),
        f8_quiesce(rank->group, F8_FOREVER),
        f8_weight_move(rank->group, 0, rank->region, 0),
        f8_copy_size(rank->group, EMBED, F8_WEIGHT_MAJOR, &size),
        f8_copy_out(rank->group, EMBED, F8_WEIGHT_MAJOR, &size, sizeof(size), rank->stream),
    };
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i] != F8_EFORKED)
            return (int)i + 1;
    return 0;
}

#define NO_WORDS  100
#define IS_MAPPED 101

static int in_the_child(void *argument)
{
    struct rank *rank = argument;
    int number = call_all(rank);
    if (number != 0)
        return number;
    if (!strstr(f8_error_text(), "not by its child"))
        return NO_WORDS;
    /* The arena is not mapped here: a page at the view's address is not known to the kernel. What
       becomes of a device's addresses is CUDA's affair. */
    void *page = (void *)((uintptr_t)rank->views[EMBED][0].data & ~(uintptr_t)4095);
    if (!device_memory_used() && (msync(page, 4096, MS_ASYNC) == 0 || errno != ENOMEM))
        return IS_MAPPED;
    f8_close(rank->client);
    return 0;
}

START_TEST(child_can_only_close)
{
    struct test_daemon daemon;
    struct rank ranks[2];
    test_daemon_start(&daemon, NULL);
    ranks_start(ranks, 2, daemon.socket);
    for (uint32_t r = 0; r < 2; r++)
        ck_assert_int_eq(f8_gather(ranks[r].group, EMBED, 0, ranks[r].stream), F8_OK);
    for (uint32_t r = 0; r < 2; r++)
        ck_assert_int_eq(f8_post_gather(ranks[r].group, EMBED, F8_FOREVER, ranks[r].views[EMBED],
                             BUCKET_WEIGHTS, ranks[r].stream),
            F8_OK);
    ck_assert_int_eq(test_wait(test_fork(in_the_child, &ranks[0])), 0);
    /* The parent holds what it held, and goes on. */
    ck_assert_int_eq(rank_check(&ranks[0], EMBED), F8_OK);
    for (uint32_t r = 0; r < 2; r++)
        ck_assert_int_eq(f8_release(ranks[r].group, EMBED, ranks[r].stream), F8_OK);
    ranks_must(ranks, 2, rank_step);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("interrupt");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, wait_is_interrupted, 0, sizeof(waits) / sizeof(waits[0]));
    tcase_add_loop_test(tcase, two_waits_are_interrupted, 0, 2);
    tcase_add_test(tcase, quiesce_is_taken_up_again);
    tcase_add_test(tcase, child_can_only_close);
    return run_suite("interrupt", tcase);
}
