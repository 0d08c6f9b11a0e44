/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the fabric exchanges between two hosts, beside the same bytes over one TCP connection
 * between two processes, sent and received at once, in turns with it; what it puts on the wire; and
 * how long a reduction takes. On the loopback interface, and, as root, between two network
 * namespaces. For people: prints, and looks only that the bytes are right.
 */
#include <check.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/bench/network.h"
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

/* ---- where the hosts are ---- */

static struct network *network; /* owned; NULL: the loopback interface is all there is */

/* What is made from now on is a host's. */
static void enter(uint32_t host)
{
    if (network)
        ck_assert_int_eq(network_enter(network, host), 0);
}

static void address_of(uint32_t host, char text[INET_ADDRSTRLEN])
{
    if (network)
        network_address(host, false, text, INET_ADDRSTRLEN);
    else
        (void)strcpy(text, "127.0.0.1");
}

/* What both hosts have sent, with all headers. */
static double wire_bytes(void)
{
    unsigned long long bytes = 0;
    struct network_traffic traffic;
    struct bench_error error;
    if (network) {
        ck_assert_msg(network_count(network, 0, &traffic, &error) == 0, "%s", error.text);
        return (double)(traffic.in_bytes + traffic.out_bytes);
    }
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
    char address[INET_ADDRSTRLEN];
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof(at);
    address_of(0, address);
    ck_assert_int_eq(inet_pton(AF_INET, address, &at.sin_addr), 1);
    enter(0);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    enter(1);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(ends[0], (struct sockaddr *)&at, size), 0);
    ends[1] = accept(listener, NULL, NULL);
    ck_assert_int_ge(ends[1], 0);
    (void)close(listener);
}

/* Two processes at the ends of one connection; the other one does its part for each byte of `go`.
 */
struct connection {
    int fd, go;
    pid_t other;
};

static void connection_open(struct connection *connection)
{
    int ends[2], go[2];
    char byte;
    memory = mmap(NULL, 4 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    memset(memory, 1, 4 * SIZE);
    connect_pair(ends);
    ck_assert_int_eq(pipe(go), 0);
    *connection = (struct connection){.fd = ends[0], .go = go[1], .other = fork()};
    ck_assert_int_ge(connection->other, 0);
    if (connection->other == 0) {
        (void)close(go[1]);
        while (read(go[0], &byte, 1) == 1)
            transfer(ends[1], memory, memory + SIZE);
        _exit(0);
    }
    (void)close(go[0]);
    (void)close(ends[1]);
}

static void connection_transfer(struct connection *connection)
{
    ck_assert_int_eq(write(connection->go, "", 1), 1);
    transfer(connection->fd, memory + 2 * SIZE, memory + 3 * SIZE);
}

static void connection_close(struct connection *connection)
{
    (void)close(connection->go);
    ck_assert_int_eq(waitpid(connection->other, NULL, 0), connection->other);
    (void)close(connection->fd);
    (void)munmap(memory, 4 * SIZE);
}

/* ---- the fabric ---- */

static void fabric_start(void)
{
    char address[INET_ADDRSTRLEN];
    fabric_hosts_begin(&hosts, 2);
    for (uint32_t host = 0; host < 2; host++) {
        enter(host);
        address_of(host, address);
        fabric_host_ask_open(&hosts, host, network ? NETWORK_INTERFACE : "lo", address);
    }
    fabric_hosts_await_done(&hosts);
    fabric_hosts_connect(&hosts);
    fabric_hosts_map(&hosts, 2 * SIZE);
}

static void exchange(void)
{
    fabric_hosts_exchange(&hosts, spans, 2, PATIENCE_MS);
    fabric_hosts_await_done(&hosts);
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

static void print(const char *what, double *times, double wire)
{
    double bytes = 2.0 * SIZE, time = median(times);
    (void)printf("  %-18s  %6.1f ms  %5.2f GB/s  on the wire, with headers, %.4f of the bytes\n",
        what, time * 1e3, bytes / time / 1e9, wire / ROUNDS / bytes);
}

/* By turns, so that both meet the same machine. */
static void measure_exchange(void)
{
    double raw[ROUNDS], times[ROUNDS], ratios[ROUNDS], wire[3], raw_wire = 0, exchange_wire = 0;
    struct connection connection;
    connection_open(&connection);
    fabric_start();
    fabric_hosts_fill(&hosts, spans, 2, 0);
    for (int i = 0; i < ROUNDS; i++) {
        wire[0] = wire_bytes();
        double start = seconds();
        connection_transfer(&connection);
        raw[i] = seconds() - start;
        wire[1] = wire_bytes();
        start = seconds();
        exchange();
        times[i] = seconds() - start;
        wire[2] = wire_bytes();
        ratios[i] = raw[i] / times[i];
        raw_wire += wire[1] - wire[0];
        exchange_wire += wire[2] - wire[1];
    }
    fabric_hosts_check(&hosts, spans, 2, 0);
    connection_close(&connection);
    print("one TCP connection", raw, raw_wire);
    print("exchange", times, exchange_wire);
    (void)printf("  the exchange at %.2f of the connection's rate\n", median(ratios));
}

static void measure(const char *where)
{
    double times[ROUNDS];
    (void)printf("2 hosts %s, 64 MiB from each to the other, both ways together, medians of %d\n",
        where, ROUNDS);
    measure_exchange();
    for (uint32_t count = 10; count <= 100000; count *= 100) {
        measure_reduction(count, times);
        (void)printf("  reduction of %6u values  %.0f us\n", count, median(times) * 1e6);
    }
    fabric_hosts_close(&hosts);
}

START_TEST(bench)
{
    struct bench_error error;
    measure("on the loopback interface");
    if (network_check(&error) != 0) {
        (void)printf("not measured between network namespaces: %s\n", error.text);
        return;
    }
    ck_assert_msg(network_new(2, &network, &error) == 0, "%s", error.text);
    measure("in network namespaces");
    network_free(network);
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
