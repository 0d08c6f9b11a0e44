/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the world share: world.c (a host's part), world_root.c and world_form.c (the
 * root's), world_link.c and world_frame.c (a connection between the two), world_proof.c (that both
 * hold the id), world_id.c (the id) and world_interface.c (which address). All on the loop.
 *
 * The token keeps out who was not given the id. What follows the proof is neither encrypted nor
 * signed: the network between the hosts is trusted not to be listened to or changed, as that of
 * NCCL and Gloo is.
 */
#ifndef F8_DAEMON_WORLD_PRIVATE_H
#define F8_DAEMON_WORLD_PRIVATE_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "daemon/log.h"
#include "daemon/world.h"
#include "world.pb-c.h"

#define WORLD_MAJOR        1     /* of the protocol between daemons */
#define WORLD_MAX_SIZE     65536 /* ranks */
#define WORLD_TOKEN_SIZE   32
#define WORLD_NONCE_SIZE   32
#define WORLD_MAC_SIZE     32
#define WORLD_ADDRESS_SIZE WORLD_ROOT_SIZE /* of an address as text */
#define WORLD_PROOF_MS     5000
#define WORLD_FLUSH_MS     5000 /* for the last words of a connection */
#define WORLD_MAX_UNPROVED 256  /* connections of a root without a proof yet */
#define WORLD_SPARE_MS     1000 /* how long one of these may not be dropped for another */
#define WORLD_SCRATCH_SIZE 65536
/* A heartbeat of the root names each host of so few, and of more those that have been silent for
 * longer than so many heartbeats. */
#define WORLD_NAMED_HOSTS   32
#define WORLD_UNNAMED_BEATS ((uint64_t)2)

struct world_root;

struct worlds {
    uv_loop_t *loop;             /* borrowed */
    const struct config *config; /* borrowed */
    uint64_t daemon;             /* a random number, by which a root knows its own host */
    struct world_root *roots;    /* owned: a list */
    struct world *list;          /* owned: a list */
    uint32_t num_forming;        /* roots that listen */
    bool closing;
    struct log_limit refused;            /* connections that did not prove the token */
    uint8_t scratch[WORLD_SCRATCH_SIZE]; /* what is read, until the reader returns */
};

/* ---- world_id.c ---- */

/* What a unique id says. */
struct world_id {
    struct sockaddr_storage address; /* of the root: IPv4 or IPv6 */
    uint64_t number;                 /* of the world: random */
    uint8_t token[WORLD_TOKEN_SIZE];
};

void world_id_pack(const struct world_id *id, uint8_t packed[F8_PROTO_UNIQUE_ID_SIZE]);

/* F8_EINVAL. A link-local address has no scope yet: that is each host's own. */
int world_id_unpack(
    const uint8_t packed[F8_PROTO_UNIQUE_ID_SIZE], struct world_id *ret_id, struct reason *reason);

/* "10.0.0.1:4711", "[fe80::1%eth0]:4711"; without a port "10.0.0.1", "fe80::1%eth0". */
void world_address_text(
    const struct sockaddr_storage *address, bool with_port, char text[WORLD_ADDRESS_SIZE]);

socklen_t world_address_size(const struct sockaddr_storage *address);
bool world_is_link_local(const struct sockaddr_storage *address);

/* Random bytes of the kernel. F8_EIO. */
int world_random(void *bytes, size_t size);

/* ---- world_interface.c ---- */

#define WORLD_INTERFACE_SIZE 16 /* IF_NAMESIZE */

struct world_interface {
    char name[WORLD_INTERFACE_SIZE];
    struct sockaddr_storage address; /* port 0 */
};

/* Chooses by the configuration; `family` AF_UNSPEC or what it must be. F8_EINVAL, F8_EIO. */
int world_interface_choose(
    const struct config *config, int family, struct world_interface *ret, struct reason *reason);

/* The same from what getifaddrs has told. F8_EINVAL too: an address that holds on one link only. */
struct ifaddrs;
int world_interface_pick(const struct config *config, int family, const struct ifaddrs *entries,
    struct world_interface *ret, struct reason *reason);

/* Whether --socket-family allows the root's address: the hosts of a world are of one family, which
 * is the root's. F8_EINVAL. */
int world_interface_family(
    const struct config *config, const struct sockaddr_storage *root, struct reason *reason);

/* Which interface has this address; "" if none. */
void world_interface_of(const struct sockaddr_storage *address, char name[WORLD_INTERFACE_SIZE]);

/* ---- world_proof.c ---- */

/* Who proves it: the two must not be able to answer with one another's. */
enum world_prover { WORLD_PROVER_HOST, WORLD_PROVER_ROOT };

/* HMAC-SHA256 with the token over the prover, the world's number and both nonces. */
void world_proof(const struct world_id *id, enum world_prover prover,
    const uint8_t root_nonce[WORLD_NONCE_SIZE], const uint8_t host_nonce[WORLD_NONCE_SIZE],
    uint8_t ret_mac[WORLD_MAC_SIZE]);

