/* SPDX-License-Identifier: Apache-2.0 */
/* Random orders of what happens to a group over several hosts: see hosts_model.h. */
#include "tests/lib/hosts_model.h"

#include <check.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/collective_hosts.h"
#include "protocol.h"
#include "tests/lib/fake_hosts.h"
#include "tests/lib/loop_turn.h"
#include "tests/lib/rooms.h"

#define MAX_RANKS   6
#define BUCKETS     2
#define OPEN        3 /* requests of a rank */
#define STEPS       7 /* of a program; the first is the seal */
#define MAX_IDS     48
#define MAX_ERAS    16
#define EVENTS_MOST 40000
#define STUCK_MS    1500
#define ONE_IN      60 /* events is a fault */
#define SHARD_BYTES 4096

enum rank_state { OUT, ENTERING, IN, DONE };

struct open_request {
    uint64_t id;
    uint32_t step, world, era; /* that it was asked in */
};

struct rank {
    struct client client;
    int fd; /* of its region; -1: none */
    uint32_t number, host;
    enum rank_state state;
    bool alive, sealed, failed;
    uint32_t step; /* to ask next */
    uint32_t world;
    uint64_t entering; /* its request */
    struct open_request open[OPEN];
    uint32_t num_open;
    bool uses[BUCKETS], holds[BUCKETS];
};

/* How a collective ended. */
enum outcome { OUTCOME_NONE, OUTCOME_WELL, OUTCOME_FAILED };

static struct hosts_model_shape shape;
static uint64_t seed, random_state;
static struct rooms rooms[FAKE_HOSTS];
static struct rank ranks[MAX_RANKS];
static uint32_t num_ranks, faults_left, num_events, world_now;
static uint8_t outcomes[MAX_IDS][MAX_ERAS][STEPS];
static bool excused[MAX_IDS]; /* worlds in which outcomes may differ */
static const char *last_event;

static uint32_t choose(uint32_t count)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % count;
}

static void require(bool holds, const char *what)
{
    ck_assert_msg(holds,
        "%u hosts, %u ranks each, faults %u of %x, seed %" PRIu64
        ": after %u events, the last: %s: %s",
        shape.num_hosts, shape.local_ranks, shape.faults, shape.kinds, seed, num_events, last_event,
        what);
}

static void enter_host(uint32_t host)
{
    fake_enter(host);
}

static void turn(uint32_t host)
{
    enter_host(host);
    (void)uv_run(&rooms[host].loop, UV_RUN_NOWAIT);
}

static struct group *group_at(uint32_t host)
{
    struct job *job = registry_jobs(rooms[host].context.registry);
    return job ? registry_find_group(job, "g") : NULL;
}

/* ---- programs ---- */

static uint32_t what_of(uint32_t step)
{
    uint64_t x = (seed * 977 + step) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(x >> 40) % 8;
}

/* The bucket of a step that gathers; BUCKETS: it does not. */
static uint32_t bucket_of(uint32_t step)
{
    uint32_t what = what_of(step);
    return step == 0 || what < 2 ? BUCKETS : what % BUCKETS;
}

static uint64_t ask_step(struct rank *rank, bool another)
{
    struct client *client = &rank->client;
    if (rank->step == 0)
        return ask_seal(client, 1);
    if (bucket_of(rank->step) < BUCKETS && !another)
        return ask_gather(client, bucket_of(rank->step));
    return (what_of(rank->step) == 0) != another ? ask_precompute(client) : ask_sync(client);
}

static bool can_ask(const struct rank *rank)
{
    uint32_t bucket = bucket_of(rank->step);
    return rank->state == IN && !rank->failed && rank->step < STEPS && rank->num_open < OPEN &&
           (rank->step == 0 || rank->sealed) && (bucket == BUCKETS || !rank->uses[bucket]);
}

static void ask(struct rank *rank, bool another)
{
    const struct hosts *hosts = group_at(rank->host)->collective->hosts;
    uint32_t bucket = bucket_of(rank->step);
    struct open_request *open = &rank->open[rank->num_open++];
    enter_host(rank->host);
    *open = (struct open_request){
        .step = rank->step, .world = rank->world, .era = hosts ? (uint32_t)hosts->era : 0};
    if (bucket < BUCKETS && !another)
        rank->uses[bucket] = true;
    if (another)
        open->step = STEPS; /* its outcome is nobody else's */
    open->id = ask_step(rank, another);
    rank->step++;
}

