/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that writes gathered bytes, over the shards of a table and a block to each part: casts
 * to float8 (cast.cuh), plain copies, fp32 to bf16, fills. Called by whoever fills the table, on
 * any thread.
 */
#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/parts.cuh"
#include "proto/status.h"

static __device__ __forceinline__ void to_bf16_part(
    const struct f8cu_task &task, const struct part &part)
{
    const uint32_t *src = (const uint32_t *)task.src + part.begin;
    uint16_t *dst = (uint16_t *)task.dst + part.begin;
    struct span span = span_of(src, part.count);
    bool aligned = is_aligned(dst + span.head, sizeof(uint2));
    for_each_single(span, [&](uint32_t i) { dst[i] = bf16_of(src[i]); });
    for_each_vector(
        (const uint4 *)(src + span.head), span.vectors, [&](uint32_t i, const uint4 &vector) {
            uint16_t *to = dst + span.head + i * 4;
            uint32_t first = bf16_of(vector.x), second = bf16_of(vector.y);
            uint32_t third = bf16_of(vector.z), fourth = bf16_of(vector.w);
            if (aligned) {
                __stcg((uint2 *)to, make_uint2(second << 16 | first, fourth << 16 | third));
            } else {
                to[0] = (uint16_t)first;
                to[1] = (uint16_t)second;
                to[2] = (uint16_t)third;
                to[3] = (uint16_t)fourth;
            }
        });
}

/* Loads vectors where src is aligned; dst takes each as the widest words that it is aligned to. */
static __device__ __forceinline__ void copy_part(
    const struct f8cu_task &task, const struct part &part)
{
    const uint8_t *src = (const uint8_t *)task.src + part.begin;
    uint8_t *dst = task.dst + part.begin;
    struct span span = span_of(src, part.count);
    uint8_t *body = dst + span.head;
    bool by_vectors = is_aligned(body, sizeof(uint4));
    bool by_words = is_aligned(body, sizeof(uint32_t));
    for_each_single(span, [&](uint32_t i) { dst[i] = src[i]; });
    for_each_vector(
        (const uint4 *)(src + span.head), span.vectors, [&](uint32_t i, const uint4 &vector) {
            const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
            uint8_t *to = body + i * sizeof(uint4);
            if (by_vectors) {
                __stcg((uint4 *)to, vector);
                return;
            }
#pragma unroll
            for (uint32_t w = 0; w < 4; w++) {
                if (by_words)
                    __stcg((uint32_t *)to + w, words[w]);
                else
                    store_codes(to + 4 * w, {words[w]}, false);
            }
        });
}

static __device__ __forceinline__ void fill_part(
    const struct f8cu_task &task, const struct part &part)
{
    uint8_t *dst = task.dst + part.begin;
    struct span span = span_of(dst, part.count);
    uint4 *vectors = (uint4 *)(dst + span.head);
    uint8_t byte = task.byte;
    uint32_t word = byte * 0x01010101u;
    for_each_single(span, [&](uint32_t i) { dst[i] = byte; });
    for (uint32_t i = threadIdx.x; i < span.vectors; i += BLOCK_THREADS)
        __stcg(vectors + i, make_uint4(word, word, word, word));
}

static __global__ void __launch_bounds__(BLOCK_THREADS)
    write_kernel(const struct f8cu_task *table, uint32_t num_tasks)
{
    const struct f8cu_task task = *find_task(table, num_tasks);
    struct part part = part_of(task.count, blockIdx.x - task.first_part);
    switch (task.op) {
    case F8CU_CAST:
        cast_part(task, part);
        break;
    case F8CU_COPY:
        copy_part(task, part);
        break;
    case F8CU_TO_BF16:
        to_bf16_part(task, part);
        break;
    case F8CU_FILL:
        fill_part(task, part);
        break;
    default:
        break;
    }
}

int f8cu_write(const struct f8cu_task *table, uint32_t num_tasks, uint32_t num_parts, void *stream)
{
    if (num_parts == 0)
        return F8_OK;
    if (!table || num_tasks == 0 || num_parts > INT32_MAX)
        return F8_EINVAL;
    cudaLaunchConfig_t config = launch_config(num_parts, BLOCK_THREADS, stream);
    return launch_result(cudaLaunchKernelEx(&config, write_kernel, table, num_tasks));
}
