/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives of one group: puts the state machine of rounds to work. What ranks ask goes to
 * the machine; what the machine starts becomes backend work on the members' shards and the arena;
 * what the work finds (amax, counts) goes to the scaling state. Called by session on the loop.
 */
#ifndef F8_DAEMON_COLLECTIVE_H
#define F8_DAEMON_COLLECTIVE_H

#include <uv.h>

#include "daemon/backend.h"
#include "daemon/counters.h"
#include "daemon/events.h"
#include "daemon/registry.h"
#include "daemon/round.h"
#include "daemon/state.h"

struct collective;
struct world;
struct worlds;

/* Upward calls to the session room. */
struct collective_listener {
    /* A member's request is answered: status and, if it is negative, the group's cause. */
    void (*done)(struct member *member, uint64_t tag, int status, const struct round_run *run);
    /*
     * Nothing of a group is in flight that is broken or empty: it may be entered again, or, if it
     * is empty, freed in here. May come several times.
     */
    void (*drained)(struct group *group);
};

/* The turns of groups over hosts on the devices of this one: collective_turn.c's. */
struct collective_turns {
    uint64_t clock;         /* logical: of the latest proposal made or heard of */
    struct hosts *proposed; /* borrowed list: those that a time was proposed for */
    struct hosts *holder;   /* borrowed: whose turn it is; NULL: nobody's */
};

/* What collectives are made of; outlives them. */
struct collective_context {
    uv_loop_t *loop;                            /* borrowed */
    struct backend *backend;                    /* borrowed: the host's */
    struct backend *cuda;                       /* borrowed: of devices; NULL: there is none */
    const struct config *config;                /* borrowed */
    const struct collective_listener *listener; /* borrowed: static */
    struct state_store *states;                 /* borrowed */
    struct worlds *worlds;                      /* borrowed: groups over several hosts */
    struct warm *warm; /* owned list: engines without a group, see collective_hosts.h */
    struct collective_turns turns;
    uint64_t piece_bytes; /* a gather over hosts goes out in pieces of so much, or a weight */
    struct collective *disturbed; /* borrowed: groups that others have done something to */
    struct events *events;        /* borrowed: what operators are told; NULL: nobody is */
    bool serving, closing;
    uint64_t gathers, failed; /* totals since the daemon began */
    struct counters counters; /* and what they met */
};

/* Ends what is kept for groups to come, so that the loop can run out. */
void collective_context_close(struct collective_context *context);

/*
 * Marks what is under way in the group: what a rank has asked for, and all ranks can still come to.
 * Whether all of that has ended, well or not.
 */
void collective_mark(struct group *group);
bool collective_is_past_mark(const struct group *group);

/* An engine whose group has ended well, kept for one that comes back. */
struct collective_kept {
    const char *group; /* "uid/job/group"; borrowed: as long as it is kept */
    pid_t pid;
    uint32_t hosts;
    uint64_t left_ms;
};

/* Fills in up to `most` of them, the newest first; their number. */
uint32_t collective_list_kept(
    const struct collective_context *context, struct collective_kept *ret_kept, uint32_t most);

/*
 * Puts the name of the other host that each rank is on into world_size places, borrowed from the
 * group's world; "": this one. False, and nothing is put: the group is on one host, or its hosts
 * are not known yet.
 */
bool collective_rank_hosts(const struct group *group, const char **ret_names);

/* What a rank gives to the seal. */
struct collective_seal {
    uint64_t deadline_ms;
    struct member_seal options; /* its import is taken over, whatever the result */
};

/* Makes the group's collective, for its first generation. F8_ENOMEM. */
int collective_new(struct collective_context *context, struct group *group);

/* Only when drained; the group's pointer is NULL afterwards. */
void collective_free(struct group *group);

/* How a rank says that its group spans hosts. */
struct collective_span {
    const uint8_t *id; /* borrowed for the call: of the world; NULL: it is on one host, or, to enter
                          again, on the hosts that it was on */
    uint32_t local_ranks;
};

/*
 * Whether the rank may enter with this span, which is then that of the generation: right before
 * collective_enter, when open. F8_EMISMATCH, F8_EORDER, F8_ELIMIT, F8_EEXIST, F8_ENOMEM.
 */
int collective_set_span(struct group *group, uint32_t rank, bool again,
    const struct collective_span *span, struct reason *reason);

/* Whether a member could enter now: the group is forming, or broken and drained. */
bool collective_is_open(const struct group *group);

/*
 * A member takes part from now on: in the generation that is forming, or, if the group is broken,
 * in the next one, which this begins. F8_ENOMEM. Only when open.
 */
int collective_enter(struct member *member);

/* A member takes no further part. Its shards are read until the group is drained. */
void collective_leave(struct member *member, bool died);

/*
 * Around what changes several groups as one event, such as a client that leaves all of its: what
 * one group does to another waits until it is over. What _hold gives, _let_go takes.
 */
