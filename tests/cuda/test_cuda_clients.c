/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients of the CUDA backend: devices found by UUID though processes number them differently,
 * events opened and closed, refusals that say what is wrong. On two simulated devices.
 */
#include <check.h>
#include <cudasim.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "proto/status.h"
#include "tests/lib/suite.h"

static struct cuda_client client;

START_TEST(devices_are_described)
{
    struct backend_info info = cuda_info();
    ck_assert_uint_eq(info.num_devices, 2);
    ck_assert_uint_eq(info.runtime_version / 1000, CUDA_VERSION / 1000);
    ck_assert(info.simulated);
    ck_assert_int_eq(strncmp(info.devices[1].name, "simulated", 9), 0);
    ck_assert_int_ne(memcmp(info.devices[0].uuid, info.devices[1].uuid, BACKEND_UUID_SIZE), 0);
    ck_assert_str_ne(info.devices[0].pci, info.devices[1].pci);
    ck_assert_uint_gt(info.devices[0].memory, 0);
    ck_assert_uint_gt(info.devices[0].compute_capability, 0);
    ck_assert_uint_eq(info.devices[0].clients, 0);
}
END_TEST

START_TEST(a_client_is_found_by_uuid)
{
    /* Its device 0 is the daemon's device 1. */
    ck_assert_int_eq(setenv("CUDASIM_VISIBLE", "1", 1), 0);
    cuda_client_start(&client, 0, 3);
    ck_assert_int_eq(unsetenv("CUDASIM_VISIBLE"), 0);
    ck_assert_int_eq(client.attach.device, 1);
    ck_assert_uint_eq(cuda_info().devices[1].clients, 1);
    ck_assert_uint_eq(cuda_info().devices[0].clients, 0);
    cuda_backend->ops->device->detach(cuda_backend, client.attach.client);
    ck_assert_int_eq(cuda_fence(client.attach.pid), F8_OK);
    ck_assert_uint_eq(cuda_info().devices[1].clients, 0);
    exporter_stop(&client.exporter);
}
END_TEST

START_TEST(as_many_events_as_the_protocol_allows)
{
    cuda_client_start(&client, 0, EXPORTER_MAX_EVENTS);
    cuda_backend->ops->device->detach(cuda_backend, client.attach.client);
    ck_assert_int_eq(cuda_fence(0), F8_OK);
    exporter_stop(&client.exporter);
}
END_TEST

static const char *refusal(struct backend_attach *attach, int expected)
{
    int status = cuda_attach(attach);
    ck_assert_msg(status == expected, "%d: %s", status, attach->reason.text);
    ck_assert_ptr_null(attach->client);
    return attach->reason.text;
}

START_TEST(another_device_is_named_and_so_are_ours)
{
    static const uint8_t no_handle[1][BACKEND_HANDLE_SIZE];
    struct backend_attach attach = {.ready = no_handle, .num_ready = 1, .pid = 4711};
    memset(attach.uuid, 0xab, sizeof(attach.uuid));
    const char *text = refusal(&attach, F8_ENOENT);
    ck_assert_ptr_nonnull(strstr(text, "pid 4711"));
    ck_assert_ptr_nonnull(strstr(text, "GPU-abababab-abab-abab-abab-abababababab"));
    char own[16];
    (void)snprintf(own, sizeof(own), "GPU-%02x%02x", cuda_info().devices[1].uuid[0],
        cuda_info().devices[1].uuid[1]);
    ck_assert_msg(strstr(text, own) != NULL, "%s in %s", own, text);
}
END_TEST

START_TEST(handles_that_are_none_are_refused)
{
    static uint8_t handles[2][BACKEND_HANDLE_SIZE];
    uint64_t events = cudasim_counted(CUDASIM_EVENT_CREATIONS);
    memset(handles, 0x55, sizeof(handles));
    struct backend_attach attach = {
        .ready = (const uint8_t(*)[BACKEND_HANDLE_SIZE])handles, .num_ready = 2, .pid = 4711};
    memcpy(attach.uuid, cuda_info().devices[0].uuid, sizeof(attach.uuid));
    const char *text = refusal(&attach, F8_EINVAL);
    ck_assert_ptr_nonnull(strstr(text, "event 0 of 2 of pid 4711"));
    ck_assert_uint_eq(cuda_info().devices[0].clients, 0);
    /* The drain's event of the device, and nothing that stays of the client's. */
    ck_assert_uint_le(cudasim_counted(CUDASIM_EVENT_CREATIONS), events + 1);
}
END_TEST

START_TEST(none_and_too_many_events_are_refused)
{
    static const uint8_t handles[EXPORTER_MAX_EVENTS + 1][BACKEND_HANDLE_SIZE];
    struct backend_attach attach = {.ready = handles, .num_ready = 0, .pid = 4711};
    memcpy(attach.uuid, cuda_info().devices[0].uuid, sizeof(attach.uuid));
    ck_assert_ptr_nonnull(strstr(refusal(&attach, F8_EINVAL), "0 events"));
    attach.num_ready = EXPORTER_MAX_EVENTS + 1;
    ck_assert_ptr_nonnull(strstr(refusal(&attach, F8_EINVAL), "129 events; allowed are 1 to 128"));
}
END_TEST

START_TEST(a_client_that_was_killed_can_be_detached)
{
    cuda_client_start(&client, 0, 4);
    exporter_ask(&client.exporter, &(struct exporter_request){.op = EXPORTER_RECORD}, -1);
    exporter_kill(&client.exporter);
    cuda_backend->ops->device->detach(cuda_backend, client.attach.client);
    ck_assert_int_eq(cuda_fence(client.attach.pid), F8_OK);
    ck_assert_uint_eq(cuda_info().devices[0].clients, 0);
}
END_TEST

START_TEST(many_come_and_go)
{
    for (int i = 0; i < 20; i++) {
        cuda_client_start(&client, i % 2, 8);
        ck_assert_int_eq(client.attach.device, i % 2);
        cuda_backend->ops->device->detach(cuda_backend, client.attach.client);
        ck_assert_int_eq(cuda_fence(0), F8_OK);
        exporter_stop(&client.exporter);
    }
    ck_assert_uint_eq(cuda_info().devices[0].clients, 0);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("clients");
    tcase_add_checked_fixture(tests, cuda_fixture_open, cuda_fixture_close);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, devices_are_described);
    tcase_add_test(tests, a_client_is_found_by_uuid);
    tcase_add_test(tests, as_many_events_as_the_protocol_allows);
    tcase_add_test(tests, another_device_is_named_and_so_are_ours);
    tcase_add_test(tests, handles_that_are_none_are_refused);
    tcase_add_test(tests, none_and_too_many_events_are_refused);
    tcase_add_test(tests, a_client_that_was_killed_can_be_detached);
    tcase_add_test(tests, many_come_and_go);
    return run_suite("cuda_clients", tests);
}
