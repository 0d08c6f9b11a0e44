/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The script of a whole run of two trainers and an operator: see session_fuzz.h. It goes through
 * every kind of request, two groups of which one takes the amaxes of the other, a break and a
 * second generation.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"
#include "tests/fuzz/session_fuzz.h"
#include "tests/lib/device_backend.h"

/* What the registry gives first: the job is 1. MESH is the amax group of two weights of GROUP. */
#define GROUP 2
#define MESH  3

struct script {
    uint8_t *bytes; /* borrowed: the caller's */
    size_t size;
    uint64_t id, generation;
    uint32_t ready; /* the event that requests name; 0: they are on the host */
};

static void put_head(struct script *script, enum fuzz_op op, uint8_t detail, size_t length)
{
    uint8_t head[FUZZ_HEAD] = {(uint8_t)op, detail, (uint8_t)length, (uint8_t)(length >> 8)};
    memcpy(script->bytes + script->size, head, sizeof(head));
    script->size += sizeof(head);
}

static void put(struct script *script, unsigned client, enum fuzz_fds fds, F8__Request *request)
{
    request->id = ++script->id;
    size_t length = f8__request__get_packed_size(request);
    if (script->size + FUZZ_HEAD + length > FUZZ_SCRIPT)
        abort();
    put_head(script, FUZZ_SEND, FUZZ_DETAIL(client, fds), length);
    script->size += f8__request__pack(request, script->bytes + script->size);
}

/* A request of both trainers, or of one, with the body `field`. */
#define PUT(script, client, fds, case, field, body)                                                \
    put(script, client, fds,                                                                       \
        &(F8__Request){PROTOBUF_C_MESSAGE_INIT(&f8__request__descriptor), .body_case = (case),     \
            .field = (body)})

#define PUT_BOTH(script, case, field, body)                                                        \
    do {                                                                                           \
        PUT(script, 0, FUZZ_NO_FD, case, field, body);                                             \
        PUT(script, 1, FUZZ_NO_FD, case, field, body);                                             \
    } while (0)

static void put_hello(struct script *script, unsigned client)
{
    F8__Hello hello = F8__HELLO__INIT;
    hello.major = F8_PROTO_MAJOR;
    hello.library_version = (char *)"0";
    hello.job = (char *)"j";
    hello.token = (ProtobufCBinaryData){.data = (uint8_t *)"t", .len = 1};
    hello.role = client == 2 ? F8__ROLE__ADMIN : F8__ROLE__TRAINER;
    PUT(script, client, FUZZ_NO_FD, F8__REQUEST__BODY_HELLO, hello, &hello);
}

static void put_join(struct script *script, unsigned client, const char *group, bool rejoin)
{
    F8__Join join = F8__JOIN__INIT;
    join.group = (char *)group;
    join.rank = client;
    join.world_size = 2;
    join.rejoin = rejoin;
    PUT(script, client, FUZZ_NO_FD, F8__REQUEST__BODY_JOIN, join, &join);
}

static void fill_weight(F8__Weight *weight, const char *name, uint32_t flavour, uint64_t *shape)
{
    f8__weight__init(weight);
    weight->name = (char *)name;
    weight->shape = shape;
    weight->n_shape = 2;
    weight->dtype = F8_PROTO_F32;
    weight->flavour = flavour;
    weight->format = F8_PROTO_E4M3FN;
    weight->static_scale = 0x3f800000;
    weight->region = 1;
    weight->offset = 64;
}

static void put_register(struct script *script, unsigned client)
{
    static uint64_t shape[] = {5, 40};
    static const uint32_t flavours[] = {
        F8_PROTO_DYNAMIC, F8_PROTO_STATIC, F8_PROTO_RAW, F8_PROTO_DELAYED};
    static const char *const names[] = {"w0", "w1", "w2", "w3"};
    F8__Weight weights[4], *of_weights[4];
    F8__Bucket buckets[2], *of_buckets[2];
    F8__Register body = F8__REGISTER__INIT;
    for (int w = 0; w < 4; w++) {
        fill_weight(&weights[w], names[w], flavours[w], shape);
        weights[w].history_length = flavours[w] == F8_PROTO_DELAYED ? 3 : 0;
        weights[w].amax_group = w % 3 == 0 ? MESH : 0;
        of_weights[w] = &weights[w];
    }
    for (int b = 0; b < 2; b++) {
        f8__bucket__init(&buckets[b]);
        buckets[b].name = (char *)(b ? "b1" : "b0");
        buckets[b].first = (uint32_t)b * 2;
        buckets[b].count = 2;
        buckets[b].shared = b;
        of_buckets[b] = &buckets[b];
    }
    body.group = GROUP;
    body.weights = of_weights;
    body.n_weights = 4;
    body.more = true;
    PUT(script, client, FUZZ_NO_FD, F8__REQUEST__BODY_REGISTER, register_, &body);
    body.more = false;
    body.n_weights = 0;
    body.buckets = of_buckets;
    body.n_buckets = 2;
    PUT(script, client, FUZZ_NO_FD, F8__REQUEST__BODY_REGISTER, register_, &body);
}

