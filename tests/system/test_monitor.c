/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl monitor and watch against a real daemon: each kind of event by what really causes it, as
 * one JSON object a line; the flags, and the daemon's end.
 */
#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "f8client.h"
#include "lib/patience.h"
#include "lib/program.h"
#include "lib/ranks.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

static struct test_daemon server;

static void setup(void)
{
    test_daemon_start(&server, (const char *[]){"--cuda", "off", NULL});
}

static void teardown(void)
{
    test_daemon_stop(&server);
}

/* What was printed, a JSON object a line. Owned by the caller. */
static json_t *objects_of(const char *text)
{
    json_t *list = json_array();
    while (*text != '\0') {
        json_error_t error;
        size_t size = strcspn(text, "\n");
        json_t *object = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
        ck_assert_msg(json_is_object(object), "%s in: %s", error.text, text);
        ck_assert_str_eq(json_string_value(json_object_get(object, "schema")), "f8ctl/1");
        ck_assert_msg(text[size] == '\n', "a line without its end: %s", text);
        json_array_append_new(list, object);
        text += size + 1;
    }
    return list;
}

/* Events of the kinds since the daemon began; waits until there are `count`. */
static json_t *events(const char *kinds, int count)
{
    struct program ctl;
    program_start(&ctl, F8_TEST_CTL, NULL, "--socket %s monitor --since 0 --events %s --count %d",
        server.socket, kinds, count);
    program_expect(&ctl, 0);
    ck_assert_str_eq(ctl.err, "");
    json_t *list = objects_of(ctl.out);
    ck_assert_uint_eq(json_array_size(list), (size_t)count);
    program_done(&ctl);
    return list;
}

static const json_t *value_of(const json_t *list, size_t i, const char *key)
{
    const json_t *value = json_object_get(json_array_get(list, i), key);
    ck_assert_msg(value != NULL, "event %zu has no %s", i, key);
    return value;
}

static const char *text_of(const json_t *list, size_t i, const char *key)
{
    const json_t *value = value_of(list, i, key);
    ck_assert_msg(json_is_string(value), "%s of event %zu is no string", key, i);
    return json_string_value(value);
}

static void assert_has(const json_t *list, size_t i, const char *key, const char *part)
{
    const char *text = text_of(list, i, key);
    ck_assert_msg(strstr(text, part) != NULL, "%s is: %s", key, text);
}

static json_int_t number_of(const json_t *list, size_t i, const char *key)
{
    const json_t *value = value_of(list, i, key);
    ck_assert_msg(json_is_integer(value), "%s of event %zu is no integer", key, i);
    return json_integer_value(value);
}

START_TEST(a_run_in_good_order)
{
    struct rank ranks[2];
    ranks_start(ranks, 2, server.socket);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    json_t *list = events("rank-joined,group-sealed,group-broken,rank-left", 6);
    static const char *const kinds[] = {
        "rank-joined", "rank-joined", "group-sealed", "rank-left", "group-broken", "rank-left"};
    for (size_t i = 0; i < 6; i++) {
        ck_assert_str_eq(text_of(list, i, "event"), kinds[i]);
        ck_assert_int_eq(number_of(list, i, "sequence"), (json_int_t)i + 1);
        ck_assert_str_eq(text_of(list, i, "job"), "run");
        ck_assert_str_eq(text_of(list, i, "group"), "dp");
        ck_assert_int_eq(number_of(list, i, "uid"), (json_int_t)geteuid());
        ck_assert_int_gt(number_of(list, i, "monotonic_ns"), 0);
        assert_has(list, i, "time", "Z");
    }
    ck_assert_int_eq(number_of(list, 1, "rank"), 1);
    ck_assert_int_eq(number_of(list, 1, "pid"), getpid());
    ck_assert(json_is_null(value_of(list, 2, "rank")));
    ck_assert(json_is_null(value_of(list, 2, "weight")));
    ck_assert(json_number_value(value_of(list, 2, "value")) == RANK_WEIGHTS);
    json_decref(list);
}
END_TEST

