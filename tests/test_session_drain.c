/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run begins anew while the last work of the one before still runs: all its ranks have gone, and
 * what is left of it is in nobody's way. That work stays in flight until the test turns the loop.
 */
#include <check.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/rooms.h"
#include "tests/lib/suite.h"

#define REGION 65536

static struct rooms rooms;
static struct client a, b, c, d;
static uint64_t shape[] = {6, 10};

static void enter_and_register(struct client *client, uint32_t rank)
{
    F8__Weight weights[] = {make_weight("w", F8_PROTO_DYNAMIC, shape, 2, 1, 0)};
    F8__Bucket buckets[] = {make_bucket("b", 0, 1, false)};
    (void)close(client_enter(client, "train", "dp", rank, 2, REGION));
    client_ok(client, ask_register(client, weights, 1, buckets, 1, false));
}

/* Two ranks leave, or die, once both have asked for a gather; c and d are there for what follows.
 */
static void set_up(void)
{
    rooms_open(&rooms);
    client_open(&a, &rooms, 10);
    client_open(&b, &rooms, 11);
    client_open(&c, &rooms, 12);
    client_open(&d, &rooms, 13);
    enter_and_register(&a, 0);
    enter_and_register(&b, 1);
    uint64_t of_a = ask_seal(&a, 0), of_b = ask_seal(&b, 0);
    client_ok(&a, of_a);
    client_ok(&b, of_b);
    (void)ask_gather(&a, 0);
    (void)ask_gather(&b, 0);
    client_close(&a, false);
    client_close(&b, true);
}

static void tear_down(void)
{
    client_close(&c, false);
    client_close(&d, false);
    rooms_close(&rooms);
}

static uint64_t ask_hello_with(struct client *client, const char *token)
{
    F8__Hello hello = F8__HELLO__INIT;
    F8__Request request = F8__REQUEST__INIT;
    hello.major = F8_PROTO_MAJOR;
    hello.job = (char *)"train";
    hello.token.data = (uint8_t *)(uintptr_t)token;
    hello.token.len = strlen(token);
    request.body_case = F8__REQUEST__BODY_HELLO;
    request.hello = &hello;
    return client_send(client, &request, NULL, 0);
}

START_TEST(group_of_another_size_is_made)
{
    client_ok(&c, ask_hello(&c, "train"));
    client_ok(&d, ask_hello(&d, "train"));
    uint64_t of_c = ask_join(&c, "dp", 2, 3);
    ck_assert_ptr_null(client_reply(&c, of_c)); /* the work still runs */
    client_ok(&c, of_c);
    ck_assert_uint_eq(c.generation, 1);
    client_refused(&d, ask_join(&d, "dp", 1, 2), F8_EMISMATCH,
        "rank 1 gave world size 2 for group dp, which rank 2 (pid 12) joined with 3");
    client_ok(&d, ask_join(&d, "dp", 1, 3));
}
END_TEST

/* Of those who wait one makes the group, and the others find it as it made it. */
START_TEST(sizes_of_the_newcomers_must_agree)
{
    client_ok(&c, ask_hello(&c, "train"));
    client_ok(&d, ask_hello(&d, "train"));
    uint64_t of_c = ask_join(&c, "dp", 0, 3), of_d = ask_join(&d, "dp", 0, 1);
    int status[] = {client_status(&c, of_c), client_status(&d, of_d)};
    ck_assert(status[0] == F8_OK || status[1] == F8_OK);
    ck_assert(status[0] == F8_EMISMATCH || status[1] == F8_EMISMATCH);
}
END_TEST

START_TEST(rejoin_finds_nothing_to_come_back_to)
{
    client_ok(&c, ask_hello(&c, "train"));
    client_refused(
        &c, ask_rejoin(&c, "dp", 0, 2), F8_EORDER, "this client is not rank 0 of group dp");
}
END_TEST

/* A job is its clients': with the last of them its token has gone. */
START_TEST(token_is_the_new_run_s)
{
    client_ok(&c, ask_hello_with(&c, "new"));
    client_refused(&d, ask_hello(&d, "train"), F8_EPERM, "job train has another token");
    client_ok(&c, ask_join(&c, "dp", 0, 2));
    client_ok(&d, ask_hello_with(&d, "new"));
    client_ok(&d, ask_join(&d, "dp", 1, 2));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("session_drain");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, group_of_another_size_is_made);
    tcase_add_test(tcase, sizes_of_the_newcomers_must_agree);
    tcase_add_test(tcase, rejoin_finds_nothing_to_come_back_to);
    tcase_add_test(tcase, token_is_the_new_run_s);
    return run_suite("session_drain", tcase);
}
