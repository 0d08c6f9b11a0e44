/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated runtime as a right program sees it: devices, memory, copies, streams, events. Each
 * program runs in a child, in an environment of its own, and must be accused of nothing.
 */
#include "child.h"
#include "cudasim.h"
#include "test_kernels.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

enum { COUNT = 100000, FEW = 1000 };

static cudaStream_t new_stream(void)
{
    cudaStream_t stream;
    CHILD_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static uint32_t *new_memory(size_t count)
{
    void *memory;
    CHILD_OK(cudaMalloc(&memory, count * sizeof(uint32_t)));
    return memory;
}

static uint32_t *new_pinned(size_t count)
{
    void *memory;
    CHILD_OK(cudaHostAlloc(&memory, count * sizeof(uint32_t), cudaHostAllocDefault));
    return memory;
}

/* ---- devices ---- */

static void see_devices(void *argument)
{
    (void)argument;
    int count, value;
    struct cudaDeviceProp properties;
    char id[32];
    CHILD_OK(cudaGetDeviceCount(&count));
    CHILD_REQUIRE(count == 3);
    CHILD_OK(cudaGetDeviceProperties(&properties, 2));
    CHILD_REQUIRE(strcmp(properties.name, "simulated GPU 2") == 0 && properties.major == 9);
    CHILD_OK(cudaDeviceGetPCIBusId(id, sizeof id, 2));
    CHILD_REQUIRE(strcmp(id, "0000:03:00.0") == 0);
    CHILD_OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    CHILD_REQUIRE(value == 9);
    CHILD_REQUIRE(cudaSetDevice(3) == cudaErrorInvalidDevice);
    CHILD_REQUIRE(cudaPeekAtLastError() == cudaErrorInvalidDevice);
    CHILD_REQUIRE(cudaGetLastError() == cudaErrorInvalidDevice);
    CHILD_REQUIRE(cudaGetLastError() == cudaSuccess);
    CHILD_OK(cudaSetDevice(2));
    CHILD_OK(cudaGetDevice(&value));
    CHILD_REQUIRE(value == 2 && cudasim_current_device() == 2);
}

static void see_chosen_devices(void *argument)
{
    (void)argument;
    int count;
    struct cudaDeviceProp properties;
    CHILD_OK(cudaGetDeviceCount(&count));
    CHILD_REQUIRE(count == 2);
    CHILD_OK(cudaGetDeviceProperties(&properties, 0));
    CHILD_REQUIRE(properties.uuid.bytes[15] == 3);
    CHILD_OK(cudaGetDeviceProperties(&properties, 1));
    CHILD_REQUIRE(properties.uuid.bytes[15] == 1);
    CHILD_OK(cudaSetDevice(0));
    CHILD_REQUIRE(cudasim_current_device() == 3);
}

/* A version of the driver, and the error that all calls give for it. */
struct no_device {
    int version;
    cudaError_t error;
};

static void see_no_device(void *argument)
{
    const struct no_device *expected = argument;
    int count = 7, version;
    void *memory;
    CHILD_REQUIRE(cudaGetDeviceCount(&count) == expected->error && count == 0);
    CHILD_REQUIRE(cudaMalloc(&memory, 1) == expected->error);
    CHILD_OK(cudaDriverGetVersion(&version));
    CHILD_REQUIRE(version == expected->version);
}

START_TEST(devices_are_as_the_environment_says)
{
    child_must_pass(see_devices, NULL, (const char *const[]){"CUDASIM_DEVICES=3", NULL});
    child_must_pass(see_chosen_devices, NULL,
        (const char *const[]){"CUDASIM_DEVICES=4", "CUDASIM_VISIBLE=3,1", NULL});
    child_must_pass(see_no_device, &(struct no_device){13000, cudaErrorNoDevice},
        (const char *const[]){"CUDASIM_DEVICES=0", NULL});
    child_must_pass(see_no_device, &(struct no_device){0, cudaErrorInsufficientDriver},
        (const char *const[]){"CUDASIM_DRIVER_VERSION=0", NULL});
    child_must_pass(see_no_device, &(struct no_device){11000, cudaErrorInsufficientDriver},
        (const char *const[]){"CUDASIM_DRIVER_VERSION=11000", NULL});
    child_must_fault(see_devices, NULL, (const char *const[]){"CUDASIM_DEVICES=many", NULL},
        "CUDASIM_DEVICES is \"many\"");
}
END_TEST

/* ---- memory ---- */

static void use_memory(void *argument)
{
    (void)argument;
    size_t left, total;
    void *a, *b, *c;
    CHILD_OK(cudaMalloc(&a, 3 << 20));
    CHILD_OK(cudaMemGetInfo(&left, &total));
    CHILD_REQUIRE(total == 8 << 20 && left == 4 << 20); /* by granules of 2 MiB */
    CHILD_REQUIRE(cudaMalloc(&b, 5 << 20) == cudaErrorMemoryAllocation);
    CHILD_OK(cudaMalloc(&b, 4 << 20));
    CHILD_OK(cudaFree(a));
    CHILD_OK(cudaMalloc(&c, 1));
    CHILD_REQUIRE(c != a); /* so that late accesses are found */
    CHILD_OK(cudaFree(b));
    CHILD_OK(cudaFree(c));
    CHILD_OK(cudaFree(NULL));
    CHILD_REQUIRE(cudaFree((char *)c + 1) == cudaErrorInvalidValue);
    CHILD_OK(cudaMemGetInfo(&left, &total));
    CHILD_REQUIRE(left == total);
}

static void ask_of_pointers(void *argument)
{
    (void)argument;
    struct cudaPointerAttributes attributes;
    void *managed;
    int on_stack;
    CHILD_OK(cudaSetDevice(1));
    uint32_t *device = new_memory(4), *pinned = new_pinned(4);
    CHILD_OK(cudaPointerGetAttributes(&attributes, device + 3));
    CHILD_REQUIRE(attributes.type == cudaMemoryTypeDevice && attributes.device == 1);
    CHILD_OK(cudaPointerGetAttributes(&attributes, pinned));
    CHILD_REQUIRE(attributes.type == cudaMemoryTypeHost);
    CHILD_OK(cudaMallocManaged(&managed, 100, cudaMemAttachGlobal));
    memset(managed, 1, 100);
    CHILD_OK(cudaPointerGetAttributes(&attributes, managed));
    CHILD_REQUIRE(attributes.type == cudaMemoryTypeManaged);
    CHILD_OK(cudaPointerGetAttributes(&attributes, &on_stack));
    CHILD_REQUIRE(attributes.type == cudaMemoryTypeUnregistered);
    CHILD_OK(cudaFree(device));
    CHILD_OK(cudaFree(managed));
    CHILD_OK(cudaFreeHost(pinned));
    CHILD_OK(cudaPointerGetAttributes(&attributes, device));
    CHILD_REQUIRE(attributes.type == cudaMemoryTypeUnregistered);
}

static void copy_all_ways(void *argument)
{
    (void)argument;
    cudaStream_t stream = new_stream();
    uint32_t *a = new_memory(COUNT), *b = new_memory(COUNT), *pinned = new_pinned(COUNT);
    uint32_t *pageable = malloc(COUNT * sizeof *pageable);
    size_t size = COUNT * sizeof *a;
    for (unsigned i = 0; i < COUNT; i++)
        pageable[i] = i;
    CHILD_OK(cudaMemcpyAsync(a, pageable, size, cudaMemcpyHostToDevice, stream));
    memset(pageable, 0, size); /* it has been read already */
    CHILD_OK(cudaMemcpyAsync(b, a, size, cudaMemcpyDeviceToDevice, stream));
    CHILD_OK(cudaMemcpyAsync(pinned, b, size, cudaMemcpyDeviceToHost, stream));
    CHILD_OK(cudaMemsetAsync(a, 0xff, 8, stream));
    CHILD_OK(cudaMemcpyAsync(pageable, a, size, cudaMemcpyDeviceToHost, stream));
    for (unsigned i = 0; i < COUNT; i++) /* and written */
        CHILD_REQUIRE(pinned[i] == i && pageable[i] == (i < 2 ? UINT32_MAX : i));
    CHILD_OK(cudaMemcpy(pageable, b, size, cudaMemcpyDefault));
    CHILD_REQUIRE(pageable[COUNT - 1] == COUNT - 1);
    CHILD_REQUIRE(cudaMemcpy(a, pageable, size + 1, cudaMemcpyDefault) == cudaErrorInvalidValue);
    free(pageable);
}

static void copy_rows(void *argument)
{
    (void)argument;
    cudaStream_t stream = new_stream();
    unsigned char *device = (unsigned char *)new_memory(64), host[6 * 10], back[3 * 5];
    for (unsigned i = 0; i < sizeof host; i++)
        host[i] = (unsigned char)i;
    CHILD_OK(cudaMemset(device, 0, 256));
    CHILD_OK(cudaMemcpy2DAsync(device, 32, host + 12, 10, 3, 5, cudaMemcpyHostToDevice, stream));
    CHILD_OK(cudaMemcpy2DAsync(back, 3, device, 32, 3, 5, cudaMemcpyDeviceToHost, stream));
    for (unsigned row = 0; row < 5; row++)
        for (unsigned i = 0; i < 3; i++)
            CHILD_REQUIRE(back[row * 3 + i] == 12 + row * 10 + i);
    CHILD_REQUIRE(cudaMemcpy2DAsync(device, 2, host, 10, 3, 5, cudaMemcpyDefault, stream) ==
                  cudaErrorInvalidPitchValue);
}

static void use_pool(void *argument)
{
    (void)argument;
    cudaStream_t stream = new_stream();
    uint32_t got[4];
    void *memory;
    CHILD_OK(cudaMallocAsync(&memory, sizeof got, stream));
    CHILD_OK(kernel_fill(memory, 4, 5, stream));
    CHILD_OK(cudaMemcpyAsync(got, memory, sizeof got, cudaMemcpyDeviceToHost, stream));
    CHILD_OK(cudaFreeAsync(memory, stream));
    CHILD_OK(cudaStreamSynchronize(stream));
    CHILD_REQUIRE(got[3] == 5);
}

START_TEST(memory_is_counted_and_copied)
{
    child_must_pass(use_memory, NULL, (const char *const[]){"CUDASIM_MEMORY=8388608", NULL});
    child_must_pass(ask_of_pointers, NULL, NULL);
    child_must_pass(copy_all_ways, NULL, (const char *const[]){"CUDASIM_DELAY_US=2000", NULL});
    child_must_pass(copy_rows, NULL, NULL);
    child_must_pass(use_pool, NULL, NULL);
}
END_TEST

/* ---- order ---- */

/* One stream makes numbers, the other one uses them; half the runs forget to wait. */
static unsigned pipeline(bool waits)
{
    cudaStream_t first = new_stream(), second = new_stream();
    uint32_t *a = new_memory(FEW), *b = new_memory(FEW), *host = new_pinned(FEW);
    cudaEvent_t made;
    unsigned num_wrong = 0;
    CHILD_OK(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    CHILD_OK(cudaEventQuery(made)); /* never recorded: complete */
    for (uint32_t step = 1; step <= 20; step++) {
        CHILD_OK(kernel_fill(a, FEW, step, first));
        CHILD_OK(cudaEventRecord(made, first));
        if (waits)
            CHILD_OK(cudaStreamWaitEvent(second, made, 0));
        CHILD_OK(kernel_add_one(b, a, FEW, second));
        CHILD_OK(cudaMemcpyAsync(host, b, FEW * sizeof *b, cudaMemcpyDeviceToHost, second));
        CHILD_OK(cudaStreamSynchronize(second));
        CHILD_OK(cudaStreamQuery(second));
        num_wrong += host[FEW - 1] != step + 1;
        CHILD_OK(cudaStreamSynchronize(first));
    }
    CHILD_OK(cudaEventSynchronize(made));
    CHILD_OK(cudaEventDestroy(made));
    CHILD_OK(cudaStreamDestroy(first));
    CHILD_OK(cudaStreamDestroy(second));
    CHILD_OK(cudaFree(a));
    return num_wrong;
}

static void wait_for_event(void *argument)
{
    (void)argument;
    CHILD_REQUIRE(pipeline(true) == 0);
}

static void forget_to_wait(void *argument)
{
    (void)argument;
    CHILD_REQUIRE(pipeline(false) > 0);
}

START_TEST(a_missing_wait_gives_wrong_data)
{
    for (int seed = 0; seed < 4; seed++) {
        char text[32];
        snprintf(text, sizeof text, "CUDASIM_SEED=%d", seed);
        const char *const slow[] = {"CUDASIM_DELAY_US=5000", text, NULL};
        child_must_pass(wait_for_event, NULL, slow);
        struct child_end end = child_run(forget_to_wait, NULL, slow);
        ck_assert_msg(end.status == 0 || strstr(end.text, "ThreadSanitizer: data race"),
            "the missing wait was not seen: %.3000s", end.text);
    }
}
END_TEST

/* A wait is for the record that was the last one when the wait was asked for. */
static void wait_for_latest(void *argument)
{
    (void)argument;
    cudaStream_t recorder = new_stream(), waiter = new_stream(), blocked = new_stream();
    cudaEvent_t event, gate;
    uint32_t *memory = new_memory(2), *host = new_pinned(2);
    CHILD_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHILD_OK(cudaEventCreateWithFlags(&gate, cudaEventDisableTiming));
    CHILD_OK(kernel_fill(memory, 1, 1, recorder));
    CHILD_OK(cudaEventRecord(event, recorder));
    CHILD_OK(cudaStreamWaitEvent(waiter, event, 0)); /* for the first record */
    CHILD_OK(cudaMemcpyAsync(host, memory, 4, cudaMemcpyDeviceToHost, waiter));
    CHILD_OK(cudaEventRecord(gate, waiter));
    CHILD_OK(cudaStreamWaitEvent(recorder, gate, 0));
    CHILD_OK(cudaEventRecord(event, recorder)); /* after the waiter: waiting for it would hang */
    CHILD_OK(cudaStreamWaitEvent(blocked, event, 0));
    CHILD_OK(cudaStreamSynchronize(blocked));
    CHILD_REQUIRE(host[0] == 1);
    CHILD_OK(cudaEventQuery(event));
}

static void set_flag(void *data)
{
    __atomic_store_n((int *)data, 1, __ATOMIC_RELEASE);
}

static void call_host(void *argument)
{
    (void)argument;
    int flag = 0;
    cudaStream_t stream = new_stream();
    CHILD_OK(cudaLaunchHostFunc(stream, set_flag, &flag));
    CHILD_OK(cudaStreamSynchronize(stream));
    CHILD_REQUIRE(__atomic_load_n(&flag, __ATOMIC_ACQUIRE) == 1);
}

static void measure_time(void *argument)
{
    (void)argument;
    cudaEvent_t begin, end;
    float ms = -1;
    cudaStream_t stream = new_stream();
    CHILD_OK(cudaEventCreate(&begin));
    CHILD_OK(cudaEventCreate(&end));
    CHILD_OK(cudaEventRecord(begin, stream));
    CHILD_OK(cudaEventRecord(end, stream));
    CHILD_OK(cudaEventSynchronize(end));
    CHILD_OK(cudaEventElapsedTime(&ms, begin, end));
    CHILD_REQUIRE(ms >= 0);
    CHILD_REQUIRE(cudaEventCreateWithFlags(&begin, cudaEventInterprocess) == cudaErrorInvalidValue);
}

START_TEST(events_and_host_functions)
{
    const char *const slow[] = {"CUDASIM_DELAY_US=2000", NULL};
    child_must_pass(wait_for_latest, NULL, slow);
    child_must_pass(call_host, NULL, slow);
    child_must_pass(measure_time, NULL, NULL);
}
END_TEST

/* ---- counters ---- */

static void read_counters(void *argument)
{
    char path[256];
    snprintf(path, sizeof path, "%s.%ld", (const char *)argument, (long)getpid());
    cudaStream_t stream = new_stream();
    int fd = open(path, O_RDONLY);
    CHILD_REQUIRE(fd >= 0);
    struct cudasim_stats *stats = mmap(NULL, sizeof *stats, PROT_READ, MAP_SHARED, fd, 0);
    CHILD_REQUIRE(stats != MAP_FAILED && stats->magic == CUDASIM_STATS_MAGIC);
    CHILD_REQUIRE(stats->counters[CUDASIM_STREAM_CREATIONS] == 1);
    uint32_t *a = new_memory(4), *pinned = new_pinned(4), pageable[4];
    CHILD_REQUIRE(stats->counters[CUDASIM_ALLOCATIONS] == 2);
    CHILD_OK(kernel_fill(a, 4, 1, stream));
    CHILD_OK(cudaMemcpyAsync(pinned, a, 16, cudaMemcpyDeviceToHost, stream));
    CHILD_REQUIRE(stats->counters[CUDASIM_LAUNCHES] == 1);
    CHILD_REQUIRE(stats->counters[CUDASIM_COPIES] == 1);
    CHILD_REQUIRE(stats->counters[CUDASIM_HOST_SYNCS] == 0);
    CHILD_OK(cudaMemcpyAsync(pageable, a, 16, cudaMemcpyDeviceToHost, stream));
    CHILD_REQUIRE(stats->counters[CUDASIM_HOST_SYNCS] == 1);
    CHILD_OK(cudaStreamSynchronize(stream));
    CHILD_REQUIRE(stats->counters[CUDASIM_HOST_SYNCS] == 2);
    unlink(path);
}

START_TEST(counters_can_be_read_from_outside)
{
    char directory[] = "/tmp/test_cudasim.XXXXXX", setting[128], prefix[64];
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(prefix, sizeof prefix, "%s/stats", directory);
    snprintf(setting, sizeof setting, "CUDASIM_STATS=%s", prefix);
    child_must_pass(read_counters, prefix, (const char *const[]){setting, NULL});
    ck_assert_int_eq(rmdir(directory), 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("runtime");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, devices_are_as_the_environment_says);
    tcase_add_test(tcase, memory_is_counted_and_copied);
    tcase_add_test(tcase, a_missing_wait_gives_wrong_data);
    tcase_add_test(tcase, events_and_host_functions);
    tcase_add_test(tcase, counters_can_be_read_from_outside);
    return run_suite("cudasim", tcase);
}
