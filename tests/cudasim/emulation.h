/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets the .cu files of kernels/cuda be compiled, unmodified, as C++17 for the CPU: put before each
 * by -include. The language (__global__, threadIdx, __shared__, ...) becomes macros over grid.c,
 * which runs each GPU thread on a fiber of a stream's worker. Only what is listed here is emulated:
 * no
 * <<<>>>, no dynamic shared memory, no textures.
 *
 * The kernels must be in a shared library: __shared__ variables are its thread-local storage,
 * which grid.c fills with garbage for each block.
 */
#ifndef CUDASIM_EMULATION_H
#define CUDASIM_EMULATION_H

#include "cudasim.h"

#include <cuda_runtime.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>

/* The headers of CUDA define these away for a host compiler; what they leave is an attribute. */
#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __shared__      static thread_local
#define __constant__    static const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

/* No macros: cudaLaunchConfig_t has members of these names too. */
extern CUDASIM_PLACE cudasim_index threadIdx __asm__("cudasim_thread_index");
extern CUDASIM_PLACE cudasim_index blockIdx __asm__("cudasim_block_index");
extern CUDASIM_PLACE cudasim_index blockDim __asm__("cudasim_block_size");
extern CUDASIM_PLACE cudasim_index gridDim __asm__("cudasim_grid_size");
constexpr int warpSize = 32;

/* ---- launching ---- */

namespace cudasim
{
template <class... Parameters> struct closure {
    void (*kernel)(Parameters...);
    std::tuple<std::remove_cv_t<Parameters>...> arguments;

    static void thread(void *self)
    {
        auto *closure = static_cast<cudasim::closure<Parameters...> *>(self);
        std::apply(closure->kernel, closure->arguments);
    }
    static void done(void *self)
    {
        delete static_cast<cudasim::closure<Parameters...> *>(self);
    }
};

inline cudasim_index index_of(dim3 size)
{
    return {size.x, size.y, size.z};
}

/* The arguments are copied, as the device's constant bank has them. */
template <class... Parameters, class... Arguments>
cudaError_t launch(const char *name, const cudaLaunchConfig_t *config,
    void (*kernel)(Parameters...), Arguments &&...arguments)
{
    using call = closure<Parameters...>;
    if (config->dynamicSmemBytes)
        cudasim_fault("launch (%s): dynamic shared memory is not emulated", name);
    cudasim_kernel launch = {};
    launch.name = name;
    launch.function = reinterpret_cast<const void *>(kernel);
    launch.grid_size = index_of(config->gridDim);
    launch.block_size = index_of(config->blockDim);
    launch.thread = call::thread;
    launch.done = call::done;
    launch.arguments = new call{kernel, {static_cast<Parameters>(arguments)...}};
    return static_cast<cudaError_t>(cudasim_launch(config->stream, &launch));
}
} // namespace cudasim

/* Over the official template of this name; the text of the arguments names the launch in faults. */
#define cudaLaunchKernelEx(...) cudasim::launch(#__VA_ARGS__, __VA_ARGS__)

/* ---- synchronisation ---- */

#define CUDASIM_TEXT_(line) #line
#define CUDASIM_TEXT(line)  CUDASIM_TEXT_(line)
#define CUDASIM_HERE        __FILE__ ":" CUDASIM_TEXT(__LINE__)

namespace cudasim
{
constexpr unsigned FULL_MASK = 0xffffffffu;

/* The value of a lane; the own one for a lane that is not in the mask, as devices leave undefined.
 */
template <class T> T shuffle(const char *where, unsigned mask, T value, unsigned source)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    uint64_t bits = 0, all[32];
    std::memcpy(&bits, &value, sizeof value);
    cudasim_warp(where, mask, bits, all);
    if (mask >> (source & 31) & 1)
        std::memcpy(&value, &all[source & 31], sizeof value);
    return value;
}
template <class T>
T shuffle_index(const char *where, unsigned mask, T value, int lane, int width = 32)
{
    unsigned first = cudasim_lane() & ~(width - 1u);
    return shuffle(where, mask, value, first + ((unsigned)lane & (width - 1u)));
}
template <class T>
T shuffle_xor(const char *where, unsigned mask, T value, int bits, int width = 32)
{
    unsigned source = cudasim_lane() ^ (unsigned)bits;
    bool is_inside = (source & ~(width - 1u)) <= (cudasim_lane() & ~(width - 1u));
    return shuffle(where, mask, value, is_inside ? source : cudasim_lane());
}
template <class T>
T shuffle_down(const char *where, unsigned mask, T value, unsigned delta, int width = 32)
{
    bool is_inside = (cudasim_lane() & (width - 1u)) + delta < (unsigned)width;
    return shuffle(where, mask, value, is_inside ? cudasim_lane() + delta : cudasim_lane());
}
template <class T>
T shuffle_up(const char *where, unsigned mask, T value, unsigned delta, int width = 32)
{
    bool is_inside = (cudasim_lane() & (width - 1u)) >= delta;
    return shuffle(where, mask, value, is_inside ? cudasim_lane() - delta : cudasim_lane());
}
} // namespace cudasim

