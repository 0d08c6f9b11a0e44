/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How connections end, over real sockets and a real loop: by either side, by death, by a child
 * that outlives its parent, by a limit; and that what was sent before still counts.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/conn_fixture.h"
#include "tests/lib/suite.h"

START_TEST(client_that_never_reads_can_go)
{
    int fd = connect_one();
    hello(fd, F8__ROLE__TRAINER);
    (void)flood(fd, 2);
    (void)close(fd);
    await_connections(0);
}
END_TEST

static void send_join(int fd, uint64_t id, uint32_t rank)
{
    F8__Join join = F8__JOIN__INIT;
    F8__Request request = F8__REQUEST__INIT;
    join.group = (char *)"dp";
    join.rank = rank;
    join.world_size = 2;
    request.id = id;
    request.body_case = F8__REQUEST__BODY_JOIN;
    request.join = &join;
    ck_assert_int_gt(send_request(fd, &request, NULL, 0), 0);
}

static void send_seal(int fd, uint64_t id)
{
    F8__Seal seal = F8__SEAL__INIT;
    F8__Request request = F8__REQUEST__INIT;
    seal.group = registry_jobs(session.registry)->groups->id;
    seal.generation = 1;
    request.id = id;
    request.body_case = F8__REQUEST__BODY_SEAL;
    request.seal = &seal;
    ck_assert_int_gt(send_request(fd, &request, NULL, 0), 0);
}

/* Replies that a client leaves unread make its end a reset, which is told before what it sent. */
START_TEST(last_requests_of_a_client_count)
{
    int waiting = connect_one(), leaving = connect_one();
    hello(waiting, F8__ROLE__TRAINER);
    hello(leaving, F8__ROLE__TRAINER);
    send_join(waiting, 2, 1);
    turn();
    expect(waiting, 2, F8_OK);
    send_seal(waiting, 3);
    ck_assert_int_gt(send_ping(leaving, 2), 0);
    turn(); /* its answer stays unread */
    send_join(leaving, 3, 0);
    (void)close(leaving);
    await_connections(1);
    expect(waiting, 3, F8_ERANKDEAD); /* the leaver had come in */
    (void)close(waiting);
}
END_TEST

/* Requests that no reply follows: more of them than are served in one go. */
static void send_releases(int fd)
{
    F8__Release release = F8__RELEASE__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_RELEASE;
    request.release = &release;
    for (int i = 0; i < 100; i++)
        ck_assert_int_gt(send_request(fd, &request, NULL, 0), 0);
}

/* Also if the first reply meets nobody, and much comes before the last of them. */
START_TEST(many_last_requests_of_a_client_count)
{
    int waiting = connect_one(), leaving = connect_one();
    hello(waiting, F8__ROLE__TRAINER);
    hello(leaving, F8__ROLE__TRAINER);
    send_join(waiting, 2, 1);
    turn();
    expect(waiting, 2, F8_OK);
    send_seal(waiting, 3);
    turn();
    ck_assert_int_gt(send_ping(leaving, 2), 0);
    send_releases(leaving);
    send_join(leaving, 3, 0);
    (void)close(leaving);
    await_connections(1);
    expect(waiting, 3, F8_ERANKDEAD);
    (void)close(waiting);
}
END_TEST

/*
 * Whoever closes and connects anew finds its rank free, whatever it had sent before, and whether
 * it had read the replies (0) or not: its end is then a reset.
 */
START_TEST(close_is_over_before_what_comes_after)
{
    int leaving = connect_one();
    hello(leaving, F8__ROLE__TRAINER);
    send_join(leaving, 2, 0);
    turn();
    if (_i == 0)
        expect(leaving, 2, F8_OK);
    send_releases(leaving);
    (void)close(leaving);
    int next = connect_one();
    send_hello(next, F8__ROLE__TRAINER);
    send_join(next, 2, 0);
    turn();
    expect(next, 1, F8_OK);
    expect(next, 2, F8_OK);
    (void)close(next);
}
END_TEST