static void put_seal(struct script *script)
{
    F8__Seal seal = F8__SEAL__INIT;
    seal.group = GROUP;
    seal.generation = script->generation;
    seal.slots = 1;
    seal.poison = script->generation > 1;
    PUT_BOTH(script, F8__REQUEST__BODY_SEAL, seal, &seal);
    put_head(script, FUZZ_DRAIN, 0, 0);
    seal.group = MESH;
    PUT_BOTH(script, F8__REQUEST__BODY_SEAL, seal, &seal);
    put_head(script, FUZZ_DRAIN, 0, 0);
}

static void put_gather(struct script *script, unsigned client, uint32_t bucket)
{
    F8__Gather gather = F8__GATHER__INIT;
    gather.group = GROUP;
    gather.generation = script->generation;
    gather.bucket = bucket;
    gather.ready = script->ready;
    PUT(script, client, FUZZ_NO_FD, F8__REQUEST__BODY_GATHER, gather, &gather);
}

/* What all ranks ask of a group as a whole. */
static void put_whole(struct script *script, F8__Request__BodyCase body_case, uint32_t group)
{
    F8__Precompute body = F8__PRECOMPUTE__INIT;
    body.group = group;
    body.generation = script->generation;
    body.ready = body_case == F8__REQUEST__BODY_PRECOMPUTE ? script->ready : 0;
    PUT_BOTH(script, body_case, precompute, &body); /* a union: all of them have this form */
}

/* What a trainer does between gathers. */
static void put_between(struct script *script)
{
    F8__Changed changed = F8__CHANGED__INIT;
    F8__WeightMove move = F8__WEIGHT_MOVE__INIT;
    F8__Quiesce quiesce = F8__QUIESCE__INIT;
    changed.group = move.group = quiesce.group = GROUP;
    changed.generation = script->generation;
    move.generation = quiesce.generation = script->generation;
    changed.count = 4;
    move.weight = 2;
    move.region = 1;
    move.offset = 128;
    PUT_BOTH(script, F8__REQUEST__BODY_CHANGED, changed, &changed);
    PUT_BOTH(script, F8__REQUEST__BODY_WEIGHT_MOVE, weight_move, &move);
    put_whole(script, F8__REQUEST__BODY_INVALIDATE, MESH);
    put_whole(script, F8__REQUEST__BODY_PRECOMPUTE, MESH);
    put_head(script, FUZZ_TURN, 0, 0);
    PUT_BOTH(script, F8__REQUEST__BODY_QUIESCE, quiesce, &quiesce);
    put_head(script, FUZZ_DRAIN, 0, 0);
}

static void put_step(struct script *script)
{
    F8__PreGather pre_gather = F8__PRE_GATHER__INIT;
    F8__Release release = F8__RELEASE__INIT;
    pre_gather.group = release.group = GROUP;
    pre_gather.generation = release.generation = script->generation;
    put_between(script);
    for (uint32_t b = 0; b < 2; b++) {
        pre_gather.bucket = b;
        pre_gather.ready = script->ready;
        PUT_BOTH(script, F8__REQUEST__BODY_PRE_GATHER, pre_gather, &pre_gather);
        put_head(script, FUZZ_TURN, 0, 0);
        put_gather(script, 0, b);
        put_gather(script, 1, b);
    }
    put_head(script, FUZZ_TURN, 0, 0);
    put_head(script, FUZZ_DRAIN, 0, 0);
    for (uint32_t b = 0; b < 2; b++) {
        release.bucket = b;
        release.ready = script->ready;
        PUT_BOTH(script, F8__REQUEST__BODY_RELEASE, release, &release);
    }
    put_whole(script, F8__REQUEST__BODY_SYNC, MESH);
}

/* Answered at once: nothing here waits for the clock. */
static void put_watch(struct script *script)
{
    F8__Watch watch = F8__WATCH__INIT;
    uint32_t kinds[] = {F8_PROTO_EVENT_RANK_JOINED, F8_PROTO_EVENT_ROUND_FAILED};
    watch.job = (char *)"*";
    watch.kinds = kinds;
    watch.n_kinds = 2;
    watch.after = 1;
    watch.max = 2;
    PUT(script, 2, FUZZ_NO_FD, F8__REQUEST__BODY_WATCH, watch, &watch);
}

