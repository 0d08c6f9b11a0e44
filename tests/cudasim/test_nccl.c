/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated NCCL with four ranks in one process, a device each: results of all collectives,
 * groups without blocking, and the order of streams.
 */
#include <check.h>
#include <sched.h>
#include <string.h>

#include "cudasim.h"
#include "nccl_support.h"
#include "tests/lib/suite.h"

enum { RANKS = 4, PART = 100003, STEPS = 200, BLOCK = 2 << 20 };

static struct rank ranks[RANKS];
static uint8_t expected[RANKS * PART], got[RANKS * PART];

static void open_all(struct shared *shared, size_t size, bool is_vmm, int blocking)
{
    NEED_NCCL(ncclGetUniqueId(&shared->id[0]));
    for (int i = 0; i < RANKS; i++)
        rank_open(&ranks[i], i, i, size, is_vmm);
    ranks_init(ranks, RANKS, RANKS, &shared->id[0], blocking);
}

static void close_all(void)
{
    for (int i = 0; i < RANKS; i++)
        rank_close(&ranks[i]);
}

/* ---- results ---- */

static void gathers_in_place(struct shared *shared, int process)
{
    (void)process;
    open_all(shared, (size_t)RANKS * PART, false, 1);
    for (int i = 0; i < RANKS; i++) {
        pattern(expected + (size_t)i * PART, PART, i, 0);
        rank_fill(&ranks[i], (size_t)i * PART, expected + (size_t)i * PART, PART);
    }
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(ncclAllGather(ranks[i].memory + (size_t)i * PART, ranks[i].memory, PART,
            ncclUint8, ranks[i].comm, ranks[i].stream));
    NEED_NCCL(ncclGroupEnd());
    for (int i = 0; i < RANKS; i++) {
        rank_read(&ranks[i], 0, got, sizeof(got));
        NEED(memcmp(got, expected, sizeof(got)) == 0);
    }
    NEED(cudasim_counted(CUDASIM_ALL_GATHERS) == RANKS);
    NEED(cudasim_counted(CUDASIM_SM_COLLECTIVES) == RANKS);
    NEED(cudasim_counted(CUDASIM_COPY_ENGINE_COLLECTIVES) == 0);
    close_all();
}

START_TEST(all_gather_in_place)
{
    processes_run(1, gathers_in_place);
}
END_TEST

