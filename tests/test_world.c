/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds over loopback: they form, carry messages in order, and end in order. All hosts are in this
 * process, in one loop.
 */
#include "daemon/world.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/patience.h"
#include "tests/lib/suite.h"
#include "tests/lib/worlds.h"

static const int families[] = {AF_INET, AF_INET6};

static void down_all(struct host *hosts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        host_down(&hosts[i]);
}

static void check_table(const struct host *host, uint32_t here, int family)
{
    uint32_t count;
    const struct world_host *table = world_hosts(host->world, &count);
    const char *address, *name = world_interface(host->world, &address);
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(world_here(host->world), here);
    ck_assert_uint_eq(world_root(host->world), 0);
    ck_assert_str_eq(table[1].name, "host-1");
    ck_assert_uint_eq(table[1].num_ranks, 1);
    ck_assert_uint_eq(table[1].ranks[0].rank, 1);
    ck_assert_uint_eq(table[1].ranks[0].pid, 1001);
    ck_assert(!table[1].lost);
    ck_assert_str_eq(name, "lo");
    ck_assert_str_eq(address, family == AF_INET ? "127.0.0.1" : "::1");
    const char *begin = family == AF_INET ? "127.0.0.1:" : "[::1]:";
    ck_assert_ptr_eq(strstr(table[0].address, begin), table[0].address);
}

START_TEST(two_hosts_meet)
{
    struct host hosts[2];
    if (!worlds_have_family(families[_i]))
        return;
    hosts_form(hosts, 2, families[_i]);
    for (uint32_t i = 0; i < 2; i++)
        check_table(&hosts[i], i, families[_i]);
    down_all(hosts, 2);
}
END_TEST

START_TEST(one_host_is_a_world)
{
    struct host host;
    hosts_form(&host, 1, AF_INET);
    world_send(host.world, (const uint8_t *)"x", 1);
    host_down(&host);
}
END_TEST

/* Hosts are in the order of their lowest ranks, whoever comes first; the root may have no rank. */
START_TEST(hosts_are_in_the_order_of_ranks)
{
    static const uint32_t firsts[] = {5, 2, 0}, counts[] = {3, 3, 2};
    uint8_t id[F8_PROTO_UNIQUE_ID_SIZE];
    struct host root, hosts[3];
    uint32_t count;
    host_up(&root, "root", AF_INET);
    host_unique_id(&root, id);
    for (uint32_t i = 0; i < 3; i++) {
        host_up(&hosts[i], (const char *[]){"c", "b", "a"}[i], AF_INET);
        host_join_ok(&hosts[i], id, 8, firsts[i], counts[i]);
    }
    worlds_await(hosts[0].formed && hosts[1].formed && hosts[2].formed);
    for (uint32_t i = 0; i < 3; i++) {
        const struct world_host *table = world_hosts(hosts[i].world, &count);
        ck_assert_uint_eq(count, 3);
        ck_assert_uint_eq(world_here(hosts[i].world), 2 - i);
        ck_assert_uint_eq(world_root(hosts[i].world), 3);
        ck_assert_uint_eq(table[2].num_ranks, 3);
        ck_assert_uint_eq(table[2].ranks[2].rank, 7);
        ck_assert_uint_eq(table[0].ranks[1].pid, 1001);
    }
    down_all(hosts, 3);
    host_down(&root);
}
END_TEST

START_TEST(ranks_of_a_host_need_not_be_neighbours)
{
    uint8_t id[F8_PROTO_UNIQUE_ID_SIZE];
    struct host hosts[2];
    uint32_t count;
    host_up(&hosts[0], "a", AF_INET);
    host_up(&hosts[1], "b", AF_INET);
    host_unique_id(&hosts[0], id);
    host_join_every(&hosts[1], id, 6, 1, 2, 3);
    host_join_every(&hosts[0], id, 6, 0, 2, 3);
    worlds_await(hosts[0].formed && hosts[1].formed);
    const struct world_host *table = world_hosts(hosts[0].world, &count);
    ck_assert_uint_eq(count, 2);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(table[0].ranks[i].rank, 2 * i);
        ck_assert_uint_eq(table[1].ranks[i].rank, 2 * i + 1);
    }
    down_all(hosts, 2);
}
END_TEST

