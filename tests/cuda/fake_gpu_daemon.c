/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake daemon's protocol: one request after the other, each answered at once unless the test
 * wants replies withheld, which go out before the answer to a Ping.
 */
#include "tests/cuda/fake_gpu_daemon.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/fake_daemon.h"

/* A reply, and what it points to. */
struct gpu_reply {
    F8__Reply reply;
    F8__HelloReply hello;
    F8__DeviceReply device;
    F8__RegionReply region;
    F8__JoinReply join;
    F8__SealReply seal;
    F8__GatherReply gather;
    F8__DoneReply done;
    F8__PingReply ping;
    ProtobufCBinaryData handles[FAKE_GPU_DONE];
    int fd; /* borrowed; -1: none */
};

/* The descriptors that came with a request. */
struct gpu_fds {
    int fds[F8_PROTO_MAX_FDS];
    uint32_t count;
};

static uint8_t withheld[FAKE_GPU_BUCKETS][256];
static size_t withheld_size[FAKE_GPU_BUCKETS];
static uint32_t num_withheld;

/* Keeps what came, with whether its event's work had run already. */
static void note(struct gpu *gpu, uint32_t body, uint32_t bucket, uint32_t ready)
{
    uint32_t index = gpu->shared->num_requests;
    GPU_MUST(index < FAKE_GPU_LOG && ready <= gpu->num_ready);
    bool complete = ready > 0 && cuEventQuery(gpu->ready[ready - 1]) == CUDA_SUCCESS;
    gpu->shared->requests[index] = (struct fake_gpu_request){
        .body = body, .bucket = bucket, .ready = ready, .is_complete = complete};
    gpu->shared->num_requests = index + 1;
}

static void take_lists(struct gpu *gpu, const F8__Register *lists)
{
    for (size_t i = 0; i < lists->n_weights; i++) {
        const F8__Weight *from = lists->weights[i];
        struct gpu_weight *weight = &gpu->weights[gpu->num_weights++];
        GPU_MUST(gpu->num_weights <= FAKE_GPU_BUCKETS);
        *weight = (struct gpu_weight){.region = from->region, .offset = from->offset, .size = 4};
        for (size_t d = 0; d < from->n_shape; d++)
            weight->size *= from->shape[d];
    }
    for (size_t i = 0; i < lists->n_buckets; i++) {
        const F8__Bucket *from = lists->buckets[i];
        struct gpu_bucket *bucket = &gpu->buckets[gpu->num_buckets++];
        GPU_MUST(gpu->num_buckets <= FAKE_GPU_BUCKETS);
        *bucket =
            (struct gpu_bucket){.first = from->first, .count = from->count, .shared = from->shared};
        for (uint32_t w = bucket->first; w < bucket->first + bucket->count; w++) {
            gpu->weights[w].at = bucket->span;
            bucket->span += f8_proto_align(gpu->weights[w].size);
        }
        bucket->span += f8_proto_scales_span(bucket->count);
    }
}

static void fill_seal(struct gpu *gpu, struct gpu_reply *answer)
{
    int fault = gpu->shared->seal;
    gpu_seal(gpu);
    answer->reply.body_case = F8__REPLY__BODY_SEAL;
    answer->reply.seal = &answer->seal;
    answer->seal.arena_size = gpu->arena_size;
    for (int i = 0; i < FAKE_GPU_DONE; i++)
        answer->handles[i] = (ProtobufCBinaryData){
            .len = fault == FAKE_GPU_SEAL_SHORT_HANDLE ? 5 : sizeof(gpu->handles[i]),
            .data = (uint8_t *)&gpu->handles[i]};
    answer->seal.done = answer->handles;
    answer->seal.n_done = fault == FAKE_GPU_SEAL_NO_EVENTS ? 0 : FAKE_GPU_DONE;
    answer->fd = gpu->arena_fd;
    if (fault == FAKE_GPU_SEAL_NO_MEMORY)
        answer->fd = -1;
    if (fault == FAKE_GPU_SEAL_OTHER_MEMORY)
        answer->fd = FAKE_GPU_LISTENER;
}

