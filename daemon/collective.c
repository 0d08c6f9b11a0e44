/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives of a group: what members ask, generations, and the clock: see collective.h. On
 * the loop.
 */
#include "daemon/collective_hosts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "daemon/log.h"
#include "status.h"

/* A deadline further off than this is as good as none, and cannot overflow a clock. */
#define MAX_DEADLINE_MS ((uint64_t)1 << 40)

#define NAME_TEXT 384

static void reply(
    void *context, uint32_t rank, uint64_t tag, int status, const struct round_run *run)
{
    struct collective *collective = context;
    struct member *member = collective->group->members[rank];
    if (!member->far)
        collective->context->listener->done(member, tag, status, run);
}

static void quiesced(void *context, uint32_t rank, uint64_t tag)
{
    struct collective *collective = context;
    struct member *member = collective->group->members[rank];
    (void)tag; /* the first of them: what ends one ends all */
    if (!collective_awaits_landing(member->group))
        collective_answer_quiesces(member);
}

const struct round_ops collective_round_ops = {
    .start = collective_start,
    .prepare = collective_prepare,
    .cancel = collective_cancel,
    .clean = collective_clean,
    .broken = collective_broken,
    .reply = reply,
    .quiesced = quiesced,
};

struct rounds *collective_forming(struct collective *collective, uint64_t first)
{
    return round_new(
        &(struct round_shape){.ranks = collective->group->world_size, .depth = 1, .first = first},
        &collective_round_ops, collective);
}

int collective_new(struct collective_context *context, struct group *group)
{
    struct collective *collective = calloc(1, sizeof(*collective));
    if (!collective)
        return F8_ENOMEM;
    collective->context = context;
    collective->backend = context->backend;
    collective->group = group;
    collective->rounds = collective_forming(collective, 1);
    if (!collective->rounds || collective_count_init(collective) < 0) {
        free(collective->rounds);
        free(collective);
        return F8_ENOMEM;
    }
    (void)uv_timer_init(context->loop, &collective->timer); /* cannot fail */
    collective->timer.data = collective;
    group->collective = collective;
    return F8_OK;
}

static void free_closed(uv_handle_t *timer)
{
    free(timer->data);
}

void collective_free(struct group *group)
{
    struct collective *collective = group->collective;
    assert(round_drained(collective->rounds));
    collective_dequeue(collective);
    collective_drop_rests(collective);
    hosts_release(collective->hosts);
    hosts_release(collective->next_hosts);
    collective_drop_entries(collective);
    collective_drop_table(collective);
    collective_drop_earlies(collective);
    collective_drop_told(collective);
    collective_drop_runs(collective);
    collective_drop_device(collective);
    collective_count_done(collective);
    if (group->stored)
        state_release(group->stored);
    group->stored = NULL;
    free(collective->rounds);
    free(collective->sealed);
    group->collective = NULL;
    uv_close((uv_handle_t *)&collective->timer, free_closed);
}

/* Logs the head once if it has waited for too long. */
static void warn_slow(struct collective *collective, const struct round_head *head, uint64_t now)
{
    const struct group *group = collective->group;
    if (head->running || collective->warned == head->run.number ||
        now < head->opened + collective->context->config->slow_ms)
        return;
    collective->warned = head->run.number;
    char what[NAME_TEXT];
    struct log_fields fields = collective_fields(group);
    if (head->run.kind == ROUND_GATHER)
        fields.bucket = group->list->buckets[head->run.bucket].name;
    collective_describe(group, head->run.kind, head->run.bucket, what, sizeof(what));
    if (head->complete)
        log_of(&fields, LOG_LEVEL_WARNING,
            "job %s, group %s: %s, collective %" PRIu64 ", waits for %s", group->job->name,
            group->name, what, head->run.number,
            head->outside ? "the ranks of its amax group" : "a free place");
    for (uint32_t r = 0; r < group->world_size; r++) {
        struct reason who = {.text = ""};
        if (!round_missing(collective->rounds, head->run.number, r))
            continue;
        collective_append_rank(&who, group, r);
        fields.rank = LOG_RANK(r);
        fields.pid = group->members[r] ? group->members[r]->pid : 0;
        log_of(&fields, LOG_LEVEL_WARNING,
            "job %s, group %s: %s, collective %" PRIu64 ", has waited for %s for %" PRIu64 " s",
            group->job->name, group->name, what, head->run.number, who.text,
            (now - head->opened) / 1000);
    }
}

