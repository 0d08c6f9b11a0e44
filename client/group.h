/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group as the client knows it: what was registered, where it will lie, which buckets have open
 * requests or are held. Shared by group.c, register.c, seal.c, collective.c, gather.c, copy_out.c.
 */
#ifndef F8_CLIENT_GROUP_H
#define F8_CLIENT_GROUP_H

#include "client/client_private.h"

/* Precomputes that may be open at once; more than one is already unusual. */
#define GROUP_MAX_TICKETS 16

/* No bucket: of a weight that none has claimed yet. */
#define GROUP_NO_BUCKET UINT32_MAX

struct whole;

/* On a device: what stands for the last read of a shared slot, by where it lies in the arena. */
struct slot_event {
    uint64_t place; /* if it is known */
    bool known;
    uint32_t ready; /* number of the event */
};

struct weight {
    uint64_t shape[F8_MAX_DIMS];
    uint64_t rows, cols; /* shape[0], and the product of the rest */
    uint64_t at;         /* offset in its bucket's place */
    uint32_t ndim;
    uint32_t bucket;
    const struct f8_group *amax_group; /* borrowed: from the client; NULL: the weight's own */
    enum f8_dtype dtype;
    enum f8_flavour flavour;
    enum f8_wire wire;
    /* What another daemon would have to be told. */
    char *name;                     /* owned */
    const struct f8_region *region; /* borrowed: from the client; NULL: the shard is empty */
    uint64_t offset;
    enum f8_format format;
    int power_of_two;
    float static_scale;
    uint32_t history_length;
    enum f8_history history;
};

/* In the order of a use. From SENDING on, a shared bucket counts as having a slot. */
enum bucket_state {
    BUCKET_IDLE = 0,
    BUCKET_PRE_SENDING,  /* some thread is in f8_pre_gather */
    BUCKET_PRE_GATHERED, /* a pre-gather is sent */
    BUCKET_SENDING,      /* some thread is in f8_gather */
    BUCKET_REQUESTED,    /* a gather is sent and not waited for */
    BUCKET_HELD,         /* its views may be read */
};

struct bucket {
    char *name; /* owned */
    uint32_t first, count;
    bool shared;
    uint64_t scales; /* offset of the scales in its place */
    uint64_t span;   /* bytes of its place */
    enum bucket_state state;
    uint64_t pre_gather; /* request, 0: none */
    uint64_t gather;     /* request, 0: none */
    uint64_t place;      /* offset in the arena, while held */
    uint64_t use;        /* of the place, while held */
    uint32_t ready;      /* on a device: the open requests' event; 0: none */
};

struct f8_group {
    struct f8_client *client; /* borrowed: the client that owns this */
    struct f8_group *next;    /* borrowed: of the client's list; its lock */
    char *name;               /* owned */
    uint32_t rank, world_size;
    uint32_t id; /* of the daemon; the same in all generations */

    /* Its daemon ended and was replaced, which the trainer is told by F8_EBROKEN, whatever it asks
       for, until it re-joins. */
    atomic_bool broken;

    pthread_mutex_t lock; /* all below but num_reading; never held while waiting */
    uint64_t generation;
    uint32_t entries; /* how often it began anew, at any daemon: of the views' mark */
    bool busy;        /* a thread is in f8_register, f8_seal or f8_group_rejoin */
    bool sealed;
    bool over_hosts;
    bool lost; /* its daemon is gone, and the one that is there does not know it yet */
    bool
        rejoined; /* and then joined at that one, with no seal since: a re-join has nothing to do */
    uint64_t seal; /* request, 0: none; outlives a wait that a signal ended */
    uint32_t slots;
    bool poison;
    uint64_t syncs;         /* that the state has seen, as far as this rank has waited for them */
    struct weight *weights; /* owned */
    struct bucket *buckets; /* owned */
    uint32_t num_weights, num_buckets;
    const struct f8_group *amax_group;   /* borrowed: from the client; the only one besides itself
                                            that its weights name; NULL: none */
    uint32_t num_open;                   /* buckets with a request that is not waited for */
    uint32_t num_shared;                 /* shared buckets that have asked for a slot or hold one */
    uint64_t tickets[GROUP_MAX_TICKETS]; /* requests; 0: free */
    uint32_t ready[GROUP_MAX_TICKETS];   /* on a device: events, by ticket */
    uint32_t num_tickets;                /* those, and those being sent */
    const struct whole *kinds[GROUP_MAX_TICKETS]; /* by ticket: one of collective.c's */
    atomic_uint num_reading; /* precomputes that read shards, and those being sent; changed under
                                the lock, read without it by groups whose weights name this one */
    void *arena;             /* owned: the mapping; NULL before the first seal */
    uint64_t arena_size;
    /* On a device. */
    struct device_arena *device_arena; /* owned: that mapping; NULL before the first seal */
    struct slot_event *slot_events;    /* owned */
    uint32_t num_slot_events;
};

/* client_begin of a call of this group; NULL is allowed. F8_EBROKEN: see `broken`. */
int group_begin(struct f8_group *group);

/* F8_EBROKEN if `broken` says so. */
int group_check_broken(const struct f8_group *group);

