/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's rooms without a socket: see rooms.h. */
#include "tests/lib/rooms.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/world.h"
#include "protocol.h"
#include "tests/lib/device_backend.h"
#include "tests/lib/loop_turn.h"

#define REGION_NAME "f8-rooms-region"

/* Downward from session: keeps the reply, as its bytes say it. */
static void keep_reply(void *conn, const F8__Reply *reply, int fd)
{
    static uint8_t packet[F8_PROTO_MAX_PACKET];
    struct client *client = conn;
    ck_assert_ptr_nonnull(client->session);
    ck_assert_uint_gt(client->owed, 0);
    ck_assert_uint_lt(client->num_replies, ROOMS_REPLIES);
    ck_assert_uint_le(f8__reply__get_packed_size(reply), sizeof(packet));
    ck_assert_ptr_null(client_reply(client, reply->id));
    size_t size = f8__reply__pack(reply, packet);
    F8__Reply *copy = f8__reply__unpack(NULL, size, packet);
    ck_assert_ptr_nonnull(copy);
    client->replies[client->num_replies++] = copy;
    client->owed--;
    if (copy->body_case == F8__REPLY__BODY_JOIN) {
        client->group = copy->join->group;
        client->generation = copy->join->generation;
    }
    if (fd < 0)
        return;
    if (client->arena >= 0)
        (void)close(client->arena);
    client->arena = fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static const struct session_link link_to_client = {.send = keep_reply};

static const struct config small = {
    .log_level = LOG_LEVEL_ERROR,
    .threads = 2,
    .max_connections = 16,
    .max_jobs = 4,
    .max_groups = 64,
    .max_regions = 4,
    .max_weights = 4096,
    .max_ranks = 8,
    .credit = 64,
    .max_rounds = 8,
    .memory_per_uid = (uint64_t)64 << 20,
    .deadline_ms = 600000,
    .slow_ms = 600000,
    .max_states = 16,
    .socket_ifname = "lo",
    .world_deadline_ms = 600000,
    .heartbeat_ms = 1000,
    .host_timeout_ms = 10000,
    .max_worlds = 4,
};

/* States live as long as their groups here (linger_ms is 0). */
static int open_states(struct rooms *rooms)
{
    struct reason reason;
    (void)strcpy(rooms->directory, "/tmp/f8rooms-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(rooms->directory));
    (void)snprintf(rooms->config.socket, sizeof(rooms->config.socket), "%s/s", rooms->directory);
    struct session_context *context = &rooms->context;
    struct state_store **states = &context->collective.states;
    int status = state_store_open(&rooms->loop, &rooms->config, states, &reason);
    return status < 0 ? status
                      : state_saver_new(&rooms->loop, &rooms->config, *states,
                            STATE_SAVER_PATIENCE_MS, &context->saver, &reason);
}

static void close_all(struct rooms *rooms)
{
    registry_free(rooms->context.registry);
    backend_free(rooms->backend);
    backend_free(rooms->cuda);
    state_saver_close(rooms->context.saver);
    state_store_close(rooms->context.collective.states);
    rooms_settle(rooms);
    worlds_free(rooms->context.collective.worlds);
    events_free(rooms->context.collective.events);
    ck_assert_int_eq(uv_loop_close(&rooms->loop), 0);
    ck_assert_int_eq(rmdir(rooms->directory), 0);
}

int rooms_try_open(struct rooms *rooms)
{
    log_set_level(LOG_LEVEL_ERROR);
    rooms->config = small;
    rooms->cuda = NULL;
    rooms->num_devices = 0;
    ck_assert_int_eq(uv_loop_init(&rooms->loop), 0);
    rooms->context = (struct session_context){.link = &link_to_client};
    int status = backend_host_new(&rooms->loop, small.threads, &rooms->backend);
    if (status < 0) {
        ck_assert_int_eq(uv_loop_close(&rooms->loop), 0);
        return status;
    }
    rooms->context.collective = (struct collective_context){.loop = &rooms->loop,
        .backend = rooms->backend,
        .config = &rooms->config,
        .listener = &session_listener};
    rooms->context.registry = registry_new(&rooms->config);
    if (open_states(rooms) == F8_OK && rooms->context.registry &&
        worlds_new(&rooms->loop, &rooms->config, &rooms->context.collective.worlds) == F8_OK &&
        events_new(&rooms->loop, &rooms->context.collective.events) == F8_OK)
        return F8_OK;
    close_all(rooms);
    return F8_ENOMEM;
}

void rooms_open(struct rooms *rooms)
{
    ck_assert_int_eq(rooms_try_open(rooms), F8_OK);
}

void rooms_open_on(struct rooms *rooms, uint32_t num_devices)
{
    rooms_open(rooms);
    if (num_devices > 0)
        rooms_add_devices(rooms, num_devices);
}

void rooms_add_devices(struct rooms *rooms, uint32_t num_devices)
{
    rooms->num_devices = num_devices;
    rooms->cuda = device_backend_new(&rooms->loop, num_devices);
    ck_assert_ptr_nonnull(rooms->cuda);
    rooms->context.collective.cuda = rooms->cuda;
}

void rooms_synchronise(struct rooms *rooms)
{
    if (rooms->cuda)
        device_backend_synchronise(rooms->cuda);
}

void rooms_land(struct rooms *rooms)
{
    while (rooms->cuda && device_backend_turn(rooms->cuda))
        ;
}

void rooms_settle(struct rooms *rooms)
{
    (void)uv_run(&rooms->loop, UV_RUN_DEFAULT);
}

/* Regions of clients, and arenas. */
static int count_mappings(void)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof(line), maps))
        count += strstr(line, "memfd:" REGION_NAME) || strstr(line, "memfd:f8gather-arena");
    (void)fclose(maps);
    return count;
}

