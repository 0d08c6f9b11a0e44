/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rounds of one generation of one group: see round.h. Every event first changes the tables,
 * then calls advance(), the one place where collectives start, fail and are answered; so there is
 * one order of things, whatever the event was.
 */
#include "daemon/round_tables.h"

#include "status.h"

static bool place_free(const struct rounds *rounds, uint32_t place)
{
    const struct place *p = place_at(rounds, place);
    return p->holders == 0 && !p->cleaning;
}

/* A place that the bucket may be gathered into now, or ROUND_NO_PLACE. */
static uint32_t find_place(const struct rounds *rounds, uint32_t bucket)
{
    uint32_t own = rounds->num_slots + bucket;
    if (!bucket_at(rounds, bucket)->shared)
        return place_free(rounds, own) ? own : ROUND_NO_PLACE;
    for (uint32_t slot = 0; slot < rounds->num_slots; slot++)
        if (place_free(rounds, slot))
            return slot;
    return ROUND_NO_PLACE;
}

/* Whether a place for the bucket is free, or will be without any rank's doing. */
static bool place_coming(const struct rounds *rounds, uint32_t bucket)
{
    if (!bucket_at(rounds, bucket)->shared)
        return place_at(rounds, rounds->num_slots + bucket)->holders == 0;
    for (uint32_t slot = 0; slot < rounds->num_slots; slot++)
        if (place_at(rounds, slot)->holders == 0)
            return true;
    return false;
}

static void hold(struct rounds *rounds, uint32_t rank, uint32_t bucket)
{
    *use_at(rounds, rank, bucket) = USE_HELD;
    rounds->held++;
    place_at(rounds, bucket_at(rounds, bucket)->place)->holders++;
}

/* The place's last holder is gone, or there never was one: make it free, perhaps by way of clean.
 */
static void vacate(struct rounds *rounds, uint32_t place)
{
    struct place *p = place_at(rounds, place);
    if (p->holders > 0 || p->cleaning)
        return;
    p->cleaning = rounds->ops->clean(rounds->context, place);
    rounds->cleaning += p->cleaning;
}

/* Ends whatever the rank has to do with the bucket. */
static void end_use(struct rounds *rounds, uint32_t rank, uint32_t bucket)
{
    uint8_t *use = use_at(rounds, rank, bucket);
    const struct bucket *b = bucket_at(rounds, bucket);
    if (*use == USE_NONE)
        return;
    if (b->shared)
        rank_at(rounds, rank)->slots_used--;
    bool held = *use == USE_HELD;
    *use = USE_NONE;
    if (!held)
        return;
    rounds->held--;
    place_at(rounds, b->place)->holders--;
    vacate(rounds, b->place);
}

/* The first cause is kept. Whatever goes wrong besides a death ends what a death had let go on. */
static void break_off(struct rounds *rounds, const struct round_cause *cause)
{
    /* A run that waits for another group might wait for the dead. */
    bool death =
        !rounds->paused && (cause->trouble == ROUND_RANK_DIED || cause->trouble == ROUND_RANK_LEFT);
    rounds->going_on = death && (rounds->going_on || !rounds->broken);
    if (rounds->broken)
        return;
    rounds->broken = true;
    rounds->failure = cause->status;
    rounds->paused = false; /* cancel ends that run */
    rounds->ops->broken(rounds->context, cause);
    rounds->ops->cancel(rounds->context);
}

/* Answers collective `head` on all ranks that asked for it and are still there, and ends it. */
static void answer_head(struct rounds *rounds, int status)
{
    struct round_run run = run_of(rounds, rounds->head);
    uint64_t number = rounds->head++;
    for (uint32_t r = 0; r < rounds->num_ranks; r++)
        if (rank_at(rounds, r)->present && rank_at(rounds, r)->next > number)
            rounds->ops->reply(rounds->context, r, *tag_at(rounds, number, r), status, &run);
}

static bool any_present(const struct rounds *rounds)
{
    for (uint32_t r = 0; r < rounds->num_ranks; r++)
        if (rank_at(rounds, r)->present)
            return true;
    return false;
}

