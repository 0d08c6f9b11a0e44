/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups over several hosts, for the files of the collective. A group has a struct hosts, made
 * with its unique id: the world that its daemons form, what the other hosts have told, and the
 * engine that moves bytes between them. Ranks of other hosts are members of the group without
 * shards ("far"), in the same machine of rounds as those of this one: collective_hosts.c has the
 * world, collective_wire.c what is told, collective_held.c what is heard and when it is served,
 * collective_engine.c the engine, which for groups on devices is collective_comm.c's, with
 * collective_turn.c for the order of what it does. On the loop.
 */
#ifndef F8_DAEMON_COLLECTIVE_HOSTS_H
#define F8_DAEMON_COLLECTIVE_HOSTS_H

#include "daemon/collective_private.h"
#include "daemon/fabric.h"
#include "daemon/world.h"
#include "hosts.pb-c.h"

/* A message that came before its time. */
struct held {
    struct held *next;
    F8__HostMessage *message; /* owned */
};

/* What a host, this one too, has told. */
struct host {
    /* Of the era. */
    struct weight_list *list; /* a reference: what its ranks registered; NULL: not told yet */
    char **amax_names; /* owned, and its strings: by weight of the list, the amax group; "": its
                          own; NULL: of all */
    size_t num_amax_names;
    uint8_t *state; /* owned: what it has stored, a state's form; NULL: none, or it starts afresh */
    size_t state_size;
    uint8_t *address; /* owned: of its engine, opaque; NULL: not told yet */
    size_t address_size;
    bool engine_asked; /* it has said whether its engine is warm */
    bool engine_warm;
    uint64_t engine_mesh; /* of a warm one */
    bool is_late;         /* its engine is about to fail at the deadline, with so many */
    uint64_t late_done;   /* commands done */
    bool idle;            /* nothing is in flight there, nothing will begin */
    uint64_t completed;   /* as it became idle: see hosts_completed */
    uint64_t ready_for;   /* on devices: the last number that it was ready to queue */
    uint64_t timed, time; /* the last number that it proposed a time for, and that time */
    uint64_t reduction;   /* number of the reduction that it has told its part of; 0: none */
    uint32_t *amaxes;     /* owned: that part */
    uint32_t num_amaxes;
    bool *posted; /* owned: of an amax group, by bucket: amaxes that wait for others; NULL: none */
    /* For good. */
    bool lost;
    struct held *held; /* owned list, in order */
};

/* The part of a seal or a round that the engine is at. */
enum engine_step {
    ENGINE_AT_REST,
    ENGINE_ASKS,  /* whether all hosts' engines are warm */
    ENGINE_OPENS, /* and tells its address */
    ENGINE_MEETS, /* waits for the others' addresses */
    ENGINE_CONNECTS,
    ENGINE_RESERVES,
    ENGINE_MAPS,
    ENGINE_AGREES, /* that all hosts have come through the seal */
    ENGINE_REDUCES,
    ENGINE_EXCHANGES,
    ENGINE_AWAITS_TURN, /* on devices, as the next: see collective_turn.c */
    ENGINE_QUEUES,
    ENGINE_HAS_AGREED, /* goes on when it is time, as the next */
    ENGINE_HAS_REDUCED,
    ENGINE_FAILED, /* what waits for it fails when it is time */
};

/* A group's turn on the devices. */
struct turn {
    uint64_t number; /* of what waits for it, or has it; 0: nothing */
    bool proposed;   /* all hosts are ready, and this one has proposed a time */
    struct hosts *next;
};