static void must(int status)
{
    ck_assert_msg(status == F8_OK, "%s: %s", f8_status_name(status), f8_error_text());
}

/* A process of its own: rank 1 of two, which then does nothing any more. */
static int second_rank(void *unused)
{
    struct rank rank;
    (void)unused;
    rank_connect(&rank, server.socket);
    rank_join(&rank, 1, 2);
    rank_register(&rank);
    if (rank_seal(&rank) != F8_OK)
        return 1;
    for (;;)
        (void)pause();
}

START_TEST(a_rank_is_killed)
{
    struct rank rank;
    pid_t pid = test_fork(second_rank, NULL);
    rank_connect(&rank, server.socket);
    rank_join(&rank, 0, 2);
    rank_register(&rank);
    must(rank_seal(&rank));
    must(f8_gather(rank.group, LAYER_1, F8_DEFAULT_DEADLINE, rank.stream));
    rank_settle(&rank);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    json_t *list = events("rank-died,round-failed", 2);
    ck_assert_str_eq(text_of(list, 0, "event"), "rank-died");
    ck_assert_str_eq(text_of(list, 1, "event"), "round-failed");
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(number_of(list, i, "rank"), 1);
        ck_assert_int_eq(number_of(list, i, "pid"), pid);
    }
    ck_assert_str_eq(text_of(list, 1, "bucket"), "layers.1");
    assert_has(list, 1, "text", "died");
    json_decref(list);
    ck_assert_int_eq(test_wait(pid), -SIGKILL);
    rank_close(&rank);
}
END_TEST

static void precompute(struct rank *rank)
{
    f8_ticket ticket;
    must(f8_changed(rank->group, 0, RANK_WEIGHTS));
    must(f8_precompute(rank->group, F8_DEFAULT_DEADLINE, rank->stream, &ticket));
    must(f8_wait(rank->group, ticket, F8_FOREVER, rank->stream));
}

static void use(struct rank *rank, uint32_t bucket)
{
    must(rank_gather(rank, bucket, F8_DEFAULT_DEADLINE));
    must(f8_release(rank->group, bucket, rank->stream));
}

START_TEST(values_that_do_not_fit)
{
    struct rank rank;
    ranks_start(&rank, 1, server.socket);
    rank.memory[0] = 1e6F; /* of embed.weight, whose scale is static */
    rank.memory[5] = -1e6F;
    rank.memory[9] = NAN;
    use(&rank, EMBED);
    json_t *list = events("saturation,nan-found", 2);
    ck_assert_str_eq(text_of(list, 0, "event"), "saturation");
    ck_assert(fabs(json_number_value(value_of(list, 0, "value")) - 2.0 / 104) < 1e-9);
    ck_assert_str_eq(text_of(list, 1, "event"), "nan-found");
    ck_assert(json_number_value(value_of(list, 1, "value")) == 1);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_str_eq(text_of(list, i, "weight"), "embed.weight");
        ck_assert_str_eq(text_of(list, i, "bucket"), "embed");
    }
    assert_has(list, 0, "text", "1.92 % of its elements");
    json_decref(list);
    rank_close(&rank);
}
END_TEST

START_TEST(a_scale_is_stale)
{
    struct rank rank;
    ranks_start(&rank, 1, server.socket);
    precompute(&rank);
    use(&rank, LAYER_0);
    must(f8_changed(rank.group, 0, RANK_WEIGHTS));
    use(&rank, LAYER_1);
    use(&rank, LAYER_1);
    use(&rank, LAYER_2);
    json_t *list = events("stale-scale", 2);
    ck_assert_str_eq(text_of(list, 0, "weight"), "layers.1.weight");
    assert_has(list, 0, "text", "at version 2 with the scale of version 1");
    ck_assert_str_eq(text_of(list, 1, "weight"), "layers.2.weight"); /* layers.1 only once */
    json_decref(list);
    rank_close(&rank);
}
END_TEST

/* Ranks that ask for different things, and one whose deadline ends. */
static int gather_embed(struct rank *rank)
{
    return rank_gather(rank, rank->number == 0 ? EMBED : LAYER_0, F8_DEFAULT_DEADLINE);
}

