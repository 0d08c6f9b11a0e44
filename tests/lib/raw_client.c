/* SPDX-License-Identifier: Apache-2.0 */
/* A client of raw packets: see raw_client.h. */
#include "lib/raw_client.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/patience.h"
#include "protocol.h"

#define MOST_FDS 253 /* the kernel's limit for one packet */

void raw_open(struct raw_client *raw, const struct test_daemon *daemon)
{
    *raw = (struct raw_client){.fd = test_daemon_connect(daemon)};
    ck_assert_int_ge(raw->fd, 0);
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    ck_assert_int_eq(setsockopt(raw->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
}

/* Says Hello, as a trainer of the job or (NULL) as an operator. */
static struct outcome try_hello(struct raw_client *raw, const char *job)
{
    F8__Hello hello = F8__HELLO__INIT;
    hello.major = F8_PROTO_MAJOR;
    hello.job = job ? (char *)(uintptr_t)job : hello.job;
    hello.role = job ? F8__ROLE__TRAINER : F8__ROLE__ADMIN;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_HELLO;
    request.hello = &hello;
    return raw_try(raw, &request, NULL, 0);
}

void raw_greet(struct raw_client *raw, const struct test_daemon *daemon, const char *job)
{
    raw_open(raw, daemon);
    struct outcome outcome = try_hello(raw, job);
    ck_assert_msg(outcome.status == F8_OK, "Hello: %s", outcome.text);
}

void raw_close(struct raw_client *raw)
{
    (void)close(raw->fd);
    raw->fd = -1;
}

bool raw_send_bytes(
    struct raw_client *raw, const void *bytes, size_t size, const int *fds, size_t num_fds)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(MOST_FDS * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    ck_assert_uint_le(num_fds, MOST_FDS);
    if (num_fds > 0) {
        memset(&control, 0, sizeof(control));
        control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(num_fds * sizeof(int)),
            .cmsg_level = SOL_SOCKET,
            .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), fds, num_fds * sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(num_fds * sizeof(int));
    }
    ssize_t n = sendmsg(raw->fd, &message, MSG_NOSIGNAL);
    ck_assert_msg(n >= 0 || errno == EPIPE || errno == ECONNRESET, "sendmsg: %s", strerror(errno));
    return n >= 0;
}

bool raw_send(struct raw_client *raw, F8__Request *request, const int *fds, size_t num_fds)
{
    uint8_t packet[F8_PROTO_MAX_PACKET];
    request->id = ++raw->last_id;
    ck_assert_uint_le(f8__request__get_packed_size(request), sizeof(packet));
    return raw_send_bytes(raw, packet, f8__request__pack(request, packet), fds, num_fds);
}

static int take_fd(struct msghdr *message)
{
    int fd = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            memcpy(&fd, CMSG_DATA(c), sizeof(fd));
    return fd;
}

F8__Reply *raw_receive(struct raw_client *raw, int *ret_fd)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    uint8_t packet[F8_PROTO_MAX_PACKET];
    struct iovec iov = {.iov_base = packet, .iov_len = sizeof(packet)};
    struct msghdr message = {.msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control.room)};
    ssize_t n = recvmsg(raw->fd, &message, MSG_CMSG_CLOEXEC);
    ck_assert_msg(n >= 0 || errno == ECONNRESET, "no reply of the daemon: %s", strerror(errno));
    int fd = n > 0 ? take_fd(&message) : -1;
    if (ret_fd)
        *ret_fd = fd;
    else if (fd >= 0)
        (void)close(fd);
    if (n <= 0)
        return NULL;
    F8__Reply *reply = f8__reply__unpack(NULL, (size_t)n, packet);
    ck_assert_ptr_nonnull(reply);
    return reply;
}

void raw_free(F8__Reply *reply)
{
    f8__reply__free_unpacked(reply, NULL);
}

F8__Reply *raw_ask(
    struct raw_client *raw, F8__Request *request, const int *fds, size_t num_fds, int *ret_fd)
{
    F8__Reply *reply = NULL;
    if (raw_send(raw, request, fds, num_fds))
        reply = raw_receive(raw, ret_fd);
    /* 0: the daemon's last words */
    ck_assert(!reply || reply->id == request->id || reply->id == 0);
    return reply;
}

