/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8bench run over hosts, as a whole program: over network namespaces (as root) and over daemons
 * that share the loopback, that each host's copy is checked, what it counts is near what must be
 * sent, a planted difference is found, a daemon that is killed is named, and nothing stays.
 */
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/bench/network.h"
#include "lib/patience.h"
#include "lib/proc.h"
#include "lib/program.h"
#include "lib/test_daemon.h"

static char directory[] = "/tmp/f8-bench-hosts-XXXXXX";

static void make_directory(void)
{
    memcpy(directory + sizeof(directory) - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

/* Nothing may be left in it: no socket, no state. */
static void check_directory(void)
{
    ck_assert_msg(rmdir(directory) == 0, "something is left in %s", directory);
}

/* How the ranks stand to each other; all look at every gathered byte of --model tiny. */
static const struct {
    const char *flags;
    uint32_t hosts;
    uint32_t copies; /* of the weights: each host's, of each group that it has */
} ways[] = {
    {"--ifname lo --hosts 2 --ranks 2", 2, 2},
    {"--ifname lo --hosts 3 --ranks 4 --flavour delayed", 3, 3},
    {"--hosts 2 --ranks 4 --no-precompute", 2, 2},
    {"--hosts 2 --ranks 3 --pre-gather --flavour delayed --slots 2", 2, 2},
    {"--hosts 4 --ranks 4 --flavour static --rate-mbit 1000 --delay-us 200", 4, 4},
    {"--hosts 2 --ranks 4 --hsdp 2", 2, 2},           /* each replica on one host */
    {"--hosts 4 --ranks 4 --hsdp 2", 4, 4},           /* each over two */
    {"--hosts 3 --ranks 3 --hsdp 3 --slots 2", 3, 3}, /* nothing is exchanged */
};

#define NUM_WAYS (int)(sizeof(ways) / sizeof(ways[0]))

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "%s is no number", key);
    return json_number_value(value);
}

/* As a run on one host tells it, which other tests look at. */
static double checked_bytes_of_one_copy(void)
{
    struct program bench;
    program_start(&bench, F8_TEST_BENCH, directory, "run --model tiny --steps 2 --ranks 1 --json");
    program_expect(&bench, 0);
    json_t *report = program_json(&bench);
    double bytes = number(report, "checked_bytes");
    json_decref(report);
    program_done(&bench);
    return bytes;
}

START_TEST(test_all_copies_are_right)
{
    struct program bench;
    program_start(
        &bench, F8_TEST_BENCH, directory, "run --model tiny --steps 2 --json %s", ways[_i].flags);
    program_expect(&bench, 0);
    json_t *report = program_json(&bench);
    const json_t *network = json_object_get(report, "network");
    ck_assert(json_is_true(json_object_get(report, "ok")));
    ck_assert_double_eq(number(report, "mismatches"), 0);
    /* Padding of a shard is checked too: copies differ by that. */
    ck_assert_double_ge(
        number(report, "checked_bytes"), ways[_i].copies * checked_bytes_of_one_copy());
    ck_assert_double_eq(number(network, "hosts"), ways[_i].hosts);
    ck_assert_uint_eq(json_array_size(json_object_get(network, "by_host")), ways[_i].hosts);
    json_decref(report);
    program_done(&bench);
}
END_TEST

/* Of a real model the payload is what must be sent, and a little; and the daemons count the same.
 */
START_TEST(test_the_wire_carries_little_more_than_it_must)
{
    struct program bench;
    program_start(&bench, F8_TEST_BENCH, directory,
        "run --model gpt2-small --steps 3 --hosts 3 --ranks 4 --json");
    program_expect(&bench, 0);
    json_t *report = program_json(&bench);
    const json_t *network = json_object_get(report, "network");
    double payload = number(network, "payload_ratio");
    double wire = number(network, "wire_ratio");
    ck_assert_msg(payload >= 1 && payload < 1.05, "payload is %f of the least", payload);
    ck_assert_msg(wire > payload && wire < 1.15, "the wire has %f of the least", wire);
    ck_assert_double_gt(number(network, "raw_ratio"), 0);
    size_t index;
    json_t *host;
    json_array_foreach(json_object_get(network, "by_host"), index, host)
    {
        double in = number(host, "least_in_bytes") * 3;
        ck_assert_double_ge(number(host, "engine_in_bytes"), in);
        ck_assert_double_lt(number(host, "engine_in_bytes"), in * 1.05);
        ck_assert_double_gt(number(host, "control_in_bytes"), 0);
    }
    json_decref(report);
    program_done(&bench);
}
END_TEST

START_TEST(test_a_planted_difference_is_found)
{
    struct program bench;
    program_start(&bench, F8_TEST_BENCH, directory,
        "run --model tiny --ifname lo --hosts 2 --ranks 3 --plant %s", _i == 0 ? "byte" : "scale");
    program_expect(&bench, 1);
    ck_assert_ptr_nonnull(strstr(bench.out, "a difference was planted, and found"));
    program_done(&bench);
}
END_TEST

