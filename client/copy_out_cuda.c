/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8_copy_out on a CUDA device: copies put on the caller's stream, one a weight where CUDA can do
 * it in one. Called by copy_out.c, any thread.
 */
#include <limits.h>

#include "client/copy_out.h"
#include "client/error.h"

/* Pieces that follow one another at `src` and go to every `pitch` bytes from `dst` on. */
struct pieces {
    driver_device_pointer dst, src;
    uint64_t size; /* bytes of each */
    uint64_t pitch;
    uint32_t count;
};

static int copy_in_rows(const struct driver *driver, const struct pieces *pieces, void *stream)
{
    const struct driver_copy rows = {.src_type = DRIVER_MEMORYTYPE_DEVICE,
        .src_device = pieces->src,
        .src_pitch = pieces->size,
        .dst_type = DRIVER_MEMORYTYPE_DEVICE,
        .dst_device = pieces->dst,
        .dst_pitch = pieces->pitch,
        .width = pieces->size,
        .height = pieces->count};
    return DRIVER_CALL(driver, copy_rows, "cuMemcpy2DAsync", &rows, stream);
}

static int copy_pieces(const struct driver *driver, const struct pieces *pieces, void *stream)
{
    int status = F8_OK;
    if (pieces->size == 0)
        return F8_OK;
    if (pieces->count > 1 && pieces->pitch <= INT_MAX) /* CUDA's largest pitch */
        return copy_in_rows(driver, pieces, stream);
    for (uint32_t i = 0; i < pieces->count && status == F8_OK; i++)
        status = DRIVER_CALL(driver, copy, "cuMemcpyAsync", pieces->dst + i * pieces->pitch,
            pieces->src + i * pieces->size, pieces->size, stream);
    return status;
}

/* Bytes from one rank's chunk of a weight to the next rank's, in the rank-major order. */
static uint64_t rank_pitch(const struct f8_group *group, const struct bucket *bucket)
{
    uint64_t pitch = 0;
    for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++)
        pitch += copy_out_chunk(group, &group->weights[i]);
    return pitch;
}

static int copy_weights(const struct f8_group *group, const struct bucket *bucket,
    enum f8_layout layout, driver_device_pointer dst, void *stream)
{
    const struct driver *driver = device_driver(client_device(group->client));
    driver_device_pointer place = (uintptr_t)bucket_place(group, bucket);
    uint64_t pitch = layout == F8_RANK_MAJOR ? rank_pitch(group, bucket) : 0;
    int status = F8_OK;
    for (uint32_t i = 0; i < bucket->count && status == F8_OK; i++) {
        const struct weight *w = &group->weights[bucket->first + i];
        struct pieces pieces = {.dst = dst, .src = place + w->at, .pitch = pitch};
        pieces.size = layout == F8_RANK_MAJOR ? copy_out_chunk(group, w) : copy_out_weight(w);
        pieces.count = layout == F8_RANK_MAJOR ? group->world_size : 1;
        status = copy_pieces(driver, &pieces, stream);
        dst += pieces.size;
    }
    return status;
}

int copy_out_on_device(const struct f8_group *group, const struct bucket *bucket,
    enum f8_layout layout, void *dst, void *stream)
{
    const struct device *device = client_device(group->client);
    int status = device_enter(device);
    if (status != F8_OK)
        return status;
    status = copy_weights(group, bucket, layout, (uintptr_t)dst, stream);
    device_exit(device);
    return status;
}