struct outcome raw_try(struct raw_client *raw, F8__Request *request, const int *fds, size_t num_fds)
{
    struct outcome outcome = {.status = F8_ECONN};
    F8__Reply *reply = raw_ask(raw, request, fds, num_fds, NULL);
    if (!reply)
        return outcome;
    outcome.status = reply->status;
    (void)snprintf(outcome.text, sizeof(outcome.text), "%s", reply->text);
    raw_free(reply);
    return outcome;
}

int raw_memfd(size_t size)
{
    int fd = memfd_create("f8-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}

/* A group of that name that is not drained yet gives a later generation than the first. */
static void join_alone(struct raw_client *raw, F8__Seal *seal)
{
    F8__Join join = F8__JOIN__INIT;
    F8__Request request = F8__REQUEST__INIT;
    join.group = (char *)(uintptr_t) "dp";
    join.world_size = 1;
    request.body_case = F8__REQUEST__BODY_JOIN;
    request.join = &join;
    F8__Reply *reply = raw_ask(raw, &request, NULL, 0, NULL);
    ck_assert(reply && reply->status == F8_OK);
    seal->group = reply->join->group;
    seal->generation = reply->join->generation;
    raw_free(reply);
}

static void register_one(struct raw_client *raw, uint32_t group)
{
    uint64_t shape[] = {4096};
    F8__Weight weight = F8__WEIGHT__INIT, *weights = &weight;
    F8__Bucket bucket = F8__BUCKET__INIT, *buckets = &bucket;
    F8__Register message = F8__REGISTER__INIT;
    F8__Request request = F8__REQUEST__INIT;
    weight.name = bucket.name = (char *)(uintptr_t) "w";
    weight.n_shape = 1;
    weight.shape = shape;
    weight.dtype = F8_F32;
    weight.flavour = F8_RAW;
    weight.region = 1;
    bucket.count = 1;
    message.group = group;
    message.n_weights = message.n_buckets = 1;
    message.weights = &weights;
    message.buckets = &buckets;
    request.body_case = F8__REQUEST__BODY_REGISTER;
    request.register_ = &message;
    struct outcome outcome = raw_try(raw, &request, NULL, 0);
    ck_assert_msg(outcome.status == F8_OK, "%s", outcome.text);
}

int raw_sealed(struct raw_client *raw, const struct test_daemon *daemon, uint32_t *ret_group)
{
    F8__RegionAdd add = F8__REGION_ADD__INIT;
    F8__Seal seal = F8__SEAL__INIT;
    F8__Request request = F8__REQUEST__INIT;
    raw_greet(raw, daemon, "raw");
    int memfd = raw_memfd(4096 * sizeof(float)), arena;
    request.body_case = F8__REQUEST__BODY_REGION_ADD;
    request.region_add = &add;
    ck_assert_int_eq(raw_try(raw, &request, &memfd, 1).status, F8_OK);
    (void)close(memfd);
    join_alone(raw, &seal);
    register_one(raw, seal.group);
    *ret_group = seal.group;
    request.body_case = F8__REQUEST__BODY_SEAL;
    request.seal = &seal;
    F8__Reply *reply = raw_ask(raw, &request, NULL, 0, &arena);
    ck_assert(reply && reply->status == F8_OK);
    ck_assert_int_ge(arena, 0);
    raw_free(reply);
    return arena;
}

/* ---- the daemon as it is seen from outside ---- */

/* An operator's question; the reply is to be freed with raw_free. */
static F8__Reply *inspect(struct raw_client *operator, F8__View view)
{
    F8__Inspect question = F8__INSPECT__INIT;
    F8__Request request = F8__REQUEST__INIT;
    question.view = view;
    request.body_case = F8__REQUEST__BODY_INSPECT;
    request.inspect = &question;
    F8__Reply *reply = raw_ask(operator, & request, NULL, 0, NULL);
    ck_assert(reply && reply->status == F8_OK);
    return reply;
}

static int count_descriptors(const struct test_daemon *daemon)
{
    char path[64];
    int count = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)daemon->pid);
    DIR *directory = opendir(path);
    ck_assert_ptr_nonnull(directory);
    while (readdir(directory))
        count++;
    (void)closedir(directory);
    return count - 2; /* . and .. */
}

