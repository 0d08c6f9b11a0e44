/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registration: checks what the library itself relies on (names, shapes, buckets), keeps its copy
 * with the layout of every bucket, and sends the lists in as few packets as hold them. Any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "client/group.h"

/* Left free in a packet for the rest of the request: ids, tags, `more`. */
#define PACKET_RESERVE 64

/* One call of f8_register. */
struct registration {
    struct f8_group *group;            /* borrowed: from the caller */
    const struct f8_weight_desc *from; /* borrowed: from the caller */
    struct weight *weights;            /* owned: all of the group, with the new ones */
    struct bucket *buckets;            /* owned: likewise */
    const struct f8_group *amax_group; /* borrowed: the client's; as in struct f8_group */
    uint32_t old_weights, num_weights;
    uint32_t old_buckets, num_buckets;
    bool again;                   /* the old ones are those that are registered now */
    F8__Weight *weight_messages;  /* owned; of the new ones */
    F8__Bucket *bucket_messages;  /* owned */
    F8__Weight **weight_pointers; /* owned: what protobuf-c wants */
    F8__Bucket **bucket_pointers; /* owned */
};

static void registration_done(struct registration *r)
{
    for (uint32_t i = r->old_buckets; r->buckets && i < r->num_buckets; i++)
        free(r->buckets[i].name);
    for (uint32_t i = r->old_weights; r->weights && i < r->num_weights; i++)
        free(r->weights[i].name);
    free(r->weights);
    free(r->buckets);
    free(r->weight_messages);
    free(r->bucket_messages);
    free(r->weight_pointers);
    free(r->bucket_pointers);
}

/* malloc for `count` things; never NULL for none. */
static void *array_new(uint64_t count, size_t size)
{
    return calloc(count + 1, size);
}

static int registration_init(struct registration *r, uint32_t new_weights, uint32_t new_buckets)
{
    if (new_weights > UINT32_MAX - 1 - r->old_weights ||
        new_buckets > UINT32_MAX - 1 - r->old_buckets)
        return error_set(
            F8_ELIMIT, "group %s would have more than 2^32 - 2 weights or buckets", r->group->name);
    r->num_weights = r->old_weights + new_weights;
    r->num_buckets = r->old_buckets + new_buckets;
    r->weights = array_new(r->num_weights, sizeof(*r->weights));
    r->buckets = array_new(r->num_buckets, sizeof(*r->buckets));
    r->weight_messages = array_new(new_weights, sizeof(*r->weight_messages));
    r->bucket_messages = array_new(new_buckets, sizeof(*r->bucket_messages));
    r->weight_pointers = array_new(new_weights, sizeof(*r->weight_pointers));
    r->bucket_pointers = array_new(new_buckets, sizeof(*r->bucket_pointers));
    if (!r->weights || !r->buckets || !r->weight_messages || !r->bucket_messages ||
        !r->weight_pointers || !r->bucket_pointers)
        return error_set(F8_ENOMEM, "no memory to register %u weights", new_weights);
    if (r->old_weights > 0)
        memcpy(r->weights, r->group->weights, r->old_weights * sizeof(*r->weights));
    if (r->old_buckets > 0)
        memcpy(r->buckets, r->group->buckets, r->old_buckets * sizeof(*r->buckets));
    return F8_OK;
}

