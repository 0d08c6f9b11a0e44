/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scraper of metrics at 10 Hz costs a running gather, for people; no test. Slices with the
 * scraper and without alternate in one run, and so do pairs of slices that are both without, which
 * say how much of a ratio is the machine's own noise. And the daemon's processor time for a scrape,
 * by the kernel's books, which other processes do not move. Starts its own daemon.
 */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"

#define PERIOD_NS 100000000 /* 10 Hz */
#define SLICE_S   0.4
#define PAIRS     61
#define SCRAPES   100 /* of an idle daemon */

#define GET_METRICS "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"

static char path[64];
static atomic_bool reading, over;
static atomic_uint scrapes;

static void must(bool right, const char *what)
{
    if (right)
        return;
    perror(what);
    exit(EXIT_FAILURE);
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), compare);
    return values[count / 2];
}

/* One answer, read whole; its bytes. */
static size_t scrape(void)
{
    char answer[65536], status[16] = "";
    size_t size = 0;
    ssize_t n;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0, "connect");
    must(send(fd, GET_METRICS, strlen(GET_METRICS), MSG_NOSIGNAL) > 0, "send");
    while ((n = recv(fd, answer, sizeof(answer), 0)) > 0) {
        if (size == 0)
            memcpy(status, answer, sizeof(status) - 1);
        size += (size_t)n;
    }
    (void)close(fd);
    must(strncmp(status, "HTTP/1.1 200 ", 13) == 0, "the daemon refused a scrape");
    atomic_fetch_add(&scrapes, 1);
    return size;
}

static void *scraper(void *unused)
{
    const struct timespec period = {.tv_nsec = PERIOD_NS};
    while (!atomic_load(&over)) {
        if (atomic_load(&reading))
            (void)scrape();
        (void)nanosleep(&period, NULL);
    }
    return unused;
}

/* Seconds of a step, over a slice. */
static double slice(struct toy_rank *toy, bool with_scraper)
{
    int steps = 0;
    atomic_store(&reading, with_scraper);
    double begin = now();
    do
        must(toy_rank_gathers(toy) == 0, "gathers");
    while (steps++, now() - begin < SLICE_S);
    double seconds = (now() - begin) / steps;
    atomic_store(&reading, false);
    return seconds;
}

/* The median of the ratios of two slices, the first with the scraper or without. Which comes first
 * changes from pair to pair. */
static double ratio(struct toy_rank *toy, bool with_scraper, double *ret_seconds)
{
    double ratios[PAIRS], plain[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        double first = slice(toy, with_scraper && i % 2 == 0);
        double second = slice(toy, with_scraper && i % 2 == 1);
        plain[i] = i % 2 == 0 ? second : first;
        ratios[i] = (i % 2 == 0 ? first : second) / plain[i];
    }
    *ret_seconds = median(plain, PAIRS);
    return median(ratios, PAIRS);
}

/* Nanoseconds that the daemon's loop has run. */
static uint64_t loop_ns(const struct test_daemon *daemon)
{
    char name[64];
    uint64_t ns = 0;
    (void)snprintf(name, sizeof(name), "/proc/%d/schedstat", (int)daemon->pid);
    FILE *file = fopen(name, "re");
    must(file && fscanf(file, "%" SCNu64, &ns) == 1, name);
    (void)fclose(file);
    return ns;
}

static void report_idle(const struct test_daemon *daemon)
{
    const struct timespec period = {.tv_nsec = PERIOD_NS};
    size_t bytes = scrape();
    uint64_t before = loop_ns(daemon);
    for (int i = 0; i < SCRAPES; i++) {
        (void)scrape();
        (void)nanosleep(&period, NULL);
    }
    double ns = (double)(loop_ns(daemon) - before) / SCRAPES;
    printf("a scrape of %zu bytes: %.0f us of the loop, so %.2f %% of it at 10 Hz\n", bytes,
        ns / 1e3, ns * 10 / 1e9 * 100);
}

static void measure(const struct test_daemon *daemon)
{
    const struct toy_job job = {.socket = daemon->socket,
        .name = "bench-metrics",
        .ranks = 1,
        .buckets = 16,
        .weights = 8,
        .rows = 512,
        .cols = 256,
        .flavour = F8_STATIC};
    struct toy_rank toy;
    pthread_t thread;
    double plain, unused;
    must(toy_rank_join(&toy, &job, 0) == 0 && toy_rank_seal(&toy) == 0, "rank");
    report_idle(daemon);
    must(pthread_create(&thread, NULL, scraper, NULL) == 0, "thread");
    (void)slice(&toy, false); /* to warm up */
    atomic_store(&scrapes, 0);
    double with = ratio(&toy, true, &plain);
    unsigned count = atomic_load(&scrapes);
    double without = ratio(&toy, false, &unused);
    atomic_store(&over, true);
    must(pthread_join(thread, NULL) == 0, "join");
    printf("16 gathers of 8 weights of 256 KiB: %.2f ms; with a scraper at 10 Hz %.4f of that (%u "
           "scrapes, %d pairs of %.1f s), without one in either slice %.4f\n",
        1e3 * plain, with, count, PAIRS, SLICE_S, without);
    toy_rank_close(&toy);
}

/* Check's own frame: what the test library asserts ends the bench with its words. */
START_TEST(bench)
{
    char folder[] = "/tmp/f8bench-XXXXXX";
    struct test_daemon daemon;
    const char *arguments[] = {"--metrics", path, "--cuda", "off", NULL};
    must(mkdtemp(folder) != NULL, "mkdtemp");
    (void)snprintf(path, sizeof(path), "%s/metrics", folder);
    test_daemon_start(&daemon, arguments);
    measure(&daemon);
    test_daemon_stop(&daemon);
    (void)rmdir(folder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tcase = tcase_create("bench");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, bench);
    suite_add_tcase(suite, tcase);
    return run_cases_unforked(suite);
}
