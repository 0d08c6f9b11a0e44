/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8bench says of machines that do not come, die or hang, as whole programs at addresses of
 * the loopback, and (as root) in network namespaces: all that are left name the one, and end.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/bench/link.h"
#include "client/bench/meeting.h"
#include "lib/bench_machines.h"

/* A socket of the loopback, or of the host that this thread is in. */
static int open_socket(const char *address, uint16_t port, bool listens)
{
    const int yes = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(inet_pton(AF_INET, address, &at.sin_addr), 1);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    if (listens)
        ck_assert_int_eq(listen(fd, 16), 0);
    return fd;
}

/* One that is called, at last. */
static int await_call(int listener)
{
    struct pollfd call = {.fd = listener, .events = POLLIN};
    ck_assert_msg(poll(&call, 1, PATIENCE_MS) > 0, "nobody calls");
    int fd = accept(listener, NULL, NULL);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* Until the f8bench of a host calls host 0, which is not there: it calls again all the time. */
static void await_caller(void)
{
    machines_enter(0);
    int listener = open_socket("0.0.0.0", machines_port, true);
    close(await_call(listener));
    close(listener);
}

/* Host 2 comes as soon as host 0 is there, so this needs to wait for none but host 1. */
START_TEST(test_a_missing_host_is_named)
{
    machines_start(2, 3, "--ranks 3 --deadline %d", PATIENCE_S);
    await_caller();
    machines_start(0, 3, "--ranks 3 --deadline %d", SHORT_DEADLINE_S);
    machines_expect(0, 1);
    machines_expect_named(machines[0].out, 1, " has not come within ");
    machines_expect(2, 1);
    machines_expect_named(machines[2].out, 1, " has not come within ");
    program_done(&machines[0]);
    program_done(&machines[2]);
}
END_TEST

START_TEST(test_a_missing_host_0_is_named)
{
    char said[80];
    machines_start(1, 2, "--deadline 1");
    machines_expect(1, 1);
    snprintf(said, sizeof(said), ", port %u, has not come within 1 s: Connection refused",
        machines_port);
    machines_expect_named(machines[1].out, 0, said);
    program_done(&machines[1]);
}
END_TEST

START_TEST(test_a_death_on_any_host_is_named_on_all)
{
    uint32_t host = (uint32_t)_i % 3;
    bool daemon = _i >= 3;
    char said[100];
    for (uint32_t i = 0; i < 3; i++)
        machines_start(i, 3, "--ranks 3 --steps 1000000");
    pid_t pid = machines_await_child(host, daemon);
    kill(pid, SIGKILL);
    for (uint32_t i = 0; i < 3; i++)
        machines_expect(i, 1);
    snprintf(said, sizeof(said),
        daemon ? "the daemon (pid %d) was ended by signal 9" : "(pid %d) was ended by signal 9",
        (int)pid);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_msg(strstr(machines[i].out, said) != NULL, "host %u: %s", i, machines[i].out);
        if (i != host)
            machines_expect_named(machines[i].out, host, ": ");
    }
    machines_done(3);
}
END_TEST

/* The whole f8bench of a host is gone. */
START_TEST(test_a_lost_host_is_named)
{
    uint32_t host = (uint32_t)_i;
    for (uint32_t i = 0; i < 3; i++)
        machines_start(i, 3, "--ranks 3 --steps 1000000");
    (void)machines_await_child(host, false);
    kill(machines[host].pid, SIGKILL);
    for (uint32_t i = 0; i < 3; i++)
        machines_expect(i, i == host ? -SIGKILL : 1);
    for (uint32_t i = 0; i < 3; i++) {
        if (i != host)
            machines_expect_named(machines[i].out, host, " was lost: ");
    }
    machines_done(3);
}
END_TEST

/* ---- a host that hangs at a moment that is chosen ---- */

/* What passes between host 1 and host 0 passes the test, at a port of its own. */
struct way {
    int to_host_1, to_host_0;
};

