/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake daemon of the client's tests. Its scripts run on a thread of their own; what a script
 * and a test both touch is atomic or goes through the two eventfds.
 */
#include "tests/lib/fake_daemon.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    abort();
}

static void *run(void *argument)
{
    struct fake_daemon *daemon = argument;
    int fd = accept4(daemon->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return NULL;
    daemon->script(daemon, fd);
    close(fd);
    return NULL;
}

void fake_start(struct fake_daemon *daemon, fake_script *script)
{
    memset(daemon, 0, sizeof(*daemon));
    daemon->arena = daemon->seal_memfd = daemon->export_memfd = -1;
    daemon->export_size = -1;
    daemon->script = script;
    daemon->generation = FAKE_GENERATION;
    strcpy(daemon->directory, "/tmp/f8-test-XXXXXX");
    must(mkdtemp(daemon->directory), "mkdtemp");
    snprintf(daemon->socket, sizeof(daemon->socket), "%s/socket", daemon->directory);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", daemon->socket);
    daemon->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    must(daemon->listener >= 0, "socket");
    must(bind(daemon->listener, (struct sockaddr *)&address, sizeof(address)) == 0, "bind");
    must(listen(daemon->listener, 4) == 0, "listen");
    daemon->go = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    daemon->loaded = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    must(pthread_create(&daemon->thread, NULL, run, daemon) == 0, "pthread_create");
}

void fake_stop(struct fake_daemon *daemon)
{
    shutdown(daemon->listener, SHUT_RDWR);
    pthread_join(daemon->thread, NULL);
    close(daemon->listener);
    close(daemon->go);
    close(daemon->loaded);
    const int memfds[] = {daemon->arena, daemon->seal_memfd, daemon->export_memfd};
    for (size_t i = 0; i < sizeof(memfds) / sizeof(memfds[0]); i++)
        if (memfds[i] >= 0)
            close(memfds[i]);
    unlink(daemon->socket);
    rmdir(daemon->directory);
}

static void post(int event)
{
    const uint64_t one = 1;
    must(write(event, &one, sizeof(one)) == sizeof(one), "eventfd");
}

static void await(int event)
{
    uint64_t one;
    must(read(event, &one, sizeof(one)) == sizeof(one), "eventfd");
}

void fake_go(struct fake_daemon *daemon)
{
    post(daemon->go);
}

void fake_await_go(struct fake_daemon *daemon)
{
    await(daemon->go);
}

void fake_loaded(struct fake_daemon *daemon)
{
    post(daemon->loaded);
}

void fake_await_loaded(struct fake_daemon *daemon)
{
    await(daemon->loaded);
}

F8__Request *fake_receive_fds(int fd, int fds[F8_PROTO_MAX_FDS], uint32_t *ret_count)
{
    static _Thread_local uint8_t packet[F8_PROTO_MAX_PACKET];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(F8_PROTO_MAX_FDS * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = packet, .iov_len = sizeof(packet)};
    struct msghdr message = {.msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};
    ssize_t length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (length <= 0)
        return NULL;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *ret_count = 0;
    if (header && header->cmsg_type == SCM_RIGHTS) {
        *ret_count = (uint32_t)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(header), *ret_count * sizeof(int));
    }
    F8__Request *request = f8__request__unpack(NULL, (size_t)length, packet);
    must(request != NULL, "the client sent no request");
    return request;
}

F8__Request *fake_receive(int fd, int *ret_memfd)
{
    int fds[F8_PROTO_MAX_FDS];
    uint32_t count = 0;
    F8__Request *request = fake_receive_fds(fd, fds, &count);
    if (!request)
        return NULL;
    if (ret_memfd)
        *ret_memfd = count > 0 ? fds[0] : -1;
    for (uint32_t i = ret_memfd ? 1 : 0; i < count; i++)
        close(fds[i]);
    if (request->body_case != F8__REQUEST__BODY_GOODBYE)
        return request;
    fake_free(request); /* the end, said in good order */
    return NULL;
}

void fake_free(F8__Request *request)
{
    f8__request__free_unpacked(request, NULL);
}

