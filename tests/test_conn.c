/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections over real sockets and a real loop: packets that are none, descriptors that must not
 * stay open, the credit's stop and go, ends of every kind. One thread plays both sides.
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

#include "daemon/conn.h"
#include "daemon/log.h"
#include "protocol.h"

#define CREDIT 8

static uv_loop_t loop;
static struct config config;
static struct session_context session;
static struct conn_context conns;
static struct backend *backend;
static int descriptors; /* open when the test began */

static int open_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory))
        count++;
    (void)closedir(directory);
    return count;
}

static void set_up(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    config = (struct config){.max_connections = 4,
        .max_jobs = 4,
        .max_regions = 4,
        .max_weights = 16,
        .max_ranks = 4,
        .credit = CREDIT,
        .max_rounds = 8,
        .memory_per_uid = 1 << 20,
        .deadline_ms = 600000,
        .slow_ms = 600000};
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(backend_host_new(&loop, 1, &backend), F8_OK);
    session = (struct session_context){.registry = registry_new(&config),
        .link = &conn_session_link,
        .collective = {
            .loop = &loop, .backend = backend, .config = &config, .listener = &session_listener}};
    ck_assert_int_eq(conn_context_init(&conns, &loop, &config, &session), F8_OK);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    descriptors = open_descriptors();
}

static void tear_down(void)
{
    conn_close_all(&conns);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_ptr_null(registry_jobs(session.registry));
    ck_assert_int_eq(open_descriptors(), descriptors);
    backend_free(backend);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    conn_context_done(&conns);
    registry_free(session.registry);
}

