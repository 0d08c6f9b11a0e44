/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of registered weights and buckets: see weights.h. */
#include "daemon/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct weight_list *weights_new(uint32_t world_size)
{
    struct weight_list *list = calloc(1, sizeof(*list));
    if (!list)
        return NULL;
    list->world_size = world_size;
    list->refs = 1;
    return list;
}

struct weight_list *weights_ref(struct weight_list *list)
{
    list->refs++;
    return list;
}

void weights_unref(struct weight_list *list)
{
    if (!list || --list->refs > 0)
        return;
    names_done(&list->weight_names);
    names_done(&list->bucket_names);
    free(list->weights);
    free(list->buckets);
    free(list);
}

bool weight_is_float8(const struct weight *weight)
{
    return weight->flavour == F8_PROTO_DYNAMIC || weight->flavour == F8_PROTO_DELAYED ||
           weight->flavour == F8_PROTO_STATIC;
}

uint64_t weight_shard_rows(const struct weight *weight, uint32_t world_size, uint32_t rank)
{
    return f8_proto_shard_rows(weight->rows, world_size, rank);
}

uint64_t weight_shard_count(const struct weight *weight, uint32_t world_size, uint32_t rank)
{
    return weight_shard_rows(weight, world_size, rank) * weight->cols;
}

uint64_t weight_chunk_count(const struct weight *weight, uint32_t world_size)
{
    return f8_proto_chunk_rows(weight->rows, world_size) * weight->cols;
}

uint64_t weight_wire_bytes(const struct weight *weight)
{
    return weight->rows * weight->cols * f8_proto_wire_size(weight->wire);
}

char *weight_shape_text(const struct weight *weight, char *buffer, size_t size)
{
    size_t used = 0;
    for (uint32_t d = 0; d < weight->ndim && used < size; d++)
        used += (size_t)snprintf(
            buffer + used, size - used, "%s%" PRIu64, d ? ", " : "[", weight->shape[d]);
    if (used < size)
        (void)snprintf(buffer + used, size - used, "]");
    return buffer;
}

int weights_check_name(const char *what, uint32_t index, const char *name, struct reason *reason)
{
    char buffer[F8_PROTO_FAULT_SIZE];
    const char *fault = f8_proto_name_fault(name, buffer);
    return fault ? reason_set(reason, F8_EINVAL, "the name of %s %u %s", what, index, fault)
                 : F8_OK;
}

/* Fills in rows and cols. */
static int check_shape(const char *name, struct weight *weight, struct reason *reason)
{
    if (weight->ndim < 1 || weight->ndim > F8_PROTO_MAX_DIMS)
        return reason_set(reason, F8_EINVAL, "weight %s has %u dimensions, allowed are 1 to %d",
            name, weight->ndim, F8_PROTO_MAX_DIMS);
    weight->rows = weight->shape[0];
    weight->cols = 1;
    uint64_t most = F8_PROTO_MAX_ELEMENTS;
    for (uint32_t d = 0; d < weight->ndim; d++) {
        uint64_t size = weight->shape[d];
        if (size > most)
            return reason_set(reason, F8_EINVAL, "weight %s has more than 2^48 elements", name);
        most = size ? most / size : most;
        weight->cols *= d ? size : 1;
    }
    return F8_OK;
}

static int check_flavour(const char *name, const struct weight *weight, struct reason *reason)
{
    if (!f8_proto_flavour_name(weight->flavour))
        return reason_set(reason, F8_EINVAL, "weight %s has flavour %u, which this daemon lacks",
            name, weight->flavour);
    if (weight->flavour == F8_PROTO_RAW_BF16 && weight->dtype != F8_PROTO_F32)
        return reason_set(reason, F8_EINVAL,
            "weight %s: flavour raw-bf16 takes float32 sources, not %s", name,
            f8_proto_dtype_name(weight->dtype));
    if (!weight_is_float8(weight))
        return F8_OK;
    if (!f8_proto_format_name(weight->format))
        return reason_set(reason, F8_EINVAL,
            "weight %s has float8 format %u, known are 1 (e4m3fn) "
            "and 2 (e5m2)",
            name, weight->format);
    if (weight->flavour == F8_PROTO_DELAYED &&
        (weight->history_length < 1 || weight->history_length > F8_PROTO_MAX_HISTORY_LENGTH))
        return reason_set(reason, F8_EINVAL,
            "weight %s has an amax history of %u, allowed are 1 to %d", name,
            weight->history_length, F8_PROTO_MAX_HISTORY_LENGTH);
    if (weight->flavour == F8_PROTO_DELAYED && !f8_proto_history_name(weight->history_algorithm))
        return reason_set(reason, F8_EINVAL,
            "weight %s has history algorithm %u, known are 0 (max) and 1 (most-recent)", name,
            weight->history_algorithm);
    float scale;
    memcpy(&scale, &weight->static_bits, sizeof(scale));
    if (weight->flavour == F8_PROTO_STATIC && !(isfinite(scale) && scale > 0))
        return reason_set(reason, F8_EINVAL,
            "weight %s has static scale %g, which must be finite and above 0", name, (double)scale);
    return F8_OK;
}