static bool is_timed(const struct collective *collective)
{
    return collective->hosts && engine_is_timed(collective->hosts);
}

static void on_timer(uv_timer_t *timer)
{
    struct collective *collective = timer->data;
    struct round_head head;
    uint64_t now = uv_now(collective->context->loop);
    if (collective->hosts && engine_due(collective->hosts) <= now) {
        engine_go_on(collective->hosts);
        return;
    }
    if (round_head(collective->rounds, &head))
        warn_slow(collective, &head, now);
    if (!is_timed(collective))
        round_tick(collective->rounds, now);
    collective_settle(collective);
}

/* When the clock must be looked at next. */
static uint64_t next_wake(const struct collective *collective)
{
    struct round_head head;
    uint64_t due = collective->hosts ? engine_due(collective->hosts) : ROUND_NEVER;
    uint64_t wake = is_timed(collective) ? ROUND_NEVER : round_deadline(collective->rounds);
    if (due != ROUND_NEVER || wake == ROUND_NEVER || !round_head(collective->rounds, &head))
        return due;
    uint64_t slow = head.opened + collective->context->config->slow_ms;
    bool warns = !head.running && collective->warned != head.run.number;
    return warns && slow < wake ? slow : wake;
}

/*
 * Tells the other hosts once nothing of the broken group's own is in flight. Not later, when linked
 * groups have let go of its shards too: their works may wait for what others have queued in vain
 * for this one, until they hear of it.
 */
static void tell_quiet(struct collective *collective)
{
    const struct group *group = collective->group;
    if (collective->hosts && group->state == GROUP_BROKEN && round_drained(collective->rounds) &&
        !collective_awaits_landing(group))
        hosts_quiet(collective->hosts);
}

/*
 * After every event, as the last thing: sets the clock, and tells when nothing is in flight any
 * more, which may free the group.
 */
void collective_settle(struct collective *collective)
{
    if (collective->hosts)
        hosts_serve(collective->hosts);
    uint64_t now = uv_now(collective->context->loop);
    uint64_t wake = next_wake(collective);
    if (wake == ROUND_NEVER)
        (void)uv_timer_stop(&collective->timer);
    else
        (void)uv_timer_start(&collective->timer, on_timer, wake > now ? wake - now : 0, 0);
    struct collective_context *context = collective->context;
    struct group *group = collective->group;
    tell_quiet(collective);
    collective_poke_sources(collective);
    collective_serve_rest(collective, false);
    if (collective_is_quiet(group)) {
        group_bury(group);
        if (group->state == GROUP_BROKEN || group_is_empty(group))
            context->listener->drained(group);
    }
    collective_serve_events(context);
}

void collective_break(struct collective *collective, int status, const struct reason *reason)
{
    if (round_is_broken(collective->rounds))
        return;
    collective->broken_by = *reason;
    collective->broken_at_rest = false;
    round_break(collective->rounds, status);
}

bool collective_is_open(const struct group *group)
{
    return group->state == GROUP_FORMING ||
           (group->state == GROUP_BROKEN && collective_is_quiet(group));
}

/* Refusals that do not depend on what is asked. */
int collective_check_member(
    const struct member *member, enum group_state state, struct reason *reason)
{
    const struct group *group = member->group;
    if (group->state == GROUP_BROKEN || member->generation != group->generation)
        return reason_set(
            reason, F8_EBROKEN, "group %s is broken: %.400s", group->name, group->cause.text);
    if (group->state == GROUP_FORMING && state == GROUP_SEALED)
        return reason_set(reason, F8_EORDER, "group %s is not sealed yet", group->name);
    if (group->state == GROUP_SEALED && state == GROUP_FORMING)
        return reason_set(reason, F8_EORDER, "group %s is sealed already", group->name);
    return F8_OK;
}

/* Why a gather is refused at once: what the rank uses. */
static int busy(const struct member *member, uint32_t bucket, struct reason *reason)
{
    const struct group *group = member->group;
    const struct bucket_info *info = &group->list->buckets[bucket];
    const struct rounds *rounds = group->collective->rounds;
    if (round_holds(rounds, member->rank, bucket))
        return reason_set(reason, F8_EBUSY, "rank %u still holds bucket %s: release it first",
            member->rank, info->name);
    if (round_uses(rounds, member->rank, bucket))
        return reason_set(
            reason, F8_EBUSY, "rank %u has an open gather of bucket %s", member->rank, info->name);
    return reason_set(reason, F8_EBUSY,
        "rank %u uses all %u shared slots of group %s: release a bucket before the gather of %s",
        member->rank, group->slots, group->name, info->name);
}

