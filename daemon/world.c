/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All worlds of the daemon, and a host's part in each: it reaches the root, proves the token, says
 * which ranks it has, and then sends and hears over that one connection. See world.h. On the loop.
 */
#include "daemon/world_private.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define RETRY_FIRST_MS 50
#define RETRY_MOST_MS  2000

static const struct world_link_listener of_root;

static void try_again_later(struct world *world, const struct reason *why);

/* ---- all worlds ---- */

int worlds_new(uv_loop_t *loop, const struct config *config, struct worlds **ret_worlds)
{
    struct worlds *worlds = calloc(1, sizeof(*worlds));
    if (!worlds)
        return F8_ENOMEM;
    if (world_random(&worlds->daemon, sizeof(worlds->daemon)) < 0) {
        free(worlds);
        return F8_EIO;
    }
    worlds->loop = loop;
    worlds->config = config;
    *ret_worlds = worlds;
    return F8_OK;
}

void worlds_close(struct worlds *worlds)
{
    if (!worlds)
        return;
    worlds->closing = true;
    world_roots_review(worlds);
}

void worlds_free(struct worlds *worlds)
{
    if (!worlds)
        return;
    assert(!worlds->roots && !worlds->list);
    free(worlds);
}

bool world_is_here(const struct worlds *worlds, uint64_t number)
{
    for (const struct world *world = worlds->list; world; world = world->next)
        if (world->id.number == number)
            return true;
    return false;
}

/* ---- its end ---- */

static void free_world(struct world *world)
{
    struct worlds *worlds = world->worlds;
    struct world **place = &worlds->list;
    while (*place != world)
        place = &(*place)->next;
    *place = world->next;
    free(world->group);
    free(world->ranks);
    free(world->hosts);
    free(world->of_hosts);
    free(world);
    world_roots_review(worlds);
}

static void on_closed(uv_handle_t *handle)
{
    struct world *world = handle->data;
    if (--world->handles == 0)
        free_world(world);
}

void world_end(struct world *world, int status, const struct reason *reason)
{
    if (world->left || world->state == WORLD_ENDED)
        return;
    world->state = WORLD_ENDED;
    (void)uv_timer_stop(&world->deadline);
    (void)uv_timer_stop(&world->retry);
    if (world->link)
        world_link_close(world->link, NULL);
    world->link = NULL;
    world->listener->ended(world, status, reason);
}

static struct world_frame *goodbye_frame(void)
{
    F8__WorldGoodbye goodbye = F8__WORLD_GOODBYE__INIT;
    F8__WorldMessage message = F8__WORLD_MESSAGE__INIT;
    message.body_case = F8__WORLD_MESSAGE__BODY_GOODBYE;
    message.goodbye = &goodbye;
    return world_frame_message(&message);
}

void world_leave(struct world *world)
{
    if (!world)
        return;
    assert(!world->left);
    world->left = true;
    if (world->link)
        world_link_close(world->link, goodbye_frame());
    world->link = NULL;
    uv_close((uv_handle_t *)&world->deadline, on_closed);
    uv_close((uv_handle_t *)&world->retry, on_closed);
}

/* ---- reaching the root ---- */

static void attempt(struct world *world)
{
    struct reason reason;
    struct world_link_options options = {
        .listener = &of_root, .owner = world, .id = &world->id, .traffic = &world->traffic};
    world->attempts++;
    if (world_link_connect(
            world->worlds, world->bound ? &world->from : NULL, &options, &world->link, &reason) < 0)
        try_again_later(world, &reason);
}

static void on_retry(uv_timer_t *timer)
{
    attempt(timer->data);
}

/* Twice as long each time, and not all hosts at once. */
static void try_again_later(struct world *world, const struct reason *why)
{
    uint64_t delay = RETRY_MOST_MS;
    uint32_t random = 0;
    (void)world_random(&random, sizeof(random));
    if (world->attempts < 6)
        delay = (uint64_t)RETRY_FIRST_MS << world->attempts;
    world->last = *why;
    (void)uv_timer_start(&world->retry, on_retry, delay / 2 + random % (delay / 2), 0);
}

static void on_deadline(uv_timer_t *timer)
{
    struct world *world = timer->data;
    struct reason reason;
    double seconds = (double)((uv_now(world->worlds->loop) - world->began_ms + 50) / 100) / 10;
    if (world->state == WORLD_REACHING)
        (void)reason_set(&reason, F8_EDEADLINE,
            "group %.120s: its root at %s was not reached in %g s and %u attempts: %.200s",
            world->group, world->root_address, seconds, world->attempts,
            world->last.text[0] ? world->last.text : "it did not answer");
    else
        (void)reason_set(&reason, F8_EDEADLINE,
            "group %.120s: its root at %s did not say within %g s that all ranks are there",
            world->group, world->root_address, seconds);
    world_end(world, F8_EDEADLINE, &reason);
}

