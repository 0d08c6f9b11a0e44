/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a client looks for the daemon: the socket that is named and no other, else the usual places
 * up to the first that exists; and how long it waits there.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/error.h"
#include "tests/lib/pings.h"
#include "tests/lib/suite.h"

START_TEST(no_daemon_names_every_path)
{
    struct channel *channel = NULL;
    const struct channel_options options = {.job = "test"};
    setenv("F8GATHERD_SOCKET", "", 1); /* as if it were not set */
    setenv("XDG_RUNTIME_DIR", "/nonexistent/runtime", 1);
    int status = channel_open(&options, &channel);
    unsetenv("F8GATHERD_SOCKET");
    unsetenv("XDG_RUNTIME_DIR");
    if (access(F8_PROTO_SOCKET, F_OK) == 0)
        return; /* a daemon is installed here: the search ends at it */
    ck_assert_int_eq(status, F8_ENODAEMON);
    assert_text(F8_PROTO_SOCKET " (no such file");
    assert_text("/nonexistent/runtime/f8gatherd.sock (no such file");
}
END_TEST

/* A daemon listens at one of the usual places, and is not what was meant. */
START_TEST(environment_has_the_last_word)
{
    struct fake_daemon daemon;
    struct channel *channel = NULL;
    char usual[128];
    const struct channel_options options = {.job = "test"};
    fake_start(&daemon, fake_serve);
    snprintf(usual, sizeof(usual), "%s/" F8_PROTO_SOCKET_NAME, daemon.directory);
    ck_assert_int_eq(symlink(daemon.socket, usual), 0);
    setenv("F8GATHERD_SOCKET", "/nonexistent/one.sock", 1);
    setenv("XDG_RUNTIME_DIR", daemon.directory, 1);
    ck_assert_int_eq(channel_open(&options, &channel), F8_ENODAEMON);
    ck_assert_str_eq(error_text(), "no daemon answers; tried /nonexistent/one.sock (no such file; "
                                   "is f8gatherd running?), as F8GATHERD_SOCKET says");
    unsetenv("F8GATHERD_SOCKET");
    if (access(F8_PROTO_SOCKET, F_OK) != 0) { /* else a daemon is installed here */
        ck_assert_int_eq(channel_open(&options, &channel), F8_OK);
        ck_assert_str_eq(channel_socket(channel), usual);
    } else {
        ck_assert_int_eq(
            channel_open(&(struct channel_options){.socket = usual, .job = "test"}, &channel),
            F8_OK);
    }
    unsetenv("XDG_RUNTIME_DIR");
    ck_assert_int_eq(unlink(usual), 0);
    finish(&daemon, channel);
}
END_TEST

START_TEST(environment_finds_daemon)
{
    struct fake_daemon daemon;
    struct channel *channel = NULL;
    const struct channel_options options = {.job = "test"};
    fake_start(&daemon, fake_serve);
    setenv("F8GATHERD_SOCKET", daemon.socket, 1);
    ck_assert_int_eq(channel_open(&options, &channel), F8_OK);
    unsetenv("F8GATHERD_SOCKET");
    ck_assert_str_eq(channel_socket(channel), daemon.socket);
    ck_assert_str_eq(channel_daemon_version(channel), "0.0.0-fake");
    ck_assert_int_eq(channel_daemon_pid(channel), FAKE_PID);
    finish(&daemon, channel);
}
END_TEST

START_TEST(dead_socket_ends_the_search)
{
    struct fake_daemon daemon;
    struct channel *channel = NULL;
    fake_start(&daemon, fake_serve);
    shutdown(daemon.listener, SHUT_RDWR); /* the file stays, nobody listens */
    pthread_join(daemon.thread, NULL);
    close(daemon.listener);
    const struct channel_options options = {.job = "test"};
    setenv("F8GATHERD_SOCKET", daemon.socket, 1);
    ck_assert_int_eq(channel_open(&options, &channel), F8_ENODAEMON);
    unsetenv("F8GATHERD_SOCKET");
    assert_text(daemon.socket);
    assert_text("nobody listens");
    ck_assert_ptr_null(strstr(error_text(), F8_PROTO_SOCKET));
    unlink(daemon.socket);
    rmdir(daemon.directory);
    close(daemon.go);
    close(daemon.loaded);
}
END_TEST

START_TEST(long_path)
{
    char path[200];
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    struct channel *channel = NULL;
    const struct channel_options options = {.socket = path, .job = "test"};
    ck_assert_int_eq(channel_open(&options, &channel), F8_ENODAEMON);
    assert_text("107 bytes");
}
END_TEST

/* Takes the Hello, and says nothing until the test has seen enough. */
static void script_silent(struct fake_daemon *daemon, int fd)
{
    fake_free(fake_receive(fd, NULL));
    fake_await_go(daemon);
}

START_TEST(patience_is_the_callers)
{
    struct fake_daemon daemon;
    struct channel *channel = NULL;
    fake_start(&daemon, script_silent);
    const struct channel_options options = {
        .socket = daemon.socket, .job = "test", .timeout_ms = 50};
    ck_assert_int_eq(channel_open(&options, &channel), F8_ENODAEMON);
    assert_text("did not answer within 0.05 s; it may be stopped");
    fake_go(&daemon);
    fake_stop(&daemon);
}
END_TEST

START_TEST(no_socket)
{
    static const char *const paths[] = {"/", "/dev/null"};
    struct channel *channel = NULL;
    const struct channel_options options = {.socket = paths[_i], .job = "test"};
    ck_assert_int_eq(channel_open(&options, &channel), F8_ENODAEMON);
    assert_text("it is no socket");
    ck_assert_ptr_null(strstr(error_text(), "has ended"));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("socket");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, no_daemon_names_every_path);
    tcase_add_test(tcase, environment_has_the_last_word);
    tcase_add_test(tcase, environment_finds_daemon);
    tcase_add_test(tcase, dead_socket_ends_the_search);
    tcase_add_test(tcase, long_path);
    tcase_add_test(tcase, patience_is_the_callers);
    tcase_add_loop_test(tcase, no_socket, 0, 2);
    return run_suite("socket", tcase);
}
