/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of the hosts' model do, and how they are answered: see hosts_private.h. */
#include <string.h>
#include <unistd.h>

#include "daemon/collective_hosts.h"
#include "protocol.h"
#include "status.h"
#include "tests/lib/hosts_private.h"

/* ---- programs ---- */

static uint32_t what_of(uint32_t step)
{
    uint64_t x = (model.seed * 977 + step) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(x >> 40) % 8;
}

/* The bucket of a step that gathers; BUCKETS: it does not. */
static uint32_t bucket_of(uint32_t step)
{
    uint32_t what = what_of(step);
    return step == 0 || what < 3 ? BUCKETS : what % BUCKETS;
}

static uint64_t ask_step(struct rank *rank, bool another)
{
    struct client *client = &rank->client;
    if (rank->step == 0)
        return ask_seal(client, 1);
    if (bucket_of(rank->step) < BUCKETS && !another)
        return ask_gather(client, bucket_of(rank->step));
    if (what_of(rank->step) == 2)
        return another ? ask_precompute(client) : ask_invalidate(client);
    return (what_of(rank->step) == 0) != another ? ask_precompute(client) : ask_sync(client);
}

bool rank_can_ask(const struct rank *rank)
{
    uint32_t bucket = bucket_of(rank->step);
    return rank->state == IN && !rank->failed && rank->step < STEPS && rank->num_open < OPEN &&
           (rank->step == 0 || rank->sealed) && (bucket == BUCKETS || !rank->uses[bucket]);
}

void rank_ask(struct rank *rank, bool another)
{
    const struct hosts *hosts = model_group(rank->host)->collective->hosts;
    uint32_t bucket = bucket_of(rank->step);
    struct open_request *open = &rank->open[rank->num_open++];
    fake_enter(rank->host);
    *open = (struct open_request){
        .step = rank->step, .world = rank->world, .era = hosts ? (uint32_t)hosts->era : 0};
    if (bucket < BUCKETS && !another)
        rank->uses[bucket] = true;
    if (another)
        open->step = STEPS; /* its outcome is nobody else's */
    open->id = ask_step(rank, another);
    rank->step++;
}

void rank_release(struct rank *rank, uint32_t bucket)
{
    fake_enter(rank->host);
    rank->holds[bucket] = rank->uses[bucket] = false;
    send_release(&rank->client, bucket);
}

/* ---- entering ---- */

static void ask_to_enter(struct rank *rank, bool again, bool stray)
{
    uint8_t id[F8_PROTO_UNIQUE_ID_SIZE];
    F8__Join body = F8__JOIN__INIT;
    if (fake_is_over(model.world_now)) {
        model.world_now++;
        model_require(model.world_now < MAX_IDS, "too many worlds");
    }
    uint32_t world = stray ? MAX_IDS + 1 + rank->number : model.world_now;
    fake_unique_id(world, world * 7 % model.shape.num_hosts, id);
    body.group = (char *)(uintptr_t) "g";
    body.rank = rank->number;
    body.world_size = model.num_ranks;
    body.rejoin = again;
    body.local_ranks = model.shape.local_ranks;
    if (!again || rank->world != world)
        body.unique_id = (ProtobufCBinaryData){.data = id, .len = sizeof(id)};
    rank->world = world;
    rank->entering = ask_body(&rank->client, F8__REQUEST__BODY_JOIN, &body.base, NULL, 0);
    rank->state = ENTERING;
}

static void connect_rank(struct rank *rank)
{
    rank->alive = true;
    rank->fd = make_memfd(SHARD_BYTES);
    client_open(&rank->client, &model.rooms[rank->host], 100 + rank->number);
    client_ok(&rank->client, ask_hello(&rank->client, "job"));
    client_ok(&rank->client, ask_region(&rank->client, rank->fd));
}

void rank_enter(struct rank *rank, bool stray)
{
    bool again = rank->alive && rank->client.group != 0;
    fake_enter(rank->host);
    if (!rank->alive)
        connect_rank(rank);
    for (uint32_t b = 0; b < BUCKETS; b++)
        if (rank->holds[b])
            rank_release(rank, b);
    rank->sealed = rank->failed = false;
    rank->step = 0;
    memset(rank->uses, 0, sizeof(rank->uses));
    ask_to_enter(rank, again, stray);
}