/* After a death: whether the head still runs. It must be for someone, and wait for nobody. */
static bool head_goes_on(const struct rounds *rounds)
{
    if (rounds->head == rounds->tail || !any_present(rounds))
        return false;
    const struct record *record = record_at(rounds, rounds->head);
    return record->joined == rounds->num_ranks &&
           (record->kind != ROUND_GATHER || place_coming(rounds, record->bucket));
}

/*
 * Once nothing is in flight, everything that is open fails with the first cause, and early parts
 * are for nothing: no shard is read any more.
 */
static void fail_all(struct rounds *rounds)
{
    while (rounds->head < rounds->tail) {
        const struct record *record = record_at(rounds, rounds->head);
        if (record->kind == ROUND_GATHER)
            for (uint32_t r = 0; r < rounds->num_ranks; r++)
                if (*use_at(rounds, r, record->bucket) == USE_ASKED)
                    end_use(rounds, r, record->bucket);
        answer_head(rounds, rounds->failure);
    }
    for (uint32_t r = 0; r < rounds->num_ranks; r++) {
        rank_at(rounds, r)->next = rounds->tail;
        for (uint32_t b = 0; b < rounds->num_buckets; b++)
            *early_at(rounds, r, b) = EARLY_NONE;
    }
}

/* Starts the head if all is there that it needs. */
static void start_head(struct rounds *rounds)
{
    const struct record *record = record_at(rounds, rounds->head);
    if (record->joined < rounds->num_ranks)
        return;
    if (record->kind == ROUND_GATHER) {
        uint32_t place = find_place(rounds, record->bucket);
        if (place == ROUND_NO_PLACE || head_awaits_early(rounds))
            return;
        bucket_at(rounds, record->bucket)->place = place;
    }
    struct round_run run = run_of(rounds, rounds->head);
    int status = rounds->ops->start(rounds->context, &run);
    rounds->later = status == ROUND_LATER;
    rounds->running = status >= 0 && !rounds->later;
    if (rounds->later)
        rounds->going_on = false; /* after a death nothing waits */
    if (status < 0)
        break_off(rounds, &(struct round_cause){.trouble = ROUND_RUN_FAILED,
                              .status = status,
                              .number = run.number,
                              .kind = run.kind,
                              .bucket = run.bucket});
}

static bool rank_quiet(const struct rounds *rounds, const struct rank *rank)
{
    if (rounds->broken)
        return round_drained(rounds);
    return rank->next <= rounds->head && rank->early_running == 0;
}

static void answer_quiesced(struct rounds *rounds)
{
    for (uint32_t r = 0; r < rounds->num_ranks; r++) {
        struct rank *rank = rank_at(rounds, r);
        if (rank->quiesce_tag == 0 || !rank_quiet(rounds, rank))
            continue;
        uint64_t tag = rank->quiesce_tag;
        rank->quiesce_tag = 0;
        rounds->ops->quiesced(rounds->context, r, tag);
    }
}

/* Called after every event: whatever can now start or be answered does and is. */
static void advance(struct rounds *rounds)
{
    if (rounds->going_on && !rounds->running)
        rounds->going_on = head_goes_on(rounds);
    bool open = rounds->going_on || (!rounds->broken && rounds->head < rounds->tail);
    if (open && !rounds->running && !rounds->paused)
        start_head(rounds);
    if (rounds->broken && !rounds->going_on && !rounds->running && rounds->early_running == 0)
        fail_all(rounds);
    answer_quiesced(rounds);
}

static bool same_request(const struct record *record, const struct round_request *request)
{
    return record->kind == request->kind &&
           (record->kind != ROUND_GATHER || record->bucket == request->bucket);
}

static int check_ask(
    const struct rounds *rounds, uint32_t rank, const struct round_request *request)
{
    const struct rank *asker = rank_at(rounds, rank);
    if (rounds->broken)
        return F8_EBROKEN;
    if (asker->next - rounds->head >= rounds->depth)
        return F8_ELIMIT;
    if (request->kind != ROUND_GATHER)
        return F8_OK;
    if (*use_at(rounds, rank, request->bucket) != USE_NONE)
        return F8_EBUSY;
    bool shared = bucket_at(rounds, request->bucket)->shared;
    return shared && asker->slots_used == rounds->num_slots ? F8_EBUSY : F8_OK;
}

