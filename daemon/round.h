/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rounds of one generation of one group, as a pure state machine: it is told what ranks ask,
 * release and die of and what work has ended, and says through its ops what is to start, to be
 * cleaned, and to be answered. It knows ranks, buckets and places by number only, reads no clock,
 * and lives in one flat block of memory, so that a test can copy it and go through all
 * interleavings. Called by collective on the loop; ops may ask it things, but must not change it.
 *
 * Collective n runs when every rank has asked for its n-th and all asked for the same; one runs
 * at a time. Whatever goes wrong breaks the machine for good: what runs ends first, then all that
 * was asked is answered with the first cause. If it was a death or a leave, what all ranks had
 * asked for before still runs, in order, up to the first collective whose place a live rank holds
 * or that waits for another group: after the break nothing waits for a rank.
 */
#ifndef F8_DAEMON_ROUND_H
#define F8_DAEMON_ROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum round_kind {
    ROUND_SEAL,
    ROUND_PRECOMPUTE,
    ROUND_GATHER,
    ROUND_SYNC,
    ROUND_INVALIDATE,
};

#define ROUND_NO_PLACE UINT32_MAX
#define ROUND_NEVER    UINT64_MAX

/* Returned by round_ask and round_quiesce when the answer comes later, through ops->reply. */
#define ROUND_PENDING 1

/* Returned by ops->start: the collective cannot begin before something outside has happened. */
#define ROUND_LATER 1

/* A collective as a rank asks for it. */
struct round_request {
    uint64_t tag;         /* the caller's, given back in the reply; not 0 */
    uint64_t deadline_ms; /* from now on */
    enum round_kind kind;
    uint32_t bucket; /* ROUND_GATHER */
};

enum round_trouble {
    ROUND_MISMATCH, /* rank asked for request where other asked for other_request */
    ROUND_OVERDUE,  /* `number` holds up one whose deadline passed; see round_missing */
    ROUND_RANK_DIED,
    ROUND_RANK_LEFT,
    ROUND_OTHER_GROUP, /* another group broke that this one depends on */
    ROUND_RUN_FAILED,  /* status is what the run ended with */
};

/* The first thing that went wrong in a generation. */
struct round_cause {
    enum round_trouble trouble;
    int status; /* F8_E... for all who asked */
    uint64_t number;
    enum round_kind kind, other_kind;
    uint32_t bucket, other_bucket;
    uint32_t rank, other_rank;
    bool place;   /* ROUND_OVERDUE: all had asked, but no place became free */
    bool outside; /* ROUND_OVERDUE: all had asked, but it waited for another group */
};

/* What starts, and how it is answered. */
struct round_run {
    uint64_t number;
    enum round_kind kind;
    uint32_t bucket; /* ROUND_GATHER */
    uint32_t place;  /* ROUND_GATHER, once it was started */
};

struct round_ops {
    /*
     * Begin this collective; round_finished follows, later. A negative return means that it
     * cannot run, nothing was begun, and round_finished must not follow. ROUND_LATER: nothing was
     * begun either; it is tried again at round_poke.
     */
    int (*start)(void *context, const struct round_run *run);
    /*
     * Begin a rank's early part of a gather; place is ROUND_NO_PLACE if it may not write. True if
     * something was begun: then round_prepared follows, later.
     */
    bool (*prepare)(void *context, uint32_t rank, uint32_t bucket, uint32_t place);
    /* Stop early parts as soon as possible; round_prepared still follows for each. */
    void (*cancel)(void *context);
    /* A place was let go of by all. True if it must be cleaned: then round_cleaned follows. */
    bool (*clean)(void *context, uint32_t place);
    /* The machine is broken from now on; called once, before any answer. */
    void (*broken)(void *context, const struct round_cause *cause);
    /*
     * Answer a rank's request: F8_OK, or the status of the cause. It may come before the call to
     * round_ask has returned. After a mismatch `run` is what the first rank had asked for.
     */
    void (*reply)(
        void *context, uint32_t rank, uint64_t tag, int status, const struct round_run *run);
    /* Answer a rank's quiesce. */
    void (*quiesced)(void *context, uint32_t rank, uint64_t tag);
};

struct rounds;

/* What a machine is for. */
struct round_shape {
    uint32_t ranks;
    uint32_t buckets;   /* 0 before the seal */
    uint32_t slots;     /* shared places: 0 to slots - 1; bucket b's own place is slots + b */
    uint32_t depth;     /* collectives that may be open at once; at least 1 */
    const bool *shared; /* borrowed for the call: per bucket, whether it takes a slot */
    uint64_t first;     /* number of the first collective */
    bool sealed;        /* a rank that leaves breaks it even while nothing is open */
};

