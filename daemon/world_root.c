/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root of a world: listens while the world forms, and from then on passes on what each host
 * tells the others, and who is lost. It lives in the daemon that made the id, apart from that
 * daemon's own part in the world, which is a host like the others. On the loop.
 */
#include "daemon/world_private.h"

#include <inttypes.h>
#include <stdlib.h>

#define BACKLOG 4096 /* the kernel may allow less */

static const struct world_link_listener of_members;

static void accept_waiting(struct world_root *root);
static void on_deadline(uv_timer_t *timer);

/* ---- its end ---- */

static void free_root(struct world_root *root)
{
    struct world_root **place = &root->worlds->roots;
    while (*place != root)
        place = &(*place)->next;
    *place = root->next;
    free(root->group);
    free(root->claimed);
    free(root->hosts);
    free(root);
}

static void on_closed(uv_handle_t *handle)
{
    struct world_root *root = handle->data;
    if (--root->handles == 0)
        free_root(root);
}

static void close_any(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, on_closed);
}

/* No more hosts come in. */
static void stop_listening(struct world_root *root)
{
    if (uv_is_closing((uv_handle_t *)&root->listener))
        return;
    uv_close((uv_handle_t *)&root->listener, on_closed);
    root->worlds->num_forming--;
}

static void free_member(struct world_member *member)
{
    struct world_root *root = member->root;
    *(member->previous ? &member->previous->next : &root->members) = member->next;
    *(member->next ? &member->next->previous : &root->last) = member->previous;
    root->num_unproved -= !member->proved;
    root->num_joined -= member->joined;
    if (member->joined && root->formed)
        root->hosts[member->host] = NULL;
    free(member->ranks);
    free(member);
}

void world_root_formed(struct world_root *root)
{
    struct world_member *next;
    for (struct world_member *member = root->members; member; member = next) {
        next = member->next;
        if (!member->joined)
            world_root_drop(member, world_frame_end(F8_EEXIST, "all ranks of it are there"));
    }
    stop_listening(root);
    (void)uv_timer_stop(&root->deadline);
    root->formed = true;
}

static void close_root(struct world_root *root)
{
    root->ended = true;
    stop_listening(root);
    close_any((uv_handle_t *)&root->deadline);
    close_any((uv_handle_t *)&root->beat);
}

void world_root_end(struct world_root *root, int status, const char *text)
{
    if (root->ended)
        return;
    struct world_frame *frame = world_frame_end(status, text);
    while (root->members) {
        struct world_member *member = root->members;
        bool told = member->joined && frame;
        world_link_close(member->link, told ? world_frame_keep(frame) : NULL);
        free_member(member);
    }
    world_frame_drop(frame);
    close_root(root);
}

void world_root_give_up(struct world_root *root, int status, const char *text)
{
    struct world_member *next;
    struct world_frame *frame = world_frame_end(status, text);
    for (struct world_member *member = root->members; member; member = next) {
        next = member->next;
        if (!member->proved)
            continue;
        if (member->joined)
            world_form_unjoin(member);
        world_root_drop(member, frame ? world_frame_keep(frame) : NULL);
    }
    world_frame_drop(frame);
    (void)uv_timer_start(&root->deadline, on_deadline, root->worlds->config->host_timeout_ms, 0);
}

/* What this daemon's own host has said is still to be passed on. */
static bool has_own(const struct world_root *root)
{
    for (const struct world_member *member = root->members; member; member = member->next)
        if (member->joined && member->own)
            return true;
    return false;
}

void world_roots_review(struct worlds *worlds)
{
    if (!worlds->closing)
        return;
    for (struct world_root *root = worlds->roots; root; root = root->next)
        if (!world_is_here(worlds, root->id.number) && !has_own(root))
            world_root_end(root, F8_ECONN, "the root's daemon ends");
}

/* ---- what goes to all ---- */

/* Reads from all or from none: one that takes nothing stops the others until it is lost. */
static void pause_all(struct world_root *root, bool pause)
{
    root->paused = pause;
    for (struct world_member *member = root->members; member; member = member->next)
        if (member->joined)
            world_link_pause(member->link, pause);
}

