/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds that a test delivers the messages of: see fake_hosts.h. */
#include "daemon/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tests/lib/fake_private.h"

#define MEETINGS  64
#define WORLDS    256
#define MAX_RANKS 8

enum message_kind { MESSAGE_DATA, MESSAGE_GOODBYE, MESSAGE_FORMED, MESSAGE_LOST, MESSAGE_ENDED };

struct message {
    struct message *next;
    enum message_kind kind;
    uint32_t host; /* of whom */
    bool in_order;
    size_t size;
    uint8_t data[];
};

struct queue {
    struct message *first; /* owned list */
};

struct world {
    const struct world_listener *listener;
    void *owner;
    uint32_t meeting, process; /* which meeting; which host of the process */
    uint32_t here;             /* in the world */
    struct world_rank ranks[MAX_RANKS];
    uint32_t num_ranks, world_size;
    bool formed, left, ended;
    struct queue up, down;
    struct world_host table[FAKE_HOSTS];
};

struct meeting {
    uint32_t root; /* host of the process */
    uint32_t num_hosts;
    bool formed, over, root_lost;
    struct world *hosts[FAKE_HOSTS]; /* in the order of the world; freed at the next beginning */
    bool gone[FAKE_HOSTS];
};

static struct meeting meetings[MEETINGS];
static struct world *worlds[WORLDS];
static uint32_t num_worlds;

/* ---- queues ---- */

static void push(struct queue *queue, enum message_kind kind, uint32_t host, bool in_order,
    const uint8_t *data, size_t size)
{
    struct message *message = malloc(sizeof(*message) + size);
    struct message **link = &queue->first;
    if (!message)
        abort();
    *message = (struct message){.kind = kind, .host = host, .in_order = in_order, .size = size};
    if (size > 0)
        memcpy(message->data, data, size);
    while (*link)
        link = &(*link)->next;
    *link = message;
}

static struct message *pop(struct queue *queue)
{
    struct message *message = queue->first;
    queue->first = message->next;
    return message;
}

/* All but the first `keep`. */
static void cut(struct queue *queue, uint32_t keep)
{
    struct message **link = &queue->first;
    while (*link && keep-- > 0)
        link = &(*link)->next;
    while (*link) {
        struct message *message = *link;
        *link = message->next;
        free(message);
    }
}

static uint32_t length(const struct queue *queue)
{
    uint32_t count = 0;
    for (const struct message *message = queue->first; message; message = message->next)
        count++;
    return count;
}

/* ---- as daemon/world.h says ---- */

int worlds_new(uv_loop_t *loop, const struct config *config, struct worlds **ret_worlds)
{
    static char any;
    (void)loop;
    (void)config;
    *ret_worlds = (struct worlds *)(void *)&any;
    return F8_OK;
}

void worlds_close(struct worlds *closed)
{
    (void)closed;
}

void worlds_free(struct worlds *freed)
{
    (void)freed;
}

int world_unique_id(
    struct worlds *of, uint8_t ret_id[F8_PROTO_UNIQUE_ID_SIZE], struct reason *reason)
{
    (void)of;
    (void)ret_id;
    return reason_set(reason, F8_EIO, "ids are the test's");
}

int world_place(const struct config *config, struct world_place *ret, struct reason *reason)
{
    (void)config;
    (void)reason;
    *ret = (struct world_place){.interface = "lo", .address = "127.0.0.1"};
    return F8_OK;
}

static void form(uint32_t number)
{
    struct meeting *meeting = &meetings[number];
    uint32_t ranks = 0;
    for (uint32_t h = 0; h < meeting->num_hosts; h++)
        ranks += meeting->hosts[h]->num_ranks;
    if (ranks < meeting->hosts[0]->world_size)
        return;
    meeting->formed = true;
    for (uint32_t i = 0; i < meeting->num_hosts; i++) /* in the order of their lowest ranks */
        for (uint32_t j = i + 1; j < meeting->num_hosts; j++)
            if (meeting->hosts[j]->ranks[0].rank < meeting->hosts[i]->ranks[0].rank) {
                struct world *other = meeting->hosts[i];
                meeting->hosts[i] = meeting->hosts[j];
                meeting->hosts[j] = other;
            }
    for (uint32_t h = 0; h < meeting->num_hosts; h++) {
        struct world *world = meeting->hosts[h];
        world->here = h;
        for (uint32_t i = 0; i < meeting->num_hosts; i++) {
            world->table[i] = (struct world_host){
                .ranks = meeting->hosts[i]->ranks, .num_ranks = meeting->hosts[i]->num_ranks};
            (void)snprintf(world->table[i].name, sizeof(world->table[i].name), "host-%u",
                meeting->hosts[i]->process);
        }
        push(&world->down, MESSAGE_FORMED, h, false, NULL, 0);
    }
}

