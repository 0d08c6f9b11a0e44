/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order between a client's streams and the daemon, on a device: data are right without any
 * wait of the host, and requests name events that were recorded before.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "f8gather.pb-c.h"
#include "proto/protocol.h"
#include "tests/cuda/gpu_rank.h"
#include "tests/cudasim/cudasim.h"
#include "tests/lib/one_rank.h"
#include "tests/lib/suite.h"

/* What is written to shards right after a step asked for them: must never be gathered. */
#define LATE 0xee

START_TEST(test_gather)
{
    struct gpu_rank rank;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 2});
    gpu_rank_seal(&rank, 0);
    for (int step = 0; step < 20; step++) {
        uint32_t bucket = (uint32_t)step % 2;
        gpu_rank_fill(&rank, bucket, step, rank.stream);
        struct f8_view view = gpu_rank_gather(&rank, bucket, rank.stream);
        gpu_rank_fill(&rank, bucket, LATE, rank.stream); /* the shard is the stream's again */
        void *copy = gpu_rank_read(view.data, view.size, rank.stream);
        must(f8_release(rank.group, bucket, rank.stream));
        gpu_rank_check(copy, view.size, step, rank.stream);
    }
    gpu_rank_end(&rank);
}
END_TEST

/* The views are of device memory that a kernel of this process cannot write: the simulator aborts.
 */
START_TEST(test_read_only)
{
    struct gpu_rank rank;
    struct cudasim_range range;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1});
    gpu_rank_seal(&rank, 0);
    struct f8_view view = gpu_rank_gather(&rank, 0, rank.stream);
    ck_assert(cudasim_find(view.data, &range));
    ck_assert(range.is_vmm);
    ck_assert_int_eq(range.device, 0);
    unlink(rank.gpu.socket);
    rmdir(rank.gpu.directory);
    CU(cuMemsetD8Async((CUdeviceptr)(uintptr_t)view.data, 1, 1, rank.stream));
    CU(cuStreamSynchronize(rank.stream));
}
END_TEST

START_TEST(test_recorded_before_the_request)
{
    struct gpu_rank rank;
    struct gate gate;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1});
    gpu_rank_seal(&rank, 0);
    gpu_rank_gather(&rank, 0, rank.stream);
    must(f8_release(rank.group, 0, rank.stream));
    gate_put(&gate, rank.stream);
    must(f8_gather(rank.group, 0, F8_DEFAULT_DEADLINE, rank.stream));
    must(f8_post_gather(rank.group, 0, F8_FOREVER, NULL, 0, rank.stream));
    gate_open(&gate);
    must(f8_release(rank.group, 0, rank.stream));
    gpu_rank_ping(&rank);
    const struct fake_gpu_request *second =
        fake_gpu_request(&rank.gpu, F8__REQUEST__BODY_GATHER, 1);
    ck_assert_uint_gt(second->ready, 0);
    ck_assert(!second->is_complete);
    gpu_rank_end(&rank);
}
END_TEST

/* A request's event stands for releases on other streams, too: here one that lags behind. */
START_TEST(test_covers_releases)
{
    struct gpu_rank rank;
    CUstream other;
    CUevent gathered;
    CUdeviceptr scratch;
    void *copies[10];
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1});
    CU(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CU(cuEventCreate(&gathered, CU_EVENT_DISABLE_TIMING));
    CU(cuMemAlloc(&scratch, rank.size));
    gpu_rank_seal(&rank, 0);
    for (int step = 0; step < 10; step++) {
        gpu_rank_fill(&rank, 0, step, rank.stream);
        struct f8_view view = gpu_rank_gather(&rank, 0, rank.stream);
        CU(cuEventRecord(gathered, rank.stream));
        CU(cuStreamWaitEvent(other, gathered, 0));
        for (int lag = 0; lag < 20; lag++)
            CU(cuMemsetD8Async(scratch, 0, rank.size, other));
        copies[step] = gpu_rank_read(view.data, view.size, other);
        must(f8_release(rank.group, 0, other));
    }
    for (int step = 0; step < 10; step++)
        gpu_rank_check(copies[step], rank.size, step, other);
    CU(cuEventDestroy(gathered));
    CU(cuStreamDestroy(other));
    CU(cuMemFree(scratch));
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_reads_end_before_the_next_use)
{
    struct gpu_rank rank;
    void *copies[10];
    uint64_t size = 0;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 2, .shared = true});
    gpu_rank_seal(&rank, 1); /* both are gathered to place 0 */
    for (int step = 0; step < 10; step++) {
        uint32_t bucket = (uint32_t)step % 2;
        gpu_rank_fill(&rank, bucket, step, rank.stream);
        struct f8_view view = gpu_rank_gather(&rank, bucket, rank.stream);
        copies[step] = gpu_rank_read(view.data, view.size, rank.stream);
        size = view.size;
        must(f8_release(rank.group, bucket, rank.stream));
    }
    for (int step = 0; step < 10; step++)
        gpu_rank_check(copies[step], size, step, rank.stream);
    gpu_rank_end(&rank);
}
END_TEST

