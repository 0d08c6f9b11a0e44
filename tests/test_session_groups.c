/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups over their lives: joins and rejoins, seals that fail or lose a rank, breaks while work is
 * in flight, and joins that wait for such a break to drain. What is in flight stays so until the
 * test turns the loop.
 */
#include <check.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/rooms.h"
#include "tests/lib/suite.h"

#define REGION 65536

static struct rooms rooms;
static struct client a, b, c, d;
static uint64_t shape[] = {6, 10};

static void set_up(void)
{
    rooms_open(&rooms);
    client_open(&a, &rooms, 10);
    client_open(&b, &rooms, 11);
    client_open(&c, &rooms, 12);
    client_open(&d, &rooms, 13);
}

static void tear_down(void)
{
    client_close(&a, false);
    client_close(&b, true);
    client_close(&c, false);
    client_close(&d, true);
    rooms_close(&rooms);
}

static void enter(struct client *client, uint32_t rank)
{
    (void)close(client_enter(client, "train", "dp", rank, 2, REGION));
}

/* Two weights in two buckets; the second shared or not. */
static void register_two(struct client *client, bool shared)
{
    F8__Weight weights[] = {make_weight("w0", F8_PROTO_DYNAMIC, shape, 2, 1, 0),
        make_weight("w1", F8_PROTO_RAW, shape, 2, 1, 4096)};
    F8__Bucket buckets[] = {make_bucket("b0", 0, 1, false), make_bucket("b1", 1, 1, shared)};
    client_ok(client, ask_register(client, weights, 2, buckets, 2, false));
}

static void seal_both(uint32_t slots)
{
    uint64_t of_a = ask_seal(&a, slots), of_b = ask_seal(&b, slots);
    client_ok(&a, of_a);
    client_ok(&b, of_b);
}

static void enter_and_seal(void)
{
    enter(&a, 0);
    enter(&b, 1);
    register_two(&a, false);
    register_two(&b, false);
    seal_both(0);
}

static void rejoin_both(void)
{
    client_ok(&a, ask_rejoin(&a, "dp", 0, 2));
    client_ok(&b, ask_rejoin(&b, "dp", 1, 2));
}

/* Rank 1 asks for another bucket than rank 0. */
static void break_by_mismatch(void)
{
    uint64_t of_a = ask_gather(&a, 0), of_b = ask_gather(&b, 1);
    client_refused(&a, of_a, F8_EMISMATCH,
        "rank 1 (pid 11) asked for gather of b1 where rank 0 (pid 10) asked for gather of b0");
    client_refused(&b, of_b, F8_EMISMATCH, "of group dp");
}

/* ---- Joining ---- */

