/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory as clients add it and get it back, over the backend of tests: every refusal, one
 * by one, works that still read it, and clients that are gone before the answer.
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

static void enter(struct client *client, const char *group, uint32_t region)
{
    uint64_t shape[] = {4, 4};
    F8__Weight weight = make_weight("w", F8_PROTO_DYNAMIC, shape, 2, region, 0);
    F8__Bucket bucket = make_bucket("b", 0, 1, false);
    client_ok(client, ask_join(client, group, 0, 1));
    client_ok(client, ask_register(client, &weight, 1, &bucket, 1, false));
}

/* ---- memory ---- */

struct memory {
    size_t handle_size;
    uint64_t offset, size;
    uint64_t chunk;
    uint32_t num_chunks, num_fds;
    bool more;
};

static int memory_fd;

static uint64_t ask_memory(struct client *client, struct memory memory)
{
    static uint8_t handle[2 * F8_PROTO_HANDLE_SIZE];
    uint64_t chunks[F8_PROTO_MAX_FDS + 1];
    int fds[F8_PROTO_MAX_FDS + 1];
    F8__CudaMemory cuda = F8__CUDA_MEMORY__INIT;
    F8__RegionAdd body = F8__REGION_ADD__INIT;
    for (uint32_t i = 0; i <= F8_PROTO_MAX_FDS; i++) {
        chunks[i] = memory.chunk;
        fds[i] = memory_fd;
    }
    cuda.handle = (ProtobufCBinaryData){.len = memory.handle_size, .data = handle};
    cuda.offset = memory.offset;
    cuda.size = memory.size;
    cuda.chunks = chunks;
    cuda.n_chunks = memory.num_chunks;
    cuda.more = memory.more;
    body.cuda = &cuda;
    return ask_body(client, F8__REQUEST__BODY_REGION_ADD, &body.base, fds, memory.num_fds);
}

static void set_up_memory(void)
{
    set_up();
    memory_fd = make_memfd(4096);
    client_ok(&a, ask_device(&a, 0, 1));
}

static void tear_down_memory(void)
{
    tear_down();
    (void)close(memory_fd);
}

static uint64_t region_bytes(void)
{
    struct registry_totals counted;
    registry_count(rooms.context.registry, &counted);
    return counted.region_bytes;
}

START_TEST(memory_by_handle_and_by_descriptors)
{
    uint64_t id = ask_memory(&a, (struct memory){.handle_size = 64, .offset = 512, .size = 1024});
    ck_assert_uint_eq(client_await(&a, id)->region->region, 1);
    ck_assert_uint_eq(client_await(&a, id)->region->size, 1024);
    id = ask_memory(&a,
        (struct memory){.offset = 4000, .size = 200, .chunk = 4096, .num_chunks = 2, .num_fds = 2});
    ck_assert_uint_eq(client_await(&a, id)->region->region, 2);
    ck_assert_uint_eq(region_bytes(), 1224);
    ck_assert_uint_eq(totals().mappings, 2);
    client_ok(&a, ask_region_drop(&a, 1));
    rooms_land(&rooms);
    ck_assert_uint_eq(region_bytes(), 200);
    ck_assert_uint_eq(totals().mappings, 1);
}
END_TEST

/* More than one packet may carry, and each has a reply. */
START_TEST(memory_in_many_packets)
{
    struct memory part = {.chunk = 4096, .num_chunks = 64, .num_fds = 64, .more = true};
    for (int i = 0; i < 31; i++) {
        const F8__Reply *reply = client_await(&a, ask_memory(&a, part));
        ck_assert_int_eq(reply->status, F8_OK);
        ck_assert_int_eq(reply->body_case, F8__REPLY__BODY__NOT_SET);
    }
    part.more = false;
    part.size = 4096 * 64 * 32;
    rooms.config.memory_per_uid = part.size;
    uint64_t id = ask_memory(&a, part);
    ck_assert_msg(client_await(&a, id)->status == F8_OK, "%s", client_await(&a, id)->text);
    ck_assert_uint_eq(region_bytes(), part.size);
    client_refused(
        &a, ask_memory(&a, (struct memory){.handle_size = 64, .size = 1}), F8_ELIMIT, "the region");
}
END_TEST

