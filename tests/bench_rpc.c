/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call of the daemon costs, for people; no test. Each thing is measured in rounds that
 * alternate with its limit in the same run, a raw SEQPACKET socket or memcpy: neighbours on the
 * machine move both, so the median of the rounds' ratios is the figure. Starts its own daemon.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/crew.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"
#include "lib/toy_rank.h"

#define ROUNDS        41
#define CALLS         200 /* of each kind in a round */
#define BUCKETS       128 /* asked for ahead in the pipelined rounds */
#define MESSAGE       14  /* bytes: as a gather's */
#define ONE_WAY       1   /* first byte of a raw message that is not answered */
#define GATHER_ROUNDS 31
#define GATHER_SOURCE ((uint64_t)16 << 20) /* bytes a rank */

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

static void must(bool right, const char *what)
{
    if (right)
        return;
    perror(what);
    exit(EXIT_FAILURE);
}

/* ---- the limit: a process that answers on a raw socket ---- */

struct raw {
    int fd;
    pid_t pid;
};

static void answer(int fd)
{
    char message[MESSAGE];
    while (recv(fd, message, sizeof(message), 0) > 0)
        if (message[0] != ONE_WAY && send(fd, message, sizeof(message), MSG_NOSIGNAL) < 0)
            break;
    _exit(0);
}

static struct raw raw_start(void)
{
    int fds[2];
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0, "socketpair");
    struct raw raw = {.fd = fds[0], .pid = fork()};
    must(raw.pid >= 0, "fork");
    if (raw.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(fds[0]);
        answer(fds[1]);
    }
    (void)close(fds[1]);
    return raw;
}

static void raw_stop(struct raw *raw)
{
    (void)close(raw->fd);
    (void)test_wait(raw->pid);
}

static void raw_send(const struct raw *raw, char kind)
{
    char message[MESSAGE] = {kind};
    must(send(raw->fd, message, sizeof(message), MSG_NOSIGNAL) == MESSAGE, "send");
}

static void raw_receive(const struct raw *raw)
{
    char message[MESSAGE];
    must(recv(raw->fd, message, sizeof(message), 0) == MESSAGE, "recv");
}

/* ---- blocking calls ---- */

struct bench {
    struct raw raw;
    struct toy_rank tiny; /* one rank; its buckets hold 16 elements each */
};

static void call_raw(struct bench *bench)
{
    raw_send(&bench->raw, 0);
    raw_receive(&bench->raw);
}

/* A request that the loop answers by itself. */
static void call_changed(struct bench *bench)
{
    must(f8_changed(bench->tiny.group, 0, 1) == F8_OK, "f8_changed");
}

/* A gather of one small weight, with its release. */
static void call_gather(struct bench *bench)
{
    struct toy_rank *toy = &bench->tiny;
    must(f8_gather(toy->group, 0, F8_DEFAULT_DEADLINE, NULL) == F8_OK, "f8_gather");
    must(f8_post_gather(toy->group, 0, F8_FOREVER, NULL, 0, NULL) == F8_OK, "f8_post_gather");
    must(f8_release(toy->group, 0, NULL) == F8_OK, "f8_release");
}

/* The median seconds of one call. */
static double time_calls(struct bench *bench, void (*call)(struct bench *bench))
{
    static double seconds[CALLS];
    for (int i = 0; i < CALLS; i++) {
        double begin = now();
        call(bench);
        seconds[i] = now() - begin;
    }
    return median(seconds, CALLS);
}

/* ---- pipelined calls ---- */

/* As many messages of each kind and way as the gathers take. */
static double time_raw_pipeline(struct bench *bench)
{
    double begin = now();
    for (int i = 0; i < BUCKETS; i++)
        raw_send(&bench->raw, 0);
    for (int i = 0; i < BUCKETS; i++) {
        raw_receive(&bench->raw);
        raw_send(&bench->raw, ONE_WAY);
    }
    return (now() - begin) / BUCKETS;
}