/* Memory like that of expandable segments: blocks of 2 MiB, mapped one behind the other. */
static uint8_t *map_blocks(int device, size_t blocks)
{
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemAccessDesc access = {
        .location = property.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    NEED(cuMemAddressReserve(&base, blocks * BLOCK, 0, 0, 0) == CUDA_SUCCESS);
    for (size_t i = 0; i < blocks; i++) {
        NEED(cuMemCreate(&handle, BLOCK, &property, 0) == CUDA_SUCCESS);
        NEED(cuMemMap(base + i * BLOCK, BLOCK, 0, handle, 0) == CUDA_SUCCESS);
        NEED(cuMemRelease(handle) == CUDA_SUCCESS);
    }
    NEED(cuMemSetAccess(base, blocks * BLOCK, &access, 1) == CUDA_SUCCESS);
    return (uint8_t *)base;
}

/* Parts that begin and end within a block and go over several. */
static void gathers_blocks(struct shared *shared, int process)
{
    enum { COUNT = 2 * BLOCK + 12345, SIZE = RANKS * COUNT };
    uint8_t *wanted = malloc(SIZE), *result = malloc(SIZE);
    (void)process;
    open_all(shared, 4096, false, 1);
    for (int i = 0; i < RANKS; i++) {
        NEED(cudaSetDevice(i) == cudaSuccess);
        ranks[i].memory = map_blocks(i, SIZE / BLOCK + 1);
        pattern(wanted + (size_t)i * COUNT, COUNT, i, 0);
        rank_fill(&ranks[i], (size_t)i * COUNT, wanted + (size_t)i * COUNT, COUNT);
    }
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(ncclAllGather(ranks[i].memory + (size_t)i * COUNT, ranks[i].memory, COUNT,
            ncclUint8, ranks[i].comm, ranks[i].stream));
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(ncclAllReduce(ranks[i].memory, ranks[i].memory, COUNT, ncclUint8, ncclMax,
            ranks[i].comm, ranks[i].stream));
    NEED_NCCL(ncclGroupEnd());
    for (int i = 0; i < RANKS; i++) {
        rank_read(&ranks[i], 0, result, SIZE);
        NEED(memcmp(result, wanted, SIZE) == 0);
    }
    free(wanted);
    free(result);
    close_all();
}

START_TEST(buffers_of_several_allocations)
{
    processes_run(1, gathers_blocks);
}
END_TEST

/* Each rank's four uint32, reduced into the place behind them. */
static void all_reduce(
    ncclDataType_t type, ncclRedOp_t operation, uint32_t values[RANKS][4], uint32_t ret[RANKS][4])
{
    for (int i = 0; i < RANKS; i++)
        rank_fill(&ranks[i], 0, values[i], 16);
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(ncclAllReduce(
            ranks[i].memory, ranks[i].memory, 4, type, operation, ranks[i].comm, ranks[i].stream));
    NEED_NCCL(ncclGroupEnd());
    for (int i = 0; i < RANKS; i++)
        rank_read(&ranks[i], 0, ret[i], 16);
}

static uint32_t bits(float value)
{
    uint32_t result;
    memcpy(&result, &value, sizeof(result));
    return result;
}

static void reduces(struct shared *shared, int process)
{
    uint32_t values[RANKS][4], floats[RANKS][4], result[RANKS][4];
    (void)process;
    open_all(shared, 4096, false, 1);
    for (uint32_t i = 0; i < RANKS; i++)
        for (uint32_t k = 0; k < 4; k++) {
            values[i][k] = i == k ? 0xfffffff0u + k : i * 1000 + k;
            floats[i][k] = bits((float)i + 0.5f * (float)k);
        }
    all_reduce(ncclUint32, ncclMax, values, result);
    for (uint32_t i = 0; i < RANKS; i++)
        for (uint32_t k = 0; k < 4; k++)
            NEED(result[i][k] == 0xfffffff0u + k);
    all_reduce(ncclUint32, ncclSum, values, result);
    NEED(result[3][0] == 0xfffffff0u + 6000u);
    all_reduce(ncclFloat32, ncclSum, floats, result);
    NEED(result[1][2] == bits(10.0f));
    all_reduce(ncclFloat32, ncclMax, floats, result);
    NEED(result[2][1] == bits(3.5f));
    all_reduce(ncclFloat32, ncclAvg, floats, result);
    NEED(result[0][0] == bits(1.5f));
    all_reduce(ncclFloat32, ncclMin, floats, result);
    NEED(result[0][3] == bits(1.5f));
    close_all();
}

START_TEST(all_reduce_of_integers_and_floats)
{
    processes_run(1, reduces);
}
END_TEST

/* Broadcast from 2, reduce to 1, and reduce-scatter, on elements large enough for several chunks.
 */
static void rooted(struct shared *shared, int process)
{
    enum { COUNT = 40000 };
    static uint32_t values[RANKS * COUNT];
    (void)process;
    open_all(shared, sizeof(values), false, 1);
    for (int i = 0; i < RANKS; i++) {
        for (uint32_t k = 0; k < RANKS * COUNT; k++)
            values[k] = k * (uint32_t)(i + 1);
        rank_fill(&ranks[i], 0, values, sizeof(values));
    }
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(ncclReduceScatter(ranks[i].memory, ranks[i].memory + (size_t)i * COUNT * 4, COUNT,
            ncclUint32, ncclSum, ranks[i].comm, ranks[i].stream));
    NEED_NCCL(ncclGroupEnd());
    for (int i = 0; i < RANKS; i++) {
        rank_read(&ranks[i], (size_t)i * COUNT * 4, values, COUNT * 4);
        for (uint32_t k = 0; k < COUNT; k++)
            NEED(values[k] == (uint32_t)(i * COUNT + (int)k) * 10);
    }
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(ncclBroadcast(ranks[i].memory, ranks[i].memory, COUNT, ncclUint32, 2,
            ranks[i].comm, ranks[i].stream));
    NEED_NCCL(ncclGroupEnd());
    for (int i = 0; i < RANKS; i++) {
        rank_read(&ranks[i], 0, values, COUNT * 4);
        NEED(values[COUNT - 1] == 3 * (COUNT - 1));
    }
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(ncclReduce(ranks[i].memory, i == 1 ? ranks[i].memory : NULL, COUNT, ncclUint32,
            ncclProd, 1, ranks[i].comm, ranks[i].stream));
    NEED_NCCL(ncclGroupEnd());
    rank_read(&ranks[1], 0, values, COUNT * 4);
    NEED(values[2] == 6 * 6 * 6 * 6);
    rank_read(&ranks[0], 0, values, COUNT * 4);
    NEED(values[2] == 6);
    close_all();
}

START_TEST(broadcast_reduce_and_reduce_scatter)
{
    processes_run(1, rooted);
}
END_TEST

/* Each rank sends its part to its right, twice, and to itself. */
static void ring(struct shared *shared, int process)
{
    (void)process;
    open_all(shared, (size_t)RANKS * PART, false, 1);
    for (int i = 0; i < RANKS; i++) {
        pattern(expected + (size_t)i * PART, PART, i, 0);
        rank_fill(&ranks[i], 0, expected + (size_t)i * PART, PART);
    }
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++) {
        struct rank *rank = &ranks[i];
        uint8_t *memory = rank->memory;
        int right = (i + 1) % RANKS, left = (i + RANKS - 1) % RANKS;
        NEED_NCCL(ncclSend(memory, PART, ncclUint8, right, rank->comm, rank->stream));
        NEED_NCCL(ncclSend(memory, 100, ncclUint8, right, rank->comm, rank->stream));
        NEED_NCCL(ncclRecv(memory + PART, PART, ncclUint8, left, rank->comm, rank->stream));
        NEED_NCCL(ncclRecv(memory + 2 * PART, 100, ncclUint8, left, rank->comm, rank->stream));
        NEED_NCCL(ncclSend(memory, PART, ncclUint8, i, rank->comm, rank->stream));
        NEED_NCCL(ncclRecv(memory + 3 * PART, PART, ncclUint8, i, rank->comm, rank->stream));
    }
    NEED_NCCL(ncclGroupEnd());
    for (int i = 0; i < RANKS; i++) {
        const uint8_t *left = expected + (size_t)((i + RANKS - 1) % RANKS) * PART;
        rank_read(&ranks[i], 0, got, sizeof(got));
        NEED(memcmp(got + PART, left, PART) == 0);
        NEED(memcmp(got + 2 * PART, left, 100) == 0 && got[2 * PART + 100] == 0xee);
        NEED(memcmp(got + 3 * PART, expected + (size_t)i * PART, PART) == 0);
    }
    close_all();
}

