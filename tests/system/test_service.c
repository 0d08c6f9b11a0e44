/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon under a service manager, whose side this test plays: a datagram socket that it is told
 * things by, a watchdog to feed, and a listening socket that it is handed. No systemd is needed for
 * that, only a daemon that was built with libsystemd.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/ranks.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define WORLD        2
#define FIRST_PASSED 3

/* A manager and its service. */
struct manager {
    struct test_daemon daemon; /* started by this test's own means, in its own directory */
    char notify[96];
    int notify_fd;        /* owned */
    const char *watchdog; /* microseconds; NULL: none */
    int passed[2];        /* owned: listening sockets to hand over; -1: none */
    int num_passed;
};

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return address;
}

static int bound(int type, const char *path)
{
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void make_manager(struct manager *manager)
{
    struct test_daemon *daemon = &manager->daemon;
    *manager = (struct manager){.passed = {-1, -1}};
    (void)strcpy(daemon->directory, "/tmp/f8test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(daemon->directory));
    (void)snprintf(daemon->socket, sizeof(daemon->socket), "%s/s", daemon->directory);
    (void)snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->directory);
    (void)snprintf(manager->notify, sizeof(manager->notify), "%s/notify", daemon->directory);
    manager->notify_fd = bound(SOCK_DGRAM, manager->notify);
}

/* Removes all that is the manager's; nothing else may be left. */
static void end_manager(struct manager *manager)
{
    for (int i = 0; i < manager->num_passed; i++)
        (void)close(manager->passed[i]);
    (void)close(manager->notify_fd);
    (void)unlink(manager->notify);
    (void)unlink(manager->daemon.log);
    ck_assert_msg(rmdir(manager->daemon.directory) == 0, "%s: %s", manager->daemon.directory,
        strerror(errno));
}

/* In the child: as a manager sets the environment of a service, and its descriptors from 3 on. */
static int become_service(void *argument)
{
    const struct manager *manager = argument;
    char text[16];
    int log = open(manager->daemon.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    (void)dup2(log, STDERR_FILENO);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setenv("NOTIFY_SOCKET", manager->notify, 1);
    (void)snprintf(text, sizeof(text), "%d", (int)getpid());
    if (manager->watchdog) {
        (void)setenv("WATCHDOG_USEC", manager->watchdog, 1);
        (void)setenv("WATCHDOG_PID", text, 1);
    }
    for (int i = 0; i < manager->num_passed; i++) /* what lies there is closed at exec anyway */
        (void)dup2(manager->passed[i], FIRST_PASSED + i);
    if (manager->num_passed > 0) {
        (void)setenv("LISTEN_PID", text, 1);
        (void)snprintf(text, sizeof(text), "%d", manager->num_passed);
        (void)setenv("LISTEN_FDS", text, 1);
    }
    (void)setenv("F8GATHERD_SOCKET", manager->daemon.socket, 1);
    (void)execl(test_daemon_program(), "f8gatherd", (char *)NULL);
    return 127;
}

static void start_service(struct manager *manager)
{
    /* Above the numbers that are handed over, or the child would overwrite one by the other. */
    for (int i = 0; i < manager->num_passed; i++) {
        int high = fcntl(manager->passed[i], F_DUPFD_CLOEXEC, 100);
        ck_assert_int_ge(high, 100);
        (void)close(manager->passed[i]);
        manager->passed[i] = high;
    }
    manager->daemon.pid = test_fork(become_service, manager);
}

/* The next thing that it says, but for the watchdog unless that is wanted. */
static void next_word(const struct manager *manager, char text[1024], bool watchdog)
{
    struct pollfd ready = {.fd = manager->notify_fd, .events = POLLIN};
    do {
        ck_assert_msg(poll(&ready, 1, PATIENCE_MS) == 1, "the daemon says nothing");
        ssize_t length = recv(manager->notify_fd, text, 1023, 0);
        ck_assert_int_gt(length, 0);
        text[length] = '\0';
    } while (!watchdog && strcmp(text, "WATCHDOG=1") == 0);
}

/* It says a line, and the status for people has the words. */
static void says(const struct manager *manager, const char *line, const char *words)
{
    char text[1024];
    next_word(manager, text, false);
    ck_assert_msg(strncmp(text, line, strlen(line)) == 0, "\"%s\" is not %s", text, line);
    const char *status = strstr(text, "\nSTATUS=");
    ck_assert_msg(status && strstr(status, words), "\"%s\" lacks \"%s\"", text, words);
}

/* ---- notify ---- */

START_TEST(is_ready_once_it_serves)
{
    struct manager manager;
    struct rank rank;
    make_manager(&manager);
    start_service(&manager);
    says(&manager, "READY=1\n", manager.daemon.socket);
    rank_connect(&rank, manager.daemon.socket); /* no second try */
    rank_close(&rank);
    test_daemon_end(&manager.daemon);
    says(&manager, "STOPPING=1\nEXTEND_TIMEOUT_USEC=90000000\n", "ends");
    end_manager(&manager);
}
END_TEST

START_TEST(says_that_it_reloads)
{
    struct manager manager;
    char text[1024];
    unsigned long long usec = 0;
    make_manager(&manager);
    start_service(&manager);
    says(&manager, "READY=1\n", "serves");
    test_daemon_signal(&manager.daemon, SIGHUP, "SIGHUP: reading the settings again");
    next_word(&manager, text, false);
    ck_assert_int_eq(sscanf(text, "RELOADING=1\nMONOTONIC_USEC=%llu\n", &usec), 1);
    ck_assert_uint_gt(usec, 0);
    says(&manager, "READY=1\n", "serves");
    test_daemon_end(&manager.daemon);
    end_manager(&manager);
}
END_TEST

START_TEST(says_what_it_waits_for_at_the_end)
{
    struct manager manager;
    struct rank ranks[WORLD];
    make_manager(&manager);
    start_service(&manager);
    says(&manager, "READY=1\n", "serves");
    ranks_start(ranks, WORLD, manager.daemon.socket);
    ck_assert_int_eq(
        f8_gather(ranks[0].group, LAYER_0, F8_DEFAULT_DEADLINE, ranks[0].stream), F8_OK);
    rank_settle(&ranks[0]);
    test_daemon_signal(&manager.daemon, SIGTERM, "waits at most 10 s");
    /* And is given the time for that and for what it saves then, or it would be killed before. */
    says(&manager, "STOPPING=1\nEXTEND_TIMEOUT_USEC=100000000\n",
        "waits at most 10 s (--drain) for collectives of 1 groups");
    ck_assert_int_eq(rank_gather(&ranks[1], LAYER_0, F8_DEFAULT_DEADLINE), F8_OK);
    ck_assert_int_eq(test_wait(manager.daemon.pid), 0);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    end_manager(&manager);
}
END_TEST

START_TEST(watchdog_is_fed)
{
    struct manager manager;
    char text[1024];
    make_manager(&manager);
    manager.watchdog = "100000";
    start_service(&manager);
    says(&manager, "READY=1\n", "serves");
    for (int i = 0; i < 5; i++) {
        next_word(&manager, text, true);
        ck_assert_str_eq(text, "WATCHDOG=1");
    }
    test_daemon_end(&manager.daemon);
    says(&manager, "STOPPING=1\n", "ends");
    end_manager(&manager);
}
END_TEST

/* A daemon that cannot serve is never ready. */
START_TEST(failure_says_nothing)
{
    struct manager manager;
    char text[16];
    make_manager(&manager);
    (void)snprintf(manager.daemon.socket, sizeof(manager.daemon.socket), "/none/there");
    start_service(&manager);
    ck_assert_int_eq(test_wait(manager.daemon.pid), 1);
    ck_assert_int_lt(recv(manager.notify_fd, text, sizeof(text), MSG_DONTWAIT), 0);
    end_manager(&manager);
}
END_TEST

/* A manager that is gone stops nobody from serving. */
START_TEST(manager_that_is_gone)
{
    struct manager manager;
    make_manager(&manager);
    (void)close(manager.notify_fd);
    start_service(&manager);
    test_daemon_await_log(&manager.daemon, "the service manager (NOTIFY_SOCKET) cannot be told");
    manager.notify_fd = -1;
    test_daemon_end(&manager.daemon);
    end_manager(&manager);
}
END_TEST

/* ---- activation ---- */

static void pass(struct manager *manager, int fd)
{
    manager->passed[manager->num_passed++] = fd;
}

static int listening(int type, const char *path)
{
    int fd = bound(type, path);
    ck_assert_int_eq(listen(fd, 8), 0);
    return fd;
}

/* Connects before there is a daemon, and must be served by the one that comes. */
static void serves_who_waits(struct manager *manager)
{
    int fd = test_daemon_connect(&manager->daemon);
    ck_assert_int_ge(fd, 0);
    start_service(manager);
    says(manager, "READY=1\n", manager->daemon.socket);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    (void)shutdown(fd, SHUT_WR);
    ck_assert_int_eq(poll(&end, 1, PATIENCE_MS), 1);
    (void)close(fd);
}

START_TEST(passed_socket_is_served)
{
    struct manager manager;
    struct rank ranks[WORLD];
    char path[96];
    make_manager(&manager);
    (void)strcpy(path, manager.daemon.socket);
    pass(&manager, listening(SOCK_SEQPACKET, path));
    for (int i = 0; i < 2; i++) { /* the second one after the end of the first */
        serves_who_waits(&manager);
        ranks_start(ranks, WORLD, path);
        ranks_must(ranks, WORLD, rank_step);
        rank_close(&ranks[0]);
        rank_close(&ranks[1]);
        test_daemon_end(&manager.daemon);
        says(&manager, "STOPPING=1\n", "ends");
        ck_assert_msg(access(path, F_OK) == 0, "the manager's socket was removed");
    }
    ck_assert_int_eq(unlink(path), 0);
    end_manager(&manager);
}
END_TEST

/* The passed one is where the daemon is, with its lock beside it, whatever the settings say. */
START_TEST(passed_socket_wins)
{
    struct manager manager;
    char path[160], lock[176];
    make_manager(&manager);
    (void)snprintf(path, sizeof(path), "%s/passed", manager.daemon.directory);
    (void)snprintf(lock, sizeof(lock), "%s.lock", path);
    pass(&manager, listening(SOCK_SEQPACKET, path));
    start_service(&manager);
    says(&manager, "READY=1\n", path);
    ck_assert_int_eq(access(lock, F_OK), 0);
    ck_assert_int_lt(access(manager.daemon.socket, F_OK), 0);
    test_daemon_await_log(&manager.daemon, "is used, and not");
    (void)snprintf(manager.daemon.socket, sizeof(manager.daemon.socket), "%.90s", path);
    test_daemon_signal(&manager.daemon, SIGHUP, "SIGHUP: reading the settings again");
    test_daemon_end(&manager.daemon);
    ck_assert_int_eq(unlink(path), 0);
    end_manager(&manager);
}
END_TEST

static int of_another_type(const struct manager *manager)
{
    return listening(SOCK_STREAM, manager->daemon.socket);
}

static int that_does_not_listen(const struct manager *manager)
{
    return bound(SOCK_SEQPACKET, manager->daemon.socket);
}

static int no_socket(const struct manager *manager)
{
    return open(manager->daemon.socket, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static int without_a_path(const struct manager *manager)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof(sa_family_t)), 0);
    ck_assert_int_eq(listen(fd, 8), 0); /* at an abstract address that the kernel chose */
    (void)close(open(manager->daemon.socket, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    return fd;
}

static const struct {
    int (*make)(const struct manager *manager);
    int count;
    const char *words;
} wrong[] = {
    {of_another_type, 1, "is not a listening AF_UNIX socket of type SOCK_SEQPACKET"},
    {that_does_not_listen, 1, "is not a listening AF_UNIX socket of type SOCK_SEQPACKET"},
    {no_socket, 1, "is not a listening AF_UNIX socket of type SOCK_SEQPACKET"},
    {without_a_path, 1, "is not bound to an absolute path"},
    {of_another_type, 2, "2 sockets were passed (LISTEN_FDS), f8gatherd listens at one"},
};

START_TEST(what_is_no_use_is_refused)
{
    struct manager manager;
    char text[16];
    make_manager(&manager);
    pass(&manager, wrong[_i].make(&manager));
    if (wrong[_i].count == 2)
        pass(&manager, dup(manager.passed[0]));
    start_service(&manager);
    ck_assert_int_eq(test_wait(manager.daemon.pid), 1);
    test_daemon_await_log(&manager.daemon, wrong[_i].words);
    ck_assert_int_lt(recv(manager.notify_fd, text, sizeof(text), MSG_DONTWAIT), 0);
    ck_assert_msg(unlink(manager.daemon.socket) == 0, "what was passed was removed");
    end_manager(&manager);
}
END_TEST

int main(void)
{
#ifndef F8_HAVE_SYSTEMD
    (void)puts("skipped: the daemon was built without libsystemd");
    return 77;
#endif
    TCase *tcase = tcase_create("service");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, is_ready_once_it_serves);
    tcase_add_test(tcase, says_that_it_reloads);
    tcase_add_test(tcase, says_what_it_waits_for_at_the_end);
    tcase_add_test(tcase, watchdog_is_fed);
    tcase_add_test(tcase, failure_says_nothing);
    tcase_add_test(tcase, manager_that_is_gone);
    tcase_add_test(tcase, passed_socket_is_served);
    tcase_add_test(tcase, passed_socket_wins);
    tcase_add_loop_test(
        tcase, what_is_no_use_is_refused, 0, (int)(sizeof(wrong) / sizeof(wrong[0])));
    return run_suite("service", tcase);
}
