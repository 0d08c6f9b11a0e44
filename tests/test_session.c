/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One session's requests: who may ask what and when, that each is answered once, regions, and
 * registrations, which count in full or not at all.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/rooms.h"
#include "tests/lib/suite.h"

static struct rooms rooms;
static struct client a, b;

static void set_up(void)
{
    rooms_open(&rooms);
    client_open(&a, &rooms, 10);
    client_open(&b, &rooms, 11);
}

/* No reply is missing where nobody waits for anybody. */
static void tear_down(void)
{
    rooms_settle(&rooms);
    ck_assert_uint_eq(a.owed, 0);
    ck_assert_uint_eq(b.owed, 0);
    client_close(&a, false);
    client_close(&b, false);
    rooms_close(&rooms);
}

/* ---- Greeting and roles ---- */

START_TEST(hello_comes_first)
{
    static const char first[] = "the first request of a connection must be Hello";
    client_refused(&a, ask_ping(&a), F8_EORDER, first);
    client_refused(&a, ask_join(&a, "dp", 0, 1), F8_EORDER, first);
    client_refused(&a, ask_region_drop(&a, 1), F8_EORDER, first);
    client_refused(&a, ask_register(&a, NULL, 0, NULL, 0, false), F8_EORDER, first);
    client_refused(&a, ask_seal(&a, 0), F8_EORDER, first);
    client_refused(&a, ask_gather(&a, 0), F8_EORDER, first);
    client_refused(&a, ask_inspect(&a, F8__VIEW__STATUS, "", "", 0), F8_EORDER, first);
    send_release(&a, 0);
    int fd = make_memfd(4096);
    client_refused(&a, ask_region(&a, fd), F8_EORDER, first);
    (void)close(fd);
    ck_assert_int_eq(client_status(&a, ask_hello(&a, "train")), F8_OK);
    client_refused(&a, ask_hello(&a, "train"), F8_EORDER, "Hello comes once");
    ck_assert_int_eq(client_status(&a, ask_ping(&a)), F8_OK);
}
END_TEST

START_TEST(hello_tells_what_the_daemon_is)
{
    const F8__Reply *reply = client_await(&a, ask_hello(&a, "train"));
    ck_assert_int_eq(reply->body_case, F8__REPLY__BODY_HELLO);
    ck_assert_uint_eq(reply->hello->major, F8_PROTO_MAJOR);
    ck_assert_uint_eq(reply->hello->credit, rooms.config.credit);
    ck_assert_uint_eq(reply->hello->pid, (uint32_t)getpid());
    ck_assert_str_eq(reply->hello->daemon_version, F8_VERSION);
}
END_TEST

static uint64_t hello_of(uint32_t major, const char *job)
{
    F8__Hello body = F8__HELLO__INIT;
    F8__Request request = F8__REQUEST__INIT;
    body.major = major;
    body.minor = 7;
    body.library_version = (char *)"9.9.9";
    body.job = (char *)job;
    request.body_case = F8__REQUEST__BODY_HELLO;
    request.hello = &body;
    return client_send(&a, &request, NULL, 0);
}

/* A client of a later minor version, with a field and a capability that are not known here. */
START_TEST(newer_minor_is_served)
{
    uint8_t value = 42;
    ProtobufCMessageUnknownField later = {
        .tag = 900, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = 1, .data = &value};
    char *capabilities[] = {(char *)"arena.memfd", (char *)"of-a-later-version"};
    F8__Hello body = F8__HELLO__INIT;
    F8__Request request = F8__REQUEST__INIT;
    body.base.n_unknown_fields = 1;
    body.base.unknown_fields = &later;
    body.major = F8_PROTO_MAJOR;
    body.minor = F8_PROTO_MINOR + 1;
    body.library_version = (char *)"9.9.9";
    body.job = (char *)"train";
    body.n_capabilities = 2;
    body.capabilities = capabilities;
    request.body_case = F8__REQUEST__BODY_HELLO;
    request.hello = &body;
    const F8__Reply *reply = client_await(&a, client_send(&a, &request, NULL, 0));
    ck_assert_int_eq(reply->body_case, F8__REPLY__BODY_HELLO);
    ck_assert_uint_eq(reply->hello->minor, F8_PROTO_MINOR);
    ck_assert_int_eq(client_status(&a, ask_ping(&a)), F8_OK);
}
END_TEST