/* NULL if memory is short. No rank has entered yet. Ended with free(). */
struct rounds *round_new(
    const struct round_shape *shape, const struct round_ops *ops, void *context);

/* Bytes of the block, for a copy. */
size_t round_size(const struct rounds *rounds);

/* A rank takes part from now on. */
void round_enter(struct rounds *rounds, uint32_t rank);

/*
 * A rank asks for its next collective: ROUND_PENDING, or a refusal that changes nothing:
 * F8_EBROKEN, F8_EBUSY (it asked for or holds the bucket, or uses all slots; the text is
 * round_busy_text's matter), F8_ELIMIT (it is `depth` collectives ahead).
 */
int round_ask(
    struct rounds *rounds, uint64_t now, uint32_t rank, const struct round_request *request);

/* The rank's shards of the bucket are final. F8_OK, F8_EBROKEN, F8_EBUSY. */
int round_prepare(struct rounds *rounds, uint32_t rank, uint32_t bucket);

/* The rank has done with a gathered bucket. F8_EORDER if it does not hold it, or there is none. */
int round_release(struct rounds *rounds, uint32_t rank, uint32_t bucket);

/* Wait until nothing reads the rank's shards: F8_OK at once, ROUND_PENDING, F8_EBUSY if it waits
 * already. */
int round_quiesce(struct rounds *rounds, uint32_t rank, uint64_t tag);

/* The rank takes no further part; it holds nothing and is not answered. */
void round_leave(struct rounds *rounds, uint32_t rank, bool died);

/* Work that an op began has ended. */
void round_finished(struct rounds *rounds, int status);
void round_prepared(struct rounds *rounds, uint32_t rank, uint32_t bucket);
void round_cleaned(struct rounds *rounds, uint32_t place);

/* What held up the head may have ended. */
void round_poke(struct rounds *rounds);

/*
 * The run must wait for another group before it goes on: true if it may, and then round_resume
 * follows, or a break, at which it is over without round_finished. False after a break: the run
 * must end at once, by round_finished.
 */
bool round_pause(struct rounds *rounds);
void round_resume(struct rounds *rounds);

/* A group that this one depends on broke, and so does this one. Status is for all who asked. */
void round_break(struct rounds *rounds, int status);

/* Fails what is overdue. */
void round_tick(struct rounds *rounds, uint64_t now);

/* When round_tick should next be called; ROUND_NEVER if nothing waits. */
uint64_t round_deadline(const struct rounds *rounds);

/* Whether no work is in flight and nothing is unanswered. */
bool round_drained(const struct rounds *rounds);

bool round_is_broken(const struct rounds *rounds);

/* The collective that is next to end: false if none is open. */
struct round_head {
    struct round_run run;
    uint64_t opened;   /* the `now` of the first request for it */
    uint64_t deadline; /* on the same clock */
    bool running;
    bool complete; /* all ranks have asked */
    bool outside;  /* and it waits for another group */
};
bool round_head(const struct rounds *rounds, struct round_head *ret_head);

/* Whether the rank has not yet asked for collective `number`. */
bool round_missing(const struct rounds *rounds, uint64_t number, uint32_t rank);

/* Whether the rank holds, or has asked for, the bucket; whether it holds it. */
bool round_uses(const struct rounds *rounds, uint32_t rank, uint32_t bucket);
bool round_holds(const struct rounds *rounds, uint32_t rank, uint32_t bucket);

/* Pairs of a rank and a bucket that it holds. */
uint32_t round_num_held(const struct rounds *rounds);

/* Where a bucket lies that the rank holds; ROUND_NO_PLACE: it does not, or there is none. */
uint32_t round_place(const struct rounds *rounds, uint32_t rank, uint32_t bucket);

/* Whether a request of the rank is open that reads shards of the bucket. */
bool round_reads(const struct rounds *rounds, uint32_t rank, uint32_t bucket);

/* Whether the rank has an open collective of this kind. */
bool round_asked(const struct rounds *rounds, uint32_t rank, enum round_kind kind);

/* Whether the rank has any open collective. */
bool round_is_open(const struct rounds *rounds, uint32_t rank);

/* Number of collectives that have ended well. */
uint64_t round_completed(const struct rounds *rounds);

/* The number that the rank's next collective will get. */
uint64_t round_next_of(const struct rounds *rounds, uint32_t rank);

/* The number that the next new collective will get. */
uint64_t round_next(const struct rounds *rounds);

#endif