void rooms_close(struct rooms *rooms)
{
    struct registry_totals totals;
    worlds_close(rooms->context.collective.worlds);
    events_close(rooms->context.collective.events);
    rooms_settle(rooms);
    ck_assert_uint_eq(rooms->context.connections, 0);
    ck_assert_ptr_null(registry_jobs(rooms->context.registry));
    registry_count(rooms->context.registry, &totals);
    ck_assert_uint_eq(totals.jobs + totals.groups, 0);
    ck_assert_uint_eq(totals.region_bytes + totals.arena_bytes + totals.weights, 0);
    ck_assert_int_eq(count_mappings(), 0);
    close_all(rooms);
}

int client_try_open(struct client *client, struct rooms *rooms, uint32_t uid, uint32_t pid)
{
    struct session_peer peer = {.uid = uid, .pid = pid, .admin = uid == ROOMS_UID};
    memset(client, 0, sizeof(*client));
    client->rooms = rooms;
    client->arena = -1;
    client->session = session_new(&rooms->context, &peer, client);
    return client->session ? F8_OK : F8_ENOMEM;
}

void client_open(struct client *client, struct rooms *rooms, uint32_t pid)
{
    ck_assert_int_eq(client_try_open(client, rooms, ROOMS_UID, pid), F8_OK);
}

void client_forget(struct client *client)
{
    for (uint32_t i = 0; i < client->num_replies; i++)
        f8__reply__free_unpacked(client->replies[i], NULL);
    client->num_replies = 0;
}

void client_close(struct client *client, bool died)
{
    struct session *session = client->session;
    if (!session)
        return;
    client->session = NULL; /* from here on a reply is an error */
    session_free(session, died);
    client_forget(client);
    if (client->arena >= 0)
        (void)close(client->arena);
    client->arena = -1;
}

uint64_t client_send(struct client *client, F8__Request *request, const int *fds, uint32_t num_fds)
{
    bool wants_reply = request->body_case != F8__REQUEST__BODY_RELEASE;
    request->id = ++client->last_id;
    client->owed += wants_reply;
    ck_assert_int_eq(session_handle(client->session, request, fds, num_fds), wants_reply);
    return request->id;
}

const F8__Reply *client_reply(const struct client *client, uint64_t id)
{
    for (uint32_t i = 0; i < client->num_replies; i++)
        if (client->replies[i]->id == id)
            return client->replies[i];
    return NULL;
}

const F8__Reply *client_await(struct client *client, uint64_t id)
{
    const F8__Reply *reply;
    while (!(reply = client_reply(client, id))) {
        int alive = loop_turn(&client->rooms->loop);
        ck_assert_msg(alive || client_reply(client, id), "request %d is not answered", (int)id);
    }
    return reply;
}

int client_status(struct client *client, uint64_t id)
{
    return client_await(client, id)->status;
}

void client_ok(struct client *client, uint64_t id)
{
    const F8__Reply *reply = client_await(client, id);
    ck_assert_msg(reply->status == F8_OK, "status %d (%s)", reply->status, reply->text);
}

void client_refused(struct client *client, uint64_t id, int status, const char *part)
{
    const F8__Reply *reply = client_await(client, id);
    ck_assert_msg(reply->status == status, "status %d (%s)", reply->status, reply->text);
    ck_assert_msg(strstr(reply->text, part), "\"%s\" lacks \"%s\"", reply->text, part);
    ck_assert_int_eq(reply->body_case, F8__REPLY__BODY__NOT_SET);
}

int make_memfd(uint64_t size)
{
    int fd = memfd_create(REGION_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}

int client_enter(struct client *client, const char *job, const char *group, uint32_t rank,
    uint32_t world_size, uint64_t region_size)
{
    int fd = make_memfd(region_size);
    uint32_t num_devices = client->rooms->num_devices;
    ck_assert_int_eq(client_status(client, ask_hello(client, job)), F8_OK);
    if (num_devices > 0)
        ck_assert_int_eq(
            client_status(client, ask_device(client, rank % num_devices, ROOMS_EVENTS)), F8_OK);
    uint64_t id =
        num_devices > 0 ? ask_device_region(client, fd, region_size) : ask_region(client, fd);
    ck_assert_int_eq(client_status(client, id), F8_OK);
    ck_assert_int_eq(client_status(client, ask_join(client, group, rank, world_size)), F8_OK);
    return fd;
}
