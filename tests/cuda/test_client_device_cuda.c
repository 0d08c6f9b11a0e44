/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a client's device: how it is set, the bounds of what it has, wrong answers of a
 * daemon, and its end in all ways.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/client_private.h"
#include "client/device_private.h"
#include "client/driver.h"
#include "f8gather.pb-c.h"
#include "proto/protocol.h"
#include "tests/cuda/gpu_rank.h"
#include "tests/lib/one_rank.h"
#include "tests/lib/patience.h"
#include "tests/lib/suite.h"

START_TEST(test_set_device)
{
    struct gpu_rank rank;
    CUcontext current;
    gpu_rank_begin(&rank);
    gpu_rank_connect(&rank);
    assert_fails(f8_set_device(NULL, 0), F8_EINVAL, "NULL");
    assert_fails(f8_set_device(rank.client, 99), F8_ENOENT, "no CUDA device 99");
    assert_fails(f8_set_device(rank.client, -1), F8_ENOENT, "no CUDA device -1");
    must(f8_set_device(rank.client, 0));
    must(f8_set_device(rank.client, 0));
    ck_assert_uint_eq(rank.gpu.shared->num_ready, F8_PROTO_MAX_READY);
    ck_assert_int_eq(rank.gpu.shared->uuid_matches, 1);
    assert_fails(f8_set_device(rank.client, 1), F8_EBUSY, "works on device 0");
    CU(cuCtxGetCurrent(&current));
    ck_assert_ptr_eq(current, rank.context);
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_set_device_late)
{
    struct gpu_rank rank;
    gpu_rank_begin(&rank);
    gpu_rank_connect(&rank);
    must(f8_group_join(rank.client, "dp", 0, 1, &rank.group));
    assert_fails(f8_set_device(rank.client, 0), F8_EORDER, "joined group dp");
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_device_refused)
{
    struct gpu_rank rank;
    gpu_rank_begin(&rank);
    gpu_rank_connect(&rank);
    rank.gpu.shared->fail_status = F8_ENOENT;
    rank.gpu.shared->fail_body = F8__REQUEST__BODY_DEVICE_ADD;
    assert_fails(f8_set_device(rank.client, 0), F8_ENOENT, "refused by the test");
    rank.gpu.shared->fail_status = F8_EUNKNOWN;
    assert_fails(f8_set_device(rank.client, 0), F8_ENOENT, "0.0.0-fake");
    assert_text("no CUDA backend");
    rank.gpu.shared->fail_body = 0;
    must(f8_set_device(rank.client, 0));
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_ring_is_full)
{
    struct gpu_rank rank;
    const uint32_t all = F8_PROTO_MAX_READY;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = all + 2, .words = 16});
    gpu_rank_seal(&rank, 0);
    rank.gpu.shared->withhold = F8__REQUEST__BODY_GATHER;
    for (uint32_t i = 0; i < all; i++)
        must(f8_gather(rank.group, i, F8_DEFAULT_DEADLINE, rank.stream));
    assert_fails(
        f8_gather(rank.group, all, F8_DEFAULT_DEADLINE, rank.stream), F8_ELIMIT, "all 128 events");
    assert_fails(f8_pre_gather(rank.group, all, rank.stream), F8_ELIMIT, "all 128 events");
    rank.gpu.shared->withhold = 0;
    gpu_rank_ping(&rank);
    must(f8_post_gather(rank.group, 7, F8_FOREVER, NULL, 0, rank.stream));
    must(f8_gather(rank.group, all, F8_DEFAULT_DEADLINE, rank.stream));
    assert_fails(f8_gather(rank.group, all + 1, F8_DEFAULT_DEADLINE, rank.stream), F8_ELIMIT,
        "all 128 events");
    ck_assert_uint_eq(fake_gpu_request(&rank.gpu, F8__REQUEST__BODY_GATHER, 7)->ready, 8);
    for (uint32_t i = 0; i <= all; i++)
        if (i != 7)
            must(f8_post_gather(rank.group, i, F8_FOREVER, NULL, 0, rank.stream));
    must(f8_gather(rank.group, all + 1, F8_DEFAULT_DEADLINE, rank.stream));
    must(f8_post_gather(rank.group, all + 1, F8_FOREVER, NULL, 0, rank.stream));
    gpu_rank_end(&rank);
}
END_TEST