/* CLIENT_CALL for what is asked of a group. */
#define GROUP_CALL(group, call)                                                                    \
    do {                                                                                           \
        struct f8_group *called_group = (group);                                                   \
        int begun_call = group_begin(called_group);                                                \
        return begun_call == F8_OK ? client_end(called_group->client, (call)) : begun_call;        \
    } while (0)

/* The same for what needs no daemon. */
int group_begin_local(struct f8_group *group);
#define GROUP_CALL_LOCAL(group, call)                                                              \
    do {                                                                                           \
        struct f8_group *called_group = (group);                                                   \
        int begun_call = group_begin_local(called_group);                                          \
        return begun_call == F8_OK ? client_end(called_group->client, (call)) : begun_call;        \
    } while (0)

/* The client of a group that a public function was given, for CLIENT_CALL: NULL for NULL. */
static inline struct f8_client *group_client(const struct f8_group *group)
{
    return group ? group->client : NULL;
}

/* Takes the group's lock, to be given back with pthread_mutex_unlock, unless the group is not
 * sealed: F8_EORDER. */
int group_enter_sealed(struct f8_group *group);

/* group_enter_sealed, and F8_EINVAL unless there is such a bucket, which is given. */
int group_enter_bucket(struct f8_group *group, uint32_t bucket, struct bucket **ret_bucket);

/*
 * Lets one thread at a time change what is registered: F8_EBUSY if another one is. The lock is
 * free on return; group_end_setup ends it.
 */
int group_begin_setup(struct f8_group *group);
void group_end_setup(struct f8_group *group);

/* Changes a bucket's state and what follows from it: counts, and that with its requests' end their
 * event is free; lock held. */
void group_set_state(struct f8_group *group, struct bucket *bucket, enum bucket_state state);

/*
 * What a collective of the whole group, `call`, must not overtake: F8_EBUSY with the name of a
 * bucket that has an open request, if any has. group_check_quiet looks at the group's own; lock
 * held. group_check_sources looks at those of the groups whose weights name this one; no lock held.
 */
int group_check_quiet(const struct f8_group *group, const char *call);
int group_check_sources(struct f8_group *group, const char *call);

/*
 * collective.c: forgets all open requests, whose replies nobody waits for; lock held. `holding`:
 * the rank keeps the buckets that it holds, else those are idle too.
 */
void group_abandon(struct f8_group *group, bool holding);

/* Takes the arena off the group, and ends its mapping. */
void group_unmap(struct f8_group *group, bool forked);

/* ---- group_device.c: on the host these do nothing, and numbers of events are 0 ---- */

/* Takes an event for a request. F8_ELIMIT. Given back by group_give_back, 0 is allowed. */
int group_take_ready(struct f8_group *group, uint32_t *ret_ready);
void group_give_back(struct f8_group *group, uint32_t ready);

/* Before the request is sent: the event stands for what the stream has been given so far. */
int group_record(struct f8_group *group, uint32_t ready, void *stream);

/* Makes the stream wait for an event that a reply named; lock held. F8_EPROTO, F8_EIO. */
int group_wait_done(struct f8_group *group, uint32_t done, void *stream);

/* Takes an event for each shared slot, and gives them back; lock held. F8_ELIMIT, F8_ENOMEM. */
int group_reserve_slots(struct f8_group *group, uint32_t slots);
void group_drop_slots(struct f8_group *group);

/* A gathered bucket lies at `place`; lock held. F8_EPROTO: it is shared, and no slot is there. */
int group_note_place(struct f8_group *group, const struct bucket *bucket, uint64_t place);

/*
 * Before a release is posted: later ready events stand for the stream's reads too, and so does
 * *ret_ready, which the release is to name. Lock held.
 */
int group_order_release(
    struct f8_group *group, const struct bucket *bucket, void *stream, uint32_t *ret_ready);

/* If released places are poisoned, which is not ordered by events: waits for the stream. Takes the
 * lock, does not hold it while waiting. */
int group_await_reads(struct f8_group *group, void *stream);

/* The place of a held bucket in memory; lock held. */
static inline const char *bucket_place(const struct f8_group *group, const struct bucket *bucket)
{
    return (const char *)group->arena + bucket->place;
}

/* register.c: tells a daemon that does not know them of all weights and buckets. */
int group_register_again(struct f8_group *group);

/*
 * group.c, for a daemon that knows nothing of this client yet: forgets all that was asked of the
 * one before; joins anew, without registering. `holding`: what the rank holds stays until
 * f8_group_rejoin, as when a group breaks; else the group is not sealed from now on.
 */
void group_lose(struct f8_group *group, bool holding);
int group_join_again(struct f8_group *group, const struct f8_hosts *hosts);

/* Joining and re-joining; `hosts` (borrowed for the call) is NULL for a group of one host, or, in a
 * re-join, for the hosts that it has. */
int group_join(struct f8_client *client, const char *name, uint32_t rank, uint32_t world_size,
    const struct f8_hosts *hosts, struct f8_group **ret_group);
int group_rejoin(struct f8_group *group, const struct f8_hosts *hosts);

#endif
