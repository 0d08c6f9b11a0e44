/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the session share: session.c (greeting, dispatch, replies), session_join.c
 * (groups), session_register.c (regions and weights), session_device.c (devices),
 * session_collective.c (collectives), session_hosts.c (other hosts), session_state.c (export,
 * import), session_metrics.c, session_watch.c and inspect.c (what operators see), session_admin.c,
 * session_reset.c and session_settle.c (what they do).
 */
#ifndef F8_DAEMON_SESSION_PRIVATE_H
#define F8_DAEMON_SESSION_PRIVATE_H

#include "daemon/session.h"

/* What a handler returns besides a status: the reply comes later. */
#define SESSION_PENDING ROUND_PENDING

/* Part of what waits for a backend and then answers: a reply that comes later. */
struct later_reply {
    struct session *session;  /* borrowed; NULL: the client is gone */
    struct later_reply *next; /* borrowed: the session's list */
    struct backend *backend;  /* borrowed: outlives it */
    uint64_t id;              /* of the request */
    uint64_t charged;         /* bytes of a region: given back if the client goes before */
};

struct session {
    struct session_context *context; /* borrowed: outlives it */
    struct session *next, *prev;     /* borrowed: the context's list */
    void *conn;                      /* borrowed: outlives it */
    struct session_peer peer;
    bool greeted;
    bool admin;
    bool leaving;           /* it said goodbye: its end is no death */
    struct job *job;        /* borrowed: entered; NULL before Hello and for admins */
    struct member *members; /* borrowed: its memberships, the latest first; by ->sibling */
    uint32_t num_members;
    struct region **regions; /* owned array of references; id - 1 is the index, NULL: free */
    uint32_t num_regions;
    struct device *device;        /* a reference; NULL: it works on the host */
    bool adds_device;             /* it has asked for its device, which is not there yet */
    struct device_chunks *chunks; /* owned: of a region that comes in several packets */
    struct later_reply *later;    /* borrowed list: who waits frees it */
    struct session_watch *watch;  /* owned: an operator's; NULL: it never asked for events */
    /* A join that waits until a broken group is drained. */
    struct group *waits_for;      /* borrowed: until it is drained; NULL: no such join */
    struct session *next_waiting; /* borrowed: the group's list */
    char *join_name;              /* owned: the group's, while the join waits */
    uint64_t join_id;
    uint32_t join_rank, join_world_size, join_local_ranks;
    uint8_t join_unique_id[F8_PROTO_UNIQUE_ID_SIZE];
    bool join_has_id;
    bool rejoining;
};

/* A reply being made: the body's room, its descriptor, and the sentence for a failure. */
struct answer {
    F8__Reply reply;
    union {
        F8__HelloReply hello;
        F8__PingReply ping;
        F8__RegionReply region;
        F8__JoinReply join;
        F8__SealReply seal;
        F8__GatherReply gather;
        F8__InspectReply inspect;
        F8__ExportReply export;
        F8__DeviceReply device;
        F8__DoneReply done;
        F8__UniqueIdReply unique_id;
        F8__MetricsReply metrics;
        F8__SnapshotReply snapshot;
        F8__ResetAmaxReply reset_amax;
        F8__EvictReply evict;
        F8__DrainReply drain;
        F8__LogLevelReply log_level;
        F8__WatchReply watch;
    } body;
    struct reason reason;
    int fd;        /* borrowed; -1: none */
    int own_fd;    /* owned: closed once the reply is sent; -1: none */
    void *scratch; /* owned: freed once the reply is sent */
};

/* A request with the descriptors that came along. */
struct incoming {
    const F8__Request *request;
    const int *fds;
    uint32_t num_fds;
};

/* Every handler: a status or SESSION_PENDING. */
typedef int session_handler(
    struct session *session, const struct incoming *incoming, struct answer *answer);