static void open_record(
    struct rounds *rounds, uint64_t now, uint32_t rank, const struct round_request *request)
{
    *record_at(rounds, rounds->tail++) = (struct record){
        .opened = now,
        .deadline = ROUND_NEVER,
        .kind = request->kind,
        .bucket = request->bucket,
        .first_rank = rank,
    };
}

static struct round_cause mismatch(const struct record *record, uint64_t number, uint32_t rank,
    const struct round_request *request)
{
    return (struct round_cause){
        .trouble = ROUND_MISMATCH,
        .status = F8_EMISMATCH,
        .number = number,
        .kind = request->kind,
        .bucket = request->bucket,
        .rank = rank,
        .other_kind = record->kind,
        .other_bucket = record->bucket,
        .other_rank = record->first_rank,
    };
}

/* A wait too long for the clock has no end. */
static uint64_t deadline_of(uint64_t now, const struct round_request *request)
{
    return request->deadline_ms < ROUND_NEVER - now ? now + request->deadline_ms : ROUND_NEVER;
}

int round_ask(
    struct rounds *rounds, uint64_t now, uint32_t rank, const struct round_request *request)
{
    int status = check_ask(rounds, rank, request);
    if (status != F8_OK)
        return status;
    struct rank *asker = rank_at(rounds, rank);
    assert(asker->present);
    uint64_t number = asker->next++;
    if (number == rounds->tail)
        open_record(rounds, now, rank, request);
    struct record *record = record_at(rounds, number);
    *tag_at(rounds, number, rank) = request->tag;
    record->joined++;
    uint64_t deadline = deadline_of(now, request);
    if (deadline < record->deadline)
        record->deadline = deadline;
    if (!same_request(record, request)) {
        struct round_cause cause = mismatch(record, number, rank, request);
        break_off(rounds, &cause);
    } else if (request->kind == ROUND_GATHER) {
        *use_at(rounds, rank, request->bucket) = USE_ASKED;
        asker->slots_used += bucket_at(rounds, request->bucket)->shared;
    }
    advance(rounds);
    return ROUND_PENDING;
}

int round_prepare(struct rounds *rounds, uint32_t rank, uint32_t bucket)
{
    if (rounds->broken)
        return F8_EBROKEN;
    uint8_t *early = early_at(rounds, rank, bucket);
    if (*early != EARLY_NONE || *use_at(rounds, rank, bucket) != USE_NONE)
        return F8_EBUSY;
    /* A slot is never taken early: the collective that is asked for next might need it. */
    uint32_t place = ROUND_NO_PLACE;
    if (!bucket_at(rounds, bucket)->shared)
        place = find_place(rounds, bucket);
    *early = EARLY_DONE;
    if (rounds->ops->prepare(rounds->context, rank, bucket, place)) {
        *early = EARLY_RUNNING;
        rounds->early_running++;
        rank_at(rounds, rank)->early_running++;
        bucket_at(rounds, bucket)->early_running++;
    }
    return F8_OK;
}

void round_prepared(struct rounds *rounds, uint32_t rank, uint32_t bucket)
{
    uint8_t *early = early_at(rounds, rank, bucket);
    assert(*early == EARLY_RUNNING);
    *early = EARLY_DONE;
    rounds->early_running--;
    rank_at(rounds, rank)->early_running--;
    bucket_at(rounds, bucket)->early_running--;
    advance(rounds);
}

int round_release(struct rounds *rounds, uint32_t rank, uint32_t bucket)
{
    if (bucket >= rounds->num_buckets || *use_at(rounds, rank, bucket) != USE_HELD)
        return F8_EORDER;
    end_use(rounds, rank, bucket);
    advance(rounds);
    return F8_OK;
}

