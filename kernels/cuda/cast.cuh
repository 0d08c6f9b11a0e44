/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cast of a part of a shard to float8: y = fp32(x) * scale, clamped, rounded to nearest even,
 * with the counts of what the clamp changed and of NaNs, and the source's amax if it is wanted.
 * Included by write.cu; all threads of a block together.
 *
 * Vectors of 16 bytes begin where the source is aligned. Their 4 or 8 codes are stored as one word
 * if the destination happens to be aligned there too, as it is for all but odd shapes.
 */
#ifndef F8_KERNELS_CUDA_CAST_CUH
#define F8_KERNELS_CUDA_CAST_CUH

#include "kernels/cuda/magnitude.cuh"
#include "kernels/cuda/parts.cuh"

/* Both counts of a part in a word, so that one sum over the block will do. */
constexpr uint32_t ONE_SATURATED = 1;
constexpr uint32_t ONE_NAN = 1u << 16;
static_assert(F8CU_PART < ONE_NAN, "the count of a part fits in half a word");

/* What a thread met in its share of a part. */
struct tally {
    uint32_t counts;
    uint32_t amax; /* fp32 bits; only where the task wants it */
};

/* The value of an element from its pattern. */
template <enum f8k_dtype dtype> static __device__ __forceinline__ float value_of(uint32_t pattern)
{
    if (dtype == F8K_F32)
        return __uint_as_float(pattern);
    if (dtype == F8K_BF16)
        return __uint_as_float(pattern << 16);
    return __half2float(__ushort_as_half((uint16_t)pattern));
}

/* The values of the elements in a vector. */
template <enum f8k_dtype dtype>
static __device__ __forceinline__ void unpack(
    const uint4 &vector, float (&values)[per_vector<dtype>])
{
    const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        if constexpr (dtype == F8K_F32) {
            values[i] = value_of<dtype>(words[i]);
        } else {
            values[2 * i] = value_of<dtype>(words[i] & 0xffff);
            values[2 * i + 1] = value_of<dtype>(words[i] >> 16);
        }
    }
}

/*
 * Makes scaled values fit the format and counts those that do not: too large ones are clamped; a
 * NaN becomes +0, over which its bits in `nan_codes` are laid. So no NaN is converted, whose code
 * would differ between devices.
 */
template <enum f8k_format format, uint32_t count>
static __device__ __forceinline__ void settle(
    float (&values)[count], uint32_t (&nan_codes)[(count + 3) / 4], uint32_t &counts)
{
#pragma unroll
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = __float_as_uint(values[i]);
        if (is_nan(bits)) {
            counts += ONE_NAN;
            nan_codes[i / 4] |= FP8_NAN << 8 * (i % 4);
            values[i] = 0;
        } else if (magnitude_of(bits) > fp8_spec<format>::max_bits) {
            counts += ONE_SATURATED;
            values[i] = __uint_as_float((bits & 0x80000000) | fp8_spec<format>::max_bits);
        }
    }
}

/* Scales and encodes one value or an even number, four codes to a word. Only vectors with something
 * to count, which are few, take the long way. */
template <enum f8k_format format, uint32_t count>
static __device__ __forceinline__ void encode(
    float (&values)[count], float scale, uint32_t (&codes)[(count + 3) / 4], uint32_t &counts)
{
    uint32_t peak = 0;
#pragma unroll
    for (uint32_t i = 0; i < count; i++) {
        values[i] = __fmul_rn(values[i], scale);
        peak = larger(peak, magnitude_of(__float_as_uint(values[i])));
    }
#pragma unroll
    for (uint32_t i = 0; i < (count + 3) / 4; i++)
        codes[i] = 0;
    if (peak > fp8_spec<format>::max_bits)
        settle<format, count>(values, codes, counts);
#pragma unroll
    for (uint32_t i = 0; i < count; i += 2) {
        float second = 0;
        if constexpr (count > 1)
            second = values[i + 1];
        codes[i / 4] |= fp8_pair<format>(values[i], second) << 8 * (i % 4);
    }
}

/* Stores the codes of a vector: as one word where dst is aligned to that, else byte by byte. */
static __device__ __forceinline__ void store_codes(
    uint8_t *dst, const uint32_t (&codes)[1], bool aligned)
{
    if (aligned) {
        __stcg((uint32_t *)dst, codes[0]);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        __stcg(dst + i, (uint8_t)(codes[0] >> 8 * i));
}

static __device__ __forceinline__ void store_codes(
    uint8_t *dst, const uint32_t (&codes)[2], bool aligned)
{
    if (aligned) {
        __stcg((uint2 *)dst, make_uint2(codes[0], codes[1]));
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        __stcg(dst + i, (uint8_t)(codes[i / 4] >> 8 * (i % 4)));
}

template <enum f8k_dtype dtype, enum f8k_format format>
static __device__ __forceinline__ struct tally cast_elements(
    const struct f8cu_task &task, const struct part &part)
{
    using element = typename element_of<dtype>::type;
    constexpr uint32_t width = per_vector<dtype>;
    const element *src = (const element *)task.src + part.begin;
    uint8_t *dst = task.dst + part.begin;
    struct span span = span_of(src, part.count);
    float scale = *task.scale;
    bool wants_amax = task.amax != nullptr;
    bool aligned = is_aligned(dst + span.head, width);
    uint32_t counts = 0;
    magnitude_max<dtype> amax;
    for_each_single(span, [&](uint32_t i) {
        float value[1] = {value_of<dtype>(src[i])};
        uint32_t code[1];
        amax.add_element(src[i]);
        encode<format, 1>(value, scale, code, counts);
        dst[i] = (uint8_t)code[0];
    });
    for_each_vector(
        (const uint4 *)(src + span.head), span.vectors, [&](uint32_t i, const uint4 &vector) {
            float values[width];
            uint32_t codes[width / 4];
            unpack<dtype>(vector, values);
            if (wants_amax)
                amax.add_vector(vector);
            encode<format, width>(values, scale, codes, counts);
            store_codes(dst + span.head + i * width, codes, aligned);
        });
    return {counts, amax.bits()};
}

template <enum f8k_dtype dtype>
static __device__ __forceinline__ struct tally cast_of(
    const struct f8cu_task &task, const struct part &part)
{
    if (task.format == F8K_E4M3FN)
        return cast_elements<dtype, F8K_E4M3FN>(task, part);
    return cast_elements<dtype, F8K_E5M2>(task, part);
}

/* Adds what the block's threads met to what the task keeps. */
static __device__ __forceinline__ void report(
    const struct f8cu_task &task, const struct tally &tally)
{
    if (task.amax)
        raise_amax(task.amax, tally.amax);
    if (!task.counts)
        return;
    uint32_t counts = block_sum(tally.counts);
    if (threadIdx.x != 0)
        return;
    unsigned long long saturated = counts % ONE_NAN, nan = counts / ONE_NAN;
    if (saturated > 0)
        atomicAdd((unsigned long long *)&task.counts->saturated, saturated);
    if (nan > 0)
        atomicAdd((unsigned long long *)&task.counts->nan, nan);
}

static __device__ __forceinline__ void cast_part(
    const struct f8cu_task &task, const struct part &part)
{
    struct tally tally;
    if (task.dtype == F8K_F32)
        tally = cast_of<F8K_F32>(task, part);
    else if (task.dtype == F8K_BF16)
        tally = cast_of<F8K_BF16>(task, part);
    else
        tally = cast_of<F8K_F16>(task, part);
    report(task, tally);
}

#endif