START_TEST(send_and_receive)
{
    processes_run(1, ring);
}
END_TEST

/* Far more than are in flight in NCCL; each adds up what the one before has left. */
static void queues_many(struct shared *shared, int process)
{
    uint32_t value = 1;
    (void)process;
    open_all(shared, 4096, false, 1);
    for (int i = 0; i < RANKS; i++)
        rank_fill(&ranks[i], 0, &value, sizeof(value));
    for (int step = 0; step < STEPS; step++) {
        NEED_NCCL(ncclGroupStart());
        for (int i = 0; i < RANKS; i++)
            NEED_NCCL(ncclAllReduce(ranks[i].memory, ranks[i].memory, 1, ncclUint32,
                step % 16 == 0 ? ncclSum : ncclMax, ranks[i].comm, ranks[i].stream));
        NEED_NCCL(ncclGroupEnd());
    }
    for (int i = 0; i < RANKS; i++) {
        rank_read(&ranks[i], 0, &value, sizeof(value));
        NEED(value == 1u << 26); /* 4 to the 13th */
    }
    close_all();
}

START_TEST(many_collectives_queued)
{
    processes_run(1, queues_many);
}
END_TEST

/* Communicators over {0 1 2 3}, {0 1} and {0 2}: one group call launches all of them. */
static void three_communicators(struct shared *shared, int process)
{
    static const int SECOND[] = {0, 1}, THIRD[] = {0, 2};
    struct rank second[2], third[2];
    uint32_t value;
    (void)process;
    open_all(shared, 4096, false, 1);
    NEED_NCCL(ncclGetUniqueId(&shared->id[1]));
    NEED_NCCL(ncclGetUniqueId(&shared->id[2]));
    for (int i = 0; i < 2; i++) {
        rank_open(&second[i], i, SECOND[i], 4096, false);
        rank_open(&third[i], i, THIRD[i], 4096, false);
    }
    ranks_init(second, 2, 2, &shared->id[1], 1);
    ranks_init(third, 2, 2, &shared->id[2], 1);
    struct rank *all[] = {
        &ranks[0], &second[0], &third[0], &ranks[1], &second[1], &third[1], &ranks[2], &ranks[3]};
    for (uint32_t i = 0; i < 8; i++) {
        value = i + 1;
        rank_fill(all[i], 0, &value, sizeof(value));
    }
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < 8; i++) {
        struct rank *rank = all[i];
        NEED_NCCL(ncclAllReduce(
            rank->memory, rank->memory, 1, ncclUint32, ncclSum, rank->comm, rank->stream));
    }
    NEED_NCCL(ncclGroupEnd());
    static const uint32_t SUM[] = {1 + 4 + 7 + 8, 2 + 5, 3 + 6};
    for (int i = 0; i < 8; i++) {
        rank_read(all[i], 0, &value, sizeof(value));
        NEED(value == SUM[i < 6 ? i % 3 : 0]);
    }
    for (int i = 0; i < 2; i++) {
        rank_close(&second[i]);
        rank_close(&third[i]);
    }
    close_all();
}

