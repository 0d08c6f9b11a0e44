/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each mistake that strict mode is to find, within one process, planted and found by its message.
 * The right programs of the other suites show that nobody else is accused.
 */
#include "child.h"
#include "cudasim.h"
#include "test_kernels.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

static cudaStream_t new_stream(void)
{
    cudaStream_t stream;
    CHILD_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static uint32_t *new_memory(size_t size)
{
    void *memory;
    CHILD_OK(cudaMalloc(&memory, size));
    return memory;
}

/* ---- the host's hands off device memory ---- */

static void read_by_host(void *argument)
{
    (void)argument;
    volatile uint32_t *memory = new_memory(4096);
    CHILD_REQUIRE(memory[3] != 0);
}

static void write_by_host(void *argument)
{
    (void)argument;
    memset(new_memory(4096), 0, 4096);
}

static void read_by_host_function(void *data)
{
    CHILD_REQUIRE(*(volatile uint32_t *)data != 0);
}

static void read_in_host_function(void *argument)
{
    (void)argument;
    cudaStream_t stream = new_stream();
    CHILD_OK(cudaLaunchHostFunc(stream, read_by_host_function, new_memory(4096)));
    CHILD_OK(cudaStreamSynchronize(stream));
}

/* After an operation has had the pages open. */
static void read_by_host_later(void *argument)
{
    (void)argument;
    cudaStream_t stream = new_stream();
    uint32_t *memory = new_memory(4096);
    CHILD_OK(kernel_fill(memory, 4, 1, stream));
    CHILD_OK(cudaStreamSynchronize(stream));
    CHILD_REQUIRE(*(volatile uint32_t *)memory == 1);
}

START_TEST(host_access)
{
    child_must_fault(read_by_host, NULL, NULL, "host access: the host reads");
    child_must_fault(
        write_by_host, NULL, NULL, "byte 0 of allocation 1 (4096 bytes by cudaMalloc on device 0)");
    child_must_fault(read_in_host_function, NULL, NULL, "host access: cudaLaunchHostFunc reads");
    child_must_fault(read_by_host_later, NULL, NULL, "host access: the host reads");
}
END_TEST

/* ---- the program's own handler ---- */

static sigjmp_buf after_fault;

static void own_handler(int signal_number)
{
    (void)signal_number;
    siglongjmp(after_fault, 1);
}

static void handle_own_faults(bool is_late)
{
    volatile char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_handler = own_handler};
    cudaStream_t stream = new_stream();
    uint32_t *memory = new_memory(4096);
    if (is_late) { /* after the simulator's */
        sigaction(SIGSEGV, &action, NULL);
        sigaction(SIGBUS, &action, NULL);
    }
    CHILD_OK(kernel_fill(memory, 4, 1, stream));
    CHILD_OK(cudaStreamSynchronize(stream));
    if (!sigsetjmp(after_fault, 1)) {
        *page = 1;
        _exit(1);
    }
}

static void install_handler_first(void *argument)
{
    (void)argument;
    struct sigaction action = {.sa_handler = own_handler};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    handle_own_faults(false);
}

static void install_handler_later(void *argument)
{
    (void)argument;
    handle_own_faults(true);
}

START_TEST(the_programs_own_handler_stays)
{
    child_must_pass(install_handler_first, NULL, NULL);
    child_must_pass(install_handler_later, NULL, NULL);
}
END_TEST

/* ---- after free, and out of bounds ---- */

static void kernel_after_free(void *argument)
{
    (void)argument;
    cudaStream_t stream = new_stream();
    uint32_t *memory = new_memory(4096);
    CHILD_OK(cudaFree(memory));
    CHILD_OK(kernel_fill(memory, 4, 1, stream));
    CHILD_OK(cudaStreamSynchronize(stream));
}

static void copy_after_free(void *argument)
{
    (void)argument;
    uint32_t value, *memory = new_memory(4096);
    CHILD_OK(cudaFree(memory));
    cudaMemcpy(&value, memory, 4, cudaMemcpyDeviceToHost);
}

