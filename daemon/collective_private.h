/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the collective share: collective.c (requests, generations, the clock),
 * collective_run.c (what a round does), collective_early.c (pre-gathers and cleaning) and
 * collective_cause.c (sentences).
 */
#ifndef F8_DAEMON_COLLECTIVE_PRIVATE_H
#define F8_DAEMON_COLLECTIVE_PRIVATE_H

#include "daemon/collective.h"
#include "daemon/log.h"
#include "status.h"

/* Which weights a run goes over, and what it does with them now. */
enum run_phase {
    RUN_AMAX,     /* amaxes of weights that need a scale */
    RUN_REDUCE,   /* the amaxes, with other hosts */
    RUN_EXCHANGE, /* with other groups, for weights whose amax is taken over more ranks */
    RUN_CAST,     /* into the place */
    RUN_SPREAD,   /* between the hosts, what is left of it */
};

struct asked_times;
struct device_run;
struct landed;
struct told;

/*
 * A rank's early part of a gather. Task i is for weight first + i of the bucket. Tasks are large
 * and most buckets are at rest, so pairs take one when they need it and give it back.
 */
struct early {
    struct backend_work work;
    struct collective *collective; /* borrowed: outlives it */
    struct backend_task *tasks;    /* owned: one a weight; an empty FILL: nothing was done */
    struct early *next_spare;      /* borrowed: of the same collective */
    uint32_t max_tasks;
    uint32_t rank, bucket;
    bool running;
    bool valid; /* tasks hold results for the gather to come */
};

/* The cleaning of one place. */
struct cleaning {
    struct backend_work work;
    struct backend_steps steps;    /* on devices */
    struct backend_task *tasks;    /* borrowed: one, or on devices one for each */
    struct collective *collective; /* borrowed: outlives it */
    uint32_t place;
};

/* What a run gathers per weight. */
struct run_weight {
    uint32_t amax;
    struct f8k_counts counts;
    uint64_t version;
};

/* The round that runs. */
struct run {
    struct round_run round;
    enum run_phase phase;
    uint32_t first, count;         /* weights */
    uint32_t weight, rank;         /* cursor: next pair to make tasks of */
    uint32_t end;                  /* of the weights that the cursor goes over now */
    bool computing;                /* on the host: `work` is submitted */
    struct member **members;       /* owned array by rank; borrowed members: as of its start */
    const struct member **sources; /* owned array: with a table, by rank and source; as members */
    struct run_weight *weights;    /* owned: by weight of the list */
    struct backend_task *tasks;    /* owned: room for max_tasks */
    uint32_t *task_weights;        /* owned: which weight a task is for */
    uint32_t max_tasks;
    struct backend_work work;
    struct backend_reserve reserve; /* for a seal */
};

/* What a gather's weights met that operators are told of. */
struct findings {
    double saturated; /* the largest part of a weight's elements, if over the threshold */
    uint64_t nan;     /* the most elements of a weight */
    uint64_t stale_version;
    uint32_t num_saturating, num_stale;
    uint32_t saturating, with_nan, stale; /* which weight: the worst, the first */
};

#define AMAX_NONE UINT32_MAX

/* A group whose weights name an amax group, as that one sees it. */
struct amax_source {
    struct group *group; /* borrowed: linked */
    uint32_t *weights;   /* owned: by entry, the weight of the source, or AMAX_NONE */
};

/* What an amax group of others knows of them, from its seal on. An entry is a weight of its list.
 */
struct amax_table {
    struct amax_source *sources; /* owned; the rest too */
    uint32_t num_sources;        /* 0: the group is nobody's amax group */
    uint32_t *seats;             /* by rank and source: the rank in the source, or AMAX_NONE */
    uint32_t *sharers;           /* by bucket: sources that have it, and other hosts */
    uint32_t *posted;            /* by bucket: sources whose running gather has posted; hosts too */
    uint32_t *posted_here;       /* by bucket: of them, this host's */
    uint32_t *amaxes;            /* by entry: what was posted so far */
};

