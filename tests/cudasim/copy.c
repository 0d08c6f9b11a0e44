/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills. As with CUDA, pageable host memory is read before the call returns, and written
 * before it returns; only pinned memory makes a copy asynchronous. A copy that leaves an allocation
 * is refused when it is asked for.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>

enum place { PLACE_PAGEABLE, PLACE_HOST, PLACE_DEVICE };

struct copy_job {
    struct cudasim_copy copy;
    void *staged; /* owned: what pageable memory held; NULL */
};

struct fill_job {
    void *dst;
    int byte;
    size_t size;
};

/* Bytes from the first to the last of one side of a copy. */
static size_t extent(size_t pitch, size_t width, size_t height)
{
    return pitch * (height - 1) + width;
}

/* Where [base, base + size) lies; faults for freed memory. */
static CUresult find_place(const void *base, size_t size, const char *what, enum place *ret_place)
{
    CUresult result = CUDA_SUCCESS;
    char text[160];
    memory_lock();
    const struct range *range = memory_at((uintptr_t)base);
    if (range && range->end) {
        memory_describe(range, text, sizeof text);
        cudasim_fault("use after free: %s with byte %zu of %s", what,
            (size_t)((uintptr_t)base - range->base), text);
    }
    if (!range) {
        *ret_place = PLACE_PAGEABLE;
        result = memory_is_reserved((uintptr_t)base) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    } else if ((uintptr_t)base - range->base + size > range->size &&
               range->kind != RANGE_MAPPING) { /* mappings may lie side by side */
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        *ret_place = range_is_for_host(range) ? PLACE_HOST : PLACE_DEVICE;
    }
    memory_unlock();
    return result;
}

static void run_copy(void *argument)
{
    struct copy_job *job = argument;
    const struct cudasim_copy *copy = &job->copy;
    cudasim_allow(copy->src, extent(copy->src_pitch, copy->width, copy->height), false);
    cudasim_allow(copy->dst, extent(copy->dst_pitch, copy->width, copy->height), true);
    for (size_t row = 0; row < copy->height; row++)
        memmove((char *)copy->dst + row * copy->dst_pitch,
            (const char *)copy->src + row * copy->src_pitch, copy->width);
    free(job->staged);
    free(job);
}

/* Reads the source now, into rows without gaps. */
static void stage(struct copy_job *job)
{
    struct cudasim_copy *copy = &job->copy;
    char *staged = malloc(copy->width * copy->height);
    if (!staged)
        cudasim_fault("out of host memory");
    for (size_t row = 0; row < copy->height; row++)
        memcpy(staged + row * copy->width, (const char *)copy->src + row * copy->src_pitch,
            copy->width);
    copy->src = staged;
    copy->src_pitch = copy->width;
    job->staged = staged;
}

/* Queues the copy; says whether the host would have to wait for it. */
static CUresult start(
    const struct cudasim_copy *copy, CUstream stream, const char *what, bool *ret_is_pageable)
{
    enum place src, dst;
    if (!copy->width || !copy->height)
        return CUDA_SUCCESS;
    if (!copy->src || !copy->dst ||
        (copy->height > 1 && (copy->src_pitch < copy->width || copy->dst_pitch < copy->width)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result =
        find_place(copy->src, extent(copy->src_pitch, copy->width, copy->height), what, &src);
    if (!result)
        result =
            find_place(copy->dst, extent(copy->dst_pitch, copy->width, copy->height), what, &dst);
    if (result)
        return result;
    struct copy_job *job = calloc(1, sizeof *job);
    if (!job)
        return CUDA_ERROR_OUT_OF_MEMORY;
    job->copy = *copy;
    if (src == PLACE_PAGEABLE && dst != PLACE_PAGEABLE)
        stage(job);
    *ret_is_pageable = src == PLACE_PAGEABLE || dst == PLACE_PAGEABLE;
    cudasim_count(CUDASIM_COPIES, 1);
    result = stream_push(stream, what, OPERATION_DEVICE, run_copy, job);
    if (!result && dst == PLACE_PAGEABLE)
        stream_drain(stream);
    return result;
}

CUresult cudasim_copy_async(const struct cudasim_copy *copy, CUstream stream, const char *what)
{
    bool is_pageable = false;
    cudasim_stream_device(stream); /* faults for a wrong one */
    CUresult result = start(copy, stream, what, &is_pageable);
    if (is_pageable)
        cudasim_count(CUDASIM_HOST_SYNCS, 1);
    return result;
}

CUresult cudasim_copy_now(const struct cudasim_copy *copy, const char *what)
{
    CUstream stream = stream_of_device(cudasim_current_device());
    bool is_pageable = false;
    CUresult result = start(copy, stream, what, &is_pageable);
    cudasim_count(CUDASIM_HOST_SYNCS, 1);
    stream_drain(stream);
    return result;
}

static void run_fill(void *argument)
{
    struct fill_job *job = argument;
    cudasim_allow(job->dst, job->size, true);
    memset(job->dst, job->byte, job->size);
    free(job);
}

CUresult cudasim_fill_async(void *dst, int byte, size_t size, CUstream stream, const char *what)
{
    enum place place;
    if (!size)
        return CUDA_SUCCESS;
    CUresult result = find_place(dst, size, what, &place);
    if (result || place == PLACE_PAGEABLE)
        return CUDA_ERROR_INVALID_VALUE;
    struct fill_job *job = malloc(sizeof *job);
    if (!job)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *job = (struct fill_job){dst, byte, size};
    cudasim_count(CUDASIM_COPIES, 1);
    return stream_push(stream, what, OPERATION_DEVICE, run_fill, job);
}

CUresult cudasim_fill_now(void *dst, int byte, size_t size, const char *what)
{
    CUstream stream = stream_of_device(cudasim_current_device());
    CUresult result = cudasim_fill_async(dst, byte, size, stream, what);
    cudasim_count(CUDASIM_HOST_SYNCS, 1);
    stream_drain(stream);
    return result;
}