/* What failed gives its event back. */
START_TEST(test_failures_keep_no_event)
{
    struct gpu_rank rank;
    f8_ticket ticket;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1, .words = 16});
    gpu_rank_seal(&rank, 0);
    rank.gpu.shared->fail_status = F8_EDEADLINE;
    for (int i = 0; i < F8_PROTO_MAX_READY + 1; i++) {
        rank.gpu.shared->fail_body = F8__REQUEST__BODY_GATHER;
        must(f8_gather(rank.group, 0, F8_DEFAULT_DEADLINE, rank.stream));
        assert_fails(f8_post_gather(rank.group, 0, F8_FOREVER, NULL, 0, rank.stream), F8_EDEADLINE,
            "refused by the test");
        rank.gpu.shared->fail_body = F8__REQUEST__BODY_PRECOMPUTE;
        must(f8_precompute(rank.group, F8_DEFAULT_DEADLINE, rank.stream, &ticket));
        assert_fails(f8_wait(rank.group, ticket, F8_FOREVER, rank.stream), F8_EDEADLINE,
            "refused by the test");
        rank.gpu.shared->fail_body = F8__REQUEST__BODY_PRE_GATHER;
        must(f8_pre_gather(rank.group, 0, rank.stream));
        gpu_rank_ping(&rank); /* so that its failure is here */
        assert_fails(f8_gather(rank.group, 0, F8_DEFAULT_DEADLINE, rank.stream), F8_EDEADLINE,
            "refused by the test");
    }
    rank.gpu.shared->fail_body = 0;
    gpu_rank_gather(&rank, 0, rank.stream);
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_slots)
{
    struct gpu_rank rank;
    const struct f8_seal_options options = {.slots = F8_PROTO_MAX_READY};
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 2, .shared = true});
    assert_fails(f8_seal(rank.group, &options), F8_ELIMIT, "128 shared slots");
    gpu_rank_seal(&rank, 1);
    gpu_rank_gather(&rank, 0, rank.stream);
    must(f8_release(rank.group, 0, rank.stream));
    rank.gpu.shared->places[1] = F8_PROTO_ALIGN;
    must(f8_gather(rank.group, 1, F8_DEFAULT_DEADLINE, rank.stream));
    assert_fails(f8_post_gather(rank.group, 1, F8_FOREVER, NULL, 0, rank.stream), F8_EPROTO,
        "the 1 slots lie elsewhere");
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_wrong_done)
{
    struct gpu_rank rank;
    f8_ticket ticket;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1});
    gpu_rank_seal(&rank, 0);
    rank.gpu.shared->done = FAKE_GPU_DONE + 1;
    must(f8_gather(rank.group, 0, F8_DEFAULT_DEADLINE, rank.stream));
    assert_fails(f8_post_gather(rank.group, 0, F8_FOREVER, NULL, 0, rank.stream), F8_EPROTO,
        "event 9 of a group that has 8");
    must(f8_precompute(rank.group, F8_DEFAULT_DEADLINE, rank.stream, &ticket));
    assert_fails(f8_wait(rank.group, ticket, F8_FOREVER, rank.stream), F8_EPROTO,
        "event 9 of a group that has 8");
    rank.gpu.shared->done = 0;
    gpu_rank_gather(&rank, 0, rank.stream); /* the bucket was given back */
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_wrong_seal)
{
    static const struct {
        enum fake_gpu_seal seal;
        int status;
        const char *text;
    } cases[] = {{FAKE_GPU_SEAL_NO_EVENTS, F8_EPROTO, "0 events"},
        {FAKE_GPU_SEAL_SHORT_HANDLE, F8_EPROTO, "handle of 5 bytes"},
        {FAKE_GPU_SEAL_NO_MEMORY, F8_EPROTO, "no arena"},
        {FAKE_GPU_SEAL_OTHER_MEMORY, F8_EIO, "cuMemImportFromShareableHandle"}};
    struct gpu_rank rank;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1});
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rank.gpu.shared->seal = cases[i].seal;
        assert_fails(f8_seal(rank.group, NULL), cases[i].status, cases[i].text);
    }
    rank.gpu.shared->seal = FAKE_GPU_SEAL_WELL;
    gpu_rank_seal(&rank, 0);
    gpu_rank_gather(&rank, 0, rank.stream);
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_rejoin)
{
    struct gpu_rank rank;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 2, .shared = true});
    for (int generation = 0; generation < 3; generation++) {
        gpu_rank_seal(&rank, 1);
        gpu_rank_fill(&rank, 0, generation, rank.stream);
        struct f8_view view = gpu_rank_gather(&rank, 0, rank.stream);
        gpu_rank_check(
            gpu_rank_read(view.data, view.size, rank.stream), view.size, generation, rank.stream);
        must(f8_release(rank.group, 0, rank.stream));
        must(f8_gather(rank.group, 1, F8_DEFAULT_DEADLINE, rank.stream)); /* nobody waits for it */
        must(f8_group_rejoin(rank.group));
        assert_fails(f8_view_check(rank.group, &view), F8_ESTALE, "released");
    }
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_close_with_open_requests)
{
    struct gpu_rank rank;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 4});
    gpu_rank_seal(&rank, 0);
    for (uint32_t i = 0; i < 4; i++)
        must(f8_gather(rank.group, i, F8_DEFAULT_DEADLINE, rank.stream));
    f8_close(rank.client);
    rank.client = NULL;
    ck_assert_uint_eq(rank.gpu.shared->drops, 1);
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_daemon_dies)
{
    struct gpu_rank rank;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1});
    gpu_rank_seal(&rank, 0);
    gpu_rank_gather(&rank, 0, rank.stream);
    fake_gpu_kill(&rank.gpu);
    must(f8_release(rank.group, 0, rank.stream));
    ck_assert_int_eq(f8_gather(rank.group, 0, F8_DEFAULT_DEADLINE, rank.stream), F8_ECONN);
    f8_close(rank.client);
    CU(cuMemFree(rank.shards));
    CU(cuStreamDestroy(rank.stream));
}
END_TEST