START_TEST(bad_hellos_are_refused)
{
    char name[F8_PROTO_MAX_NAME + 2];
    memset(name, 'j', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    client_refused(&a, hello_of(2, "train"), F8_EVERSION, "library 9.9.9) speaks protocol 2.7");
    client_refused(&a, hello_of(2, "train"), F8_EVERSION, "f8gatherd " F8_VERSION ") speaks 1.0");
    client_refused(&a, hello_of(1, ""), F8_EINVAL, "the name of the job is empty");
    client_refused(&a, hello_of(1, name), F8_EINVAL, "has 256 bytes, the limit is 255");
    client_refused(&a, hello_of(1, "train\nf8gatherd: error: forged"), F8_EINVAL,
        "the name of the job has the control character U+000A at byte 5");
    client_refused(&a, hello_of(1, "\xff"), F8_EINVAL, "the name of the job is not UTF-8");
    client_refused(&a, ask_ping(&a), F8_EORDER, "must be Hello");
    name[F8_PROTO_MAX_NAME] = '\0';
    ck_assert_int_eq(client_status(&a, hello_of(1, name)), F8_OK);
}
END_TEST

START_TEST(roles_are_apart)
{
    struct client stranger;
    ck_assert_int_eq(client_try_open(&stranger, &rooms, 4242, 12), F8_OK);
    client_refused(&stranger, ask_admin(&stranger), F8_EPERM, "uid 4242 may not inspect");
    ck_assert_int_eq(client_status(&stranger, ask_hello(&stranger, "train")), F8_OK);
    client_close(&stranger, false);

    ck_assert_int_eq(client_status(&a, ask_admin(&a)), F8_OK);
    ck_assert_int_eq(client_status(&a, ask_ping(&a)), F8_OK);
    client_refused(&a, ask_join(&a, "dp", 0, 1), F8_EPERM, "takes no part in training");
    client_refused(&a, ask_gather(&a, 0), F8_EPERM, "takes no part in training");
    int fd = make_memfd(4096);
    client_refused(&a, ask_region(&a, fd), F8_EPERM, "takes no part in training");
    (void)close(fd);
    ck_assert_int_eq(client_status(&a, ask_inspect(&a, F8__VIEW__STATUS, "", "", 0)), F8_OK);

    ck_assert_int_eq(client_status(&b, ask_hello(&b, "train")), F8_OK);
    client_refused(&b, ask_inspect(&b, F8__VIEW__STATUS, "", "", 0), F8_EPERM, "may not inspect");
}
END_TEST

START_TEST(unknown_requests_are_answered)
{
    F8__Request request = F8__REQUEST__INIT;
    client_refused(&a, client_send(&a, &request, NULL, 0), F8_EUNKNOWN, "request 1 is of a kind");
    request.body_case = (F8__Request__BodyCase)999;
    client_refused(&a, client_send(&a, &request, NULL, 0), F8_EUNKNOWN, "request 2 is of a kind");
    ck_assert_int_eq(client_status(&a, ask_admin(&a)), F8_OK);
    client_refused(&a, ask_inspect(&a, 77, "", "", 0), F8_EUNKNOWN, "view 77 is not known");
}
END_TEST

/* 0 stands for "no request": a wait under that number could never be answered. */
START_TEST(requests_are_numbered_from_one)
{
    a.last_id = UINT64_MAX;
    client_refused(&a, ask_hello(&a, "train"), F8_EPROTO, "count from 1");
    ck_assert_int_eq(client_status(&a, ask_hello(&a, "train")), F8_OK);
    a.last_id = UINT64_MAX;
    client_refused(&b, ask_quiesce(&b), F8_EORDER, "must be Hello");
    send_release(&a, 0); /* nobody looks at the id of a release */
}
END_TEST

/* ---- Regions ---- */

START_TEST(regions_are_checked_and_counted)
{
    int fds[5], pipe_ends[2];
    ck_assert_int_eq(pipe(pipe_ends), 0);
    ck_assert_int_eq(client_status(&a, ask_hello(&a, "train")), F8_OK);
    for (int i = 0; i < 5; i++)
        fds[i] = make_memfd(4096);
    F8__RegionAdd body = F8__REGION_ADD__INIT;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_REGION_ADD;
    request.region_add = &body;
    client_refused(&a, client_send(&a, &request, NULL, 0), F8_EREGION, "came with 0 descriptors");
    client_refused(&a, client_send(&a, &request, fds, 2), F8_EREGION, "came with 2 descriptors");
    client_refused(&a, ask_region(&a, pipe_ends[0]), F8_EREGION, "is a pipe");
    for (uint32_t i = 0; i < 4; i++) {
        const F8__Reply *reply = client_await(&a, ask_region(&a, fds[i]));
        ck_assert_int_eq(reply->status, F8_OK);
        ck_assert_uint_eq(reply->region->region, i + 1);
        ck_assert_uint_eq(reply->region->size, 4096);
    }
    client_refused(&a, ask_region(&a, fds[4]), F8_ELIMIT, "has 4 regions, the limit");
    client_refused(&a, ask_region_drop(&a, 0), F8_ENOENT, "region 0");
    client_refused(&a, ask_region_drop(&a, 5), F8_ENOENT, "region 5");
    ck_assert_int_eq(client_status(&a, ask_region_drop(&a, 2)), F8_OK);
    client_refused(&a, ask_region_drop(&a, 2), F8_ENOENT, "region 2: this client has none such");
    ck_assert_uint_eq(client_await(&a, ask_region(&a, fds[4]))->region->region, 2);
    for (int i = 0; i < 5; i++)
        (void)close(fds[i]);
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
}
END_TEST

START_TEST(regions_are_charged_to_the_uid)
{
    struct registry_totals totals;
    rooms.config.memory_per_uid = 3 << 20;
    int two = make_memfd(2 << 20), one = make_memfd((1 << 20) + 1);
    ck_assert_int_eq(client_status(&a, ask_hello(&a, "train")), F8_OK);
    ck_assert_int_eq(client_status(&b, ask_hello(&b, "eval")), F8_OK);
    ck_assert_int_eq(client_status(&a, ask_region(&a, two)), F8_OK);
    client_refused(&b, ask_region(&b, one), F8_ELIMIT, "; job train holds regions of 2.0 MiB");
    ck_assert_int_eq(client_status(&a, ask_region_drop(&a, 1)), F8_OK);
    ck_assert_int_eq(client_status(&b, ask_region(&b, one)), F8_OK);
    registry_count(rooms.context.registry, &totals);
    ck_assert_uint_eq(totals.region_bytes, (1 << 20) + 1);
    (void)close(one);
    (void)close(two);
}
END_TEST

/* A client that makes its memfd larger and larger, by a byte. */
static atomic_bool growing;

static void *grow(void *argument)
{
    int fd = *(int *)argument;
    for (off_t size = 4097; atomic_load(&growing); size++)
        (void)ftruncate(fd, size);
    return NULL;
}

/* What is charged is what is given back, though the size changes between two looks at it. */
START_TEST(growing_regions_are_charged_right)
{
    pthread_t thread;
    int fd = make_memfd(4096);
    ck_assert_int_eq(client_status(&a, ask_hello(&a, "train")), F8_OK);
    atomic_store(&growing, true);
    ck_assert_int_eq(pthread_create(&thread, NULL, grow, &fd), 0);
    for (int i = 0; i < 1500; i++) {
        const F8__Reply *reply = client_await(&a, ask_region(&a, fd));
        if (reply->status == F8_OK)
            ck_assert_int_eq(client_status(&a, ask_region_drop(&a, 1)), F8_OK);
        else
            ck_assert_ptr_nonnull(strstr(reply->text, "grew"));
        client_forget(&a);
    }
    atomic_store(&growing, false);
    (void)pthread_join(thread, NULL);
    (void)close(fd);
}
END_TEST

/* ---- Registration ---- */

static uint64_t shape[] = {6, 10};

static F8__Weight dynamic(const char *name, uint32_t region, uint64_t offset)
{
    return make_weight(name, F8_PROTO_DYNAMIC, shape, 2, region, offset);
}

static uint64_t register_one(F8__Weight weight, bool more)
{
    return ask_register(&a, &weight, 1, NULL, 0, more);
}

START_TEST(shards_must_lie_in_a_region)
{
    (void)close(client_enter(&a, "train", "dp", 0, 2, 4096)); /* a shard has 3 rows: 120 bytes */
    client_refused(&a, register_one(dynamic("w", 2, 0), false), F8_ENOENT,
        "weight w: this client has no region 2");
    client_refused(&a, register_one(dynamic("w", 0, 0), false), F8_ENOENT, "no region 0");
    client_refused(&a, register_one(dynamic("w", 1, 2), false), F8_EINVAL,
        "offset 2 is no multiple of the element size 4");
    client_refused(&a, register_one(dynamic("w", 1, 3980), false), F8_EREGION,
        "its shard of 120 bytes at offset 3980 does not fit in region 1 of 4096 bytes");
    client_refused(
        &a, register_one(dynamic("w", 1, UINT64_MAX - 3), false), F8_EREGION, "does not fit");
    ck_assert_int_eq(client_status(&a, register_one(dynamic("w", 1, 3976), false)), F8_OK);
    client_refused(&a, register_one(dynamic("w", 1, 0), false), F8_EEXIST, "registered twice");
    client_refused(&a, ask_region_drop(&a, 1), F8_EBUSY, "the shard of weight w in it");
}
END_TEST

START_TEST(empty_shards_need_no_region)
{
    uint64_t none[] = {0, 10}, one[] = {1, 10};
    (void)close(client_enter(&a, "train", "dp", 1, 2, 4096));
    F8__Weight empty = make_weight("empty", F8_PROTO_DYNAMIC, none, 2, 0, 0);
    F8__Weight past = make_weight("past", F8_PROTO_DYNAMIC, one, 2, 0, 0);
    ck_assert_int_eq(client_status(&a, register_one(empty, false)), F8_OK);
    ck_assert_int_eq(client_status(&a, register_one(past, false)), F8_OK);
}
END_TEST

START_TEST(unknown_values_are_named)
{
    (void)close(client_enter(&a, "train", "dp", 0, 1, 4096));
    F8__Weight weight = dynamic("w", 1, 0);
    weight.dtype = 256 + F8_PROTO_F32; /* not to be cut to a byte */
    client_refused(&a, register_one(weight, false), F8_EINVAL, "dtype 257");
    weight = dynamic("w", 1, 0);
    weight.n_shape = 0;
    client_refused(&a, register_one(weight, false), F8_EINVAL, "weight w has 0 dimensions");
    uint64_t many[F8_PROTO_MAX_DIMS + 1] = {1};
    weight = make_weight("w", F8_PROTO_DYNAMIC, many, F8_PROTO_MAX_DIMS + 1, 1, 0);
    client_refused(&a, register_one(weight, false), F8_EINVAL, "weight w has 9 dimensions");
    client_refused(&b, ask_ping(&b), F8_EORDER, "must be Hello");
}
END_TEST

/* An error in the last of several packets takes back what came with all of them, not more. */
START_TEST(registration_counts_in_full_or_not)
{
    (void)close(client_enter(&a, "train", "dp", 0, 1, 4096));
    F8__Bucket first = make_bucket("first", 0, 1, false),
               second = make_bucket("second", 1, 2, false);
    F8__Weight w0 = dynamic("w0", 1, 0);
    ck_assert_int_eq(client_status(&a, ask_register(&a, &w0, 1, &first, 1, false)), F8_OK);
    for (int i = 0; i < 2; i++) {
        F8__Weight pair[] = {dynamic("w1", 1, 0), dynamic("w2", 1, 0)};
        ck_assert_int_eq(client_status(&a, ask_register(&a, pair, 2, NULL, 0, true)), F8_OK);
        ck_assert_int_eq(client_status(&a, ask_register(&a, NULL, 0, &second, 1, true)), F8_OK);
        client_refused(&a, ask_seal(&a, 0), F8_EORDER, "in the middle of a registration");
        client_refused(&a, register_one(dynamic("w3", 9, 0), true), F8_ENOENT, "region 9");
    }
    client_refused(&a, register_one(dynamic("w0", 1, 0), false), F8_EEXIST, "w0");
    F8__Weight pair[] = {dynamic("w1", 1, 0), dynamic("w2", 1, 0)};
    ck_assert_int_eq(client_status(&a, ask_register(&a, pair, 2, &second, 1, false)), F8_OK);
    ck_assert_int_eq(client_status(&a, ask_seal(&a, 0)), F8_OK);
    client_refused(&a, register_one(dynamic("w4", 1, 0), false), F8_EORDER, "group dp was sealed");
}
END_TEST

/* What was taken back holds no region. */
START_TEST(undone_shards_let_go_of_regions)
{
    (void)close(client_enter(&a, "train", "dp", 0, 1, 4096));
    ck_assert_int_eq(client_status(&a, register_one(dynamic("w1", 1, 0), true)), F8_OK);
    client_refused(&a, ask_region_drop(&a, 1), F8_EBUSY, "weight w1");
    client_refused(&a, register_one(dynamic("w1", 1, 0), true), F8_EEXIST, "w1");
    ck_assert_int_eq(client_status(&a, ask_region_drop(&a, 1)), F8_OK);
}
END_TEST

START_TEST(only_members_register)
{
    ck_assert_int_eq(client_status(&a, ask_hello(&a, "train")), F8_OK);
    a.group = 1;
    client_refused(&a, register_one(dynamic("w", 1, 0), false), F8_ENOENT,
        "group 1: this client has not joined it");
    client_refused(&a, ask_seal(&a, 0), F8_ENOENT, "has not joined");
}
END_TEST

static void add_all(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, hello_comes_first);
    tcase_add_test(tcase, hello_tells_what_the_daemon_is);
    tcase_add_test(tcase, newer_minor_is_served);
    tcase_add_test(tcase, bad_hellos_are_refused);
    tcase_add_test(tcase, roles_are_apart);
    tcase_add_test(tcase, unknown_requests_are_answered);
    tcase_add_test(tcase, requests_are_numbered_from_one);
    tcase_add_test(tcase, regions_are_checked_and_counted);
    tcase_add_test(tcase, regions_are_charged_to_the_uid);
    tcase_add_test(tcase, growing_regions_are_charged_right);
    tcase_add_test(tcase, shards_must_lie_in_a_region);
    tcase_add_test(tcase, empty_shards_need_no_region);
    tcase_add_test(tcase, unknown_values_are_named);
    tcase_add_test(tcase, registration_counts_in_full_or_not);
    tcase_add_test(tcase, undone_shards_let_go_of_regions);
    tcase_add_test(tcase, only_members_register);
}

int main(void)
{
    TCase *tcase = tcase_create("session");
    add_all(tcase);
    return run_suite("session", tcase);
}
