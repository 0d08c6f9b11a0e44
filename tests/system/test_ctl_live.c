/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl against a real daemon while f8bench runs on it: every command as a table and as JSON,
 * filters, names that are there and that are not, exit statuses, and no colour in a pipe.
 */
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "f8client.h"
#include "lib/program.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define RANKS 2

static struct test_daemon server;
static struct program bench;
static pid_t ranks[RANKS];

/* Whether each of the run's buckets has been gathered. */
static bool each_gathered(void)
{
    json_t *buckets = program_ask_ctl(server.socket, "buckets", "buckets");
    size_t count = json_array_size(buckets), gathered = 0;
    for (size_t i = 0; i < count; i++)
        gathered += json_integer_value(json_object_get(json_array_get(buckets, i), "gathers")) > 0;
    json_decref(buckets);
    return count > 0 && gathered == count;
}

/* A run that goes on until the test ends it, and is past its first step. */
static void setup(void)
{
    test_daemon_start(&server, NULL);
    program_start(&bench, F8_TEST_BENCH, NULL,
        "run --model tiny --ranks 2 --steps 100000 --check 1000 --socket %s", server.socket);
    (void)program_await_gathers(server.socket, RANKS, ranks);
    for (int i = 0; !each_gathered(); i++)
        ck_assert_msg(i < 6000, "the first step does not end");
}

static void teardown(void)
{
    ck_assert_int_eq(kill(bench.pid, SIGINT), 0);
    program_expect(&bench, 130);
    program_done(&bench);
    test_daemon_stop(&server);
}

static void run_ctl(struct program *ctl, const char *arguments, int status)
{
    program_start(ctl, F8_TEST_CTL, NULL, "--socket %s %s", server.socket, arguments);
    program_expect(ctl, status);
    ck_assert_msg(strchr(ctl->out, '\033') == NULL, "colours in a pipe: %s", ctl->out);
}

/* Runs a command and looks for a text on the stream that its status calls for. */
static void assert_says(const char *arguments, int status, const char *text)
{
    struct program ctl;
    run_ctl(&ctl, arguments, status);
    ck_assert_msg(
        strstr(status == 0 ? ctl.out : ctl.err, text), "%s: %s%s", arguments, ctl.out, ctl.err);
    ck_assert_str_eq(status == 0 ? ctl.err : ctl.out, "");
    program_done(&ctl);
}

static const struct {
    const char *arguments;
    int status;
    const char *text;
} says[] = {
    {"status", 0, "failed rounds"},
    {"jobs", 0, "f8bench-"},
    {"groups", 0, "sealed"},
    {"weights", 0, "131x61"},
    {"scales", 0, "0x"},
    {"show layers.1.odd.weight", 0, "age in changes"},
    {"amax", 0, "WINDOW"},
    {"buckets", 0, "layers.1.feed_forward"},
    {"buckets --sort -saturated --top 1", 0, "HELD BY RANKS"},
    {"--name layers.1.* --sort name scales", 0, "layers.1.odd.weight"},
    {"history layers.1.odd.weight", 1, "no delayed weight is called layers.1.odd.weight at "},
    {"import none dp /nowhere/state", 1, "/nowhere/state cannot be read: "},
    {"scales --sort size", 2, "scales has no column size; its columns are: job name scale"},
    {"rounds", 0, "MISSING RANKS"},
    {"stats", 0, "\nTIME "},
    {"stats --over 0.2 --job f8bench-*", 0, "; rates and times of the last 0."},
    {"stats --job none-*", 1, "no job is called none-* at "},
    {"report --html -", 0, "</main>"},
    {"completion weights", 0, "layers.1.odd.weight\n"},
    {"ping", 0, " answered in "},
    {"version", 0, "f8gatherd " F8_VERSION},
    {"--job f8bench-* groups", 0, "sealed"},
    {"--job none-* jobs", 0, "(none)"},
    {"--job none-* weights", 0, "(none)"},
    {"--name nothing weights", 0, "(none)"},
    {"--name d? groups", 0, "sealed"},
    {"show layers.*", 1, "no weight is called layers.* at "},
    {"show layers.1.od", 1, "no weight is called layers.1.od at "},
    {"--job none show layers.1.odd.weight", 1, "in a job like none"},
    {"show", 2, "show: a NAME is missing"},
    {"groups dp", 2, "groups: takes no argument dp"},
    {"--colour jobs", 2, "--colour: no such flag"},
    {"--timeout 0 ping", 2, "--timeout 0: must be seconds"},
    {"restart", 2, "no command is called restart"},
};