static void release(struct rank *rank, uint32_t bucket)
{
    enter_host(rank->host);
    rank->holds[bucket] = rank->uses[bucket] = false;
    send_release(&rank->client, bucket);
}

/* ---- entering ---- */

static void ask_to_enter(struct rank *rank, bool again)
{
    uint8_t id[F8_PROTO_UNIQUE_ID_SIZE];
    F8__Join body = F8__JOIN__INIT;
    if (fake_is_over(world_now)) {
        world_now++;
        require(world_now < MAX_IDS, "too many worlds");
    }
    fake_unique_id(world_now, world_now * 7 % shape.num_hosts, id);
    body.group = (char *)(uintptr_t) "g";
    body.rank = rank->number;
    body.world_size = num_ranks;
    body.rejoin = again;
    body.local_ranks = shape.local_ranks;
    if (!again || rank->world != world_now)
        body.unique_id = (ProtobufCBinaryData){.data = id, .len = sizeof(id)};
    rank->world = world_now;
    rank->entering = ask_body(&rank->client, F8__REQUEST__BODY_JOIN, &body.base, NULL, 0);
    rank->state = ENTERING;
}

static void connect_rank(struct rank *rank)
{
    rank->alive = true;
    rank->fd = make_memfd(SHARD_BYTES);
    client_open(&rank->client, &rooms[rank->host], 100 + rank->number);
    client_ok(&rank->client, ask_hello(&rank->client, "job"));
    client_ok(&rank->client, ask_region(&rank->client, rank->fd));
}

static void enter(struct rank *rank)
{
    bool again = rank->alive && rank->client.group != 0;
    enter_host(rank->host);
    if (!rank->alive)
        connect_rank(rank);
    for (uint32_t b = 0; b < BUCKETS; b++)
        if (rank->holds[b])
            release(rank, b);
    rank->sealed = rank->failed = false;
    rank->step = 0;
    memset(rank->uses, 0, sizeof(rank->uses));
    ask_to_enter(rank, again);
}

static void register_weights(struct rank *rank)
{
    uint64_t shape_of[2] = {2 * num_ranks, 4};
    F8__Weight weights[BUCKETS];
    F8__Bucket buckets[BUCKETS];
    for (uint32_t b = 0; b < BUCKETS; b++) {
        weights[b] = make_weight(b == 0 ? "w" : "v", F8_PROTO_DYNAMIC, shape_of, 2, 1, b * 1024);
        buckets[b] = make_bucket(b == 0 ? "a" : "b", b, 1, b > 0);
    }
    client_ok(
        &rank->client, ask_register(&rank->client, weights, BUCKETS, buckets, BUCKETS, false));
}

static void take_entry(struct rank *rank)
{
    const F8__Reply *reply = client_reply(&rank->client, rank->entering);
    if (!reply)
        return;
    bool first = rank->client.group != 0 && !rank->client.owed && rank->state == ENTERING;
    rank->state = reply->status == F8_OK ? IN : OUT;
    if (rank->state == OUT) /* as when another rank of the host gave what was valid before */
        return;
    (void)first;
    struct group *group = group_at(rank->host);
    if (!group->members[rank->number]->list || group->members[rank->number]->list->num_weights == 0)
        register_weights(rank);
}

/* ---- answers ---- */

static void note_outcome(const struct open_request *open, enum outcome outcome)
{
    if (open->step >= STEPS || open->era >= MAX_ERAS || excused[open->world] ||
        fake_is_over(open->world))
        return;
    uint8_t *noted = &outcomes[open->world][open->era][open->step];
    require(*noted == OUTCOME_NONE || *noted == outcome, "a collective ended differently on ranks");
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
    if (getenv("MODEL_TRACE"))
        (void)fprintf(stderr, "  rank %u step %u era %u: %d %s\n", rank->number, open.step, open.era, reply->status, reply->text);
    /* What was refused at once was no part of a collective. */
    if (reply->status != F8_EBROKEN || reply->status == F8_OK)
        note_outcome(&open, reply->status == F8_OK ? OUTCOME_WELL : OUTCOME_FAILED);
    if (reply->status != F8_OK)
        rank->failed = true;
    else if (open.step == 0)
        rank->sealed = true;
    else if (open.step < STEPS && bucket < BUCKETS)
        rank->holds[bucket] = true;
}

