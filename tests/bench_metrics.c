/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What readers at 10 Hz cost a running gather, for people; no test: a scraper of metrics, f8ctl
 * top, and both. A slice with a reader has one beside it without, and pairs of slices that are both
 * without say how much of a ratio is the machine's own noise. The speed of a machine that others
 * share drifts by as much in a tenth of a second as in a whole one, so slices are short, pairs are
 * many, and all kinds of them take turns. And the daemon's processor time for what a reader asks,
 * by the kernel's books, which other processes do not move. Starts its own daemon.
 */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"

#define PERIOD_NS 100000000 /* 10 Hz */
#define SLICE_S   0.1
#define PAIRS     301 /* of each kind */
/* Of f8ctl top: longer than a slice, so that it draws once in each, as soon as it may go on. */
#define TOP_INTERVAL "0.15"
#define TIMES        100 /* that a reader asks an idle daemon */

#define GET_METRICS "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

enum {
    SCRAPER = 1,
    TOP = 2,
};

/* Who reads in the first slice of a pair. */
static const struct {
    unsigned readers;
    const char *what;
} kinds[] = {
    {TOP, "f8ctl top at 10 Hz"},
    {SCRAPER, "a scraper at 10 Hz"},
    {TOP | SCRAPER, "both"},
    {0, "nobody in either slice"},
};

#define NUM_KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* Of a kind's pairs. */
struct pairs {
    double ratios[PAIRS];
    unsigned scrapes, frames;
};

static char path[64];
static atomic_bool reading, over;
static atomic_uint scrapes;
static pid_t top_pid;
static int top_output; /* a memfd: a line a frame */

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

/* f8ctl top in a pipe, so many frames, or without end. It dies with us. */
static pid_t start_top(const char *socket, const char *frames)
{
    const char *arguments[] = {"f8ctl", "--socket", socket, "--json", "top", "--interval",
        TOP_INTERVAL, frames ? "--count" : NULL, frames, NULL};
    pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid > 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(top_output, STDOUT_FILENO);
    (void)execv(F8_TEST_CTL, (char *const *)arguments);
    _exit(127);
}

/* Frames since the last call. */
static unsigned count_frames(void)
{
    static off_t at;
    char bytes[4096];
    unsigned frames = 0;
    for (ssize_t n; (n = pread(top_output, bytes, sizeof(bytes), at)) > 0; at += n)
        for (ssize_t i = 0; i < n; i++)
            frames += bytes[i] == '\n';
    return frames;
}

static void set_readers(unsigned readers)
{
    atomic_store(&reading, readers & SCRAPER);
    must(kill(top_pid, readers & TOP ? SIGCONT : SIGSTOP) == 0, "kill");
}

/* Seconds of a step, over a slice. */
static double slice(struct toy_rank *toy, unsigned readers)
{
    int steps = 0;
    set_readers(readers);
    double begin = now();
    do
        must(toy_rank_gathers(toy) == 0, "gathers");
    while (steps++, now() - begin < SLICE_S);
    double seconds = (now() - begin) / steps;
    set_readers(0);
    return seconds;
}

/* Which slice of a pair comes first changes from pair to pair. */
static void measure_pair(struct toy_rank *toy, unsigned readers, int i, struct pairs *pairs)
{
    unsigned scraped = atomic_load(&scrapes);
    double first = slice(toy, i % 2 == 0 ? readers : 0);
    double second = slice(toy, i % 2 == 1 ? readers : 0);
    pairs->ratios[i] = i % 2 == 0 ? first / second : second / first;
    pairs->scrapes += atomic_load(&scrapes) - scraped;
    pairs->frames += count_frames();
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
    for (int i = 0; i < TIMES; i++) {
        (void)scrape();
        (void)nanosleep(&period, NULL);
    }
    double ns = (double)(loop_ns(daemon) - before) / TIMES;
    printf("a scrape of %zu bytes: %.0f us of the loop, so %.2f %% of it at 10 Hz\n", bytes,
        ns / 1e3, ns * 10 / 1e9 * 100);
}

static void report_idle_top(const struct test_daemon *daemon)
{
    int status;
    uint64_t before = loop_ns(daemon);
    pid_t pid = start_top(daemon->socket, "100");
    must(waitpid(pid, &status, 0) == pid && status == 0, "f8ctl top");
    double ns = (double)(loop_ns(daemon) - before) / TIMES;
    printf("a frame of f8ctl top: %.0f us of the loop, so %.2f %% of it at 10 Hz\n", ns / 1e3,
        ns * 10 / 1e9 * 100);
}

/* The median, and between which ratios that of many more pairs is, at 95 %: the ranks of the
 * interval are the binomial distribution's, whatever that of the ratios is. */
static void report(const char *what, struct pairs *pairs)
{
    int off = (int)lround(0.98 * sqrt(PAIRS));
    qsort(pairs->ratios, PAIRS, sizeof(pairs->ratios[0]), compare);
    printf("%s: %.4f (%.4f to %.4f) of the time without (%u scrapes, %u frames, %d pairs of "
           "%.1f s)\n",
        what, pairs->ratios[PAIRS / 2], pairs->ratios[PAIRS / 2 - off],
        pairs->ratios[PAIRS / 2 + off], pairs->scrapes, pairs->frames, PAIRS, SLICE_S);
}

static void report_pairs(struct toy_rank *toy)
{
    static struct pairs pairs[NUM_KINDS];
    (void)count_frames(); /* of what came before */
    for (int i = 0; i < PAIRS; i++)
        for (size_t kind = 0; kind < NUM_KINDS; kind++)
            measure_pair(toy, kinds[kind].readers, i, &pairs[kind]);
    for (size_t kind = 0; kind < NUM_KINDS; kind++)
        report(kinds[kind].what, &pairs[kind]);
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
    must(toy_rank_join(&toy, &job, 0) == 0 && toy_rank_seal(&toy) == 0, "rank");
    report_idle(daemon);
    report_idle_top(daemon);
    must(pthread_create(&thread, NULL, scraper, NULL) == 0, "thread");
    top_pid = start_top(daemon->socket, NULL);
    (void)slice(&toy, 0); /* to warm up */
    report_pairs(&toy);
    atomic_store(&over, true);
    must(pthread_join(thread, NULL) == 0, "join");
    must(kill(top_pid, SIGKILL) == 0 && waitpid(top_pid, NULL, 0) == top_pid, "f8ctl top");
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
    top_output = memfd_create("frames", MFD_CLOEXEC);
    must(top_output >= 0, "memfd_create");
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
    tcase_set_timeout(tcase, 1800);
    tcase_add_test(tcase, bench);
    suite_add_tcase(suite, tcase);
    return run_cases_unforked(suite);
}
