/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies a held bucket into the caller's memory: weight after weight without padding, or in the
 * order of FSDP2's all-gather output (for each rank its padded chunk of every weight). On the host
 * it is done here, on devices by copy_out_cuda.c. Any thread.
 */
#include <string.h>

#include "client/copy_out.h"
#include "client/error.h"

static int check_layout(enum f8_layout layout)
{
    if (layout == F8_WEIGHT_MAJOR || layout == F8_RANK_MAJOR)
        return F8_OK;
    return error_set(F8_EINVAL, "there is no layout %d", (int)layout);
}

static uint64_t copy_size(
    const struct f8_group *group, const struct bucket *bucket, enum f8_layout layout)
{
    uint64_t size = 0;
    for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        const struct weight *w = &group->weights[i];
        size += layout == F8_WEIGHT_MAJOR ? copy_out_weight(w)
                                          : copy_out_chunk(group, w) * group->world_size;
    }
    return size;
}

static void copy_weight_major(const struct f8_group *group, const struct bucket *bucket, char *dst)
{
    const char *place = bucket_place(group, bucket);
    for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        const struct weight *w = &group->weights[i];
        memcpy(dst, place + w->at, copy_out_weight(w));
        dst += copy_out_weight(w);
    }
}

static void copy_rank_major(const struct f8_group *group, const struct bucket *bucket, char *dst)
{
    const char *place = bucket_place(group, bucket);
    for (uint32_t rank = 0; rank < group->world_size; rank++) {
        for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++) {
            const struct weight *w = &group->weights[i];
            uint64_t size = copy_out_chunk(group, w);
            memcpy(dst, place + w->at + rank * size, size);
            dst += size;
        }
    }
}

static int ask_copy_size(
    struct f8_group *group, uint32_t bucket, enum f8_layout layout, uint64_t *ret_size)
{
    struct bucket *b;
    int status = group_enter_bucket(group, bucket, &b);
    if (status != F8_OK)
        return status;
    status = check_layout(layout);
    if (status == F8_OK)
        *ret_size = copy_size(group, b, layout);
    pthread_mutex_unlock(&group->lock);
    return status;
}

int f8_copy_size(struct f8_group *group, uint32_t bucket, enum f8_layout layout, uint64_t *ret_size)
{
    GROUP_CALL_LOCAL(group, ask_copy_size(group, bucket, layout, ret_size));
}

static int check_copy(const struct f8_group *group, const struct bucket *bucket,
    enum f8_layout layout, const void *dst, uint64_t size)
{
    int status = check_layout(layout);
    if (status != F8_OK)
        return status;
    if (bucket->state != BUCKET_HELD)
        return error_set(
            F8_EORDER, "f8_copy_out of bucket %s, which this rank does not hold", bucket->name);
    uint64_t needed = copy_size(group, bucket, layout);
    if (size < needed || (!dst && needed > 0))
        return error_set(F8_EINVAL, "f8_copy_out of bucket %s: %llu bytes given, it needs %llu",
            bucket->name, (unsigned long long)size, (unsigned long long)needed);
    return F8_OK;
}

static int copy_bucket(struct f8_group *group, uint32_t bucket, enum f8_layout layout, void *dst,
    uint64_t size, void *stream)
{
    struct bucket *b;
    int status = group_enter_bucket(group, bucket, &b);
    if (status != F8_OK)
        return status;
    status = client_check_stream(group->client, "f8_copy_out", stream);
    if (status == F8_OK)
        status = check_copy(group, b, layout, dst, size);
    /* The copy reads without the lock: what it reads stays put while the bucket is held. */
    const struct bucket held = *b;
    pthread_mutex_unlock(&group->lock);
    if (status != F8_OK)
        return status;
    if (client_device(group->client))
        return copy_out_on_device(group, &held, layout, dst, stream);
    if (layout == F8_WEIGHT_MAJOR)
        copy_weight_major(group, &held, dst);
    else
        copy_rank_major(group, &held, dst);
    return F8_OK;
}

int f8_copy_out(struct f8_group *group, uint32_t bucket, enum f8_layout layout, void *dst,
    uint64_t size, void *stream)
{
    GROUP_CALL_LOCAL(group, copy_bucket(group, bucket, layout, dst, size, stream));
}