static void take_answers(void)
{
    for (struct rank *rank = ranks; rank < ranks + num_ranks; rank++) {
        if (!rank->alive)
            continue;
        if (rank->state == ENTERING)
            take_entry(rank);
        for (uint32_t i = rank->num_open; i > 0; i--)
            take_answer(rank, i - 1);
        if (rank->client.num_replies > ROOMS_REPLIES / 2 && rank->client.owed == 0)
            client_forget(&rank->client);
        const struct group *group = group_at(rank->host);
        const struct member *member = group ? group->members[rank->number] : NULL;
        if ((rank->state == IN || rank->state == DONE) && rank->num_open == 0 &&
            (!member || group->state == GROUP_BROKEN || member->generation != group->generation))
            rank->failed = true;
        if (rank->failed && rank->num_open == 0 && rank->state != ENTERING)
            rank->state = OUT;
    }
}

/* ---- what may happen ---- */

enum choice_kind { CHOICE_ASK, CHOICE_RELEASE, CHOICE_ENTER, CHOICE_FINISH, CHOICE_FAKE };

struct choice {
    enum choice_kind kind;
    struct rank *rank;
    uint32_t what;
    struct fake_event event;
};

static uint32_t choices_of(struct rank *rank, struct choice *choices)
{
    uint32_t count = 0;
    if (rank->state == OUT)
        choices[count++] = (struct choice){.kind = CHOICE_ENTER, .rank = rank};
    if (can_ask(rank))
        choices[count++] = (struct choice){.kind = CHOICE_ASK, .rank = rank};
    bool holds = false;
    for (uint32_t b = 0; b < BUCKETS && rank->state == IN; b++) {
        holds = holds || rank->holds[b];
        if (rank->holds[b])
            choices[count++] = (struct choice){.kind = CHOICE_RELEASE, .rank = rank, .what = b};
    }
    if (rank->state == IN && !rank->failed && rank->step == STEPS && rank->num_open == 0 && !holds)
        choices[count++] = (struct choice){.kind = CHOICE_FINISH, .rank = rank};
    return count;
}

static uint32_t all_choices(struct choice *choices)
{
    static struct fake_event events[FAKE_EVENTS];
    uint32_t count = 0, num_fakes = fake_events(events);
    for (uint32_t r = 0; r < num_ranks; r++)
        count += choices_of(&ranks[r], choices + count);
    for (uint32_t e = 0; e < num_fakes; e++)
        choices[count++] = (struct choice){.kind = CHOICE_FAKE, .event = events[e]};
    return count;
}

static void make_choice(const struct choice *choice)
{
    static const char *const names[] = {"ask", "release", "enter", "finish", "fake"};
    static const char *const fakes[] = {"up", "down", "done", "failed", "work", "reservation"};
    last_event = choice->kind == CHOICE_FAKE ? fakes[choice->event.kind] : names[choice->kind];
    if (getenv("MODEL_TRACE"))
        (void)fprintf(stderr, "%u %s rank %d what %u\n", num_events, last_event,
            choice->rank ? (int)choice->rank->number : -1,
            choice->kind == CHOICE_FAKE ? choice->event.what : choice->what);
    if (choice->kind == CHOICE_ASK) {
        bool another = (shape.kinds & MODEL_MISMATCHES) != 0 && faults_left > 0 &&
                       choice->rank->step > 0 && choose(ONE_IN) == 0;
        faults_left -= another;
        ask(choice->rank, another);
    } else if (choice->kind == CHOICE_RELEASE) {
        release(choice->rank, choice->what);
    } else if (choice->kind == CHOICE_ENTER) {
        enter(choice->rank);
    } else if (choice->kind == CHOICE_FINISH) {
        choice->rank->state = DONE;
    } else {
        fake_apply(&choice->event);
    }
}

/* ---- faults ---- */

static void end_rank(struct rank *rank, bool died)
{
    enter_host(rank->host);
    if (getenv("MODEL_TRACE"))
        (void)fprintf(stderr, "rank %u %s\n", rank->number, died ? "dies" : "leaves");
    client_close(&rank->client, died);
    (void)close(rank->fd);
    uint32_t number = rank->number, host = rank->host;
    *rank = (struct rank){.number = number, .host = host, .fd = -1};
}

static void excuse_all(void)
{
    memset(excused, true, (world_now + 1) * sizeof(excused[0]));
}

