/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legacy IPC between two real processes: memory and events both ways, the death and the mistakes of
 * either side. Each program of two processes runs in children of its own.
 */
#include "child.h"
#include "cudasim.h"
#include "test_kernels.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <signal.h>
#include <string.h>

enum { COUNT = 50000, STEPS = 10 };

/* What a trainer tells a daemon, once. */
struct offer {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t ready;
};

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

static cudaEvent_t new_event(void)
{
    cudaEvent_t event;
    CHILD_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
    return event;
}

static uint32_t *open_memory(cudaIpcMemHandle_t handle)
{
    void *memory;
    CHILD_OK(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
    return memory;
}

static cudaEvent_t open_event(cudaIpcEventHandle_t handle)
{
    cudaEvent_t event;
    CHILD_OK(cudaIpcOpenEventHandle(&event, handle));
    return event;
}

static void tell(int socket)
{
    child_send(socket, "x", 1);
}

static void await(int socket)
{
    char byte;
    child_receive(socket, &byte, 1);
}

/* A host function that keeps its stream busy for good. */
static void hang(void *data)
{
    (void)data;
    pause();
}

/* ---- a step after the other, by events both ways ---- */

/* Adds one to what the trainer wrote, in its memory, each step. */
static void serve(int socket)
{
    struct offer offer;
    cudaIpcEventHandle_t done_handle;
    child_receive(socket, &offer, sizeof offer);
    cudaStream_t stream = new_stream();
    uint32_t *memory = open_memory(offer.memory);
    cudaEvent_t ready = open_event(offer.ready), done = new_event();
    CHILD_OK(cudaIpcGetEventHandle(&done_handle, done));
    child_send(socket, &done_handle, sizeof done_handle);
    for (int step = 0; step < STEPS; step++) {
        await(socket);
        CHILD_OK(cudaStreamWaitEvent(stream, ready, 0));
        CHILD_OK(kernel_add_one(memory, memory, COUNT, stream));
        CHILD_OK(cudaEventRecord(done, stream));
        tell(socket);
    }
    await(socket);
    CHILD_OK(cudaStreamSynchronize(stream));
    CHILD_OK(cudaIpcCloseMemHandle(memory));
    tell(socket);
}

static void train(void *argument)
{
    (void)argument;
    int socket;
    struct offer offer;
    cudaIpcEventHandle_t done_handle;
    pid_t daemon = child_peer(serve, &socket);
    cudaStream_t stream = new_stream();
    uint32_t *memory = new_memory(COUNT), *host;
    cudaEvent_t ready = new_event();
    CHILD_OK(cudaMallocHost((void **)&host, STEPS * sizeof *host));
    CHILD_OK(cudaIpcGetMemHandle(&offer.memory, memory));
    CHILD_OK(cudaIpcGetEventHandle(&offer.ready, ready));
    child_send(socket, &offer, sizeof offer);
    child_receive(socket, &done_handle, sizeof done_handle);
    cudaEvent_t done = open_event(done_handle);
    for (uint32_t step = 0; step < STEPS; step++) {
        CHILD_OK(kernel_fill(memory, COUNT, 10 * step, stream));
        CHILD_OK(cudaEventRecord(ready, stream));
        tell(socket);
        await(socket);
        CHILD_OK(cudaStreamWaitEvent(stream, done, 0));
        CHILD_OK(cudaMemcpyAsync(
            &host[step], &memory[COUNT - 1], sizeof *host, cudaMemcpyDeviceToHost, stream));
    }
    CHILD_OK(cudaStreamSynchronize(stream));
    for (uint32_t step = 0; step < STEPS; step++)
        CHILD_REQUIRE(host[step] == 10 * step + 1);
    tell(socket);
    await(socket);
    CHILD_OK(cudaFree(memory));
    CHILD_OK(cudaEventDestroy(done));
    CHILD_OK(cudaEventDestroy(ready));
    child_join(daemon, 0);
}

START_TEST(steps_are_ordered_by_events)
{
    for (int seed = 0; seed < 4; seed++) {
        char text[32];
        snprintf(text, sizeof text, "CUDASIM_SEED=%d", seed);
        child_must_pass(train, NULL, (const char *const[]){"CUDASIM_DELAY_US=3000", text, NULL});
    }
}
END_TEST

/* ---- handles ---- */

static void use_handles(int socket)
{
    cudaIpcMemHandle_t handle;
    struct cudaPointerAttributes attributes;
    void *other;
    child_receive(socket, &handle, sizeof handle);
    CHILD_OK(cudaSetDevice(1)); /* where the exporter's device 0 is, by number */
    CHILD_REQUIRE(cudaIpcOpenMemHandle(&other, handle, 0) == cudaErrorInvalidValue);
    uint32_t *memory = open_memory(handle);
    CHILD_REQUIRE(open_memory(handle) == memory);
    CHILD_OK(cudaPointerGetAttributes(&attributes, memory));
    CHILD_REQUIRE(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
    CHILD_OK(cudaSetDevice(0));
    CHILD_REQUIRE(cudaIpcOpenMemHandle(&other, handle, cudaIpcMemLazyEnablePeerAccess) ==
                  cudaErrorDeviceUninitialized);
    CHILD_OK(cudaIpcCloseMemHandle(memory));
    CHILD_OK(cudaIpcCloseMemHandle(memory));
    CHILD_REQUIRE(cudaIpcCloseMemHandle(memory) == cudaErrorInvalidValue);
    CHILD_REQUIRE(cudaIpcGetMemHandle(&handle, memory) == cudaErrorInvalidValue);
    memset(&handle, 0x55, sizeof handle);
    CHILD_REQUIRE(cudaIpcOpenMemHandle(&other, handle, cudaIpcMemLazyEnablePeerAccess) ==
                  cudaErrorInvalidValue);
}

static void give_handle(void *argument)
{
    (void)argument;
    int socket;
    cudaIpcMemHandle_t handle;
    pid_t peer = child_peer(use_handles, &socket);
    void *other;
    CHILD_OK(cudaIpcGetMemHandle(&handle, new_memory(COUNT)));
    CHILD_REQUIRE(cudaIpcOpenMemHandle(&other, handle, cudaIpcMemLazyEnablePeerAccess) ==
                  cudaErrorDeviceUninitialized);
    child_send(socket, &handle, sizeof handle);
    child_join(peer, 0);
}

static void export_what_cannot_be(void *argument)
{
    (void)argument;
    cudaIpcMemHandle_t handle;
    cudaIpcEventHandle_t event_handle;
    cudaEvent_t local;
    void *managed, *pool, *pinned;
    CHILD_OK(cudaMallocManaged(&managed, 100, cudaMemAttachGlobal));
    CHILD_OK(cudaMallocAsync(&pool, 100, new_stream()));
    CHILD_OK(cudaMallocHost(&pinned, 100));
    CHILD_REQUIRE(cudaIpcGetMemHandle(&handle, managed) == cudaErrorInvalidValue);
    CHILD_REQUIRE(cudaIpcGetMemHandle(&handle, pool) == cudaErrorInvalidValue);
    CHILD_REQUIRE(cudaIpcGetMemHandle(&handle, pinned) == cudaErrorInvalidValue);
    CHILD_OK(cudaEventCreateWithFlags(&local, cudaEventDisableTiming));
    CHILD_REQUIRE(cudaIpcGetEventHandle(&event_handle, local) == cudaErrorInvalidResourceHandle);
    CHILD_OK(cudaIpcGetEventHandle(&event_handle, new_event()));
    CHILD_REQUIRE(cudaIpcOpenEventHandle(&local, event_handle) == cudaErrorDeviceUninitialized);
}

START_TEST(handles_are_counted_and_checked)
{
    child_must_pass(give_handle, NULL, NULL);
    child_must_pass(export_what_cannot_be, NULL, NULL);
}
END_TEST

/* ---- the end of an exporter ---- */

/* Gives memory and an event whose record never completes, and waits to be killed. */
static void export_and_hang(int socket)
{
    struct offer offer;
    cudaStream_t stream = new_stream(), stuck = new_stream();
    uint32_t *memory = new_memory(COUNT);
    cudaEvent_t ready = new_event();
    CHILD_OK(kernel_fill(memory, COUNT, 3, stream));
    CHILD_OK(cudaStreamSynchronize(stream));
    CHILD_OK(cudaLaunchHostFunc(stuck, hang, NULL));
    CHILD_OK(cudaEventRecord(ready, stuck));
    CHILD_OK(cudaIpcGetMemHandle(&offer.memory, memory));
    CHILD_OK(cudaIpcGetEventHandle(&offer.ready, ready));
    child_send(socket, &offer, sizeof offer);
    child_linger(socket);
}

static void survive_exporter(void *argument)
{
    (void)argument;
    int socket;
    struct offer offer;
    pid_t peer = child_peer(export_and_hang, &socket);
    child_receive(socket, &offer, sizeof offer);
    cudaStream_t stream = new_stream();
    uint32_t *memory = open_memory(offer.memory), value;
    cudaEvent_t ready = open_event(offer.ready);
    CHILD_REQUIRE(cudaEventQuery(ready) == cudaErrorNotReady);
    CHILD_OK(cudaStreamWaitEvent(stream, ready, 0));
    CHILD_REQUIRE(cudaStreamQuery(stream) == cudaErrorNotReady);
    kill(peer, SIGKILL); /* and left a zombie for now */
    CHILD_OK(cudaStreamSynchronize(stream));
    CHILD_OK(cudaEventQuery(ready));
    CHILD_OK(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost));
    CHILD_REQUIRE(value == 3);
    CHILD_OK(cudaIpcCloseMemHandle(memory));
    CHILD_OK(cudaEventDestroy(ready));
    child_join(peer, 128 + SIGKILL);
}

START_TEST(a_killed_exporter_holds_nobody_up)
{
    child_must_pass(survive_exporter, NULL, NULL);
}
END_TEST

/* ---- mistakes ---- */

static void export_and_free(int socket)
{
    struct offer offer;
    uint32_t *memory = new_memory(COUNT);
    cudaEvent_t ready = new_event();
    CHILD_OK(cudaIpcGetMemHandle(&offer.memory, memory));
    CHILD_OK(cudaIpcGetEventHandle(&offer.ready, ready));
    child_send(socket, &offer, sizeof offer);
    await(socket);
    CHILD_OK(cudaFree(memory));
    CHILD_OK(cudaEventDestroy(ready));
    tell(socket);
}

enum late_use { LATE_KERNEL, LATE_COPY, LATE_EVENT, LATE_CLOSE, AFTER_CLOSE };

static void use_too_late(void *argument)
{
    enum late_use use = *(const enum late_use *)argument;
    int socket;
    struct offer offer;
    uint32_t value;
    child_peer(export_and_free, &socket);
    child_receive(socket, &offer, sizeof offer);
    cudaStream_t stream = new_stream();
    uint32_t *memory = open_memory(offer.memory);
    cudaEvent_t ready = open_event(offer.ready);
    if (use == AFTER_CLOSE)
        CHILD_OK(cudaIpcCloseMemHandle(memory));
    tell(socket);
    await(socket);
    if (use == LATE_KERNEL || use == AFTER_CLOSE)
        CHILD_OK(kernel_fill(memory, 4, 1, stream));
    if (use == LATE_COPY)
        CHILD_OK(cudaMemcpyAsync(&value, memory, 4, cudaMemcpyDeviceToHost, stream));
    if (use == LATE_EVENT)
        CHILD_OK(cudaStreamWaitEvent(stream, ready, 0));
    CHILD_OK(cudaStreamSynchronize(stream));
    CHILD_OK(cudaIpcCloseMemHandle(memory)); /* closing late is what must be possible */
    CHILD_OK(cudaEventDestroy(ready));
}

static void wait_for_peer_event(int socket)
{
    cudaIpcEventHandle_t handle;
    child_receive(socket, &handle, sizeof handle);
    CHILD_OK(cudaStreamWaitEvent(new_stream(), open_event(handle), 0));
    tell(socket);
    child_linger(socket);
}

/* Destroys an event that another process waits for, or had waited for when it was killed. */
static void destroy_awaited_event(void *argument)
{
    const bool *kills = argument;
    int socket;
    cudaIpcEventHandle_t handle;
    pid_t peer = child_peer(wait_for_peer_event, &socket);
    cudaStream_t stuck = new_stream();
    cudaEvent_t event = new_event();
    CHILD_OK(cudaLaunchHostFunc(stuck, hang, NULL));
    CHILD_OK(cudaEventRecord(event, stuck));
    CHILD_OK(cudaIpcGetEventHandle(&handle, event));
    child_send(socket, &handle, sizeof handle);
    await(socket);
    if (*kills) {
        kill(peer, SIGKILL);
        child_join(peer, 128 + SIGKILL);
    }
    CHILD_OK(cudaEventDestroy(event));
}

START_TEST(late_uses_of_another_processs_things)
{
    child_must_pass(use_too_late, &(enum late_use){LATE_CLOSE}, NULL);
    child_must_fault(use_too_late, &(enum late_use){LATE_KERNEL}, NULL, "exported and has freed");
    child_must_fault(use_too_late, &(enum late_use){LATE_COPY}, NULL, "exported and has freed");
    child_must_fault(use_too_late, &(enum late_use){LATE_EVENT}, NULL,
        "destroyed by the process that shared it");
    child_must_fault(
        use_too_late, &(enum late_use){AFTER_CLOSE}, NULL, "ended by cudaIpcCloseMemHandle");
    child_must_pass(destroy_awaited_event, &(bool){true}, NULL);
    child_must_fault(destroy_awaited_event, &(bool){false}, NULL,
        "cudaEventDestroy: the event's record is outstanding");
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("two processes");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, steps_are_ordered_by_events);
    tcase_add_test(tcase, handles_are_counted_and_checked);
    tcase_add_test(tcase, a_killed_exporter_holds_nobody_up);
    tcase_add_test(tcase, late_uses_of_another_processs_things);
    return run_suite("cudasim_ipc", tcase);
}
