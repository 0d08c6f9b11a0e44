/* SPDX-License-Identifier: Apache-2.0 */
/* Random orders of what happens to a group over several hosts: see hosts_model.h. */
#include "tests/lib/hosts_model.h"

#include <check.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/collective_hosts.h"
#include "tests/lib/hosts_private.h"
#include "tests/lib/loop_turn.h"

#define EVENTS_MOST 40000
#define STUCK_MS    1500
#define ONE_IN      60 /* events is a fault */
#define STRAYS_IN   6  /* ranks that enter is one with another id */

struct hosts_model model;

static uint32_t choose(uint32_t count)
{
    model.random = model.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(model.random >> 33) % count;
}

void model_trace(const char *format, ...)
{
    va_list args;
    if (!getenv("MODEL_TRACE"))
        return;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

void model_require(bool holds, const char *what)
{
    ck_assert_msg(holds,
        "%u hosts, %u ranks each, faults %u of %x, seed %" PRIu64
        ": after %u events, the last: %s: %s",
        model.shape.num_hosts, model.shape.local_ranks, model.shape.faults, model.shape.kinds,
        model.seed, model.num_events, model.last_event, what);
}

static void turn(uint32_t host)
{
    fake_enter(host);
    (void)uv_run(&model.rooms[host].loop, UV_RUN_NOWAIT);
}

struct group *model_group(uint32_t host)
{
    struct job *job = registry_jobs(model.rooms[host].context.registry);
    return job ? registry_find_group(job, "g") : NULL;
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
    if (rank_can_ask(rank))
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
    for (uint32_t r = 0; r < model.num_ranks; r++)
        count += choices_of(&model.ranks[r], choices + count);
    for (uint32_t e = 0; e < num_fakes; e++)
        choices[count++] = (struct choice){.kind = CHOICE_FAKE, .event = events[e]};
    return count;
}

/* Whether a rank enters with another id than it should. A host of several that have met is not led
 * astray: the others are told 10 s after it, which no test waits for. */
static bool choose_stray(void)
{
    if ((model.shape.kinds & MODEL_IDS) == 0 || model.faults_left == 0 ||
        fake_is_met(model.world_now) || choose(STRAYS_IN) > 0)
        return false;
    model.faults_left--;
    return true;
}

static void make_choice(const struct choice *choice)
{
    static const char *const names[] = {"ask", "release", "enter", "finish", "fake"};
    static const char *const fakes[] = {"up", "down", "done", "failed", "work", "reservation"};
    model.last_event =
        choice->kind == CHOICE_FAKE ? fakes[choice->event.kind] : names[choice->kind];
    model_trace("%u %s rank %d what %u", model.num_events, model.last_event,
        choice->rank ? (int)choice->rank->number : -1,
        choice->kind == CHOICE_FAKE ? choice->event.what : choice->what);
    if (choice->kind == CHOICE_ASK) {
        bool another = (model.shape.kinds & MODEL_MISMATCHES) != 0 && model.faults_left > 0 &&
                       choice->rank->step > 0 && choose(ONE_IN) == 0;
        model.faults_left -= another;
        rank_ask(choice->rank, another);
    } else if (choice->kind == CHOICE_RELEASE) {
        rank_release(choice->rank, choice->what);
    } else if (choice->kind == CHOICE_ENTER) {
        rank_enter(choice->rank, choose_stray());
    } else if (choice->kind == CHOICE_FINISH) {
        choice->rank->state = DONE;
    } else {
        fake_apply(&choice->event);
    }
}

/* ---- faults ---- */

static void excuse_all(void)
{
    memset(model.excused, true, (model.world_now + 1) * sizeof(model.excused[0]));
}

static void make_fault(void)
{
    uint32_t kind = 1u << choose(4);
    struct rank *rank = &model.ranks[choose(model.num_ranks)];
    model.last_event = "a fault";
    if ((model.shape.kinds & kind) == 0)
        return;
    if (kind == MODEL_DEATHS || kind == MODEL_LEAVES) {
        if (!rank->alive)
            return;
        rank_end(rank, kind == MODEL_DEATHS);
    } else if (kind == MODEL_HELPERS) {
        excuse_all();
        if (!fake_kill_helper(choose(model.shape.num_hosts)))
            return;
    } else {
        excuse_all();
        fake_partition(choose(model.shape.num_hosts), choose);
    }
    model.faults_left--;
}

/* ---- a run ---- */

static bool all_done(void)
{
    for (uint32_t r = 0; r < model.num_ranks; r++)
        if (model.ranks[r].state != DONE)
            return false;
    return true;
}

static void turn_all(void)
{
    for (uint32_t h = 0; h < model.shape.num_hosts; h++)
        turn(h);
}

/* Nothing is possible: what timers and threads of the loops still do comes by itself. */
static void await_more(void)
{
    static struct choice choices[FAKE_EVENTS + 64];
    for (uint32_t ms = 0; ms < STUCK_MS; ms++) {
        turn_all();
        ranks_hear();
        if (all_choices(choices) > 0 || all_done())
            return;
        (void)poll(NULL, 0, 1);
    }
    for (uint32_t r = 0; r < model.num_ranks; r++)
        (void)fprintf(stderr, "rank %u: state %d, step %u, %u open, world %u, failed %d\n", r,
            (int)model.ranks[r].state, model.ranks[r].step, model.ranks[r].num_open,
            model.ranks[r].world, model.ranks[r].failed);
    for (uint32_t h = 0; h < model.shape.num_hosts; h++) {
        const struct group *group = model_group(h);
        if (group)
            (void)fprintf(stderr, "host %u: state %d, era %d, step %d, over %s: %s\n", h,
                (int)group->state,
                group->collective->hosts ? (int)group->collective->hosts->era : -1,
                group->collective->hosts ? (int)group->collective->hosts->engine.step : -1,
                group->collective->hosts ? group->collective->hosts->over.text : "",
                group->cause.text);
    }
    model_require(false, "nothing goes on");
}

static void run(void)
{
    static struct choice choices[FAKE_EVENTS + 64];
    while (!all_done()) {
        uint32_t count = all_choices(choices);
        model_require(++model.num_events < EVENTS_MOST, "it does not come to an end");
        if (model.faults_left > 0 && choose(ONE_IN) == 0)
            make_fault();
        else if (count == 0)
            await_more();
        else if (choose(4) == 0)
            turn(choose(model.shape.num_hosts));
        else
            make_choice(&choices[choose(count)]);
        ranks_hear();
        model_require(fake_violation() == NULL, fake_violation());
    }
}

static void begin(const struct hosts_model_shape *of, uint64_t from)
{
    ck_assert_msg(of->local_ranks > 1 || (of->kinds & MODEL_IDS) == 0,
        "nobody ends a world that a rank alone waits for");
    model.shape = *of;
    model.seed = model.random = from;
    model.faults_left = model.shape.faults;
    model.num_events = model.world_now = 0;
    model.num_ranks = model.shape.num_hosts * model.shape.local_ranks;
    memset(model.outcomes, 0, sizeof(model.outcomes));
    memset(model.excused, 0, sizeof(model.excused));
    memset(model.ranks, 0, sizeof(model.ranks));
    fake_begin();
    for (uint32_t h = 0; h < model.shape.num_hosts; h++) {
        rooms_open(&model.rooms[h]);
        model.rooms[h].context.collective.backend = fake_backend();
    }
    for (uint32_t r = 0; r < model.num_ranks; r++)
        model.ranks[r] = (struct rank){.number = r, .host = r / model.shape.local_ranks, .fd = -1};
}

/* All leave, and what they leave behind ends. */
static void end(void)
{
    static struct fake_event events[FAKE_EVENTS];
    uint32_t count;
    for (uint32_t r = 0; r < model.num_ranks; r++)
        rank_end(&model.ranks[r], false);
    for (uint32_t i = 0; i < 3; i++) {
        while ((count = fake_events(events)) > 0) {
            fake_apply(&events[choose(count)]);
            turn_all();
        }
        turn_all();
    }
    for (uint32_t h = 0; h < model.shape.num_hosts; h++) {
        fake_enter(h);
        rooms_close(&model.rooms[h]);
    }
}

uint32_t hosts_model_run(const struct hosts_model_shape *of, uint64_t from)
{
    begin(of, from);
    run();
    end();
    return model.num_events;
}
