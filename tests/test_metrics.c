/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of metrics over real rooms: what gathers met, names that need escapes, groups and
 * weights past the limits, causes of failures, and who may ask.
 */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/rooms.h"
#include "tests/lib/suite.h"

#define REGION   65536
#define A_PACKET 50

static struct rooms rooms;
static struct client a, b;
static uint64_t shape[] = {4, 4};
static struct metrics_text text;

static void set_up(void)
{
    rooms_open(&rooms);
    client_open(&a, &rooms, 10);
    client_open(&b, &rooms, 11);
}

static void tear_down(void)
{
    free(text.bytes);
    text = (struct metrics_text){0};
    client_close(&a, false);
    client_close(&b, false);
    rooms_close(&rooms);
}

static const char *look(bool weights)
{
    free(text.bytes);
    ck_assert_int_eq(session_metrics_text(&rooms.context, weights, &text), F8_OK);
    ck_assert_uint_eq(strlen(text.bytes), text.size);
    ck_assert_ptr_nonnull(strstr(text.bytes, "\n# EOF\n"));
    return text.bytes;
}

/* The line of a sample, as it is in the text. */
static void has(const char *sample)
{
    char line[1024];
    (void)snprintf(line, sizeof(line), "\n%s\n", sample);
    ck_assert_msg(strstr(text.bytes, line), "no line %s in\n%s", sample, text.bytes);
}

/* The value of a sample, by its name and labels. */
static double value_of(const char *sample)
{
    char begin[512];
    (void)snprintf(begin, sizeof(begin), "\n%s ", sample);
    const char *line = strstr(text.bytes, begin);
    ck_assert_msg(line, "no sample %s in\n%s", sample, text.bytes);
    return strtod(line + strlen(begin), NULL);
}

/* How many samples begin so. */
static uint32_t count_of(const char *begin)
{
    char line[256];
    uint32_t count = 0;
    (void)snprintf(line, sizeof(line), "\n%s", begin);
    for (const char *at = text.bytes; (at = strstr(at, line)); at++)
        count++;
    return count;
}

/* A rank registers static weights of float8 and a raw one of fp32, in one bucket, and asks for the
 * seal. */
static uint64_t begin(struct client *client, const char *job, uint32_t rank, uint32_t ranks)
{
    float values[32] = {0};
    int fd = client_enter(client, job, "dp", rank, ranks, REGION);
    values[0] = 1000; /* past the largest of e4m3fn */
    values[1] = -1000;
    values[2] = NAN;
    ck_assert_int_eq(pwrite(fd, values, sizeof(values), 0), sizeof(values));
    (void)close(fd);
    F8__Weight weights[] = {make_weight("cast", F8_PROTO_STATIC, shape, 2, 1, 0),
        make_weight("raw", F8_PROTO_RAW, shape, 2, 1, 64)};
    F8__Bucket bucket = make_bucket("all", 0, 2, false);
    client_ok(client, ask_register(client, weights, 2, &bucket, 1, false));
    return ask_seal(client, 0);
}

static void gather(struct client *client)
{
    client_ok(client, ask_gather(client, 0));
    send_release(client, 0);
}

START_TEST(counts_what_gathers_met)
{
    client_ok(&a, begin(&a, "train", 0, 1));
    for (int i = 0; i < 3; i++)
        gather(&a);
    (void)look(true);
    has("f8gather_gathers_total 3");
    has("f8gather_gathered_bytes_total{wire=\"e4m3fn\"} 48");
    has("f8gather_gathered_bytes_total{wire=\"float32\"} 192");
    has("f8gather_gathered_bytes_total{wire=\"bfloat16\"} 0");
    has("f8gather_saturated_elements_total 6");
    has("f8gather_nan_elements_total 3");
    has("f8gather_gather_seconds_count 3");
    has("f8gather_wait_seconds_count 3");
    has("f8gather_gather_seconds_bucket{le=\"+Inf\"} 3");
    has("f8gather_groups{state=\"sealed\"} 1");
    has("f8gather_open_rounds{state=\"waiting\"} 0");
    has("f8gather_snapshots 0");
    has("f8gather_failed_snapshots_total 0");
    ck_assert_uint_eq(count_of("f8gather_snapshot_age_seconds"), 0); /* without a state directory */
    ck_assert_uint_eq(count_of("f8gather_unused_state_files{"), 4);
    has("f8gather_group_gathers_total{uid=\"1000\",run=\"train\",group=\"dp\"} 3");
    has("f8gather_group_gathered_bytes_total{uid=\"1000\",run=\"train\",group=\"dp\"} 240");
    has("f8gather_weight_scale{uid=\"1000\",run=\"train\",group=\"dp\",weight=\"cast\"} 1");
    has("f8gather_weight_saturated_elements_total{uid=\"1000\",run=\"train\",group=\"dp\","
        "weight=\"cast\"} 6");
    ck_assert_uint_eq(count_of("f8gather_weight_scale{"), 1); /* raw ones have none */
    ck_assert_ptr_null(strstr(look(false), "f8gather_weight_"));
}
END_TEST