/* Rows and columns of a shape, with its padding below F8_PROTO_MAX_ELEMENTS. */
static int check_shape(const struct f8_weight_desc *desc, uint32_t world_size, struct weight *w)
{
    if (desc->ndim < 1 || desc->ndim > F8_MAX_DIMS)
        return error_set(F8_EINVAL, "weight %s has %u dimensions; 1 to %d are possible", desc->name,
            desc->ndim, F8_MAX_DIMS);
    uint64_t elements = desc->shape[0], cols = 1, padded;
    bool over = elements > F8_PROTO_MAX_ELEMENTS;
    for (uint32_t i = 1; i < desc->ndim; i++)
        over |= __builtin_mul_overflow(cols, desc->shape[i], &cols) || cols > F8_PROTO_MAX_ELEMENTS;
    if (!over)
        padded = f8_proto_chunk_rows(elements, world_size) * world_size;
    if (over || __builtin_mul_overflow(padded, cols, &padded) || padded > F8_PROTO_MAX_ELEMENTS)
        return error_set(F8_EINVAL, "weight %s has more than 2^48 elements", desc->name);
    memcpy(w->shape, desc->shape, desc->ndim * sizeof(w->shape[0]));
    w->ndim = desc->ndim;
    w->rows = desc->shape[0];
    w->cols = cols;
    return F8_OK;
}

static int lacks(const char *weight, enum f8_capability needed, const struct channel *channel)
{
    return error_set(F8_EVERSION, "weight %s needs %s, which f8gatherd %s at %s lacks", weight,
        f8_proto_capabilities[needed], channel_daemon_version(channel), channel_socket(channel));
}

/* An older daemon may lack a flavour: better told here than as an unknown number there. */
static int check_capability(const struct f8_weight_desc *desc, const struct channel *channel)
{
    static const enum f8_capability needed_by[] = {[F8_DYNAMIC] = F8_CAPABILITY_FLAVOUR_DYNAMIC,
        [F8_DELAYED] = F8_CAPABILITY_FLAVOUR_DELAYED,
        [F8_STATIC] = F8_CAPABILITY_FLAVOUR_STATIC,
        [F8_RAW] = F8_CAPABILITY_FLAVOUR_RAW,
        [F8_RAW_BF16] = F8_CAPABILITY_FLAVOUR_RAW_BF16};
    enum f8_capability needed = needed_by[desc->flavour];
    return channel_can(channel, needed) ? F8_OK : lacks(desc->name, needed, channel);
}

/* Types and flavour; what they mean together, the daemon checks. */
static int check_types(const struct f8_weight_desc *desc, struct weight *w)
{
    bool raw = desc->flavour == F8_RAW || desc->flavour == F8_RAW_BF16;
    if (f8_proto_dtype_size(desc->dtype) == 0)
        return error_set(F8_EINVAL, "weight %s: there is no dtype %d", desc->name, desc->dtype);
    if (!raw && desc->flavour != F8_DYNAMIC && desc->flavour != F8_DELAYED &&
        desc->flavour != F8_STATIC)
        return error_set(F8_EINVAL, "weight %s: there is no flavour %d", desc->name, desc->flavour);
    if (!raw && !f8_proto_format_name(desc->format))
        return error_set(
            F8_EINVAL, "weight %s: there is no float8 format %d", desc->name, desc->format);
    w->dtype = desc->dtype;
    w->flavour = desc->flavour;
    w->wire = (enum f8_wire)f8_proto_wire_of(desc->flavour, desc->dtype, desc->format);
    return F8_OK;
}

static bool is_scaled(const struct f8_weight_desc *desc)
{
    return desc->flavour == F8_DYNAMIC || desc->flavour == F8_DELAYED;
}

/* The group that a weight's amax is taken over, if it is another one than the weight's own. */
static int check_amax_group(
    struct registration *r, const struct f8_weight_desc *desc, struct weight *w)
{
    const struct f8_group *named = is_scaled(desc) ? desc->amax_group : NULL;
    if (!named || named == r->group)
        return F8_OK;
    if (named->client != r->group->client)
        return error_set(F8_EINVAL,
            "weight %s names amax group %s of another client: join that group with this client",
            desc->name, named->name);
    if (r->amax_group && r->amax_group != named)
        return error_set(F8_EINVAL,
            "weight %s names amax group %s, but other weights of group %s name %s: one is possible "
            "besides the group itself",
            desc->name, named->name, r->group->name, r->amax_group->name);
    if (!channel_can(r->group->client->channel, F8_CAPABILITY_AMAX_GROUP))
        return lacks(desc->name, F8_CAPABILITY_AMAX_GROUP, r->group->client->channel);
    r->amax_group = w->amax_group = named;
    return F8_OK;
}