/* Two weights a bucket, which are exchanged one after the other: see piece_bytes. */
static void register_weights(struct rank *rank)
{
    static char *const names[2 * BUCKETS] = {"w", "x", "v", "u"};
    uint64_t shape_of[2] = {2 * model.num_ranks, 4};
    F8__Weight weights[2 * BUCKETS];
    F8__Bucket buckets[BUCKETS];
    for (uint32_t w = 0; w < 2 * BUCKETS; w++) {
        weights[w] = make_weight(
            names[w], w < 2 ? F8_PROTO_DYNAMIC : F8_PROTO_DELAYED, shape_of, 2, 1, w * 512);
        weights[w].history_length = 3;
    }
    for (uint32_t b = 0; b < BUCKETS; b++)
        buckets[b] = make_bucket(b == 0 ? "a" : "b", 2 * b, 2, b > 0);
    client_ok(
        &rank->client, ask_register(&rank->client, weights, 2 * BUCKETS, buckets, BUCKETS, false));
}

void rank_end(struct rank *rank, bool died)
{
    fake_enter(rank->host);
    model_trace("rank %u %s", rank->number, died ? "dies" : "leaves");
    client_close(&rank->client, died);
    (void)close(rank->fd);
    uint32_t number = rank->number, host = rank->host;
    *rank = (struct rank){.number = number, .host = host, .fd = -1};
    bool any = false;
    for (uint32_t r = 0; r < model.num_ranks; r++)
        any = any || (model.ranks[r].host == host && model.ranks[r].alive &&
                         model.ranks[r].state != ENTERING);
    if (!any)
        fake_leave(model.world_now);
}

/* What a trainer does that has handed out a new id: ranks that wait with an older begin anew. */
static void restart_late(const struct rank *newest)
{
    for (struct rank *rank = model.ranks; rank < model.ranks + model.num_ranks; rank++)
        if (rank->host == newest->host && rank->state == IN && !rank->sealed &&
            rank->world != model.world_now)
            rank_end(rank, false);
}

static void take_entry(struct rank *rank)
{
    const F8__Reply *reply = client_reply(&rank->client, rank->entering);
    if (!reply)
        return;
    model_trace("  rank %u entered: %d %s", rank->number, reply->status, reply->text);
    rank->state = reply->status == F8_OK ? IN : OUT;
    if (rank->state == OUT) { /* as when another rank of the host gave what was valid before */
        rank->world = MAX_IDS;
        if (reply->status == F8_EMISMATCH)
            restart_late(rank);
        return;
    }
    struct group *group = model_group(rank->host);
    if (!group->members[rank->number]->list || group->members[rank->number]->list->num_weights == 0)
        register_weights(rank);
}

/* ---- answers ---- */

static void note_outcome(const struct open_request *open, enum outcome outcome)
{
    if (open->step >= STEPS || open->era >= MAX_ERAS || open->world >= MAX_IDS ||
        model.excused[open->world] || fake_is_over(open->world))
        return;
    uint8_t *noted = &model.outcomes[open->world][open->era][open->step];
    model_require(
        *noted == OUTCOME_NONE || *noted == outcome, "a collective ended differently on ranks");
    *noted = outcome;
}

static void take_answer(struct rank *rank, uint32_t i)
{
    struct open_request open = rank->open[i];
    const F8__Reply *reply = client_reply(&rank->client, open.id);
    uint32_t bucket = bucket_of(open.step);
    if (!reply)
        return;
    rank->open[i] = rank->open[--rank->num_open];
    model_trace("  rank %u step %u era %u: %d %s", rank->number, open.step, open.era, reply->status,
        reply->text);
    /* What was refused at once, or before the hosts had met, was no part of a collective. */
    const struct group *group = model_group(rank->host);
    bool met = group->collective->hosts && hosts_formed(group->collective->hosts);
    if (reply->status != F8_EBROKEN && met)
        note_outcome(&open, reply->status == F8_OK ? OUTCOME_WELL : OUTCOME_FAILED);
    if (reply->status != F8_OK)
        rank->failed = true;
    else if (open.step == 0)
        rank->sealed = true;
    else if (open.step < STEPS && bucket < BUCKETS)
        rank->holds[bucket] = true;
}

void ranks_hear(void)
{
    for (struct rank *rank = model.ranks; rank < model.ranks + model.num_ranks; rank++) {
        if (!rank->alive)
            continue;
        if (rank->state == ENTERING)
            take_entry(rank);
        for (uint32_t i = rank->num_open; i > 0; i--)
            take_answer(rank, i - 1);
        if (rank->client.num_replies > ROOMS_REPLIES / 2 && rank->client.owed == 0)
            client_forget(&rank->client);
        const struct group *group = model_group(rank->host);
        const struct member *member = group ? group->members[rank->number] : NULL;
        if ((rank->state == IN || rank->state == DONE) && rank->num_open == 0 &&
            (!member || group->state == GROUP_BROKEN || member->generation != group->generation))
            rank->failed = true;
        if (rank->failed && rank->num_open == 0 && rank->state != ENTERING)
            rank->state = OUT;
    }
}
