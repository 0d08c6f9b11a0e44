/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of a client of the rooms: see rooms.h. */
#include <check.h>
#include <string.h>

#include "protocol.h"
#include "tests/lib/device_backend.h"
#include "tests/lib/rooms.h"

#define MAX_LIST 64

/* Sends a request with this body; `field` is its name in the message. */
#define SEND(client, case, field, body, fds, num_fds)                                              \
    client_send(client,                                                                            \
        &(F8__Request){PROTOBUF_C_MESSAGE_INIT(&f8__request__descriptor), .body_case = (case),     \
            .field = (body)},                                                                      \
        fds, num_fds)

static uint64_t hello(struct client *client, const char *job, F8__Role role)
{
    F8__Hello body = F8__HELLO__INIT;
    body.major = F8_PROTO_MAJOR;
    body.minor = F8_PROTO_MINOR;
    body.library_version = (char *)"test";
    body.job = (char *)job;
    body.role = role;
    return SEND(client, F8__REQUEST__BODY_HELLO, hello, &body, NULL, 0);
}

uint64_t ask_hello(struct client *client, const char *job)
{
    return hello(client, job, F8__ROLE__TRAINER);
}

uint64_t ask_admin(struct client *client)
{
    return hello(client, "", F8__ROLE__ADMIN);
}

uint64_t ask_ping(struct client *client)
{
    F8__Ping body = F8__PING__INIT;
    return SEND(client, F8__REQUEST__BODY_PING, ping, &body, NULL, 0);
}

uint64_t ask_region(struct client *client, int fd)
{
    F8__RegionAdd body = F8__REGION_ADD__INIT;
    return SEND(client, F8__REQUEST__BODY_REGION_ADD, region_add, &body, &fd, 1);
}

uint64_t ask_device(struct client *client, uint32_t device, uint32_t num_events)
{
    static uint8_t handle[F8_PROTO_HANDLE_SIZE];
    uint8_t uuid[F8_PROTO_UUID_SIZE];
    ProtobufCBinaryData ready[F8_PROTO_MAX_READY];
    F8__DeviceAdd body = F8__DEVICE_ADD__INIT;
    device_backend_uuid(device, uuid);
    ck_assert_uint_le(num_events, F8_PROTO_MAX_READY);
    for (uint32_t i = 0; i < num_events; i++)
        ready[i] = (ProtobufCBinaryData){.len = sizeof(handle), .data = handle};
    body.uuid = (ProtobufCBinaryData){.len = sizeof(uuid), .data = uuid};
    body.ready = ready;
    body.n_ready = num_events;
    return SEND(client, F8__REQUEST__BODY_DEVICE_ADD, device_add, &body, NULL, 0);
}

uint64_t ask_device_region(struct client *client, int fd, uint64_t size)
{
    F8__CudaMemory memory = F8__CUDA_MEMORY__INIT;
    F8__RegionAdd body = F8__REGION_ADD__INIT;
    memory.size = size;
    memory.chunks = &size;
    memory.n_chunks = 1;
    body.cuda = &memory;
    return SEND(client, F8__REQUEST__BODY_REGION_ADD, region_add, &body, &fd, 1);
}

uint64_t ask_body(struct client *client, F8__Request__BodyCase body_case, ProtobufCMessage *body,
    const int *fds, uint32_t num_fds)
{
    /* All bodies are pointers, in one union. */
    return SEND(client, body_case, hello, (F8__Hello *)body, fds, num_fds);
}

uint64_t ask_region_drop(struct client *client, uint32_t region)
{
    F8__RegionDrop body = F8__REGION_DROP__INIT;
    body.region = region;
    return SEND(client, F8__REQUEST__BODY_REGION_DROP, region_drop, &body, NULL, 0);
}

static uint64_t join(
    struct client *client, const char *group, uint32_t rank, uint32_t world_size, bool rejoin)
{
    F8__Join body = F8__JOIN__INIT;
    body.group = (char *)group;
    body.rank = rank;
    body.world_size = world_size;
    body.rejoin = rejoin;
    return SEND(client, F8__REQUEST__BODY_JOIN, join, &body, NULL, 0);
}

uint64_t ask_join(struct client *client, const char *group, uint32_t rank, uint32_t world_size)
{
    return join(client, group, rank, world_size, false);
}

uint64_t ask_rejoin(struct client *client, const char *group, uint32_t rank, uint32_t world_size)
{
    return join(client, group, rank, world_size, true);
}

static uint64_t seal(struct client *client, uint32_t slots, bool poison)
{
    F8__Seal body = F8__SEAL__INIT;
    body.group = client->group;
    body.generation = client->generation;
    body.slots = slots;
    body.poison = poison;
    return SEND(client, F8__REQUEST__BODY_SEAL, seal, &body, NULL, 0);
}

uint64_t ask_seal(struct client *client, uint32_t slots)
{
    return seal(client, slots, false);
}

uint64_t ask_seal_poisoned(struct client *client, uint32_t slots)
{
    return seal(client, slots, true);
}

/* What is asked of a whole group: a union, they all have the form of a precompute. */
static uint64_t whole(struct client *client, F8__Request__BodyCase body_case, uint32_t ready)
{
    F8__Precompute body = F8__PRECOMPUTE__INIT;
    body.group = client->group;
    body.generation = client->generation;
    body.ready = ready;
    return SEND(client, body_case, precompute, &body, NULL, 0);
}

