/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain TCP between hosts, here processes on the loopback: that all parts arrive with their
 * sender's mark, of sizes that differ and of none, directly and along a ring; and that a host that
 * is lost, does not come, or comes twice is an error of the others.
 */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/bench/exchange.h"
#include "client/bench/shared.h"
#include "lib/patience.h"

#define MAX_HOSTS 5
#define ROUNDS    3

/* What the processes of hosts share. */
struct board {
    pthread_barrier_t listening;
    struct sockaddr_storage addresses[MAX_HOSTS];
    struct bench_error errors[MAX_HOSTS];
    uint64_t parts[MAX_HOSTS];
    uint32_t num_hosts;
    bool ring;
    int leaver; /* the host that ends after it has connected; -1: none */
};

static struct board *board;

static void make(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(board, MAP_FAILED);
    board->leaver = -1;
}

static void unmake(void)
{
    munmap(board, sizeof(*board));
}

/* Each sends its part to all others. */
static struct exchange_sizes sizes_of(uint32_t host)
{
    struct exchange_sizes sizes = {{0}, {0}};
    for (uint32_t other = 0; other < board->num_hosts; other++) {
        sizes.out[other] = other == host ? 0 : board->parts[host];
        sizes.in[other] = other == host ? 0 : board->parts[other];
    }
    return sizes;
}

static int run_rounds(struct exchange *exchange, uint32_t host)
{
    struct exchange_sizes sizes = sizes_of(host);
    struct bench_error *error = &board->errors[host];
    for (int round = 0; round < ROUNDS; round++) {
        int result = board->ring ? exchange_ring(exchange, board->parts, error)
                                 : exchange_direct(exchange, &sizes, error);
        if (result != 0)
            return result;
    }
    return exchange_check(exchange, &sizes, error);
}

static int be_host(uint32_t host)
{
    struct bench_error *error = &board->errors[host];
    struct exchange_sizes most = sizes_of(host);
    struct exchange_place place = {
        .host = host, .num_hosts = board->num_hosts, .addresses = board->addresses};
    struct exchange *exchange = NULL;
    place.listener = exchange_listen("lo", &board->addresses[host], error);
    pthread_barrier_wait(&board->listening);
    int result = place.listener < 0 ? -1 : exchange_open(&place, &most, &exchange, error);
    if (result == 0 && (int)host != board->leaver)
        result = run_rounds(exchange, host);
    exchange_close(exchange);
    close(place.listener);
    return result == 0 ? 0 : 1;
}

/* Runs all hosts to their ends; how many failed. */
static int run_hosts(uint32_t num_hosts)
{
    pid_t pids[MAX_HOSTS];
    int failed = 0;
    board->num_hosts = num_hosts;
    ck_assert_int_eq(shared_init_barrier(&board->listening, num_hosts), 0);
    for (uint32_t host = 0; host < num_hosts; host++) {
        pids[host] = fork();
        if (pids[host] == 0)
            _exit(be_host(host));
        ck_assert_int_gt(pids[host], 0);
    }
    for (uint32_t host = 0; host < num_hosts; host++) {
        int status = -1;
        ck_assert_int_eq(waitpid(pids[host], &status, 0), pids[host]);
        failed += status != 0;
    }
    return failed;
}

static const uint64_t parts[][MAX_HOSTS] = {
    {5000000, 5000000, 5000000, 5000000, 5000000},
    {1, 3000000, 0, 17, 70001},
    {0, 0, 0, 0, 0},
    {0, 1, 0, 0, 0},
};

#define NUM_PARTS (int)(sizeof(parts) / sizeof(parts[0]))

START_TEST(all_parts_arrive)
{
    memcpy(board->parts, parts[_i % NUM_PARTS], sizeof(board->parts));
    board->ring = _i >= NUM_PARTS;
    for (uint32_t hosts = 2; hosts <= MAX_HOSTS; hosts++) {
        int failed = run_hosts(hosts);
        for (uint32_t host = 0; host < hosts; host++)
            ck_assert_str_eq(board->errors[host].text, "");
        ck_assert_int_eq(failed, 0);
    }
}
END_TEST

START_TEST(a_host_that_leaves_is_missed_by_all)
{
    memcpy(board->parts, parts[0], sizeof(board->parts));
    board->leaver = 1;
    ck_assert_int_eq(run_hosts(3), 2);
    ck_assert_ptr_nonnull(strstr(board->errors[0].text, "host 0 lost host "));
    ck_assert_ptr_nonnull(strstr(board->errors[2].text, "host 2 lost host "));
}
END_TEST

START_TEST(an_interface_must_be_there)
{
    struct bench_error error;
    struct sockaddr_storage address;
    ck_assert_int_eq(exchange_listen("none0", &address, &error), -1);
    ck_assert_str_eq(error.text, "interface none0 is not there, or has no address");
}
END_TEST

/* Connects to host 0 of 2 and says to be this host. */
static int claim(const struct sockaddr_storage *address, uint32_t host)
{
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)address, sizeof(*address)), 0);
    ck_assert_int_eq(send(fd, &host, sizeof(host), MSG_NOSIGNAL), sizeof(host));
    return fd;
}

/* Whether the other end has hung up. */
static bool is_closed(int fd)
{
    char byte;
    struct pollfd end = {.fd = fd, .events = POLLIN};
    return poll(&end, 1, PATIENCE_MS) > 0 && recv(fd, &byte, 1, 0) <= 0;
}

START_TEST(strangers_are_sent_away)
{
    static const uint32_t claims[] = {0, 2, UINT32_MAX};
    struct bench_error error;
    struct sockaddr_storage address;
    struct exchange_sizes none = {{0}, {0}};
    struct exchange *exchange = NULL;
    int listener = exchange_listen("lo", &address, &error);
    struct exchange_place place = {
        .host = 0, .num_hosts = 2, .addresses = &address, .listener = listener};
    int stranger = claim(&address, claims[_i]);
    int host = claim(&address, 1);
    ck_assert_int_eq(exchange_open(&place, &none, &exchange, &error), 0);
    ck_assert(is_closed(stranger));
    exchange_close(exchange);
    close(stranger);
    close(host);
    close(listener);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("exchange");
    tcase_add_checked_fixture(cases, make, unmake);
    tcase_add_loop_test(cases, all_parts_arrive, 0, 2 * NUM_PARTS);
    tcase_add_test(cases, a_host_that_leaves_is_missed_by_all);
    tcase_add_test(cases, an_interface_must_be_there);
    tcase_add_loop_test(cases, strangers_are_sent_away, 0, 3);
    Suite *suite = suite_create("exchange");
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
