/* SPDX-License-Identifier: Apache-2.0 */
/* Playing a script to sessions: see session_fuzz.h. */
#include "tests/fuzz/session_fuzz.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/world.h"
#include "daemon/session.h"
#include "daemon/unpack.h"
#include "protocol.h"
#include "tests/fuzz/turn_backend.h"
#include "tests/lib/device_backend.h"

#define REGION_SIZE 16384

/* A client that sends what the script says. */
struct player {
    struct session *session; /* owned */
    uint64_t owed;           /* requests that want a reply */
};

struct stage {
    uv_loop_t loop;
    struct config config;
    char directory[32]; /* of states, which live as long as their groups */
    struct session_context context;
    struct unpack unpack;
    struct player players[FUZZ_CLIENTS];
    int fds[FUZZ_FDS][2]; /* owned: for each of fuzz_fds */
};

static const struct config config = {
    .max_connections = 16,
    .max_jobs = 3,
    .max_groups = 3,
    .max_regions = 4,
    .max_weights = 64,
    .max_ranks = 4,
    .credit = 64,
    .max_rounds = 4,
    .memory_per_uid = 1 << 20,
    .deadline_ms = 600000,
    .slow_ms = 600000,
    .max_states = 2,
    .socket_ifname = "lo",
    .world_deadline_ms = 600000,
    .heartbeat_ms = 60000,
    .host_timeout_ms = 600000,
    .max_worlds = 2,
};

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "session fuzz: %s\n", what);
    abort();
}

static void take_reply(void *conn, const F8__Reply *reply, int fd)
{
    struct player *player = conn;
    static uint8_t packet[1 << 20];
    check(player->session != NULL, "a reply to a session that has ended");
    check(player->owed > 0, "a reply that nobody asked for");
    player->owed--;
    check(f8__reply__get_packed_size(reply) <= sizeof(packet), "a reply without end");
    (void)f8__reply__pack(reply, packet); /* reads every byte of it */
    check(fd < 0 || fcntl(fd, F_GETFD) >= 0, "a reply with a closed descriptor");
    check(reply->status <= 0, "a reply with a status that is none");
    check(reply->status == 0 || reply->text[0] != '\0', "a refusal without a word");
}

static const struct session_link link_to_player = {.send = take_reply};

/* A daemon that goes on, whatever operators ask. */
static void ignore_drain(void *owner, const char *who)
{
    (void)owner;
    check(who[0] != '\0', "a drain by nobody");
}

static int refuse_cancel(void *owner, const char *who, struct reason *reason)
{
    (void)owner;
    (void)who;
    return reason_set(reason, F8_EORDER, "there is no drain");
}

static const struct session_end end_of_nothing = {.drain = ignore_drain, .cancel = refuse_cancel};

