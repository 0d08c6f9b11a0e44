/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel alone, against scripts of a fake daemon: finding the socket, versions, signals and
 * timeouts, lost connections, garbage.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/error.h"
#include "tests/lib/pings.h"
#include "tests/lib/suite.h"

static int open_status(struct fake_daemon *daemon, fake_script *script)
{
    struct channel *channel = NULL;
    fake_start(daemon, script);
    const struct channel_options options = {.socket = daemon->socket, .job = "test"};
    int status = channel_open(&options, &channel);
    ck_assert_ptr_null(channel);
    fake_stop(daemon);
    return status;
}

/* ---- finding the daemon ---- */

START_TEST(no_daemon_names_every_path)
{
    struct channel *channel = NULL;
    const struct channel_options options = {.job = "test"};
    setenv("F8GATHERD_SOCKET", "/nonexistent/one.sock", 1);
    setenv("XDG_RUNTIME_DIR", "/nonexistent/runtime", 1);
    int status = channel_open(&options, &channel);
    unsetenv("F8GATHERD_SOCKET");
    unsetenv("XDG_RUNTIME_DIR");
    if (access(F8_PROTO_SOCKET, F_OK) == 0)
        return; /* a daemon is installed here: the search ends at it */
    ck_assert_int_eq(status, F8_ENODAEMON);
    assert_text("/nonexistent/one.sock (no such file");
    assert_text(F8_PROTO_SOCKET);
    assert_text("/nonexistent/runtime/f8gatherd.sock");
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

/* ---- Hello ---- */

static void script_major_2(struct fake_daemon *daemon, int fd)
{
    (void)daemon;
    F8__Request *request = fake_receive(fd, NULL);
    F8__HelloReply hello = F8__HELLO_REPLY__INIT;
    hello.major = 2;
    hello.minor = 9;
    hello.daemon_version = (char *)(uintptr_t) "5.6.7";
    F8__Reply reply = F8__REPLY__INIT;
    reply.id = request->id;
    reply.body_case = F8__REPLY__BODY_HELLO;
    reply.hello = &hello;
    fake_reply(fd, &reply, -1);
    fake_free(request);
}

START_TEST(other_major)
{
    struct fake_daemon daemon;
    ck_assert_int_eq(open_status(&daemon, script_major_2), F8_EVERSION);
    assert_text("5.6.7");
    assert_text("2.9");
    assert_text("1.0");
}
END_TEST

/* A daemon of a later minor version, whose replies have fields that this library does not know. */
static void script_minor_9(struct fake_daemon *daemon, int fd)
{
    (void)daemon;
    uint8_t value = 42;
    ProtobufCMessageUnknownField later = {
        .tag = 900, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = 1, .data = &value};
    F8__Request *request = fake_receive(fd, NULL);
    F8__HelloReply hello = F8__HELLO_REPLY__INIT;
    hello.base.n_unknown_fields = 1;
    hello.base.unknown_fields = &later;
    hello.major = 1;
    hello.minor = 9;
    hello.credit = FAKE_CREDIT;
    hello.daemon_version = (char *)(uintptr_t) "5.6.7";
    F8__Reply reply = F8__REPLY__INIT;
    reply.id = request->id;
    reply.body_case = F8__REPLY__BODY_HELLO;
    reply.hello = &hello;
    fake_reply(fd, &reply, -1);
    fake_free(request);
}

START_TEST(newer_minor)
{
    struct fake_daemon daemon;
    struct channel *channel = NULL;
    fake_start(&daemon, script_minor_9);
    const struct channel_options options = {.socket = daemon.socket, .job = "test"};
    ck_assert_int_eq(channel_open(&options, &channel), F8_OK);
    ck_assert_str_eq(channel_daemon_version(channel), "5.6.7");
    finish(&daemon, channel);
}
END_TEST

static void script_refuse(struct fake_daemon *daemon, int fd)
{
    (void)daemon;
    F8__Request *request = fake_receive(fd, NULL);
    ck_assert_str_eq(request->hello->job, "test");
    fake_reply_status(fd, request->id, F8_EPERM, "wrong token for job test");
    fake_free(request);
}

START_TEST(hello_refused)
{
    struct fake_daemon daemon;
    ck_assert_int_eq(open_status(&daemon, script_refuse), F8_EPERM);
    ck_assert_str_eq(error_text(), "wrong token for job test");
}
END_TEST

static void script_close(struct fake_daemon *daemon, int fd)
{
    (void)daemon;
    fake_free(fake_receive(fd, NULL));
}

START_TEST(hello_unanswered)
{
    struct fake_daemon daemon;
    ck_assert_int_eq(open_status(&daemon, script_close), F8_ECONN);
    assert_text(daemon.socket);
}
END_TEST

static void script_last_words(struct fake_daemon *daemon, int fd)
{
    (void)daemon;
    fake_reply_status(fd, 0, F8_ELIMIT, "1024 connections are open, the configured limit");
}

START_TEST(last_words)
{
    struct fake_daemon daemon;
    ck_assert_int_eq(open_status(&daemon, script_last_words), F8_ELIMIT);
    assert_text("1024 connections are open");
}
END_TEST

/* ---- signals, timeouts, tests ---- */

static void on_signal(int number)
{
    (void)number;
}

struct interruption {
    struct channel *channel;
    uint64_t id;
    atomic_bool over;
};

static void *wait_until_interrupted(void *argument)
{
    struct interruption *i = argument;
    struct channel_reply reply;
    ck_assert_int_eq(channel_wait(i->channel, i->id, -1, &reply), F8_EINTR);
    assert_text("wait again");
    i->over = true;
    await_ping(i->channel, i->id);
    return NULL;
}

/* Two threads wait, one leads: a signal ends the wait of either, and neither loses its reply. */
START_TEST(signal_ends_a_wait)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, fake_serve);
    const struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART */
    sigaction(SIGUSR1, &action, NULL);
    daemon.withhold = F8__REQUEST__BODY_PING;
    struct interruption waits[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        waits[i] = (struct interruption){.channel = channel, .id = send_ping(channel)};
        pthread_create(&threads[i], NULL, wait_until_interrupted, &waits[i]);
    }
    for (int i = 0; i < 2; i++)
        while (!waits[i].over) { /* a signal may come before the wait begins: send another */
            pthread_kill(threads[i], SIGUSR1);
            usleep(1000);
        }
    while (daemon.counts[F8__REQUEST__BODY_PING] < 2)
        usleep(100);
    fake_go(&daemon);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    finish(&daemon, channel);
}
END_TEST