/* Each rank's lease of a bucket lasts until it releases, and its age is that of the oldest. */
START_TEST(leases_last_until_released)
{
    uint64_t first = begin(&a, "train", 0, 2);
    client_ok(&b, begin(&b, "train", 1, 2));
    client_ok(&a, first);
    first = ask_gather(&a, 0);
    client_ok(&b, ask_gather(&b, 0));
    client_ok(&a, first);
    (void)look(false);
    has("f8gather_leases 2");
    has("f8gather_group_leases{uid=\"1000\",run=\"train\",group=\"dp\"} 2");
    send_release(&a, 0);
    rooms_settle(&rooms);
    uint64_t begin_ms = uv_now(&rooms.loop);
    while (uv_now(&rooms.loop) < begin_ms + 50)
        uv_update_time(&rooms.loop);
    (void)look(false);
    has("f8gather_group_leases{uid=\"1000\",run=\"train\",group=\"dp\"} 1");
    ck_assert_double_ge(value_of("f8gather_oldest_lease_seconds"), 0.05);
    ck_assert_double_ge(
        value_of("f8gather_group_oldest_lease_seconds{uid=\"1000\",run=\"train\",group=\"dp\"}"),
        0.05);
    send_release(&b, 0);
    rooms_settle(&rooms);
    (void)look(false);
    has("f8gather_leases 0");
    has("f8gather_oldest_lease_seconds 0");
}
END_TEST

/* Who died has no lease; who lives keeps its own though the group is broken. */
START_TEST(leases_end_with_their_rank)
{
    uint64_t first = begin(&a, "train", 0, 2);
    client_ok(&b, begin(&b, "train", 1, 2));
    client_ok(&a, first);
    first = ask_gather(&a, 0);
    client_ok(&b, ask_gather(&b, 0));
    client_ok(&a, first);
    client_close(&b, true);
    rooms_settle(&rooms);
    client_open(&b, &rooms, 11);
    (void)look(false);
    has("f8gather_groups{state=\"broken\"} 1");
    has("f8gather_group_leases{uid=\"1000\",run=\"train\",group=\"dp\"} 1");
    send_release(&a, 0);
    rooms_settle(&rooms);
    (void)look(false);
    has("f8gather_leases 0");
}
END_TEST

/* What a group counted stays in the daemon's totals, and its own samples go with it. */
START_TEST(totals_outlive_groups)
{
    client_ok(&a, begin(&a, "train", 0, 1));
    gather(&a);
    client_close(&a, false);
    rooms_settle(&rooms);
    client_open(&a, &rooms, 10);
    (void)look(false);
    has("f8gather_gathers_total 1");
    has("f8gather_saturated_elements_total 2");
    ck_assert_uint_eq(count_of("f8gather_group_gathers_total"), 0);
}
END_TEST

START_TEST(escapes_names)
{
    client_ok(&a, begin(&a, "a\"b\\c", 0, 1));
    (void)look(false);
    has("f8gather_group_gathers_total{uid=\"1000\",run=\"a\\\"b\\\\c\",group=\"dp\"} 0");
}
END_TEST

START_TEST(holds_the_longest_names)
{
    char job[F8_PROTO_MAX_NAME + 1], sample[2048];
    memset(job, '"', F8_PROTO_MAX_NAME);
    job[F8_PROTO_MAX_NAME] = '\0';
    client_ok(&a, begin(&a, job, 0, 1));
    (void)look(true);
    size_t size =
        (size_t)snprintf(sample, sizeof(sample), "f8gather_weight_scale{uid=\"1000\",run=\"");
    for (int i = 0; i < F8_PROTO_MAX_NAME; i++)
        size += (size_t)snprintf(sample + size, sizeof(sample) - size, "\\\"");
    (void)snprintf(sample + size, sizeof(sample) - size, "\",group=\"dp\",weight=\"cast\"} 1\n");
    ck_assert_ptr_nonnull(strstr(text.bytes, sample));
}
END_TEST