static void fill_gather(struct gpu *gpu, const F8__Gather *gather, struct gpu_reply *answer)
{
    struct gpu_bucket *bucket = &gpu->buckets[gather->bucket];
    note(gpu, F8__REQUEST__BODY_GATHER, gather->bucket, gather->ready);
    if (bucket->shared)
        bucket->place = gpu->shared->places[gather->bucket];
    if (!gpu->shared->by_release_only)
        gpu_wait(gpu, gather->ready);
    for (uint32_t i = 0; gpu->shared->by_release_only && i < gpu->num_buckets; i++)
        if (gpu->buckets[i].place == bucket->place)
            gpu_wait(gpu, gpu->released[i]);
    uint32_t done = gpu_gather(gpu, gather->bucket);
    answer->reply.body_case = F8__REPLY__BODY_GATHER;
    answer->reply.gather = &answer->gather;
    answer->gather.offset = bucket->place;
    answer->gather.done = gpu->shared->done ? gpu->shared->done : done;
}

static void fill_precompute(
    struct gpu *gpu, const F8__Precompute *precompute, struct gpu_reply *answer)
{
    note(gpu, F8__REQUEST__BODY_PRECOMPUTE, 0, precompute->ready);
    gpu_wait(gpu, precompute->ready);
    uint32_t done = gpu_precompute(gpu);
    answer->reply.body_case = F8__REPLY__BODY_DONE;
    answer->reply.done = &answer->done;
    answer->done.done = gpu->shared->done ? gpu->shared->done : done;
}

static void fill_region(
    struct gpu *gpu, const F8__RegionAdd *add, const struct gpu_fds *came, F8__Reply *reply)
{
    GPU_MUST(add->cuda);
    gpu->shared->packets++;
    gpu->shared->fds += came->count;
    gpu->shared->region_size = add->cuda->size;
    if (!add->cuda->more && add->cuda->size == 0) {
        gpu_drop_partial(gpu);
        reply->status = F8_EINVAL;
        return;
    }
    uint32_t number = gpu_add_region(gpu, add->cuda, came->fds, came->count);
    if (number == 0)
        return;
    reply->body_case = F8__REPLY__BODY_REGION;
    reply->region->region = number;
    reply->region->size = add->cuda->size;
}

/* Requests of the group: true if it was one. */
static bool handle_group(struct gpu *gpu, const F8__Request *request, struct gpu_reply *answer)
{
    switch (request->body_case) {
    case F8__REQUEST__BODY_JOIN:
        answer->join.group = 1;
        answer->join.generation = request->join->rejoin ? 2 : 1;
        answer->reply.body_case = F8__REPLY__BODY_JOIN;
        answer->reply.join = &answer->join;
        return true;
    case F8__REQUEST__BODY_REGISTER:
        take_lists(gpu, request->register_);
        return true;
    case F8__REQUEST__BODY_SEAL:
        fill_seal(gpu, answer);
        return true;
    case F8__REQUEST__BODY_PRECOMPUTE:
        fill_precompute(gpu, request->precompute, answer);
        return true;
    case F8__REQUEST__BODY_PRE_GATHER:
        note(gpu, F8__REQUEST__BODY_PRE_GATHER, request->pre_gather->bucket,
            request->pre_gather->ready);
        return true;
    case F8__REQUEST__BODY_GATHER:
        fill_gather(gpu, request->gather, answer);
        return true;
    case F8__REQUEST__BODY_RELEASE:
        note(gpu, F8__REQUEST__BODY_RELEASE, request->release->bucket, request->release->ready);
        gpu->released[request->release->bucket] = request->release->ready;
        return true;
    default:
        return false;
    }
}

static void handle(struct gpu *gpu, const F8__Request *request, const struct gpu_fds *came,
    struct gpu_reply *answer)
{
    F8__Reply *reply = &answer->reply;
    if (handle_group(gpu, request, answer))
        return;
    switch (request->body_case) {
    case F8__REQUEST__BODY_HELLO:
        answer->hello.major = F8_PROTO_MAJOR;
        answer->hello.daemon_version = (char *)(uintptr_t) "0.0.0-fake";
        answer->hello.credit = 1024;
        answer->hello.pid = (uint32_t)getpid();
        reply->body_case = F8__REPLY__BODY_HELLO;
        reply->hello = &answer->hello;
        break;
    case F8__REQUEST__BODY_DEVICE_ADD:
        gpu_attach(gpu, request->device_add);
        reply->body_case = F8__REPLY__BODY_DEVICE;
        reply->device = &answer->device;
        break;
    case F8__REQUEST__BODY_REGION_ADD:
        reply->region = &answer->region;
        fill_region(gpu, request->region_add, came, reply);
        break;
    case F8__REQUEST__BODY_REGION_DROP:
        gpu_drop_region(gpu, request->region_drop->region);
        gpu->shared->drops++;
        break;
    case F8__REQUEST__BODY_DEVICE_DROP:
        gpu_detach(gpu);
        gpu->shared->drops++;
        break;
    case F8__REQUEST__BODY_PING:
        gpu->shared->scratch = gpu_read_scratch(gpu);
        reply->body_case = F8__REPLY__BODY_PING;
        reply->ping = &answer->ping;
        break;
    default: /* Changed, Quiesce: a plain yes */
        break;
    }
}

