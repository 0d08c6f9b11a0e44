/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is there: jobs, groups and their members, and how much memory each uid holds. Finds, makes
 * and frees; decides nothing about collectives. Called by session and collective on the loop.
 */
#ifndef F8_DAEMON_REGISTRY_H
#define F8_DAEMON_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/arena.h"
#include "daemon/config.h"
#include "daemon/device.h"
#include "daemon/history.h"
#include "daemon/reason.h"
#include "daemon/region.h"
#include "daemon/scaling.h"
#include "daemon/weights.h"

struct collective;
struct registry;
struct state;

/* A training run: the namespace of groups. Another uid's job of the same name is another job. */
struct job {
    struct registry *registry; /* borrowed */
    struct job *next;          /* borrowed: the registry's list */
    struct group *groups;      /* owned list */
    char *name;                /* owned */
    uint8_t *token;            /* owned; NULL: none */
    size_t token_size;
    uint64_t opened;       /* loop time, ms */
    uint64_t region_bytes; /* of its clients */
    uint64_t arena_bytes;
    uint32_t id; /* for the backend's turns */
    uint32_t clients;
    uid_t uid;
};

enum group_state {
    GROUP_FORMING,
    GROUP_SEALED,
    GROUP_BROKEN,
};

/* Where a rank's shard of a weight lies. */
struct shard {
    struct region *region; /* a reference; NULL if the shard is empty */
    uint64_t offset;
};

/* What a rank gave to the seal, to be compared with the others'. */
struct member_seal {
    uint64_t syncs;  /* F8_PROTO_STATE_CONTINUE */
    uint8_t *import; /* owned, F8_PROTO_STATE_IMPORT: rank 0's bytes, until the seal has ended */
    size_t import_size;
    uint32_t import_crc;
    uint32_t slots;
    uint8_t state; /* f8_proto_state */
    bool poison;
};

/* A rank of a group, as long as its client is connected, here or on another host. */
struct member {
    struct group *group;      /* borrowed: outlives its members */
    void *session;            /* borrowed: whom to answer; NULL once it left */
    struct weight_list *list; /* a reference: its own, the group's after the seal */
    struct shard *shards;     /* owned: by weight */
    uint64_t *versions;       /* owned: by weight; SCALING_VERSION_UNKNOWN at first */
    uint32_t shards_capacity;
    uint64_t *quiesces; /* owned: tags of its open ones; its credit bounds them */
    uint32_t num_quiesces, quiesces_capacity;
    uint32_t rank;
    uint32_t pid;
    bool far;                  /* of another host, without session, shards or device */
    bool far_device;           /* and works on a device there */
    int32_t far_number;        /* which */
    uint32_t far_host;         /* its number in the world */
    uint64_t generation;       /* that it takes part in */
    struct device *device;     /* a reference; NULL: its shards are on the host */
    struct ready_events ready; /* of a sealed group on devices */
    struct member_seal seal;   /* what it gave to the seal */
    struct member *next;       /* borrowed: the group's list of departed ones */
    struct member *sibling;    /* borrowed: the session's list of what its client has joined */
    struct group *names;       /* borrowed: the foreign amax group that its weights name, or NULL */
    uint32_t committed_weights, committed_buckets;
    bool registering; /* a registration of several packets is under way */
};

/* The ranks that shard the same weights. */
struct group {
    struct job *job;                 /* borrowed: outlives its groups */
    struct group *next;              /* borrowed: the job's list */
    struct group *amax_group;        /* borrowed: a foreign one, from its seal until it re-forms */
    struct group *sources;           /* borrowed: list of those whose amax group this one is */
    struct group *next_source;       /* borrowed: that list */
    struct member **members;         /* owned array, by rank; NULL: nobody; owned members */
    struct member *departed;         /* owned list: work may still read their shards */
    struct weight_list *list;        /* a reference; NULL before the first seal */
    struct scaling *scalings;        /* owned: by weight of list */
    struct history *history;         /* owned: by weight of list; NULL before the first sync */
    struct arena *arena;             /* owned; NULL before the first seal */
    uint64_t arena_bytes;            /* charged for it: its size, on each of its devices */
    int32_t *devices;                /* owned: by rank; where it lies, if it is on devices */
    uint32_t arena_slots;            /* of its tables there */
    bool arena_failed;               /* there: a work has failed, as will all that come */
    struct f8k_counts *arena_counts; /* owned: by slot, what has landed of the tables totals */
    struct state *stored;            /* borrowed: held in the store of states; NULL: none */
    struct collective *collective;   /* owned: made and freed by session */
    void *waiting;                   /* borrowed: sessions that join once it is drained */
    char *name;                      /* owned */
    struct reason cause;             /* why it broke last; empty if it never did */
    uint64_t generation;             /* from 1 */
    uint64_t gathers;
    uint64_t syncs;        /* that the state of its delayed weights has seen */
    uint64_t float8_bytes; /* gathered in float8 by one round of all buckets */
    uint32_t id;
    uint32_t world_size;
    uint32_t slots;
    bool poison;
    enum group_state state;
};

