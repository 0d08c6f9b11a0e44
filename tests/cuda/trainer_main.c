/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_trainer DEVICE SIZE: the trainer that trainer.h describes. Only the public API of the CUDA
 * runtime and driver, so that it runs on a GPU as on the simulator. What fails ends it with a line
 * on standard error, and the test with it.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trainer.h"

/* Of the daemon's memory on all GPUs so far. */
#define GRANULARITY ((uint64_t)2 << 20)

#define MUST(call) must((int)(call), #call, __LINE__)

static cudaStream_t stream;
static cudaEvent_t ready[TRAINER_EVENTS];
static void *shard;
static uint64_t shard_size;
static uint8_t *arena;
static uint8_t *bounce; /* pinned */
static sem_t go;
static int device;

static void must(int error, const char *call, int line)
{
    if (error == 0)
        return;
    (void)fprintf(stderr, "trainer %d: line %d: %s gave %d\n", getpid(), line, call, error);
    exit(EXIT_FAILURE);
}

static void must_be(bool is_so, const char *what)
{
    must(is_so ? 0 : -1, what, __LINE__);
}

static void start(const char *device_text, const char *size_text, struct trainer_reply *reply)
{
    CUuuid uuid;
    device = atoi(device_text);
    shard_size = strtoull(size_text, NULL, 10);
    MUST(cudaSetDevice(device));
    MUST(cuDeviceGetUuid_v2(&uuid, device));
    memcpy(reply->uuid, uuid.bytes, sizeof(reply->uuid));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < TRAINER_EVENTS; i++) {
        cudaIpcEventHandle_t handle;
        MUST(cudaEventCreateWithFlags(&ready[i], cudaEventInterprocess | cudaEventDisableTiming));
        MUST(cudaIpcGetEventHandle(&handle, ready[i]));
        memcpy(reply->ready[i], &handle, sizeof(reply->ready[i]));
    }
    cudaIpcMemHandle_t memory;
    MUST(cudaMalloc(&shard, shard_size));
    MUST(cudaMemsetAsync(shard, 0, shard_size, stream));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaIpcGetMemHandle(&memory, shard));
    memcpy(reply->memory, &memory, sizeof(reply->memory));
    MUST(cudaHostAlloc((void **)&bounce, TRAINER_MAX_READ, cudaHostAllocDefault));
    must_be(sem_init(&go, 0, 0) == 0, "sem_init");
}

static void CUDART_CB wait_for_go(void *argument)
{
    (void)argument;
    while (sem_wait(&go) != 0)
        ;
}

static void wait_done(const uint8_t *bytes)
{
    cudaIpcEventHandle_t handle;
    cudaEvent_t event;
    memcpy(&handle, bytes, sizeof(handle));
    MUST(cudaIpcOpenEventHandle(&event, handle));
    MUST(cudaStreamWaitEvent(stream, event, 0));
}

static void map_arena(int fd, uint64_t size)
{
    CUmemGenericAllocationHandle memory;
    CUdeviceptr address = 0;
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    size = (size + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    MUST(cuMemImportFromShareableHandle(
        &memory, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    MUST(cuMemAddressReserve(&address, size, 0, 0, 0));
    MUST(cuMemMap(address, size, 0, memory, 0));
    MUST(cuMemSetAccess(address, size, &access, 1));
    arena = (uint8_t *)address;
}

static void read_arena(uint64_t offset, uint64_t size, struct trainer_reply *reply)
{
    MUST(cudaMemcpyAsync(bounce, arena + offset, size, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    memcpy(reply->bytes, bounce, size);
}

static void obey(const struct trainer_request *request, int fd, struct trainer_reply *reply)
{
    switch (request->verb) {
    case TRAINER_HOLD:
        MUST(cudaLaunchHostFunc(stream, wait_for_go, NULL));
        break;
    case TRAINER_GO:
        must_be(sem_post(&go) == 0, "sem_post");
        break;
    case TRAINER_FILL:
        MUST(cudaMemsetAsync(shard, (int)request->value, shard_size, stream));
        break;
    case TRAINER_RECORD:
        MUST(cudaEventRecord(ready[request->value], stream));
        break;
    case TRAINER_WAIT_DONE:
        wait_done(request->handle);
        break;
    case TRAINER_MAP:
        map_arena(fd, request->size);
        break;
    case TRAINER_READ:
        read_arena(request->offset, request->size, reply);
        break;
    case TRAINER_END:
        MUST(cudaStreamSynchronize(stream));
        break;
    }
}

/* False once the test has gone. */
static bool receive(struct trainer_request *request, int *ret_fd)
{
    struct iovec part = {.iov_base = request, .iov_len = sizeof(*request)};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control.bytes)};
    *ret_fd = -1;
    if (recvmsg(TRAINER_SOCKET, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*request))
        return false;
    if (message.msg_controllen >= CMSG_LEN(sizeof(int)))
        memcpy(ret_fd, CMSG_DATA(&control.header), sizeof(*ret_fd));
    return true;
}

int main(int argc, char **argv)
{
    struct trainer_reply reply = {0};
    struct trainer_request request = {0};
    int fd;
    must_be(argc == 3, "usage: cuda_trainer DEVICE SIZE");
    start(argv[1], argv[2], &reply);
    do {
        must_be(send(TRAINER_SOCKET, &reply, sizeof(reply), MSG_NOSIGNAL) == sizeof(reply), "send");
        if (request.verb == TRAINER_END)
            _exit(EXIT_SUCCESS);
        if (!receive(&request, &fd))
            _exit(EXIT_FAILURE); /* the test has failed; a held stream would keep exit() */
        memset(&reply, 0, sizeof(reply));
        obey(&request, fd, &reply);
    } while (true);
}