static void put_inspects(struct script *script)
{
    F8__Inspect inspect = F8__INSPECT__INIT;
    inspect.name = (char *)"*";
    for (int view = 0; view <= F8__VIEW__AMAX; view++) {
        inspect.view = (F8__View)view;
        PUT(script, 2, FUZZ_NO_FD, F8__REQUEST__BODY_INSPECT, inspect, &inspect);
    }
    put_watch(script);
}

/* A device, with two events, and memory there in two parts of two descriptors. */
static void put_device(struct script *script, unsigned client)
{
    static uint8_t handle[F8_PROTO_HANDLE_SIZE];
    uint8_t uuid[F8_PROTO_UUID_SIZE];
    uint64_t chunks[] = {16384, 16384};
    ProtobufCBinaryData ready[2];
    F8__DeviceAdd device = F8__DEVICE_ADD__INIT;
    F8__CudaMemory memory = F8__CUDA_MEMORY__INIT;
    F8__RegionAdd add = F8__REGION_ADD__INIT;
    device_backend_uuid(client, uuid);
    ready[0] = ready[1] = (ProtobufCBinaryData){.len = sizeof(handle), .data = handle};
    device.uuid = (ProtobufCBinaryData){.len = sizeof(uuid), .data = uuid};
    device.ready = ready;
    device.n_ready = 2;
    PUT(script, client, FUZZ_NO_FD, F8__REQUEST__BODY_DEVICE_ADD, device_add, &device);
    put_head(script, FUZZ_DRAIN, 0, 0);
    add.cuda = &memory;
    memory.chunks = chunks;
    memory.n_chunks = 2;
    memory.more = true;
    PUT(script, client, FUZZ_TWO_REGIONS, F8__REQUEST__BODY_REGION_ADD, region_add, &add);
    memory.more = false;
    memory.size = 4 * 16384;
    PUT(script, client, FUZZ_TWO_REGIONS, F8__REQUEST__BODY_REGION_ADD, region_add, &add);
    memory = (F8__CudaMemory)F8__CUDA_MEMORY__INIT;
    memory.handle = ready[0];
    memory.size = 4096;
    PUT(script, client, FUZZ_NO_FD, F8__REQUEST__BODY_REGION_ADD, region_add, &add);
    put_head(script, FUZZ_DRAIN, 0, 0);
}

static void put_regions(struct script *script, unsigned client)
{
    F8__RegionAdd add = F8__REGION_ADD__INIT;
    PUT(script, client, FUZZ_REGION, F8__REQUEST__BODY_REGION_ADD, region_add, &add);
    PUT(script, client, FUZZ_REGION, F8__REQUEST__BODY_REGION_ADD, region_add, &add);
}

static void put_beginning(struct script *script)
{
    F8__Ping ping = F8__PING__INIT;
    put_hello(script, 2);
    for (unsigned c = 0; c < 2; c++) {
        put_hello(script, c);
        PUT(script, c, FUZZ_NO_FD, F8__REQUEST__BODY_PING, ping, &ping);
        if (script->ready)
            put_device(script, c);
        else
            put_regions(script, c);
        put_join(script, c, "g", false);
        put_join(script, c, "m", false);
        put_register(script, c);
    }
    put_seal(script);
}

size_t fuzz_whole_run(uint8_t bytes[FUZZ_SCRIPT], bool on_devices)
{
    struct script script = {.bytes = bytes, .generation = 1, .ready = on_devices};
    F8__RegionDrop drop = F8__REGION_DROP__INIT;
    F8__DeviceDrop device_drop = F8__DEVICE_DROP__INIT;
    put_beginning(&script);
    put_step(&script);
    put_inspects(&script);
    put_gather(&script, 0, 0); /* a mismatch, seen by the operator as well */
    put_inspects(&script);
    put_gather(&script, 1, 1);
    put_head(&script, FUZZ_DRAIN, 0, 0);
    for (unsigned c = 0; c < 2; c++) {
        put_join(&script, c, "g", true);
        put_join(&script, c, "m", true);
    }
    script.generation = 2;
    put_seal(&script);
    put_step(&script);
    put_head(&script, FUZZ_DRAIN, 0, 0); /* places are being poisoned */
    put_gather(&script, 0, 0);
    put_gather(&script, 1, 0);
    put_head(&script, FUZZ_DIE, 1, 0); /* while the gather runs */
    put_join(&script, 0, "g", true);
    put_join(&script, 0, "m", true);
    put_head(&script, FUZZ_DRAIN, 0, 0);
    drop.region = 2;
    PUT(&script, 0, FUZZ_NO_FD, F8__REQUEST__BODY_REGION_DROP, region_drop, &drop);
    if (on_devices)
        PUT(&script, 0, FUZZ_NO_FD, F8__REQUEST__BODY_DEVICE_DROP, device_drop, &device_drop);
    return script.size;
}