START_TEST(test_says)
{
    for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++)
        assert_says(says[i].arguments, says[i].status, says[i].text);
}
END_TEST

/* The objects of a list. */
static json_t *list_of(const char *arguments, const char *key, size_t count)
{
    json_t *list = program_ask_ctl(server.socket, arguments, key);
    ck_assert_msg(json_is_array(list), "%s is no list", key);
    ck_assert_msg(json_array_size(list) == count, "%s: %zu rows, want %zu", arguments,
        json_array_size(list), count);
    return list;
}

static json_int_t integer(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_integer(value), "%s is no integer", key);
    return json_integer_value(value);
}

static const char *string(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_string(value), "%s is no string", key);
    return json_string_value(value);
}

START_TEST(test_json_of_daemon)
{
    json_t *status = program_ask_ctl(server.socket, "status", "status");
    ck_assert_int_eq(integer(status, "pid"), server.pid);
    ck_assert_int_eq(integer(status, "jobs"), 1);
    ck_assert_int_eq(integer(status, "groups"), 1);
    ck_assert_int_eq(integer(status, "weights"), 12);
    ck_assert_int_eq(integer(status, "failed_rounds"), 0);
    ck_assert_str_eq(string(status, "socket"), server.socket);
    ck_assert_str_eq(string(status, "backend"), "host");
    json_decref(status);
    json_t *ping = program_ask_ctl(server.socket, "ping", "ping");
    ck_assert(json_number_value(json_object_get(ping, "round_trip_us")) > 0);
    json_decref(ping);
    json_t *version = program_ask_ctl(server.socket, "version", "version");
    ck_assert_str_eq(string(version, "f8ctl"), F8_VERSION);
    ck_assert_str_eq(string(version, "f8gatherd"), F8_VERSION);
    json_decref(version);
    json_decref(list_of("jobs", "jobs", 1));
    json_t *rounds = program_ask_ctl(server.socket, "rounds", "rounds");
    ck_assert(json_is_array(rounds)); /* empty between two rounds */
    json_decref(rounds);
}
END_TEST

START_TEST(test_json_of_group)
{
    json_t *groups = list_of("groups", "groups", 1);
    const json_t *group = json_array_get(groups, 0);
    const json_t *pids = json_object_get(group, "pids");
    ck_assert_str_eq(string(group, "name"), "dp");
    ck_assert_str_eq(string(group, "state"), "sealed");
    ck_assert_str_eq(string(group, "cause"), "");
    ck_assert_int_eq(integer(group, "world_size"), RANKS);
    ck_assert_int_eq(integer(group, "weights"), 12);
    ck_assert_int_eq(integer(group, "buckets"), 4);
    ck_assert_int_eq(integer(group, "float8_bytes"), 16172);
    ck_assert_uint_eq(json_array_size(pids), RANKS);
    for (size_t r = 0; r < RANKS; r++)
        ck_assert_int_eq(json_integer_value(json_array_get(pids, r)), ranks[r]);
    json_decref(groups);
}
END_TEST

START_TEST(test_json_of_weights)
{
    json_t *all = list_of("weights", "weights", 12);
    json_int_t float8 = 0;
    for (size_t i = 0; i < 12; i++) {
        const json_t *weight = json_array_get(all, i);
        bool raw = strcmp(string(weight, "flavour"), "raw") == 0;
        float8 += raw ? 0 : integer(weight, "bytes");
        ck_assert_int_eq(json_is_null(json_object_get(weight, "scale")), raw);
    }
    ck_assert_int_eq(float8, 16172);
    json_decref(all);
    json_decref(list_of("--name layers.0.* weights", "weights", 6));
    json_decref(list_of("--name *.weight scales", "scales", 10));
    json_decref(list_of("--job f8bench-[!0-9]* weights", "weights", 0));
    json_t *shown = list_of("show layers.0.uneven.weight", "weights", 1);
    const json_t *weight = json_array_get(shown, 0);
    ck_assert_str_eq(string(weight, "bucket"), "layers.0.attention");
    ck_assert_str_eq(string(weight, "wire"), "e4m3fn");
    ck_assert_int_eq(integer(weight, "bytes"), 35);
    ck_assert_uint_eq(strlen(string(weight, "scale_bits")), 10);
    ck_assert(json_number_value(json_object_get(weight, "scale")) > 0);
    ck_assert_int_eq(integer(weight, "stale"), 0);
    json_decref(shown);
}
END_TEST