START_TEST(surplus_connections_are_told)
{
    int fds[5];
    for (int i = 0; i < 5; i++)
        fds[i] = connect_one();
    ck_assert_uint_eq(session.connections, 4);
    F8__Reply *reply = next_reply(fds[4]);
    ck_assert_int_eq(reply->status, F8_ELIMIT);
    ck_assert_uint_eq(reply->id, 0);
    ck_assert_ptr_nonnull(strstr(reply->text, "4 connections, the limit (--max-connections)"));
    f8__reply__free_unpacked(reply, NULL);
    for (int i = 0; i < 5; i++)
        (void)close(fds[i]);
    await_connections(0);
}
END_TEST

/* ---- Ends ---- */

/* The client reads no more: the next reply meets EPIPE, and no signal. */
START_TEST(reply_to_nobody_ends_the_connection)
{
    int fd = connect_one();
    hello(fd, F8__ROLE__TRAINER);
    ck_assert_int_gt(send_ping(fd, 2), 0);
    ck_assert_int_eq(shutdown(fd, SHUT_RD), 0);
    await_connections(0);
    (void)close(fd);
}
END_TEST

START_TEST(half_closed_is_closed)
{
    int fd = connect_one();
    hello(fd, F8__ROLE__TRAINER);
    ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
    await_connections(0);
    (void)close(fd);
}
END_TEST

/* In the child: connects through `listener`'s other end, lets a child of its own hold it, waits. */
static void hold_and_wait(const char *address, socklen_t size, int hold, int go)
{
    char byte;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (connect(fd, (const struct sockaddr *)address, size) < 0)
        _exit(1);
    pid_t holder = fork();
    /* The holder lives until the test closes its end of `hold`. */
    ssize_t n = read(holder == 0 ? hold : go, &byte, 1);
    _exit(n < 0);
}

START_TEST(death_is_seen_though_a_child_holds_the_socket)
{
    struct sockaddr address = {.sa_family = AF_UNIX};
    char bound[128];
    socklen_t size = sizeof(bound);
    int hold[2], go[2], listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, &address, sizeof(address.sa_family)), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)bound, &size), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(pipe(hold) + pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(hold[1]);
        hold_and_wait(bound, size, hold[0], go[0]);
    }
    conn_open(&conns, accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    turn();
    ck_assert_uint_eq(session.connections, 1);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    await_connections(0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    (void)close(listener);
    for (int i = 0; i < 2; i++) {
        (void)close(hold[i]); /* the holder ends */
        (void)close(go[i]);
    }
}
END_TEST

START_TEST(all_are_closed_at_once)
{
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = connect_one();
        hello(fds[i], F8__ROLE__TRAINER);
    }
    conn_close_all(&conns);
    ck_assert_uint_eq(session.connections, 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < 3; i++) {
        char words[512];
        ck_assert_int_gt(recv(fds[i], words, sizeof(words), 0), 0); /* why it ends */
        ck_assert_int_eq(recv(fds[i], words, sizeof(words), 0), 0);
        (void)close(fds[i]);
    }
}
END_TEST

static void add_all(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, client_that_never_reads_can_go);
    tcase_add_test(tcase, last_requests_of_a_client_count);
    tcase_add_test(tcase, many_last_requests_of_a_client_count);
    tcase_add_loop_test(tcase, close_is_over_before_what_comes_after, 0, 2);
    tcase_add_test(tcase, surplus_connections_are_told);
    tcase_add_test(tcase, reply_to_nobody_ends_the_connection);
    tcase_add_test(tcase, half_closed_is_closed);
    tcase_add_test(tcase, death_is_seen_though_a_child_holds_the_socket);
    tcase_add_test(tcase, all_are_closed_at_once);
}

int main(void)
{
    TCase *tcase = tcase_create("conn_end");
    add_all(tcase);
    return run_suite("conn_end", tcase);
}
