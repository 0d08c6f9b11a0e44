/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics over HTTP from a real daemon: on a Unix socket and on loopback; garbage, silent
 * connections, scrapers that do not read, and addresses that are refused. All the while the daemon
 * serves its clients.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/program.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define ANSWER_BYTES ((size_t)1 << 20)

static struct test_daemon server;
static char path[64];
static char answer[ANSWER_BYTES];

/* Of the path: the daemon's own is not there yet when its arguments are made. */
static char folder[32];

static void start(const char *address)
{
    const char *arguments[] = {"--metrics", address, "--cuda", "off", NULL};
    test_daemon_start(&server, arguments);
}

static void make_path(void)
{
    (void)strcpy(folder, "/tmp/f8test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/metrics", folder);
}

static void set_up(void)
{
    make_path();
    start(path);
}

static void tear_down(void)
{
    test_daemon_stop(&server);
    ck_assert_msg(access(path, F_OK) < 0, "%s was left behind", path);
    ck_assert_int_eq(rmdir(folder), 0);
}

static int connect_path(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* The daemon may have hung up on what was no request. */
static void say(int fd, const void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = send(fd, (const char *)bytes + done, size - done, MSG_NOSIGNAL);
        if (n < 0)
            return;
        done += (size_t)n;
    }
}

/* All until the daemon closes, which it does after each answer; closes too. */
static const char *hear(int fd)
{
    size_t size = 0;
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        ck_assert_msg(poll(&ready, 1, PATIENCE_MS) == 1, "no end of an answer");
        ssize_t n = recv(fd, answer + size, sizeof(answer) - 1 - size, 0);
        if (n <= 0)
            break;
        size += (size_t)n;
    }
    (void)close(fd);
    answer[size] = '\0';
    return answer;
}

static const char *ask_on(int fd, const char *request)
{
    say(fd, request, strlen(request));
    return hear(fd);
}

#define GET_METRICS "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"

static void expect_metrics(const char *text)
{
    ck_assert_msg(strncmp(text, "HTTP/1.1 200 OK\r\n", 17) == 0, "%s", text);
    ck_assert_ptr_nonnull(strstr(text, "application/openmetrics-text; version=1.0.0"));
    ck_assert_ptr_nonnull(strstr(text, "f8gather_uptime_seconds "));
    size_t size = strlen(text);
    ck_assert_str_eq(text + size - 6, "# EOF\n");
}

/* The daemon is well: it scrapes, and it answers f8ctl. */
static void expect_well(void)
{
    expect_metrics(ask_on(connect_path(), GET_METRICS));
    json_t *ping = program_ask_ctl(server.socket, "ping", "ping");
    ck_assert_ptr_nonnull(ping);
    json_decref(ping);
}

/* Where f8ctl status says that metrics are served. */
static void expect_where(const char *where)
{
    json_t *status = program_ask_ctl(server.socket, "status", "status");
    ck_assert_ptr_nonnull(status);
    ck_assert_str_eq(json_string_value(json_object_get(status, "metrics")), where);
    json_decref(status);
}