static int check_weight(const char *name, struct weight *weight, struct reason *reason)
{
    int status = check_shape(name, weight, reason);
    if (status < 0)
        return status;
    if (!f8_proto_dtype_name(weight->dtype))
        return reason_set(reason, F8_EINVAL,
            "weight %s has dtype %u, known are 1 (float32), 2 (bfloat16) and 3 (float16)", name,
            weight->dtype);
    return check_flavour(name, weight, reason);
}

/* Makes room for one more element of `size` bytes. */
static int reserve_one(void **array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return F8_OK;
    uint32_t bigger = *capacity ? *capacity * 2 : 16;
    void *grown = realloc(*array, bigger * size);
    if (!grown)
        return F8_ENOMEM;
    *array = grown;
    *capacity = bigger;
    return F8_OK;
}

/* Adds a name to a set of the list, with the texts for what can go wrong. */
static int take_name(struct names *names, const char *what, const char *name, const char **ret_name,
    struct reason *reason)
{
    int status = names_add(names, name, ret_name);
    if (status == F8_EEXIST)
        return reason_set(reason, status, "%s %s is registered twice by this rank", what, name);
    if (status < 0)
        return reason_set(reason, status, "out of memory registering %s %s", what, name);
    return F8_OK;
}

int weights_add(struct weight_list *list, const char *name, const struct weight *weight,
    uint32_t limit, struct reason *reason)
{
    struct weight added = *weight;
    int status = weights_check_name("weight", list->num_weights, name, reason);
    if (status == F8_OK)
        status = check_weight(name, &added, reason);
    if (status < 0)
        return status;
    if (list->num_weights >= limit)
        return reason_set(reason, F8_ELIMIT,
            "weight %s is one more than the limit of %u weights (--max-weights)", name, limit);
    if (reserve_one(
            (void **)&list->weights, list->num_weights, &list->weights_capacity, sizeof(added)) < 0)
        return reason_set(reason, F8_ENOMEM, "out of memory registering weight %s", name);
    status = take_name(&list->weight_names, "weight", name, &added.name, reason);
    if (status < 0)
        return status;
    added.wire = (uint8_t)f8_proto_wire_of(added.flavour, added.dtype, added.format);
    added.bucket = WEIGHT_NO_BUCKET;
    if (!weight_is_float8(&added))
        added.format = 0;
    if (added.flavour != F8_PROTO_STATIC)
        added.static_bits = 0;
    if (added.flavour != F8_PROTO_DYNAMIC && added.flavour != F8_PROTO_DELAYED)
        added.power_of_two = false;
    if (added.flavour != F8_PROTO_DELAYED)
        added.history_length = added.history_algorithm = 0;
    list->weights[list->num_weights++] = added;
    return F8_OK;
}

static int check_bucket_range(
    const struct weight_list *list, const struct bucket_info *bucket, struct reason *reason)
{
    if (bucket->count == 0)
        return reason_set(reason, F8_EINVAL, "bucket %s has no weights", bucket->name);
    if (bucket->first > list->num_weights || bucket->count > list->num_weights - bucket->first)
        return reason_set(reason, F8_EINVAL,
            "bucket %s has weights %u to %" PRIu64 ", but only %u are registered", bucket->name,
            bucket->first, (uint64_t)bucket->first + bucket->count - 1, list->num_weights);
    for (uint32_t w = bucket->first; w < bucket->first + bucket->count; w++)
        if (list->weights[w].bucket != WEIGHT_NO_BUCKET)
            return reason_set(reason, F8_EINVAL, "weight %s is in bucket %s and in bucket %s",
                list->weights[w].name, list->buckets[list->weights[w].bucket].name, bucket->name);
    return F8_OK;
}