/* Every host sends; each hears the others', in the order of each, and nothing of its own. */
#define TALKERS  4
#define MESSAGES 200
static uint32_t expected[TALKERS][TALKERS]; /* by hearer and talker: the next number */

static void check_number(struct host *host, uint32_t from, const uint8_t *data, size_t size)
{
    uint32_t number;
    ck_assert_uint_ge(size, sizeof(number));
    memcpy(&number, data, sizeof(number));
    ck_assert_uint_eq(number, expected[world_here(host->world)][from]++);
    ck_assert_uint_eq(size, sizeof(number) + number % 3 * 1000);
}

static bool all_heard(const struct host *hosts)
{
    for (uint32_t i = 0; i < TALKERS; i++)
        if (hosts[i].messages < (uint64_t)MESSAGES * (TALKERS - 1))
            return false;
    return true;
}

START_TEST(messages_come_in_order)
{
    static uint8_t data[4096];
    struct host hosts[TALKERS];
    memset(expected, 0, sizeof(expected));
    hosts_form(hosts, TALKERS, AF_INET);
    for (uint32_t n = 0; n < MESSAGES; n++)
        for (uint32_t i = 0; i < TALKERS; i++) {
            hosts[i].received = check_number;
            memcpy(data, &n, sizeof(n));
            world_send(hosts[i].world, data, sizeof(n) + n % 3 * 1000);
        }
    worlds_await(all_heard(hosts));
    worlds_turn();
    for (uint32_t i = 0; i < TALKERS; i++)
        ck_assert_uint_eq(hosts[i].messages, MESSAGES * (TALKERS - 1));
    down_all(hosts, TALKERS);
}
END_TEST

/* The largest message, from a host that is not the root, to two others; and an empty one. */
START_TEST(large_and_empty_messages)
{
    struct host hosts[3];
    uint64_t sum = 0, sent, received;
    uint8_t *data = malloc(WORLD_MAX_MESSAGE);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < WORLD_MAX_MESSAGE; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 24);
    hosts_form(hosts, 3, AF_INET);
    world_send(hosts[1].world, data, WORLD_MAX_MESSAGE);
    world_send(hosts[1].world, data, 0);
    world_send(hosts[1].world, data, 17);
    sum = worlds_mix(sum, 1, data, WORLD_MAX_MESSAGE);
    sum = worlds_mix(sum, 1, data, 0);
    sum = worlds_mix(sum, 1, data, 17);
    free(data);
    worlds_await(hosts[0].messages == 3 && hosts[2].messages == 3);
    ck_assert_uint_eq(hosts[0].sum, sum);
    ck_assert_uint_eq(hosts[2].sum, sum);
    world_traffic(hosts[1].world, &sent, &received);
    ck_assert_uint_ge(sent, WORLD_MAX_MESSAGE);
    ck_assert_uint_lt(received, WORLD_MAX_MESSAGE);
    world_traffic(hosts[0].world, &sent, &received); /* the root's: in once, out once */
    ck_assert_uint_ge(sent, WORLD_MAX_MESSAGE);
    ck_assert_uint_ge(received, WORLD_MAX_MESSAGE);
    down_all(hosts, 3);
}
END_TEST

/* More than a link may have waiting, by all at once: the root reads on when it is gone. */
START_TEST(much_at_once_goes_through)
{
    struct host hosts[3];
    size_t size = (size_t)8 << 20;
    uint8_t *data = calloc(1, size);
    ck_assert_ptr_nonnull(data);
    hosts_form(hosts, 3, AF_INET);
    for (uint32_t n = 0; n < 8; n++)
        for (uint32_t i = 0; i < 3; i++)
            world_send(hosts[i].world, data, size);
    free(data);
    worlds_await(hosts[0].messages == 16 && hosts[1].messages == 16 && hosts[2].messages == 16);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(hosts[i].ended + hosts[i].lost, 0);
    down_all(hosts, 3);
}
END_TEST