/* Compares in a time that does not depend on the bytes. */
bool world_proof_equal(const uint8_t a[WORLD_MAC_SIZE], const uint8_t b[WORLD_MAC_SIZE]);

/* ---- world_frame.c ---- */

#define WORLD_HEAD_SIZE   8
#define WORLD_TAG_MESSAGE UINT32_MAX

/* A frame with its head; counted, so that one is sent to many. */
struct world_frame {
    uint32_t references;
    size_t size;     /* with the head */
    size_t capacity; /* of bytes */
    uint8_t bytes[];
};

/* NULL if memory is short. */
struct world_frame *world_frame_data(uint32_t tag, const uint8_t *data, size_t size);
struct world_frame *world_frame_message(const F8__WorldMessage *message);
struct world_frame *world_frame_end(int status, const char *text);
struct world_frame *world_frame_keep(struct world_frame *frame);
void world_frame_drop(struct world_frame *frame); /* NULL allowed */

/* Of a frame that comes in: its head. */
void world_frame_head(const uint8_t head[WORLD_HEAD_SIZE], uint32_t *ret_size, uint32_t *ret_tag);
void world_frame_set_tag(struct world_frame *frame, uint32_t tag);

/* Room for `more` bytes at the end of a frame of at most `limit`; may move it. NULL: no memory. */
struct world_frame *world_frame_grow(struct world_frame *frame, size_t more, size_t limit);

/* ---- world_link.c ---- */

struct world_link;

/* Bytes both ways. */
struct world_traffic {
    uint64_t sent, received;
};

/* Upward calls of a link; none comes once it is closed or lost. */
struct world_link_listener {
    void (*proved)(struct world_link *link);
    void (*message)(struct world_link *link, const F8__WorldMessage *message);
    /* The frame is the link's: keep it or copy it. */
    void (*data)(struct world_link *link, uint32_t tag, struct world_frame *frame);
    /* What waited to be sent is little again, after world_link_is_full. */
    void (*drained)(struct world_link *link);
    /* A heartbeat is due: of proved links. NULL allowed. */
    void (*tick)(struct world_link *link);
    /*
     * It has ended, and frees itself: forget it. F8_EPERM: the token was not proved; F8_ENOENT:
     * nobody listens there; F8_ECONN: the connection was closed or broke; F8_EDEADLINE: nothing was
     * heard or taken for too long; F8_EVERSION, F8_EPROTO, F8_ELIMIT, F8_ENOMEM.
     */
    void (*lost)(struct world_link *link, int status, const struct reason *reason);
};

/* What a link is made from. */
struct world_link_options {
    const struct world_link_listener *listener; /* borrowed: static */
    void *owner;                                /* borrowed */
    const struct world_id *id;                  /* borrowed for the call */
    struct world_traffic *traffic;              /* borrowed: counts; NULL allowed */
};

/* From the root's side: takes what the listener has. F8_EIO, F8_ENOMEM. */
int world_link_accept(struct worlds *worlds, uv_stream_t *listener,
    const struct world_link_options *options, struct world_link **ret_link);

/* From the host's side: connects to the id's address; from `from` unless NULL. */
int world_link_connect(struct worlds *worlds, const struct sockaddr_storage *from,
    const struct world_link_options *options, struct world_link **ret_link, struct reason *reason);

void *world_link_owner(const struct world_link *link);
bool world_link_is_proved(const struct world_link *link);

/* Whether both ends have said that they take part: ends the time limit of the beginning. */
void world_link_settle(struct world_link *link);

/* The other end, or with `here` this one's; F8_EIO. */
int world_link_address(
    const struct world_link *link, bool here, struct sockaddr_storage *ret_address);

/* Sends; a frame is kept as long as it takes. Of a NULL frame memory is short: the link is lost. */
void world_link_send(struct world_link *link, struct world_frame *frame);

/* Whether more waits to be sent than should. */
bool world_link_is_full(const struct world_link *link);

/* Stops or goes on reading. */
void world_link_pause(struct world_link *link, bool pause);

/* Counts from now on here; NULL: nowhere. */
void world_link_count(struct world_link *link, struct world_traffic *traffic);

/* Since the last sign of life: for people, as a stop of our own counts too. */
uint64_t world_link_silent_ms(const struct world_link *link);

/* Sends what waits and then `last` (NULL: nothing), for a limited time; frees itself. */
void world_link_close(struct world_link *link, struct world_frame *last);

/* ---- world_root.c, world_form.c ---- */

/* A connection of a root. */
struct world_member {
    struct world_root *root; /* borrowed: its owner */
    struct world_member *next, *previous;
    struct world_link *link; /* owned until it is closed or lost */
    char name[65];
    char address[WORLD_ADDRESS_SIZE];
    uint64_t came_ms;         /* loop time */
    uint64_t daemon;          /* its random number, by which the same one is known again */
    bool proved, joined, own; /* own: this daemon's */
    uint32_t host;            /* once formed */
    uint32_t num_ranks;
    uint32_t *ranks; /* owned: its ranks, then as many pids; NULL before it has joined */
};