static const struct {
    struct memory memory;
    int status;
    const char *text;
} refusals[] = {
    {{.handle_size = 63, .size = 1}, F8_EINVAL, "handle of device memory has 64 bytes, not 63"},
    {{.handle_size = 65, .size = 1}, F8_EINVAL, "not 65"},
    {{.handle_size = 64, .size = 1, .num_fds = 1}, F8_EINVAL, "not by both"},
    {{.handle_size = 64, .size = 1, .chunk = 4096, .num_chunks = 1, .num_fds = 1}, F8_EINVAL,
        "not by both"},
    {{.handle_size = 64, .size = 1, .more = true}, F8_EINVAL, "not by both"},
    {{.handle_size = 64}, F8_EREGION, "device memory of 0 bytes at offset 0"},
    {{.handle_size = 64, .size = 2, .offset = UINT64_MAX - 1}, F8_EREGION, "device memory of 2"},
    {{.chunk = 4096, .num_chunks = 1, .num_fds = 1}, F8_EREGION, "device memory of 0 bytes"},
    {{.size = 1}, F8_EREGION, "0 allocations of device memory came with 0 descriptors"},
    {{.more = true}, F8_EREGION, "0 allocations of device memory came with 0 descriptors"},
    {{.size = 1, .num_fds = 1}, F8_EREGION, "0 allocations of device memory came with 1"},
    {{.size = 1, .chunk = 4096, .num_chunks = 2, .num_fds = 1}, F8_EREGION,
        "2 allocations of device memory came with 1 descriptors: it takes one for each"},
    {{.size = 1, .chunk = 4096, .num_chunks = 1, .num_fds = 2}, F8_EREGION, "came with 2"},
    {{.size = 4097, .chunk = 4096, .num_chunks = 1, .num_fds = 1}, F8_EREGION,
        "does not lie in its memory"},
    {{.size = 4096, .offset = 1, .chunk = 4096, .num_chunks = 1, .num_fds = 1}, F8_EREGION,
        "does not lie in its memory"},
    {{.handle_size = 64, .size = (uint64_t)65 << 20}, F8_ELIMIT, "the region"},
};

START_TEST(memory_is_refused)
{
    client_refused(&a, ask_memory(&a, refusals[_i].memory), refusals[_i].status, refusals[_i].text);
    rooms_land(&rooms);
    ck_assert_uint_eq(region_bytes(), 0);
    ck_assert_uint_eq(totals().mappings, 0);
}
END_TEST

START_TEST(memory_of_a_client_without_a_device)
{
    client_refused(&b, ask_memory(&b, (struct memory){.handle_size = 64, .size = 1}), F8_EORDER,
        "device memory comes after the device (DeviceAdd)");
}
END_TEST

START_TEST(too_many_allocations)
{
    struct memory part = {.chunk = 4096, .num_chunks = 64, .num_fds = 64, .more = true};
    for (int i = 0; i < 32; i++)
        client_ok(&a, ask_memory(&a, part));
    part.num_chunks = part.num_fds = 1;
    client_refused(&a, ask_memory(&a, part), F8_ELIMIT,
        "a region of device memory has more than 2048 allocations: share it in parts");
    part.more = false; /* what came before is gone with the refusal */
    part.size = 4096;
    client_ok(&a, ask_memory(&a, part));
}
END_TEST

/* A mistake in any packet ends the region that was coming in. */
START_TEST(a_mistake_in_the_middle)
{
    struct memory part = {.chunk = 4096, .num_chunks = 2, .num_fds = 2, .more = true};
    client_ok(&a, ask_memory(&a, part));
    part.num_fds = 1;
    client_refused(&a, ask_memory(&a, part), F8_EREGION, "2 allocations");
    part = (struct memory){.size = 8192, .chunk = 4096, .num_chunks = 1, .num_fds = 1};
    client_refused(&a, ask_memory(&a, part), F8_EREGION, "does not lie in its memory");
}
END_TEST

START_TEST(a_handle_in_the_middle)
{
    struct memory part = {.chunk = 4096, .num_chunks = 2, .num_fds = 2, .more = true};
    client_ok(&a, ask_memory(&a, part));
    client_refused(&a, ask_memory(&a, (struct memory){.handle_size = 64, .size = 1}), F8_EINVAL,
        "device memory comes by a handle or by descriptors, not by both");
    client_ok(&a, ask_memory(&a, (struct memory){.handle_size = 64, .size = 1}));
}
END_TEST