static int region_fd(void)
{
    int fd = memfd_create("f8-fuzz-region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    check(fd >= 0 && ftruncate(fd, REGION_SIZE) == 0, "no memfd");
    check(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0, "no seal");
    return fd;
}

static void open_player(struct stage *stage, unsigned index)
{
    struct session_peer peer = {.uid = 1000, .pid = 100 + index, .admin = index == 2};
    struct player *player = &stage->players[index];
    player->owed = 0;
    player->session = session_new(&stage->context, &peer, player);
    check(player->session != NULL, "out of memory");
}

static void close_player(struct player *player, bool died)
{
    struct session *session = player->session;
    player->session = NULL;
    session_free(session, died);
}

static void open_states(struct stage *stage)
{
    struct reason reason;
    (void)strcpy(stage->directory, "/tmp/f8fuzz-XXXXXX");
    check(mkdtemp(stage->directory) != NULL, "no directory");
    (void)snprintf(stage->config.socket, sizeof(stage->config.socket), "%s/s", stage->directory);
    check(state_store_open(
              &stage->loop, &stage->config, &stage->context.collective.states, &reason) == 0,
        "no store");
    check(state_saver_new(&stage->loop, &stage->config, stage->context.collective.states,
              STATE_SAVER_PATIENCE_MS, &stage->context.saver, &reason) == 0,
        "no saver");
}

static void close_states(struct stage *stage)
{
    state_saver_close(stage->context.saver);
    state_store_close(stage->context.collective.states);
    (void)uv_run(&stage->loop, UV_RUN_DEFAULT);
    check(rmdir(stage->directory) == 0, "a state is left");
}

static void open_stage(struct stage *stage)
{
    memset(stage, 0, sizeof(*stage));
    log_set_level(LOG_LEVEL_ERROR);
    stage->config = config;
    check(uv_loop_init(&stage->loop) == 0, "no loop");
    check(unpack_init(&stage->unpack) == 0, "out of memory");
    stage->context.link = &link_to_player;
    stage->context.end = &end_of_nothing;
    stage->context.registry = registry_new(&stage->config);
    stage->context.collective = (struct collective_context){.loop = &stage->loop,
        .backend = turn_backend_new(),
        .cuda = device_backend_new(NULL, 2),
        .config = &stage->config,
        .listener = &session_listener};
    check(worlds_new(&stage->loop, &stage->config, &stage->context.collective.worlds) == 0,
        "no worlds");
    check(events_new(&stage->loop, &stage->context.collective.events) == 0, "no events");
    device_backend_shuffle(stage->context.collective.cuda, 5);
    open_states(stage);
    for (unsigned p = 0; p < FUZZ_CLIENTS; p++)
        open_player(stage, p);
    stage->fds[FUZZ_REGION][0] = stage->fds[FUZZ_TWO_REGIONS][0] = region_fd();
    stage->fds[FUZZ_TWO_REGIONS][1] = stage->fds[FUZZ_REGION][0];
    check(pipe2(stage->fds[FUZZ_PIPE], O_CLOEXEC) == 0, "no pipe");
}

static void turn(struct stage *stage)
{
    (void)turn_backend_turn(stage->context.collective.backend);
    (void)device_backend_turn(stage->context.collective.cuda);
    (void)uv_run(&stage->loop, UV_RUN_NOWAIT);
}

static void drain(struct stage *stage)
{
    struct collective_context *collective = &stage->context.collective;
    bool any;
    do {
        any = turn_backend_turn(collective->backend);
        any = device_backend_turn(collective->cuda) || any;
    } while (any);
    (void)uv_run(&stage->loop, UV_RUN_NOWAIT);
}

/* All sessions end; then nothing may be left. */
static void close_stage(struct stage *stage)
{
    struct registry_totals totals;
    for (unsigned p = 0; p < FUZZ_CLIENTS; p++)
        close_player(&stage->players[p], p % 2);
    worlds_close(stage->context.collective.worlds);
    events_close(stage->context.collective.events);
    drain(stage);
    (void)uv_run(&stage->loop, UV_RUN_DEFAULT); /* hangs if a timer is left */
    registry_count(stage->context.registry, &totals);
    check(!registry_jobs(stage->context.registry) && totals.jobs == 0, "a job is left");
    check(totals.groups == 0 && totals.weights == 0, "a group is left");
    check(totals.region_bytes == 0 && totals.arena_bytes == 0, "a charge is left");
    check(stage->context.connections == 0, "a connection is left");
    backend_free(stage->context.collective.backend);
    backend_free(stage->context.collective.cuda);
    registry_free(stage->context.registry);
    worlds_free(stage->context.collective.worlds);
    events_free(stage->context.collective.events);
    close_states(stage);
    unpack_done(&stage->unpack);
    check(uv_loop_close(&stage->loop) == 0, "a handle is left");
    (void)close(stage->fds[FUZZ_REGION][0]);
    (void)close(stage->fds[FUZZ_PIPE][0]);
    (void)close(stage->fds[FUZZ_PIPE][1]);
}

/* As conn does it: what cannot be unpacked ends the connection. */
static void serve(struct stage *stage, uint8_t detail, const uint8_t *packet, size_t size)
{
    static const uint32_t num_fds[] = {0, 1, 2, 1};
    unsigned index = detail % FUZZ_CLIENTS, fds = detail / FUZZ_CLIENTS % FUZZ_FDS;
    struct player *player = &stage->players[index];
    F8__Request *request = f8__request__unpack(&stage->unpack.allocator, size, packet);
    if (request) {
        player->owed++;
        if (!session_handle(player->session, request, stage->fds[fds], num_fds[fds]))
            player->owed--;
    }
    unpack_reset(&stage->unpack);
    if (request)
        return;
    close_player(player, false);
    open_player(stage, index);
}

static void replace(struct stage *stage, unsigned index, bool died)
{
    close_player(&stage->players[index], died);
    open_player(stage, index);
}

static void step(
    struct stage *stage, uint8_t op, uint8_t detail, const uint8_t *packet, size_t size)
{
    switch ((enum fuzz_op)(op % FUZZ_OPS)) {
    case FUZZ_SEND:
        serve(stage, detail, packet, size);
        break;
    case FUZZ_TURN:
        turn(stage);
        break;
    case FUZZ_DIE:
    case FUZZ_LEAVE:
        replace(stage, detail % FUZZ_CLIENTS, op % FUZZ_OPS == FUZZ_DIE);
        break;
    case FUZZ_DRAIN:
    case FUZZ_OPS:
        drain(stage);
        break;
    }
}

uint64_t fuzz_play(const uint8_t *script, size_t size)
{
    struct stage stage;
    open_stage(&stage);
    for (size_t at = 0; at + FUZZ_HEAD <= size;) {
        const uint8_t *head = script + at;
        size_t length = head[2] | (size_t)head[3] << 8;
        at += FUZZ_HEAD;
        if (length > size - at)
            length = size - at;
        step(&stage, head[0], head[1], script + at, length);
        at += length;
    }
    drain(&stage);
    uint64_t gathers = stage.context.collective.gathers;
    close_stage(&stage);
    return gathers;
}
