/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A state machine of rounds whose ops write down what they are told: see round_fixture.h.
 */
#include "tests/lib/round_fixture.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct round_fixture fix;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    size_t used = strlen(fix.said);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(fix.said + used, sizeof(fix.said) - used, format, args);
    va_end(args);
    ck_assert(more >= 0 && used + (size_t)more < sizeof(fix.said));
}

static const char *status_name(int status)
{
    switch (status) {
#define NAME_CASE(code, name, text)                                                                \
    case code:                                                                                     \
        return #name;
        F8_STATUS_LIST(NAME_CASE)
#undef NAME_CASE
    default:
        return "?";
    }
}

static int start(void *context, const struct round_run *run)
{
    (void)context;
    static const char *const kinds[] = {[ROUND_SEAL] = "seal",
        [ROUND_PRECOMPUTE] = "precompute",
        [ROUND_SYNC] = "sync",
        [ROUND_INVALIDATE] = "invalidate",
        [ROUND_GATHER] = "gather"};
    say("start %d %s", (int)run->number, kinds[run->kind]);
    if (run->kind == ROUND_GATHER)
        say(" %c at %u", 'A' + (char)run->bucket, run->place);
    say("; ");
    return fix.start_status;
}

static bool prepare(void *context, uint32_t rank, uint32_t bucket, uint32_t place)
{
    (void)context;
    say("prepare %u %c", rank, 'A' + (char)bucket);
    if (place != ROUND_NO_PLACE)
        say(" at %u", place);
    say("; ");
    return fix.prepare_begins;
}

static void cancel(void *context)
{
    (void)context;
    say("cancel; ");
}

static bool clean(void *context, uint32_t place)
{
    (void)context;
    say("clean %u; ", place);
    return fix.clean_begins;
}

static void broken(void *context, const struct round_cause *cause)
{
    (void)context;
    fix.cause = *cause;
    say("broken; ");
}

static void reply(
    void *context, uint32_t rank, uint64_t tag, int status, const struct round_run *run)
{
    (void)context;
    (void)run;
    ck_assert_uint_eq(tag / 100, rank + 1);
    say("%d %s; ", (int)tag, status_name(status));
}

static void quiesced(void *context, uint32_t rank, uint64_t tag)
{
    (void)context;
    say("quiesced %u %d; ", rank, (int)tag);
}

static const struct round_ops ops = {
    .start = start,
    .prepare = prepare,
    .cancel = cancel,
    .clean = clean,
    .broken = broken,
    .reply = reply,
    .quiesced = quiesced,
};

void fix_begin(uint32_t ranks, const char *buckets, uint32_t slots, uint32_t depth)
{
    bool shared[8] = {false};
    uint32_t count = (uint32_t)strlen(buckets);
    ck_assert(count <= 8 && ranks <= 32);
    for (uint32_t b = 0; b < count; b++)
        shared[b] = buckets[b] == 's';
    fix = (struct round_fixture){.ranks = ranks, .deadline_ms = 1000, .prepare_begins = true};
    fix.rounds = round_new(&(struct round_shape){.sealed = count > 0,
                               .ranks = ranks,
                               .buckets = count,
                               .slots = slots,
                               .depth = depth,
                               .shared = shared},
        &ops, NULL);
    ck_assert_ptr_nonnull(fix.rounds);
    for (uint32_t r = 0; r < ranks; r++)
        round_enter(fix.rounds, r);
}

void fix_end(void)
{
    free(fix.rounds);
    fix.rounds = NULL;
}

int fix_ask(uint32_t rank, enum round_kind kind, uint32_t bucket)
{
    struct round_request request = {
        .tag = 100 * ((uint64_t)rank + 1) + fix.requests[rank],
        .deadline_ms = fix.deadline_ms,
        .kind = kind,
        .bucket = bucket,
    };
    int status = round_ask(fix.rounds, fix.now, rank, &request);
    fix.requests[rank] += status == ROUND_PENDING;
    return status;
}

void fix_precompute(uint32_t rank)
{
    ck_assert_int_eq(fix_ask(rank, ROUND_PRECOMPUTE, 0), ROUND_PENDING);
}

void fix_gather(uint32_t rank, uint32_t bucket)
{
    ck_assert_int_eq(fix_ask(rank, ROUND_GATHER, bucket), ROUND_PENDING);
}

void fix_hold_all(uint32_t bucket)
{
    for (uint32_t r = 0; r < fix.ranks; r++)
        fix_gather(r, bucket);
    round_finished(fix.rounds, F8_OK);
    fix.said[0] = '\0';
}

void assert_cause(enum round_trouble trouble, int status, uint64_t number, uint32_t rank)
{
    ck_assert_int_eq(fix.cause.trouble, trouble);
    ck_assert_int_eq(fix.cause.status, status);
    ck_assert_uint_eq(fix.cause.number, number);
    ck_assert_uint_eq(fix.cause.rank, rank);
}

void assert_over(void)
{
    ck_assert(round_is_broken(fix.rounds));
    ck_assert(round_drained(fix.rounds));
    ck_assert_uint_eq(round_deadline(fix.rounds), ROUND_NEVER);
    for (uint32_t r = 0; r < fix.ranks; r++) {
        ck_assert_int_eq(fix_ask(r, ROUND_PRECOMPUTE, 0), F8_EBROKEN);
        ck_assert_int_eq(round_prepare(fix.rounds, r, A), F8_EBROKEN);
        ck_assert_int_eq(round_quiesce(fix.rounds, r, 99), F8_OK);
        ck_assert(!round_reads(fix.rounds, r, A));
    }
    round_tick(fix.rounds, ROUND_NEVER);
    assert_said("");
}
