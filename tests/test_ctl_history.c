/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8ctl shows of delayed weights and buckets, and in which order, against a fake daemon:
 * sparklines, logs of syncs, sums, --sort and --top.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ctl_run.h"
#include "lib/fake_daemon.h"
#include "lib/suite.h"

#define NAN_BITS 0x7fc00000u
#define INF_BITS 0x7f800000u
#define TEXT     8192
#define LONG     64

static struct fake_daemon fake;
static char asked_name[256];
static char text[TEXT];

/* Powers of two, so that heights are exact: 2^0, 2^7, 2^3, 2^6 of a window of 8 syncs. */
static uint32_t window[] = {0x3f800000, 0x43000000, 0x41000000, 0x42800000, 0, 0, 0, 0};
static uint32_t alike[] = {0x3f800000, 0x3f800000};
static uint32_t longest[LONG];
static uint32_t special[] = {0x3f800000, 0, NAN_BITS, INF_BITS, 0x43000000};

/* The second amax is the last one's, NaN; the third is not known, nor is it delayed. */
static const struct {
    const char *name;
    uint32_t amax;
    uint64_t saturated, since_sync;
    uint32_t *history;
    size_t count;
} weights[] = {
    {"layers.10.w", 0x3f800000, 7, 1, window, 8},
    {"layers.9.w", NAN_BITS, 2, 30, special, 5},
    {"norm", 0, 0, 0, NULL, 0},
    {"layers.2.w", 0x40000000, 7, 2, alike, 2},
};

#define NUM_WEIGHTS (sizeof(weights) / sizeof(weights[0]))

static void make_weight(F8__WeightInfo *info, size_t i)
{
    bool delayed = weights[i].count > 0;
    f8__weight_info__init(info);
    info->job = (char *)"run";
    info->group = (char *)"dp@tp=0";
    info->amax_group = (char *)(i == 0 ? "all" : "");
    info->bucket = (char *)"layers";
    info->wire = (char *)"e4m3fn";
    info->name = (char *)weights[i].name;
    info->flavour = delayed ? F8_PROTO_DELAYED : F8_PROTO_RAW;
    info->amax = weights[i].amax;
    info->amax_known = info->scale_known = delayed;
    info->scale = 0x44600000;
    info->saturated = weights[i].saturated;
    info->since_sync = weights[i].since_sync;
    info->syncs = 12;
    info->kept = i == 1;
    info->initialised = delayed;
    info->history_length = (uint32_t)weights[i].count;
    info->history = weights[i].history;
    info->n_history = weights[i].count;
}

/* In the place of the first, if the test has filled it. */
static void make_longest(F8__WeightInfo *info)
{
    make_weight(info, 0);
    info->history = longest;
    info->n_history = LONG;
}

static void answer_weights(F8__InspectReply *inspect)
{
    static F8__WeightInfo infos[NUM_WEIGHTS];
    static F8__WeightInfo *list[NUM_WEIGHTS];
    for (size_t i = 0; i < NUM_WEIGHTS; i++) {
        make_weight(&infos[i], i);
        list[i] = &infos[i];
    }
    if (longest[0] != 0)
        make_longest(&infos[0]);
    inspect->weights = list;
    inspect->n_weights = NUM_WEIGHTS;
}

static void answer_buckets(F8__InspectReply *inspect)
{
    static F8__BucketInfo infos[2];
    static F8__BucketInfo *list[2] = {&infos[0], &infos[1]};
    static uint32_t ranks[] = {0, 3};
    for (uint32_t i = 0; i < 2; i++) {
        f8__bucket_info__init(&infos[i]);
        infos[i].job = (char *)"run";
        infos[i].group = (char *)"dp";
        infos[i].name = (char *)(i == 0 ? "layers.0" : "layers.1");
        infos[i].weights = 9 + i;
        infos[i].shared = i == 1;
        infos[i].bytes = (uint64_t)3 << (20 - 10 * i);
        infos[i].gathers = 10;
        infos[i].saturated = 5 * i;
        infos[i].nan = 1 - i;
        infos[i].holders = ranks;
        infos[i].n_holders = 2 * i;
    }
    inspect->buckets = list;
    inspect->n_buckets = 2;
}

/* The same weight in two jobs, a page each; that of the second was never synced. */
static void answer_histories(F8__InspectReply *inspect, uint64_t cursor)
{
    static F8__HistoryInfo info;
    static F8__HistoryInfo *list[] = {&info};
    static uint32_t amax[] = {NAN_BITS, 0x40000000, 0x3f800000};
    static uint32_t scale[] = {0x43600000, 0x43600000, 0x43e00000};
    f8__history_info__init(&info);
    info.job = (char *)(cursor == 0 ? "run" : "other");
    info.uid = 1000;
    info.group = (char *)"dp";
    info.name = asked_name;
    info.newest = 77;
    info.amax = amax;
    info.scale = scale;
    info.n_amax = info.n_scale = cursor == 0 ? 3 : 0;
    inspect->histories = list;
    inspect->n_histories = 1;
    inspect->cursor = cursor == 0 ? 1 : 0;
}