bool fake_send_packet(int fd, const void *bytes, size_t size, int memfd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (memfd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &memfd, sizeof(int));
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

bool fake_send_bytes(int fd, const void *bytes, size_t size)
{
    return fake_send_packet(fd, bytes, size, -1);
}

bool fake_reply(int fd, const F8__Reply *reply, int memfd)
{
    static _Thread_local uint8_t packet[F8_PROTO_MAX_PACKET];
    must(f8__reply__get_packed_size(reply) <= sizeof(packet), "a reply is too long");
    return fake_send_packet(fd, packet, f8__reply__pack(reply, packet), memfd);
}

bool fake_reply_status(int fd, uint64_t id, int status, const char *text)
{
    F8__Reply reply = F8__REPLY__INIT;
    reply.id = id;
    reply.status = status;
    reply.text = (char *)(uintptr_t)text;
    return fake_reply(fd, &reply, -1);
}

static bool hello_naming(int fd, const char *capability)
{
    F8__Request *request = fake_receive(fd, NULL);
    if (!request)
        return false;
    must(request->body_case == F8__REQUEST__BODY_HELLO, "the first request is no Hello");
    F8__HelloReply hello = F8__HELLO_REPLY__INIT;
    hello.major = F8_PROTO_MAJOR;
    hello.minor = F8_PROTO_MINOR;
    hello.daemon_version = (char *)(uintptr_t) "0.0.0-fake";
    hello.credit = FAKE_CREDIT;
    hello.pid = FAKE_PID;
    char *capabilities[] = {(char *)(uintptr_t)capability};
    hello.capabilities = capabilities;
    hello.n_capabilities = capability ? 1 : 0;
    F8__Reply reply = F8__REPLY__INIT;
    reply.id = request->id;
    reply.body_case = F8__REPLY__BODY_HELLO;
    reply.hello = &hello;
    fake_free(request);
    return fake_reply(fd, &reply, -1);
}

bool fake_hello(int fd)
{
    return hello_naming(fd, NULL);
}

/* The bodies that a reply of the willing daemon may have. */
struct bodies {
    F8__RegionReply region;
    F8__JoinReply join;
    F8__SealReply seal;
    F8__GatherReply gather;
    F8__PingReply ping;
    F8__ExportReply export;
};

/* The number of a group by its name; a new name gets the next one. */
static uint32_t number_of(struct fake_daemon *daemon, const char *name)
{
    for (uint32_t i = 0; i < FAKE_GROUPS; i++) {
        struct fake_group *group = &daemon->groups[i];
        if (group->name[0] == '\0')
            snprintf(group->name, sizeof(group->name), "%s", name);
        if (strcmp(group->name, name) == 0)
            return FAKE_GROUP + i;
    }
    must(false, "too many groups");
    return 0;
}

static struct fake_group *group_of(struct fake_daemon *daemon, uint32_t number)
{
    bool joined = number >= FAKE_GROUP && number < FAKE_GROUP + FAKE_GROUPS;
    must(joined || daemon->spoils, "no such group was joined");
    if (!joined)
        return &daemon->groups[0]; /* the reply to the join was spoiled */
    return &daemon->groups[number - FAKE_GROUP];
}

static int fill_seal(struct fake_daemon *daemon, const F8__Seal *request, F8__SealReply *seal)
{
    int arena = group_of(daemon, request->group)->buckets > 0 ? daemon->arena : -1;
    seal->syncs = daemon->syncs;
    seal->arena_size = arena >= 0 ? (uint64_t)lseek(arena, 0, SEEK_END) : 0;
    return arena;
}

static int fill_export(const struct fake_daemon *daemon, F8__ExportReply *export)
{
    int memfd = daemon->export_memfd;
    int64_t size = daemon->export_size;
    export->size = (uint64_t)(size < 0 && memfd >= 0 ? lseek(memfd, 0, SEEK_END) : size);
    return memfd;
}

/* Gives the reply its body; returns the descriptor that goes with it. */
static int fill_body(
    struct fake_daemon *daemon, const F8__Request *request, F8__Reply *reply, struct bodies *bodies)
{
    switch (request->body_case) {
    case F8__REQUEST__BODY_REGION_ADD:
        bodies->region.region = (uint32_t)daemon->counts[F8__REQUEST__BODY_REGION_ADD];
        reply->body_case = F8__REPLY__BODY_REGION;
        reply->region = &bodies->region;
        break;
    case F8__REQUEST__BODY_JOIN:
        bodies->join.group = number_of(daemon, request->join->group);
        bodies->join.generation = (uint64_t)daemon->generation++;
        reply->body_case = F8__REPLY__BODY_JOIN;
        reply->join = &bodies->join;
        break;
    case F8__REQUEST__BODY_SEAL:
        reply->body_case = F8__REPLY__BODY_SEAL;
        reply->seal = &bodies->seal;
        return fill_seal(daemon, request->seal, &bodies->seal);
    case F8__REQUEST__BODY_GATHER:
        bodies->gather.offset = daemon->offset;
        bodies->gather.use = ++daemon->use;
        bodies->gather.done = daemon->done;
        reply->body_case = F8__REPLY__BODY_GATHER;
        reply->gather = &bodies->gather;
        break;
    case F8__REQUEST__BODY_EXPORT:
        reply->body_case = F8__REPLY__BODY_EXPORT;
        reply->export = &bodies->export;
        return fill_export(daemon, &bodies->export);
    case F8__REQUEST__BODY_PING:
        bodies->ping.uptime_ms = request->id;
        reply->body_case = F8__REPLY__BODY_PING;
        reply->ping = &bodies->ping;
        break;
    default:
        break;
    }
    return -1;
}

size_t fake_pack_answer(
    struct fake_daemon *daemon, const F8__Request *request, uint8_t *packet, int *ret_memfd)
{
    struct bodies bodies = {F8__REGION_REPLY__INIT, F8__JOIN_REPLY__INIT, F8__SEAL_REPLY__INIT,
        F8__GATHER_REPLY__INIT, F8__PING_REPLY__INIT, F8__EXPORT_REPLY__INIT};
    F8__Reply reply = F8__REPLY__INIT;
    reply.id = request->id;
    *ret_memfd = fill_body(daemon, request, &reply, &bodies);
    return f8__reply__pack(&reply, packet);
}

static void answer(struct fake_daemon *daemon, int fd, const F8__Request *request)
{
    static _Thread_local uint8_t packet[F8_PROTO_MAX_PACKET];
    int memfd;
    if (daemon->fail_body == (int)request->body_case) {
        fake_reply_status(fd, request->id, daemon->fail_status, "refused by the test");
        return;
    }
    size_t size = fake_pack_answer(daemon, request, packet, &memfd);
    fake_send_packet(fd, packet, size, memfd);
}

static void note_register(struct fake_daemon *daemon, const F8__Register *lists)
{
    daemon->more += lists->more;
    daemon->weights += (int)lists->n_weights;
    daemon->group = lists->group;
    group_of(daemon, lists->group)->buckets += (uint32_t)lists->n_buckets;
    for (size_t i = 0; i < lists->n_weights && i < FAKE_WEIGHTS; i++)
        daemon->amax_groups[i] = lists->weights[i]->amax_group;
}

static void note_seal(struct fake_daemon *daemon, const F8__Seal *seal, int memfd)
{
    daemon->group = seal->group;
    daemon->seal_state = seal->state;
    daemon->seal_syncs = seal->syncs;
    int before = daemon->seal_memfd;
    if (before >= 0)
        close(before);
    daemon->seal_memfd = memfd;
}

void fake_note(struct fake_daemon *daemon, const F8__Request *request, int memfd)
{
    switch (request->body_case) {
    case F8__REQUEST__BODY_REGISTER:
        note_register(daemon, request->register_);
        break;
    case F8__REQUEST__BODY_SEAL:
        note_seal(daemon, request->seal, memfd);
        memfd = -1;
        break;
    case F8__REQUEST__BODY_GATHER:
        daemon->group = request->gather->group;
        break;
    case F8__REQUEST__BODY_PRECOMPUTE:
    case F8__REQUEST__BODY_SYNC:
    case F8__REQUEST__BODY_INVALIDATE:
        daemon->group = request->precompute->group;
        break;
    case F8__REQUEST__BODY_EXPORT:
        daemon->group = request->export->group;
        break;
    default:
        break;
    }
    if (memfd >= 0)
        close(memfd);
    daemon->counts[request->body_case]++;
}

/* Takes one request: answers it, or puts it aside until fake_go. False at the end. */
static bool serve_once(
    struct fake_daemon *daemon, int fd, F8__Request **withheld, int *num_withheld)
{
    int memfd = -1;
    F8__Request *request = fake_receive(fd, &memfd);
    if (!request)
        return false;
    fake_note(daemon, request, memfd);
    if (request->body_case != F8__REQUEST__BODY_RELEASE &&
        daemon->withhold == (int)request->body_case) {
        must(*num_withheld < FAKE_WITHHELD, "too many requests withheld");
        withheld[(*num_withheld)++] = request;
        return true;
    }
    if (request->body_case != F8__REQUEST__BODY_RELEASE)
        answer(daemon, fd, request);
    fake_free(request);
    return true;
}

void fake_serve(struct fake_daemon *daemon, int fd)
{
    F8__Request *withheld[FAKE_WITHHELD];
    int num_withheld = 0;
    bool more = hello_naming(fd, daemon->capability);
    while (more) {
        struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = daemon->go, .events = POLLIN}};
        must(poll(fds, 2, -1) > 0, "poll");
        if (fds[0].revents) {
            more = serve_once(daemon, fd, withheld, &num_withheld);
        } else {
            fake_await_go(daemon);
            while (num_withheld > 0) {
                answer(daemon, fd, withheld[--num_withheld]);
                fake_free(withheld[num_withheld]);
            }
        }
    }
    while (num_withheld > 0)
        fake_free(withheld[--num_withheld]);
}