static bool any_is_full(const struct world_root *root)
{
    bool full = false;
    for (const struct world_member *member = root->members; member; member = member->next)
        full |= world_link_is_full(member->link);
    return full;
}

void world_root_send(
    struct world_root *root, const struct world_member *except, struct world_frame *frame)
{
    bool full = false;
    for (struct world_member *member = root->members; member; member = member->next) {
        if (member == except || !member->joined)
            continue;
        world_link_send(member->link, frame);
        full |= world_link_is_full(member->link);
    }
    world_frame_drop(frame);
    if (full && !root->paused)
        pause_all(root, true);
}

static void on_drained(struct world_link *link)
{
    struct world_member *member = world_link_owner(link);
    if (member->root->paused && !any_is_full(member->root))
        pause_all(member->root, false);
}

/* Of all, where they are few; of many those who have been silent for long: the others were heard.
 */
static struct world_frame *heartbeat_frame(const struct world_root *root)
{
    F8__WorldHeartbeat heartbeat = F8__WORLD_HEARTBEAT__INIT;
    F8__WorldMessage message = F8__WORLD_MESSAGE__INIT;
    uint64_t usual = WORLD_UNNAMED_BEATS * root->worlds->config->heartbeat_ms;
    bool all = root->num_hosts <= WORLD_NAMED_HOSTS;
    uint32_t *numbers = calloc((size_t)root->num_hosts * 2 + 1, sizeof(*numbers));
    if (!numbers)
        return NULL;
    heartbeat.hosts = numbers;
    heartbeat.silent_ms = numbers + root->num_hosts;
    for (uint32_t i = 0; i < root->num_hosts; i++) {
        uint64_t silent = root->hosts[i] ? world_link_silent_ms(root->hosts[i]->link) : 0;
        if (!root->hosts[i] || (silent <= usual && !all))
            continue;
        heartbeat.hosts[heartbeat.n_hosts++] = i;
        heartbeat.silent_ms[heartbeat.n_silent_ms++] = (uint32_t)silent;
    }
    message.body_case = F8__WORLD_MESSAGE__BODY_HEARTBEAT;
    message.heartbeat = &heartbeat;
    struct world_frame *frame = world_frame_message(&message);
    free(numbers);
    return frame;
}

static void on_beat(uv_timer_t *timer)
{
    struct world_frame *frame = heartbeat_frame(timer->data);
    accept_waiting(timer->data);
    if (frame)
        world_root_send(timer->data, NULL, frame);
}

/* ---- members ---- */

void world_root_drop(struct world_member *member, struct world_frame *last)
{
    world_link_close(member->link, last);
    free_member(member);
}

/* The others hear of it after all that it had said. */
static void tell_lost(
    struct world_root *root, uint32_t host, bool in_order, int status, const char *text)
{
    F8__WorldLost lost = F8__WORLD_LOST__INIT;
    F8__WorldMessage message = F8__WORLD_MESSAGE__INIT;
    lost.host = host;
    lost.in_order = in_order;
    lost.status = status;
    lost.text = (char *)text; /* protobuf-c wants a pointer that it may free */
    message.body_case = F8__WORLD_MESSAGE__BODY_LOST;
    message.lost = &lost;
    world_root_send(root, NULL, world_frame_message(&message));
}

/* Its link is gone or closing. */
static void remove_member(
    struct world_member *member, bool in_order, int status, const struct reason *reason)
{
    struct world_root *root = member->root;
    bool joined = member->joined;
    uint32_t host = member->host;
    if (joined && !root->formed)
        world_form_unjoin(member);
    free_member(member);
    if (joined && root->formed) {
        tell_lost(root, host, in_order, status, reason->text);
        /* The one that was full may be the one that is gone. */
        if (root->paused && !any_is_full(root))
            pause_all(root, false);
        if (!root->members)
            close_root(root);
    }
    accept_waiting(root);
    world_roots_review(root->worlds);
}

