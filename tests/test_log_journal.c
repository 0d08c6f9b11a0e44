/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of this process that reach journald with their fields. The test is journald, in a /run of
 * its own; it stops reading, too, and goes away.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "tests/lib/journal.h"
#include "tests/lib/patience.h"
#include "tests/lib/private_run.h"
#include "tests/lib/suite.h"

/* More than journald's socket and the queue take. */
#define BURST 5000

/* What a start may log at once: a line for each of 1024 states, and others. */
#define START_LINES 1500

/* What a turn waits for the thread before it logs one line more. */
#define TURN_MS 10

static void set_up(void)
{
    journal_begin();
    log_set_level(LOG_LEVEL_INFO);
    journal_take_stderr();
}

static void tear_down(void)
{
    log_close(PATIENCE_MS);
    journal_end();
}

START_TEST(fields_are_sent)
{
    log_of(&(struct log_fields){.job = "run",
               .group = "dp@tp=0",
               .bucket = "layers.4",
               .weight = "layers.4.wq",
               .host = "b",
               .rank = LOG_RANK(0),
               .pid = 4711},
        LOG_LEVEL_WARNING, "rank %d waits", 0);
    ck_assert_str_eq(journal_receive(),
        "\nMESSAGE=rank 0 waits\nPRIORITY=4\nSYSLOG_IDENTIFIER=f8gatherd\nJOB=run\nGROUP=dp@tp=0\n"
        "BUCKET=layers.4\nWEIGHT=layers.4.wq\nHOST=b\nRANK=0\nPID=4711\n");
    log_error("plain");
    ck_assert_str_eq(
        journal_receive(), "\nMESSAGE=plain\nPRIORITY=3\nSYSLOG_IDENTIFIER=f8gatherd\n");
    ck_assert_str_eq(journal_stderr(), "");
}
END_TEST

/* A newline would begin a field of the peer's choice. */
START_TEST(peers_cannot_forge_fields)
{
    char name[3000];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    log_of(&(struct log_fields){.job = "a\nPRIORITY=0", .group = name, .weight = name, .pid = 1},
        LOG_LEVEL_INFO, "b\n_UID=0");
    (void)journal_receive();
    journal_expect("MESSAGE=b?_UID=0");
    journal_expect("JOB=a?PRIORITY=0");
    journal_expect("PRIORITY=6");
    journal_expect("PID=1"); /* after what was too long */
    ck_assert(!journal_has("PRIORITY=0") && !journal_has("_UID=0"));
    log_of(&(struct log_fields){.host = "\x1b[2J\x9b\xc3\xa9\x7f"}, LOG_LEVEL_INFO, "c");
    (void)journal_receive();
    journal_expect("HOST=?[2J?\xc3\xa9?");
}
END_TEST

/* Takes what comes: each line from `next` on is there, or counted where it would be. */
static void follow(unsigned *next, unsigned *missing)
{
    unsigned number;
    while (journal_try(TURN_MS)) {
        if (sscanf(journal_entry(), "\nMESSAGE=line %u\n", &number) == 1) {
            ck_assert_uint_eq(number, *next);
            *next += 1;
            continue;
        }
        ck_assert_int_eq(
            sscanf(journal_entry(), "\nMESSAGE=%u lines are missing here", &number), 1);
        journal_expect("PRIORITY=4");
        *next += number;
        *missing += number;
    }
}

/* It is told of those that are missing with the next line that there is room for. */
static unsigned follow_all(unsigned logged)
{
    unsigned next = 0, missing = 0;
    for (int turns = 0; next < logged; turns++) {
        ck_assert_int_lt(turns, PATIENCE_MS / TURN_MS);
        follow(&next, &missing);
        if (next < logged)
            log_info("line %u", logged++);
    }
    return missing;
}

START_TEST(journal_that_is_full_stops_nobody)
{
    unsigned logged = 0;
    while (logged < BURST)
        log_info("line %u", logged++);
    ck_assert_uint_gt(follow_all(logged), 0);
    log_info("read again");
    (void)journal_receive();
    journal_expect("MESSAGE=read again");
    ck_assert_str_eq(journal_stderr(), "");
}
END_TEST

START_TEST(burst_of_a_start_is_whole)
{
    unsigned logged = 0;
    while (logged < START_LINES)
        log_info("line %u", logged++);
    ck_assert_uint_eq(follow_all(logged), 0);
}
END_TEST

/* No line follows that could tell it. */
START_TEST(end_tells_what_is_missing)
{
    unsigned logged = 0, next = 0, missing = 0;
    while (logged < BURST)
        log_info("line %u", logged++);
    for (int turns = 0; next < logged; turns++) {
        ck_assert_int_lt(turns, PATIENCE_MS / TURN_MS);
        follow(&next, &missing);
        log_close(1);
    }
    ck_assert_uint_gt(missing, 0);
    log_close(PATIENCE_MS);
    ck_assert(!journal_try(0));
}
END_TEST

/* Nobody reads: the end comes all the same, and the lines still do if somebody reads meanwhile. */
START_TEST(end_waits_for_nobody)
{
    unsigned logged = 0;
    while (logged < BURST)
        log_info("line %u", logged++);
    log_close(1);
    ck_assert_uint_gt(follow_all(logged), 0);
}
END_TEST

START_TEST(end_sends_what_waits)
{
    log_info("line 0");
    log_info("line 1");
    log_close(PATIENCE_MS);
    ck_assert(journal_try(0));
    journal_expect("MESSAGE=line 0");
    ck_assert(journal_try(0));
    journal_expect("MESSAGE=line 1");
    ck_assert(!journal_try(0));
    log_close(PATIENCE_MS);
    log_info("after it");
    (void)journal_receive();
    journal_expect("MESSAGE=after it");
}
END_TEST

START_TEST(stderr_does_without_journald)
{
    journal_go();
    log_info("here");
    log_close(PATIENCE_MS);
    ck_assert_str_eq(journal_stderr(), "<6>here\n");
    journal_return();
    log_info("there");
    (void)journal_receive();
    journal_expect("MESSAGE=there");
    ck_assert_int_eq(setenv("JOURNAL_STREAM", "1:2", 1), 0); /* of another program */
    log_info("elsewhere");
    ck_assert_str_eq(journal_stderr(), "f8gatherd: info: elsewhere\n");
}
END_TEST

/* It was killed, and its socket is still there. */
START_TEST(stderr_does_with_a_dead_journald)
{
    journal_die();
    log_warning("here");
    log_close(PATIENCE_MS);
    ck_assert_str_eq(journal_stderr(), "<4>here\n");
    journal_return();
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("log_journal");
    if (!private_run_enter()) {
        (void)printf("skipped: this user may not mount a /run of its own (root may)\n");
        return 77;
    }
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, fields_are_sent);
    tcase_add_test(tcase, peers_cannot_forge_fields);
    tcase_add_test(tcase, journal_that_is_full_stops_nobody);
    tcase_add_test(tcase, burst_of_a_start_is_whole);
    tcase_add_test(tcase, end_tells_what_is_missing);
    tcase_add_test(tcase, end_waits_for_nobody);
    tcase_add_test(tcase, end_sends_what_waits);
    tcase_add_test(tcase, stderr_does_without_journald);
    tcase_add_test(tcase, stderr_does_with_a_dead_journald);
    return run_suite("log_journal", tcase);
}