static double time_gather_pipeline(struct bench *bench)
{
    struct toy_rank *toy = &bench->tiny;
    double begin = now();
    for (uint32_t i = 0; i < BUCKETS; i++)
        must(f8_gather(toy->group, i, F8_DEFAULT_DEADLINE, NULL) == F8_OK, "f8_gather");
    for (uint32_t i = 0; i < BUCKETS; i++) {
        must(f8_post_gather(toy->group, i, F8_FOREVER, NULL, 0, NULL) == F8_OK, "f8_post_gather");
        must(f8_release(toy->group, i, NULL) == F8_OK, "f8_release");
    }
    return (now() - begin) / BUCKETS;
}

static double time_raw(struct bench *bench)
{
    return time_calls(bench, call_raw);
}

static double time_changed(struct bench *bench)
{
    return time_calls(bench, call_changed);
}

static double time_gather(struct bench *bench)
{
    return time_calls(bench, call_gather);
}

/* Alternates a measure with its limit; prints both medians and the median of the ratios. */
static void measure(struct bench *bench, const char *name, double (*limit)(struct bench *bench),
    double (*what)(struct bench *bench))
{
    double limits[ROUNDS], whats[ROUNDS], ratios[ROUNDS];
    (void)limit(bench);
    (void)what(bench);
    for (int i = 0; i < ROUNDS; i++) {
        limits[i] = limit(bench);
        whats[i] = what(bench);
        ratios[i] = whats[i] / limits[i];
    }
    printf("%-44s %7.2f us, raw %7.2f us, ratio %.2f\n", name, 1e6 * median(whats, ROUNDS),
        1e6 * median(limits, ROUNDS), median(ratios, ROUNDS));
}

static void bench_calls(const struct test_daemon *daemon)
{
    const struct toy_job job = {.socket = daemon->socket,
        .name = "bench-rpc",
        .ranks = 1,
        .buckets = BUCKETS,
        .weights = 1,
        .rows = 1,
        .cols = 16,
        .flavour = F8_STATIC};
    struct bench bench = {.raw = raw_start()};
    must(toy_rank_join(&bench.tiny, &job, 0) == 0 && toy_rank_seal(&bench.tiny) == 0, "rank");
    measure(&bench, "blocking call without work (f8_changed)", time_raw, time_changed);
    measure(&bench, "blocking gather of 16 elements and release", time_raw, time_gather);
    measure(&bench, "pipelined gather, 128 ahead, and release", time_raw_pipeline,
        time_gather_pipeline);
    toy_rank_close(&bench.tiny);
    raw_stop(&bench.raw);
}

/* ---- the all-gather, cast included, against memcpy ---- */

/* What ranks share: their barrier, and the seconds of rank 0, which count from start to end. */
struct meeting {
    struct toy_job job;
    pthread_barrier_t *barrier; /* owned by bench_gather: shared memory */
    double *gathers, *copies;   /* owned by bench_gather: shared memory */
};

static void meet(const struct meeting *meeting)
{
    (void)pthread_barrier_wait(meeting->barrier);
}

static double time_one_gather(const struct meeting *meeting, struct toy_rank *toy)
{
    meet(meeting);
    double begin = now();
    must(f8_gather(toy->group, 0, F8_DEFAULT_DEADLINE, NULL) == F8_OK, "f8_gather");
    must(f8_post_gather(toy->group, 0, F8_FOREVER, toy->views, 1, NULL) == F8_OK, "f8_post_gather");
    meet(meeting);
    double seconds = now() - begin;
    must(f8_release(toy->group, 0, NULL) == F8_OK, "f8_release");
    return seconds;
}

/* The ranks together read and write as many bytes as the gather does. */
static double time_one_copy(const struct meeting *meeting, const struct toy_rank *toy, char *to)
{
    meet(meeting);
    double begin = now();
    memcpy(to, toy->shards, GATHER_SOURCE / 4 * 3);
    meet(meeting);
    return now() - begin;
}