START_TEST(test_serves_a_path)
{
    struct stat st;
    expect_where(path);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0660);
    expect_well();
    ck_assert_ptr_null(strstr(answer, "f8gather_weight_scale"));
    (void)ask_on(connect_path(), "GET /metrics?weights=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_metrics(answer);
    ck_assert_ptr_nonnull(strstr(answer, "# TYPE f8gather_weight_scale gauge"));
    (void)ask_on(connect_path(), "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    ck_assert_ptr_nonnull(strstr(answer, "200 OK"));
    ck_assert_ptr_null(strstr(answer, "# EOF"));
}
END_TEST

static const struct {
    const char *request, *status;
} refusals[] = {
    {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "404"},
    {"GET /metrics/../x HTTP/1.1\r\nHost: x\r\n\r\n", "404"},
    {"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "405"},
    {"DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "405"},
};

START_TEST(test_refuses_requests)
{
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        (void)ask_on(connect_path(), refusals[i].request);
        ck_assert_msg(strstr(answer, refusals[i].status), "%s: %s", refusals[i].request, answer);
    }
    expect_well();
}
END_TEST

/* Whatever comes, that connection ends and nothing else does. */
START_TEST(test_survives_garbage)
{
    static const char long_line[] = "GET /metrics";
    char bytes[65536];
    srand(1);
    for (int round = 0; round < 40; round++) {
        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = (char)rand();
        if (round % 4 == 1)
            memcpy(bytes, GET_METRICS, 20);
        if (round % 4 == 2)
            memset(bytes, 'a', sizeof(bytes));
        if (round % 4 == 2)
            memcpy(bytes, long_line, sizeof(long_line) - 1);
        int fd = connect_path();
        say(fd, bytes, round % 4 == 3 ? (size_t)(rand() % 100) : sizeof(bytes));
        (void)shutdown(fd, SHUT_WR);
        if (round % 4 == 1)
            (void)hear(fd);
        else
            (void)close(fd); /* with the answer, if any, unread */
    }
    expect_well();
}
END_TEST

/* Connections that say nothing, or half of a request, take nobody's place. */
START_TEST(test_bears_idle_connections)
{
    int idle[100];
    for (int i = 0; i < 100; i++) {
        idle[i] = connect_path();
        if (i % 2)
            say(idle[i], GET_METRICS, 10);
    }
    expect_well();
    for (int i = 0; i < 100; i++)
        (void)close(idle[i]);
    expect_well();
}
END_TEST

/* A connection if there is room in the queue of the socket; -1. */
static int try_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    ck_assert_int_eq(errno, EAGAIN);
    (void)close(fd);
    return -1;
}

/* More than there are places: they are closed in time, and scrapers are served again. */
START_TEST(test_outlives_too_many_connections)
{
    int idle[300], num_idle = 0;
    for (int i = 0; num_idle < 300 && i < PATIENCE_MS; i++)
        if ((idle[num_idle] = try_connect()) >= 0)
            num_idle++;
        else
            (void)poll(NULL, 0, 1); /* the queue is full: the daemon is at it */
    ck_assert_int_eq(num_idle, 300);
    json_t *ping = program_ask_ctl(server.socket, "ping", "ping");
    ck_assert_ptr_nonnull(ping);
    json_decref(ping);
    /* The first of them is silent for too long. */
    struct pollfd first = {.fd = idle[0], .events = POLLIN};
    ck_assert_msg(poll(&first, 1, PATIENCE_MS) == 1, "a silent connection is not closed");
    for (int i = 0; i < num_idle; i++)
        (void)close(idle[i]);
    expect_well();
}
END_TEST

/* Scrapers that ask and never read: the text waits, and nobody for them. */
START_TEST(test_bears_scrapers_that_read_nothing)
{
    int fds[50], small = 1;
    for (int i = 0; i < 50; i++) {
        fds[i] = connect_path();
        (void)setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        say(fds[i], GET_METRICS, strlen(GET_METRICS));
    }
    json_t *ping = program_ask_ctl(server.socket, "ping", "ping");
    ck_assert_ptr_nonnull(ping);
    json_decref(ping);
    for (int i = 0; i < 50; i++)
        (void)close(fds[i]);
    /* So many at once may have used up this second's share of the loop. */
    for (int i = 0; i < PATIENCE_S * 10; i++) {
        if (strstr(ask_on(connect_path(), GET_METRICS), "200 OK"))
            break;
        ck_assert_ptr_nonnull(strstr(answer, "503 "));
        ck_assert_ptr_nonnull(strstr(answer, "Retry-After: 1"));
        (void)poll(NULL, 0, 100);
    }
    expect_metrics(answer);
}
END_TEST

/* A daemon that was killed leaves its socket; the next takes it. Another's is not taken. */
START_TEST(test_replaces_what_a_dead_daemon_left)
{
    const char *arguments[] = {"--metrics", path, "--cuda", "off", NULL};
    struct program second;
    program_start(&second, test_daemon_program(), NULL, "--cuda off --socket %s2 --metrics %s",
        server.socket, path);
    program_expect(&second, 1);
    ck_assert_msg(strstr(second.err, "another process serves there"), "%s", second.err);
    program_done(&second);
    expect_well();
    test_daemon_kill(&server);
    ck_assert_int_eq(access(path, F_OK), 0);
    test_daemon_restart(&server, arguments);
    expect_well();
}
END_TEST

/* The port that the kernel chose, as the log tells. */
static uint16_t port_of_log(const char *begin)
{
    char line[1024];
    unsigned port = 0;
    FILE *file = fopen(server.log, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file)) {
        const char *at = strstr(line, begin);
        if (at)
            ck_assert_int_eq(sscanf(at + strlen(begin), "%u", &port), 1);
    }
    (void)fclose(file);
    ck_assert_uint_gt(port, 0);
    return (uint16_t)port;
}