START_TEST(timeout_leaves_open)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, fake_serve);
    struct channel_reply reply;
    daemon.withhold = F8__REQUEST__BODY_PING;
    uint64_t id = send_ping(channel);
    ck_assert_int_eq(channel_wait(channel, id, 0, &reply), F8_EDEADLINE);
    ck_assert_int_eq(channel_wait(channel, id, 2, &reply), F8_EDEADLINE);
    ck_assert(!channel_test(channel, id));
    while (daemon.counts[F8__REQUEST__BODY_PING] < 1)
        usleep(100);
    fake_go(&daemon);
    while (!channel_test(channel, id))
        usleep(100);
    ck_assert(channel_has_reply(channel, id));
    await_ping(channel, id);
    finish(&daemon, channel);
}
END_TEST

START_TEST(abandoned_reply_is_dropped)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, fake_serve);
    struct channel_reply reply;
    uint64_t id = send_ping(channel);
    channel_abandon(channel, id);
    channel_abandon(channel, id);
    channel_abandon(channel, 0);
    ck_assert_int_eq(channel_wait(channel, id, 0, &reply), F8_ENOENT);
    await_ping(channel, send_ping(channel));
    finish(&daemon, channel);
}
END_TEST

START_TEST(ask_gives_the_whole_reply)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, fake_serve);
    F8__Ping ping = F8__PING__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_PING;
    request.ping = &ping;
    F8__Reply *reply = NULL;
    ck_assert_int_eq(channel_ask(channel, &request, -1, &reply), F8_OK);
    ck_assert_uint_eq(reply->ping->uptime_ms, request.id);
    f8__reply__free_unpacked(reply, NULL);
    daemon.withhold = F8__REQUEST__BODY_PING;
    ck_assert_int_eq(channel_ask(channel, &request, 1, &reply), F8_EDEADLINE);
    daemon.withhold = 0;
    daemon.fail_status = F8_EPERM;
    daemon.fail_body = F8__REQUEST__BODY_PING;
    ck_assert_int_eq(channel_ask(channel, &request, -1, &reply), F8_EPERM);
    ck_assert_str_eq(error_text(), "refused by the test");
    finish(&daemon, channel);
}
END_TEST

/* ---- lost connections and garbage ---- */

static void script_vanish(struct fake_daemon *daemon, int fd)
{
    fake_hello(fd);
    for (int i = 0; i < 2; i++)
        fake_free(fake_receive(fd, NULL));
    fake_await_go(daemon);
}

static void *wait_for_loss(void *argument)
{
    struct interruption *i = argument;
    struct channel_reply reply;
    ck_assert_int_eq(channel_wait(i->channel, i->id, -1, &reply), F8_OK);
    ck_assert_int_eq(reply.status, F8_ECONN);
    assert_text("4711");
    return NULL;
}

START_TEST(lost_connection_fails_all)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, script_vanish);
    struct interruption waits[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        waits[i] = (struct interruption){.channel = channel, .id = send_ping(channel)};
        pthread_create(&threads[i], NULL, wait_for_loss, &waits[i]);
    }
    fake_go(&daemon);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    F8__Ping ping = F8__PING__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_PING;
    request.ping = &ping;
    ck_assert_int_eq(channel_call(channel, &request, -1, NULL), F8_ECONN);
    assert_text(daemon.socket);
    post_release(channel, 9); /* dropped */
    finish(&daemon, channel);
}
END_TEST