/* What was said before a leave comes before it; and no more is heard after it. */
START_TEST(leaving_is_in_order)
{
    struct host hosts[3];
    uint32_t leaver = (uint32_t)_i;
    hosts_form(hosts, 3, AF_INET);
    for (int n = 0; n < 100; n++)
        world_send(hosts[leaver].world, (const uint8_t *)"last words", 10);
    host_leave(&hosts[leaver]);
    for (uint32_t i = 0; i < 3; i++) {
        if (i == leaver)
            continue;
        worlds_await(hosts[i].lost);
        ck_assert_uint_eq(hosts[i].messages, 100);
        ck_assert_uint_eq(hosts[i].lost_host, leaver);
        ck_assert(hosts[i].in_order);
        ck_assert_uint_eq(hosts[i].ended, 0);
        ck_assert_ptr_nonnull(strstr(hosts[i].reason.text, "has left"));
    }
    /* The others go on, through the root, whose own host may be the one that has left. */
    uint32_t a = leaver == 0 ? 1 : 0, b = leaver == 2 ? 1 : 2;
    world_send(hosts[a].world, (const uint8_t *)"on", 2);
    worlds_await(hosts[b].messages == 101);
    ck_assert_uint_eq(hosts[b].last_from, a);
    down_all(hosts, 3);
}
END_TEST

/* The root's daemon ends: its last words come through, then the world is over for all. */
START_TEST(an_ending_root_daemon_ends_the_world)
{
    struct host hosts[3];
    hosts_form(hosts, 3, AF_INET);
    world_send(hosts[0].world, (const uint8_t *)"bye", 3);
    host_down(&hosts[0]);
    worlds_await(hosts[1].ended && hosts[2].ended);
    for (uint32_t i = 1; i < 3; i++) {
        ck_assert_uint_eq(hosts[i].messages, 1);
        ck_assert_uint_eq(hosts[i].lost, 1);
        ck_assert(hosts[i].in_order);
        ck_assert_int_eq(hosts[i].status, F8_ECONN);
        ck_assert_ptr_nonnull(strstr(hosts[i].reason.text, "host-0"));
        world_send(hosts[i].world, (const uint8_t *)"too late", 8); /* no error */
    }
    down_all(hosts + 1, 2);
}
END_TEST

/* The same hosts in several worlds: each has its own messages. */
#define WORLDS 3
START_TEST(several_worlds_at_once)
{
    uint8_t ids[WORLDS][F8_PROTO_UNIQUE_ID_SIZE];
    struct host hosts[2], parts[WORLDS][2]; /* parts borrow the hosts' worlds */
    host_up(&hosts[0], "a", AF_INET);
    host_up(&hosts[1], "b", AF_INET);
    memset(parts, 0, sizeof(parts));
    for (int w = 0; w < WORLDS; w++) {
        host_unique_id(&hosts[w % 2], ids[w]);
        for (uint32_t i = 0; i < 2; i++) {
            parts[w][i].worlds = hosts[i].worlds;
            host_join_ok(&parts[w][i], ids[w], 2, i, 1);
        }
    }
    for (int w = 0; w < WORLDS; w++) {
        worlds_await(parts[w][0].formed && parts[w][1].formed);
        ck_assert_uint_eq(world_root(parts[w][0].world), (uint32_t)w % 2);
        for (int n = 0; n <= w; n++)
            world_send(parts[w][0].world, (const uint8_t *)"w", 1);
    }
    for (int w = 0; w < WORLDS; w++)
        worlds_await(parts[w][1].messages == (uint64_t)w + 1);
    host_leave(&parts[1][0]);
    worlds_await(parts[1][1].lost);
    ck_assert_uint_eq(parts[0][1].lost + parts[2][1].lost, 0);
    for (int w = 0; w < WORLDS; w++)
        for (uint32_t i = 0; i < 2; i++)
            host_leave(&parts[w][i]);
    down_all(hosts, 2);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("world");
    tcase_set_timeout(tcase, 4 * PATIENCE_S);
    tcase_add_checked_fixture(tcase, worlds_set_up, worlds_tear_down);
    tcase_add_loop_test(tcase, two_hosts_meet, 0, 2);
    tcase_add_test(tcase, one_host_is_a_world);
    tcase_add_test(tcase, hosts_are_in_the_order_of_ranks);
    tcase_add_test(tcase, ranks_of_a_host_need_not_be_neighbours);
    tcase_add_test(tcase, messages_come_in_order);
    tcase_add_test(tcase, large_and_empty_messages);
    tcase_add_test(tcase, much_at_once_goes_through);
    tcase_add_loop_test(tcase, leaving_is_in_order, 0, 3);
    tcase_add_test(tcase, an_ending_root_daemon_ends_the_world);
    tcase_add_test(tcase, several_worlds_at_once);
    return run_suite("world", tcase);
}