static bool answer(int fd, const F8__Request *request)
{
    F8__Reply reply = F8__REPLY__INIT;
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;
    const F8__Inspect *ask = request->inspect;
    (void)snprintf(asked_name, sizeof(asked_name), "%s", ask->name);
    if (ask->view == F8__VIEW__WEIGHTS || ask->view == F8__VIEW__AMAX)
        answer_weights(&inspect);
    else if (ask->view == F8__VIEW__BUCKETS)
        answer_buckets(&inspect);
    else if (ask->view == F8__VIEW__HISTORY && strcmp(ask->name, "none") != 0)
        answer_histories(&inspect, ask->cursor);
    reply.id = request->id;
    reply.body_case = F8__REPLY__BODY_INSPECT;
    reply.inspect = &inspect;
    return fake_reply(fd, &reply, -1);
}

static void serve(struct fake_daemon *daemon, int fd)
{
    bool more = fake_hello(fd);
    (void)daemon;
    while (more) {
        F8__Request *request = fake_receive(fd, NULL);
        more = request && answer(fd, request);
        if (request)
            fake_free(request);
    }
}

static void ask(const char *locale, const char *arguments, int status)
{
    char all[512];
    setenv("LC_ALL", locale, 1);
    fake_start(&fake, serve);
    (void)snprintf(all, sizeof(all), "--socket %s %s", fake.socket, arguments);
    int got = ctl_run(all, text, sizeof(text));
    fake_stop(&fake);
    unsetenv("LC_ALL");
    ck_assert_msg(got == status, "%s: status %d: %s", arguments, got, text);
}

START_TEST(amax_draws_windows)
{
    static const char expected[] =
        "JOB  GROUP    NAME         AMAX  SCALE  WINDOW  SYNCS  STALE  SATURATED  NAN  SINCE SYNC  "
        "KEPT\n"
        "run  dp@tp=0  layers.10.w     1    896  #=@.       12      0          7    0           1  "
        "   0\n"
        "run  dp@tp=0  layers.9.w    nan    896  @IN_.      12      0          2    0          30  "
        "   1\n"
        "run  dp@tp=0  norm            -      -  -           -      0          0    0           -  "
        "   -\n"
        "run  dp@tp=0  layers.2.w      2    896  ==         12      0          7    0           2  "
        "   0\n";
    ask("C", "amax", 0);
    ck_assert_str_eq(text, expected);
    ask("C.UTF-8", "amax", 0);
    ck_assert_ptr_nonnull(strstr(text, "  ▇▄█▁       12 ")); /* as wide as it looks */
    ck_assert_ptr_nonnull(strstr(text, "  █IN_▁      12 "));
    ck_assert_ptr_nonnull(strstr(text, "  ▄▄         12 "));
}
END_TEST

/* A long window is drawn by the largest of each few: here 64 amaxes in 32 characters. */
START_TEST(long_window_is_narrowed)
{
    for (size_t i = 0; i < LONG; i++)
        longest[i] = i % 2 ? 0x43000000 : 0x3f800000;
    longest[0] = NAN_BITS; /* the newest */
    longest[LONG - 1] = 0x3f800000;
    ask("C", "amax", 0);
    ck_assert_ptr_nonnull(strstr(text, "  .@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@N  "));
    longest[0] = 0;
}
END_TEST

/* The names of a list in the order in which it was printed. */
static void assert_order(const char *arguments, const char *names)
{
    char got[256] = "", key[16], all[256];
    (void)snprintf(all, sizeof(all), "%s --json", arguments);
    ask("C", all, 0);
    json_t *object = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(object);
    (void)sscanf(arguments, "%15s", key);
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(object, key), i, row)(void)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", i > 0 ? " " : "",
            json_string_value(json_object_get(row, "name")));
    json_decref(object);
    ck_assert_msg(strcmp(got, names) == 0, "%s: %s, not %s", arguments, got, names);
}

START_TEST(lists_are_sorted)
{
    assert_order("amax", "layers.10.w layers.9.w norm layers.2.w");
    assert_order("amax --sort name", "layers.2.w layers.9.w layers.10.w norm");
    assert_order("amax --sort -NAME", "norm layers.10.w layers.9.w layers.2.w");
    assert_order("amax --sort amax", "layers.10.w layers.2.w layers.9.w norm");
    assert_order("amax --sort -amax", "layers.9.w layers.2.w layers.10.w norm");
    assert_order("scales --sort -saturated", "layers.10.w layers.2.w layers.9.w norm");
    assert_order("scales --sort saturated", "norm layers.9.w layers.10.w layers.2.w");
    assert_order("scales --sort -since-sync --top 2", "layers.9.w layers.2.w");
    assert_order("scales --sort 'SINCE SYNC'", "layers.10.w layers.2.w layers.9.w norm");
    assert_order("scales --top 1", "layers.10.w");
    assert_order("weights --sort -gathered_as --top 99", "layers.10.w layers.9.w norm layers.2.w");
    assert_order("buckets --sort bytes", "layers.1 layers.0");
    assert_order("buckets --sort -nan", "layers.0 layers.1");
}
END_TEST

