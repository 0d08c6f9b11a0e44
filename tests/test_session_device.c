/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices as clients add them, over the backend of tests: every refusal, one by one, requests that
 * overtake each other, and clients that are gone before the answer.
 */
#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/device_backend.h"
#include "tests/lib/rooms.h"
#include "tests/lib/suite.h"

#define REGION 65536

static struct rooms rooms;
static struct client a, b;

static void set_up(void)
{
    rooms_open_on(&rooms, 2);
    client_open(&a, &rooms, 10);
    client_open(&b, &rooms, 11);
    ck_assert_int_eq(client_status(&a, ask_hello(&a, "train")), F8_OK);
    ck_assert_int_eq(client_status(&b, ask_hello(&b, "train")), F8_OK);
}

static void tear_down(void)
{
    client_close(&a, false);
    client_close(&b, false);
    rooms_close(&rooms);
}

static struct device_backend_totals totals(void)
{
    return device_backend_totals(rooms.cuda);
}

static void hold(bool held)
{
    device_backend_hold(rooms.cuda, DEVICE_COMMANDS, held);
}

static void fail_next(enum device_fault fault, int status, const char *text)
{
    device_backend_fail(rooms.cuda, fault, status, text);
}

/* ---- devices ---- */

START_TEST(a_device_is_added_by_its_uuid)
{
    uint64_t id = ask_device(&a, 1, 3);
    ck_assert_int_eq(client_await(&a, id)->body_case, F8__REPLY__BODY_DEVICE);
    ck_assert_uint_eq(client_await(&a, id)->device->device, 1);
    ck_assert_uint_eq(client_await(&b, ask_device(&b, 0, F8_PROTO_MAX_READY))->device->device, 0);
    ck_assert_uint_eq(totals().clients, 2);
    client_refused(&a, ask_device(&a, 1, 3), F8_EBUSY, "this client works on a device already");
}
END_TEST

START_TEST(no_cuda_says_why)
{
    rooms.context.collective.cuda = NULL;
    (void)reason_set(&rooms.context.no_cuda, F8_ENOENT, "the driver is too old");
    client_refused(&a, ask_device(&a, 0, 1), F8_ENOENT,
        "this daemon has no CUDA backend: the driver is too old");
    rooms.context.collective.cuda = rooms.cuda;
}
END_TEST

static uint64_t ask_device_as(size_t uuid_size, size_t num_events, size_t handle_size)
{
    static uint8_t bytes[2 * F8_PROTO_HANDLE_SIZE];
    static ProtobufCBinaryData ready[F8_PROTO_MAX_READY + 1];
    F8__DeviceAdd body = F8__DEVICE_ADD__INIT;
    device_backend_uuid(0, bytes);
    for (size_t i = 0; i < num_events; i++)
        ready[i] = (ProtobufCBinaryData){
            .len = i + 1 == num_events ? handle_size : F8_PROTO_HANDLE_SIZE, .data = bytes};
    body.uuid = (ProtobufCBinaryData){.len = uuid_size, .data = bytes};
    body.ready = ready;
    body.n_ready = num_events;
    return ask_body(&a, F8__REQUEST__BODY_DEVICE_ADD, &body.base, NULL, 0);
}

START_TEST(devices_of_wrong_sizes)
{
    client_refused(
        &a, ask_device_as(15, 1, 64), F8_EINVAL, "UUID of a device has 16 bytes, not 15");
    client_refused(&a, ask_device_as(0, 1, 64), F8_EINVAL, "not 0");
    client_refused(&a, ask_device_as(17, 1, 64), F8_EINVAL, "not 17");
    client_refused(
        &a, ask_device_as(16, 0, 64), F8_EINVAL, "0 events were given, allowed are 1 to");
    client_refused(&a, ask_device_as(16, 129, 64), F8_EINVAL, "129 events were given");
    client_refused(
        &a, ask_device_as(16, 5, 63), F8_EINVAL, "the handle of event 4 has 64 bytes, not 63");
    client_refused(&a, ask_device_as(16, 128, 65), F8_EINVAL, "event 127 has 64 bytes, not 65");
    client_refused(&a, ask_device_as(16, 1, 0), F8_EINVAL, "event 0 has 64 bytes, not 0");
    ck_assert_uint_eq(totals().clients, 0);
    client_ok(&a, ask_device_as(16, 128, 64));
}
END_TEST