static void free_twice(void *argument)
{
    (void)argument;
    uint32_t *memory = new_memory(4096);
    CHILD_OK(cudaFree(memory));
    cudaFree(memory);
}

/* The pages stay until the stream has freed them; then they are gone. */
static void use_freed_pool(void *argument)
{
    (void)argument;
    cudaStream_t stream = new_stream();
    void *memory;
    CHILD_OK(cudaMallocAsync(&memory, 4096, stream));
    CHILD_OK(cudaFreeAsync(memory, stream));
    CHILD_OK(kernel_fill(memory, 4, 1, stream));
    CHILD_OK(cudaStreamSynchronize(stream));
}

static void leave_memory(void *argument)
{
    (void)argument;
    cudaStream_t stream = new_stream();
    uint32_t *memory = new_memory(8192);
    CHILD_OK(kernel_fill(memory, 2049, 1, stream));
    CHILD_OK(cudaStreamSynchronize(stream));
}

static void misalign(void *argument)
{
    (void)argument;
    cudaStream_t stream = new_stream();
    CHILD_OK(kernel_store16((char *)new_memory(4096) + 4, stream));
    CHILD_OK(cudaStreamSynchronize(stream));
}

START_TEST(memory_that_is_not_there)
{
    child_must_fault(kernel_after_free, NULL, NULL, "use after free: \"&config, fill");
    child_must_fault(kernel_after_free, NULL, NULL, "ended by cudaFree");
    child_must_fault(copy_after_free, NULL, NULL, "use after free: cudaMemcpy");
    child_must_fault(free_twice, NULL, NULL, "double free: cudaFree of allocation 1");
    child_must_fault(use_freed_pool, NULL, NULL, "ended by cudaFreeAsync");
    child_must_fault(leave_memory, NULL, NULL, "out of bounds: \"&config, fill");
}
END_TEST

/* Found where the compiler takes an aligned instruction; or by the sanitizer, in its words. */
START_TEST(misaligned_vectors)
{
    struct child_end end = child_run(misalign, NULL, NULL);
    if (end.status)
        ck_assert_msg(strstr(end.text, "misaligned"), "%s", end.text);
}
END_TEST

/* ---- another device's memory ---- */

static void touch_peer(void *argument)
{
    const bool *is_enabled = argument;
    uint32_t value = 0, *memory = new_memory(4096);
    CHILD_OK(cudaSetDevice(1));
    if (*is_enabled)
        CHILD_OK(cudaDeviceEnablePeerAccess(0, 0));
    cudaStream_t stream = new_stream();
    CHILD_OK(kernel_fill(memory, 4, 1, stream));
    CHILD_OK(cudaStreamSynchronize(stream));
    CHILD_OK(cudaMemcpy(&value, memory, 4, cudaMemcpyDeviceToHost));
    CHILD_REQUIRE(value == 1);
}

START_TEST(peers)
{
    child_must_pass(touch_peer, &(bool){true}, NULL);
    child_must_fault(touch_peer, &(bool){false}, NULL, "without the right to");
}
END_TEST

/* ---- streams and events ---- */

static void use_legacy_stream(void *argument)
{
    cudaStream_t *stream = argument;
    cudaMemsetAsync(new_memory(4096), 0, 4, *stream);
}

static void use_destroyed_stream(void *argument)
{
    (void)argument;
    cudaStream_t stream = new_stream();
    CHILD_OK(cudaStreamDestroy(stream));
    cudaStreamSynchronize(stream);
}

static void use_destroyed_event(void *argument)
{
    (void)argument;
    cudaEvent_t event;
    cudaStream_t stream = new_stream();
    CHILD_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHILD_OK(cudaEventRecord(event, stream));
    CHILD_OK(cudaEventDestroy(event)); /* legal with work outstanding */
    CHILD_OK(cudaStreamSynchronize(stream));
    cudaEventRecord(event, stream);
}

