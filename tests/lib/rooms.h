/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's rooms without a socket: sessions over the real registry, collectives and host
 * backend, on a loop that the test turns by hand. A client here is a session and the replies that
 * it was sent. Everything is checked to be gone when the rooms close.
 */
#ifndef F8_TESTS_ROOMS_H
#define F8_TESTS_ROOMS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/session.h"

#define ROOMS_UID     1000
#define ROOMS_REPLIES 512
#define ROOMS_EVENTS  8

struct rooms {
    uv_loop_t loop;
    struct config config; /* may be changed before the first request */
    struct backend *backend;
    struct backend *cuda; /* of devices (device_backend.h); NULL: there are none */
    uint32_t num_devices; /* then client_enter has rank r work on device r modulo this */
    struct session_context context;
    char directory[64]; /* where states would be; empty again when all groups are gone */
};

/* The status of making them: F8_ENOMEM if an allocation was made to fail; nothing is left then. */
int rooms_try_open(struct rooms *rooms);
void rooms_open(struct rooms *rooms);
/* With so many devices, for all that client_enter brings in; 0: without. */
void rooms_open_on(struct rooms *rooms, uint32_t num_devices);
void rooms_add_devices(struct rooms *rooms, uint32_t num_devices);

/* As a client that waits for its stream: what was gathered is there. Nothing lands. */
void rooms_synchronise(struct rooms *rooms);
/* All that devices do is done, and has landed. */
void rooms_land(struct rooms *rooms);

/* All clients must be closed. Checks that no object, charge, mapping or handle is left. */
void rooms_close(struct rooms *rooms);

/* Turns the loop until nothing is in flight. Only where nobody waits for anybody. */
void rooms_settle(struct rooms *rooms);

struct client {
    struct rooms *rooms;     /* borrowed */
    struct session *session; /* owned; NULL once closed */
    F8__Reply *replies[ROOMS_REPLIES];
    uint32_t num_replies;
    uint32_t owed; /* replies that are still to come */
    uint64_t last_id;
    uint32_t group; /* of the last join that was granted */
    uint64_t generation;
    int arena; /* owned: the descriptor of the last seal; -1: none */
};

int client_try_open(struct client *client, struct rooms *rooms, uint32_t uid, uint32_t pid);
void client_open(struct client *client, struct rooms *rooms, uint32_t pid);

/* Drops the replies so far. */
void client_forget(struct client *client);

/* Ends the session and drops the replies. */
void client_close(struct client *client, bool died);

/* Numbers the request and hands it in; checks what session_handle says of its reply. */
uint64_t client_send(struct client *client, F8__Request *request, const int *fds, uint32_t num_fds);

/* The reply to a request: NULL as long as there is none; turning the loop until there is one. */
const F8__Reply *client_reply(const struct client *client, uint64_t id);
const F8__Reply *client_await(struct client *client, uint64_t id);
int client_status(struct client *client, uint64_t id);

/* Awaits a reply that is no refusal. */
void client_ok(struct client *client, uint64_t id);

/* Awaits a refusal, with that status and a text that has this part. */
void client_refused(struct client *client, uint64_t id, int status, const char *part);

/* Requests; each gives its id. Group and generation are those of the client's last join. */
uint64_t ask_hello(struct client *client, const char *job);
uint64_t ask_admin(struct client *client);
uint64_t ask_ping(struct client *client);
uint64_t ask_region(struct client *client, int fd);
uint64_t ask_device(struct client *client, uint32_t device, uint32_t num_events);
/* Device memory of `size` bytes, by a descriptor. */
uint64_t ask_device_region(struct client *client, int fd, uint64_t size);
uint64_t ask_region_drop(struct client *client, uint32_t region);
uint64_t ask_join(struct client *client, const char *group, uint32_t rank, uint32_t world_size);
uint64_t ask_rejoin(struct client *client, const char *group, uint32_t rank, uint32_t world_size);
uint64_t ask_seal(struct client *client, uint32_t slots);
uint64_t ask_seal_poisoned(struct client *client, uint32_t slots);
uint64_t ask_precompute(struct client *client);
uint64_t ask_sync(struct client *client);
uint64_t ask_invalidate(struct client *client);
uint64_t ask_pre_gather(struct client *client, uint32_t bucket);
uint64_t ask_gather(struct client *client, uint32_t bucket);
/* With the number of an event; 0: none. */
uint64_t ask_gather_ready(struct client *client, uint32_t bucket, uint32_t ready);
uint64_t ask_pre_gather_ready(struct client *client, uint32_t bucket, uint32_t ready);
uint64_t ask_precompute_ready(struct client *client, uint32_t ready);
void send_release_ready(struct client *client, uint32_t bucket, uint32_t ready);
void send_release(struct client *client, uint32_t bucket);
uint64_t ask_changed(struct client *client, uint32_t first, uint32_t count);
uint64_t ask_quiesce(struct client *client);
uint64_t ask_move(struct client *client, uint32_t weight, uint32_t region, uint64_t offset);
uint64_t ask_inspect(
    struct client *client, uint32_t view, const char *job, const char *name, uint64_t cursor);

/* A registration: up to a few weights and buckets. */
uint64_t ask_register(struct client *client, F8__Weight *weights, uint32_t num_weights,
    F8__Bucket *buckets, uint32_t num_buckets, bool more);
F8__Weight make_weight(const char *name, uint32_t flavour, uint64_t *shape, uint32_t ndim,
    uint32_t region, uint64_t offset);
F8__Bucket make_bucket(const char *name, uint32_t first, uint32_t count, bool shared);

/* Any request: `body_case` and its message. */
uint64_t ask_body(struct client *client, F8__Request__BodyCase body_case, ProtobufCMessage *body,
    const int *fds, uint32_t num_fds);

/* A memfd of `size` bytes, sealed as regions must be. */
int make_memfd(uint64_t size);

/*
 * Hello, one region of its own, join; with devices, the device first, with ROOMS_EVENTS events.
 * The region's descriptor is the caller's.
 */
int client_enter(struct client *client, const char *job, const char *group, uint32_t rank,
    uint32_t world_size, uint64_t region_size);

#endif
