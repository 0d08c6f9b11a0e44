/* SPDX-License-Identifier: Apache-2.0 */
/*
 * amax over the shards of a table, a block to each part.
 * Called by whoever fills the table, on any thread.
 */
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/magnitude.cuh"
#include "kernels/cuda/parts.cuh"
#include "proto/status.h"

/* The amax of what this thread sees of a part. */
template <enum f8k_dtype dtype>
static __device__ __forceinline__ uint32_t thread_amax(const void *src, const struct part &part)
{
    using element = typename element_of<dtype>::type;
    const element *elements = (const element *)src + part.begin;
    struct span span = span_of(elements, part.count);
    magnitude_max<dtype> amax;
    for_each_single(span, [&](uint32_t i) { amax.add_element(elements[i]); });
    for_each_vector((const uint4 *)(elements + span.head), span.vectors,
        [&](uint32_t, const uint4 &vector) { amax.add_vector(vector); });
    return amax.bits();
}

static __global__ void __launch_bounds__(BLOCK_THREADS)
    amax_kernel(const struct f8cu_task *table, uint32_t num_tasks)
{
    const struct f8cu_task *task = find_task(table, num_tasks);
    struct part part = part_of(task->count, blockIdx.x - task->first_part);
    uint32_t amax;
    if (task->op != F8CU_AMAX)
        return;
    if (task->dtype == F8K_F32)
        amax = thread_amax<F8K_F32>(task->src, part);
    else if (task->dtype == F8K_BF16)
        amax = thread_amax<F8K_BF16>(task->src, part);
    else
        amax = thread_amax<F8K_F16>(task->src, part);
    raise_amax(task->amax, amax);
}

int f8cu_amax(const struct f8cu_task *table, uint32_t num_tasks, uint32_t num_parts, void *stream)
{
    if (num_parts == 0)
        return F8_OK;
    if (!table || num_tasks == 0 || num_parts > INT32_MAX)
        return F8_EINVAL;
    cudaLaunchConfig_t config = launch_config(num_parts, BLOCK_THREADS, stream);
    return launch_result(cudaLaunchKernelEx(&config, amax_kernel, table, num_tasks));
}