START_TEST(rounds_fail)
{
    struct rank ranks[2];
    ranks_start(ranks, 2, server.socket);
    ranks_all(ranks, 2, gather_embed);
    json_t *list = events("round-failed", 1);
    assert_has(list, 0, "text", "asked for gather of ");
    (void)number_of(list, 0, "rank");
    json_decref(list);
    for (int r = 0; r < 2; r++)
        must(f8_group_rejoin(ranks[r].group));
    ranks_must(ranks, 2, rank_seal);
    ck_assert_int_eq(rank_gather(&ranks[0], EMBED, 1), F8_EDEADLINE);
    list = events("round-failed", 2);
    ck_assert_int_eq(number_of(list, 1, "rank"), 1);
    ck_assert_str_eq(text_of(list, 1, "bucket"), "embed");
    assert_has(list, 1, "text", "the deadline of gather of embed");
    json_decref(list);
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
}
END_TEST

/* Waits, bounded, until a program that goes on has printed the text. */
static void await_output(const struct program *program, const char *text)
{
    static char printed[1 << 16];
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        ssize_t size = pread(program->out_fd, printed, sizeof(printed) - 1, 0);
        printed[size > 0 ? size : 0] = '\0';
        if (strstr(printed, text))
            return;
        (void)poll(NULL, 0, 10);
    }
    ck_abort_msg("it never printed %s: %s", text, printed);
}

/* The daemon that drains waits for the gather, and so the monitor is still there to be told. */
START_TEST(the_daemon_ends)
{
    struct program monitor;
    struct rank ranks[2];
    ranks_start(ranks, 2, server.socket);
    program_start(&monitor, F8_TEST_CTL, NULL, "--socket %s monitor --since 0", server.socket);
    await_output(&monitor, "group-sealed");
    must(f8_gather(ranks[0].group, EMBED, F8_DEFAULT_DEADLINE, ranks[0].stream));
    rank_settle(&ranks[0]);
    ck_assert_int_eq(kill(server.pid, SIGTERM), 0);
    await_output(&monitor, "\"drain\"");
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    program_expect(&monitor, 3);
    ck_assert_ptr_nonnull(strstr(monitor.err, "f8gatherd was told to end"));
    json_t *list = objects_of(monitor.out);
    size_t last = json_array_size(list);
    bool drained = false;
    for (size_t i = 0; i < last; i++)
        if (strcmp(text_of(list, i, "event"), "drain") == 0) {
            drained = true;
            ck_assert(json_number_value(value_of(list, i, "value")) == 1);
            ck_assert(json_is_null(value_of(list, i, "job")));
            ck_assert(json_is_null(value_of(list, i, "uid")));
            assert_has(list, i, "text", "group dp of job run");
        }
    ck_assert(drained);
    json_decref(list);
    program_done(&monitor);
    test_daemon_restart(&server, NULL);
}
END_TEST

START_TEST(the_daemon_is_killed)
{
    struct program monitor;
    struct rank rank;
    ranks_start(&rank, 1, server.socket);
    program_start(&monitor, F8_TEST_CTL, NULL, "--socket %s monitor --since 0", server.socket);
    await_output(&monitor, "group-sealed");
    test_daemon_kill(&server);
    program_expect(&monitor, 3);
    ck_assert_ptr_nonnull(strstr(monitor.err, "is lost"));
    program_done(&monitor);
    rank_close(&rank);
    test_daemon_restart(&server, NULL);
    /* another daemon's event: all that it has comes, and that is said */
    ranks_start(&rank, 1, server.socket);
    program_start(
        &monitor, F8_TEST_CTL, NULL, "--socket %s monitor --since 1000 --count 2", server.socket);
    program_expect(&monitor, 0);
    json_t *list = objects_of(monitor.out);
    ck_assert_str_eq(text_of(list, 0, "event"), "daemon-restarted");
    ck_assert_int_eq(number_of(list, 0, "value"), 1000);
    ck_assert_str_eq(text_of(list, 1, "event"), "rank-joined");
    json_decref(list);
    program_done(&monitor);
    rank_close(&rank);
}
END_TEST