static void fill_weight_message(F8__Weight *message, const struct f8_weight_desc *desc)
{
    f8__weight__init(message);
    message->name = (char *)(uintptr_t)desc->name;
    message->n_shape = desc->ndim;
    message->shape = (uint64_t *)(uintptr_t)desc->shape;
    message->dtype = desc->dtype;
    message->flavour = desc->flavour;
    /* What the flavour does not use is not sent, so that ranks cannot disagree about it. */
    bool delayed = desc->flavour == F8_DELAYED, scaled = is_scaled(desc);
    if (scaled || desc->flavour == F8_STATIC)
        message->format = desc->format;
    message->power_of_two = scaled && desc->power_of_two != 0;
    if (desc->flavour == F8_STATIC)
        memcpy(&message->static_scale, &desc->static_scale, sizeof(float));
    if (delayed) {
        message->history_length =
            desc->history_length ? desc->history_length : F8_PROTO_HISTORY_LENGTH;
        message->history_algorithm = desc->history;
    }
    if (desc->region) {
        message->region = desc->region->id;
        message->offset = desc->offset;
    }
}

/* Keeps what another daemon would have to be told. */
static int remember(const struct f8_weight_desc *desc, struct weight *w)
{
    w->region = desc->region;
    w->offset = desc->offset;
    w->format = desc->format;
    w->power_of_two = desc->power_of_two;
    w->static_scale = desc->static_scale;
    w->history_length = desc->history_length;
    w->history = desc->history;
    w->name = strdup(desc->name);
    return w->name ? F8_OK : error_set(F8_ENOMEM, "no memory for weight %s", desc->name);
}

static int add_weight(struct registration *r, uint32_t index)
{
    const struct f8_weight_desc *desc = &r->from[index];
    struct weight *w = &r->weights[r->old_weights + index];
    int status = client_check_name("weight", desc->name);
    if (status == F8_OK)
        status = check_shape(desc, r->group->world_size, w);
    if (status == F8_OK)
        status = check_types(desc, w);
    if (status == F8_OK)
        status = check_capability(desc, r->group->client->channel);
    if (status == F8_OK)
        status = check_amax_group(r, desc, w);
    if (status == F8_OK && desc->region && desc->region->client != r->group->client)
        status = error_set(F8_EREGION, "weight %s lies in a region of another client", desc->name);
    if (status == F8_OK)
        status = remember(desc, w);
    if (status != F8_OK)
        return status;
    w->bucket = GROUP_NO_BUCKET;
    fill_weight_message(&r->weight_messages[index], desc);
    if (w->amax_group)
        r->weight_messages[index].amax_group = w->amax_group->id;
    r->weight_pointers[index] = &r->weight_messages[index];
    return F8_OK;
}

/* Gives a bucket's weights their offsets in its place: the layout that GatherReply describes. */
static int lay_out(struct registration *r, struct bucket *bucket)
{
    uint64_t at = 0;
    for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        struct weight *w = &r->weights[i];
        w->at = at;
        uint64_t span = f8_proto_weight_span(
            w->rows, w->cols, r->group->world_size, f8_proto_wire_size(w->wire));
        if (__builtin_add_overflow(at, span, &at))
            return error_set(F8_EINVAL, "bucket %s has more than 2^64 bytes", bucket->name);
    }
    bucket->scales = at;
    bucket->span = at + f8_proto_scales_span(bucket->count);
    return F8_OK;
}

