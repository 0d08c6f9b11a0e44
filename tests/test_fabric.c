/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric with real helpers: what it exchanges between arenas and reduces, for several numbers
 * of hosts. What goes wrong is in test_fabric_faults.c.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/fabric_hosts.h"
#include "proto/status.h"

#define MIB ((uint64_t)1 << 20)

static struct fabric_hosts hosts;

static void exchange(const struct fabric_span *spans, uint32_t num, uint32_t round)
{
    fabric_hosts_fill(&hosts, spans, num, round);
    fabric_hosts_exchange(&hosts, spans, num, PATIENCE_MS);
    fabric_hosts_await_done(&hosts);
    fabric_hosts_check(&hosts, spans, num, round);
}

START_TEST(bytes_of_each_host_reach_all_others)
{
    uint32_t num = (uint32_t)_i;
    fabric_hosts_start(&hosts, num, 4 * MIB);
    struct fabric_span spans[MAX_FABRIC_HOSTS];
    for (uint32_t i = 0; i < num; i++)
        spans[i] = (struct fabric_span){.offset = i * MIB, .size = MIB - 1000 * i, .host = i};
    for (uint32_t round = 0; round < 5; round++)
        exchange(spans, num, round);
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(spans_may_be_uneven_and_hosts_without)
{
    static const struct fabric_span spans[] = {
        {.offset = 5, .size = 1, .host = 2},
        {.offset = 6, .size = 3 * MIB, .host = 0},
        {.offset = 6 + 3 * MIB, .size = 7, .host = 0},
        {.offset = 7 * MIB, .size = MIB, .host = 2},
        {.offset = 13 + 3 * MIB, .size = 4096, .host = 2},
        {.offset = 5 * MIB - 3, .size = MIB + 1, .host = 0},
    };
    fabric_hosts_start(&hosts, 3, 8 * MIB);
    for (uint32_t round = 0; round < 3; round++)
        exchange(spans, sizeof(spans) / sizeof(spans[0]), round);
    exchange(NULL, 0, 4);
    exchange(spans, 1, 5);
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(many_tiny_spans)
{
    enum { NUM = 10000 };
    struct fabric_span *spans = calloc(NUM, sizeof(*spans));
    for (uint32_t i = 0; i < NUM; i++)
        spans[i] = (struct fabric_span){
            .offset = (uint64_t)(i * UINT32_C(7919) % NUM) * 64, .size = 1 + i % 60, .host = i % 3};
    fabric_hosts_start(&hosts, 3, MIB);
    exchange(spans, NUM, 0);
    exchange(spans, NUM, 1);
    fabric_hosts_close(&hosts);
    free(spans);
}
END_TEST

/* ---- reductions ---- */

static uint32_t value(uint32_t host, uint32_t round, uint32_t i)
{
    return (i * UINT32_C(2654435761) + host * UINT32_C(0x85ebca6b)) ^ (round << 13);
}

static uint32_t maximum(uint32_t round, uint32_t i)
{
    uint32_t most = 0;
    for (uint32_t host = 0; host < hosts.num; host++)
        most = value(host, round, i) > most ? value(host, round, i) : most;
    return most;
}

static void reduce(uint32_t count, uint32_t round)
{
    uint32_t *values[MAX_FABRIC_HOSTS];
    for (uint32_t host = 0; host < hosts.num; host++) {
        values[host] = calloc(count + 1, sizeof(uint32_t));
        for (uint32_t i = 0; i < count; i++)
            values[host][i] = value(host, round, i);
        fabric_reduce(hosts.host[host].fabric, round, values[host], count, PATIENCE_MS);
    }
    fabric_hosts_await_done(&hosts);
    for (uint32_t host = 0; host < hosts.num; host++) {
        for (uint32_t i = 0; i < count; i++)
            if (values[host][i] != maximum(round, i))
                ck_abort_msg("host %u has %x at %u of %u", host, values[host][i], i, count);
        ck_assert_uint_eq(values[host][count], 0);
        free(values[host]);
    }
}

START_TEST(reductions_give_the_maximum_to_all)
{
    static const uint32_t counts[] = {
        0, 1, 7, 300, 16383, 16384, 16385, 100000, 3, 100001, 0, 250000};
    fabric_hosts_open(&hosts, (uint32_t)_i);
    fabric_hosts_connect(&hosts);
    for (uint32_t round = 0; round < sizeof(counts) / sizeof(counts[0]); round++)
        reduce(counts[round], round);
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(reductions_and_exchanges_take_turns)
{
    static const struct fabric_span spans[] = {
        {.offset = 0, .size = 100, .host = 0}, {.offset = 100, .size = 5000, .host = 1}};
    fabric_hosts_start(&hosts, 2, MIB);
    for (uint32_t round = 0; round < 50; round++) {
        reduce(round * 500, round);
        exchange(spans, 2, round);
    }
    fabric_hosts_close(&hosts);
}
END_TEST

/* ---- arenas ---- */

START_TEST(another_arena_takes_the_place_of_the_first)
{
    static const struct fabric_span spans[] = {
        {.offset = 0, .size = 100, .host = 0}, {.offset = MIB, .size = 5000, .host = 1}};
    fabric_hosts_start(&hosts, 2, 2 * MIB);
    exchange(spans, 2, 0);
    fabric_hosts_map(&hosts, 3 * MIB);
    exchange(spans, 2, 1);
    fabric_hosts_map(&hosts, 2 * MIB);
    exchange(spans, 2, 2);
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(sealed_arenas_are_written_by_the_helper_alone)
{
    static const struct fabric_span spans[] = {{.offset = 0, .size = 2 * MIB, .host = 1}};
    fabric_hosts_start(&hosts, 2, 2 * MIB);
    void *data = mmap(NULL, 2 * MIB, PROT_READ, MAP_SHARED, hosts.host[0].arena->fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
    ck_assert_ptr_eq(
        mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, hosts.host[0].arena->fd, 0),
        MAP_FAILED);
    exchange(spans, 1, 0);
    ck_assert_mem_eq(data, hosts.host[1].arena->data, 2 * MIB);
    (void)munmap(data, 2 * MIB);
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(traffic_counts_what_was_sent_and_received)
{
    static const struct fabric_span spans[] = {
        {.offset = 0, .size = 1000, .host = 0}, {.offset = 5000, .size = 30, .host = 2}};
    static const uint64_t sent[] = {2000, 0, 60}, received[] = {30, 1030, 1000};
    fabric_hosts_start(&hosts, 3, MIB);
    exchange(spans, 2, 0);
    exchange(spans, 2, 1);
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t is_sent, is_received;
        fabric_traffic(hosts.host[i].fabric, &is_sent, &is_received);
        ck_assert_uint_eq(is_sent, 2 * sent[i]);
        ck_assert_uint_eq(is_received, 2 * received[i]);
    }
    fabric_hosts_close(&hosts);
}
END_TEST

static Suite *fabric_suite(void)
{
    Suite *suite = suite_create("fabric");
    TCase *exchanges = tcase_create("exchanges");
    tcase_add_loop_test(exchanges, bytes_of_each_host_reach_all_others, 2, MAX_FABRIC_HOSTS + 1);
    tcase_add_test(exchanges, spans_may_be_uneven_and_hosts_without);
    tcase_add_test(exchanges, many_tiny_spans);
    tcase_add_test(exchanges, traffic_counts_what_was_sent_and_received);
    suite_add_tcase(suite, exchanges);
    TCase *reductions = tcase_create("reductions");
    tcase_add_loop_test(reductions, reductions_give_the_maximum_to_all, 1, MAX_FABRIC_HOSTS + 1);
    tcase_add_test(reductions, reductions_and_exchanges_take_turns);
    suite_add_tcase(suite, reductions);
    TCase *arenas = tcase_create("arenas");
    tcase_add_test(arenas, another_arena_takes_the_place_of_the_first);
    tcase_add_test(arenas, sealed_arenas_are_written_by_the_helper_alone);
    suite_add_tcase(suite, arenas);
    return suite;
}

int main(void)
{
    fabric_hosts_need();
    SRunner *runner = srunner_create(fabric_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