static int ask(struct member *member, const struct round_request *request, struct reason *reason)
{
    struct group *group = member->group;
    struct collective *collective = group->collective;
    const struct config *config = collective->context->config;
    struct round_request bounded = *request;
    if (bounded.deadline_ms == 0)
        bounded.deadline_ms = config->deadline_ms;
    if (bounded.deadline_ms > MAX_DEADLINE_MS)
        bounded.deadline_ms = MAX_DEADLINE_MS;
    int status = collective_ask_round(collective, member->rank, &bounded);
    if (status == ROUND_PENDING && collective->hosts)
        hosts_tell_asked(collective->hosts, member, &bounded);
    if (status == F8_EBUSY)
        return busy(member, request->bucket, reason);
    if (status == F8_ELIMIT)
        return reason_set(reason, status,
            "rank %u is %u collectives ahead of another rank of group %s, the limit (--max-rounds)",
            member->rank, config->max_rounds, group->name);
    collective_settle(collective);
    return status;
}

static int check_bucket(const struct member *member, uint32_t bucket, struct reason *reason)
{
    const struct group *group = member->group;
    if (bucket < group->list->num_buckets)
        return F8_OK;
    return reason_set(reason, F8_ENOENT, "bucket %u: group %s has %u buckets", bucket, group->name,
        group->list->num_buckets);
}

/* Places are counted and kept in tables, so their number has a limit even where they are unused. */
static int check_slots(const struct member *member, uint32_t slots, struct reason *reason)
{
    uint32_t limit = member->group->collective->context->config->max_weights;
    if (slots <= limit)
        return F8_OK;
    return reason_set(reason, F8_ELIMIT,
        "rank %u asked for %u slots in the seal of group %s, the limit is %u (--max-weights)",
        member->rank, slots, member->group->name, limit);
}

int collective_seal(
    struct member *member, uint64_t tag, const struct collective_seal *seal, struct reason *reason)
{
    int status = collective_check_member(member, GROUP_FORMING, reason);
    if (status == F8_OK && round_asked(member->group->collective->rounds, member->rank, ROUND_SEAL))
        status = reason_set(reason, F8_EORDER, "rank %u has asked for the seal of group %s already",
            member->rank, member->group->name);
    if (status == F8_OK)
        status = check_slots(member, seal->options.slots, reason);
    if (status < 0) {
        free(seal->options.import);
        return status;
    }
    free(member->seal.import);
    member->seal = seal->options;
    struct collective *collective = member->group->collective;
    if (collective->hosts)
        status = hosts_prepare_seal(collective->hosts, member, reason);
    if (status < 0) {
        collective_break(collective, status, reason);
        collective_settle(collective);
        return status;
    }
    return ask(member,
        &(struct round_request){.tag = tag, .kind = ROUND_SEAL, .deadline_ms = seal->deadline_ms},
        reason);
}

/* A number of one of the client's events, or none. */
static int check_ready(const struct member *member, uint32_t ready, struct reason *reason)
{
    uint32_t limit = member->device ? member->device->num_ready : 0;
    if (ready <= limit)
        return F8_OK;
    return reason_set(reason, F8_EINVAL, "rank %u named its event %u, it has given %u",
        member->rank, ready, limit);
}

/* Asks for a precompute, whose start takes the event, which may come at once. */
static int ask_precompute(struct member *member, const struct round_request *request,
    uint32_t ready, struct reason *reason)
{
    if (!member->device)
        return ask(member, request, reason);
    ready_events_push(&member->ready, ready);
    int status = ask(member, request, reason);
    if (status < 0)
        ready_events_take_back(&member->ready);
    return status;
}

int collective_of_group(struct member *member, enum round_kind kind, uint64_t tag,
    const struct collective_request *request, struct reason *reason)
{
    int status = collective_check_member(member, GROUP_SEALED, reason);
    if (status == F8_OK)
        status = check_ready(member, request->ready, reason);
    if (status < 0)
        return status;
    const struct group *group = member->group;
    if (group->amax_group && !weights_have_own_scales(group->list))
        return reason_set(reason, F8_EINVAL,
            "the weights of group %s have their amaxes taken over group %s: ask it there",
            group->name, group->amax_group->name);
    status = collective_check_sources(member, reason);
    if (status < 0)
        return status;
    const struct round_request asked = {
        .tag = tag, .kind = kind, .deadline_ms = request->deadline_ms};
    return kind == ROUND_PRECOMPUTE ? ask_precompute(member, &asked, request->ready, reason)
                                    : ask(member, &asked, reason);
}