START_TEST(three_communicators_in_a_group)
{
    processes_run(1, three_communicators);
}
END_TEST

/* ---- in streams' order ---- */

/* The operations reach the streams only when the communicators are ncclSuccess. */
static void launches_without_blocking(struct shared *shared, int process)
{
    (void)process;
    open_all(shared, (size_t)RANKS * PART, false, 0);
    for (int step = 0; step < 20; step++) {
        for (int i = 0; i < RANKS; i++) {
            pattern(expected + (size_t)i * PART, PART, i, step);
            rank_fill(&ranks[i], (size_t)i * PART, expected + (size_t)i * PART, PART);
        }
        NEED_NCCL(ncclGroupStart());
        for (int i = 0; i < RANKS; i++)
            NEED_NCCL(ncclAllGather(ranks[i].memory + (size_t)i * PART, ranks[i].memory, PART,
                ncclUint8, ranks[i].comm, ranks[i].stream));
        NEED_RESULT(ncclGroupEnd(), ncclInProgress);
        for (int i = 0; i < RANKS; i++)
            NEED_NCCL(rank_settle(&ranks[i]));
        for (int i = 0; i < RANKS; i++) {
            rank_read(&ranks[i], 0, got, sizeof(got));
            NEED(memcmp(got, expected, sizeof(got)) == 0);
        }
    }
    for (int i = 0; i < RANKS; i++)
        NEED_RESULT(ncclCommFinalize(ranks[i].comm), ncclInProgress);
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(rank_settle(&ranks[i]));
    close_all();
}

START_TEST(groups_without_blocking)
{
    processes_run(1, launches_without_blocking);
}
END_TEST

static void CUDART_CB hold(void *flag)
{
    while (*(_Atomic int *)flag == 0)
        sched_yield();
}

/* A stream that does not wait for the collective's reads what was there before: here one rank is
 * held back, so surely. */
static void reads_too_early(struct shared *shared, int process)
{
    uint8_t byte = 0;
    cudaStream_t other;
    (void)process;
    open_all(shared, (size_t)RANKS * PART, false, 1);
    NEED(cudaSetDevice(0) == cudaSuccess);
    NEED(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
    for (int i = 0; i < RANKS; i++)
        NEED(cudaMemsetAsync(ranks[i].memory + (size_t)i * PART, 7, PART, ranks[i].stream) == 0);
    NEED(cudaLaunchHostFunc(ranks[3].stream, hold, &shared->flag[0]) == cudaSuccess);
    NEED_NCCL(ncclGroupStart());
    for (int i = 0; i < RANKS; i++)
        NEED_NCCL(ncclAllGather(ranks[i].memory + (size_t)i * PART, ranks[i].memory, PART,
            ncclUint8, ranks[i].comm, ranks[i].stream));
    NEED_NCCL(ncclGroupEnd());
    NEED(cudaMemcpyAsync(&byte, ranks[0].memory + 3 * (size_t)PART, 1, cudaMemcpyDeviceToHost,
             other) == cudaSuccess);
    NEED(cudaStreamSynchronize(other) == cudaSuccess);
    NEED(byte == 0xee);
    shared->flag[0] = 1;
    rank_read(&ranks[0], 3 * (size_t)PART, &byte, 1);
    NEED(byte == 7);
    close_all();
}

START_TEST(missing_wait_gives_old_data)
{
    processes_run(1, reads_too_early);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("one process");
    tcase_set_timeout(cases, 300);
    tcase_add_test(cases, all_gather_in_place);
    tcase_add_test(cases, buffers_of_several_allocations);
    tcase_add_test(cases, all_reduce_of_integers_and_floats);
    tcase_add_test(cases, broadcast_reduce_and_reduce_scatter);
    tcase_add_test(cases, send_and_receive);
    tcase_add_test(cases, many_collectives_queued);
    tcase_add_test(cases, three_communicators_in_a_group);
    tcase_add_test(cases, groups_without_blocking);
    tcase_add_test(cases, missing_wait_gives_old_data);
    return run_suite("nccl", cases);
}
