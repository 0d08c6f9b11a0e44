/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each fault that the simulated NCCL is to find, planted, and found by its message; what names two
 * ranks names both sides.
 */
#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "nccl_support.h"
#include "tests/lib/suite.h"

enum { RANKS = 2, SIZE = 4096 };

static struct rank ranks[RANKS];

static void open_all(struct shared *shared)
{
    NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
    for (int i = 0; i < RANKS; i++)
        rank_open(&ranks[i], i, i, SIZE, false);
    ranks_init(ranks, RANKS, RANKS, &shared->id[0], 1);
}

/* The program's own rank, of two in two processes. */
static struct rank *open_one(struct shared *shared, int process)
{
    if (process == 0)
        NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
    meet(shared);
    rank_open(&ranks[0], process, process, SIZE, false);
    ranks_init(&ranks[0], 1, 2, &shared->id[0], 1);
    return &ranks[0];
}

static void reduce(struct rank *rank, size_t count)
{
    NEED_NCCL(ncclAllReduce(
        rank->memory, rank->memory, count, ncclUint32, ncclMax, rank->comm, rank->stream));
}

static void gather(struct rank *rank, size_t count)
{
    NEED_NCCL(ncclAllGather(rank->memory + (size_t)rank->rank * count, rank->memory, count,
        ncclUint8, rank->comm, rank->stream));
}

static void wait_for(struct rank *rank)
{
    NEED(cudaStreamSynchronize(rank->stream) == cudaSuccess);
}

/* Runs the body and wants the two texts in the message of its fault. */
static void expect(int processes, process_body *body, const char *first, const char *second)
{
    const char *text = processes_fault(processes, body);
    ck_assert_msg(strstr(text, first) != NULL, "no \"%s\" in: %s", first, text);
    ck_assert_msg(strstr(text, second) != NULL, "no \"%s\" in: %s", second, text);
}

/* ---- threads and groups ---- */

static void without_group(struct shared *shared, int process)
{
    (void)process;
    open_all(shared);
    reduce(&ranks[0], 1);
    reduce(&ranks[1], 1);
}

START_TEST(outside_of_a_group)
{
    expect(1, without_group, "ncclAllReduce: one thread launches rank 0 and rank 1 of communicator",
        "outside of a group");
}
END_TEST

static void with_half_a_group(struct shared *shared, int process)
{
    (void)process;
    open_all(shared);
    for (int step = 0; step < 2; step++) {
        NEED_NCCL(ncclGroupStart());
        for (int i = step; i < RANKS; i++)
            reduce(&ranks[i], 1);
        NEED_NCCL(ncclGroupEnd());
    }
}

START_TEST(group_without_a_local_rank)
{
    expect(1, with_half_a_group, "a group launches rank 1 of communicator",
        "without rank 0 of the same thread: 2 and 1 collectives so far");
}
END_TEST

static void *reduce_once(void *argument)
{
    reduce(argument, 1);
    return NULL;
}

static void with_two_threads(struct shared *shared, int process)
{
    pthread_t thread;
    struct rank *rank = open_one(shared, process);
    reduce(rank, 1);
    pthread_create(&thread, NULL, reduce_once, rank);
    pthread_join(thread, NULL);
}

START_TEST(two_threads)
{
    expect(2, with_two_threads, "ncclAllReduce: rank ", "is launched by two threads");
}
END_TEST

static void two_threads_on_a_device(struct shared *shared, int process)
{
    pthread_t thread;
    struct rank other;
    (void)process;
    NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
    NEED_NCCL(ncclGetUniqueId(&shared->id[1]));
    rank_open(&ranks[0], 0, 0, SIZE, false);
    rank_open(&other, 0, 0, SIZE, false);
    ranks_init(&ranks[0], 1, 1, &shared->id[0], 1);
    ranks_init(&other, 1, 1, &shared->id[1], 1);
    reduce(&ranks[0], 1);
    pthread_create(&thread, NULL, reduce_once, &other);
    pthread_join(thread, NULL);
}

START_TEST(another_thread_on_the_device)
{
    expect(1, two_threads_on_a_device, "is launched by another thread than another communicator",
        "of device 0");
}
END_TEST