int world_check_id(const uint8_t id[F8_PROTO_UNIQUE_ID_SIZE], char ret_root[WORLD_ROOT_SIZE],
    struct reason *reason)
{
    (void)reason;
    (void)snprintf(ret_root, WORLD_ROOT_SIZE, "root-%u", id[0]);
    return F8_OK;
}

int world_join(
    struct worlds *of, const struct world_part *part, struct world **ret_world, struct reason *why)
{
    (void)of;
    (void)why;
    struct world *world = calloc(1, sizeof(*world));
    uint32_t number = part->id[0];
    struct meeting *meeting = &meetings[number];
    if (!world || num_worlds == WORLDS)
        abort();
    worlds[num_worlds++] = world;
    world->listener = part->listener;
    world->owner = part->owner;
    world->meeting = number;
    world->process = fake_host;
    world->num_ranks = part->num_ranks;
    world->world_size = part->world_size;
    memcpy(world->ranks, part->ranks, part->num_ranks * sizeof(*part->ranks));
    meeting->root = part->id[1];
    *ret_world = world;
    if (meeting->formed) {
        push(&world->down, MESSAGE_ENDED, 0, false, NULL, 0); /* nobody listens any more */
        return F8_OK;
    }
    meeting->hosts[meeting->num_hosts++] = world;
    form(number);
    return F8_OK;
}

void *world_owner(const struct world *world)
{
    return world->owner;
}

const struct world_host *world_hosts(const struct world *world, uint32_t *ret_num_hosts)
{
    *ret_num_hosts = meetings[world->meeting].num_hosts;
    return world->table;
}

uint32_t world_here(const struct world *world)
{
    return world->here;
}

uint32_t world_root(const struct world *world)
{
    const struct meeting *meeting = &meetings[world->meeting];
    for (uint32_t h = 0; h < meeting->num_hosts; h++)
        if (meeting->hosts[h]->process == meeting->root)
            return h;
    return meeting->num_hosts;
}

bool world_has_here(const struct world *world, uint32_t rank)
{
    for (uint32_t i = 0; i < world->num_ranks; i++)
        if (world->ranks[i].rank == rank)
            return true;
    return false;
}

void world_traffic(const struct world *world, uint64_t *ret_sent, uint64_t *ret_received)
{
    (void)world;
    *ret_sent = *ret_received = 0;
}

/* Operators look at none of these. */
bool world_meeting(const struct world *world, struct world_meeting *ret_meeting)
{
    (void)world;
    (void)ret_meeting;
    return false;
}

void worlds_guests(const struct worlds *of,
    void (*tell)(void *context, const struct world_guest *guest), void *context)
{
    (void)of;
    (void)tell;
    (void)context;
}

const char *world_interface(const struct world *world, const char **ret_address)
{
    (void)world;
    *ret_address = "127.0.0.1";
    return "lo";
}

void world_send(struct world *world, const uint8_t *data, size_t size)
{
    if (world->formed && !world->ended)
        push(&world->up, MESSAGE_DATA, world->here, false, data, size);
}

void world_leave(struct world *world)
{
    if (!world)
        return;
    struct meeting *meeting = &meetings[world->meeting];
    world->left = true;
    cut(&world->down, 0);
    if (meeting->formed) {
        meeting->over = true;
        push(&world->up, MESSAGE_GOODBYE, world->here, true, NULL, 0);
        return;
    }
    for (uint32_t h = 0; h < meeting->num_hosts; h++)
        if (meeting->hosts[h] == world)
            meeting->hosts[h] = meeting->hosts[--meeting->num_hosts];
}

/* ---- what the test does ---- */

void fake_unique_id(uint32_t number, uint32_t root, uint8_t *ret_id)
{
    memset(ret_id, 0, F8_PROTO_UNIQUE_ID_SIZE);
    ret_id[0] = (uint8_t)number;
    ret_id[1] = (uint8_t)root;
}