START_TEST(the_backend_refuses_a_device)
{
    client_refused(&a, ask_device(&a, 3, 1), F8_ENOENT, "no device has this UUID");
    fail_next(DEVICE_FAULT_ATTACH, F8_EIO, "event 0 cannot be opened: invalid resource handle");
    client_refused(&a, ask_device(&a, 0, 1), F8_EIO, "event 0 cannot be opened");
    client_ok(&a, ask_device(&a, 0, 1)); /* and it may try again */
}
END_TEST

START_TEST(two_devices_at_once)
{
    hold(true);
    uint64_t first = ask_device(&a, 0, 1);
    client_refused(&a, ask_device(&a, 1, 1), F8_EBUSY, "works on a device already");
    hold(false);
    client_ok(&a, first);
    ck_assert_uint_eq(totals().clients, 1);
}
END_TEST

START_TEST(a_client_is_gone_before_its_device)
{
    hold(true);
    (void)ask_device(&a, 0, 1);
    (void)ask_device(&b, 1, 1);
    client_close(&a, true);
    fail_next(DEVICE_FAULT_ATTACH, F8_EIO, "nobody hears this");
    hold(false);
    rooms_land(&rooms);
    ck_assert_uint_eq(totals().clients, 1);
    client_close(&b, false);
    rooms_land(&rooms);
    ck_assert_uint_eq(totals().clients, 0);
}
END_TEST

static void enter(struct client *client, const char *group, uint32_t region)
{
    uint64_t shape[] = {4, 4};
    F8__Weight weight = make_weight("w", F8_PROTO_DYNAMIC, shape, 2, region, 0);
    F8__Bucket bucket = make_bucket("b", 0, 1, false);
    client_ok(client, ask_join(client, group, 0, 1));
    client_ok(client, ask_register(client, &weight, 1, &bucket, 1, false));
}

START_TEST(a_device_comes_before_the_seal)
{
    int fd = make_memfd(REGION);
    client_ok(&a, ask_region(&a, fd));
    enter(&a, "dp", 1);
    client_ok(&a, ask_seal(&a, 0));
    client_refused(&a, ask_device(&a, 0, 1), F8_EORDER,
        "a group of this client was sealed: a device is added before");
    (void)close(fd);
}
END_TEST

/* What was asked with a device on its way is not to find half of it there. */
START_TEST(a_seal_does_not_overtake_the_device)
{
    int fd = make_memfd(REGION);
    client_ok(&a, ask_region(&a, fd));
    enter(&a, "dp", 1);
    hold(true);
    uint64_t device = ask_device(&a, 0, 1);
    client_refused(&a, ask_seal(&a, 0), F8_EORDER,
        "its device is still being added: wait for that before the seal");
    hold(false);
    client_ok(&a, device);
    client_refused(&a, ask_seal(&a, 0), F8_EREGION, "lies on the host");
    (void)close(fd);
}
END_TEST

/* The seal was asked for, and waits for another rank: nothing of the member may change. */
START_TEST(a_device_does_not_come_into_a_seal)
{
    int fd = make_memfd(REGION);
    uint64_t shape[] = {4, 4};
    F8__Weight weight = make_weight("w", F8_PROTO_DYNAMIC, shape, 2, 1, 0);
    F8__Bucket bucket = make_bucket("b", 0, 1, false);
    client_ok(&a, ask_region(&a, fd));
    client_ok(&a, ask_join(&a, "dp", 0, 2));
    client_ok(&a, ask_register(&a, &weight, 1, &bucket, 1, false));
    (void)ask_seal(&a, 0);
    client_refused(&a, ask_device(&a, 0, 1), F8_EORDER, "a device is added before");
    (void)close(fd);
}
END_TEST

static void add_devices(Suite *suite)
{
    TCase *tcase = tcase_create("devices");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_device_is_added_by_its_uuid);
    tcase_add_test(tcase, no_cuda_says_why);
    tcase_add_test(tcase, devices_of_wrong_sizes);
    tcase_add_test(tcase, the_backend_refuses_a_device);
    tcase_add_test(tcase, two_devices_at_once);
    tcase_add_test(tcase, a_client_is_gone_before_its_device);
    tcase_add_test(tcase, a_device_comes_before_the_seal);
    tcase_add_test(tcase, a_seal_does_not_overtake_the_device);
    tcase_add_test(tcase, a_device_does_not_come_into_a_seal);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("session_device");
    add_devices(suite);
    return run_cases(suite);
}