static void without_polling(struct shared *shared, int process)
{
    struct rank other;
    (void)process;
    setenv("CUDASIM_DELAY_US", "1000000", 1); /* holds the launch back; the seed is that of 0 */
    NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
    NEED_NCCL(ncclGetUniqueId(&shared->id[1]));
    rank_open(&ranks[0], 0, 0, SIZE, false);
    rank_open(&other, 0, 0, SIZE, false);
    ranks_init(&ranks[0], 1, 1, &shared->id[0], 0);
    ranks_init(&other, 1, 1, &shared->id[1], 0);
    ncclAllReduce(
        ranks[0].memory, ranks[0].memory, 1, ncclUint32, ncclMax, ranks[0].comm, ranks[0].stream);
    reduce(&other, 1);
}

START_TEST(earlier_launch_in_progress)
{
    expect(1, without_polling, "while an earlier launch on device 0 is still ncclInProgress", "");
}
END_TEST

/* ---- what ranks must agree on ---- */

static void with_other_size(struct shared *shared, int process)
{
    struct rank *rank = open_one(shared, process);
    reduce(rank, process == 0 ? 3 : 4);
    wait_for(rank);
}

START_TEST(sizes_differ)
{
    expect(2, with_other_size, "is ncclAllReduce of 3 uint32, max on rank 0",
        "ncclAllReduce of 4 uint32, max on rank 1");
}
END_TEST

static void with_other_kind(struct shared *shared, int process)
{
    struct rank *rank = open_one(shared, process);
    if (process == 0)
        reduce(rank, 1);
    gather(rank, 8);
    if (process == 1)
        reduce(rank, 1);
    wait_for(rank);
}

START_TEST(order_within_a_communicator)
{
    expect(2, with_other_kind, "ncclAllReduce of 1 uint32, max on rank 0",
        "ncclAllGather of 8 uint8 on rank 1");
}
END_TEST

static void with_other_type(struct shared *shared, int process)
{
    struct rank *rank = open_one(shared, process);
    NEED_NCCL(ncclBroadcast(rank->memory, rank->memory, 4, process == 0 ? ncclInt8 : ncclUint8,
        process, rank->comm, rank->stream));
    wait_for(rank);
}

START_TEST(types_and_roots_differ)
{
    expect(2, with_other_type, "ncclBroadcast of 4 int8, root 0 on rank 0",
        "ncclBroadcast of 4 uint8, root 1 on rank 1");
}
END_TEST

static void with_empty_part(struct shared *shared, int process)
{
    struct rank *rank = open_one(shared, process);
    gather(rank, process == 0 ? 0 : 16);
    wait_for(rank);
}

START_TEST(empty_on_one_rank)
{
    expect(2, with_empty_part, "ncclAllGather of 0 uint8 on rank 0",
        "ncclAllGather of 16 uint8 on rank 1");
}
END_TEST

static void with_other_message(struct shared *shared, int process)
{
    struct rank *rank = open_one(shared, process);
    if (process == 0)
        NEED_NCCL(ncclSend(rank->memory, 5, ncclUint8, 1, rank->comm, rank->stream));
    else
        NEED_NCCL(ncclRecv(rank->memory, 6, ncclUint8, 0, rank->comm, rank->stream));
    wait_for(rank);
}

START_TEST(messages_differ)
{
    expect(2, with_other_message, "message 1 of communicator",
        "is ncclSend of 5 uint8 on rank 0 and ncclSend of 6 uint8 on rank 1");
}
END_TEST

/* Two communicators over the same two devices, launched in unequal orders. */
static void with_other_order(struct shared *shared, int process)
{
    struct rank other;
    struct rank *rank = open_one(shared, process);
    if (process == 0)
        NEED_NCCL(ncclGetUniqueId(&shared->id[1]));
    meet(shared);
    rank_open(&other, process, process, SIZE, false);
    ranks_init(&other, 1, 2, &shared->id[1], 1);
    reduce(process == 0 ? rank : &other, 1);
    reduce(process == 0 ? &other : rank, 1);
    wait_for(rank);
    wait_for(&other);
}

START_TEST(order_of_communicators)
{
    expect(2, with_other_order, "the order of communicators differs between devices", "(device 1)");
}
END_TEST

/* ---- buffers ---- */

static void from_host(struct shared *shared, int process)
{
    static uint8_t bytes[64];
    struct rank *rank = open_one(shared, process);
    ncclAllGather(bytes, rank->memory, 64, ncclUint8, rank->comm, rank->stream);
}