/* Bytes that a uid holds elsewhere. */
typedef uint64_t registry_held(const void *context, uid_t uid);

/* Totals for operators. */
struct registry_totals {
    uint32_t jobs, groups;
    uint64_t weights, region_bytes, arena_bytes;
};

/* NULL if memory is short. `config` outlives it. */
struct registry *registry_new(const struct config *config);

/* No job may be left. NULL allowed. */
void registry_free(struct registry *registry);

const struct config *registry_config(const struct registry *registry);

/*
 * The job of that uid and name, made if need be, with one client more. F8_EPERM: another token
 * than that of the first of its present clients; F8_ELIMIT; F8_ENOMEM.
 */
int registry_enter_job(struct registry *registry, uid_t uid, const char *name, const uint8_t *token,
    size_t token_size, uint64_t now, struct job **ret_job, struct reason *reason);

/* One client less; the job goes with its last client and its last group. */
void registry_leave_job(struct job *job);

/*
 * What else counts as held by a uid: `held` is asked, with `context` (borrowed), whenever
 * something is charged.
 */
void registry_count_also(struct registry *registry, registry_held *held, const void *context);

/* The first job, then by ->next. */
struct job *registry_jobs(const struct registry *registry);

/*
 * Charges `bytes` of regions or of an arena to a job's uid. F8_ELIMIT names `what` wants them,
 * the limit, and which jobs hold how much.
 */
int registry_charge_region(
    struct job *job, const char *what, uint64_t bytes, struct reason *reason);
int registry_charge_arena(struct job *job, const char *what, uint64_t bytes, struct reason *reason);
/* Whether `bytes` more may be held by a uid, that are not charged here. F8_ELIMIT as above. */
int registry_check_room(const struct registry *registry, uid_t uid, const char *what,
    uint64_t bytes, struct reason *reason);
void registry_discharge_region(struct job *job, uint64_t bytes);
void registry_discharge_arena(struct job *job, uint64_t bytes);

void registry_count(const struct registry *registry, struct registry_totals *ret_totals);

/* The group of that name, or NULL. */
struct group *registry_find_group(const struct job *job, const char *name);

/* Makes an empty group of generation 1; its name must be new. NULL if memory is short. */
struct group *registry_add_group(struct job *job, const char *name, uint32_t world_size);

/* Frees a group without members; its collective must be gone. */
void registry_free_group(struct group *group);

/* Seats a new member; members[rank] must be empty. NULL if memory is short. */
struct member *group_add_member(struct group *group, uint32_t rank, uint32_t pid, void *session);

/* Unseats it; it is kept among the departed until group_bury. */
void group_remove_member(struct member *member);

/*
 * The rank's member in the group's present generation, there or departed; NULL if none entered or
 * its shards were buried.
 */
struct member *group_member_of(const struct group *group, uint32_t rank);

/* Frees the departed: no work reads their shards any more. */
void group_bury(struct group *group);

/* Whether nobody of this host is in it. */
bool group_is_empty(const struct group *group);

/* The lowest rank that is seated here; NULL: none is. */
struct member *group_first_here(const struct group *group);

/* Number of ranks that take part in the group's present generation. */
uint32_t group_present(const struct group *group);

/* Room for the shards and versions of `count` weights, new ones zeroed. F8_ENOMEM. */
int member_reserve(struct member *member, uint32_t count);

/* All of its versions are unknown again: it enters a generation. */
void member_forget_versions(struct member *member);

/* Gives back the room that no further registration will need. */
void member_trim(struct member *member);

/* Puts a shard, with a new reference to its region. */
void member_set_shard(
    struct member *member, uint32_t weight, struct region *region, uint64_t offset);

/* The member of the group that the session has seated, whatever its generation, or NULL. */
struct member *group_member_for(const struct group *group, const void *session);

/* Makes or ends that `source` has its weights' amaxes taken over the ranks of `amax_group`. */
void group_link(struct group *source, struct group *amax_group);
void group_unlink(struct group *source);

/* A weight of the member that lies in the region, or NULL. */
const char *member_weight_in(const struct member *member, const struct region *region);

#endif