static void send_withheld(int socket)
{
    for (uint32_t i = 0; i < num_withheld; i++)
        (void)fake_send_bytes(socket, withheld[i], withheld_size[i]);
    num_withheld = 0;
}

static void answer_request(
    struct gpu *gpu, int socket, const F8__Request *request, const struct gpu_fds *came)
{
    static uint8_t bytes[F8_PROTO_MAX_PACKET];
    struct gpu_reply answer = {F8__REPLY__INIT, F8__HELLO_REPLY__INIT, F8__DEVICE_REPLY__INIT,
        F8__REGION_REPLY__INIT, F8__JOIN_REPLY__INIT, F8__SEAL_REPLY__INIT, F8__GATHER_REPLY__INIT,
        F8__DONE_REPLY__INIT, F8__PING_REPLY__INIT, {{0}}, -1};
    answer.reply.id = request->id;
    if (gpu->shared->fail_body == (int)request->body_case) {
        answer.reply.status = gpu->shared->fail_status;
        answer.reply.text = (char *)(uintptr_t) "refused by the test";
    } else {
        handle(gpu, request, came, &answer);
    }
    if (request->body_case == F8__REQUEST__BODY_RELEASE)
        return;
    if (request->body_case == F8__REQUEST__BODY_PING)
        send_withheld(socket);
    size_t size = f8__reply__pack(&answer.reply, bytes);
    if (gpu->shared->withhold == (int)request->body_case) {
        GPU_MUST(num_withheld < FAKE_GPU_BUCKETS && size <= sizeof(withheld[0]));
        memcpy(withheld[num_withheld], bytes, size);
        withheld_size[num_withheld++] = size;
        return;
    }
    (void)fake_send_packet(socket, bytes, size, answer.fd); /* a client that has gone is no fault */
}

/* As a daemon that is told to end while a kernel still reads the client's memory. */
static void linger(struct gpu *gpu, int socket)
{
    const int ms = gpu->shared->lingers_ms;
    const struct timespec nap = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    (void)shutdown(socket, SHUT_RDWR);
    nanosleep(&nap, NULL);
    gpu_detach(gpu);
    gpu->shared->drops++;
}

/* Answers a request; false: it was the last one. */
static bool serve(
    struct gpu *gpu, int socket, const F8__Request *request, const struct gpu_fds *came)
{
    if (request->body_case == F8__REQUEST__BODY_GOODBYE)
        return false;
    if (gpu->shared->hangs_up == (int)request->body_case) {
        linger(gpu, socket);
        return false;
    }
    answer_request(gpu, socket, request, came);
    return true;
}

static void serve_connection(struct gpu *gpu)
{
    int socket = accept4(FAKE_GPU_LISTENER, NULL, NULL, SOCK_CLOEXEC);
    GPU_MUST(socket >= 0);
    bool more = true;
    while (more) {
        struct gpu_fds came = {.count = 0};
        F8__Request *request = fake_receive_fds(socket, came.fds, &came.count);
        more = request && serve(gpu, socket, request, &came);
        if (request)
            fake_free(request);
        for (uint32_t i = 0; i < came.count; i++)
            close(came.fds[i]);
    }
    close(socket);
}

int fake_gpu_daemon(void)
{
    static struct gpu gpu;
    gpu.shared =
        mmap(NULL, sizeof(*gpu.shared), PROT_READ | PROT_WRITE, MAP_SHARED, FAKE_GPU_MEMORY, 0);
    GPU_MUST(gpu.shared != MAP_FAILED);
    gpu_open(&gpu);
    do
        serve_connection(&gpu);
    while (gpu.shared->stays);
    return 0;
}