START_TEST(joins_are_checked)
{
    char name[F8_PROTO_MAX_NAME + 2];
    memset(name, 'g', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    client_ok(&a, ask_hello(&a, "train"));
    client_refused(&a, ask_join(&a, "", 0, 1), F8_EINVAL, "the name of the group is empty");
    client_refused(&a, ask_join(&a, name, 0, 1), F8_EINVAL, "has 256 bytes");
    client_refused(&a, ask_join(&a, "dp\r", 0, 1), F8_EINVAL,
        "the name of the group has the control character U+000D at byte 2");
    client_refused(&a, ask_join(&a, "\xc0\x80", 0, 1), F8_EINVAL,
        "the name of the group is not UTF-8 at byte 0");
    client_refused(&a, ask_join(&a, "dp", 0, 0), F8_EINVAL, "world size 0 is not from 1 to 8");
    client_refused(&a, ask_join(&a, "dp", 0, 9), F8_EINVAL, "world size 9");
    client_refused(&a, ask_join(&a, "dp", 2, 2), F8_EINVAL, "rank 2 is not below the world size 2");
    client_refused(&a, ask_rejoin(&a, "dp", 0, 2), F8_EORDER, "this client is not rank 0");
    client_ok(&a, ask_join(&a, "dp", 0, 2));
    client_refused(&a, ask_join(&a, "dp", 1, 2), F8_EORDER, "rank 0 of group dp already");
    client_refused(&a, ask_rejoin(&a, "dp", 0, 2), F8_EORDER, "is not broken");
    client_refused(&a, ask_rejoin(&a, "dp", 1, 2), F8_EORDER, "this client is not rank 1");
    client_ok(&b, ask_hello(&b, "train"));
    client_refused(&b, ask_join(&b, "dp", 0, 2), F8_EEXIST, "rank 0 of group dp is held by pid 10");
    client_refused(&b, ask_join(&b, "dp", 1, 3), F8_EMISMATCH,
        "rank 1 gave world size 3 for group dp, which rank 0 (pid 10) joined with 2");
    client_ok(&b, ask_join(&b, "dp", 1, 2));
    ck_assert_uint_eq(a.group, b.group);
    client_ok(&c, ask_hello(&c, "eval")); /* the same name in another job is another group */
    client_ok(&c, ask_join(&c, "dp", 0, 3));
    ck_assert_uint_ne(c.group, a.group);
}
END_TEST

/* A client is in as many groups as it likes, up to the limit; a refused join makes no group. */
START_TEST(groups_of_a_client_are_limited)
{
    rooms.config.max_groups = 2;
    client_ok(&a, ask_hello(&a, "train"));
    client_ok(&a, ask_join(&a, "dp", 0, 2));
    uint32_t dp = a.group;
    client_ok(&a, ask_join(&a, "tp", 1, 3));
    ck_assert_uint_ne(a.group, dp);
    client_refused(&a, ask_join(&a, "pp", 0, 1), F8_ELIMIT,
        "group pp is one more than the limit of 2 groups of one client (--max-groups)");
    client_ok(&b, ask_hello(&b, "train"));
    client_ok(&b, ask_join(&b, "tp", 0, 3)); /* the limit is each client's own */
    client_ok(&b, ask_join(&b, "pp", 1, 4));
    client_close(&a, false); /* leaves both, and none of b's */
    client_ok(&c, ask_hello(&c, "train"));
    client_ok(&c, ask_join(&c, "tp", 1, 3));
    client_refused(&c, ask_join(&c, "tp", 0, 3), F8_EORDER, "this client is rank 1 of group tp");
}
END_TEST

/* Before anything is asked for, a rank comes and goes without breaking anything; but a death does,
 * or the others would wait for it at the seal. */
START_TEST(forming_group_lets_ranks_go)
{
    enter(&a, 0);
    enter(&b, 1);
    client_close(&b, false);
    enter(&c, 1);
    ck_assert_uint_eq(c.generation, 1);
    register_two(&a, false);
    client_close(&c, true);
    client_refused(&a, ask_seal(&a, 0), F8_EBROKEN, "rank 1 (pid");
}
END_TEST

/* ---- Seals ---- */

START_TEST(seal_comes_once)
{
    enter(&a, 0);
    enter(&b, 1);
    client_refused(&a, ask_gather(&a, 0), F8_EORDER, "group dp is not sealed yet");
    register_two(&a, false);
    register_two(&b, false);
    uint64_t of_a = ask_seal(&a, 0);
    client_refused(&a, ask_seal(&a, 0), F8_EORDER, "has asked for the seal of group dp already");
    F8__Weight late = make_weight("w2", F8_PROTO_RAW, shape, 2, 1, 0);
    client_refused(&a, ask_register(&a, &late, 1, NULL, 0, false), F8_EORDER, "asked for the seal");
    client_ok(&b, ask_seal(&b, 0));
    client_ok(&a, of_a);
    client_refused(&a, ask_seal(&a, 0), F8_EORDER, "is sealed already");
    client_refused(&a, ask_gather(&a, 2), F8_ENOENT, "bucket 2: group dp has 2 buckets");
    client_refused(&a, ask_changed(&a, 1, 2), F8_ENOENT, "group dp has 2 weights");
    client_refused(&a, ask_changed(&a, UINT32_MAX, UINT32_MAX), F8_ENOENT, "has 2 weights");
    client_refused(&a, ask_move(&a, 2, 1, 0), F8_ENOENT, "has 2 weights");
}
END_TEST

/* One that cannot get its memory leaves registrations and the group usable. */
START_TEST(refused_seal_can_be_asked_again)
{
    enter(&a, 0);
    enter(&b, 1);
    register_two(&a, false);
    register_two(&b, false);
    rooms.config.memory_per_uid = 2 * REGION + 100;
    uint64_t of_a = ask_seal(&a, 0);
    client_refused(&b, ask_seal(&b, 0), F8_ELIMIT, "the arena of group dp needs");
    client_refused(&a, of_a, F8_ELIMIT, "; job train holds regions of 0.1 MiB");
    client_refused(&a, ask_gather(&a, 0), F8_EBROKEN, "the arena of group dp needs");
    rooms.config.memory_per_uid = 64 << 20;
    rejoin_both();
    ck_assert_uint_eq(a.generation, 2);
    seal_both(0);
    uint64_t gather = ask_gather(&a, 0);
    client_ok(&b, ask_gather(&b, 0));
    client_ok(&a, gather);
}
END_TEST

START_TEST(seal_compares_options)
{
    enter(&a, 0);
    enter(&b, 1);
    register_two(&a, true);
    register_two(&b, true);
    uint64_t of_a = ask_seal(&a, 1);
    client_refused(&b, ask_seal(&b, 2), F8_EMISMATCH,
        "rank 1 (pid 11) sealed with 2 slots where rank 0 (pid 10) gave 1");
    client_refused(&a, of_a, F8_EMISMATCH, "with 2 slots");
    rejoin_both();
    of_a = ask_seal(&a, 1);
    client_refused(&b, ask_seal_poisoned(&b, 1), F8_EMISMATCH, "sealed with poison");
    rejoin_both();
    of_a = ask_seal(&a, 0);
    client_refused(&b, ask_seal(&b, 0), F8_EINVAL, "bucket b1 is shared, but the group was sealed");
    rejoin_both();
    seal_both(1);
}
END_TEST

/* Slots beyond reason would count places past 2^32, poisoned or not, used or not. */
START_TEST(slots_are_limited)
{
    static const uint32_t absurd[] = {UINT32_MAX, UINT32_MAX - 1, 1u << 31, 4097};
    enter(&a, 0);
    enter(&b, 1);
    register_two(&a, false);
    register_two(&b, false);
    for (size_t i = 0; i < sizeof(absurd) / sizeof(absurd[0]); i++) {
        client_refused(&a, ask_seal(&a, absurd[i]), F8_ELIMIT, "slots");
        client_refused(&b, ask_seal_poisoned(&b, absurd[i]), F8_ELIMIT, "(--max-weights)");
    }
    seal_both(4096);
}
END_TEST

/* The arena of the generation before serves again if the size is the same. */
START_TEST(arena_is_kept_or_replaced)
{
    struct stat first, second, third;
    struct registry_totals totals;
    enter(&a, 0);
    enter(&b, 1);
    register_two(&a, true);
    register_two(&b, true);
    seal_both(1);
    ck_assert_int_eq(fstat(a.arena, &first), 0);
    break_by_mismatch();
    rejoin_both();
    seal_both(1);
    ck_assert_int_eq(fstat(a.arena, &second), 0);
    ck_assert_uint_eq(first.st_ino, second.st_ino);
    break_by_mismatch();
    rejoin_both();
    seal_both(2);
    ck_assert_int_eq(fstat(a.arena, &third), 0);
    ck_assert_uint_ne(first.st_ino, third.st_ino);
    ck_assert_int_gt(third.st_size, first.st_size);
    registry_count(rooms.context.registry, &totals);
    ck_assert_uint_eq(totals.arena_bytes, (uint64_t)third.st_size);
}
END_TEST

/* The seal ends well for those who are left; then the group is broken. */
START_TEST(rank_dies_while_the_arena_is_reserved)
{
    enter(&a, 0);
    enter(&b, 1);
    register_two(&a, false);
    register_two(&b, false);
    uint64_t of_a = ask_seal(&a, 0);
    (void)ask_seal(&b, 0); /* the reservation is under way */
    client_close(&b, true);
    client_ok(&c, ask_hello(&c, "train"));
    uint64_t of_c = ask_join(&c, "dp", 1, 2);
    ck_assert_ptr_null(client_reply(&c, of_c));
    client_ok(&a, of_a);
    client_refused(&a, ask_gather(&a, 0), F8_EBROKEN, "rank 1 (pid 11) died");
    client_ok(&c, of_c);
    ck_assert_uint_eq(c.generation, 2);
    ck_assert_uint_eq(rooms.context.collective.failed, 1);
}
END_TEST

START_TEST(all_die_while_the_arena_is_reserved)
{
    enter(&a, 0);
    enter(&b, 1);
    register_two(&a, false);
    register_two(&b, false);
    (void)ask_seal(&a, 0);
    (void)ask_seal(&b, 0);
    client_close(&a, true);
    client_close(&b, false);
}
END_TEST

/* ---- Breaks ---- */

/* A gather that all have asked for; the loop is not turned, so its work is in flight. */
static void start_gather(uint64_t *ret_of_a, uint64_t *ret_of_b)
{
    *ret_of_a = ask_gather(&a, 0);
    *ret_of_b = ask_gather(&b, 0);
    ck_assert_ptr_null(client_reply(&a, *ret_of_a));
}

START_TEST(join_waits_for_a_broken_group_to_drain)
{
    uint64_t of_a, of_b;
    enter_and_seal();
    start_gather(&of_a, &of_b);
    client_close(&b, true);
    client_ok(&c, ask_hello(&c, "train"));
    client_ok(&d, ask_hello(&d, "train"));
    uint64_t of_c = ask_join(&c, "dp", 1, 2), of_d = ask_join(&d, "dp", 1, 2);
    client_refused(&c, ask_join(&c, "dp", 1, 2), F8_EORDER, "a join of this client is under way");
    client_refused(&c, ask_seal(&c, 0), F8_ENOENT, "has not joined");
    ck_assert_ptr_null(client_reply(&c, of_c));
    client_ok(&a, of_a); /* what ran ends well */
    /* One of the two got the seat. */
    int of_two[] = {client_status(&c, of_c), client_status(&d, of_d)};
    ck_assert(of_two[0] == F8_OK || of_two[1] == F8_OK);
    ck_assert(of_two[0] == F8_EEXIST || of_two[1] == F8_EEXIST);
    client_refused(&a, ask_gather(&a, 1), F8_EBROKEN, "rank 1 (pid 11) died");
    client_ok(&a, ask_rejoin(&a, "dp", 0, 2));
    ck_assert_uint_eq(a.generation, 2);
}
END_TEST

START_TEST(rejoin_waits_as_well)
{
    uint64_t of_a, of_b;
    enter_and_seal();
    start_gather(&of_a, &of_b);
    client_close(&b, true);
    uint64_t again = ask_rejoin(&a, "dp", 0, 2);
    ck_assert_ptr_null(client_reply(&a, again));
    client_ok(&a, of_a);
    client_ok(&a, again);
    ck_assert_uint_eq(a.generation, 2);
}
END_TEST

/* Who waits may go: alone, in the middle of others, or as the group's last. */
START_TEST(waiting_clients_go)
{
    uint64_t of_a, of_b;
    struct client e;
    client_open(&e, &rooms, 14);
    enter_and_seal();
    start_gather(&of_a, &of_b);
    client_close(&b, false);
    client_ok(&c, ask_hello(&c, "train"));
    client_ok(&d, ask_hello(&d, "train"));
    client_ok(&e, ask_hello(&e, "train"));
    (void)ask_join(&c, "dp", 1, 2);
    (void)ask_join(&d, "dp", 1, 2);
    uint64_t of_e = ask_join(&e, "dp", 1, 2);
    (void)ask_rejoin(&a, "dp", 0, 2);
    client_close(&d, true); /* in the middle */
    client_close(&a, true); /* a member that waits to come back */
    client_close(&c, false);
    client_ok(&e, of_e);
    ck_assert_uint_eq(e.generation, 1); /* nobody was left in the group: it made another */
    client_close(&e, false);
}
END_TEST

START_TEST(nobody_is_left_while_work_runs)
{
    uint64_t of_a, of_b;
    struct registry_totals totals;
    enter_and_seal();
    start_gather(&of_a, &of_b);
    client_ok(&c, ask_hello(&c, "train"));
    client_close(&a, true);
    (void)ask_join(&c, "dp", 1, 2);
    client_close(&b, true);
    client_close(&c, false);
    registry_count(rooms.context.registry, &totals);
    ck_assert_uint_eq(totals.groups, 1); /* until the work has ended: tear_down looks */
    ck_assert_uint_eq(totals.region_bytes, 0);
}
END_TEST

/* The work reads on in regions that their client dropped with its life. */
START_TEST(early_parts_outlive_their_rank)
{
    enter_and_seal();
    client_ok(&a, ask_pre_gather(&a, 0));
    client_ok(&b, ask_pre_gather(&b, 1));
    client_close(&b, true);
    client_refused(&a, ask_pre_gather(&a, 1), F8_EBROKEN, "rank 1 (pid 11) died");
    client_ok(&a, ask_quiesce(&a));
    client_ok(&a, ask_rejoin(&a, "dp", 0, 2));
}
END_TEST

/* The generation that broke before its seal has no buckets, whatever the one before had. */
START_TEST(release_after_a_broken_forming_generation)
{
    enter_and_seal();
    break_by_mismatch();
    rejoin_both();
    uint64_t of_a = ask_seal(&a, 0);
    client_close(&b, true);
    client_refused(&a, of_a, F8_ERANKDEAD, "rank 1 (pid 11) died");
    for (uint32_t bucket = 0; bucket < 4; bucket++)
        send_release(&a, bucket);
    client_refused(&a, ask_gather(&a, 0), F8_EBROKEN, "died");
    client_refused(&a, ask_changed(&a, 0, 1), F8_EBROKEN, "died");
    client_refused(&a, ask_move(&a, 0, 1, 0), F8_EBROKEN, "died");
    client_ok(&a, ask_quiesce(&a));
}
END_TEST

START_TEST(late_requests_are_told_their_generation)
{
    enter_and_seal();
    break_by_mismatch();
    rejoin_both();
    seal_both(0);
    a.generation = 1;
    client_refused(&a, ask_gather(&a, 0), F8_ESTALE,
        "generation 1 of group dp has passed: rank 0 is in generation 2");
    send_release(&a, 0);
    a.generation = 2;
    a.group += 100;
    client_refused(&a, ask_gather(&a, 0), F8_ENOENT, "has not joined it");
}
END_TEST

/* A survivor that has not come back yet is no part of the new generation, and harms it nowhere. */
START_TEST(member_of_the_generation_before_leaves)
{
    enter_and_seal();
    break_by_mismatch();
    client_ok(&a, ask_rejoin(&a, "dp", 0, 2));
    client_refused(&b, ask_gather(&b, 0), F8_EBROKEN, "asked for gather");
    client_ok(&b, ask_quiesce(&b));
    client_close(&b, true);
    enter(&c, 1);
    ck_assert_uint_eq(c.generation, 2);
    register_two(&c, false);
    uint64_t of_a = ask_seal(&a, 0);
    client_ok(&c, ask_seal(&c, 0));
    client_ok(&a, of_a);
}
END_TEST

static void add_all(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, joins_are_checked);
    tcase_add_test(tcase, groups_of_a_client_are_limited);
    tcase_add_test(tcase, forming_group_lets_ranks_go);
    tcase_add_test(tcase, seal_comes_once);
    tcase_add_test(tcase, refused_seal_can_be_asked_again);
    tcase_add_test(tcase, seal_compares_options);
    tcase_add_test(tcase, slots_are_limited);
    tcase_add_test(tcase, arena_is_kept_or_replaced);
    tcase_add_test(tcase, rank_dies_while_the_arena_is_reserved);
    tcase_add_test(tcase, all_die_while_the_arena_is_reserved);
    tcase_add_test(tcase, join_waits_for_a_broken_group_to_drain);
    tcase_add_test(tcase, rejoin_waits_as_well);
    tcase_add_test(tcase, waiting_clients_go);
    tcase_add_test(tcase, nobody_is_left_while_work_runs);
    tcase_add_test(tcase, early_parts_outlive_their_rank);
    tcase_add_test(tcase, release_after_a_broken_forming_generation);
    tcase_add_test(tcase, late_requests_are_told_their_generation);
    tcase_add_test(tcase, member_of_the_generation_before_leaves);
}

int main(void)
{
    TCase *tcase = tcase_create("session_groups");
    add_all(tcase);
    return run_suite("session_groups", tcase);
}