static void on_lost(struct world_link *link, int status, const struct reason *reason)
{
    struct world_member *member = world_link_owner(link);
    struct worlds *worlds = member->root->worlds;
    const struct log_fields fields = {.host = member->name};
    if (member->joined)
        log_of(&fields, LOG_LEVEL_INFO, "world of group %s: host %s (%s) is lost: %s",
            member->root->group, member->name, member->address, reason->text);
    else if (log_allows(&worlds->refused, uv_now(worlds->loop)))
        log_warning("refused a connection from %s to a world that forms: %s", member->address,
            reason->text);
    remove_member(member, false, status, reason);
}

static void on_message(struct world_link *link, const F8__WorldMessage *message)
{
    struct world_member *member = world_link_owner(link);
    struct reason reason;
    switch (message->body_case) {
    case F8__WORLD_MESSAGE__BODY_JOIN:
        world_form_join(member, message->join);
        break;
    case F8__WORLD_MESSAGE__BODY_GOODBYE:
        (void)reason_set(&reason, F8_OK, "host %s left", member->name);
        world_link_close(link, NULL);
        remove_member(member, true, F8_OK, &reason);
        break;
    default: /* a heartbeat, or what a later version says */
        break;
    }
}

static void on_data(struct world_link *link, uint32_t tag, struct world_frame *frame)
{
    struct world_member *member = world_link_owner(link);
    (void)tag;
    if (!member->root->formed)
        return;
    world_frame_set_tag(frame, member->host);
    world_root_send(member->root, member, world_frame_keep(frame));
}

/* Its Join comes next. */
static void on_proved(struct world_link *link)
{
    struct world_member *member = world_link_owner(link);
    member->proved = true;
    member->root->num_unproved--;
    accept_waiting(member->root);
}

static const struct world_link_listener of_members = {
    .proved = on_proved,
    .message = on_message,
    .data = on_data,
    .drained = on_drained,
    .lost = on_lost,
};

/*
 * Of those that have not proved the token the oldest goes for a new one, but not at once: many
 * hosts may come at the same time, and wait in the kernel then. False: there is none to drop.
 */
static bool drop_oldest_unproved(struct world_root *root)
{
    uint64_t now = uv_now(root->worlds->loop);
    struct world_member *member = root->members;
    while (member->proved)
        member = member->next;
    if (now - member->came_ms < WORLD_SPARE_MS)
        return false;
    if (log_allows(&root->worlds->refused, now))
        log_warning("dropped a connection from %s to a world that forms: more than %d have not "
                    "proved its unique id yet",
            member->address, WORLD_MAX_UNPROVED);
    world_root_drop(member, NULL);
    return true;
}

static void append_member(struct world_root *root, struct world_member *member)
{
    member->previous = root->last;
    *(root->last ? &root->last->next : &root->members) = member;
    root->last = member;
    root->num_unproved++;
}

static void accept_one(struct world_root *root)
{
    struct world_member *member = calloc(1, sizeof(*member));
    if (!member)
        return; /* it waits, and with it those that come after it */
    struct world_link_options options = {.listener = &of_members, .owner = member, .id = &root->id};
    struct sockaddr_storage address;
    member->root = root;
    member->came_ms = uv_now(root->worlds->loop);
    root->waits = false;
    if (world_link_accept(root->worlds, (uv_stream_t *)&root->listener, &options, &member->link) <
        0) {
        free(member);
        return;
    }
    if (world_link_address(member->link, false, &address) == F8_OK)
        world_address_text(&address, true, member->address);
    else /* it has closed already */
        (void)snprintf(member->address, sizeof(member->address), "a peer that is gone");
    append_member(root, member);
}

static void accept_waiting(struct world_root *root)
{
    if (!root->waits || root->formed || root->ended)
        return;
    if (root->num_unproved < WORLD_MAX_UNPROVED || drop_oldest_unproved(root))
        accept_one(root);
}

/* libuv looks for no further one until this one is accepted. */
static void on_connection(uv_stream_t *listener, int status)
{
    struct world_root *root = listener->data;
    if (status < 0)
        return;
    root->waits = true;
    accept_waiting(root);
}