int weights_add_bucket(
    struct weight_list *list, const struct bucket_info *bucket, struct reason *reason)
{
    struct bucket_info added = *bucket;
    int status = weights_check_name("bucket", list->num_buckets, bucket->name, reason);
    if (status == F8_OK)
        status = check_bucket_range(list, bucket, reason);
    if (status < 0)
        return status;
    if (reserve_one(
            (void **)&list->buckets, list->num_buckets, &list->buckets_capacity, sizeof(added)) < 0)
        return reason_set(reason, F8_ENOMEM, "out of memory registering bucket %s", bucket->name);
    status = take_name(&list->bucket_names, "bucket", bucket->name, &added.name, reason);
    if (status < 0)
        return status;
    for (uint32_t w = added.first; w < added.first + added.count; w++)
        list->weights[w].bucket = list->num_buckets;
    list->buckets[list->num_buckets++] = added;
    return F8_OK;
}

void weights_truncate(struct weight_list *list, uint32_t num_weights, uint32_t num_buckets)
{
    while (list->num_buckets > num_buckets) {
        const struct bucket_info *bucket = &list->buckets[--list->num_buckets];
        for (uint32_t w = bucket->first; w < bucket->first + bucket->count; w++)
            list->weights[w].bucket = WEIGHT_NO_BUCKET;
        names_remove(&list->bucket_names, bucket->name);
    }
    while (list->num_weights > num_weights)
        names_remove(&list->weight_names, list->weights[--list->num_weights].name);
}

void weights_trim(struct weight_list *list)
{
    void *weights = realloc(list->weights, list->num_weights * sizeof(*list->weights));
    if (weights) {
        list->weights = weights;
        list->weights_capacity = list->num_weights;
    }
    void *buckets = realloc(list->buckets, list->num_buckets * sizeof(*list->buckets));
    if (buckets) {
        list->buckets = buckets;
        list->buckets_capacity = list->num_buckets;
    }
}

int weights_check_complete(const struct weight_list *list, struct reason *reason)
{
    if (list->num_buckets == 0)
        return reason_set(reason, F8_EORDER,
            "no bucket is registered: register weights and buckets before the seal, or seal the "
            "groups first whose weights name this one as their amax group");
    for (uint32_t w = 0; w < list->num_weights; w++)
        if (list->weights[w].bucket == WEIGHT_NO_BUCKET)
            return reason_set(
                reason, F8_EINVAL, "weight %s is in no bucket", list->weights[w].name);
    return F8_OK;
}

/* *sum += bytes; F8_ELIMIT if no file could have that size, so that no arithmetic ever wraps. */
static int grow_size(uint64_t *sum, uint64_t bytes)
{
    uint64_t size;
    if (__builtin_add_overflow(*sum, bytes, &size) || size > INT64_MAX)
        return F8_ELIMIT;
    *sum = size;
    return F8_OK;
}

/* Puts the bucket's weights one behind the other, and the scales behind them. */
static int lay_out_bucket(struct weight_list *list, struct bucket_info *bucket)
{
    uint64_t offset = 0;
    int status = F8_OK;
    for (uint32_t w = bucket->first; w < bucket->first + bucket->count && status == F8_OK; w++) {
        struct weight *weight = &list->weights[w];
        weight->offset = offset;
        status = grow_size(&offset, f8_proto_weight_span(weight->rows, weight->cols,
                                        list->world_size, f8_proto_wire_size(weight->wire)));
    }
    bucket->scales = offset;
    if (status == F8_OK)
        status = grow_size(&offset, f8_proto_scales_span(bucket->count));
    bucket->span = offset;
    return status;
}

int weights_lay_out(struct weight_list *list, uint32_t slots, struct weights_layout *ret_layout)
{
    struct weights_layout layout = {0};
    int status = F8_OK;
    for (uint32_t b = 0; b < list->num_buckets && status == F8_OK; b++) {
        struct bucket_info *bucket = &list->buckets[b];
        status = lay_out_bucket(list, bucket);
        bucket->own = layout.size;
        if (!bucket->shared && status == F8_OK)
            status = grow_size(&layout.size, bucket->span);
        else if (bucket->span > layout.slot_span)
            layout.slot_span = bucket->span;
    }
    uint64_t of_slots;
    if (status < 0 || __builtin_mul_overflow(layout.slot_span, slots, &of_slots) ||
        grow_size(&layout.size, of_slots) < 0)
        return F8_ELIMIT;
    *ret_layout = layout;
    return F8_OK;
}

bool weights_have_own_scales(const struct weight_list *list)
{
    bool foreign = false;
    for (uint32_t w = 0; w < list->num_weights; w++) {
        const struct weight *weight = &list->weights[w];
        bool scaled = weight->flavour == F8_PROTO_DYNAMIC || weight->flavour == F8_PROTO_DELAYED;
        if (scaled && weight->amax_group == 0)
            return true;
        foreign = foreign || scaled;
    }
    return !foreign;
}
