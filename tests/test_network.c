/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts made of network namespaces: that they reach one another by IPv4 and IPv6 and nobody else,
 * that what passes is counted, that cables can be shaped, cut and mended, and that a killed process
 * leaves no namespace behind. A socket belongs to the namespace that it was made in, so one process
 * can speak for several hosts.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/bench/network.h"
#include "lib/patience.h"

#define HOSTS                          3
#define SKIP                           77
#define MEBI                           (1 << 20)
#define AT_MOST(parts, whole, percent) ((parts)*100 <= (whole) * (100 + (percent)))

static struct network *network;
static struct bench_error error;

static void make(void)
{
    ck_assert_msg(network_new(HOSTS, &network, &error) == 0, "%s", error.text);
}

static void unmake(void)
{
    network_free(network);
    network = NULL;
}

/* A socket of a host; the thread is back where it was. */
static int socket_of(uint32_t host, int family, int type)
{
    int own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(own, 0);
    ck_assert_int_eq(network_enter(network, host), 0);
    int fd = socket(family, type | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(setns(own, CLONE_NEWNET), 0);
    close(own);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* The address of a host, with a port of an address that was bound, or 0. */
static socklen_t address_of(uint32_t host, int family, in_port_t port, struct sockaddr_storage *to)
{
    char text[64];
    network_address(host, family == AF_INET6, text, sizeof(text));
    memset(to, 0, sizeof(*to));
    to->ss_family = (sa_family_t)family;
    if (family == AF_INET6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)to;
        in6->sin6_port = port;
        ck_assert_int_eq(inet_pton(family, text, &in6->sin6_addr), 1);
        return sizeof(*in6);
    }
    struct sockaddr_in *in = (struct sockaddr_in *)to;
    in->sin_port = port;
    ck_assert_int_eq(inet_pton(family, text, &in->sin_addr), 1);
    return sizeof(*in);
}

/* Binds to the host's own address; the port it got. */
static in_port_t bind_there(int fd, uint32_t host, int family)
{
    struct sockaddr_storage at;
    socklen_t size = address_of(host, family, 0, &at);
    ck_assert_msg(bind(fd, (struct sockaddr *)&at, size) == 0, "bind: %s", strerror(errno));
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    return family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                              : ((struct sockaddr_in *)&at)->sin_port;
}

/* A connection from one host to another: the ends of both. */
static void connect_hosts(uint32_t from, uint32_t to, int family, int ends[2])
{
    int listener = socket_of(to, family, SOCK_STREAM);
    in_port_t port = bind_there(listener, to, family);
    struct sockaddr_storage at;
    socklen_t size = address_of(to, family, port, &at);
    ck_assert_int_eq(listen(listener, 1), 0);
    ends[0] = socket_of(from, family, SOCK_STREAM);
    ck_assert_msg(connect(ends[0], (struct sockaddr *)&at, size) == 0, "host %u to host %u: %s",
        from, to, strerror(errno));
    ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(ends[1], 0);
    close(listener);
}

/* Sends so many bytes over the connection; what arrives must be as many. */
static void send_bytes(const int ends[2], size_t size)
{
    uint8_t *bytes = calloc(2, size);
    size_t sent = 0;
    size_t received = 0;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    while (received < size) {
        struct pollfd fds[] = {{.fd = ends[0], .events = sent < size ? POLLOUT : 0},
            {.fd = ends[1], .events = POLLIN}};
        ck_assert_int_gt(poll(fds, 2, PATIENCE_MS), 0);
        if (fds[0].revents & POLLOUT) {
            ssize_t n = send(ends[0], bytes + sent, size - sent, MSG_NOSIGNAL);
            ck_assert_int_gt(n, 0);
            sent += (size_t)n;
        }
        if (fds[1].revents & POLLIN) {
            ssize_t n = recv(ends[1], bytes + size, size - received, 0);
            ck_assert_int_gt(n, 0);
            received += (size_t)n;
        }
    }
    free(bytes);
}

static struct network_traffic traffic_of(uint32_t host)
{
    struct network_traffic traffic = {0};
    ck_assert_msg(network_count(network, host, &traffic, &error) == 0, "%s", error.text);
    return traffic;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

START_TEST(every_host_reaches_every_other)
{
    const int family = _i == 0 ? AF_INET : AF_INET6;
    for (uint32_t from = 0; from < HOSTS; from++) {
        for (uint32_t to = 0; to < HOSTS; to++) {
            int ends[2];
            connect_hosts(from, to, family, ends); /* itself too */
            send_bytes(ends, 100);
            close(ends[0]);
            close(ends[1]);
        }
    }
}
END_TEST

START_TEST(nobody_outside_is_reached)
{
    struct sockaddr_storage at;
    socklen_t size = address_of(0, AF_INET, htons(9), &at);
    int fd = socket_of(0, AF_INET, SOCK_STREAM);
    ((struct sockaddr_in *)&at)->sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1 */
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, size), -1);
    ck_assert_int_eq(errno, ENETUNREACH);
    close(fd);
}
END_TEST