struct collective {
    struct collective_context *context; /* borrowed: outlives it */
    struct group *group;                /* borrowed: frees it first */
    struct rounds *rounds;              /* owned */
    struct rounds *sealed;              /* owned: made by the seal, takes over when it ends */
    struct backend *backend;            /* borrowed: the generation's, from its seal on */
    struct device_run *device;          /* owned: of a group on devices; NULL: on the host */
    char arena_name[2 * (F8_PROTO_MAX_NAME + 1) + 16]; /* what the reservation is called */
    struct run run;
    struct early **earlies;              /* owned: by bucket * world_size + rank; NULL: at rest */
    struct early *spare_earlies;         /* owned: a list, the smallest first */
    struct cleaning *cleanings;          /* owned: by place; NULL unless the group poisons */
    struct backend_task *cleaning_tasks; /* owned: theirs */
    uint32_t num_earlies;
    struct amax_table table;
    uint32_t *entries; /* owned: by weight, its entry in the amax group's list, or AMAX_NONE; NULL
                          until that group is sealed */
    struct collective *next_event; /* borrowed: the context's queue */
    struct reason broken_by;       /* for break_status */
    int break_status;              /* a linked group broke with this: to be broken too */
    int cause_status;              /* of group->cause: what those get who wait as it breaks */
    bool broken_at_rest;           /* and nothing was open there */
    bool queued;
    bool exchanging; /* the running gather has posted its amaxes and waits */
    struct weights_layout layout;
    struct reason refusal; /* why start() could not, or why the reservation failed */
    uv_timer_t timer;
    struct collective_rest *rests; /* borrowed list: what waits until no round runs */
    struct hosts *hosts;           /* owned: see collective_hosts.h; NULL: on this host only */
    struct hosts *next_hosts;      /* owned: of the next generation, if they are others */
    struct state_waiter settling;  /* the running seal waits for the disk */
    bool is_settling;              /* that is so */
    bool is_stateless;             /* the seal has no state, nor has it dropped one */
    const uint8_t *continues;      /* borrowed: the values that a seal goes on from; NULL: none */
    bool was_sealed;               /* in this generation */
    uint64_t mark;                 /* collectives below it are awaited as the daemon ends */
    uint64_t warned;           /* number of the last collective that was logged as slow, plus one */
    bool warned_stale;         /* in this generation */
    struct told *told;         /* owned: by bucket, from the seal on */
    struct asked_times *times; /* owned: of open gathers */
    struct counters_group counters;
    bool listed; /* it has a name in the text of metrics */
    bool dirty;  /* places may hold other bytes than zeros where padding is */
};

extern const struct round_ops collective_round_ops;

/* Who has the rank, or had it last: may not have re-joined. NULL: nobody yet. */
static inline const struct member *collective_holder(const struct group *group, uint32_t rank)
{
    const struct member *there = group_member_of(group, rank);
    return there ? there : group->members[rank];
}

/* For lines of log that are about the group. */
static inline struct log_fields collective_fields(const struct group *group)
{
    return (struct log_fields){.job = group->job->name, .group = group->name};
}

/* What those get who wait in a group that is broken. */
static inline int collective_cause_status(const struct collective *collective)
{
    return collective->cause_status < 0 ? collective->cause_status : F8_EBROKEN;
}

/* collective.c */
void collective_settle(struct collective *collective);
/* Breaks the group for a reason that none of its ranks asked for, unless it is broken. */
void collective_break(struct collective *collective, int status, const struct reason *reason);
/* A machine for a generation that is forming: all it can do is seal. NULL if memory is short. */
struct rounds *collective_forming(struct collective *collective, uint64_t first);
/* Refusals of a request that is for groups of this state; of one on shards, which not all have. */
int collective_check_member(
    const struct member *member, enum group_state state, struct reason *reason);
int collective_check_has_shards(const struct group *group, struct reason *reason);

/* collective_amax.c */

/* The shard of a rank that counts for a weight of the list: whose it is, and which there. */
const struct member *collective_shard_of(
    const struct collective *collective, uint32_t rank, uint32_t weight, uint32_t *ret_weight);
/* Fills in run.sources. */
void collective_set_sources(struct collective *collective);
/* Gives the state of an entry to all sources; the largest amax that their last gathers met. */
void collective_push(struct collective *collective, uint32_t entry);
uint32_t collective_local_amax(const struct collective *collective, uint32_t entry);
/* Another host's amaxes of a bucket, by weight. False: it must wait for the bucket's last ones, or
 * for memory. */
bool collective_post_far(
    struct collective *collective, uint32_t host, uint32_t bucket, const uint32_t *amaxes);
/* Breaks what waits here in bucket `told` and has `awaited`, in which `group` of the host waits. */
void collective_cross_far(struct collective *collective, const char *host, const char *group,
    uint32_t told, uint32_t awaited);