START_TEST(a_region_that_is_not_finished)
{
    struct memory part = {.chunk = 4096, .num_chunks = 2, .num_fds = 2, .more = true};
    client_ok(&a, ask_memory(&a, part));
    client_close(&a, _i);
}
END_TEST

START_TEST(the_backend_refuses_memory)
{
    struct memory memory = {.handle_size = 64, .size = 4096};
    fail_next(
        DEVICE_FAULT_MAP, F8_EREGION, "the handle of pid 10 cannot be opened: invalid argument");
    client_refused(&a, ask_memory(&a, memory), F8_EREGION, "the handle of pid 10 cannot be opened");
    ck_assert_uint_eq(region_bytes(), 0);
    client_ok(&a, ask_memory(&a, memory));
}
END_TEST

START_TEST(too_many_regions)
{
    struct memory memory = {.handle_size = 64, .size = 4096};
    uint32_t limit = rooms.config.max_regions;
    uint64_t last = 0;
    hold(true);
    for (uint32_t i = 0; i <= limit; i++) /* all under way at once */
        last = ask_memory(&a, memory);
    hold(false);
    client_refused(&a, last, F8_ELIMIT, "this client has 4 regions, the limit (--max-regions)");
    rooms_land(&rooms);
    ck_assert_uint_eq(region_bytes(), limit * 4096);
    ck_assert_uint_eq(totals().mappings, limit);
}
END_TEST

START_TEST(a_client_is_gone_before_its_memory)
{
    struct memory memory = {.size = 4096, .chunk = 4096, .num_chunks = 1, .num_fds = 1};
    hold(true);
    (void)ask_memory(&a, memory);
    (void)ask_memory(&a, (struct memory){.handle_size = 64, .size = 1});
    ck_assert_uint_eq(region_bytes(), 4097);
    if (_i)
        fail_next(DEVICE_FAULT_MAP, F8_EREGION, "nobody hears this");
    client_close(&a, true);
    ck_assert_uint_eq(region_bytes(), 0);
    hold(false);
    rooms_land(&rooms);
    ck_assert_uint_eq(totals().mappings, 0);
    ck_assert_uint_eq(totals().clients, 0);
}
END_TEST

static void add_weight_in(struct client *client, uint32_t region, const char *refusal)
{
    uint64_t shape[] = {4, 4};
    F8__Weight weight = make_weight("w", F8_PROTO_DYNAMIC, shape, 2, region, 0);
    uint64_t id = ask_register(client, &weight, 1, NULL, 0, false);
    client_refused(client, id, F8_EREGION, refusal);
}

/* A client's shards are all where it works. */
START_TEST(shards_elsewhere)
{
    int fd = make_memfd(REGION);
    client_ok(&a, ask_region(&a, fd));
    client_ok(&a, ask_join(&a, "dp", 0, 1));
    add_weight_in(&a, 1, "weight w: region 1 lies on the host, but this client works on device 0");
    client_ok(&a, ask_memory(&a, (struct memory){.handle_size = 64, .size = 64}));
    enter(&a, "other", 2);
    client_ok(&a, ask_seal(&a, 0));
    client_refused(&a, ask_move(&a, 0, 1, 0), F8_EREGION, "lies on the host");
    client_refused(&a, ask_region_drop(&a, 2), F8_EBUSY, "still has the shard of weight w");
    (void)close(fd);
}
END_TEST

/* ---- what is given back ---- */

static uint64_t ask_device_drop(struct client *client)
{
    F8__DeviceDrop body = F8__DEVICE_DROP__INIT;
    return ask_body(client, F8__REQUEST__BODY_DEVICE_DROP, &body.base, NULL, 0);
}

static void set_up_group(void)
{
    set_up_memory();
    client_ok(&a, ask_memory(&a, (struct memory){.handle_size = 64, .size = 64}));
    enter(&a, "dp", 1);
    client_ok(&a, ask_seal(&a, 0));
    device_backend_hold(rooms.cuda, DEVICE_STREAMS, true);
    client_ok(&a, ask_gather(&a, 0));
}