/* The fake daemon's answers that no daemon gives, one a script; ping is `id`. */
static const uint8_t no_message[] = {0xff, 0xff, 0xff, 0xff};

static void garbage(struct fake_daemon *daemon, int fd, uint64_t id)
{
    int kind = daemon->fail_status;
    switch (kind) {
    case 0:
        fake_send_bytes(fd, no_message, sizeof(no_message));
        break;
    case 1:
        reply_ping(fd, id + (1 << 24), "");
        break;
    case 2:
        reply_ping(fd, UINT64_MAX, "");
        break;
    case 3:
        reply_ping(fd, id, "");
        reply_ping(fd, id, "");
        break;
    case 4:
        fake_reply_status(fd, id, 5, "");
        break;
    default:
        reply_ping(fd, 0, "");
    }
}

static void script_garbage(struct fake_daemon *daemon, int fd)
{
    fake_hello(fd);
    F8__Request *request = fake_receive(fd, NULL);
    fake_await_go(daemon);
    garbage(daemon, fd, request->id);
    fake_free(request);
    while ((request = fake_receive(fd, NULL)))
        fake_free(request);
}

START_TEST(garbage_ends_the_connection)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, script_garbage);
    daemon.fail_status = _i;
    uint64_t id = send_ping(channel);
    fake_go(&daemon);
    struct channel_reply reply;
    int status = channel_wait(channel, id, -1, &reply);
    ck_assert_int_eq(status, F8_OK);
    if (_i == 3) { /* the second reply is the garbage */
        ck_assert_int_eq(reply.status, F8_OK);
        id = send_ping(channel);
        ck_assert_int_eq(channel_wait(channel, id, -1, &reply), F8_OK);
    }
    ck_assert_int_eq(reply.status, F8_EPROTO);
    assert_text(_i == 0 ? "4 bytes that are no reply" : "the daemon answered request");
    finish(&daemon, channel);
}
END_TEST

/* Several descriptors on one packet, and which they are. */
static void script_descriptors(struct fake_daemon *daemon, int fd)
{
    int fds[F8_PROTO_MAX_FDS];
    uint32_t count = 0;
    (void)daemon;
    fake_hello(fd);
    F8__Request *request = fake_receive_fds(fd, fds, &count);
    bool right = request && count == F8_PROTO_MAX_FDS;
    for (uint32_t i = 0; i < count; i++) {
        struct stat stat;
        right = right && fstat(fds[i], &stat) == 0 && (uint32_t)stat.st_size == i + 1;
        close(fds[i]);
    }
    if (request)
        fake_reply_status(fd, request->id, right ? F8_EEXIST : F8_EINTERNAL, "");
    fake_free(request);
    fake_free(fake_receive(fd, NULL)); /* the goodbye */
}

START_TEST(descriptors_go_with_a_packet)
{
    struct fake_daemon daemon;
    struct channel *channel = open_channel(&daemon, script_descriptors);
    F8__RegionAdd add = F8__REGION_ADD__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_REGION_ADD;
    request.region_add = &add;
    int fds[F8_PROTO_MAX_FDS];
    for (int i = 0; i < F8_PROTO_MAX_FDS; i++) {
        fds[i] = memfd_create("test", MFD_CLOEXEC);
        ck_assert_int_eq(ftruncate(fds[i], i + 1), 0);
    }
    ck_assert_int_eq(channel_call_with(channel, &request, fds, F8_PROTO_MAX_FDS, NULL), F8_EEXIST);
    for (int i = 0; i < F8_PROTO_MAX_FDS; i++)
        close(fds[i]);
    finish(&daemon, channel);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("channel");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, descriptors_go_with_a_packet);
    tcase_add_test(tcase, no_daemon_names_every_path);
    tcase_add_test(tcase, environment_finds_daemon);
    tcase_add_test(tcase, dead_socket_ends_the_search);
    tcase_add_test(tcase, long_path);
    tcase_add_loop_test(tcase, no_socket, 0, 2);
    tcase_add_test(tcase, other_major);
    tcase_add_test(tcase, newer_minor);
    tcase_add_test(tcase, hello_refused);
    tcase_add_test(tcase, hello_unanswered);
    tcase_add_test(tcase, last_words);
    tcase_add_test(tcase, signal_ends_a_wait);
    tcase_add_test(tcase, timeout_leaves_open);
    tcase_add_test(tcase, abandoned_reply_is_dropped);
    tcase_add_test(tcase, ask_gives_the_whole_reply);
    tcase_add_test(tcase, lost_connection_fails_all);
    tcase_add_loop_test(tcase, garbage_ends_the_connection, 0, 6);
    return run_suite("channel", tcase);
}