/* Counts go up while the run goes on; a report has the same, and all else. */
START_TEST(test_json_of_stats)
{
    json_t *first = list_of("stats", "stats", 1), *job = list_of("stats --job f8*", "stats", 1);
    json_t *report = program_ask_ctl(server.socket, "report", "report");
    const json_t *before = json_array_get(first, 0), *after = json_object_get(report, "stats");
    ck_assert_int_gt(integer(before, "gathers"), 0);
    ck_assert_int_ge(integer(after, "gathers"), integer(before, "gathers"));
    ck_assert_int_gt(integer(json_object_get(before, "bytes"), "e4m3fn"), 0);
    ck_assert_int_eq(integer(json_object_get(before, "failed"), "rank_died"), 0);
    const json_t *gather = json_object_get(json_object_get(before, "times"), "gather");
    ck_assert_int_ge(integer(gather, "count"), integer(before, "gathers"));
    ck_assert(json_number_value(json_object_get(gather, "p50_s")) > 0);
    ck_assert_int_eq(strncmp(string(json_array_get(job, 0), "job"), "f8bench-", 8), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "weights")), 12);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "groups")), 1);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "histories")), 0);
    json_decref(first);
    json_decref(job);
    json_decref(report);
}
END_TEST

START_TEST(test_json_of_buckets)
{
    json_t *buckets = list_of("buckets", "buckets", 4);
    json_int_t weights = 0;
    for (size_t i = 0; i < 4; i++) {
        const json_t *bucket = json_array_get(buckets, i);
        weights += integer(bucket, "weights");
        ck_assert_int_gt(integer(bucket, "gathers"), 0);
        ck_assert_int_gt(integer(bucket, "bytes"), 0);
        ck_assert(json_is_array(json_object_get(bucket, "holders")));
    }
    ck_assert_int_eq(weights, 12);
    json_decref(buckets);
    json_decref(list_of("--name layers.1.feed* buckets", "buckets", 1));
    json_decref(list_of("scales --sort -saturated --top 3", "scales", 3));
}
END_TEST

/* One rank with one delayed weight, whose largest element is 1, 2, and 4 in three steps. */
static struct f8_client *run_delayed(void)
{
    struct f8_connect_options options = {.socket = server.socket, .job = "delayed"};
    struct f8_client *client;
    struct f8_group *group;
    struct f8_region *region;
    void *memory;
    ck_assert_int_eq(f8_connect(&options, &client), F8_OK);
    ck_assert_int_eq(f8_group_join(client, "dp", 0, 1, &group), F8_OK);
    ck_assert_int_eq(f8_region_alloc(client, 64, &region, &memory), F8_OK);
    struct f8_weight_desc weight = {.name = "w",
        .ndim = 1,
        .shape = {16},
        .dtype = F8_F32,
        .flavour = F8_DELAYED,
        .format = F8_E4M3FN,
        .history_length = 2,
        .region = region};
    struct f8_bucket_desc bucket = {.name = "b", .count = 1};
    ck_assert_int_eq(f8_register(group, &weight, 1, &bucket, 1), F8_OK);
    ck_assert_int_eq(f8_seal(group, NULL), F8_OK);
    for (int step = 0; step < 3; step++) {
        f8_ticket ticket;
        *(float *)memory = (float)(1 << step);
        ck_assert_int_eq(f8_gather(group, 0, F8_DEFAULT_DEADLINE, NULL), F8_OK);
        ck_assert_int_eq(f8_post_gather(group, 0, F8_FOREVER, NULL, 0, NULL), F8_OK);
        ck_assert_int_eq(f8_release(group, 0, NULL), F8_OK);
        ck_assert_int_eq(f8_sync(group, F8_DEFAULT_DEADLINE, &ticket), F8_OK);
        ck_assert_int_eq(f8_wait(group, ticket, F8_FOREVER, NULL), F8_OK);
    }
    return client;
}