struct engine {
    struct fabric *fabric; /* owned; NULL: none */
    enum engine_step step;
    bool connected;
    uint64_t done;        /* commands that engines do together, since the seal */
    uint64_t mesh;        /* once connected: which connections these are, the same on all hosts */
    struct arena *mapped; /* borrowed: not sealed again by another engine; NULL: none */
    uint32_t *amaxes;     /* owned: by weight, of a reduction */
    struct fabric_span *spans; /* owned: of an exchange */
    uint32_t amaxes_capacity, spans_capacity;
    /* On devices; `mapped` is an arena there whose communicators are well, `mesh` which these are.
     */
    bool on_devices;
    bool gave_up; /* what the devices had in this era is not, or not surely, all done */
    struct turn turn;
    struct backend_unique unique;
    struct backend_world world;
    uint32_t *members;  /* owned: of the world */
    uint64_t reduction; /* number of the one that is under way */
    uint32_t reduction_count;
    uint64_t sent, received; /* bytes, of engines before this one */
    uint64_t fails_at;       /* loop time, of ENGINE_FAILED */
    int failure;             /* its status; the reason is collective->refusal */
    bool is_late;            /* of ENGINE_FAILED: at the deadline */
    bool reserving;          /* the arena's reservation is under way, and must end first */
};

/* How far a gather has come, as the weight after the last. */
struct spread {
    uint32_t casting; /* end of the piece that is being cast */
    uint32_t cast;    /* on this host */
    uint32_t sent;    /* given to the engine */
};

struct hosts {
    struct collective *collective; /* borrowed; NULL: gone, and this only waits for the others */
    struct collective_context *context; /* borrowed: outlives it */
    struct world *world;                /* owned; NULL until all local ranks are there */
    struct host *all;                   /* owned: by host; NULL until it has formed */
    uint32_t num_hosts, here;
    uint32_t local_ranks;
    uint64_t era;
    struct told *told, **told_end; /* owned list: what is to be told once it has formed */
    struct reason over;            /* why no further era can begin; empty: one can */
    bool told_idle;                /* in this era */
    bool broken_afar;              /* the break that is under way was told, or is known to all */
    bool serving;
    struct engine engine;
    struct spread spread;
    uv_timer_t timer; /* for the wait at the end */
    uint8_t id[F8_PROTO_UNIQUE_ID_SIZE];
    char name[2 * (F8_PROTO_MAX_NAME + 1) + 16]; /* of the group: "uid/job/group" */
};

/* ---- collective_hosts.c ---- */

/* Whether every rank's daemon is known. */
static inline bool hosts_formed(const struct hosts *hosts)
{
    return hosts->all != NULL;
}

/* F8_ENOMEM. */
int hosts_new(
    struct collective *collective, const struct collective_span *span, struct hosts **ret_hosts);
/* The group has no further use for it: frees it, once the others need nothing more of it. NULL
 * allowed. */
void hosts_release(struct hosts *hosts);
/* A gather has ended: its bucket is nothing that far ranks hold here. */
void hosts_release_bucket(struct hosts *hosts, uint32_t bucket);
/* Nothing of the era is in flight here, and it is broken. */
void hosts_quiet(struct hosts *hosts);
/* The next generation of the group, with the same hosts. */
void hosts_next_era(struct hosts *hosts);
/* A local rank has entered; the last one of the first era makes the daemons meet. */
void hosts_entered(struct hosts *hosts, const struct member *member);
/* Breaks the group for a reason that the other hosts know too. */
void hosts_break(struct hosts *hosts, int status, const struct reason *reason);
/* The same, and what runs cannot end: it fails for that reason. */
void hosts_fail(struct hosts *hosts, int status, const struct reason *reason);
/* "gpu-07", of a far member. */
const char *hosts_name_of(const struct hosts *hosts, const struct member *member);
/* Whether a host of that name is among them; yes until they are known. */
bool hosts_have(const struct hosts *hosts, const char *name);
/* The same of a rank that may not be there; NULL: it is of this host, or not known yet. */
const char *hosts_name_of_rank(const struct hosts *hosts, uint32_t rank);
/* Collectives that have ended well since the seal, plus one for the seal itself. */
uint64_t hosts_completed(const struct collective *collective);

/* ---- collective_wire.c: tells all other hosts ---- */

/* Sends what was told before the world had formed. */
void hosts_flush(struct hosts *hosts);
void hosts_drop_told(struct hosts *hosts);
void hosts_tell_entered(struct hosts *hosts, const struct member *member);
void hosts_tell_asked(
    struct hosts *hosts, const struct member *member, const struct round_request *request);
void hosts_tell_changed(
    struct hosts *hosts, const struct member *member, uint32_t first, uint32_t count);