void world_lose_root(struct world *world, const char *why)
{
    struct reason reason;
    if (world->state == WORLD_FORMED && world->root < world->num_hosts) {
        struct world_host *root = &world->hosts[world->root];
        root->lost = true;
        (void)reason_set(&reason, F8_ECONN, "group %.120s: its root host %s (%s) is lost: %.200s",
            world->group, root->name, root->address, why);
    } else
        (void)reason_set(&reason, F8_ECONN, "group %.120s: its root at %s is lost: %.200s",
            world->group, world->root_address, why);
    world_end(world, F8_ECONN, &reason);
}

/* What a refused connection means too: the root has said an address that this host has as well, as
 * that of the loopback or of a bridge. No new id helps then. */
static void name_own_address(const struct world *world, struct reason *reason)
{
    char address[WORLD_ADDRESS_SIZE], interface[WORLD_INTERFACE_SIZE];
    world_interface_of(&world->id.address, interface);
    if (interface[0] == '\0')
        return;
    world_address_text(&world->id.address, false, address);
    reason_append(reason,
        "; or, if the root is on another host: %s is an address of this host itself, of %s: start "
        "the root's daemon with --socket-ifname and an interface that all hosts reach",
        address, interface);
}

static void on_lost(struct world_link *link, int status, const struct reason *why)
{
    struct world *world = world_link_owner(link);
    struct reason reason;
    world->link = NULL;
    if (world->state != WORLD_REACHING) {
        world_lose_root(world, why->text);
    } else if (status == F8_ECONN || status == F8_EDEADLINE || status == F8_ENOMEM) {
        try_again_later(world, why);
    } else {
        (void)reason_set(&reason, status, "group %.120s: its root at %s cannot be joined: %.300s",
            world->group, world->root_address, why->text);
        if (status == F8_ENOENT)
            name_own_address(world, &reason);
        world_end(world, status == F8_ENOENT ? F8_ECONN : status, &reason);
    }
}

/* ---- joining ---- */

void world_own_name(const struct config *config, char name[65])
{
    char host[65] = "";
    if (config->host_name[0] == '\0' && gethostname(host, sizeof(host) - 1) < 0)
        host[0] = '\0';
    world_clean_name(config->host_name[0] ? config->host_name : host, name);
}

static struct world_frame *join_frame(const struct world *world)
{
    F8__WorldJoin join = F8__WORLD_JOIN__INIT;
    F8__WorldMessage message = F8__WORLD_MESSAGE__INIT;
    char name[65];
    uint32_t *numbers = calloc(world->num_ranks, 2 * sizeof(*numbers));
    if (!numbers)
        return NULL;
    world_own_name(world->worlds->config, name);
    for (uint32_t i = 0; i < world->num_ranks; i++) {
        numbers[i] = world->ranks[i].rank;
        numbers[world->num_ranks + i] = world->ranks[i].pid;
    }
    uint64_t passed = uv_now(world->worlds->loop) - world->began_ms;
    join.major = WORLD_MAJOR;
    join.version = F8_VERSION;
    join.group = world->group;
    join.world_size = world->world_size;
    join.name = name;
    join.n_ranks = join.n_pids = world->num_ranks;
    join.ranks = numbers;
    join.pids = numbers + world->num_ranks;
    join.deadline_ms = passed < world->deadline_ms ? world->deadline_ms - passed : 0;
    join.daemon = world->worlds->daemon;
    message.body_case = F8__WORLD_MESSAGE__BODY_JOIN;
    message.join = &join;
    struct world_frame *frame = world_frame_message(&message);
    free(numbers);
    return frame;
}

/* Where engines listen: what the configuration chose, or else the way that the kernel took. */
static void note_address(struct world *world, const struct world_link *link)
{
    struct sockaddr_storage address = world->from;
    if (!world->bound && world_link_address(link, true, &address) < 0)
        return;
    world_address_text(&address, false, world->address);
    world_interface_of(&address, world->interface);
}

static void on_proved(struct world_link *link)
{
    struct world *world = world_link_owner(link);
    struct world_frame *frame = join_frame(world);
    world->state = WORLD_JOINED;
    note_address(world, link);
    world_link_settle(link);
    world_link_send(link, frame);
    world_frame_drop(frame);
    /* The root knows who is missing, and says so; but not for ever. */
    uint64_t passed = uv_now(world->worlds->loop) - world->began_ms;
    uint64_t remains = passed < world->deadline_ms ? world->deadline_ms - passed : 0;
    (void)uv_timer_start(
        &world->deadline, on_deadline, remains + world->worlds->config->host_timeout_ms, 0);
}