START_TEST(test_delayed)
{
    static const char *const arguments[] = {"--linger", "0", NULL}; /* so that no state is left */
    test_daemon_start(&server, arguments);
    struct f8_client *client = run_delayed();
    assert_says("history w", 0, "w, group dp of job delayed, uid ");
    assert_says("history w", 0,
        "SYNC  AMAX  BITS        NEXT SCALE  BITS\n"
        "   1     1  0x3f800000         448  0x43e00000\n"
        "   2     2  0x40000000         224  0x43600000\n"
        "   3     4  0x40800000         112  0x42e00000\n");
    json_t *amax = list_of("amax", "amax", 1);
    const json_t *weight = json_array_get(amax, 0);
    const json_t *history = json_object_get(weight, "history");
    ck_assert_uint_eq(json_array_size(history), 2);
    ck_assert(json_real_value(json_array_get(history, 0)) == 4.0);
    ck_assert(json_real_value(json_array_get(history, 1)) == 2.0);
    ck_assert_int_eq(integer(weight, "syncs"), 3);
    ck_assert_int_eq(integer(weight, "since_sync"), 0);
    ck_assert_int_eq(integer(weight, "saturated"), 2);
    json_decref(amax);
    assert_says("history w --svg -", 0, "<path class=\"amax\" d=\"M46.0 ");
    assert_says("report --html -", 0, "<figcaption><b>w</b><span>group dp of job delayed</span>");
    assert_says("completion delayed", 0, "w\n");
    f8_close(client);
    test_daemon_drop_states(&server);
    test_daemon_stop(&server);
}
END_TEST

/* Waits, bounded, until the daemon has seen that its last client is gone. */
static void await_no_job(void)
{
    json_int_t jobs = 1;
    for (int i = 0; i < 1000 && jobs > 0; i++) {
        json_t *status = program_ask_ctl(server.socket, "status", "status");
        jobs = integer(status, "jobs");
        json_decref(status);
    }
    ck_assert_int_eq(jobs, 0);
}

/* Runs `f8ctl WHAT delayed dp FILE` and looks for a text, as assert_says. */
static void transfer(const char *what, const char *name, int status, const char *text)
{
    char arguments[256];
    (void)snprintf(
        arguments, sizeof(arguments), "%s delayed dp %s/%s", what, server.directory, name);
    assert_says(arguments, status, text);
}

/* Reads at most 4096 bytes of a file beside the daemon's, and removes it. */
static size_t take_file(const char *name, char *bytes)
{
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/%s", server.directory, name);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    size_t size = fread(bytes, 1, 4096, file);
    (void)fclose(file);
    ck_assert_int_eq(unlink(path), 0);
    return size;
}

/* Where the form of a state begins to say what it is of; before that, who may continue it. */
#define FORM_NAMES 40

/* What is exported can be imported once the group is gone, and then is what is exported. */
START_TEST(test_transfer)
{
    char bytes[2][4096];
    test_daemon_start(&server, NULL);
    struct f8_client *client = run_delayed();
    assert_says("export none dp /nowhere/state", 1, "nothing is stored for job none");
    transfer("export", "a", 0, " as of sync 3\n");
    transfer("export", "a", 1, "is there already");
    transfer("--yes import", "a", 1, "group dp of job delayed has members");
    f8_close(client);
    await_no_job();
    transfer(
        "import", "a", 2, "replaces the state that is stored for group dp of job delayed, uid");
    transfer("--yes import", "a", 0, " bytes of group dp of job delayed");
    transfer("--force export", "b", 0, " as of sync 3\n");
    size_t size = take_file("a", bytes[0]);
    ck_assert_uint_eq(take_file("b", bytes[1]), size);
    ck_assert_uint_gt(size, FORM_NAMES);
    ck_assert_mem_eq(bytes[0] + FORM_NAMES, bytes[1] + FORM_NAMES, size - FORM_NAMES);
    test_daemon_drop_states(&server);
    test_daemon_stop(&server);
}
END_TEST