void hosts_tell_gone(struct hosts *hosts, const struct member *member, bool died);
void hosts_tell_broke(struct hosts *hosts, int status, const struct reason *cause);
void hosts_tell_idle(struct hosts *hosts, uint64_t completed);
/* The engine's mesh, 0: it is not warm; or its address. */
void hosts_tell_engine(struct hosts *hosts, uint64_t mesh, const uint8_t *address, size_t size);
void hosts_tell_amax(struct hosts *hosts, uint32_t bucket, const uint32_t *amaxes, uint32_t count);
/* A group here waits for the amaxes of bucket `awaited` of the host that has told those of `told`.
 */
void hosts_tell_crossing(struct hosts *hosts, uint32_t host, uint32_t told, uint32_t awaited,
    const struct group *waiting);
void hosts_tell_late(struct hosts *hosts, uint64_t done);
void hosts_tell_turn(struct hosts *hosts, uint64_t number, uint64_t time);
void hosts_tell_reduction(
    struct hosts *hosts, uint64_t number, const uint32_t *amaxes, uint32_t count);
/* What the ranks here registered, `list`, and what is stored. F8_ELIMIT, F8_ENOMEM. */
int hosts_tell_list(
    struct hosts *hosts, const struct weight_list *list, bool continues, struct reason *reason);

/* ---- collective_held.c ---- */

/* A message has come. */
void hosts_hear(struct hosts *hosts, uint32_t host, const uint8_t *data, size_t size);
/* Serves what has come, as far as it is time for it. May break the group, never frees it. */
void hosts_serve(struct hosts *hosts);
void hosts_drop_held(struct host *host);
void host_drop_reduction(struct host *host);
/* The amax groups of its list are found, or it goes. */
void host_drop_amax_names(struct host *host);
/* Forgets what a host told of the era before. */
void host_begin_era(struct host *host);

/* ---- collective_far.c: what the seal compares between hosts ---- */

/* Before the last local rank's seal: tells the others what is registered here. */
int hosts_prepare_seal(struct hosts *hosts, const struct member *member, struct reason *reason);
/* Gives far members the lists of their hosts. F8_EPROTO, F8_EMISMATCH. */
int hosts_seat_lists(struct hosts *hosts, struct reason *reason);
/* The lists of an amax group, which the hosts have made, are the same as `list`. F8_EMISMATCH. */
int hosts_compare_lists(struct hosts *hosts, const struct weight_list *list, struct reason *reason);
/*
 * Of such lists the one that all hosts take, rank 0's: hosts have different parts of a weight, and
 * a stored state tells its shape. Borrowed: from the hosts, or `list`.
 */
struct weight_list *hosts_common_list(const struct hosts *hosts, struct weight_list *list);
/* The newest state that a host has stored, which all continue; NULL: none has any. F8_EMISMATCH. */
int hosts_newest_values(struct hosts *hosts, const struct weight_list *list, const uint8_t *own,
    const uint8_t **ret_values, struct reason *reason);
/* After the seal: far members have versions. F8_ENOMEM. */
int hosts_reserve_versions(struct hosts *hosts);

/* ---- collective_engine.c ---- */

/* In the seal: an engine that all hosts are connected by; collective_reserve follows. */
void engine_prepare(struct hosts *hosts);
/* Goes on if what the seal waits for has been told. */
void engine_poke(struct hosts *hosts);
/*
 * In the seal, after the reservation, as the last thing: maps the arena, seals it, and waits until
 * all hosts have come so far; collective_end_seal follows.
 */
void engine_reserved(struct hosts *hosts, int status);
/* The largest amaxes of all hosts; collective_reduced follows. */
void engine_reduce(struct hosts *hosts);
/* engine_abort, as memory is short for what the running round needs. */
void engine_no_memory(struct hosts *hosts);
/* Whatever is under way cannot end: it is to fail, with what collective->refusal says. */
void engine_abort(struct hosts *hosts, int status);
/* When it does, or what came by other hosts' messages goes on; ROUND_NEVER: nothing does. Then lets
 * it, as the last thing. */