/* Past the limit groups are counted as one, which only grows, also when the others go. */
START_TEST(bounds_the_groups)
{
    char name[16];
    rooms.config.max_groups = COUNTERS_MAX_GROUPS + 8;
    client_ok(&b, ask_hello(&b, "many"));
    for (int i = 0; i < COUNTERS_MAX_GROUPS; i++) {
        (void)snprintf(name, sizeof(name), "g%d", i);
        client_ok(&b, ask_join(&b, name, 0, 1));
    }
    (void)look(false);
    ck_assert_uint_eq(count_of("f8gather_group_gathers_total{"), COUNTERS_MAX_GROUPS);
    client_ok(&a, begin(&a, "late", 0, 1));
    gather(&a);
    (void)look(true);
    ck_assert_uint_eq(count_of("f8gather_group_gathers_total{"), COUNTERS_MAX_GROUPS + 1);
    has("f8gather_group_gathers_total{uid=\"other\",run=\"other\",group=\"other\"} 1");
    has("f8gather_group_saturated_elements_total{uid=\"other\",run=\"other\",group=\"other\"} 2");
    has("f8gather_unlisted_weights 2");
    ck_assert_uint_eq(count_of("f8gather_weight_gathers_total{"), 0);
    client_close(&b, false);
    rooms_settle(&rooms);
    client_open(&b, &rooms, 11);
    gather(&a);
    (void)look(false);
    has("f8gather_group_gathers_total{uid=\"other\",run=\"other\",group=\"other\"} 2");
    ck_assert_uint_eq(count_of("f8gather_group_gathers_total{"), 1);
}
END_TEST

START_TEST(bounds_the_weights)
{
    const uint32_t count = METRICS_MAX_WEIGHTS + 7;
    char names[A_PACKET][16];
    F8__Weight weights[A_PACKET];
    F8__Bucket bucket = make_bucket("all", 0, count, false);
    rooms.config.max_weights = 4096;
    (void)close(client_enter(&a, "large", "dp", 0, 1, REGION));
    for (uint32_t first = 0; first < count; first += A_PACKET) {
        uint32_t n = count - first < A_PACKET ? count - first : A_PACKET;
        for (uint32_t w = 0; w < n; w++) {
            (void)snprintf(names[w], sizeof(names[w]), "w%" PRIu32, first + w);
            weights[w] = make_weight(names[w], F8_PROTO_STATIC, shape, 2, 1, 0);
        }
        client_ok(&a, ask_register(&a, weights, n, NULL, 0, true));
        client_forget(&a);
    }
    client_ok(&a, ask_register(&a, NULL, 0, &bucket, 1, false));
    client_ok(&a, ask_seal(&a, 0));
    (void)look(true);
    ck_assert_uint_eq(count_of("f8gather_weight_scale{"), METRICS_MAX_WEIGHTS);
    has("f8gather_unlisted_weights 7");
}
END_TEST

START_TEST(names_causes_and_waits)
{
    uint64_t first = begin(&a, "train", 0, 2);
    client_ok(&b, begin(&b, "train", 1, 2));
    client_ok(&a, first);
    (void)ask_gather(&a, 0);
    (void)look(false);
    has("f8gather_open_rounds{state=\"waiting\"} 1");
    has("f8gather_wait_seconds_count 0");
    client_close(&b, true);
    rooms_settle(&rooms);
    client_open(&b, &rooms, 11);
    (void)look(false);
    has("f8gather_failed_rounds_total{cause=\"rank_died\"} 1");
    has("f8gather_failed_rounds_total{cause=\"mismatch\"} 0");
    has("f8gather_group_failed_rounds_total{uid=\"1000\",run=\"train\",group=\"dp\"} 1");
    has("f8gather_groups{state=\"broken\"} 1");
    has("f8gather_open_rounds{state=\"waiting\"} 0");
    has("f8gather_gather_seconds_count 0");
    ck_assert_uint_eq(rooms.context.collective.failed, 1);
}
END_TEST

