/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scripts that are a whole run with faults in it, the same ones every time: bits flipped, packets
 * cut, doubled, moved, mixed, deaths put in between. $F8_FUZZ_RUNS plays more of them, and
 * $F8_FUZZ_SEED others.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/session_fuzz.h"
#include "tests/kernel_support.h"
#include "tests/lib/suite.h"

#ifndef FUZZ_RUNS
#define FUZZ_RUNS 2000
#endif

#define MAX_STEPS  400
#define MAX_FAULTS 6

/* A step of a script, apart from the others. */
struct step {
    uint8_t op, detail;
    uint8_t *packet; /* owned */
    size_t size;
};

struct steps {
    struct step steps[MAX_STEPS];
    size_t count;
};

static struct step copy_step(const struct step *step)
{
    struct step copy = *step;
    copy.packet = malloc(step->size + 1);
    memcpy(copy.packet, step->packet, step->size);
    return copy;
}

static void parse(struct steps *steps, uint8_t *script, size_t size)
{
    steps->count = 0;
    for (size_t at = 0; at < size; steps->count++) {
        struct step step = {.op = script[at], .detail = script[at + 1]};
        step.size = script[at + 2] | (size_t)script[at + 3] << 8;
        step.packet = script + at + FUZZ_HEAD;
        ck_assert_uint_lt(steps->count, MAX_STEPS);
        steps->steps[steps->count] = copy_step(&step);
        at += FUZZ_HEAD + step.size;
    }
}

static size_t write_out(const struct steps *steps, uint8_t *script, size_t room)
{
    size_t at = 0;
    for (size_t s = 0; s < steps->count; s++) {
        const struct step *step = &steps->steps[s];
        if (at + FUZZ_HEAD + step->size > room)
            break;
        script[at] = step->op;
        script[at + 1] = step->detail;
        script[at + 2] = (uint8_t)step->size;
        script[at + 3] = (uint8_t)(step->size >> 8);
        memcpy(script + at + FUZZ_HEAD, step->packet, step->size);
        at += FUZZ_HEAD + step->size;
    }
    return at;
}

static void drop_all(struct steps *steps)
{
    for (size_t s = 0; s < steps->count; s++)
        free(steps->steps[s].packet);
    steps->count = 0;
}

/* ---- Faults ---- */

static void insert(struct steps *steps, size_t at, const struct step *step)
{
    if (steps->count == MAX_STEPS)
        return;
    struct step copy = copy_step(step);
    memmove(&steps->steps[at + 1], &steps->steps[at], (steps->count - at) * sizeof(copy));
    steps->steps[at] = copy;
    steps->count++;
}

static void flip_bit(struct steps *steps, size_t s, struct rng *rng)
{
    struct step *step = &steps->steps[s];
    if (step->size > 0)
        step->packet[rng_below(rng, step->size)] ^= (uint8_t)(1 << rng_below(rng, 8));
}

/* The values at which counts and sizes go wrong, as far as a byte can say them. */
static void set_byte(struct steps *steps, size_t s, struct rng *rng)
{
    static const uint8_t values[] = {0, 1, 2, 3, 0x7f, 0x80, 0xff};
    struct step *step = &steps->steps[s];
    if (step->size > 0)
        step->packet[rng_below(rng, step->size)] = values[rng_below(rng, sizeof(values))];
}

static void cut(struct steps *steps, size_t s, struct rng *rng)
{
    struct step *step = &steps->steps[s];
    if (step->size > 0)
        step->size = rng_below(rng, step->size);
}

/* Protobuf takes fields twice: the last one counts, lists grow. */
static void double_fields(struct steps *steps, size_t s, struct rng *rng)
{
    struct step *step = &steps->steps[s];
    (void)rng;
    if (step->size == 0 || step->size > 2048)
        return;
    step->packet = realloc(step->packet, 2 * step->size);
    memcpy(step->packet + step->size, step->packet, step->size);
    step->size *= 2;
}