bool collective_hold(struct collective_context *context);
void collective_let_go(struct collective_context *context, bool held);

/* What comes with a request. */
struct collective_request {
    uint64_t deadline_ms; /* 0: the configured one */
    uint32_t ready;       /* number of the client's event; 0: none */
};

/*
 * A member's requests, for its generation: ROUND_PENDING (the answer comes through done), F8_OK,
 * or a refusal with its reason.
 */
int collective_seal(
    struct member *member, uint64_t tag, const struct collective_seal *seal, struct reason *reason);
/* ROUND_PRECOMPUTE, ROUND_SYNC or ROUND_INVALIDATE. */
int collective_of_group(struct member *member, enum round_kind kind, uint64_t tag,
    const struct collective_request *request, struct reason *reason);
int collective_gather(struct member *member, uint64_t tag, uint32_t bucket,
    const struct collective_request *request, struct reason *reason);
int collective_pre_gather(
    struct member *member, uint32_t bucket, uint32_t ready, struct reason *reason);
int collective_release(struct member *member, uint32_t bucket, uint32_t ready);
int collective_quiesce(struct member *member, uint64_t tag, struct reason *reason);

/* Counts a change of weights [first, first + count). F8_EBUSY names an open request on them. */
int collective_changed(
    struct member *member, uint32_t first, uint32_t count, struct reason *reason);

/* Whether the member's shard of the weight may be moved now. F8_EBUSY. */
int collective_check_move(struct member *member, uint32_t weight, struct reason *reason);

/*
 * Something that is done to a group between two rounds: at_rest is called when none runs and
 * nothing that one has found is on its way, perhaps within collective_await_rest; with NULL, if the
 * group is gone before. It may read and change the scaling state.
 */
struct collective_rest {
    void (*at_rest)(struct collective_rest *rest, struct group *group);
    struct collective_rest *next; /* borrowed: the collective's list */
};
void collective_await_rest(struct group *group, struct collective_rest *rest);

/* The group's own delayed weights whose names match the glob: how many; they begin anew, at rest
 * only. */
uint32_t collective_count_delayed(const struct group *group, const char *glob);
uint32_t collective_reset_amaxes(struct group *group, const char *glob);

/* Whether other hosts have a part in the group. */
bool collective_spans_hosts(const struct group *group);

/* Ends the communicators that devices keep for groups of the job to come; how many. */
uint32_t collective_drop_communicators(
    struct collective_context *context, uid_t uid, const char *job);

/* Ends the engines that are kept for groups of the job to come; how many. */
uint32_t collective_drop_warm(struct collective_context *context, uid_t uid, const char *job);

/* The done event of what ended last, as its index plus one; 0: none. Within `done` only. */
uint32_t collective_done_event(const struct group *group);

/* Where a member's gathered bucket begins in the arena. */
uint64_t collective_place_offset(const struct group *group, uint32_t place);

/* What the hosts of a group wait for that have not met; false: it has none, or they have, or never
 * will. */
struct world_meeting;
bool collective_meeting(const struct group *group, struct world_meeting *ret_meeting);

/* The hosts of a group that spans several, once they have met; NULL. What its engine did. */
const struct world *collective_world(const struct group *group);
struct collective_engine {
    const char *name;        /* borrowed: static: "gloo", "nccl"; "": the first seal decides */
    uint32_t pid;            /* of its helper; 0: none */
    bool untold;             /* NCCL does not say what it moves */
    uint64_t sent, received; /* bytes */
};
void collective_engine(const struct group *group, struct collective_engine *ret_engine);
/* Whether what runs is at what its engine does with the other hosts'. */
bool collective_is_between_hosts(const struct group *group);

/* What the group's gathers met since it was made, and whether metrics show it under its name. */
const struct counters_group *collective_counters(const struct group *group);
bool collective_is_listed(const struct group *group);

/* Collectives that have ended well in this generation. */
uint64_t collective_completed(const struct group *group);

/* What waits or runs now; false if nothing is open. */
bool collective_head(const struct group *group, struct round_head *ret_head);
bool collective_missing(const struct group *group, uint64_t number, uint32_t rank);

/* Whether the rank holds the gathered bucket. */
bool collective_holds(const struct group *group, uint32_t rank, uint32_t bucket);

/* What this host's ranks have been given and not yet released, of a broken group too. */
struct collective_leases {
    uint32_t count;     /* pairs of a rank and a bucket */
    uint64_t oldest_ms; /* since the end of the gather that gave the oldest; 0: there is none */
};
void collective_leases(const struct group *group, struct collective_leases *ret_leases);

/* "gather of layers.4", "precompute", "seal": in a buffer, which it returns. */
char *collective_describe(
    const struct group *group, enum round_kind kind, uint32_t bucket, char *buffer, size_t size);

#endif