static void make_fault(void)
{
    uint32_t kind = 1u << choose(4);
    struct rank *rank = &ranks[choose(num_ranks)];
    last_event = "a fault";
    if ((shape.kinds & kind) == 0)
        return;
    if (kind == MODEL_DEATHS || kind == MODEL_LEAVES) {
        if (!rank->alive)
            return;
        end_rank(rank, kind == MODEL_DEATHS);
    } else if (kind == MODEL_HELPERS) {
        excuse_all();
        if (!fake_kill_helper(choose(shape.num_hosts)))
            return;
    } else {
        excuse_all();
        fake_partition(choose(shape.num_hosts), choose);
    }
    faults_left--;
}

/* ---- a run ---- */

static bool all_done(void)
{
    for (uint32_t r = 0; r < num_ranks; r++)
        if (ranks[r].state != DONE)
            return false;
    return true;
}

static void turn_all(void)
{
    for (uint32_t h = 0; h < shape.num_hosts; h++)
        turn(h);
}

/* Nothing is possible: what timers and threads of the loops still do comes by itself. */
static void await_more(void)
{
    static struct choice choices[FAKE_EVENTS + 64];
    for (uint32_t ms = 0; ms < STUCK_MS; ms++) {
        turn_all();
        take_answers();
        if (all_choices(choices) > 0 || all_done())
            return;
        (void)poll(NULL, 0, 1);
    }
    for (uint32_t r = 0; r < num_ranks; r++)
        (void)fprintf(stderr, "rank %u: state %d, step %u, %u open, world %u, failed %d\n", r,
            (int)ranks[r].state, ranks[r].step, ranks[r].num_open, ranks[r].world, ranks[r].failed);
    for (uint32_t h = 0; h < shape.num_hosts; h++) {
        const struct group *group = group_at(h);
        if (group)
            (void)fprintf(stderr, "host %u: state %d, era %d, step %d, over %s: %s\n", h,
                (int)group->state,
                group->collective->hosts ? (int)group->collective->hosts->era : -1,
                group->collective->hosts ? (int)group->collective->hosts->engine.step : -1,
                group->collective->hosts ? group->collective->hosts->over.text : "",
                group->cause.text);
    }
    require(false, "nothing goes on");
}

static void run(void)
{
    static struct choice choices[FAKE_EVENTS + 64];
    while (!all_done()) {
        uint32_t count = all_choices(choices);
        require(++num_events < EVENTS_MOST, "it does not come to an end");
        if (faults_left > 0 && choose(ONE_IN) == 0)
            make_fault();
        else if (count == 0)
            await_more();
        else if (choose(4) == 0)
            turn(choose(shape.num_hosts));
        else
            make_choice(&choices[choose(count)]);
        take_answers();
        require(fake_violation() == NULL, fake_violation());
    }
}

static void begin(const struct hosts_model_shape *of, uint64_t from)
{
    shape = *of;
    seed = random_state = from;
    faults_left = shape.faults;
    num_events = world_now = 0;
    num_ranks = shape.num_hosts * shape.local_ranks;
    memset(outcomes, 0, sizeof(outcomes));
    memset(excused, 0, sizeof(excused));
    memset(ranks, 0, sizeof(ranks));
    fake_begin();
    for (uint32_t h = 0; h < shape.num_hosts; h++) {
        rooms_open(&rooms[h]);
        rooms[h].context.collective.backend = fake_backend();
    }
    for (uint32_t r = 0; r < num_ranks; r++)
        ranks[r] = (struct rank){.number = r, .host = r / shape.local_ranks, .fd = -1};
}

/* All leave, and what they leave behind ends. */
static void end(void)
{
    static struct choice choices[FAKE_EVENTS + 64];
    for (uint32_t r = 0; r < num_ranks; r++)
        end_rank(&ranks[r], false);
    for (uint32_t i = 0; i < 3; i++) {
        static struct fake_event events[FAKE_EVENTS];
        uint32_t count;
        while ((count = fake_events(events)) > 0) {
            fake_apply(&events[choose(count)]);
            turn_all();
        }
        turn_all();
    }
    (void)choices;
    for (uint32_t h = 0; h < shape.num_hosts; h++) {
        enter_host(h);
        rooms_close(&rooms[h]);
    }
}

uint32_t hosts_model_run(const struct hosts_model_shape *of, uint64_t from)
{
    begin(of, from);
    run();
    end();
    return num_events;
}