static void repeat(struct steps *steps, size_t s, struct rng *rng)
{
    struct step copy = copy_step(&steps->steps[s]);
    insert(steps, rng_below(rng, steps->count + 1), &copy);
    free(copy.packet);
}

static void leave_out(struct steps *steps, size_t s, struct rng *rng)
{
    (void)rng;
    if (steps->count < 2)
        return;
    free(steps->steps[s].packet);
    steps->count--;
    memmove(&steps->steps[s], &steps->steps[s + 1], (steps->count - s) * sizeof(steps->steps[0]));
}

static void swap(struct steps *steps, size_t s, struct rng *rng)
{
    size_t other = rng_below(rng, steps->count);
    struct step step = steps->steps[s];
    steps->steps[s] = steps->steps[other];
    steps->steps[other] = step;
}

/* The head of one packet and the tail of another. */
static void splice(struct steps *steps, size_t s, struct rng *rng)
{
    struct step *step = &steps->steps[s];
    const struct step *other = &steps->steps[rng_below(rng, steps->count)];
    if (step == other || step->size == 0 || other->size == 0 || step->size > 2048)
        return;
    size_t head = rng_below(rng, step->size), from = rng_below(rng, other->size);
    step->size = head + other->size - from;
    step->packet = realloc(step->packet, step->size + 1);
    memcpy(step->packet + head, other->packet + from, other->size - from);
}

static void change_sender(struct steps *steps, size_t s, struct rng *rng)
{
    steps->steps[s].detail = (uint8_t)rng_next(rng);
}

static void intervene(struct steps *steps, size_t s, struct rng *rng)
{
    uint8_t nothing;
    struct step step = {.op = (uint8_t)(1 + rng_below(rng, FUZZ_OPS - 1)),
        .detail = (uint8_t)rng_below(rng, FUZZ_CLIENTS),
        .packet = &nothing};
    insert(steps, s, &step);
}

typedef void fault(struct steps *steps, size_t s, struct rng *rng);

static fault *const faults[] = {flip_bit, set_byte, set_byte, cut, double_fields, repeat, leave_out,
    swap, splice, change_sender, intervene, intervene};

/* ---- The test ---- */

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void play_one(uint8_t *run, size_t size, uint64_t seed)
{
    static uint8_t script[2 * FUZZ_SCRIPT];
    struct rng rng = {.state = seed};
    struct steps steps;
    parse(&steps, run, size);
    for (size_t f = rng_below(&rng, MAX_FAULTS) + 1; f > 0; f--) {
        fault *apply = faults[rng_below(&rng, sizeof(faults) / sizeof(faults[0]))];
        apply(&steps, rng_below(&rng, steps.count), &rng);
    }
    size = write_out(&steps, script, sizeof(script));
    drop_all(&steps);
    (void)fuzz_play(script, size);
}

START_TEST(whole_run_plays)
{
    static uint8_t run[FUZZ_SCRIPT];
    ck_assert_uint_eq(fuzz_play(run, fuzz_whole_run(run, _i)), FUZZ_WHOLE_RUN);
    ck_assert_uint_eq(fuzz_play(run, 0), 0);
}
END_TEST

START_TEST(faulty_runs_harm_nothing)
{
    static uint8_t run[FUZZ_SCRIPT];
    size_t size = fuzz_whole_run(run, _i);
    uint64_t runs = setting("F8_FUZZ_RUNS", FUZZ_RUNS), seed = setting("F8_FUZZ_SEED", 1);
    for (uint64_t i = 0; i < runs; i++)
        play_one(run, size, seed + (i << 20));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("session_fuzz");
    tcase_set_timeout(tcase, 0);
    tcase_add_loop_test(tcase, whole_run_plays, 0, 2); /* on the host, on devices */
    tcase_add_loop_test(tcase, faulty_runs_harm_nothing, 0, 2);
    return run_suite("session_fuzz", tcase);
}