START_TEST(buckets_show_sums)
{
    static const char expected[] =
        "JOB  GROUP  NAME      WEIGHTS  PLACE    BYTES  GATHERS  STALE  SATURATED  NAN  HELD BY "
        "RANKS\n"
        "run  dp     layers.1       10  slot   3.0 KiB       10      0          5    0  0 3\n";
    ask("C", "buckets --sort -saturated --top 1", 0);
    ck_assert_str_eq(text, expected);
    ask("C", "--json --name 'l*' buckets", 0);
    ck_assert_str_eq(asked_name, "l*");
    json_t *object = json_loads(text, 0, NULL);
    const json_t *row = json_array_get(json_object_get(object, "buckets"), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "saturated")), 5);
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(row, "holders"), 1)), 3);
    ck_assert(json_is_true(json_object_get(row, "shared")));
    json_decref(object);
}
END_TEST

START_TEST(history_ends_with_the_newest)
{
    static const char expected[] = "w[0], group dp of job run, uid 1000\n"
                                   "SYNC  AMAX  BITS        NEXT SCALE  BITS\n"
                                   "  75     1  0x3f800000         448  0x43e00000\n"
                                   "  76     2  0x40000000         224  0x43600000\n"
                                   "  77   nan  0x7fc00000         224  0x43600000\n"
                                   "\n"
                                   "w[0], group dp of job other, uid 1000\n"
                                   "SYNC  AMAX  BITS  NEXT SCALE  BITS\n"
                                   "(none)\n";
    char got[TEXT];
    ask("C", "history 'w[0]'", 0);
    ck_assert_str_eq(asked_name, "w\\[0\\]"); /* a name, not a pattern */
    (void)snprintf(got, sizeof(got), "%s", text);
    /* The fake daemon gives back the pattern as the name. */
    for (char *at; (at = strchr(got, '\\')) != NULL;)
        memmove(at, at + 1, strlen(at));
    ck_assert_str_eq(got, expected);
    ask("C", "--last 1 history w", 0);
    ck_assert_ptr_null(strstr(text, "\n  76 "));
    ck_assert_ptr_nonnull(strstr(text, "\n  77 "));
    ask("C", "history none", 1);
    ck_assert_ptr_nonnull(strstr(text, "f8ctl: no delayed weight is called none at "));
}
END_TEST

START_TEST(json_has_exact_values)
{
    ask("C", "--json history w --last 2", 0);
    json_t *object = json_loads(text, 0, NULL);
    const json_t *histories = json_object_get(object, "histories");
    const json_t *syncs = json_object_get(json_array_get(histories, 0), "syncs");
    ck_assert_uint_eq(json_array_size(histories), 2);
    ck_assert_uint_eq(json_array_size(syncs), 2);
    const json_t *first = json_array_get(syncs, 0), *last = json_array_get(syncs, 1);
    ck_assert_int_eq(json_integer_value(json_object_get(first, "sync")), 76);
    ck_assert_double_eq(json_real_value(json_object_get(first, "amax")), 2);
    ck_assert(json_is_null(json_object_get(last, "amax")));
    ck_assert_str_eq(json_string_value(json_object_get(last, "amax_bits")), "0x7fc00000");
    ck_assert_str_eq(json_string_value(json_object_get(last, "scale_bits")), "0x43600000");
    json_decref(object);
    ask("C", "amax --json", 0);
    object = json_loads(text, 0, NULL);
    const json_t *row = json_array_get(json_object_get(object, "amax"), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "since_sync")), 30);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "kept")), 1);
    ck_assert_str_eq(json_string_value(json_object_get(row, "history_algorithm")), "max");
    ck_assert_str_eq(json_string_value(json_object_get(row, "amax_group")), "dp@tp=0");
    ck_assert_uint_eq(json_array_size(json_object_get(row, "history")), 5);
    ck_assert_str_eq(
        json_string_value(json_array_get(json_object_get(row, "history_bits"), 3)), "0x7f800000");
    row = json_array_get(json_object_get(object, "amax"), 2);
    ck_assert(json_is_null(json_object_get(row, "since_sync")));
    json_decref(object);
}
END_TEST

START_TEST(show_has_the_window)
{
    ask("C", "show layers.10.w", 0);
    ck_assert_ptr_nonnull(strstr(text, "amax group      all\n"));
    ck_assert_ptr_nonnull(strstr(text, "history         8, max\n"));
    ck_assert_ptr_nonnull(strstr(text, "window          #=@.\n"));
    ck_assert_ptr_nonnull(strstr(text, "gathers since   1\n"));
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("ctl_history");
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, amax_draws_windows);
    tcase_add_test(cases, long_window_is_narrowed);
    tcase_add_test(cases, lists_are_sorted);
    tcase_add_test(cases, buckets_show_sums);
    tcase_add_test(cases, history_ends_with_the_newest);
    tcase_add_test(cases, json_has_exact_values);
    tcase_add_test(cases, show_has_the_window);
    return run_suite("ctl_history", cases);
}
