/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8ctl prints of devices, the whole program against a fake daemon: versions, or why there
 * are none; one line a device; groups on devices and on the host; and all of it as JSON.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ctl_fake.h"
#include "lib/suite.h"
#include "protocol.h"

/* What the fake daemon has. */
enum hardware {
    NOTHING,
    NOTHING_SAID, /* as a daemon of before devices */
    DEVICES,
    NO_NCCL,
    ODD_UUID,
};
static enum hardware hardware;

static const uint8_t uuid[] = {
    0x8f, 0x2c, 0x01, 0x00, 0xab, 0xcd, 0xef, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0x0f};

static void make_device(F8__DeviceInfo *device, uint32_t number)
{
    f8__device_info__init(device);
    device->uuid = (ProtobufCBinaryData){
        .len = hardware == ODD_UUID ? 3 : sizeof(uuid), .data = (uint8_t *)uuid};
    device->name = (char *)"NVIDIA H200";
    device->pci = (char *)(number ? "0000:18:00.0" : "0000:17:00.0");
    device->memory = (uint64_t)140 << 30;
    device->memory_free = (uint64_t)100 << 30;
    device->arena_bytes = (uint64_t)3 << 29;
    device->mapped_bytes = number ? 0 : (uint64_t)2 << 30;
    device->compute_capability = 90;
    device->clients = 4 - number;
}

static bool answer_status(int fd, const F8__Request *request)
{
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;
    F8__StatusInfo status = F8__STATUS_INFO__INIT;
    F8__DeviceInfo devices[2];
    F8__DeviceInfo *list[2] = {&devices[0], &devices[1]};
    status.backend = (char *)(hardware <= NOTHING_SAID ? "host" : "host, cuda");
    if (hardware == NOTHING)
        status.cuda = (char *)"the driver (11.4) is older than CUDA 13.0 needs";
    if (hardware >= DEVICES) {
        status.cuda_driver = 13010;
        status.cuda_runtime = 13000;
        status.nccl = hardware == NO_NCCL ? 0 : 22809;
        status.nccl_reason = (char *)(hardware == NO_NCCL ? "libnccl.so.2 is not there" : "");
        status.communicators = 6;
        status.warm_communicators = 2;
        status.simulated = hardware == ODD_UUID;
        make_device(&devices[0], 0);
        make_device(&devices[1], 1);
        status.devices = list;
        status.n_devices = 2;
    }
    inspect.status = &status;
    return ctl_fake_inspected(fd, request, &inspect);
}

/* One on devices, one on the host. */
static bool answer_groups(int fd, const F8__Request *request)
{
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;
    F8__GroupInfo groups[3];
    F8__GroupInfo *list[3] = {&groups[0], &groups[1], &groups[2]};
    int32_t numbers[] = {0, 1, 0, 1}, alone[] = {3};
    for (int i = 0; i < 3; i++) {
        f8__group_info__init(&groups[i]);
        groups[i].job = (char *)"run";
        groups[i].state = (char *)"sealed";
    }
    groups[0].name = (char *)"dp";
    groups[0].devices = numbers;
    groups[0].n_devices = 4;
    groups[0].exchange = (char *)"broadcast";
    groups[0].exchanges = 12;
    groups[0].copy_engine_exchanges = 7;
    groups[0].window = true;
    groups[0].warm = true;
    groups[1].name = (char *)"hosted";
    groups[2].name = (char *)"alone";
    groups[2].devices = alone;
    groups[2].n_devices = 1;
    groups[2].exchange = (char *)"none";
    inspect.groups = list;
    inspect.n_groups = 3;
    return ctl_fake_inspected(fd, request, &inspect);
}

static bool answer(int fd, const F8__Request *request, int memfd)
{
    (void)memfd;
    ck_assert_int_eq(request->body_case, F8__REQUEST__BODY_INSPECT);
    if (request->inspect->view == F8__VIEW__STATUS)
        return answer_status(fd, request);
    return answer_groups(fd, request);
}

static void run(enum hardware what, const char *command, char *text, size_t size)
{
    hardware = what;
    ctl_fake_must(answer, command, text, size);
}

static void has(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "got: %s\nmust have: %s", text, part);
}

START_TEST(status_without_devices)
{
    char text[4096];
    run(NOTHING, "status", text, sizeof(text));
    has(text, "backend        host\n");
    has(text, "cuda           none: the driver (11.4) is older than CUDA 13.0 needs\n");
    ck_assert_ptr_null(strstr(text, "DEVICE"));
    run(NOTHING_SAID, "status", text, sizeof(text));
    has(text, "cuda           none\n");
}
END_TEST