/* A rank that is gone is told by name in the group's cause, to whoever comes to look. */
START_TEST(test_cause)
{
    char cause[96];
    /* f8bench would end rank 0 as well, and a late daemon would see both deaths at once. */
    ck_assert_int_eq(kill(bench.pid, SIGSTOP), 0);
    ck_assert_int_eq(kill(ranks[1], SIGKILL), 0);
    test_daemon_await_log(&server, "rank 1");
    ck_assert_int_eq(kill(bench.pid, SIGCONT), 0);
    program_expect(&bench, 1);
    program_done(&bench);
    json_t *groups = program_ask_ctl(server.socket, "groups", "groups");
    const json_t *group = json_array_get(groups, 0);
    if (group) { /* if it outlives its last rank, it is broken and says by whom */
        (void)snprintf(cause, sizeof(cause), "rank 1 (pid %d)", (int)ranks[1]);
        ck_assert_str_eq(string(group, "state"), "broken");
        ck_assert_msg(strstr(string(group, "cause"), cause), "%s", string(group, "cause"));
    }
    json_decref(groups);
    test_daemon_stop(&server);
}
END_TEST

static void version_is_told_without_a_daemon(void)
{
    struct program ctl;
    run_ctl(&ctl, "version", 3);
    ck_assert_msg(strncmp(ctl.out, "f8ctl " F8_VERSION ", protocol ",
                      strlen("f8ctl " F8_VERSION ", protocol ")) == 0,
        "%s", ctl.out);
    ck_assert_msg(strstr(ctl.err, "no daemon answers; tried "), "%s", ctl.err);
    program_done(&ctl);
    run_ctl(&ctl, "version --json", 3);
    ck_assert_msg(
        strstr(ctl.out, "\"f8ctl\":\"" F8_VERSION "\",\"f8gatherd\":null"), "%s", ctl.out);
    program_done(&ctl);
}

/* The daemon's clock in a line of top's. */
static json_int_t uptime_of(const char *line)
{
    json_t *object = json_loadb(line, strcspn(line, "\n"), 0, NULL);
    const json_t *top = json_object_get(object, "top"), *status = json_object_get(top, "status");
    json_int_t ms = json_integer_value(json_object_get(status, "uptime_ms"));
    ck_assert_int_gt(ms, 0);
    json_decref(object);
    return ms;
}

/* One that was stopped shows what is, not all that it has missed. */
START_TEST(test_top_after_a_stop)
{
    struct program ctl;
    program_start(
        &ctl, F8_TEST_CTL, NULL, "--socket %s --json top --count 3 --interval 0.5", server.socket);
    for (off_t size = 0; size == 0; (void)poll(NULL, 0, 1))
        size = lseek(ctl.out_fd, 0, SEEK_END);
    ck_assert_int_eq(kill(ctl.pid, SIGSTOP), 0);
    (void)poll(NULL, 0, 1600); /* three frames */
    ck_assert_int_eq(kill(ctl.pid, SIGCONT), 0);
    program_expect(&ctl, 0);
    const char *second = strchr(ctl.out, '\n') + 1, *third = strchr(second, '\n') + 1;
    ck_assert_int_gt(uptime_of(third) - uptime_of(second), 200);
    program_done(&ctl);
}
END_TEST

START_TEST(test_no_daemon)
{
    test_daemon_start(&server, NULL);
    test_daemon_kill(&server);
    assert_says("status", 3, server.socket);
    assert_says("--json status", 3, "no daemon answers; tried ");
    version_is_told_without_a_daemon();
    test_daemon_restart(&server, NULL);
    assert_says("status", 0, server.socket);
    test_daemon_stop(&server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ctl_live");
    TCase *live = tcase_create("live");
    tcase_set_timeout(live, 120);
    tcase_add_checked_fixture(live, setup, teardown);
    tcase_add_test(live, test_says);
    tcase_add_test(live, test_json_of_daemon);
    tcase_add_test(live, test_json_of_group);
    tcase_add_test(live, test_json_of_weights);
    tcase_add_test(live, test_json_of_stats);
    tcase_add_test(live, test_json_of_buckets);
    tcase_add_test(live, test_top_after_a_stop);
    suite_add_tcase(suite, live);
    TCase *failing = tcase_create("failing");
    tcase_set_timeout(failing, 120);
    tcase_add_checked_fixture(failing, setup, NULL);
    tcase_add_test(failing, test_cause);
    suite_add_tcase(suite, failing);
    TCase *absent = tcase_create("daemon");
    tcase_set_timeout(absent, 120);
    tcase_add_test(absent, test_no_daemon);
    tcase_add_test(absent, test_delayed);
    tcase_add_test(absent, test_transfer);
    suite_add_tcase(suite, absent);
    return run_cases(suite);
}