/* Whether the running gather needs amaxes of other groups; exchanges them, as the last thing. */
bool collective_must_exchange(const struct collective *collective);
void collective_exchange(struct collective *collective);
/* The running gather is over before its exchange was. */
void collective_withdraw(struct collective *collective);
void collective_drop_table(struct collective *collective);
void collective_drop_entries(struct collective *collective);

/* collective_sources.c */
int collective_compare_sources(struct collective *collective, struct weight_list **ret_list);
int collective_make_table(struct collective *collective);

/* collective_link.c */
void collective_poke_sources(struct collective *collective);
/* Another group may be able to go on: it is looked at once this event is over. */
void collective_wake(struct collective *collective);
/* Breaks a group as an event of its own, unless it is broken. */
void collective_break_later(struct collective *collective, int status, const struct reason *reason);
/* at_rest: it broke as runs end, when nothing was open. */
void collective_break_linked(struct collective *collective, int status, bool at_rest);
void collective_dequeue(struct collective *collective);
void collective_serve_events(struct collective_context *context);
/* Whether a member has an open collective in the amax group: the gather comes after it. */
bool collective_is_fenced(const struct collective *collective);
/* F8_EBUSY if the member's client has an open gather in a source: it comes before. */
int collective_check_sources(const struct member *member, struct reason *reason);
/* Whether the member's client has an open collective of the kind in its amax group. */
bool collective_reads_for(const struct member *member, enum round_kind kind);
/* Whether nothing is in flight that reads the group's shards. */
bool collective_is_quiet(const struct group *group);

/* collective_run.c */
/* Goes on with a gather whose exchange is over; ends the run with a refusal. */
void collective_go_on(struct collective *collective);
void collective_fail(struct collective *collective, int status);
int collective_start(void *context, const struct round_run *run);
int collective_prepare_runs(struct collective *collective);
void collective_drop_runs(struct collective *collective);
/* Whether a gather of the weight must first find its scale. */
bool collective_wants_amax(const struct collective *collective, uint32_t weight);

/* Whether the running round reduces the weight's amax. */
bool collective_reduces(const struct collective *collective, uint32_t weight);
/* The scales that follow from what the run has reduced. */
void collective_set_scales(struct collective *collective);
/* Goes on with a run, once its amaxes have been reduced over the hosts. */
void collective_reduced(struct collective *collective, const uint32_t *amaxes);
/* Puts the cursor to the first pair, for a phase. */
void collective_begin_phase(struct collective *collective, enum run_phase phase);
/* The round is done: answers, and what the state learns. */
void collective_end_run(struct collective *collective);

/* collective_rest.c: does what waits for the group's rest, if it has come; tells it of the end. */
void collective_serve_rest(struct collective *collective, bool starts);
void collective_drop_rests(struct collective *collective);

/* collective_tasks.c */
/* Fills in one task that writes a rank's shard of a weight into a place. */
void collective_write_task(const struct collective *collective, const struct member *member,
    uint32_t weight, uint8_t *place, struct backend_task *ret_task);
void collective_amax_task(
    const struct member *member, uint32_t weight, struct backend_task *ret_task);
/* The next tasks of the phase, from the cursor on; whether the cursor is at the end after them. */
bool collective_fill_batch(struct collective *collective);
/* Where the place of the running gather is for a member; what the tasks of the batch have found. */
uint8_t *collective_run_place(const struct collective *collective, const struct member *member);
void collective_take_results(struct run *run);

/* collective_sync.c: what a sync or an invalidate does. */
void collective_move_state(struct collective *collective);
/* How many amaxes of the run are to be reduced over the hosts; this host's; the reduced ones. */
uint32_t collective_count_amaxes(const struct collective *collective);
void collective_write_amaxes(const struct collective *collective, uint32_t *ret_amaxes);
void collective_read_amaxes(struct collective *collective, const uint32_t *amaxes);

/* collective_seal.c */
int collective_start_seal(struct collective *collective);

/* collective_reserve.c: which backend, and its memory; end_seal follows. */
int collective_choose_backend(struct collective *collective);
int collective_reserve(struct collective *collective);
/* Whether the arena of the generation before, with what forms it, serves again. */
bool collective_arena_serves(const struct collective *collective);
/* On devices: what is there does not serve again. */
void collective_arena_failed(struct collective *collective);
void collective_drop_arena(struct group *group);
/* What is left of the seal; and its end, later if what it dropped must first go from the disk. */
void collective_end_seal(struct collective *collective, int status);
void collective_sealed(struct collective *collective, int status);

