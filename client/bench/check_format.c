/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checker's arithmetic: float8 codes, source elements, amax and scale, each written down from
 * its definition (OCP's format tables, IEEE 754, and torchao's formula for the scale). Shares no
 * line with kernels/. Pure but for tables that are filled before main; any thread.
 */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The values of the finite codes of one format, ascending: value[c] is that of code c. */
struct codec {
    int mantissa_bits;
    int bias;
    int finite; /* codes 0 .. finite-1 are finite and >= 0 */
    double value[128];
};

static struct codec e4m3fn = {.mantissa_bits = 3, .bias = 7, .finite = 0x7f};
static struct codec e5m2 = {.mantissa_bits = 2, .bias = 15, .finite = 0x7c};

/* The values of all fp16 patterns. */
static float half_values[65536];

static double code_value(const struct codec *codec, int code)
{
    int exponent = code >> codec->mantissa_bits;
    int mantissa = code & ((1 << codec->mantissa_bits) - 1);

    if (exponent == 0) {
        return ldexp(mantissa, 1 - codec->bias - codec->mantissa_bits);
    }
    return ldexp(
        mantissa + (1 << codec->mantissa_bits), exponent - codec->bias - codec->mantissa_bits);
}

static float half_value(uint16_t half)
{
    int exponent = (half >> 10) & 0x1f;
    int mantissa = half & 0x3ff;
    float value;

    if (exponent == 31) {
        value = mantissa ? NAN : INFINITY;
    } else if (exponent == 0) {
        value = ldexpf((float)mantissa, -24);
    } else {
        value = ldexpf((float)(mantissa + 1024), exponent - 25);
    }
    return half & 0x8000 ? -value : value;
}

__attribute__((constructor)) static void fill_tables(void)
{
    struct codec *codecs[] = {&e4m3fn, &e5m2};

    for (int i = 0; i < 2; i++) {
        for (int code = 0; code < codecs[i]->finite; code++) {
            codecs[i]->value[code] = code_value(codecs[i], code);
        }
    }
    for (uint32_t half = 0; half < 65536; half++) {
        half_values[half] = half_value((uint16_t)half);
    }
}

static const struct codec *codec_of(enum f8_format format)
{
    return format == F8_E5M2 ? &e5m2 : &e4m3fn;
}

double check_decode(enum f8_format format, uint8_t code)
{
    const struct codec *codec = codec_of(format);
    int magnitude = code & 0x7f;
    double value;

    if (magnitude < codec->finite) {
        value = codec->value[magnitude];
    } else {
        value = format == F8_E5M2 && magnitude == codec->finite ? INFINITY : NAN;
    }
    return code & 0x80 ? -value : value;
}

/* The last code whose value is <= y; y >= 0. */
static int search(const struct codec *codec, double y)
{
    int low = 0;
    int high = codec->finite;

    while (high - low > 1) {
        int middle = (low + high) / 2;
        int below = codec->value[middle] <= y;
        low = below ? middle : low;
        high = below ? high : middle;
    }
    return low;
}

uint8_t check_encode(enum f8_format format, float y)
{
    const struct codec *codec = codec_of(format);
    uint8_t sign = signbit(y) ? 0x80 : 0;
    double magnitude = fabs((double)y);
    int code;

    if (isnan(y)) {
        return sign | 0x7f;
    }
    code = search(codec, magnitude);
    if (code + 1 < codec->finite) {
        double down = magnitude - codec->value[code];
        double up = codec->value[code + 1] - magnitude;
        if (up < down || (up == down && (code & 1))) {
            code++;
        }
    }
    return sign | (uint8_t)code;
}

uint32_t check_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

float check_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

float check_load(enum f8_dtype dtype, const void *source, uint64_t i)
{
    switch (dtype) {
    case F8_F32:
        return ((const float *)source)[i];
    case F8_BF16:
        return check_from_bits((uint32_t)((const uint16_t *)source)[i] << 16);
    case F8_F16:
        return half_values[((const uint16_t *)source)[i]];
    default:
        return NAN;
    }
}

float check_amax(enum f8_dtype dtype, const void *source, uint64_t count)
{
    float amax = 0;

    for (uint64_t i = 0; i < count; i++) {
        float x = fabsf(check_load(dtype, source, i));
        if (isnan(x)) {
            return NAN;
        }
        amax = x > amax ? x : amax;
    }
    return amax;
}

/* 1e-12 as each path has it: a double, or first rounded to the source type (fp16 has no such). */
static double smallest_amax(enum f8_dtype dtype, bool precomputed)
{
    if (!precomputed) {
        return 1e-12;
    }
    switch (dtype) {
    case F8_BF16:
        return 0x1.1ap-40;
    case F8_F16:
        return 0;
    default:
        return (double)1e-12F;
    }
}

float check_scale(
    float amax, enum f8_dtype dtype, enum f8_format format, bool precomputed, bool power_of_two)
{
    double divisor = fmax((double)amax, smallest_amax(dtype, precomputed));
    double scale = (format == F8_E5M2 ? 57344.0 : 448.0) / divisor;
    float rounded;

    if (isnan(amax)) {
        return NAN;
    }
    if (dtype == F8_F16) {
        scale = fmin(scale, 65504.0);
    }
    rounded = (float)scale;
    if (power_of_two && rounded > 0 && !isinf(rounded)) {
        rounded = ldexpf(1, ilogbf(rounded));
    }
    return rounded;
}
