/* SPDX-License-Identifier: Apache-2.0 */
/* Connections for tests: see conn_fixture.h. */
#include "tests/lib/conn_fixture.h"

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

#include "daemon/log.h"
#include "daemon/world.h"
#include "protocol.h"
#include "tests/lib/loop_turn.h"

uv_loop_t loop;
static struct config config;
struct session_context session;
struct conn_context conns;
static struct backend *backend;
static struct worlds *worlds;
int descriptors; /* open when the test began */

int open_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory))
        count++;
    (void)closedir(directory);
    return count;
}

void set_up(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    config = (struct config){.max_connections = 4,
        .max_jobs = 4,
        .max_groups = 4,
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
    ck_assert_int_eq(worlds_new(&loop, &config, &worlds), F8_OK);
    session = (struct session_context){.registry = registry_new(&config),
        .link = &conn_session_link,
        .collective = {.loop = &loop,
            .backend = backend,
            .config = &config,
            .listener = &session_listener,
            .worlds = worlds}};
    ck_assert_int_eq(conn_context_init(&conns, &loop, &config, &session), F8_OK);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    descriptors = open_descriptors();
}

void tear_down(void)
{
    conn_close_all(&conns);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_ptr_null(registry_jobs(session.registry));
    ck_assert_int_eq(open_descriptors(), descriptors);
    backend_free(backend);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    conn_context_done(&conns);
    worlds_free(worlds);
    registry_free(session.registry);
}

/* A connection; gives the client's end. */
int connect_one(void)
{
    int ends[2];
    ck_assert_int_eq(
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    conn_open(&conns, ends[1]);
    return ends[0];
}

/* All that can happen now does. */
void turn(void)
{
    for (int i = 0; i < 4; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
}

/* Turns the loop until that many connections are left. */
void await_connections(uint32_t count)
{
    while (session.connections != count) {
        int alive = loop_turn(&loop);
        ck_assert(alive || session.connections == count);
    }
    turn();
}

int send_packed(int fd, const void *bytes, size_t size, const int *fds, size_t num_fds)
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

int send_request(int fd, F8__Request *request, const int *fds, size_t num_fds)
{
    uint8_t packet[512];
    size_t size = f8__request__pack(request, packet);
    return send_packed(fd, packet, size, fds, num_fds);
}

int send_ping(int fd, uint64_t id)
{
    F8__Ping ping = F8__PING__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.id = id;
    request.body_case = F8__REQUEST__BODY_PING;
    request.ping = &ping;
    return send_request(fd, &request, NULL, 0);
}

/* The next reply that is in the socket now, to be freed; NULL: none. */
F8__Reply *next_reply(int fd)
{
    static uint8_t packet[F8_PROTO_MAX_PACKET];
    ssize_t size = recv(fd, packet, sizeof(packet), 0);
    if (size <= 0)
        return NULL;
    F8__Reply *reply = f8__reply__unpack(NULL, (size_t)size, packet);
    ck_assert_ptr_nonnull(reply);
    return reply;
}

void expect(int fd, uint64_t id, int status)
{
    F8__Reply *reply = next_reply(fd);
    ck_assert_ptr_nonnull(reply);
    ck_assert_uint_eq(reply->id, id);
    ck_assert_int_eq(reply->status, status);
    f8__reply__free_unpacked(reply, NULL);
}

void send_hello(int fd, F8__Role role)
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
}

void hello(int fd, F8__Role role)
{
    send_hello(fd, role);
    turn();
    expect(fd, 1, F8_OK);
}

/* Asks without reading until the daemon reads no more; gives the number of pings that went out. */
uint64_t flood(int fd, uint64_t first)
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