static void open_way(struct way *way)
{
    struct sockaddr_in host_0 = {.sin_family = AF_INET, .sin_port = htons(machines_port)};
    struct sockaddr_in own;
    socklen_t size = sizeof(own);
    uint16_t port = machines_port;
    int listener = open_socket("127.0.0.1", 0, true);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&own, &size), 0);
    machines_port = ntohs(own.sin_port);
    machines_start(1, 2, "--ranks 2 --steps 1000000 --deadline %d", PATIENCE_S);
    machines_port = port;
    way->to_host_1 = await_call(listener);
    close(listener);
    machines_start(0, 2, "--ranks 2 --steps 1000000 --deadline %d", HANG_DEADLINE_S);
    way->to_host_0 = open_socket("127.0.0.2", 0, false);
    host_0.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int ms = 0; connect(way->to_host_0, (struct sockaddr *)&host_0, sizeof(host_0)) != 0;
         ms += 5) {
        ck_assert_msg(ms < PATIENCE_MS, "host 0 does not listen");
        poll(NULL, 0, 5);
        close(way->to_host_0);
        way->to_host_0 = open_socket("127.0.0.2", 0, false);
    }
}

static void take_bytes(int fd, void *bytes, size_t size)
{
    ck_assert_int_eq(recv(fd, bytes, size, MSG_WAITALL), (ssize_t)size);
}