/* ---- its beginning ---- */

static void on_deadline(uv_timer_t *timer)
{
    struct world_root *root = timer->data;
    struct reason reason = root->in_vain;
    if (reason.text[0] == '\0') {
        world_form_missing(root, &reason);
        log_warning("%s", reason.text);
    }
    world_root_end(root, F8_EDEADLINE, reason.text);
}

static int listen_at(
    struct world_root *root, const struct world_interface *interface, struct reason *reason)
{
    char text[WORLD_ADDRESS_SIZE];
    int size = sizeof(root->id.address);
    int error = uv_tcp_bind(&root->listener, (const struct sockaddr *)&interface->address, 0);
    if (error == 0)
        error = uv_listen((uv_stream_t *)&root->listener, BACKLOG, on_connection);
    if (error == 0)
        error = uv_tcp_getsockname(&root->listener, (struct sockaddr *)&root->id.address, &size);
    if (error == 0)
        return F8_OK;
    world_address_text(&interface->address, false, text);
    return reason_set(reason, F8_EIO, "cannot listen at %s of interface %s: %s", text,
        interface->name, uv_strerror(error));
}

static struct world_root *root_new(struct worlds *worlds)
{
    struct world_root *root = calloc(1, sizeof(*root));
    if (!root)
        return NULL;
    if (uv_tcp_init(worlds->loop, &root->listener) < 0) {
        free(root);
        return NULL;
    }
    (void)uv_timer_init(worlds->loop, &root->deadline);
    (void)uv_timer_init(worlds->loop, &root->beat);
    root->listener.data = root->deadline.data = root->beat.data = root;
    root->handles = 3;
    root->worlds = worlds;
    root->next = worlds->roots;
    worlds->roots = root;
    worlds->num_forming++;
    return root;
}

static int start_root(
    struct world_root *root, const struct world_interface *interface, struct reason *reason)
{
    const struct config *config = root->worlds->config;
    int status = listen_at(root, interface, reason);
    if (status == F8_OK && (world_random(&root->id.number, sizeof(root->id.number)) < 0 ||
                               world_random(root->id.token, WORLD_TOKEN_SIZE) < 0))
        status = reason_set(reason, F8_EIO, "the kernel gives no random bytes");
    if (status < 0)
        return status;
    root->began_ms = uv_now(root->worlds->loop);
    root->ends_ms = root->began_ms + config->world_deadline_ms;
    (void)uv_timer_start(&root->deadline, on_deadline, config->world_deadline_ms, 0);
    (void)uv_timer_start(&root->beat, on_beat, config->heartbeat_ms, config->heartbeat_ms);
    return F8_OK;
}

int world_unique_id(
    struct worlds *worlds, uint8_t ret_id[F8_PROTO_UNIQUE_ID_SIZE], struct reason *reason)
{
    struct world_interface interface;
    char text[WORLD_ADDRESS_SIZE];
    if (worlds->num_forming >= worlds->config->max_worlds)
        return reason_set(reason, F8_ELIMIT,
            "%u groups over several hosts are forming here already, the limit is --max-worlds %u",
            worlds->num_forming, worlds->config->max_worlds);
    int status = world_interface_choose(worlds->config, AF_UNSPEC, &interface, reason);
    if (status < 0)
        return status;
    struct world_root *root = root_new(worlds);
    if (!root)
        return reason_set(reason, F8_ENOMEM, "out of memory for a world");
    status = start_root(root, &interface, reason);
    if (status < 0) {
        close_root(root);
        return status;
    }
    world_id_pack(&root->id, ret_id);
    world_address_text(&root->id.address, true, text);
    log_info("a world forms at %s, interface %s", text, interface.name);
    return F8_OK;
}

struct world_root *world_root_find(struct worlds *worlds, uint64_t number)
{
    for (struct world_root *root = worlds->roots; root; root = root->next)
        if (root->id.number == number && !root->ended)
            return root;
    return NULL;
}