/* Only of those jobs. */
START_TEST(of_a_job)
{
    struct program ctl;
    struct rank rank;
    ranks_start(&rank, 1, server.socket);
    program_start(&ctl, F8_TEST_CTL, NULL, "--socket %s --job r?n monitor --since 0 --count 2",
        server.socket);
    program_expect(&ctl, 0);
    program_done(&ctl);
    rank_close(&rank);
    json_t *list = events("rank-left", 1);
    json_decref(list);
}
END_TEST

START_TEST(lines_for_people)
{
    struct program ctl;
    struct rank rank;
    ranks_start(&rank, 1, server.socket);
    program_start(&ctl, F8_TEST_CTL, NULL, "--socket %s watch --since 0 --count 2", server.socket);
    program_expect(&ctl, 0);
    ck_assert_ptr_nonnull(strstr(ctl.out, "  rank-joined      run/dp: rank 0 (pid "));
    ck_assert_ptr_nonnull(strstr(ctl.out, "  group-sealed     run/dp: sealed, generation 1: "));
    ck_assert_ptr_null(strchr(ctl.out, '\033'));
    program_done(&ctl);
    program_start(
        &ctl, F8_TEST_CTL, NULL, "--socket %s --json watch --since 0 --count 2", server.socket);
    program_expect(&ctl, 0);
    json_t *list = objects_of(ctl.out);
    ck_assert_uint_eq(json_array_size(list), 2);
    json_decref(list);
    program_done(&ctl);
    rank_close(&rank);
}
END_TEST

static const struct {
    const char *arguments, *says;
} wrong[] = {
    {"monitor --events rank-died,nothing", "no event is called nothing; events are: rank-joined"},
    {"watch --events ,", "no event is called "},
    {"watch --since -1", "--since -1: must be the sequence"},
    {"watch --since 18446744073709551615", "must be the sequence"},
    {"monitor --count 0", "--count 0: must be a number from 1"},
    {"monitor now", "takes no argument now"},
    {"groups --events drain", "groups: takes no --events"},
    {"monitor --interval 1", "monitor: takes no --interval"},
};

START_TEST(wrong_usage)
{
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct program ctl;
        program_start(&ctl, F8_TEST_CTL, NULL, "--socket %s %s", server.socket, wrong[i].arguments);
        program_expect(&ctl, 2);
        ck_assert_msg(strstr(ctl.err, wrong[i].says), "%s: %s", wrong[i].arguments, ctl.err);
        program_done(&ctl);
    }
}
END_TEST

/* A reader that has gone ends it without a word, at the next event. */
START_TEST(into_a_closed_pipe)
{
    int ends[2];
    struct rank rank;
    struct program ctl;
    ranks_start(&rank, 1, server.socket);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(fcntl(ends[1], F_SETFD, 0), 0);
    program_start(&ctl, "/bin/sh", NULL,
        "-c exec${IFS}%s${IFS}--socket${IFS}%s${IFS}watch${IFS}"
        "--since${IFS}0${IFS}>&%d",
        F8_TEST_CTL, server.socket, ends[1]);
    (void)close(ends[1]);
    (void)close(ends[0]);
    program_wait(&ctl);
    ck_assert_int_eq(ctl.status, -SIGPIPE);
    ck_assert_str_eq(ctl.err, "");
    program_done(&ctl);
    rank_close(&rank);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("monitor");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 2 * PATIENCE_S);
    tcase_add_test(tcase, a_run_in_good_order);
    tcase_add_test(tcase, a_rank_is_killed);
    tcase_add_test(tcase, values_that_do_not_fit);
    tcase_add_test(tcase, a_scale_is_stale);
    tcase_add_test(tcase, rounds_fail);
    tcase_add_test(tcase, the_daemon_ends);
    tcase_add_test(tcase, the_daemon_is_killed);
    tcase_add_test(tcase, of_a_job);
    tcase_add_test(tcase, lines_for_people);
    tcase_add_test(tcase, wrong_usage);
    tcase_add_test(tcase, into_a_closed_pipe);
    return run_suite("monitor", tcase);
}