/* More gathers at once than the first table has room for: each has its time. */
START_TEST(times_all_that_are_open)
{
    enum { DEEP = 40 };
    F8__Weight weights[DEEP];
    F8__Bucket buckets[DEEP];
    char names[DEEP][8];
    for (uint32_t i = 0; i < DEEP; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "w%u", i);
        weights[i] = make_weight(names[i], F8_PROTO_STATIC, shape, 2, 1, 0);
        buckets[i] = make_bucket(names[i], i, 1, false);
    }
    rooms.config.max_rounds = DEEP;
    struct client *both[] = {&a, &b};
    for (uint32_t r = 0; r < 2; r++) {
        (void)close(client_enter(both[r], "deep", "dp", r, 2, REGION));
        client_ok(both[r], ask_register(both[r], weights, DEEP, buckets, DEEP, false));
    }
    uint64_t seal = ask_seal(&a, 0);
    client_ok(&b, ask_seal(&b, 0));
    client_ok(&a, seal);
    for (uint32_t i = 0; i < DEEP; i++)
        (void)ask_gather(&a, i);
    uint64_t last = 0;
    for (uint32_t i = 0; i < DEEP; i++)
        last = ask_gather(&b, i);
    client_ok(&b, last);
    (void)look(false);
    has("f8gather_gather_seconds_count 40");
    has("f8gather_wait_seconds_count 40");
}
END_TEST

static uint64_t ask_metrics(struct client *client)
{
    F8__Metrics metrics = F8__METRICS__INIT;
    return ask_body(client, F8__REQUEST__BODY_METRICS, &metrics.base, NULL, 0);
}

START_TEST(is_for_operators)
{
    client_refused(&a, ask_metrics(&a), F8_EORDER, "Hello");
    client_ok(&a, ask_hello(&a, "train"));
    client_refused(&a, ask_metrics(&a), F8_EPERM, "trainer");
    client_ok(&b, ask_admin(&b));
    const F8__Reply *reply = client_await(&b, ask_metrics(&b));
    ck_assert_int_eq(reply->status, F8_OK);
    ck_assert_uint_gt(reply->metrics->size, 1000);
}
END_TEST

START_TEST(sorts_durations_into_buckets)
{
    struct histogram histogram = {0};
    histogram_observe(&histogram, 0);
    histogram_observe(&histogram, counters_bounds[0]);
    histogram_observe(&histogram, counters_bounds[0] + 1);
    histogram_observe(&histogram, UINT32_MAX * (uint64_t)1000);
    ck_assert_uint_eq(histogram.buckets[0], 2);
    ck_assert_uint_eq(histogram.buckets[1], 1);
    ck_assert_uint_eq(histogram.buckets[COUNTERS_BOUNDS], 1);
    ck_assert_uint_eq(histogram.sum_ns, 2 * counters_bounds[0] + 1 + UINT32_MAX * (uint64_t)1000);
}
END_TEST

/* A request that is answered at once takes some microseconds: their median is to be known. */
START_TEST(tells_microseconds_apart)
{
    struct histogram histogram = {0};
    static const uint64_t times_ns[] = {900, 2000, 4000, 9000, 20000};
    for (size_t i = 0; i < sizeof(times_ns) / sizeof(times_ns[0]); i++) {
        histogram_observe(&histogram, times_ns[i]);
        ck_assert_uint_eq(histogram.buckets[i], 1);
    }
    (void)look(false);
    has("f8gather_rpc_seconds_bucket{le=\"1e-06\"} 0");
    has("f8gather_rpc_seconds_bucket{le=\"2.5e-06\"} 0");
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("metrics");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, counts_what_gathers_met);
    tcase_add_test(cases, leases_last_until_released);
    tcase_add_test(cases, leases_end_with_their_rank);
    tcase_add_test(cases, totals_outlive_groups);
    tcase_add_test(cases, escapes_names);
    tcase_add_test(cases, holds_the_longest_names);
    tcase_add_test(cases, bounds_the_groups);
    tcase_add_test(cases, bounds_the_weights);
    tcase_add_test(cases, names_causes_and_waits);
    tcase_add_test(cases, times_all_that_are_open);
    tcase_add_test(cases, is_for_operators);
    tcase_add_test(cases, sorts_durations_into_buckets);
    tcase_add_test(cases, tells_microseconds_apart);
    return run_suite("metrics", cases);
}
