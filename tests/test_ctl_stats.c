/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8ctl stats makes of counts and histograms, of all time and of a while, for people and as
 * JSON; and the usage of f8ctl report, whose page other tests read.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ctl_run.h"
#include "lib/fake_fleet.h"
#include "lib/suite.h"

#define TEXT (1 << 20)

static struct fake_daemon fake;
static char text[TEXT];

static void ask(const char *arguments, int status)
{
    char all[512];
    fake_start(&fake, fleet_serve);
    (void)snprintf(all, sizeof(all), "--socket %s %s", fake.socket, arguments);
    int got = ctl_run(all, text, sizeof(text));
    fake_stop(&fake);
    ck_assert_msg(got == status, "%s: status %d: %.2000s", arguments, got, text);
}

static void has(const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "no \"%s\" in: %.2000s", part, text);
}

START_TEST(totals_and_rates)
{
    static const char expected[] =
        "f8gatherd, since 10.0 s; rates and times of all of it\n"
        "COUNT                 TOTAL   A SECOND\n"
        "gathers                1000        100\n"
        "gathered            1.0 GiB  102.4 MiB\n"
        "  as e4m3fn         1.0 GiB  102.4 MiB\n"
        "saturated elements       20       2.00\n"
        "NaN elements              8       0.80\n"
        "stale gathers             0          0\n"
        "failed rounds             3       0.30\n"
        "  by rank_died            3       0.30\n"
        "\n"
        "TIME     OF  MEAN     P50    P99  FROM\n"
        "gather  100  2 ms  556 us  10 ms  first rank's request to the end\n"
        "wait    100  2 ms  556 us  10 ms  first rank's request to the last's\n"
        "rpc     100  2 ms  556 us  10 ms  request to reply, if answered at once\n";
    ask("stats", 0);
    ck_assert_str_eq(text, expected);
}
END_TEST

/* The second answer has all counts doubled, 10 s later, but of NaNs, which went down. */
START_TEST(rates_of_a_while)
{
    ask("stats --over 0.01", 0);
    ck_assert_uint_eq(fleet_stats_asked(), 2);
    has("f8gatherd, since 20.0 s; rates and times of the last 10.0 s\n");
    has("gathers                2000        100\n");
    has("NaN elements              2          -\n");
    has("failed rounds             3          0\n");
    has("gather  100  2 ms ");
    ask("stats --over 0", 2);
    has("--over 0: must be seconds");
    ask("jobs --over 1", 2);
    has("jobs: takes no --over");
}
END_TEST

START_TEST(jobs_have_rates_on_demand)
{
    ask("stats --job 'run*'", 0);
    has("job run<b>, uid 1000, since ");
    has("rates: --over SECONDS\n");
    has("gathers                1000         -\n");
    ck_assert_ptr_null(strstr(text, "P99"));
    ck_assert_ptr_null(strstr(text, "by any"));
}
END_TEST

static double real_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "%s is no number", key);
    return json_number_value(value);
}

START_TEST(json_has_all)
{
    ask("stats --json", 0);
    json_t *object = json_loads(text, 0, NULL);
    const json_t *stats = json_array_get(json_object_get(object, "stats"), 0);
    ck_assert(json_is_null(json_object_get(stats, "job")));
    ck_assert_double_eq(real_of(stats, "gathers"), fleet_stats_asked() * 1000.0);
    ck_assert_double_eq(real_of(json_object_get(stats, "bytes"), "float16"), 0);
    ck_assert_double_eq(real_of(json_object_get(stats, "failed"), "rank_died"), 3);
    ck_assert_double_eq_tol(
        real_of(json_object_get(stats, "per_second"), "bytes"), 107374182.4, 1e-3);
    const json_t *gather = json_object_get(json_object_get(stats, "times"), "gather");
    ck_assert_double_eq_tol(real_of(gather, "mean_s"), 2e-3, 1e-12);
    ck_assert_double_eq_tol(real_of(gather, "p50_s"), 1e-3 * 50 / 90, 1e-12);
    ck_assert_double_eq_tol(real_of(gather, "p99_s"), 1e-2, 1e-12);
    json_decref(object);
    ask("stats --json --job 'run*'", 0);
    object = json_loads(text, 0, NULL);
    stats = json_array_get(json_object_get(object, "stats"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(stats, "job")), "run<b>");
    ck_assert(json_is_null(json_object_get(stats, "times")));
    ck_assert(json_is_null(json_object_get(json_object_get(stats, "per_second"), "gathers")));
    json_decref(object);
}
END_TEST

START_TEST(report_wants_a_form)
{
    ask("report", 2);
    has("--html FILE or --json is missing");
    ask("report --html - --json", 2);
    ask("report --html /nowhere/page.html", 1);
    has("cannot be made: No such file or directory");
    ask("report --html /dev/null", 1);
    has("/dev/null is a device: --force writes to it");
    ask("report --sort name --html -", 2);
}
END_TEST

START_TEST(report_is_an_object)
{
    ask("report --json --name 'model.layers.4.*' --top 2", 0);
    json_t *object = json_loads(text, 0, NULL);
    const json_t *report = json_object_get(object, "report");
    ck_assert_uint_eq(json_array_size(json_object_get(report, "weights")), 1);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "histories")), 1);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "groups")), 2);
    ck_assert_double_eq(real_of(json_object_get(report, "status"), "pid"), 4711);
    json_decref(object);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("ctl_stats");
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, totals_and_rates);
    tcase_add_test(cases, rates_of_a_while);
    tcase_add_test(cases, jobs_have_rates_on_demand);
    tcase_add_test(cases, json_has_all);
    tcase_add_test(cases, report_wants_a_form);
    tcase_add_test(cases, report_is_an_object);
    return run_suite("ctl_stats", cases);
}