/* A child of f8bench that runs f8gatherd: of the first, or the one after. 0: there is none yet. */
static pid_t find_daemon(pid_t bench, uint32_t which)
{
    pid_t children[16];
    uint32_t count = proc_children(bench, children, 16);
    for (uint32_t i = 0; i < count; i++) {
        if (proc_runs(children[i], test_daemon_program()) && which-- == 0)
            return children[i];
    }
    return 0;
}

START_TEST(test_a_killed_daemon_is_named)
{
    struct program bench;
    char said[64];
    pid_t daemon = 0;
    program_start(&bench, F8_TEST_BENCH, directory,
        "run --model tiny --ifname lo --hosts 2 --ranks 4 --steps 1000000");
    for (int ms = 0; daemon == 0 && ms < PATIENCE_MS; ms += 5) {
        poll(NULL, 0, 5);
        daemon = find_daemon(bench.pid, (uint32_t)_i);
    }
    ck_assert_int_gt(daemon, 0);
    kill(daemon, SIGKILL);
    program_expect(&bench, 1);
    snprintf(said, sizeof(said), "the daemon (pid %d) was ended by signal 9", (int)daemon);
    ck_assert_msg(strstr(bench.out, said) != NULL, "%s", bench.out);
    program_done(&bench);
}
END_TEST

START_TEST(test_an_interrupt_leaves_nothing)
{
    struct program bench;
    program_start(&bench, F8_TEST_BENCH, directory,
        "run --model tiny --ifname lo --hosts 2 --ranks 4 --steps 1000000");
    for (int ms = 0; find_daemon(bench.pid, 1) == 0 && ms < PATIENCE_MS; ms += 5)
        poll(NULL, 0, 5);
    kill(bench.pid, SIGINT);
    program_expect(&bench, 130);
    program_done(&bench);
}
END_TEST

/* Until the daemon shows the helper of a group that has ended. */
static void await_kept_helper(const char *socket)
{
    size_t count = 0;
    for (int ms = 0; count == 0 && ms < PATIENCE_MS; ms += 5) {
        json_t *status = program_ask_ctl(socket, "status", "status");
        count = json_array_size(json_object_get(status, "kept_helpers"));
        json_decref(status);
        (void)poll(NULL, 0, 5);
    }
    ck_assert_uint_eq(count, 1);
}

START_TEST(test_given_daemons_are_used)
{
    static const char *const arguments[][5] = {
        {"--socket-ifname", "lo", "--host-name", "left", NULL},
        {"--socket-ifname", "lo", "--host-name", "right", NULL}};
    struct test_daemon daemons[2];
    struct program bench;
    for (int i = 0; i < 2; i++)
        test_daemon_start(&daemons[i], arguments[i]);
    program_start(&bench, F8_TEST_BENCH, directory,
        "run --model tiny --hosts 2 --ranks 4 --steps 2 --socket %s,%s", daemons[0].socket,
        daemons[1].socket);
    program_expect(&bench, 0);
    ck_assert_ptr_nonnull(strstr(bench.out, "the hosts share an interface"));
    program_done(&bench);
    for (int i = 0; i < 2; i++) { /* it was no failure; and helpers are kept, and shown */
        test_daemon_await_log(&daemons[i], ", group dp: ended: rank ");
        await_kept_helper(daemons[i].socket);
    }
    for (int i = 0; i < 2; i++) {
        test_daemon_drop_states(&daemons[i]);
        test_daemon_stop(&daemons[i]);
    }
}
END_TEST

START_TEST(test_exchange_tells_of_both_patterns)
{
    struct program bench;
    program_start(&bench, F8_TEST_BENCH, directory,
        "exchange --hosts 3 --bytes 1000000 --rounds 3 --delay-us 1000 --json");
    program_expect(&bench, 0);
    json_t *report = program_json(&bench);
    ck_assert_double_eq(number(report, "payload_bytes"), 2000000);
    ck_assert_double_ge(number(json_object_get(report, "direct"), "median_s"), 0.001);
    ck_assert_double_ge(number(json_object_get(report, "ring"), "median_s"), 0.002);
    ck_assert_double_ge(number(json_object_get(report, "ring"), "wire_in_bytes"), 2000000);
    json_decref(report);
    program_done(&bench);
}
END_TEST

/* Ways that need namespaces come last. */
static int first_namespaces(void)
{
    int first = 0;
    while (strstr(ways[first].flags, "--ifname") != NULL)
        first++;
    return first;
}

int main(void)
{
    struct bench_error error;
    bool may = network_check(&error) == 0;
    TCase *cases = tcase_create("bench over hosts");
    tcase_add_checked_fixture(cases, make_directory, check_directory);
    tcase_add_loop_test(cases, test_all_copies_are_right, 0, may ? NUM_WAYS : first_namespaces());
    tcase_add_loop_test(cases, test_a_planted_difference_is_found, 0, 2);
    tcase_add_loop_test(cases, test_a_killed_daemon_is_named, 0, 2);
    tcase_add_test(cases, test_an_interrupt_leaves_nothing);
    tcase_add_test(cases, test_given_daemons_are_used);
    if (may) {
        tcase_add_test(cases, test_the_wire_carries_little_more_than_it_must);
        tcase_add_test(cases, test_exchange_tells_of_both_patterns);
    } else {
        printf("without network namespaces: %s\n", error.text);
    }
    Suite *suite = suite_create("bench over hosts");
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