/* Claims the weights of a bucket, which must exist and be in no other. */
static int claim_weights(struct registration *r, uint32_t index)
{
    const struct bucket *bucket = &r->buckets[index];
    if (bucket->count == 0 || bucket->first >= r->num_weights ||
        bucket->count > r->num_weights - bucket->first)
        return error_set(F8_EINVAL,
            "bucket %s has weights %u to %llu (not included), but %u are registered", bucket->name,
            bucket->first, (unsigned long long)bucket->first + bucket->count, r->num_weights);
    for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        uint32_t *owner = &r->weights[i].bucket;
        if (*owner != GROUP_NO_BUCKET)
            return error_set(F8_EINVAL, "weight %u is in bucket %s and in bucket %s", i,
                r->buckets[*owner].name, bucket->name);
        *owner = index;
    }
    return F8_OK;
}

static int add_bucket(struct registration *r, const struct f8_bucket_desc *desc, uint32_t index)
{
    uint32_t number = r->old_buckets + index;
    struct bucket *bucket = &r->buckets[number];
    int status = client_check_name("bucket", desc->name);
    if (status != F8_OK)
        return status;
    bucket->name = strdup(desc->name);
    if (!bucket->name)
        return error_set(F8_ENOMEM, "no memory for bucket %s", desc->name);
    bucket->first = desc->first;
    bucket->count = desc->count;
    bucket->shared = desc->shared != 0;
    status = claim_weights(r, number);
    if (status == F8_OK)
        status = lay_out(r, bucket);
    F8__Bucket *message = &r->bucket_messages[index];
    f8__bucket__init(message);
    message->name = bucket->name;
    message->first = desc->first;
    message->count = desc->count;
    message->shared = bucket->shared;
    r->bucket_pointers[index] = message;
    return status;
}

/* Bytes of a message in a list: tag, length and itself. */
static size_t listed_size(const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    return size + 1 + (size < 128 ? 1 : size < 16384 ? 2 : 3);
}

/* How many messages of the list, from `from` on, fit into what is `left` of a packet. */
static uint32_t fit(void *const *messages, uint32_t from, uint32_t count, size_t *left)
{
    uint32_t taken = 0;
    for (; from + taken < count; taken++) {
        size_t size = listed_size(messages[from + taken]);
        if (size > *left)
            break;
        *left -= size;
    }
    return taken;
}

/* Sends the lists. Each packet waits for its reply: an error drops only what came before it. */
static int send_lists(struct registration *r)
{
    uint32_t new_weights = r->num_weights - r->old_weights;
    uint32_t new_buckets = r->num_buckets - r->old_buckets;
    uint32_t weight = 0, bucket = 0;
    int status;
    do {
        size_t left = F8_PROTO_MAX_PACKET - PACKET_RESERVE;
        F8__Register part = F8__REGISTER__INIT;
        part.group = r->group->id;
        part.weights = r->weight_pointers + weight;
        part.n_weights = fit((void *const *)r->weight_pointers, weight, new_weights, &left);
        weight += (uint32_t)part.n_weights;
        part.buckets = r->bucket_pointers + bucket;
        if (weight == new_weights)
            part.n_buckets = fit((void *const *)r->bucket_pointers, bucket, new_buckets, &left);
        bucket += (uint32_t)part.n_buckets;
        part.more = weight < new_weights || bucket < new_buckets;
        F8__Request request = F8__REQUEST__INIT;
        request.body_case = F8__REQUEST__BODY_REGISTER;
        request.register_ = &part;
        status = channel_call(r->group->client->channel, &request, -1, NULL);
        if (status == F8_OK && !part.more)
            return F8_OK;
    } while (status == F8_OK);
    return status;
}

/* The group takes the new lists. */
static void commit(struct registration *r)
{
    struct f8_group *group = r->group;
    pthread_mutex_lock(&group->lock);
    for (uint32_t i = 0; r->again && i < group->num_weights; i++)
        free(group->weights[i].name);
    for (uint32_t i = 0; r->again && i < group->num_buckets; i++) {
        /* The rank may hold it still, of the daemon before. */
        r->buckets[i].state = group->buckets[i].state;
        r->buckets[i].place = group->buckets[i].place;
        r->buckets[i].use = group->buckets[i].use;
        free(group->buckets[i].name);
    }
    free(group->weights);
    free(group->buckets);
    group->weights = r->weights;
    group->buckets = r->buckets;
    group->num_weights = r->num_weights;
    group->num_buckets = r->num_buckets;
    group->amax_group = r->amax_group;
    pthread_mutex_unlock(&group->lock);
    r->weights = NULL;
    r->buckets = NULL;
}