static int gathering_rank(struct crew_member *member, const void *argument)
{
    const struct meeting *meeting = argument;
    struct toy_rank toy;
    char *copy =
        mmap(NULL, GATHER_SOURCE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(copy != MAP_FAILED, "mmap");
    (void)madvise(copy, GATHER_SOURCE, MADV_HUGEPAGE);
    memset(copy, 1, GATHER_SOURCE);
    must(toy_rank_join(&toy, &meeting->job, member->index) == 0, "join");
    must(toy_rank_seal(&toy) == 0, "seal");
    for (int i = -1; i < GATHER_ROUNDS; i++) { /* one to warm up */
        double copied = time_one_copy(meeting, &toy, copy);
        double gathered = time_one_gather(meeting, &toy);
        if (member->index == 0 && i >= 0) {
            meeting->copies[i] = copied;
            meeting->gathers[i] = gathered;
        }
    }
    toy_rank_close(&toy);
    (void)munmap(copy, GATHER_SOURCE);
    return 0;
}

static void *shared_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(memory != MAP_FAILED, "mmap");
    return memory;
}

static void report_gather(const struct meeting *meeting, const char *name)
{
    double ratios[GATHER_ROUNDS];
    double source = (double)(GATHER_SOURCE * meeting->job.ranks);
    for (int i = 0; i < GATHER_ROUNDS; i++)
        ratios[i] = meeting->copies[i] / meeting->gathers[i];
    double seconds = median(meeting->gathers, GATHER_ROUNDS);
    double copied = median(meeting->copies, GATHER_ROUNDS);
    printf("all-gather of 16 MiB bf16 a rank, %u ranks, %-8s %6.2f ms, %5.1f GB/s of source; plain "
           "memcpy of as many bytes %5.2f ms; ratio of speeds %.2f\n",
        meeting->job.ranks, name, 1e3 * seconds, 1e-9 * source / seconds, 1e3 * copied,
        median(ratios, GATHER_ROUNDS));
}

static void bench_gather(
    const struct test_daemon *daemon, uint32_t ranks, enum f8_flavour flavour, const char *name)
{
    pthread_barrierattr_t shared;
    struct meeting meeting = {.job = {.socket = daemon->socket,
                                  .name = "bench-gather",
                                  .ranks = ranks,
                                  .buckets = 1,
                                  .weights = 1,
                                  .rows = 2048 * ranks,
                                  .cols = 4096,
                                  .flavour = flavour},
        .barrier = shared_memory(sizeof(*meeting.barrier)),
        .gathers = shared_memory(GATHER_ROUNDS * sizeof(double)),
        .copies = shared_memory(GATHER_ROUNDS * sizeof(double))};
    struct crew crew;
    must(pthread_barrierattr_init(&shared) == 0, "barrier");
    must(pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) == 0, "barrier");
    must(pthread_barrier_init(meeting.barrier, &shared, ranks) == 0, "barrier");
    crew_start(&crew, ranks, gathering_rank, &meeting);
    crew_end(&crew, 0);
    report_gather(&meeting, name);
    (void)munmap(meeting.barrier, sizeof(*meeting.barrier));
    (void)munmap(meeting.gathers, GATHER_ROUNDS * sizeof(double));
    (void)munmap(meeting.copies, GATHER_ROUNDS * sizeof(double));
}

/* Check's own frame: what the test library asserts ends the bench with its words. */
START_TEST(bench)
{
    struct test_daemon daemon;
    test_daemon_start(&daemon, NULL);
    bench_calls(&daemon);
    for (uint32_t ranks = 2; ranks <= 4; ranks += 2) {
        bench_gather(&daemon, ranks, F8_STATIC, "static");
        bench_gather(&daemon, ranks, F8_DYNAMIC, "dynamic");
    }
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc and all-gather");
    TCase *tcase = tcase_create("bench");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, bench);
    suite_add_tcase(suite, tcase);
    return run_cases_unforked(suite);
}