static void on_drained(struct world_link *link)
{
    (void)link;
}

static void on_tick(struct world_link *link)
{
    F8__WorldHeartbeat heartbeat = F8__WORLD_HEARTBEAT__INIT;
    F8__WorldMessage message = F8__WORLD_MESSAGE__INIT;
    message.body_case = F8__WORLD_MESSAGE__BODY_HEARTBEAT;
    message.heartbeat = &heartbeat;
    struct world_frame *frame = world_frame_message(&message);
    world_link_send(link, frame);
    world_frame_drop(frame);
}

static const struct world_link_listener of_root = {
    .proved = on_proved,
    .message = world_hear,
    .data = world_receive,
    .drained = on_drained,
    .tick = on_tick,
    .lost = on_lost,
};

/* ---- its beginning ---- */

/* Where connections come from, if that is configured. */
static int choose_interface(struct world *world, struct reason *reason)
{
    const struct config *config = world->worlds->config;
    struct world_interface chosen;
    int status = world_interface_family(config, &world->id.address, reason);
    world->bound = config->socket_ifname[0] != '\0';
    if (status < 0 || !world->bound)
        return status;
    status = world_interface_choose(config, world->id.address.ss_family, &chosen, reason);
    if (status < 0)
        return status;
    world->from = chosen.address;
    return F8_OK;
}

static int take_part(struct world *world, const struct world_part *part, struct reason *reason)
{
    world->group = strdup(part->group);
    world->ranks = malloc(part->num_ranks * sizeof(*world->ranks));
    if (!world->group || !world->ranks)
        return reason_set(reason, F8_ENOMEM, "out of memory for a world");
    memcpy(world->ranks, part->ranks, part->num_ranks * sizeof(*world->ranks));
    world->world_size = part->world_size;
    world->num_ranks = part->num_ranks;
    world->deadline_ms = part->deadline_ms;
    world->listener = part->listener;
    world->owner = part->owner;
    int status = world_id_unpack(part->id, &world->id, reason);
    if (status == F8_OK)
        status = choose_interface(world, reason);
    if (status == F8_OK)
        world_address_text(&world->id.address, true, world->root_address);
    return status;
}

int world_join(struct worlds *worlds, const struct world_part *part, struct world **ret_world,
    struct reason *reason)
{
    assert(part->num_ranks > 0);
    struct world *world = calloc(1, sizeof(*world));
    if (!world)
        return reason_set(reason, F8_ENOMEM, "out of memory for a world");
    world->worlds = worlds;
    int status = take_part(world, part, reason);
    if (status < 0) {
        free(world->group);
        free(world->ranks);
        free(world);
        return status;
    }
    (void)uv_timer_init(worlds->loop, &world->deadline);
    (void)uv_timer_init(worlds->loop, &world->retry);
    world->deadline.data = world->retry.data = world;
    world->handles = 2;
    world->began_ms = uv_now(worlds->loop);
    world->next = worlds->list;
    worlds->list = world;
    (void)uv_timer_start(&world->deadline, on_deadline, part->deadline_ms, 0);
    (void)uv_timer_start(&world->retry, on_retry, 0, 0);
    *ret_world = world;
    return F8_OK;
}

/* ---- what others ask ---- */

void *world_owner(const struct world *world)
{
    return world->owner;
}

const struct world_host *world_hosts(const struct world *world, uint32_t *ret_num_hosts)
{
    if (world->hosts)
        world->hosts[world->here].heard_ms = uv_now(world->worlds->loop);
    *ret_num_hosts = world->num_hosts;
    return world->hosts;
}

bool world_has_here(const struct world *world, uint32_t rank)
{
    for (uint32_t i = 0; i < world->num_ranks; i++)
        if (world->ranks[i].rank == rank)
            return true;
    return false;
}

uint32_t world_here(const struct world *world)
{
    return world->here;
}

uint32_t world_root(const struct world *world)
{
    return world->root;
}

void world_traffic(const struct world *world, uint64_t *ret_sent, uint64_t *ret_received)
{
    const struct world_root *root = world_root_find(world->worlds, world->id.number);
    const struct world_traffic *traffic = root ? &root->traffic : &world->traffic;
    *ret_sent = traffic->sent;
    *ret_received = traffic->received;
}

const char *world_interface(const struct world *world, const char **ret_address)
{
    *ret_address = world->address;
    return world->interface;
}

void world_send(struct world *world, const uint8_t *data, size_t size)
{
    assert(size <= WORLD_MAX_MESSAGE);
    if (world->state != WORLD_FORMED)
        return;
    struct world_frame *frame = world_frame_data(0, data, size);
    world_link_send(world->link, frame);
    world_frame_drop(frame);
}
