/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators see of devices and of groups on them, over the backend of tests; and why there
 * are none.
 */
#include <check.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/device_group.h"
#include "tests/lib/suite.h"

static struct device_group group;

static void close_group(void)
{
    device_group_close(&group);
}

static const F8__StatusInfo *look(void)
{
    client_forget(&group.operator_);
    uint64_t id = ask_inspect(&group.operator_, F8__VIEW__STATUS, "", "", 0);
    return client_await(&group.operator_, id)->inspect->status;
}

START_TEST(status_shows_devices)
{
    device_group_open(&group, 3, 2, F8_PROTO_DYNAMIC);
    device_group_seal(&group);
    const F8__StatusInfo *info = look();
    ck_assert_str_eq(info->backend, "host, cuda");
    ck_assert_str_eq(info->cuda, "");
    ck_assert_uint_eq(info->cuda_driver, 13010);
    ck_assert_uint_eq(info->cuda_runtime, 13000);
    ck_assert_uint_eq(info->nccl, 22809);
    ck_assert_str_eq(info->nccl_reason, "");
    ck_assert_uint_eq(info->communicators, 1);
    ck_assert(info->simulated);
    ck_assert_uint_eq(info->n_devices, 2);
    for (uint32_t d = 0; d < 2; d++) {
        const F8__DeviceInfo *device = info->devices[d];
        uint8_t uuid[BACKEND_UUID_SIZE];
        device_backend_uuid(d, uuid);
        ck_assert_uint_eq(device->uuid.len, sizeof(uuid));
        ck_assert_mem_eq(device->uuid.data, uuid, sizeof(uuid));
        ck_assert_str_eq(device->name, d ? "pretended GPU 1" : "pretended GPU 0");
        ck_assert_str_eq(device->pci, d ? "0000:18:00.0" : "0000:17:00.0");
        ck_assert_uint_eq(device->memory, (uint64_t)80 << 30);
        ck_assert_uint_eq(device->memory_free, (uint64_t)79 << 30);
        ck_assert_uint_eq(device->compute_capability, 90);
        ck_assert_uint_eq(device->arena_bytes, group.arena_size);
        ck_assert_uint_eq(device->clients, 2 - d); /* ranks 0 and 2; 1 */
        ck_assert_uint_eq(device->mapped_bytes, (2 - d) * 16384);
    }
    ck_assert_uint_eq(info->arena_bytes, 2 * group.arena_size);
    ck_assert_uint_eq(info->region_bytes, 3 * 16384);
}
END_TEST

START_TEST(status_says_why_there_is_no_nccl)
{
    device_group_open(&group, 1, 1, F8_PROTO_DYNAMIC);
    const F8__StatusInfo *info = look();
    ck_assert_uint_eq(info->nccl, 0);
    ck_assert_str_eq(info->nccl_reason, "libnccl.so.2 is not there");
    ck_assert_uint_eq(info->n_devices, 1);
    ck_assert_uint_eq(info->communicators + info->warm_communicators, 0);
}
END_TEST

START_TEST(status_says_why_there_are_no_devices)
{
    device_group_open(&group, 1, 0, F8_PROTO_DYNAMIC);
    (void)reason_set(&group.rooms.context.no_cuda, F8_ENOENT, "there is no NVIDIA driver");
    const F8__StatusInfo *info = look();
    ck_assert_str_eq(info->backend, "host");
    ck_assert_str_eq(info->cuda, "there is no NVIDIA driver");
    ck_assert_uint_eq(info->n_devices + info->cuda_driver + info->cuda_runtime + info->nccl, 0);
    ck_assert(!info->simulated);
}
END_TEST

START_TEST(groups_show_their_devices)
{
    static const struct {
        uint32_t ranks, devices;
        const char *exchange;
    } cases[] = {{3, 1, "none"}, {2, 2, "allgather"}, {4, 2, "broadcast"}};
    bool direct = strcmp(cases[_i].exchange, "allgather") == 0;
    uint32_t exchanges = cases[_i].devices > 1 ? 3 : 0;
    device_group_open(&group, cases[_i].ranks, cases[_i].devices, F8_PROTO_DYNAMIC);
    ck_assert_uint_eq(device_group_info(&group)->n_devices, 0); /* it lies nowhere yet */
    ck_assert_str_eq(device_group_info(&group)->exchange, "");
    device_group_seal(&group);
    for (int i = 0; i < 3; i++)
        device_group_gather(&group, 0);
    rooms_land(&group.rooms);
    const F8__GroupInfo *info = device_group_info(&group);
    ck_assert_uint_eq(info->n_devices, cases[_i].ranks);
    for (uint32_t r = 0; r < cases[_i].ranks; r++)
        ck_assert_int_eq(info->devices[r], (int)(r % cases[_i].devices));
    ck_assert_str_eq(info->exchange, cases[_i].exchange);
    ck_assert_uint_eq(info->exchanges, exchanges);
    ck_assert_uint_eq(info->copy_engine_exchanges, direct ? exchanges : 0);
    ck_assert_int_eq(info->window, direct);
    ck_assert(!info->warm);
    ck_assert_uint_eq(info->arena_bytes, cases[_i].devices * group.arena_size);
}
END_TEST

/* The group of the same name comes back after all had left. */
START_TEST(groups_that_come_back_are_warm)
{
    device_group_open(&group, 2, 2, F8_PROTO_DYNAMIC);
    device_group_seal(&group);
    for (uint32_t r = 0; r < 2; r++)
        client_close(&group.clients[r], true);
    rooms_land(&group.rooms);
    ck_assert_uint_eq(look()->communicators, 0);
    ck_assert_uint_eq(look()->warm_communicators, 1);
    for (uint32_t r = 0; r < 2; r++)
        device_group_enter(&group, r, 200 + r);
    device_group_seal(&group);
    ck_assert(device_group_info(&group)->warm);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("inspect_device");
    tcase_add_checked_fixture(tcase, NULL, close_group);
    tcase_add_test(tcase, status_shows_devices);
    tcase_add_test(tcase, status_says_why_there_is_no_nccl);
    tcase_add_test(tcase, status_says_why_there_are_no_devices);
    tcase_add_loop_test(tcase, groups_show_their_devices, 0, 3);
    tcase_add_test(tcase, groups_that_come_back_are_warm);
    return run_suite("inspect_device", tcase);
}
