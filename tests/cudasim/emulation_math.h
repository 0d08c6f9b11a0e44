/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device functions of emulation.h that need no other thread: bits, roundings, loads. Included
 * by it only. The compiler must not contract (-ffp-contract=off), so that * and + round as
 * __fmul_rn and __fadd_rn promise.
 */
#ifndef CUDASIM_EMULATION_MATH_H
#define CUDASIM_EMULATION_MATH_H

namespace cudasim
{
template <class To, class From> To same_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
} // namespace cudasim

/* ---- bits ---- */

inline unsigned __float_as_uint(float value)
{
    return cudasim::same_bits<unsigned>(value);
}
inline int __float_as_int(float value)
{
    return cudasim::same_bits<int>(value);
}
inline float __uint_as_float(unsigned bits)
{
    return cudasim::same_bits<float>(bits);
}
inline float __int_as_float(int bits)
{
    return cudasim::same_bits<float>(bits);
}
inline long long __double_as_longlong(double value)
{
    return cudasim::same_bits<long long>(value);
}
inline double __longlong_as_double(long long bits)
{
    return cudasim::same_bits<double>(bits);
}
inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}
inline int __clz(int bits)
{
    return bits ? __builtin_clz((unsigned)bits) : 32;
}
inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}
/* Bytes 0..3 are of `low`, 4..7 of `high`; the selector's fourth bit, a byte of sign, is not
 * emulated. */
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector)
{
    unsigned long long bytes = (unsigned long long)high << 32 | low;
    unsigned result = 0;
    for (int i = 0; i < 4; i++)
        result |= (unsigned)(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
    return result;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}

/* ---- arithmetic that is rounded once, to nearest even ---- */

inline float __fmul_rn(float a, float b)
{
    return a * b;
}
inline float __fadd_rn(float a, float b)
{
    return a + b;
}
inline float __fsub_rn(float a, float b)
{
    return a - b;
}
inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
inline float __fmaf_rn(float a, float b, float c)
{
    return std::fmaf(a, b, c);
}
inline double __dmul_rn(double a, double b)
{
    return a * b;
}
inline double __dadd_rn(double a, double b)
{
    return a + b;
}
inline double __dsub_rn(double a, double b)
{
    return a - b;
}
inline double __ddiv_rn(double a, double b)
{
    return a / b;
}
inline float __double2float_rn(double value)
{
    return (float)value;
}
inline float __uint2float_rn(unsigned value)
{
    return (float)value;
}
inline unsigned umax(unsigned a, unsigned b)
{
    return a > b ? a : b;
}
inline unsigned umin(unsigned a, unsigned b)
{
    return a < b ? a : b;
}
template <class T> std::enable_if_t<std::is_integral_v<T>, T> max(T a, T b)
{
    return a > b ? a : b;
}
template <class T> std::enable_if_t<std::is_integral_v<T>, T> min(T a, T b)
{
    return a < b ? a : b;
}

/* ---- loads and stores with hints for the caches, of which there are none here ---- */

template <class T> T __ldg(const T *address)
{
    return *address;
}
template <class T> T __ldcs(const T *address)
{
    return *address;
}
template <class T> T __ldcg(const T *address)
{
    return *address;
}
template <class T> T __ldlu(const T *address)
{
    return *address;
}
template <class T> void __stcs(T *address, T value)
{
    *address = value;
}
template <class T> void __stcg(T *address, T value)
{
    *address = value;
}
template <class T> void __stwt(T *address, T value)
{
    *address = value;
}

#endif