/* A daemon hangs up when it is told to end, while its kernels may still read the shards. */
START_TEST(test_daemon_ends_slowly)
{
    struct gpu_rank rank;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1});
    gpu_rank_seal(&rank, 0);
    gpu_rank_gather(&rank, 0, rank.stream);
    rank.gpu.shared->lingers_ms = 500;
    rank.gpu.shared->hangs_up = F8__REQUEST__BODY_DEVICE_DROP;
    f8_close(rank.client);
    rank.client = NULL;
    ck_assert_uint_eq(rank.gpu.shared->drops, 1);
    gpu_rank_end(&rank);
}
END_TEST

/* A region that could not be given back is the daemon's until the client is closed. */
START_TEST(test_region_when_daemon_ends)
{
    struct gpu_rank rank;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1});
    gpu_rank_seal(&rank, 0);
    rank.gpu.shared->lingers_ms = 500;
    rank.gpu.shared->hangs_up = F8__REQUEST__BODY_REGION_DROP;
    ck_assert_int_eq(f8_region_free(rank.region), F8_ECONN);
    f8_close(rank.client);
    rank.client = NULL;
    ck_assert_uint_eq(rank.gpu.shared->drops, 1);
    gpu_rank_end(&rank);
}
END_TEST

/* One that does not come to its end is not waited for without end. It keeps the events. */
START_TEST(test_daemon_does_not_end)
{
    struct gpu_rank rank;
    struct timespec before, after;
    CUevent events[F8_PROTO_MAX_READY];
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1});
    memcpy(events, client_device(rank.client)->ready, sizeof(events));
    rank.gpu.shared->lingers_ms = 2 * PATIENCE_MS;
    rank.gpu.shared->hangs_up = F8__REQUEST__BODY_DEVICE_DROP;
    clock_gettime(CLOCK_MONOTONIC, &before);
    f8_close(rank.client);
    clock_gettime(CLOCK_MONOTONIC, &after);
    ck_assert_int_ge(after.tv_sec - before.tv_sec, DEVICE_PATIENCE_MS / 1000);
    ck_assert_uint_eq(rank.gpu.shared->drops, 0);
    fake_gpu_kill(&rank.gpu);
    for (int i = 0; i < F8_PROTO_MAX_READY; i++)
        CU(cuEventDestroy(events[i]));
    CU(cuMemFree(rank.shards));
    CU(cuStreamDestroy(rank.stream));
}
END_TEST