/* session_register.c */
session_handler session_region_add, session_region_drop, session_register, session_weight_move;
void session_drop_regions(struct session *session);
/* Makes room for one more region and gives its id, which holds none yet. F8_ELIMIT, F8_ENOMEM. */
int session_reserve_region(struct session *session, uint32_t *ret_id, struct reason *reason);
void answer_region(struct answer *answer, uint32_t id, uint64_t size);
/* F8_ELIMIT: a region's descriptors came, but there was no room for them. */
int session_lost_descriptors(struct reason *reason);
/* Whether the member has asked for a seal that is still to come. */
bool session_asked_for_seal(const struct member *member);

/* session_device.c */
session_handler session_device_add, session_region_cuda;
void session_drop_device(struct session *session);

/* session_drop.c: replies that come when the devices are past what was given back. */
session_handler session_device_drop, session_await_unmap;

/* session.c: its ranks leave their groups; `died`: not in good order. */
void session_leave_groups(struct session *session, bool died);

/* session_hosts.c */
session_handler session_unique_id;

/* session_join.c */
session_handler session_join;
void session_stop_waiting(struct session *session);

/* session_collective.c */
session_handler session_seal, session_precompute, session_pre_gather, session_gather,
    session_release, session_changed, session_quiesce, session_sync, session_invalidate;

/* The same, if it takes part in that generation: F8_ESTALE. */
int session_generation(const struct session *session, uint32_t group, uint64_t generation,
    struct member **ret_member, struct reason *reason);
/* A member's collective ended; run is NULL for a quiesce. */
void session_answer_collective(
    struct member *member, uint64_t tag, int status, const struct round_run *run);

/* session_state.c */
session_handler session_export, session_import;
/* Copies the descriptor of a seal that imports into the options. F8_EREGION, F8_ELIMIT... */
int session_read_import(struct session *session, const struct incoming *incoming,
    const struct member *member, struct member_seal *options, struct reason *reason);

/* A memfd of these bytes that nobody can change; -1 with errno set. */
int session_sealed_copy(const char *name, const void *bytes, size_t size);

/* session_metrics.c */
session_handler session_metrics;

/* session_snapshot.c */
session_handler session_snapshot;
/* session_admin.c */
session_handler session_evict, session_drain_asked, session_log_level;
/* Who asked, for the log: "uid 0, pid 4711", in a buffer, which it returns. */
#define SESSION_WHO 48
const char *session_who(const struct session *session, char buffer[SESSION_WHO]);

/* session_end.c: the request is answered if the drain is called off. F8_ENOMEM. */
int session_await_end(struct session *session, uint64_t id, struct reason *reason);

/* session_reset.c */
session_handler session_reset_amax;

/* session_watch.c */
session_handler session_watch;
void session_end_watch(struct session *session);

/* inspect.c */
session_handler session_inspect;
/* Whether a name matches what an operator gave: a glob, or nothing at all, which all match. */
bool session_matches(const char *glob, const char *name);

/* session.c: the member, if this client has joined the group. F8_ENOENT. */
int session_member(const struct session *session, uint32_t group, struct member **ret_member,
    struct reason *reason);
/* Whether a job or group may be called so: F8_EINVAL. */
int session_check_name(const char *what, const char *name, struct reason *reason);
/* Begins an answer; ends it with its status and sends it. */
void answer_begin(struct answer *answer, uint64_t id);
void answer_send(struct session *session, struct answer *answer, int status);
/* Begins the wait of a reply to request `id`; ends it, and gives the session, NULL if it is gone.
 */
void later_begin(struct later_reply *later, struct session *session, uint64_t id);
struct session *later_end(struct later_reply *later);

/*
 * session_settle.c: has the answer, which is ready, wait until snapshots that were removed are gone
 * from the disk, too: F8_OK if there are none, else SESSION_PENDING. What was done is done; if the
 * disk fails, the answer is an error that says so. Of bodies it keeps that of an evict. F8_ENOMEM.
 */
int session_settle(struct session *session, uint64_t id, struct answer *answer);

#endif