/* A connected operator. While the daemon still counts those who just left, it may be full. */
static void greet_operator(struct raw_client *operator, const struct test_daemon * daemon)
{
    struct outcome outcome = {.status = F8_ELIMIT};
    for (int i = 0; i < PATIENCE_S * 1000 && outcome.status == F8_ELIMIT; i++) {
        raw_open(operator, daemon);
        outcome = try_hello(operator, NULL);
        if (outcome.status != F8_OK)
            raw_close(operator);
    }
    ck_assert_msg(outcome.status == F8_OK, "Hello: %s", outcome.text);
}

/* libuv keeps one descriptor more from the first TCP port on, which any request may have opened. */
#define LIBUV_SPARE 1

/* What is waited for, of a reply. */
struct wanted {
    F8__View view;
    bool (*holds)(const F8__InspectReply *reply, const struct wanted *wanted);
    const char *kind; /* borrowed: literal */
    uint32_t ranks;
    int descriptors; /* 0: any */
};

/* Asks until it holds or patience ends. */
static void await(const struct test_daemon *daemon, const struct wanted *wanted, const char *what)
{
    struct raw_client operator;
    struct timespec start, now;
    bool holds;
    greet_operator(&operator, daemon);
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        F8__Reply *reply = inspect(&operator, wanted->view);
        holds = wanted->holds(reply->inspect, wanted) &&
                (!wanted->descriptors ||
                    count_descriptors(daemon) <= wanted->descriptors + LIBUV_SPARE);
        raw_free(reply);
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        if (!holds)
            (void)poll(NULL, 0, 1);
    } while (!holds && now.tv_sec - start.tv_sec < PATIENCE_S);
    ck_assert_msg(
        holds, "never came: %s (the daemon has %d descriptors)", what, count_descriptors(daemon));
    raw_close(&operator);
}

static bool is_empty(const F8__InspectReply *reply, const struct wanted *wanted)
{
    const F8__StatusInfo *status = reply->status;
    (void)wanted;
    return status->connections == 1 && status->jobs == 0 && status->region_bytes == 0 &&
           status->arena_bytes == 0;
}

int daemon_descriptors(const struct test_daemon *daemon)
{
    struct raw_client operator;
    const struct wanted wanted = {.view = F8__VIEW__STATUS, .holds = is_empty};
    await(daemon, &wanted, "an empty daemon");
    greet_operator(&operator, daemon);
    /* Descriptors go in the turn of the loop after the connection; each question is a turn. */
    bool alone = false;
    while (!alone) {
        F8__Reply *reply = inspect(&operator, F8__VIEW__STATUS);
        alone = is_empty(reply->inspect, &wanted);
        raw_free(reply);
    }
    raw_free(inspect(&operator, F8__VIEW__STATUS));
    int count = count_descriptors(daemon);
    raw_close(&operator);
    return count;
}

void daemon_await_empty(const struct test_daemon *daemon, int before)
{
    const struct wanted wanted = {
        .view = F8__VIEW__STATUS, .holds = is_empty, .descriptors = before};
    await(daemon, &wanted, "an empty daemon with its first number of descriptors");
}

static bool waits_so(const F8__InspectReply *reply, const struct wanted *wanted)
{
    for (size_t i = 0; i < reply->n_rounds; i++) {
        const F8__RoundInfo *round = reply->rounds[i];
        uint32_t missing = 0;
        for (size_t r = 0; r < round->n_missing_ranks; r++)
            missing |= 1U << round->missing_ranks[r];
        if (strcmp(round->kind, wanted->kind) == 0 && missing == wanted->ranks)
            return true;
    }
    return false;
}

void daemon_await_missing(const struct test_daemon *daemon, const char *kind, uint32_t ranks)
{
    const struct wanted wanted = {
        .view = F8__VIEW__ROUNDS, .holds = waits_so, .kind = kind, .ranks = ranks};
    await(daemon, &wanted, kind);
}
