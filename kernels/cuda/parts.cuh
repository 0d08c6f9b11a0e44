/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a block gets at its work: the entry of a table that its part belongs to, the vectors of 16
 * bytes in that part, and the sums and maxima of what its threads found. Included by the kernels
 * only. All threads of a block call these functions together.
 */
#ifndef F8_KERNELS_CUDA_PARTS_CUH
#define F8_KERNELS_CUDA_PARTS_CUH

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/numbers.cuh"

constexpr uint32_t BLOCK_THREADS = 256;
constexpr uint32_t WARP_THREADS = 32;
constexpr uint32_t BLOCK_WARPS = BLOCK_THREADS / WARP_THREADS;
constexpr uint32_t ALL_LANES = 0xffffffff;

/* Vectors that a thread has under way at a time: enough to hide the way to memory. */
constexpr uint32_t BATCH = 4;

/* The elements [begin, begin + count) of a tensor. */
struct part {
    uint64_t begin;
    uint32_t count; /* at most F8CU_PART */
};

/* Part `index` of a tensor of `count` elements; empty past its end. */
static __device__ __forceinline__ struct part part_of(uint64_t count, uint32_t index)
{
    struct part part;
    part.begin = (uint64_t)index * F8CU_PART;
    uint64_t left = part.begin < count ? count - part.begin : 0;
    part.count = left < F8CU_PART ? (uint32_t)left : F8CU_PART;
    return part;
}

/*
 * The entry that this block works on: the last one whose first part is not past the block's.
 * Entries without parts have the first part of the entry that follows, so none of them is it.
 */
static __device__ __forceinline__ const struct f8cu_task *find_task(
    const struct f8cu_task *table, uint32_t num_tasks)
{
    uint32_t low = 0, high = num_tasks;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (table[middle].first_part <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return &table[low];
}

/*
 * How elements fall into vectors of 16 bytes, where the pointer to them is aligned to an element
 * only: some single ones in front, the vectors, some single ones behind.
 */
struct span {
    uint32_t head;    /* elements in front of the first vector */
    uint32_t vectors; /* of per_vector elements each */
    uint32_t singles; /* in front and behind: less than two vectors' */
    uint32_t per_vector;
};

template <typename Element>
static __device__ __forceinline__ struct span span_of(const Element *elements, uint32_t count)
{
    struct span span;
    span.per_vector = sizeof(uint4) / sizeof(Element);
    span.head = (uint32_t)(-(uintptr_t)elements % sizeof(uint4)) / sizeof(Element);
    if (span.head > count)
        span.head = count;
    span.vectors = (count - span.head) / span.per_vector;
    span.singles = count - span.vectors * span.per_vector;
    return span;
}

/* Calls single(i) for each element i that is in no vector. */
template <typename Single>
static __device__ __forceinline__ void for_each_single(const struct span &span, Single single)
{
    static_assert(2 * sizeof(uint4) <= BLOCK_THREADS, "a thread for each single element");
    uint32_t i = threadIdx.x;
    if (i < span.singles)
        single(i < span.head ? i : i + span.vectors * span.per_vector);
}

/*
 * Loads each vector and calls use(i, vector): several loads, then what is done with them. Pointers
 * out of a table could be of any memory, for all that the compiler knows; __ldcg and __stcg say
 * that it is global, and that only the second-level cache will see it again.
 */
template <typename Use>
static __device__ __forceinline__ void for_each_vector(
    const uint4 *vectors, uint32_t count, Use use)
{
    uint32_t i = threadIdx.x;
    for (; i + (BATCH - 1) * BLOCK_THREADS < count; i += BATCH * BLOCK_THREADS) {
        uint4 batch[BATCH];
#pragma unroll
        for (uint32_t b = 0; b < BATCH; b++)
            batch[b] = __ldcg(vectors + i + b * BLOCK_THREADS);
#pragma unroll
        for (uint32_t b = 0; b < BATCH; b++)
            use(i + b * BLOCK_THREADS, batch[b]);
    }
    for (; i < count; i += BLOCK_THREADS)
        use(i, __ldcg(vectors + i));
}

/* Whether a pointer is aligned to so many bytes, a power of two. */
static __device__ __forceinline__ bool is_aligned(const void *pointer, uint32_t bytes)
{
    return (uintptr_t)pointer % bytes == 0;
}

static __device__ __forceinline__ uint32_t warp_max(uint32_t value)
{
#pragma unroll
    for (uint32_t distance = WARP_THREADS / 2; distance > 0; distance /= 2)
        value = larger(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

static __device__ __forceinline__ uint32_t warp_sum(uint32_t value)
{
#pragma unroll
    for (uint32_t distance = WARP_THREADS / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

/* The largest of the block's values, in thread 0. Once in a kernel: its memory is not cleared. */
static __device__ __forceinline__ uint32_t block_max(uint32_t value)
{
    __shared__ uint32_t warps[BLOCK_WARPS];
    value = warp_max(value);
    if (threadIdx.x % WARP_THREADS == 0)
        warps[threadIdx.x / WARP_THREADS] = value;
    __syncthreads();
    if (threadIdx.x < WARP_THREADS)
        value = warp_max(threadIdx.x < BLOCK_WARPS ? warps[threadIdx.x] : 0);
    return value;
}

/* The sum of the block's values, in thread 0. Once in a kernel. */
static __device__ __forceinline__ uint32_t block_sum(uint32_t value)
{
    __shared__ uint32_t warps[BLOCK_WARPS];
    value = warp_sum(value);
    if (threadIdx.x % WARP_THREADS == 0)
        warps[threadIdx.x / WARP_THREADS] = value;
    __syncthreads();
    if (threadIdx.x < WARP_THREADS)
        value = warp_sum(threadIdx.x < BLOCK_WARPS ? warps[threadIdx.x] : 0);
    return value;
}

/* Raises *amax to the largest of the block's values: one atomic a block, none for 0. */
static __device__ __forceinline__ void raise_amax(uint32_t *amax, uint32_t value)
{
    value = block_max(value);
    if (threadIdx.x == 0 && value > 0)
        atomicMax(amax, value);
}

#endif