/* A connection; gives the client's end. */
static int connect_one(void)
{
    int ends[2];
    ck_assert_int_eq(
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    conn_open(&conns, ends[1]);
    return ends[0];
}

/* All that can happen now does. */
static void turn(void)
{
    for (int i = 0; i < 4; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
}

/* Turns the loop until that many connections are left. */
static void await_connections(uint32_t count)
{
    while (session.connections != count) {
        int alive = uv_run(&loop, UV_RUN_ONCE);
        ck_assert(alive || session.connections == count);
    }
    turn();
}

static int send_packed(int fd, const void *bytes, size_t size, const int *fds, size_t num_fds)
{
    char control[CMSG_SPACE(8 * sizeof(int))] = {0};
    struct iovec iov = {.iov_base = (void *)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (num_fds > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(num_fds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(num_fds * sizeof(int));
        memcpy(CMSG_DATA(header), fds, num_fds * sizeof(int));
    }
    return (int)sendmsg(fd, &message, MSG_NOSIGNAL);
}

static int send_request(int fd, F8__Request *request, const int *fds, size_t num_fds)
{
    uint8_t packet[512];
    size_t size = f8__request__pack(request, packet);
    return send_packed(fd, packet, size, fds, num_fds);
}

static int send_ping(int fd, uint64_t id)
{
    F8__Ping ping = F8__PING__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.id = id;
    request.body_case = F8__REQUEST__BODY_PING;
    request.ping = &ping;
    return send_request(fd, &request, NULL, 0);
}

/* The next reply that is in the socket now, to be freed; NULL: none. */
static F8__Reply *next_reply(int fd)
{
    static uint8_t packet[F8_PROTO_MAX_PACKET];
    ssize_t size = recv(fd, packet, sizeof(packet), 0);
    if (size <= 0)
        return NULL;
    F8__Reply *reply = f8__reply__unpack(NULL, (size_t)size, packet);
    ck_assert_ptr_nonnull(reply);
    return reply;
}

static void expect(int fd, uint64_t id, int status)
{
    F8__Reply *reply = next_reply(fd);
    ck_assert_ptr_nonnull(reply);
    ck_assert_uint_eq(reply->id, id);
    ck_assert_int_eq(reply->status, status);
    f8__reply__free_unpacked(reply, NULL);
}

static void hello(int fd, F8__Role role)
{
    F8__Hello body = F8__HELLO__INIT;
    F8__Request request = F8__REQUEST__INIT;
    body.major = F8_PROTO_MAJOR;
    body.job = (char *)"job";
    body.role = role;
    request.id = 1;
    request.body_case = F8__REQUEST__BODY_HELLO;
    request.hello = &body;
    ck_assert_int_gt(send_request(fd, &request, NULL, 0), 0);
    turn();
    expect(fd, 1, F8_OK);
}

START_TEST(requests_are_answered)
{
    int fd = connect_one();
    hello(fd, F8__ROLE__TRAINER);
    for (uint64_t id = 2; id < 40; id++) { /* more than one burst */
        ck_assert_int_gt(send_ping(fd, id), 0);
        turn();
        expect(fd, id, F8_OK);
    }
    (void)close(fd);
    await_connections(0);
}
END_TEST

/* ---- Packets that are none ---- */

static const uint8_t garbage[] = {0xff, 0xff, 0xff, 0xff};

START_TEST(garbage_ends_only_its_connection)
{
    int bad = connect_one(), good = connect_one();
    hello(good, F8__ROLE__TRAINER);
    ck_assert_int_gt(send_packed(bad, garbage, sizeof(garbage), NULL, 0), 0);
    await_connections(1);
    ck_assert_int_eq(recv(bad, (char[1]){0}, 1, 0), 0);
    ck_assert_int_gt(send_ping(good, 2), 0);
    turn();
    expect(good, 2, F8_OK);
    (void)close(bad);
    (void)close(good);
}
END_TEST

/* Every way for descriptors to come along with something that is not served. */
static const struct {
    const uint8_t *bytes;
    size_t size, num_fds;
} strays[] = {
    {garbage, sizeof(garbage), 4},
    {garbage, 0, 1}, /* a packet of no bytes looks like the end */
    {garbage, 0, 4},
    {garbage, sizeof(garbage), 5}, /* more than there is room for */
    {NULL, F8_PROTO_MAX_PACKET + 1, 0},
    {NULL, F8_PROTO_MAX_PACKET + 1, 2},
};

#define NUM_STRAYS ((int)(sizeof(strays) / sizeof(strays[0])))

START_TEST(stray_descriptors_are_closed)
{
    static uint8_t large[F8_PROTO_MAX_PACKET + 1];
    int fds[5], fd = connect_one();
    for (int i = 0; i < 5; i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const uint8_t *bytes = strays[_i].bytes ? strays[_i].bytes : large;
    ck_assert_int_ge(send_packed(fd, bytes, strays[_i].size, fds, strays[_i].num_fds), 0);
    await_connections(0);
    for (int i = 0; i < 5; i++)
        (void)close(fds[i]);
    (void)close(fd);
    ck_assert_int_eq(open_descriptors(), descriptors);
}
END_TEST

START_TEST(served_descriptors_are_closed)
{
    F8__RegionAdd body = F8__REGION_ADD__INIT;
    F8__Request request = F8__REQUEST__INIT;
    int fd = connect_one(), fds[2];
    hello(fd, F8__ROLE__TRAINER);
    int before = open_descriptors();
    request.body_case = F8__REQUEST__BODY_REGION_ADD;
    request.region_add = &body;
    fds[0] = fds[1] = memfd_create("f8-conn-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fds[0], 4096), 0);
    ck_assert_int_eq(fcntl(fds[0], F_ADD_SEALS, F_SEAL_SHRINK), 0);
    request.id = 2;
    ck_assert_int_gt(send_request(fd, &request, fds, 2), 0);
    request.id = 3;
    ck_assert_int_gt(send_request(fd, &request, fds, 1), 0);
    request.id = 4;
    ck_assert_int_gt(send_request(fd, &request, NULL, 0), 0);
    (void)close(fds[0]);
    turn();
    expect(fd, 2, F8_EREGION);
    expect(fd, 3, F8_OK);
    expect(fd, 4, F8_EREGION);
    ck_assert_int_eq(open_descriptors(), before);
    (void)close(fd);
}
END_TEST

/* Takes all free descriptors away, by the limit; gives the limit to go back to. */
static struct rlimit leave_no_descriptor(void)
{
    struct rlimit limit, small;
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)close(next);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    small = limit;
    small.rlim_cur = (rlim_t)next;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &small), 0);
    return limit;
}

/* The daemon's shortage is not the client's fault: it is told, and goes on. */
START_TEST(descriptor_without_room_is_told)
{
    F8__RegionAdd body = F8__REGION_ADD__INIT;
    F8__Request request = F8__REQUEST__INIT;
    int fd = connect_one(), null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    hello(fd, F8__ROLE__TRAINER);
    request.id = 2;
    request.body_case = F8__REQUEST__BODY_REGION_ADD;
    request.region_add = &body;
    ck_assert_int_gt(send_request(fd, &request, &null, 1), 0);
    struct rlimit limit = leave_no_descriptor();
    turn();
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    F8__Reply *reply = next_reply(fd);
    ck_assert_ptr_nonnull(reply);
    ck_assert_int_eq(reply->status, F8_ELIMIT);
    ck_assert_ptr_nonnull(strstr(reply->text, "out of file descriptors"));
    f8__reply__free_unpacked(reply, NULL);
    ck_assert_int_gt(send_ping(fd, 3), 0);
    turn();
    expect(fd, 3, F8_OK);
    (void)close(null);
    (void)close(fd);
}
END_TEST

/* ---- Credit ---- */

/* Asks without reading until the daemon reads no more; gives the number of pings that went out. */
static uint64_t flood(int fd, uint64_t first)
{
    uint64_t id = first;
    for (;;) {
        while (send_ping(fd, id) > 0)
            id++;
        turn();
        if (send_ping(fd, id) <= 0)
            return id - first;
        id++;
    }
}

START_TEST(credit_stops_and_resumes)
{
    int fd = connect_one(), other = connect_one();
    int small = 4096;
    hello(fd, F8__ROLE__TRAINER);
    hello(other, F8__ROLE__TRAINER);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    uint64_t sent = flood(fd, 2);
    ck_assert_uint_gt(sent, CREDIT);
    /* Whoever does not read stops itself, and no one else. */
    ck_assert_int_gt(send_ping(other, 2), 0);
    turn();
    expect(other, 2, F8_OK);
    for (uint64_t id = 2; id < 2 + sent; id++) {
        turn();
        expect(fd, id, F8_OK);
    }
    turn();
    ck_assert_ptr_null(next_reply(fd));
    ck_assert_int_gt(send_ping(fd, 9999), 0);
    turn();
    expect(fd, 9999, F8_OK);
    (void)close(fd);
    (void)close(other);
}
END_TEST

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
    tcase_add_test(tcase, requests_are_answered);
    tcase_add_test(tcase, garbage_ends_only_its_connection);
    tcase_add_test(tcase, descriptor_without_room_is_told);
    tcase_add_loop_test(tcase, stray_descriptors_are_closed, 0, NUM_STRAYS);
    tcase_add_test(tcase, served_descriptors_are_closed);
    tcase_add_test(tcase, credit_stops_and_resumes);
    tcase_add_test(tcase, client_that_never_reads_can_go);
    tcase_add_test(tcase, last_requests_of_a_client_count);
    tcase_add_test(tcase, surplus_connections_are_told);
    tcase_add_test(tcase, reply_to_nobody_ends_the_connection);
    tcase_add_test(tcase, half_closed_is_closed);
    tcase_add_test(tcase, death_is_seen_though_a_child_holds_the_socket);
    tcase_add_test(tcase, all_are_closed_at_once);
}

int main(void)
{
    Suite *suite = suite_create("conn");
    TCase *tcase = tcase_create("conn");
    add_all(tcase);
    suite_add_tcase(suite, tcase);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
