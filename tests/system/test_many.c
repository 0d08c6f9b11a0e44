/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many of everything at once: 10,000 weights in 500 buckets, 64 jobs, 300 clients that connect at
 * one moment. That it works is asserted; the seconds are printed for people.
 */
#include <check.h>
#include <stdio.h>
#include <time.h>

#include "lib/crew.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"

#define RANKS       4
#define JOBS        64
#define CONNECTORS  60
#define CONNECTIONS 5 /* of each */

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Joins up to the first mark, seals up to the second, gathers all up to the third. */
static int large_rank(struct crew_member *member, const void *argument)
{
    const struct toy_job *job = argument;
    struct toy_rank toy;
    int status = toy_rank_join(&toy, job, member->index);
    if (status == 0) {
        crew_mark(member);
        status = toy_rank_seal(&toy);
    }
    if (status == 0) {
        crew_mark(member);
        status = toy_rank_step(&toy);
    }
    if (status == 0)
        crew_mark(member);
    toy_rank_close(&toy);
    return status != 0;
}

START_TEST(ten_thousand_weights)
{
    struct test_daemon daemon;
    test_daemon_start(&daemon, NULL);
    const struct toy_job job = {.socket = daemon.socket,
        .name = "many-weights",
        .ranks = RANKS,
        .buckets = 500,
        .weights = 20,
        .rows = 8,
        .cols = 16,
        .flavour = F8_DYNAMIC,
        .precompute = true};
    struct crew crew;
    crew_start(&crew, RANKS, large_rank, &job);
    crew_await(&crew);
    double begin = now();
    crew_go(&crew);
    crew_await(&crew);
    double sealed = now();
    crew_go(&crew);
    crew_await(&crew);
    printf("10,000 weights in 500 buckets on %d ranks: registered and sealed in %.3f s, "
           "precomputed and gathered in %.3f s\n",
        RANKS, sealed - begin, now() - sealed);
    crew_go(&crew);
    crew_end(&crew, 0);
    test_daemon_stop(&daemon);
}
END_TEST

/* One rank of one job of its own. */
static int lone_rank(struct crew_member *member, const void *argument)
{
    struct toy_job job = *(const struct toy_job *)argument;
    struct toy_rank toy;
    char name[32];
    (void)snprintf(name, sizeof(name), "job-%u", member->index);
    job.name = name;
    int status = toy_rank_join(&toy, &job, 0);
    if (status == 0)
        status = toy_rank_seal(&toy);
    if (status == 0)
        crew_mark(member);
    for (int i = 0; status == 0 && i < 10; i++)
        status = toy_rank_step(&toy);
    if (status == 0)
        crew_mark(member);
    toy_rank_close(&toy);
    return status != 0;
}

START_TEST(sixty_four_jobs)
{
    struct test_daemon daemon;
    test_daemon_start(&daemon, NULL);
    const struct toy_job job = {.socket = daemon.socket,
        .ranks = 1,
        .buckets = 4,
        .weights = 3,
        .rows = 61,
        .cols = 64,
        .flavour = F8_DYNAMIC,
        .slots = 2,
        .precompute = true};
    struct crew crew;
    crew_start(&crew, JOBS, lone_rank, &job);
    crew_await(&crew);
    double begin = now();
    crew_go(&crew);
    crew_await(&crew);
    printf("%d jobs at once, 10 steps each: %.3f s\n", JOBS, now() - begin);
    crew_go(&crew);
    crew_end(&crew, 0);
    test_daemon_stop(&daemon);
}
END_TEST

static int connect_several(struct crew_member *member, const void *argument)
{
    const struct f8_connect_options options = {.socket = argument, .job = "crowd"};
    struct f8_client *clients[CONNECTIONS] = {NULL};
    int status = F8_OK;
    crew_mark(member);
    for (int i = 0; status == F8_OK && i < CONNECTIONS; i++)
        status = f8_connect(&options, &clients[i]);
    if (status == F8_OK)
        crew_mark(member);
    else
        (void)fprintf(stderr, "f8_connect: %s\n", f8_error_text());
    for (int i = 0; i < CONNECTIONS; i++)
        f8_close(clients[i]);
    return status != F8_OK;
}

START_TEST(three_hundred_connect_at_once)
{
    struct test_daemon daemon;
    test_daemon_start(&daemon, NULL);
    struct crew crew;
    crew_start(&crew, CONNECTORS, connect_several, daemon.socket);
    crew_await(&crew);
    double begin = now();
    crew_go(&crew);
    crew_await(&crew);
    printf("%d clients connected at once from %d processes: %.3f s\n", CONNECTORS * CONNECTIONS,
        CONNECTORS, now() - begin);
    crew_go(&crew);
    crew_end(&crew, 0);
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("at once");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, ten_thousand_weights);
    tcase_add_test(tcase, sixty_four_jobs);
    tcase_add_test(tcase, three_hundred_connect_at_once);
    return run_suite("many", tcase);
}