static int connect_loopback(in_addr_t host, uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(host)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

#define GET_FROM_LOCALHOST "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

START_TEST(test_serves_loopback)
{
    start("127.0.0.1:0");
    uint16_t port = port_of_log("http://127.0.0.1:");
    char where[64];
    (void)snprintf(where, sizeof(where), "http://127.0.0.1:%u/metrics", port);
    expect_where(where);
    int fd = connect_loopback(INADDR_LOOPBACK, port);
    expect_metrics(ask_on(fd, GET_FROM_LOCALHOST));
    test_daemon_stop(&server);
}
END_TEST

/* What a browser sends whose page had its name resolved to loopback, and whom we take. */
START_TEST(test_refuses_hosts_of_others_on_loopback)
{
    static const char *const wrong[] = {"evil.example", "evil.example:9464",
        "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1:9464.evil.example",
        "127.0.0.3", "[::1", "", "x"};
    static const char *const right[] = {"localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:9464",
        "[::1]", "[::1]:9464", "127.0.0.2", "127.0.0.2:9464"};
    char request[128];
    start("127.0.0.2:0");
    uint16_t port = port_of_log("http://127.0.0.2:");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        (void)snprintf(
            request, sizeof(request), "GET /metrics HTTP/1.1\r\nHost: %s\r\n\r\n", wrong[i]);
        (void)ask_on(connect_loopback(INADDR_LOOPBACK + 1, port), request);
        ck_assert_msg(strncmp(answer, "HTTP/1.1 403 ", 13) == 0, "%s: %.200s", wrong[i], answer);
        ck_assert_ptr_nonnull(strstr(answer, "the Host must be localhost"));
        ck_assert_ptr_null(strstr(answer, "f8gather_"));
    }
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        (void)snprintf(
            request, sizeof(request), "GET /metrics HTTP/1.1\r\nHost: %s\r\n\r\n", right[i]);
        expect_metrics(ask_on(connect_loopback(INADDR_LOOPBACK + 1, port), request));
    }
    test_daemon_stop(&server);
}
END_TEST

START_TEST(test_serves_loopback_of_ipv6)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        (void)printf("left out: no IPv6 here: %s\n", strerror(errno));
        return;
    }
    (void)close(fd);
    start("[::1]:0");
    address.sin6_port = htons(port_of_log("http://[::1]:"));
    fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    expect_metrics(ask_on(fd, GET_FROM_LOCALHOST));
    test_daemon_stop(&server);
}
END_TEST

static const struct {
    const char *arguments;
    int status;
    const char *text;
} refused[] = {
    {"--metrics 0.0.0.0:0", 2, "an address of the network"},
    {"--metrics [::]:0", 2, "an address of the network"},
    {"--metrics 192.0.2.1:9464", 2, "--metrics-reach any"},
    {"--metrics localhost:9464", 2, "is no path of a socket"},
    {"--metrics 127.0.0.1", 2, "is no path of a socket"},
    {"--metrics 127.0.0.1:65536", 2, "is no path of a socket"},
    {"--metrics ::1:9464", 2, "is no path of a socket"},
    {"--metrics [127.0.0.1]:9464", 2, "is no path of a socket"},
    {"--metrics-reach lan", 2, "is not loopback or any"},
    {"--metrics /nowhere/at/all", 1, "cannot be served: "},
    {"--metrics /dev/null", 1, "is in the way and no socket"},
    {"--metrics 192.0.2.1:9464 --metrics-reach any", 1, "cannot be served: "},
};

START_TEST(test_refuses_addresses)
{
    make_path();
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct program daemon;
        program_start(&daemon, test_daemon_program(), NULL, "--cuda off --socket %s/s %s", folder,
            refused[i].arguments);
        program_expect(&daemon, refused[i].status);
        ck_assert_msg(
            strstr(daemon.err, refused[i].text), "%s: %s", refused[i].arguments, daemon.err);
        program_done(&daemon);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metrics_http");
    TCase *on_path = tcase_create("path"), *alone = tcase_create("alone");
    tcase_add_checked_fixture(on_path, set_up, tear_down);
    tcase_add_test(on_path, test_serves_a_path);
    tcase_add_test(on_path, test_refuses_requests);
    tcase_add_test(on_path, test_survives_garbage);
    tcase_add_test(on_path, test_bears_idle_connections);
    tcase_add_test(on_path, test_outlives_too_many_connections);
    tcase_add_test(on_path, test_bears_scrapers_that_read_nothing);
    tcase_add_test(on_path, test_replaces_what_a_dead_daemon_left);
    tcase_add_test(alone, test_serves_loopback);
    tcase_add_test(alone, test_refuses_hosts_of_others_on_loopback);
    tcase_add_test(alone, test_serves_loopback_of_ipv6);
    tcase_add_test(alone, test_refuses_addresses);
    suite_add_tcase(suite, on_path);
    suite_add_tcase(suite, alone);
    return run_cases(suite);
}