START_TEST(streams_and_events_that_must_not_be_used)
{
    child_must_fault(use_legacy_stream, &(cudaStream_t){NULL}, NULL, "legacy default stream");
    child_must_fault(
        use_legacy_stream, &(cudaStream_t){cudaStreamLegacy}, NULL, "legacy default stream");
    child_must_fault(
        use_legacy_stream, &(cudaStream_t){cudaStreamPerThread}, NULL, "per-thread default stream");
    child_must_fault(use_destroyed_stream, NULL, NULL, "is no stream, or a destroyed one");
    child_must_fault(use_destroyed_event, NULL, NULL, "is no event, or a destroyed one");
}
END_TEST

/* ---- processes and threads ---- */

/* In the child; its end is ours. */
static void use_after_fork(void *argument)
{
    (void)argument;
    int count, status;
    CHILD_OK(cudaGetDeviceCount(&count));
    pid_t pid = fork();
    CHILD_REQUIRE(pid >= 0);
    if (pid == 0) {
        cudaGetDeviceCount(&count);
        _exit(0);
    }
    CHILD_REQUIRE(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status))
        abort();
}

static void call_cuda(void *data)
{
    (void)data;
    int device;
    cudaGetDevice(&device);
}

static void call_in_host_function(void *argument)
{
    (void)argument;
    cudaStream_t stream = new_stream();
    CHILD_OK(cudaLaunchHostFunc(stream, call_cuda, NULL));
    CHILD_OK(cudaStreamSynchronize(stream));
}

START_TEST(calls_from_where_none_may_be)
{
    child_must_fault(use_after_fork, NULL, NULL, "use after fork: cudaGetDeviceCount");
    child_must_fault(call_in_host_function, NULL, NULL,
        "cudaGetDevice is called from \"cudaLaunchHostFunc\" on a stream");
}
END_TEST

/* ---- while a collective is queued ---- */

enum misdeed { MALLOC, FREE, HOST_ALLOC, STREAM, EVENT, NOTHING };

static void during_collective(void *argument)
{
    enum misdeed misdeed = *(const enum misdeed *)argument;
    cudaStream_t stream;
    cudaEvent_t event;
    void *pinned;
    void *memory = new_memory(16);
    cudasim_collective_begin(0);
    if (misdeed == MALLOC)
        cudaMalloc(&memory, 16);
    if (misdeed == FREE)
        cudaFree(memory);
    if (misdeed == HOST_ALLOC)
        cudaHostAlloc(&pinned, 16, cudaHostAllocDefault);
    if (misdeed == STREAM)
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (misdeed == EVENT)
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    CHILD_OK(cudaSetDevice(1)); /* has none queued */
    CHILD_OK(cudaMalloc(&memory, 16));
    cudasim_collective_end(0);
    CHILD_OK(cudaFree(memory));
}

START_TEST(allocating_while_a_collective_is_queued)
{
    child_must_pass(during_collective, &(enum misdeed){NOTHING}, NULL);
    child_must_fault(during_collective, &(enum misdeed){MALLOC}, NULL,
        "cudaMalloc while 1 collective is queued on device 0");
    child_must_fault(during_collective, &(enum misdeed){FREE}, NULL, "cudaFree while");
    child_must_fault(during_collective, &(enum misdeed){HOST_ALLOC}, NULL, "cudaHostAlloc while");
    child_must_fault(
        during_collective, &(enum misdeed){STREAM}, NULL, "cudaStreamCreateWithFlags while");
    child_must_fault(
        during_collective, &(enum misdeed){EVENT}, NULL, "cudaEventCreateWithFlags while");
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("one process");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, host_access);
    tcase_add_test(tcase, the_programs_own_handler_stays);
    tcase_add_test(tcase, memory_that_is_not_there);
    tcase_add_test(tcase, misaligned_vectors);
    tcase_add_test(tcase, peers);
    tcase_add_test(tcase, streams_and_events_that_must_not_be_used);
    tcase_add_test(tcase, calls_from_where_none_may_be);
    tcase_add_test(tcase, allocating_while_a_collective_is_queued);
    return run_suite("cudasim_strict", tcase);
}
