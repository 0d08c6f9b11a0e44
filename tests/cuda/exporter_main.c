/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_exporter ORDINAL: does with a CUDA device what the socket at its standard input asks for,
 * see exporter.h, until that ends. Linked to the driver; it needs no runtime.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "exporter.h"

#define MAX_MEMORY 64

static struct memory {
    CUdeviceptr base;
    uint64_t size;
    bool is_mapped; /* by cuMemMap */
} memories[MAX_MEMORY];
static uint32_t num_memories;
static CUevent events[EXPORTER_MAX_EVENTS];
static CUstream stream, reader;
static int ordinal;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_held;

/* Notes the call that fails, and leaves the function with that. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            (void)snprintf(reply->failed, sizeof(reply->failed), "%.60s", #call);                  \
            return (int)result_;                                                                   \
        }                                                                                          \
    } while (0)

static int create_events(const struct exporter_request *request, struct exporter_reply *reply)
{
    for (uint32_t i = 0; i < request->count; i++) {
        CUipcEventHandle handle;
        TRY(cuEventCreate(&events[i], CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
        TRY(cuIpcGetEventHandle(&handle, events[i]));
        memcpy(reply->handles[i], &handle, sizeof(handle));
    }
    return 0;
}

static int allocate(const struct exporter_request *request, struct exporter_reply *reply)
{
    struct memory *memory = &memories[num_memories];
    CUipcMemHandle handle;
    TRY(cuMemAlloc(&memory->base, request->size));
    TRY(cuIpcGetMemHandle(&handle, memory->base));
    memcpy(reply->handles[0], &handle, sizeof(handle));
    memory->size = request->size;
    reply->index = num_memories++;
    return 0;
}

static int map(CUmemGenericAllocationHandle handle, CUdeviceptr address, uint64_t size,
    CUmemAccess_flags flags, struct exporter_reply *reply)
{
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal}, .flags = flags};
    TRY(cuMemMap(address, size, 0, handle, 0));
    TRY(cuMemSetAccess(address, size, &access, 1));
    TRY(cuMemRelease(handle));
    return 0;
}

static int create_chunks(
    const struct exporter_request *request, struct exporter_reply *reply, int *fds)
{
    struct memory *memory = &memories[num_memories];
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal}};
    uint64_t at = 0;
    *memory = (struct memory){.is_mapped = true};
    for (uint32_t i = 0; i < request->count; i++)
        memory->size += request->sizes[i];
    TRY(cuMemAddressReserve(&memory->base, memory->size, 0, 0, 0));
    for (uint32_t i = 0; i < request->count; i++) {
        CUmemGenericAllocationHandle handle;
        TRY(cuMemCreate(&handle, request->sizes[i], &properties, 0));
        TRY(cuMemExportToShareableHandle(
            &fds[i], handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        int result = map(handle, memory->base + at, request->sizes[i],
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE, reply);
        if (result)
            return result;
        at += request->sizes[i];
    }
    reply->index = num_memories++;
    return 0;
}

static int release_memory(const struct exporter_request *request, struct exporter_reply *reply)
{
    struct memory *memory = &memories[request->index];
    if (!memory->is_mapped) {
        TRY(cuMemFree(memory->base));
        return 0;
    }
    TRY(cuMemUnmap(memory->base, memory->size));
    TRY(cuMemAddressFree(memory->base, memory->size));
    return 0;
}

static void stand_still(void *unused)
{
    (void)unused;
    (void)pthread_mutex_lock(&lock);
    while (is_held)
        (void)pthread_cond_wait(&changed, &lock);
    (void)pthread_mutex_unlock(&lock);
}

static void set_held(bool value)
{
    (void)pthread_mutex_lock(&lock);
    is_held = value;
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&lock);
}

static int hold(struct exporter_reply *reply)
{
    set_held(true);
    TRY(cuLaunchHostFunc(stream, stand_still, NULL));
    return 0;
}

static int import(const struct exporter_request *request, struct exporter_reply *reply, int fd)
{
    struct memory *memory = &memories[num_memories];
    CUmemGenericAllocationHandle handle;
    *memory = (struct memory){.size = request->size, .is_mapped = true};
    TRY(cuMemImportFromShareableHandle(
        &handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    TRY(cuMemAddressReserve(&memory->base, memory->size, 0, 0, 0));
    reply->index = num_memories++;
    return map(handle, memory->base, memory->size, CU_MEM_ACCESS_FLAGS_PROT_READ, reply);
}

static int read_back(const struct exporter_request *request, struct exporter_reply *reply)
{
    CUdeviceptr from = memories[request->index].base + request->offset;
    void *pinned;
    TRY(cuMemHostAlloc(&pinned, sizeof(reply->data), 0));
    TRY(cuMemcpyDtoHAsync(pinned, from, request->size, reader));
    TRY(cuStreamSynchronize(reader));
    memcpy(reply->data, pinned, request->size);
    TRY(cuMemFreeHost(pinned));
    return 0;
}

static int wait_for(const struct exporter_request *request, struct exporter_reply *reply)
{
    CUipcEventHandle handle;
    CUevent event;
    memcpy(&handle, request->handle, sizeof(handle));
    TRY(cuIpcOpenEventHandle(&event, handle));
    TRY(cuStreamWaitEvent(reader, event, 0));
    TRY(cuStreamSynchronize(reader));
    TRY(cuEventDestroy(event));
    return 0;
}

static int serve(
    const struct exporter_request *request, struct exporter_reply *reply, int fd, int *fds)
{
    CUdeviceptr at = memories[request->index % MAX_MEMORY].base + request->offset;
    switch (request->op) {
    case EXPORTER_UUID:
        TRY(cuDeviceGetUuid((CUuuid *)reply->uuid, ordinal));
        return 0;
    case EXPORTER_EVENTS:
        return create_events(request, reply);
    case EXPORTER_ALLOCATE:
        return allocate(request, reply);
    case EXPORTER_CHUNKS:
        return create_chunks(request, reply, fds);
    case EXPORTER_FILL:
        TRY(cuMemsetD8Async(at, request->byte, request->size, stream));
        return 0;
    case EXPORTER_SYNC:
        TRY(cuStreamSynchronize(stream));
        return 0;
    case EXPORTER_FREE:
        return release_memory(request, reply);
    case EXPORTER_HOLD:
        return hold(reply);
    case EXPORTER_RELEASE:
        set_held(false);
        return 0;
    case EXPORTER_RECORD:
        TRY(cuEventRecord(events[request->index], stream));
        return 0;
    case EXPORTER_IMPORT:
        return import(request, reply, fd);
    case EXPORTER_READ:
        return read_back(request, reply);
    case EXPORTER_WAIT:
        return wait_for(request, reply);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static int open_device(struct exporter_reply *reply)
{
    CUdevice device;
    CUcontext context;
    TRY(cuInit(0));
    TRY(cuDeviceGet(&device, ordinal));
    TRY(cuDevicePrimaryCtxRetain(&context, device));
    TRY(cuCtxSetCurrent(context));
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    TRY(cuStreamCreate(&reader, CU_STREAM_NON_BLOCKING));
    return 0;
}

static bool receive(struct exporter_request *request, int *ret_fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec part = {request, sizeof(*request)};
    struct msghdr message = {.msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};
    *ret_fd = -1;
    if (recvmsg(STDIN_FILENO, &message, 0) != (ssize_t)sizeof(*request))
        return false;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header)
        memcpy(ret_fd, CMSG_DATA(header), sizeof(*ret_fd));
    return true;
}

static void answer(struct exporter_reply *reply, const int *fds, uint32_t num_fds)
{
    union {
        char bytes[CMSG_SPACE(EXPORTER_MAX_CHUNKS * sizeof(int))];
        struct cmsghdr aligned;
    } control = {0};
    struct iovec part = {reply, sizeof(*reply)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (num_fds > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(num_fds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(num_fds * sizeof(int));
        memcpy(CMSG_DATA(header), fds, num_fds * sizeof(int));
    }
    (void)sendmsg(STDIN_FILENO, &message, MSG_NOSIGNAL);
    for (uint32_t i = 0; i < num_fds; i++)
        (void)close(fds[i]);
}

int main(int argc, char **argv)
{
    static struct exporter_reply reply;
    struct exporter_request request;
    int fd;
    if (argc != 2)
        return 2;
    ordinal = atoi(argv[1]);
    int opened = open_device(&reply);
    while (receive(&request, &fd)) {
        int fds[EXPORTER_MAX_CHUNKS];
        memset(reply.data, 0, sizeof(reply.data));
        reply.result = opened ? opened : serve(&request, &reply, fd, fds);
        bool has_fds = request.op == EXPORTER_CHUNKS && reply.result == 0;
        answer(&reply, fds, has_fds ? request.count : 0);
        if (fd >= 0)
            (void)close(fd);
    }
    return 0;
}
