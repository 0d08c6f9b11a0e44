/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the fabric exchanges between two hosts on the loopback interface, beside the same bytes
 * over one TCP connection between two processes, sent and received at once; what it puts on the
 * wire; and how long a reduction takes. For people: prints, and looks only that the bytes are
 * right.
 */
#include <check.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/fabric_hosts.h"

#define SIZE   ((uint64_t)64 << 20) /* of each host */
#define ROUNDS 15

static struct fabric_hosts hosts;

static const struct fabric_span spans[] = {
    {.offset = 0, .size = SIZE, .host = 0}, {.offset = SIZE, .size = SIZE, .host = 1}};

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(*values), compare);
    return values[ROUNDS / 2];
}

static double seconds(void)
{
    return (double)uv_hrtime() / 1e9;
}

/* What the loopback interface has sent, with all headers. */
static double wire_bytes(void)
{
    unsigned long long bytes = 0;
    FILE *file = fopen("/sys/class/net/lo/statistics/tx_bytes", "re");
    if (!file)
        return 0;
    (void)!fscanf(file, "%llu", &bytes);
    (void)fclose(file);
    return (double)bytes;
}

/* ---- one connection ---- */

static uint8_t *memory; /* 2 * SIZE, shared by both processes, each of which writes one half */

struct sender {
    int fd;
    const uint8_t *from;
};

static void *send_all(void *argument)
{
    const struct sender *sender = argument;
    for (uint64_t done = 0; done < SIZE;) {
        ssize_t sent = send(sender->fd, sender->from + done, SIZE - done, MSG_NOSIGNAL);
        ck_assert_int_gt(sent, 0);
        done += (uint64_t)sent;
    }
    return NULL;
}

static void transfer(int fd, const uint8_t *from, uint8_t *to)
{
    struct sender sender = {fd, from};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, send_all, &sender), 0);
    for (uint64_t done = 0; done < SIZE;) {
        ssize_t got = recv(fd, to + done, SIZE - done, 0);
        ck_assert_int_gt(got, 0);
        done += (uint64_t)got;
    }
    (void)pthread_join(thread, NULL);
}

static void connect_pair(int ends[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(ends[0], (struct sockaddr *)&at, size), 0);
    ends[1] = accept(listener, NULL, NULL);
    ck_assert_int_ge(ends[1], 0);
    (void)close(listener);
}

static void measure_connection(double *times, double *ret_wire)
{
    int ends[2];
    memory = mmap(NULL, 4 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    memset(memory, 1, 4 * SIZE);
    connect_pair(ends);
    pid_t other = fork();
    ck_assert_int_ge(other, 0);
    for (int i = 0; other == 0 && i < ROUNDS; i++)
        transfer(ends[1], memory, memory + SIZE);
    if (other == 0)
        _exit(0);
    double wire = wire_bytes();
    for (int i = 0; i < ROUNDS; i++) {
        double start = seconds();
        transfer(ends[0], memory + 2 * SIZE, memory + 3 * SIZE);
        times[i] = seconds() - start;
    }
    ck_assert_int_eq(waitpid(other, NULL, 0), other);
    *ret_wire = (wire_bytes() - wire) / ROUNDS;
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)munmap(memory, 4 * SIZE);
}

/* ---- the fabric ---- */

static void measure_exchange(double *times, double *ret_wire)
{
    fabric_hosts_start(&hosts, 2, 2 * SIZE);
    fabric_hosts_fill(&hosts, spans, 2, 0);
    double wire = wire_bytes();
    for (int i = 0; i < ROUNDS; i++) {
        double start = seconds();
        fabric_hosts_exchange(&hosts, spans, 2, PATIENCE_MS);
        fabric_hosts_await_done(&hosts);
        times[i] = seconds() - start;
    }
    *ret_wire = (wire_bytes() - wire) / ROUNDS;
    fabric_hosts_check(&hosts, spans, 2, 0);
}

static void measure_reduction(uint32_t count, double *times)
{
    uint32_t *values = calloc(2 * (size_t)count, sizeof(*values));
    for (int i = 0; i < ROUNDS; i++) {
        double start = seconds();
        for (uint32_t host = 0; host < 2; host++)
            fabric_reduce(hosts.host[host].fabric, 1, values + host * count, count, PATIENCE_MS);
        fabric_hosts_await_done(&hosts);
        times[i] = seconds() - start;
    }
    free(values);
}

static void print(const char *what, double time, double wire)
{
    double bytes = 2.0 * SIZE;
    (void)printf("  %-18s  %6.1f ms  %5.2f GB/s  on the wire, with headers, %.4f of the bytes\n",
        what, time * 1e3, bytes / time / 1e9, wire / bytes);
}

START_TEST(bench)
{
    double times[ROUNDS], wire;
    (void)printf(
        "2 hosts, 64 MiB from each to the other, both ways together, median of %d\n", ROUNDS);
    measure_connection(times, &wire);
    double raw = median(times);
    print("one TCP connection", raw, wire);
    measure_exchange(times, &wire);
    double exchange = median(times);
    print("exchange", exchange, wire);
    (void)printf("  the exchange at %.2f of the connection's rate\n", raw / exchange);
    for (uint32_t count = 10; count <= 100000; count *= 100) {
        measure_reduction(count, times);
        (void)printf("  reduction of %6u values  %.0f us\n", count, median(times) * 1e6);
    }
    fabric_hosts_close(&hosts);
}
END_TEST

int main(void)
{
    fabric_hosts_need();
    Suite *suite = suite_create("fabric");
    TCase *tcase = tcase_create("bench");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, bench);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_MINIMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