static void give_bytes(int fd, const void *bytes, size_t size)
{
    ck_assert_int_eq(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
}

/* One message; its type. */
static uint32_t pass(int from, int to)
{
    uint8_t header[LINK_HEADER_BYTES];
    uint32_t type;
    uint64_t size;
    take_bytes(from, header, sizeof(header));
    memcpy(&type, header + 4, sizeof(type));
    memcpy(&size, header + 8, sizeof(size));
    uint8_t *body = malloc(size + 1);
    ck_assert_ptr_nonnull(body);
    if (size > 0)
        take_bytes(from, body, size);
    give_bytes(to, header, sizeof(header));
    if (size > 0)
        give_bytes(to, body, size);
    free(body);
    return type;
}

/* Until host 0 has said so many times that all have met; this host is stopped before the last. */
static void pass_until(const struct way *way, int meetings)
{
    struct pollfd ends[] = {
        {.fd = way->to_host_1, .events = POLLIN}, {.fd = way->to_host_0, .events = POLLIN}};
    char next[8];
    for (;;) {
        ck_assert_msg(poll(ends, 2, PATIENCE_MS) > 0, "hosts do not meet");
        if (ends[0].revents != 0)
            (void)pass(way->to_host_1, way->to_host_0);
        if (ends[1].revents == 0)
            continue;
        ck_assert_int_eq(recv(way->to_host_0, next, 5, MSG_PEEK | MSG_WAITALL), 5);
        if (next[4] == LINK_MEET && --meetings == 0)
            kill(machines[1].pid, SIGSTOP);
        (void)pass(way->to_host_0, way->to_host_1);
        if (meetings == 0)
            return;
    }
}

/* What host 0 says until its end. */
static void pass_rest(const struct way *way)
{
    char byte;
    while (recv(way->to_host_0, &byte, 1, MSG_PEEK) > 0)
        (void)pass(way->to_host_0, way->to_host_1);
    close(way->to_host_0);
    shutdown(way->to_host_1, SHUT_WR);
}

/* Host 0's ranks go on, and wait in a daemon, not at a meeting; or at the next. */
static const struct {
    int meetings;
    bool meets; /* it is missing at a meeting */
    const char *said;
} hangs[] = {
    {2, false, "seal group "}, /* which has its id; the world or the seal is too late */
    {2 + 4 * 2 + 4, true,
        " has not come to where the others are within "}, /* the third step ends */
    {2 + 4 * 2 + 3, false, "the deadline of "},           /* it gathers */
};

/* Each takes a deadline, and most 10 s more. */
#if PATIENCE_S > 60
#define HANGS 2
#else
#define HANGS (int)(sizeof(hangs) / sizeof(hangs[0]))
#endif

START_TEST(test_a_host_that_hangs_is_named)
{
    struct way way;
    open_way(&way);
    pass_until(&way, hangs[_i].meetings);
    machines_expect(0, 1);
    pass_rest(&way);
    kill(machines[1].pid, SIGCONT);
    machines_expect(1, 1);
    close(way.to_host_1);
    for (uint32_t i = 0; i < 2; i++) {
        machines_expect_named(machines[i].out, 1, "");
        ck_assert_msg(strstr(machines[i].out, hangs[_i].said) != NULL, "%s", machines[i].out);
        if (!hangs[_i].meets)
            machines_expect_named(machines[i].out, 1, ": no answer from f8bench there for ");
    }
    machines_done(2);
}
END_TEST

/* Host 0's rank is told of a death by its daemon first; then host 1 says what was behind it. */
START_TEST(test_what_comes_after_a_rank_was_told_is_heard)
{
    struct link_failed failed = {.nearness = NEAR_ERROR, .text = "rank 1: has run out of luck"};
    struct bench_error error;
    struct way way;
    uint32_t type;
    open_way(&way);
    pass_until(&way, 2 + 4 * 2 + 3); /* it gathers */
    struct pollfd rank = {
        .fd = (int)syscall(SYS_pidfd_open, machines_await_child(0, false), 0), .events = POLLIN};
    kill(machines_await_child(1, false), SIGKILL);
    ck_assert_msg(poll(&rank, 1, PATIENCE_MS) > 0, "the rank of host 0 goes on");
    close(rank.fd);
    struct link host_1 = {.fd = way.to_host_0};
    ck_assert_int_eq(link_send(&host_1, LINK_FAILED, &failed, sizeof(failed), &error), 0);
    while ((type = pass(way.to_host_0, way.to_host_1)) != LINK_FAILED) {
        if (type == LINK_ASK)
            ck_assert_int_eq(link_send(&host_1, LINK_HERE, NULL, 0, &error), 0);
    }
    machines_expect(0, 1);
    machines_expect_named(machines[0].out, 1, ": rank 1: has run out of luck");
    kill(machines[1].pid, SIGKILL);
    machines_expect(1, -SIGKILL);
    close(way.to_host_0);
    close(way.to_host_1);
    machines_done(2);
}
END_TEST

START_TEST(test_an_interrupt_ends_all)
{
    for (uint32_t i = 0; i < 2; i++)
        machines_start(i, 2, "--ranks 2 --steps 1000000");
    (void)machines_await_child(1, false);
    kill(machines[_i].pid, SIGINT);
    machines_expect((uint32_t)_i, 130);
    machines_expect(1 - (uint32_t)_i, 1);
    machines_expect_named(machines[1 - _i].out, (uint32_t)_i, ": interrupted");
    machines_done(2);
}
END_TEST

static void add(TCase *cases)
{
    tcase_add_test(cases, test_a_missing_host_is_named);
    tcase_add_test(cases, test_a_missing_host_0_is_named);
    tcase_add_loop_test(cases, test_a_death_on_any_host_is_named_on_all, 0, 6);
    tcase_add_loop_test(cases, test_a_lost_host_is_named, 0, 3);
}

static void add_more(TCase *cases)
{
    tcase_add_loop_test(cases, test_a_host_that_hangs_is_named, 0, HANGS);
    tcase_add_test(cases, test_what_comes_after_a_rank_was_told_is_heard);
    tcase_add_loop_test(cases, test_an_interrupt_ends_all, 0, 2);
}

static void add_none(TCase *cases)
{
    (void)cases;
}

int main(void)
{
    return machines_run("bench at addresses, lost", add, add_more, add_none);
}