/* Ranks may release in different orders; then the release, not the request, is what to wait for. */
START_TEST(test_release_names_its_own_event)
{
    struct gpu_rank rank;
    CUstream reader;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 3, .shared = true});
    CU(cuStreamCreate(&reader, CU_STREAM_NON_BLOCKING));
    gpu_rank_seal(&rank, 2);
    uint64_t place = rank.size + F8_PROTO_ALIGN;
    rank.gpu.shared->places[1] = place;
    rank.gpu.shared->places[2] = 0;
    for (uint32_t i = 0; i < 3; i++)
        gpu_rank_fill(&rank, i, (int)i + 1, rank.stream);
    CU(cuStreamSynchronize(rank.stream));
    rank.gpu.shared->by_release_only = true;
    for (int step = 0; step < 10; step++) {
        struct f8_view view = gpu_rank_gather(&rank, 0, reader);
        gpu_rank_gather(&rank, 1, reader);
        void *copy = gpu_rank_read(view.data, view.size, reader);
        must(f8_release(rank.group, 0, reader));
        gpu_rank_gather(&rank, 2, rank.stream); /* over bucket 0 */
        gpu_rank_check(copy, view.size, 1, reader);
        must(f8_release(rank.group, 1, reader));
        must(f8_release(rank.group, 2, rank.stream));
    }
    gpu_rank_ping(&rank);
    const struct fake_gpu_request *a = fake_gpu_request(&rank.gpu, F8__REQUEST__BODY_RELEASE, 0);
    const struct fake_gpu_request *b = fake_gpu_request(&rank.gpu, F8__REQUEST__BODY_RELEASE, 1);
    const struct fake_gpu_request *c = fake_gpu_request(&rank.gpu, F8__REQUEST__BODY_RELEASE, 2);
    ck_assert_uint_gt(a->ready, 0);
    ck_assert_uint_ne(a->ready, b->ready); /* of another place */
    ck_assert_uint_eq(a->ready, c->ready); /* of the same */
    CU(cuStreamSynchronize(reader));
    CU(cuStreamDestroy(reader));
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_pre_gather)
{
    struct gpu_rank rank;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1});
    gpu_rank_seal(&rank, 0);
    for (int step = 0; step < 10; step++) {
        gpu_rank_fill(&rank, 0, step, rank.stream);
        must(f8_pre_gather(rank.group, 0, rank.stream));
        struct f8_view view = gpu_rank_gather(&rank, 0, rank.stream);
        gpu_rank_fill(&rank, 0, LATE, rank.stream);
        void *copy = gpu_rank_read(view.data, view.size, rank.stream);
        must(f8_release(rank.group, 0, rank.stream));
        gpu_rank_check(copy, view.size, step, rank.stream);
    }
    const struct fake_gpu_request *pre =
        fake_gpu_request(&rank.gpu, F8__REQUEST__BODY_PRE_GATHER, 0);
    ck_assert_uint_gt(pre->ready, 0);
    ck_assert_uint_eq(fake_gpu_request(&rank.gpu, F8__REQUEST__BODY_GATHER, 0)->ready, pre->ready);
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_precompute)
{
    struct gpu_rank rank;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1});
    gpu_rank_seal(&rank, 0);
    for (int step = 1; step < 10; step++) {
        f8_ticket ticket;
        gpu_rank_fill(&rank, 0, step, rank.stream);
        must(f8_precompute(rank.group, F8_DEFAULT_DEADLINE, rank.stream, &ticket));
        must(f8_wait(rank.group, ticket, F8_FOREVER, rank.stream));
        gpu_rank_fill(&rank, 0, LATE, rank.stream);
        gpu_rank_ping(&rank);
        ck_assert_uint_eq(rank.gpu.shared->scratch, (unsigned)step * 0x01010101U);
    }
    gpu_rank_end(&rank);
}
END_TEST

/* One step with everything in it. */
static void step(struct gpu_rank *rank)
{
    f8_ticket ticket;
    must(f8_precompute(rank->group, F8_DEFAULT_DEADLINE, rank->stream, &ticket));
    must(f8_wait(rank->group, ticket, F8_FOREVER, rank->stream));
    for (uint32_t i = 0; i < rank->num_buckets; i++) {
        must(f8_pre_gather(rank->group, i, rank->stream));
        gpu_rank_gather(rank, i, rank->stream);
        must(f8_release(rank->group, i, rank->stream));
    }
}

