/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest |x| of what a thread has seen, by the patterns of the source's type. Two 16-bit
 * patterns in a word are compared apart without unpacking them: the upper one decides a comparison
 * of whole words. Included by the amax and the cast kernel.
 */
#ifndef F8_KERNELS_CUDA_MAGNITUDE_CUH
#define F8_KERNELS_CUDA_MAGNITUDE_CUH

#include "kernels/cuda/numbers.cuh"

/* What an element is loaded as. */
template <enum f8k_dtype dtype> struct element_of {
    using type = uint16_t;
};
template <> struct element_of<F8K_F32> {
    using type = uint32_t;
};

/* Elements in a vector of 16 bytes. */
template <enum f8k_dtype dtype>
constexpr uint32_t per_vector = 16 / sizeof(typename element_of<dtype>::type);

template <enum f8k_dtype dtype> struct magnitude_max {
    uint32_t words = 0; /* the largest word without its sign: fp32, or the upper 16-bit pattern */
    uint32_t lower = 0; /* the largest lower 16-bit pattern */

    __device__ __forceinline__ void add_word(uint32_t word)
    {
        words = larger(words, magnitude_of(word));
        if (dtype != F8K_F32)
            lower = larger(lower, word & 0x7fff);
    }

    __device__ __forceinline__ void add_vector(const uint4 &vector)
    {
        add_word(vector.x);
        add_word(vector.y);
        add_word(vector.z);
        add_word(vector.w);
    }

    __device__ __forceinline__ void add_element(uint32_t pattern)
    {
        add_word(pattern); /* of 16 bits: with +0 in the upper place */
    }

    /* The amax as fp32 bits. */
    __device__ __forceinline__ uint32_t bits() const
    {
        return widen<dtype>(dtype == F8K_F32 ? words : larger(words >> 16, lower));
    }
};

#endif