struct world_root {
    struct worlds *worlds;   /* borrowed: its owner */
    struct world_root *next; /* in worlds->roots */
    struct world_id id;
    uv_tcp_t listener;
    uv_timer_t deadline, beat;
    uint32_t handles;             /* of the three, that are not closed */
    uint64_t began_ms, ends_ms;   /* loop time; when forming is over */
    struct world_member *members; /* owned: a list, the oldest first */
    struct world_member *last;
    uint32_t num_unproved, num_joined;
    /* From the first that joins on: */
    char *group; /* owned */
    uint32_t world_size, num_claimed;
    struct world_member **claimed; /* owned array, by rank; borrowed pointers, NULL: missing */
    struct reason refused;         /* the last host that was refused, and why; empty: none */
    struct reason in_vain;         /* why it cannot form any more; empty: it can */
    bool formed, ended;
    bool waits;  /* a connection is not taken yet: there are too many without a proof */
    bool paused; /* nobody is read: one has much to take */
    uint32_t num_hosts;
    struct world_member **hosts;  /* owned array, by number; NULL: gone */
    struct world_traffic traffic; /* of the network: without this host's own */
};

/* The root of this world, if this daemon is it; else NULL. */
struct world_root *world_root_find(struct worlds *worlds, uint64_t number);

/* Ends it: everybody there gets the status and text. */
void world_root_end(struct world_root *root, int status, const char *text);

/* The same, but whoever joins for a while is still to hear of it, by world_form_join. */
void world_root_give_up(struct world_root *root, int status, const char *text);

/* Ends roots that stay for the sake of others only, once this daemon closes. */
void world_roots_review(struct worlds *worlds);

/* To all that have joined, but not to `except`. Takes over the frame. */
void world_root_send(
    struct world_root *root, const struct world_member *except, struct world_frame *frame);

/* Drops a member that did not join, or is refused; nobody else is told. */
void world_root_drop(struct world_member *member, struct world_frame *last);

/* The world has formed: whoever has not joined goes, and nobody comes any more. */
void world_root_formed(struct world_root *root);

/* A member's first message. Refuses it, or claims its ranks, and forms the world if that was all.
 */
void world_form_join(struct world_member *member, const F8__WorldJoin *join);

/* A member that joined is gone before the world has formed. */
void world_form_unjoin(struct world_member *member);

/* Who is missing, for the deadline. */
void world_form_missing(const struct world_root *root, struct reason *reason);

/* Goes on with "4, 5, 8-11": those that nobody has claimed. */
void world_form_append_missing(const struct world_root *root, struct reason *reason);

/* A name as it may stand in logs and on terminals. */
void world_clean_name(const char *name, char clean[65]);

/* ---- world.c, world_hear.c ---- */

enum world_state {
    WORLD_REACHING, /* the root: again and again */
    WORLD_JOINED,   /* the others are waited for */
    WORLD_FORMED,
    WORLD_ENDED,
};

struct world {
    struct worlds *worlds; /* borrowed */
    struct world *next;    /* in worlds->list */
    struct world_id id;
    char *group; /* owned */
    uint32_t world_size, num_ranks;
    struct world_rank *ranks;              /* owned: this host's */
    const struct world_listener *listener; /* borrowed: static */
    void *owner;                           /* borrowed */
    uint64_t deadline_ms, began_ms;
    uv_timer_t deadline, retry;
    uint32_t handles; /* of the two, that are not closed */
    uint32_t attempts;
    bool left;
    enum world_state state;
    struct world_link *link; /* owned until it is closed or lost; NULL: none now */
    struct reason last;      /* why the root was not reached */
    bool bound;              /* connections come from `from` */
    struct sockaddr_storage from;
    char root_address[WORLD_ADDRESS_SIZE];
    char address[WORLD_ADDRESS_SIZE], interface[WORLD_INTERFACE_SIZE]; /* this host's */
    /* Once formed: */
    struct world_host *hosts;    /* owned array */
    struct world_rank *of_hosts; /* owned array: what the hosts' ranks point into */
    uint32_t num_hosts, here, root;
    struct world_traffic traffic;
};

/* What this host calls itself. */
void world_own_name(const struct config *config, char name[65]);

/* It is over, and its owner hears of it, unless it has before. */
void world_end(struct world *world, int status, const struct reason *reason);
void world_lose_root(struct world *world, const char *why);

/* What the link to the root brings. */
void world_hear(struct world_link *link, const F8__WorldMessage *message);
void world_receive(struct world_link *link, uint32_t tag, struct world_frame *frame);

/* A world of this daemon has that number, and is not freed yet. */
bool world_is_here(const struct worlds *worlds, uint64_t number);

#endif