int round_quiesce(struct rounds *rounds, uint32_t rank, uint64_t tag)
{
    struct rank *asker = rank_at(rounds, rank);
    if (rank_quiet(rounds, asker))
        return F8_OK;
    if (asker->quiesce_tag != 0)
        return F8_EBUSY;
    asker->quiesce_tag = tag;
    return ROUND_PENDING;
}

void round_leave(struct rounds *rounds, uint32_t rank, bool died)
{
    struct rank *leaver = rank_at(rounds, rank);
    if (!leaver->present)
        return;
    leaver->present = false;
    leaver->quiesce_tag = 0;
    for (uint32_t b = 0; b < rounds->num_buckets; b++)
        if (*use_at(rounds, rank, b) == USE_HELD)
            end_use(rounds, rank, b);
    /* Before anything is sealed or asked for, a rank can come and go; but one that died would be
     * waited for in vain. */
    if (died || rounds->sealed || rounds->head < rounds->tail)
        break_off(rounds, &(struct round_cause){.trouble = died ? ROUND_RANK_DIED : ROUND_RANK_LEFT,
                              .status = F8_ERANKDEAD,
                              .number = rounds->head,
                              .rank = rank});
    advance(rounds);
}

static void gather_done(struct rounds *rounds, uint32_t bucket)
{
    for (uint32_t r = 0; r < rounds->num_ranks; r++) {
        *early_at(rounds, r, bucket) = EARLY_NONE;
        if (rank_at(rounds, r)->present)
            hold(rounds, r, bucket);
        else
            *use_at(rounds, r, bucket) = USE_NONE;
    }
    vacate(rounds, bucket_at(rounds, bucket)->place);
}

void round_finished(struct rounds *rounds, int status)
{
    assert(rounds->running);
    rounds->running = false;
    struct round_run run = run_of(rounds, rounds->head);
    if (status < 0) {
        if (run.kind == ROUND_GATHER)
            vacate(rounds, run.place); /* it wrote a part */
        break_off(rounds, &(struct round_cause){.trouble = ROUND_RUN_FAILED,
                              .status = status,
                              .number = run.number,
                              .kind = run.kind,
                              .bucket = run.bucket});
    } else {
        if (run.kind == ROUND_GATHER)
            gather_done(rounds, run.bucket);
        rounds->completed++;
        answer_head(rounds, F8_OK);
    }
    advance(rounds);
}

void round_poke(struct rounds *rounds)
{
    advance(rounds);
}

bool round_pause(struct rounds *rounds)
{
    assert(rounds->running);
    if (rounds->broken)
        return false;
    rounds->running = false;
    rounds->paused = true;
    return true;
}

void round_resume(struct rounds *rounds)
{
    assert(rounds->paused);
    rounds->paused = false;
    rounds->running = true;
}

void round_break(struct rounds *rounds, int status)
{
    break_off(rounds, &(struct round_cause){
                          .trouble = ROUND_OTHER_GROUP, .status = status, .number = rounds->head});
    advance(rounds);
}

void round_cleaned(struct rounds *rounds, uint32_t place)
{
    assert(place_at(rounds, place)->cleaning);
    place_at(rounds, place)->cleaning = false;
    rounds->cleaning--;
    advance(rounds);
}

void round_tick(struct rounds *rounds, uint64_t now)
{
    if (rounds->broken)
        return;
    for (uint64_t n = rounds->head; n < rounds->tail; n++) {
        const struct record *record = record_at(rounds, n);
        if (record->deadline > now || !round_is_timed(rounds, n))
            continue;
        /* What holds up a complete collective is the head. */
        uint64_t culprit = record->joined == rounds->num_ranks ? rounds->head : n;
        const struct record *late = record_at(rounds, culprit);
        bool complete = late->joined == rounds->num_ranks;
        bool outside = rounds->paused || rounds->later;
        break_off(rounds, &(struct round_cause){.trouble = ROUND_OVERDUE,
                              .status = F8_EDEADLINE,
                              .number = culprit,
                              .kind = late->kind,
                              .bucket = late->bucket,
                              .place = complete && !outside,
                              .outside = complete && outside});
        break;
    }
    advance(rounds);
}