static int register_lists(struct registration *r, uint32_t num_weights,
    const struct f8_bucket_desc *buckets, uint32_t num_buckets)
{
    int status = registration_init(r, num_weights, num_buckets);
    for (uint32_t i = 0; status == F8_OK && i < num_weights; i++)
        status = add_weight(r, i);
    for (uint32_t i = 0; status == F8_OK && i < num_buckets; i++)
        status = add_bucket(r, &buckets[i], i);
    if (status == F8_OK)
        status = send_lists(r);
    if (status == F8_OK)
        commit(r);
    return status;
}

static int register_all(struct f8_group *group, const struct f8_weight_desc *weights,
    uint32_t num_weights, const struct f8_bucket_desc *buckets, uint32_t num_buckets)
{
    int status = group_begin_setup(group);
    if (status != F8_OK)
        return status;
    struct registration r = {.group = group,
        .from = weights,
        .amax_group = group->amax_group,
        .old_weights = group->num_weights,
        .old_buckets = group->num_buckets};
    if (group->sealed || group->seal != 0)
        status = error_set(F8_EORDER, "group %s is sealed: register before f8_seal", group->name);
    else if ((num_weights > 0 && !weights) || (num_buckets > 0 && !buckets))
        status = error_set(F8_EINVAL, "f8_register: the list of weights or buckets is NULL");
    else
        status = register_lists(&r, num_weights, buckets, num_buckets);
    registration_done(&r);
    group_end_setup(group);
    return status;
}

int f8_register(struct f8_group *group, const struct f8_weight_desc *weights, uint32_t num_weights,
    const struct f8_bucket_desc *buckets, uint32_t num_buckets)
{
    GROUP_CALL(group, register_all(group, weights, num_weights, buckets, num_buckets));
}

/* What the weight was registered with, and where its shard lies now. */
static struct f8_weight_desc desc_of(const struct weight *w)
{
    struct f8_weight_desc desc = {
        .name = w->name,
        .ndim = w->ndim,
        .dtype = w->dtype,
        .flavour = w->flavour,
        .format = w->format,
        .power_of_two = w->power_of_two,
        .static_scale = w->static_scale,
        .history_length = w->history_length,
        .history = w->history,
        .amax_group = w->amax_group,
        .region = w->region,
        .offset = w->offset,
    };
    memcpy(desc.shape, w->shape, w->ndim * sizeof(w->shape[0]));
    return desc;
}

int group_register_again(struct f8_group *group)
{
    struct f8_weight_desc *weights = array_new(group->num_weights, sizeof(*weights));
    struct f8_bucket_desc *buckets = array_new(group->num_buckets, sizeof(*buckets));
    struct registration r = {.group = group, .from = weights, .again = true};
    int status = F8_OK;
    if (!weights || !buckets)
        status = error_set(F8_ENOMEM, "no memory to register the weights of group %s", group->name);
    for (uint32_t i = 0; status == F8_OK && i < group->num_weights; i++)
        weights[i] = desc_of(&group->weights[i]);
    for (uint32_t i = 0; status == F8_OK && i < group->num_buckets; i++)
        buckets[i] = (struct f8_bucket_desc){.name = group->buckets[i].name,
            .first = group->buckets[i].first,
            .count = group->buckets[i].count,
            .shared = group->buckets[i].shared};
    if (status == F8_OK && group->num_weights + group->num_buckets > 0)
        status = register_lists(&r, group->num_weights, buckets, group->num_buckets);
    registration_done(&r);
    free(weights);
    free(buckets);
    return status;
}