/* An amax group of others has their weights and buckets in its list, and shards of none. */
int collective_check_has_shards(const struct group *group, struct reason *reason)
{
    if (group->arena && group->arena->size > 0)
        return F8_OK;
    return reason_set(
        reason, F8_EINVAL, "group %s gathers nothing: it is the amax group of others", group->name);
}

/* Whether the group can find its scales. */
static int check_scales(const struct group *group, struct reason *reason)
{
    if (group->amax_group && !group->collective->entries)
        return reason_set(reason, F8_EORDER,
            "amax group %s, which weights of group %s name, is not sealed yet",
            group->amax_group->name, group->name);
    return F8_OK;
}

/* As ask_precompute: a refusal leaves the event of the gather that is open. */
static int ask_gather(struct member *member, const struct round_request *request, uint32_t ready,
    struct reason *reason)
{
    if (!member->device)
        return ask(member, request, reason);
    uint32_t before = member->ready.buckets[request->bucket];
    ready_events_put(&member->ready, request->bucket, ready);
    int status = ask(member, request, reason);
    if (status < 0)
        member->ready.buckets[request->bucket] = before;
    return status;
}

int collective_gather(struct member *member, uint64_t tag, uint32_t bucket,
    const struct collective_request *request, struct reason *reason)
{
    int status = collective_check_member(member, GROUP_SEALED, reason);
    if (status == F8_OK)
        status = check_bucket(member, bucket, reason);
    if (status == F8_OK)
        status = collective_check_has_shards(member->group, reason);
    if (status == F8_OK)
        status = check_scales(member->group, reason);
    if (status == F8_OK)
        status = check_ready(member, request->ready, reason);
    if (status < 0)
        return status;
    return ask_gather(member,
        &(struct round_request){.tag = tag,
            .kind = ROUND_GATHER,
            .bucket = bucket,
            .deadline_ms = request->deadline_ms},
        request->ready, reason);
}

int collective_pre_gather(
    struct member *member, uint32_t bucket, uint32_t ready, struct reason *reason)
{
    int status = collective_check_member(member, GROUP_SEALED, reason);
    if (status == F8_OK)
        status = check_bucket(member, bucket, reason);
    if (status == F8_OK)
        status = collective_check_has_shards(member->group, reason);
    if (status == F8_OK)
        status = check_ready(member, ready, reason);
    if (status < 0)
        return status;
    status = round_prepare(member->group->collective->rounds, member->rank, bucket);
    if (status == F8_EBUSY)
        return reason_set(reason, status,
            "rank %u uses bucket %s already: pre-gather comes once, before its gather",
            member->rank, member->group->list->buckets[bucket].name);
    if (status == F8_OK && member->device)
        ready_events_put(&member->ready, bucket, ready);
    return status;
}

int collective_release(struct member *member, uint32_t bucket, uint32_t ready)
{
    struct group *group = member->group;
    struct reason unheard;
    if (member->generation != group->generation)
        return F8_EORDER;
    if (check_ready(member, ready, &unheard) < 0)
        return F8_EINVAL;
    /* Before: the place may be used again at once. */
    uint32_t place = round_place(group->collective->rounds, member->rank, bucket);
    if (member->device && place != ROUND_NO_PLACE)
        ready_events_release(&member->ready, place, ready);
    /* Not checked by the group's list: before the seal that is of the generation before. */
    int status = round_release(group->collective->rounds, member->rank, bucket);
    collective_settle(group->collective);
    return status;
}

uint64_t collective_place_offset(const struct group *group, uint32_t place)
{
    const struct weights_layout *layout = &group->collective->layout;
    if (place < group->slots)
        return place * layout->slot_span;
    return group->slots * layout->slot_span + group->list->buckets[place - group->slots].own;
}

uint64_t collective_completed(const struct group *group)
{
    return round_completed(group->collective->rounds);
}

bool collective_head(const struct group *group, struct round_head *ret_head)
{
    return round_head(group->collective->rounds, ret_head);
}

bool collective_missing(const struct group *group, uint64_t number, uint32_t rank)
{
    return round_missing(group->collective->rounds, number, rank);
}

bool collective_holds(const struct group *group, uint32_t rank, uint32_t bucket)
{
    /* Before the seal the machine knows no buckets. */
    return group->state == GROUP_SEALED && round_holds(group->collective->rounds, rank, bucket);
}