START_TEST(what_passes_is_counted_at_both_ends)
{
    const uint64_t size = 8 * MEBI;
    struct network_traffic before[HOSTS];
    struct network_traffic after[HOSTS];
    int ends[2];
    connect_hosts(1, 2, AF_INET, ends);
    for (uint32_t host = 0; host < HOSTS; host++)
        before[host] = traffic_of(host);
    send_bytes(ends, size);
    for (uint32_t host = 0; host < HOSTS; host++)
        after[host] = traffic_of(host);
    uint64_t out = after[1].out_bytes - before[1].out_bytes;
    uint64_t in = after[2].in_bytes - before[2].in_bytes;
    ck_assert_uint_ge(out, size);
    ck_assert_uint_ge(in, size);
    ck_assert_msg(AT_MOST(out, size, 5), "%llu bytes for %llu", (unsigned long long)out,
        (unsigned long long)size);
    ck_assert_uint_gt(after[2].in_packets, before[2].in_packets);
    /* Back go acknowledgements; the third host sees nothing but who asks for whom. */
    ck_assert_uint_lt(after[1].in_bytes - before[1].in_bytes, size / 10);
    ck_assert_uint_lt(after[0].in_bytes - before[0].in_bytes, 10000);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

/* In a child that lives in host 0. */
static int count_from_inside(void)
{
    struct network_traffic own;
    struct network_traffic seen;
    if (network_count_own(NETWORK_INTERFACE, &own) == 0)
        return 1; /* the machine has no eth0 of ours, or another: the next line tells */
    if (network_enter(network, 0) != 0 || network_count_own(NETWORK_INTERFACE, &own) != 0)
        return 2;
    return network_count(network, 0, &seen, &error) == 0 && seen.in_bytes == own.in_bytes &&
                   seen.out_bytes == own.out_bytes
               ? 0
               : 3;
}

START_TEST(a_host_counts_the_same_as_the_switch)
{
    int ends[2];
    int status;
    connect_hosts(0, 1, AF_INET, ends);
    send_bytes(ends, MEBI);
    pid_t pid = fork();
    if (pid == 0) {
        unshare(CLONE_NEWNET); /* whatever interfaces the machine has */
        _exit(count_from_inside());
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

/* A shaped cable cannot be faster than its rate; how much slower it is the machine decides. */
START_TEST(a_rate_holds_in_each_direction)
{
    const struct network_shape slow = {.rate_mbit = 100};
    const struct network_shape fast = {0};
    const size_t size = 4 * MEBI;
    const double least = (double)(size - MEBI) * 8 / 100e6;
    for (uint32_t from = 0; from < 2; from++) {
        int ends[2];
        connect_hosts(from, 1 - from, AF_INET, ends);
        ck_assert_msg(network_shape(network, 0, &slow, &error) == 0, "%s", error.text);
        double begin = now();
        send_bytes(ends, size);
        ck_assert_double_ge(now() - begin, least);
        ck_assert_msg(network_shape(network, 0, &fast, &error) == 0, "%s", error.text);
        send_bytes(ends, size);
        close(ends[0]);
        close(ends[1]);
    }
}
END_TEST

/* Once each way; and it goes away again. */
START_TEST(a_delay_holds_on_each_way_out)
{
    const struct network_shape slow = {.delay_us = 20000, .rate_mbit = _i == 0 ? 0 : 1000};
    const struct network_shape fast = {0};
    int ends[2];
    connect_hosts(0, 1, AF_INET, ends);
    for (int round = 0; round < 2; round++) {
        ck_assert_msg(network_shape(network, 0, &slow, &error) == 0, "%s", error.text);
        double begin = now();
        send_bytes(ends, 1);
        ck_assert_double_ge(now() - begin, 0.020);
        send_bytes(ends, MEBI);
        ck_assert_msg(network_shape(network, 0, &fast, &error) == 0, "%s", error.text);
        send_bytes(ends, MEBI);
    }
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(what_is_sent_over_a_cut_cable_is_lost)
{
    struct sockaddr_storage at;
    int to = socket_of(1, AF_INET, SOCK_DGRAM);
    int from = socket_of(0, AF_INET, SOCK_DGRAM);
    socklen_t size = address_of(1, AF_INET, bind_there(to, 1, AF_INET), &at);
    struct pollfd arrived = {.fd = to, .events = POLLIN};
    double deadline = now() + PATIENCE_S;
    char got = '\0';
    ck_assert_int_eq(connect(from, (struct sockaddr *)&at, size), 0);
    ck_assert_int_eq(send(from, "a", 1, 0), 1);
    ck_assert_int_eq(recv(to, &got, 1, 0), 1);
    ck_assert_int_eq(got, 'a');
    ck_assert_msg(network_cut(network, 1, &error) == 0, "%s", error.text);
    ck_assert_int_eq(send(from, "b", 1, 0), 1);
    ck_assert_msg(network_mend(network, 1, &error) == 0, "%s", error.text);
    do { /* the kernel takes a moment to see the cable */
        ck_assert_int_eq(send(from, "c", 1, 0), 1);
    } while (poll(&arrived, 1, 5) == 0 && now() < deadline);
    ck_assert_int_eq(recv(to, &got, 1, MSG_DONTWAIT), 1);
    ck_assert_int_eq(got, 'c');
    close(from);
    close(to);
}
END_TEST

START_TEST(numbers_of_hosts_are_checked)
{
    struct network *none = NULL;
    ck_assert_int_eq(network_new(0, &none, &error), -1);
    ck_assert_msg(strstr(error.text, "must be 1 to 64") != NULL, "%s", error.text);
    ck_assert_int_eq(network_new(NETWORK_MAX_HOSTS + 1, &none, &error), -1);
    ck_assert_ptr_null(none);
}
END_TEST

/* As a user, network_new must fail and say what is missing. */
START_TEST(a_user_is_told_to_be_root)
{
    struct network *none = NULL;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        bool told = setuid(65534) == 0 && network_new(2, &none, &error) == -1 &&
                    strstr(error.text, "need root") != NULL;
        _exit(told ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* Makes a network, tells where host 0 is, and waits to be killed. */
__attribute__((noreturn)) static void hold_a_network(int says, uint32_t delay_us)
{
    const struct network_shape slow = {.delay_us = delay_us};
    struct network *held;
    if (network_new(2, &held, &error) == 0 && network_shape(held, 0, &slow, &error) == 0)
        dprintf(says, "/proc/%d/fd/%d\n", (int)getpid(), held->host_fds[0]);
    close(says);
    for (;;)
        pause();
}

static bool has_interface(const char *name)
{
    char line[512];
    bool has = false;
    FILE *file = fopen("/proc/thread-self/net/dev", "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file) != NULL)
        has = has || strstr(line, name) != NULL;
    fclose(file);
    return has;
}

/*
 * A cable from here into a host of another process: our end of it vanishes with that host's
 * namespace, and no sooner.
 */
START_TEST(a_killed_process_leaves_no_namespace)
{
    char command[256] = "ip link add probe type veth peer name probed netns ";
    size_t length = strlen(command);
    double deadline = now() + PATIENCE_S;
    int says[2];
    ck_assert_int_eq(pipe2(says, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0)
        hold_a_network(says[1], _i == 0 ? 0 : 1000);
    close(says[1]);
    ck_assert_int_gt(read(says[0], command + length, sizeof(command) - 1 - length), 0);
    ck_assert_int_eq(unshare(CLONE_NEWNET), 0);
    ck_assert_msg(system(command) == 0, "%s", command); /* NOLINT: a path of ours */
    ck_assert(has_interface("probe:"));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    while (has_interface("probe:") && now() < deadline)
        poll(NULL, 0, 5); /* the kernel takes them apart behind our back */
    ck_assert(!has_interface("probe:"));
    close(says[0]);
}
END_TEST

int main(void)
{
    if (network_check(&error) != 0) {
        printf("skipped: %s\n", error.text);
        return SKIP;
    }
    TCase *cases = tcase_create("network");
    tcase_add_checked_fixture(cases, make, unmake);
    tcase_add_loop_test(cases, every_host_reaches_every_other, 0, 2);
    tcase_add_test(cases, nobody_outside_is_reached);
    tcase_add_test(cases, what_passes_is_counted_at_both_ends);
    tcase_add_test(cases, a_host_counts_the_same_as_the_switch);
    tcase_add_test(cases, a_rate_holds_in_each_direction);
    tcase_add_loop_test(cases, a_delay_holds_on_each_way_out, 0, 2);
    tcase_add_test(cases, what_is_sent_over_a_cut_cable_is_lost);
    tcase_add_test(cases, numbers_of_hosts_are_checked);
    TCase *ends = tcase_create("ends");
    tcase_add_test(ends, a_user_is_told_to_be_root);
    tcase_add_loop_test(ends, a_killed_process_leaves_no_namespace, 0, 2);
    Suite *suite = suite_create("network");
    suite_add_tcase(suite, cases);
    suite_add_tcase(suite, ends);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