/* A client that connects again by itself, at a daemon that takes its device but not its weights:
 * it is told to let go each time, and its end is not waited for. */
START_TEST(test_next_daemon_refuses)
{
    struct gpu_rank rank;
    struct timespec before, after;
    gpu_rank_register(
        &rank, &(struct gpu_rank_options){.num_buckets = 1, .reconnect_ms = PATIENCE_MS});
    fake_gpu_replace(&rank.gpu);
    rank.gpu.shared->stays = true;
    rank.gpu.shared->fail_status = F8_ELIMIT;
    rank.gpu.shared->fail_body = F8__REQUEST__BODY_REGISTER;
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (uint32_t times = 1; times <= 3; times++) {
        assert_fails(f8_changed(rank.group, 0, 1), F8_ELIMIT, "refused by the test");
        ck_assert_uint_eq(rank.gpu.shared->drops, times);
    }
    clock_gettime(CLOCK_MONOTONIC, &after);
    ck_assert_int_lt(after.tv_sec - before.tv_sec, 2 * DEVICE_PATIENCE_MS / 1000);
    rank.gpu.shared->fail_body = 0;
    assert_fails(f8_changed(rank.group, 0, 1), F8_EBROKEN, "group dp is broken");
    rank.gpu.shared->stays = false; /* this connection is its last one */
    must(f8_group_rejoin(rank.group));
    gpu_rank_seal(&rank, 0);
    gpu_rank_gather(&rank, 0, rank.stream);
    gpu_rank_end(&rank);
}
END_TEST

/* In the child: any CUDA call would end it by a fault of the simulator. */
static int in_child(struct gpu_rank *rank)
{
    const struct driver *driver;
    struct f8_region *region;
    bool right = f8_set_device(rank->client, 0) == F8_EFORKED &&
                 f8_region_share_pointer(rank->client, rank, 1, &region) == F8_EFORKED &&
                 f8_gather(rank->group, 0, F8_DEFAULT_DEADLINE, rank->stream) == F8_EFORKED &&
                 f8_release(rank->group, 0, rank->stream) == F8_EFORKED &&
                 driver_get(&driver) == F8_EFORKED;
    f8_close(rank->client);
    return right ? 0 : 1;
}

START_TEST(test_fork)
{
    struct gpu_rank rank;
    int status = 0;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1});
    gpu_rank_seal(&rank, 0);
    gpu_rank_gather(&rank, 0, rank.stream);
    pid_t child = fork();
    if (child == 0)
        _exit(in_child(&rank));
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x", (unsigned)status);
    must(f8_release(rank.group, 0, rank.stream));
    gpu_rank_gather(&rank, 0, rank.stream); /* the parent goes on */
    gpu_rank_end(&rank);
}
END_TEST

int main(int argc, char **argv)
{
    fake_gpu_main(argc, argv);
    TCase *tcase = tcase_create("life of a CUDA device");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_set_device);
    tcase_add_test(tcase, test_set_device_late);
    tcase_add_test(tcase, test_device_refused);
    tcase_add_test(tcase, test_ring_is_full);
    tcase_add_test(tcase, test_failures_keep_no_event);
    tcase_add_test(tcase, test_slots);
    tcase_add_test(tcase, test_wrong_done);
    tcase_add_test(tcase, test_wrong_seal);
    tcase_add_test(tcase, test_rejoin);
    tcase_add_test(tcase, test_close_with_open_requests);
    tcase_add_test(tcase, test_daemon_dies);
    tcase_add_test(tcase, test_daemon_ends_slowly);
    tcase_add_test(tcase, test_region_when_daemon_ends);
    tcase_add_test(tcase, test_daemon_does_not_end);
    tcase_add_test(tcase, test_next_daemon_refuses);
    tcase_add_test(tcase, test_fork);
    return run_suite("client_device_cuda", tcase);
}