/* The reply says that the memory is the client's own again. */
START_TEST(a_region_is_dropped_once_works_have_passed)
{
    client_ok(&a, ask_memory(&a, (struct memory){.handle_size = 64, .size = 512}));
    uint64_t drop = ask_region_drop(&a, 2);
    rooms_land(&rooms);
    ck_assert_ptr_null(client_reply(&a, drop));
    device_backend_hold(rooms.cuda, DEVICE_STREAMS, false);
    client_ok(&a, drop);
    ck_assert_uint_eq(totals().mappings, 1);
    if (!_i)
        return;
    fail_next(DEVICE_FAULT_FENCE, F8_EDEADLINE, "");
    client_ok(&a, ask_memory(&a, (struct memory){.handle_size = 64, .size = 512}));
    client_refused(&a, ask_region_drop(&a, 2), F8_EDEADLINE,
        "device memory or events of pid 10 are still in use, by work that does not end");
}
END_TEST

START_TEST(a_device_is_dropped_once_works_have_passed)
{
    uint64_t drop = ask_device_drop(&a);
    rooms_land(&rooms);
    ck_assert_ptr_null(client_reply(&a, drop));
    ck_assert_uint_eq(totals().clients, 1);
    client_refused(&a, ask_device_drop(&a), F8_EORDER, "this client has added no device");
    client_refused(&a, ask_gather(&a, 0), F8_ENOENT, "has not joined");
    device_backend_hold(rooms.cuda, DEVICE_STREAMS, false);
    client_ok(&a, drop);
    ck_assert_uint_eq(totals().clients + totals().mappings + totals().arenas, 0);
    ck_assert_uint_eq(region_bytes(), 0);
}
END_TEST

START_TEST(a_device_is_dropped_at_rest)
{
    device_backend_hold(rooms.cuda, DEVICE_STREAMS, false);
    rooms_land(&rooms);
    client_ok(&a, ask_device_drop(&a));
    ck_assert_uint_eq(totals().clients + totals().mappings + totals().arenas, 0);
    client_refused(&b, ask_device_drop(&b), F8_EORDER, "this client has added no device");
}
END_TEST

START_TEST(a_client_is_gone_before_its_drop)
{
    (void)ask_device_drop(&a);
    client_close(&a, _i);
    device_backend_hold(rooms.cuda, DEVICE_STREAMS, false);
    rooms_land(&rooms);
    ck_assert_uint_eq(totals().clients + totals().mappings + totals().arenas, 0);
}
END_TEST

static void add_memory(Suite *suite)
{
    TCase *tcase = tcase_create("memory");
    tcase_add_checked_fixture(tcase, set_up_memory, tear_down_memory);
    tcase_add_test(tcase, memory_by_handle_and_by_descriptors);
    tcase_add_test(tcase, memory_in_many_packets);
    tcase_add_loop_test(tcase, memory_is_refused, 0, (int)(sizeof(refusals) / sizeof(refusals[0])));
    tcase_add_test(tcase, memory_of_a_client_without_a_device);
    tcase_add_test(tcase, too_many_allocations);
    tcase_add_test(tcase, a_mistake_in_the_middle);
    tcase_add_test(tcase, a_handle_in_the_middle);
    tcase_add_loop_test(tcase, a_region_that_is_not_finished, 0, 2);
    tcase_add_test(tcase, the_backend_refuses_memory);
    tcase_add_test(tcase, too_many_regions);
    tcase_add_loop_test(tcase, a_client_is_gone_before_its_memory, 0, 2);
    tcase_add_test(tcase, shards_elsewhere);
    suite_add_tcase(suite, tcase);
}

static void add_drops(Suite *suite)
{
    TCase *tcase = tcase_create("what is given back");
    tcase_add_checked_fixture(tcase, set_up_group, tear_down_memory);
    tcase_add_loop_test(tcase, a_region_is_dropped_once_works_have_passed, 0, 2);
    tcase_add_test(tcase, a_device_is_dropped_once_works_have_passed);
    tcase_add_test(tcase, a_device_is_dropped_at_rest);
    tcase_add_loop_test(tcase, a_client_is_gone_before_its_drop, 0, 2);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("session_memory");
    add_drops(suite);
    add_memory(suite);
    return run_cases(suite);
}