bool fake_is_over(uint32_t number)
{
    return meetings[number].over;
}

bool fake_is_met(uint32_t number)
{
    return meetings[number].formed && !meetings[number].over;
}

void fake_leave(uint32_t number)
{
    meetings[number].over |= meetings[number].formed; /* else it can come again */
}

void fake_begin_worlds(void)
{
    for (uint32_t w = 0; w < num_worlds; w++) {
        cut(&worlds[w]->up, 0);
        cut(&worlds[w]->down, 0);
        free(worlds[w]);
    }
    num_worlds = 0;
    memset(meetings, 0, sizeof(meetings));
}

uint32_t fake_world_events(struct fake_event *events, uint32_t count)
{
    for (uint32_t w = 0; w < num_worlds && count + 2 <= FAKE_EVENTS; w++) {
        if (worlds[w]->up.first)
            events[count++] = (struct fake_event){FAKE_UP, w};
        if (worlds[w]->down.first && !worlds[w]->left)
            events[count++] = (struct fake_event){FAKE_DOWN, w};
    }
    return count;
}

static bool is_gone(const struct meeting *meeting, uint32_t host)
{
    return meeting->gone[host] || meeting->hosts[host]->left || meeting->root_lost;
}

/* The root hands it on to all others. */
void fake_world_up(uint32_t w)
{
    struct world *from = worlds[w];
    struct meeting *meeting = &meetings[from->meeting];
    struct message *message = pop(&from->up);
    bool lost = meeting->gone[from->here] || meeting->root_lost;
    for (uint32_t h = 0; h < meeting->num_hosts && !lost; h++)
        if (h != from->here && !is_gone(meeting, h))
            push(&meeting->hosts[h]->down,
                message->kind == MESSAGE_DATA ? MESSAGE_DATA : MESSAGE_LOST, from->here, true,
                message->data, message->size);
    if (message->kind == MESSAGE_GOODBYE)
        meeting->gone[from->here] = true;
    free(message);
}

static void deliver(struct world *world, const struct message *message)
{
    struct reason reason;
    switch (message->kind) {
    case MESSAGE_FORMED:
        world->formed = true;
        world->listener->formed(world);
        break;
    case MESSAGE_DATA:
        world->listener->received(world, message->host, message->data, message->size);
        break;
    case MESSAGE_LOST:
        world->table[message->host].lost = true;
        (void)reason_set(&reason, F8_OK, "host %s is lost", world->table[message->host].name);
        world->listener->lost(world, message->host, message->in_order, &reason);
        break;
    default:
        world->ended = true;
        (void)reason_set(&reason, F8_OK, "the root is lost");
        world->listener->ended(world, F8_ECONN, &reason);
        break;
    }
}

void fake_world_down(uint32_t w)
{
    struct message *message = pop(&worlds[w]->down);
    fake_enter(worlds[w]->process);
    deliver(worlds[w], message);
    free(message);
}

/* The way between the root and a host is gone: both learn of it, after what was on its way. */
static void lose(struct meeting *meeting, uint32_t lost, uint32_t (*random)(uint32_t count))
{
    struct world *world = meeting->hosts[lost];
    if (meeting->gone[lost])
        return;
    for (uint32_t i = random(length(&world->up) + 1); i > 0; i--)
        for (uint32_t w = 0; w < num_worlds; w++)
            if (worlds[w] == world)
                fake_world_up(w);
    meeting->gone[lost] = true;
    cut(&world->up, 0);
    cut(&world->down, random(length(&world->down) + 1));
    for (uint32_t h = 0; h < meeting->num_hosts; h++)
        if (h != lost && !is_gone(meeting, h))
            push(&meeting->hosts[h]->down, MESSAGE_LOST, lost, false, NULL, 0);
    if (!world->left && !world->ended)
        push(&world->down, MESSAGE_ENDED, 0, false, NULL, 0);
}

void fake_partition_worlds(uint32_t host, uint32_t (*random)(uint32_t count))
{
    for (struct meeting *meeting = meetings; meeting < meetings + MEETINGS; meeting++) {
        if (!meeting->formed)
            continue;
        meeting->over = true;
        for (uint32_t h = 0; h < meeting->num_hosts; h++) {
            uint32_t process = meeting->hosts[h]->process;
            if (process != meeting->root && (process == host || meeting->root == host))
                lose(meeting, h, random);
        }
    }
}