namespace cudasim
{
template <class T, class Combine>
T reduce(const char *where, unsigned mask, T value, Combine combine)
{
    uint64_t bits = 0, all[32];
    std::memcpy(&bits, &value, sizeof value);
    cudasim_warp(where, mask, bits, all);
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1) || lane == cudasim_lane())
            continue;
        T other;
        std::memcpy(&other, &all[lane], sizeof other);
        value = combine(value, other);
    }
    return value;
}
inline unsigned ballot(const char *where, unsigned mask, int predicate)
{
    uint64_t all[32];
    unsigned votes = 0;
    cudasim_warp(where, mask, predicate != 0, all);
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1)
            votes |= (unsigned)all[lane] << lane;
    return votes;
}
constexpr unsigned mask_of(unsigned mask = FULL_MASK)
{
    return mask;
}
inline void sync_warp(const char *where, unsigned mask)
{
    uint64_t all[32];
    cudasim_warp(where, mask, 0, all);
}
} // namespace cudasim

#define __syncthreads()             ((void)cudasim_barrier(CUDASIM_HERE, 0))
#define __syncthreads_count(test)   cudasim_barrier(CUDASIM_HERE, (test))
#define __syncthreads_or(test)      (cudasim_barrier(CUDASIM_HERE, (test)) > 0)
#define __syncwarp(...)             cudasim::sync_warp(CUDASIM_HERE, cudasim::mask_of(__VA_ARGS__))
#define __shfl_sync(mask, ...)      cudasim::shuffle_index(CUDASIM_HERE, mask, __VA_ARGS__)
#define __shfl_xor_sync(mask, ...)  cudasim::shuffle_xor(CUDASIM_HERE, mask, __VA_ARGS__)
#define __shfl_down_sync(mask, ...) cudasim::shuffle_down(CUDASIM_HERE, mask, __VA_ARGS__)
#define __shfl_up_sync(mask, ...)   cudasim::shuffle_up(CUDASIM_HERE, mask, __VA_ARGS__)
#define __ballot_sync(mask, test)   cudasim::ballot(CUDASIM_HERE, mask, test)
#define __any_sync(mask, test)      (cudasim::ballot(CUDASIM_HERE, mask, test) != 0)
#define __all_sync(mask, test)      (cudasim::ballot(CUDASIM_HERE, mask, test) == (mask))
#define __reduce_max_sync(mask, value)                                                             \
    cudasim::reduce(CUDASIM_HERE, mask, value, [](auto a, auto b) { return a > b ? a : b; })
#define __reduce_add_sync(mask, value)                                                             \
    cudasim::reduce(CUDASIM_HERE, mask, value, [](auto a, auto b) { return a + b; })

inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* ---- atomics, on device and shared memory ---- */

namespace cudasim
{
template <class T> T atomic_max(T *address, T value)
{
    T old = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (old < value && !__atomic_compare_exchange_n(
                              address, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}
} // namespace cudasim

inline unsigned atomicMax(unsigned *address, unsigned value)
{
    return cudasim::atomic_max(address, value);
}
inline int atomicMax(int *address, int value)
{
    return cudasim::atomic_max(address, value);
}
inline unsigned long long atomicMax(unsigned long long *address, unsigned long long value)
{
    return cudasim::atomic_max(address, value);
}
inline unsigned atomicAdd(unsigned *address, unsigned value)
{
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
inline unsigned long long atomicAdd(unsigned long long *address, unsigned long long value)
{
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
inline unsigned atomicOr(unsigned *address, unsigned value)
{
    return __atomic_fetch_or(address, value, __ATOMIC_RELAXED);
}
inline unsigned atomicExch(unsigned *address, unsigned value)
{
    return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}

#include "emulation_math.h"

#endif