uint64_t ask_precompute_ready(struct client *client, uint32_t ready)
{
    return whole(client, F8__REQUEST__BODY_PRECOMPUTE, ready);
}

uint64_t ask_precompute(struct client *client)
{
    return ask_precompute_ready(client, 0);
}

uint64_t ask_sync(struct client *client)
{
    return whole(client, F8__REQUEST__BODY_SYNC, 0);
}

uint64_t ask_invalidate(struct client *client)
{
    return whole(client, F8__REQUEST__BODY_INVALIDATE, 0);
}

uint64_t ask_pre_gather_ready(struct client *client, uint32_t bucket, uint32_t ready)
{
    F8__PreGather body = F8__PRE_GATHER__INIT;
    body.group = client->group;
    body.generation = client->generation;
    body.bucket = bucket;
    body.ready = ready;
    return SEND(client, F8__REQUEST__BODY_PRE_GATHER, pre_gather, &body, NULL, 0);
}

uint64_t ask_pre_gather(struct client *client, uint32_t bucket)
{
    return ask_pre_gather_ready(client, bucket, 0);
}

uint64_t ask_gather_ready(struct client *client, uint32_t bucket, uint32_t ready)
{
    F8__Gather body = F8__GATHER__INIT;
    body.group = client->group;
    body.generation = client->generation;
    body.bucket = bucket;
    body.ready = ready;
    return SEND(client, F8__REQUEST__BODY_GATHER, gather, &body, NULL, 0);
}

uint64_t ask_gather(struct client *client, uint32_t bucket)
{
    return ask_gather_ready(client, bucket, 0);
}

void send_release_ready(struct client *client, uint32_t bucket, uint32_t ready)
{
    F8__Release body = F8__RELEASE__INIT;
    body.group = client->group;
    body.generation = client->generation;
    body.bucket = bucket;
    body.ready = ready;
    (void)SEND(client, F8__REQUEST__BODY_RELEASE, release, &body, NULL, 0);
}

void send_release(struct client *client, uint32_t bucket)
{
    send_release_ready(client, bucket, 0);
}

uint64_t ask_changed(struct client *client, uint32_t first, uint32_t count)
{
    F8__Changed body = F8__CHANGED__INIT;
    body.group = client->group;
    body.generation = client->generation;
    body.first = first;
    body.count = count;
    return SEND(client, F8__REQUEST__BODY_CHANGED, changed, &body, NULL, 0);
}

uint64_t ask_quiesce(struct client *client)
{
    F8__Quiesce body = F8__QUIESCE__INIT;
    body.group = client->group;
    body.generation = client->generation;
    return SEND(client, F8__REQUEST__BODY_QUIESCE, quiesce, &body, NULL, 0);
}

uint64_t ask_move(struct client *client, uint32_t weight, uint32_t region, uint64_t offset)
{
    F8__WeightMove body = F8__WEIGHT_MOVE__INIT;
    body.group = client->group;
    body.generation = client->generation;
    body.weight = weight;
    body.region = region;
    body.offset = offset;
    return SEND(client, F8__REQUEST__BODY_WEIGHT_MOVE, weight_move, &body, NULL, 0);
}

uint64_t ask_inspect(
    struct client *client, uint32_t view, const char *job, const char *name, uint64_t cursor)
{
    F8__Inspect body = F8__INSPECT__INIT;
    body.view = (F8__View)view;
    body.job = (char *)job;
    body.name = (char *)name;
    body.cursor = cursor;
    return SEND(client, F8__REQUEST__BODY_INSPECT, inspect, &body, NULL, 0);
}

F8__Weight make_weight(const char *name, uint32_t flavour, uint64_t *shape, uint32_t ndim,
    uint32_t region, uint64_t offset)
{
    F8__Weight weight = F8__WEIGHT__INIT;
    float one = 1.0f;
    weight.name = (char *)name;
    weight.shape = shape;
    weight.n_shape = ndim;
    weight.dtype = F8_PROTO_F32;
    weight.flavour = flavour;
    weight.format = F8_PROTO_E4M3FN;
    memcpy(&weight.static_scale, &one, sizeof(one));
    weight.region = region;
    weight.offset = offset;
    return weight;
}

F8__Bucket make_bucket(const char *name, uint32_t first, uint32_t count, bool shared)
{
    F8__Bucket bucket = F8__BUCKET__INIT;
    bucket.name = (char *)name;
    bucket.first = first;
    bucket.count = count;
    bucket.shared = shared;
    return bucket;
}

uint64_t ask_register(struct client *client, F8__Weight *weights, uint32_t num_weights,
    F8__Bucket *buckets, uint32_t num_buckets, bool more)
{
    F8__Weight *of_weights[MAX_LIST];
    F8__Bucket *of_buckets[MAX_LIST];
    F8__Register body = F8__REGISTER__INIT;
    ck_assert_uint_le(num_weights, MAX_LIST);
    ck_assert_uint_le(num_buckets, MAX_LIST);
    for (uint32_t w = 0; w < num_weights; w++)
        of_weights[w] = &weights[w];
    for (uint32_t b = 0; b < num_buckets; b++)
        of_buckets[b] = &buckets[b];
    body.group = client->group;
    body.weights = of_weights;
    body.n_weights = num_weights;
    body.buckets = of_buckets;
    body.n_buckets = num_buckets;
    body.more = more;
    return SEND(client, F8__REQUEST__BODY_REGISTER, register_, &body, NULL, 0);
}