uint64_t engine_due(const struct hosts *hosts);
void engine_go_on(struct hosts *hosts);
/* Whether the arena is mapped, and sealed since; it is about to be freed. */
bool engine_has_mapped(const struct hosts *hosts, const struct arena *arena);
void engine_forget_arena(struct hosts *hosts);
void engine_close(struct hosts *hosts);
/* What is left of the deadline of the seal or round that runs, in ms, but time to do it in any
 * case: ranks that have all asked in time are not to fail because the last one came late. */
uint64_t engine_patience(const struct hosts *hosts);
/* Of that as much as a helper is given. */
uint64_t helper_patience(const struct hosts *hosts);
/* What comes after the engine in the seal: the arena. */
void engine_reserve(struct hosts *hosts);
/* Whether it can do its part: not if a host is gone, or through with what begins here, and then
 * that fails. */
bool engine_can_run(struct hosts *hosts);
/*
 * Whether a helper is at work, which ends by its own deadline, and then by naming who is awaited.
 * Until then those of later rounds do not count: ranks that wait for this one are not to blame.
 */
bool engine_is_timed(const struct hosts *hosts);
/* Another host's engine is late. */
void engine_hear_late(struct hosts *hosts, uint32_t host, uint64_t done);
extern const struct fabric_listener engine_listener; /* its owner is a struct hosts */

/* ---- collective_spread.c: the exchange of a gather, in pieces ---- */

/* Nothing of the running gather is cast yet. */
void spread_begin(struct hosts *hosts);
/* Up to which weight to cast next, so that a piece can go out. */
uint32_t spread_next_piece(struct hosts *hosts);
/*
 * The weights before `end` are cast: what makes a piece of them goes out, one piece at a time.
 * After the last, collective_end_run follows; or, if the engine fails, collective_fail, but not
 * while the run computes.
 */
void spread_cast(struct hosts *hosts, uint32_t end);
/* A piece has been exchanged. */
void spread_go_on(struct hosts *hosts);

/* ---- collective_turn.c ---- */

/* What runs is to be queued on the devices, once all hosts are ready for it and it is its turn. */
void turn_ask(struct hosts *hosts);
/* Another host is ready, or has proposed a time. */
void turn_hear(struct hosts *hosts, uint32_t host, uint64_t number, uint64_t time);
/* Whether it is its turn, which it then has until the end. */
bool turn_has_come(struct hosts *hosts);
/* It has queued all, or will never. No effect on one that has asked for none. */
void turn_end(struct hosts *hosts);

/* ---- collective_comm.c: of groups on devices ---- */

/* The world of communicators for a reservation; it is the hosts' until the next. F8_ENOMEM. */
int comm_lay_out(struct hosts *hosts, const struct backend_world **ret_world);
/* Communicators are to be formed anew: the first host makes their id. */
void comm_open(struct hosts *hosts);
/* Whether that is here. */
bool comm_meets(struct hosts *hosts);
/* Other hosts will not do their part of what is queued: collective->refusal says why. */
void comm_break(struct hosts *hosts, int status);
/* What was queued has failed here, and so has it, or will, on all hosts. */
void comm_failed(struct hosts *hosts);
/* Tells this host's part of a reduction, engine.amaxes. */
void comm_reduce(struct hosts *hosts, uint32_t count);
/* Another's: false if it must wait, as one from it has not been taken. Takes the amaxes over. */
bool comm_hear_reduction(
    struct hosts *hosts, uint32_t host, uint64_t number, uint32_t *amaxes, uint32_t count);
/* Goes on with what has been told. */
void comm_poke(struct hosts *hosts);
/* The round that runs waits for its turn; collective_device_begin follows. */
void comm_await_turn(struct hosts *hosts);
/* All that it has for the devices is queued, or will never be. */
void comm_end_turn(struct hosts *hosts);

/* ---- collective_warm.c: engines that outlive their groups, for the linger of the configuration
 * ---- */

/* The group has ended well on all hosts: keeps its engine. */
void warm_keep(struct hosts *hosts);
/* The engine that was kept for this group and these hosts, if there is one. */
void warm_take(struct hosts *hosts);

#endif