START_TEST(status_with_devices)
{
    char text[4096];
    run(DEVICES, "status", text, sizeof(text));
    has(text, "cuda           driver 13.1, runtime 13.0, NCCL 2.28.9, communicators 6 (2 kept "
              "warm)\n");
    has(text, "\n\nDEVICE  NAME         UUID                                      PCI           "
              "   MEMORY       FREE   ARENAS   MAPPED  CLIENTS\n");
    has(text, "     0  NVIDIA H200  GPU-8f2c0100-abcd-ef12-3456-789abcdef00f  0000:17:00.0  140.0 "
              "GiB  100.0 GiB  1.5 GiB  2.0 GiB        4\n");
    has(text, "     1  NVIDIA H200  GPU-8f2c0100-abcd-ef12-3456-789abcdef00f  0000:18:00.0  140.0 "
              "GiB  100.0 GiB  1.5 GiB      0 B        3\n");
    run(NO_NCCL, "status", text, sizeof(text));
    has(text, "driver 13.1, runtime 13.0, no NCCL: libnccl.so.2 is not there\n");
    run(ODD_UUID, "status", text, sizeof(text));
    has(text, "cuda           simulated, driver 13.1");
    has(text, "NVIDIA H200  -     0000:17");
}
END_TEST

static const json_t *get(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(value != NULL, "no key %s", key);
    return value;
}

static json_t *run_json(enum hardware what, const char *command)
{
    char text[8192];
    run(what, command, text, sizeof(text));
    json_t *object = json_loads(text, 0, NULL);
    ck_assert_msg(object != NULL, "no JSON: %s", text);
    return object;
}

START_TEST(status_as_json)
{
    json_t *object = run_json(DEVICES, "status --json");
    const json_t *status = get(object, "status");
    ck_assert(json_is_null(get(status, "no_cuda")));
    ck_assert(json_is_null(get(status, "no_nccl")));
    ck_assert_int_eq(json_integer_value(get(status, "cuda_driver")), 13010);
    ck_assert_int_eq(json_integer_value(get(status, "cuda_runtime")), 13000);
    ck_assert_int_eq(json_integer_value(get(status, "nccl")), 22809);
    ck_assert_int_eq(json_integer_value(get(status, "communicators")), 6);
    ck_assert_int_eq(json_integer_value(get(status, "warm_communicators")), 2);
    ck_assert(json_is_false(get(status, "simulated")));
    ck_assert_uint_eq(json_array_size(get(status, "devices")), 2);
    const json_t *device = json_array_get(get(status, "devices"), 1);
    ck_assert_int_eq(json_integer_value(get(device, "number")), 1);
    ck_assert_str_eq(
        json_string_value(get(device, "uuid")), "GPU-8f2c0100-abcd-ef12-3456-789abcdef00f");
    ck_assert_str_eq(json_string_value(get(device, "name")), "NVIDIA H200");
    ck_assert_str_eq(json_string_value(get(device, "pci")), "0000:18:00.0");
    ck_assert_int_eq(json_integer_value(get(device, "memory")), (json_int_t)140 << 30);
    ck_assert_int_eq(json_integer_value(get(device, "memory_free")), (json_int_t)100 << 30);
    ck_assert_int_eq(json_integer_value(get(device, "arena_bytes")), (json_int_t)3 << 29);
    ck_assert_int_eq(json_integer_value(get(device, "mapped_bytes")), 0);
    ck_assert_int_eq(json_integer_value(get(device, "compute_capability")), 90);
    ck_assert_int_eq(json_integer_value(get(device, "clients")), 3);
    json_decref(object);
    object = run_json(NOTHING, "status --json");
    status = get(object, "status");
    ck_assert_str_eq(json_string_value(get(status, "no_cuda")),
        "the driver (11.4) is older than CUDA 13.0 needs");
    ck_assert(json_is_null(get(status, "cuda_driver")));
    ck_assert(json_is_null(get(status, "nccl")));
    ck_assert_uint_eq(json_array_size(get(status, "devices")), 0);
    json_decref(object);
}
END_TEST

START_TEST(groups_in_a_table)
{
    char text[4096];
    run(DEVICES, "groups", text, sizeof(text));
    has(text,
        "DEVICES  EXCHANGE                                   WARM  HOSTS  ENGINE  PIDS BY RANK");
    has(text, "0,1,0,1  broadcast, 12 (7 by copy engines), window  yes ");
    has(text, "  -        -                                          -    ");
    has(text, "  3        none                                       no   ");
}
END_TEST

START_TEST(groups_as_json)
{
    json_t *object = run_json(DEVICES, "groups --json");
    const json_t *group = json_array_get(get(object, "groups"), 0);
    ck_assert_uint_eq(json_array_size(get(group, "devices")), 4);
    ck_assert_int_eq(json_integer_value(json_array_get(get(group, "devices"), 3)), 1);
    ck_assert_str_eq(json_string_value(get(group, "exchange")), "broadcast");
    ck_assert_int_eq(json_integer_value(get(group, "exchanges")), 12);
    ck_assert_int_eq(json_integer_value(get(group, "copy_engine_exchanges")), 7);
    ck_assert(json_is_true(get(group, "window")));
    ck_assert(json_is_true(get(group, "warm")));
    group = json_array_get(get(object, "groups"), 1);
    ck_assert_uint_eq(json_array_size(get(group, "devices")), 0);
    ck_assert(json_is_null(get(group, "exchange")));
    ck_assert(json_is_false(get(group, "warm")));
    json_decref(object);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("ctl_devices");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, status_without_devices);
    tcase_add_test(tcase, status_with_devices);
    tcase_add_test(tcase, status_as_json);
    tcase_add_test(tcase, groups_in_a_table);
    tcase_add_test(tcase, groups_as_json);
    return run_suite("ctl_devices", tcase);
}