START_TEST(test_steady_state)
{
    static const enum cudasim_counter kept[] = {CUDASIM_ALLOCATIONS, CUDASIM_FREES, CUDASIM_MAPS,
        CUDASIM_UNMAPS, CUDASIM_IPC_OPENS, CUDASIM_HOST_SYNCS, CUDASIM_STREAM_CREATIONS,
        CUDASIM_EVENT_CREATIONS};
    struct gpu_rank rank;
    uint64_t before[sizeof(kept) / sizeof(kept[0])];
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 3, .shared = true});
    gpu_rank_seal(&rank, 2);
    step(&rank);
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        before[i] = cudasim_counted(kept[i]);
    uint64_t waits = cudasim_counted(CUDASIM_EVENT_WAITS);
    for (int i = 0; i < 20; i++)
        step(&rank);
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        ck_assert_uint_eq(cudasim_counted(kept[i]), before[i]);
    ck_assert_uint_gt(cudasim_counted(CUDASIM_EVENT_WAITS), waits);
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_poison)
{
    struct gpu_rank rank;
    CUevent filled;
    const struct f8_seal_options options = {.poison = 1};
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1});
    must(f8_seal(rank.group, &options));
    gpu_rank_gather(&rank, 0, rank.stream);
    gpu_rank_fill(&rank, 0, 1, rank.stream);
    CU(cuEventCreate(&filled, CU_EVENT_DISABLE_TIMING));
    CU(cuEventRecord(filled, rank.stream));
    uint64_t before = cudasim_counted(CUDASIM_HOST_SYNCS);
    must(f8_release(rank.group, 0, rank.stream));
    ck_assert_uint_eq(cudasim_counted(CUDASIM_HOST_SYNCS), before + 1);
    CU(cuEventQuery(filled));
    CU(cuEventDestroy(filled));
    assert_fails(f8_release(rank.group, 0, rank.stream), F8_EORDER, "released already");
    gpu_rank_end(&rank);
}
END_TEST

START_TEST(test_copy_out)
{
    struct gpu_rank rank;
    CUdeviceptr copy;
    uint64_t size = 0;
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 1, .world_size = 2});
    gpu_rank_seal(&rank, 0);
    CU(cuMemsetD8Async(rank.shards, 1, rank.size / 2, rank.stream));
    CU(cuMemsetD8Async(rank.shards + rank.size / 2, 2, rank.size / 2, rank.stream));
    gpu_rank_gather(&rank, 0, rank.stream);
    for (int layout = F8_WEIGHT_MAJOR; layout <= F8_RANK_MAJOR; layout++) {
        must(f8_copy_size(rank.group, 0, (enum f8_layout)layout, &size));
        ck_assert_uint_eq(size, rank.size);
        CU(cuMemAlloc(&copy, size));
        must(f8_copy_out(
            rank.group, 0, (enum f8_layout)layout, (void *)(uintptr_t)copy, size, rank.stream));
        const char *at = (const char *)(uintptr_t)copy;
        void *first = gpu_rank_read(at, size / 2, rank.stream);
        void *second = gpu_rank_read(at + size / 2, size / 2, rank.stream);
        gpu_rank_check(first, size / 2, 1, rank.stream);
        gpu_rank_check(second, size / 2, 2, rank.stream);
        CU(cuMemFree(copy));
    }
    must(f8_release(rank.group, 0, rank.stream));
    gpu_rank_end(&rank);
}
END_TEST

/* A thread with a bucket and a stream of its own. */
struct worker {
    struct gpu_rank *rank;
    uint32_t bucket;
    pthread_t thread;
};

static void *work(void *argument)
{
    const struct worker *worker = argument;
    struct gpu_rank *rank = worker->rank;
    CUstream stream;
    CU(cuCtxPushCurrent(rank->context));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 15; i++) {
        int value = (int)worker->bucket * 16 + i;
        gpu_rank_fill(rank, worker->bucket, value, stream);
        struct f8_view view = gpu_rank_gather(rank, worker->bucket, stream);
        void *copy = gpu_rank_read(view.data, view.size, stream);
        must(f8_release(rank->group, worker->bucket, stream));
        gpu_rank_check(copy, view.size, value, stream);
    }
    CU(cuStreamDestroy(stream));
    return NULL;
}

START_TEST(test_threads)
{
    struct gpu_rank rank;
    struct worker workers[4];
    gpu_rank_register(&rank, &(struct gpu_rank_options){.num_buckets = 4});
    gpu_rank_seal(&rank, 0);
    for (uint32_t i = 0; i < 4; i++) {
        workers[i] = (struct worker){.rank = &rank, .bucket = i};
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++)
        pthread_join(workers[i].thread, NULL);
    gpu_rank_end(&rank);
}
END_TEST

int main(int argc, char **argv)
{
    fake_gpu_main(argc, argv);
    TCase *tcase = tcase_create("order on a CUDA device");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_gather);
    const char *fork_mode = getenv("CK_FORK");
    if (!fork_mode || strcmp(fork_mode, "no") != 0)
        tcase_add_test_raise_signal(tcase, test_read_only, SIGABRT);
    tcase_add_test(tcase, test_recorded_before_the_request);
    tcase_add_test(tcase, test_covers_releases);
    tcase_add_test(tcase, test_reads_end_before_the_next_use);
    tcase_add_test(tcase, test_release_names_its_own_event);
    tcase_add_test(tcase, test_pre_gather);
    tcase_add_test(tcase, test_precompute);
    tcase_add_test(tcase, test_steady_state);
    tcase_add_test(tcase, test_poison);
    tcase_add_test(tcase, test_copy_out);
    tcase_add_test(tcase, test_threads);
    return run_suite("client_cuda", tcase);
}