/*
 * collective_device.c: the same on devices, where works are queued, not done, and their results
 * land later.
 */
int collective_prepare_device(struct collective *collective);
void collective_drop_device(struct collective *collective);
int collective_device_start(struct collective *collective);
/* The same, or its casts, once it is the group's turn among the groups over hosts. F8_ENOMEM:
 * nothing is queued. */
int collective_device_begin(struct collective *collective);
void collective_device_finished(struct collective *collective, int status);
void collective_device_go_on(struct collective *collective);
/* The amaxes that a gather waited for are those of all hosts. As the last thing. */
void collective_device_reduced(struct collective *collective);
/* Answers all of a member's quiesces; those of all that waited for a landing. */
void collective_answer_quiesces(struct member *member);
void collective_end_quiesces(struct collective *collective);
/* Whether results are still to land, of the group or of those that it takes amaxes from. */
bool collective_awaits_landing(const struct group *group);
bool collective_awaits_sources(const struct group *group);

/* Where the rank's device, or the host, has the arena. */
uint8_t *collective_base(const struct group *group, const struct member *member);

/*
 * collective_state.c: whether the state that the seal asks for is there and fits; takes it, once
 * all else is ready, and stores it as the group's; keeps what a sync or invalidate made of it.
 */
int collective_check_state(struct collective *collective, const struct weight_list *list);
/* Finds what is stored for the group, and holds it. */
void collective_find_state(struct collective *collective);
int collective_take_state(struct collective *collective);
/* Whether the seal is to wait until what it dropped is gone from the disk, too: collective_sealed
 * follows. */
bool collective_settle_state(struct collective *collective);
void collective_keep_state(struct group *group);

/* collective_count.c: the beginning and end of counting; a generation begins. */
int collective_count_init(struct collective *collective);
void collective_count_done(struct collective *collective);
void collective_count_restart(struct collective *collective);
/* round_ask, with the time taken. */
int collective_ask_round(
    struct collective *collective, uint32_t rank, const struct round_request *request);
/* What a gather met, of which operators are told later; that the run, a gather, has ended; that the
 * generation broke. */
void collective_count_met(struct collective *collective, struct findings *findings, uint32_t weight,
    const struct f8k_counts *counts, bool stale);
void collective_count_gather(struct collective *collective);
void collective_count_failed(struct collective *collective, enum round_trouble trouble);

/* collective_tell.c: events for operators. */
struct world_host;
void collective_tell_rank(const struct member *member, enum f8_proto_event kind);
void collective_tell_sealed(const struct group *group);
void collective_tell_broken(
    const struct collective *collective, const struct round_cause *cause, bool at_rest);
void collective_tell_host_lost(
    const struct hosts *hosts, const struct world_host *host, const struct reason *why);
int collective_prepare_told(struct collective *collective);
void collective_drop_told(struct collective *collective);
/* Of a weight whose gather met anything; then, of its bucket. */
void collective_note(const struct collective *collective, struct findings *findings,
    uint32_t weight, const struct f8k_counts *counts, bool stale);
void collective_tell_findings(
    struct collective *collective, uint32_t bucket, const struct findings *findings);

/* collective_early.c */
bool collective_prepare(void *context, uint32_t rank, uint32_t bucket, uint32_t place);
void collective_cancel(void *context);
bool collective_clean(void *context, uint32_t place);
int collective_prepare_earlies(struct collective *collective);
void collective_drop_earlies(struct collective *collective);
/* The early task for a pair, or NULL. */
const struct backend_task *collective_early_task(
    const struct collective *collective, uint32_t weight, uint32_t rank);
void collective_forget_early(struct collective *collective, uint32_t bucket);

/* collective_cause.c */
/* "rank 1 (pid 4711)", "rank 1 (pid 4711 on host b)": in the buffer, which it returns. */
#define COLLECTIVE_WHO 128
const char *collective_who(const struct member *member, char buffer[COLLECTIVE_WHO]);
/* "rank 1 (pid 4711)", "rank 1 (pid 4711 on host b)", "rank 1 (pid 4711, not re-joined)", "rank 1
 * (not there)", or "rank 1 (not there, of host b)". */
void collective_append_rank(struct reason *reason, const struct group *group, uint32_t rank);
void collective_broken(void *context, const struct round_cause *cause);
int collective_check_versions(
    struct collective *collective, uint32_t first, uint32_t count, struct run_weight *weights);

#endif