START_TEST(host_memory)
{
    expect(2, from_host, "ncclAllGather: rank ", "is not device memory");
}
END_TEST

static void beyond_end(struct shared *shared, int process)
{
    reduce(open_one(shared, process), SIZE / 4 + 1);
}

START_TEST(leaves_its_allocation)
{
    expect(2, beyond_end, "sendbuff", "leaves its allocation after 4096 of 4100 bytes");
}
END_TEST

static void on_other_device(struct shared *shared, int process)
{
    struct rank *rank = open_one(shared, process);
    uint8_t *memory;
    NEED(cudaSetDevice(3) == cudaSuccess);
    NEED(cudaMalloc((void **)&memory, SIZE) == cudaSuccess);
    ncclAllReduce(memory, memory, 1, ncclInt32, ncclSum, rank->comm, rank->stream);
}

START_TEST(memory_of_another_device)
{
    expect(2, on_other_device, "is on device ", "on device 3");
}
END_TEST

static void overlapping(struct shared *shared, int process)
{
    struct rank *rank = open_one(shared, process);
    ncclAllGather(rank->memory + 8, rank->memory, 64, ncclUint8, rank->comm, rank->stream);
}

START_TEST(overlap)
{
    expect(2, overlapping, "overlaps recvbuff", "without being in place");
}
END_TEST

static void stream_of_other_device(struct shared *shared, int process)
{
    struct rank *rank = open_one(shared, process);
    cudaStream_t stream;
    NEED(cudaSetDevice(2) == cudaSuccess);
    NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    ncclAllReduce(rank->memory, rank->memory, 1, ncclInt32, ncclSum, rank->comm, stream);
}

START_TEST(stream_of_another_device)
{
    expect(2, stream_of_other_device, "and the stream on device 2", "ncclAllReduce");
}
END_TEST

static void on_default_stream(struct shared *shared, int process)
{
    struct rank *rank = open_one(shared, process);
    ncclAllReduce(rank->memory, rank->memory, 1, ncclInt32, ncclSum, rank->comm, NULL);
}

START_TEST(default_stream)
{
    expect(2, on_default_stream, "ncclAllReduce", "default stream");
}
END_TEST

static void freed_while_queued(struct shared *shared, int process)
{
    struct rank *rank = open_one(shared, process);
    if (process == 1)
        meet(shared);
    reduce(rank, 1);
    cudaFree(rank->memory);
}

START_TEST(free_while_queued)
{
    expect(2, freed_while_queued, "cudaFree while 1 collective", "queued on device 0");
}
END_TEST

/* ---- communicators that have ended ---- */

static void after_abort(struct shared *shared, int process)
{
    struct rank *rank = open_one(shared, process);
    NEED_NCCL(ncclCommAbort(rank->comm));
    reduce(rank, 1);
}

START_TEST(used_after_abort)
{
    expect(2, after_abort, "ncclAllReduce: rank ", "is used after ncclCommAbort");
}
END_TEST

static void after_destroy(struct shared *shared, int process)
{
    struct rank *rank = open_one(shared, process);
    NEED_NCCL(ncclCommDestroy(rank->comm));
    ncclCommDestroy(rank->comm);
}

START_TEST(destroyed_twice)
{
    expect(2, after_destroy, "ncclCommDestroy: rank ", "is used after ncclCommDestroy");
}
END_TEST

static void after_fork(struct shared *shared, int process)
{
    int status;
    (void)process;
    open_all(shared);
    pid_t child = fork();
    if (child == 0)
        reduce(&ranks[0], 1);
    NEED(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    raise(WTERMSIG(status)); /* the process that the test looks at is this one */
}

START_TEST(used_after_fork)
{
    expect(1, after_fork, "use after fork: ncclAllReduce", "");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {outside_of_a_group, group_without_a_local_rank, two_threads,
        another_thread_on_the_device, earlier_launch_in_progress, sizes_differ,
        order_within_a_communicator, types_and_roots_differ, empty_on_one_rank, messages_differ,
        order_of_communicators, host_memory, leaves_its_allocation, memory_of_another_device,
        overlap, stream_of_another_device, default_stream, free_while_queued, used_after_abort,
        destroyed_twice, used_after_fork};
    TCase *cases = tcase_create("planted faults");
    tcase_set_timeout(cases, 300);
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tcase_add_test(cases, tests[i]);
    return run_suite("nccl strict", cases);
}
