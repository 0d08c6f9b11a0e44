/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a scale follows from an amax, and the facts about element types and formats (sizes, limits,
 * names). One value per weight, so there are no variants. Called by scaling and by whoever sizes
 * or prints a weight; pure, any thread.
 */
#include "kernels/fp8.h"

/* Below this an amax counts as this: a scale stays finite. The reference's literal. */
static const double AMAX_FLOOR = 1e-12;

/* The largest finite fp16: weights in fp16 have no larger scale. */
static const double F16_MAX = 65504.0;

/* AMAX_FLOOR as the precompute path has it: rounded to the source's type. */
static double rounded_floor(enum f8k_dtype dtype)
{
    float least = (float)AMAX_FLOOR;
    switch (dtype) {
    case F8K_BF16:
        return f8k_from_bits(f8k_bf16_bits(f8k_to_bf16(least)));
    case F8K_F16:
        return f8k_from_bits(f8k_f16_bits(f8k_to_f16(least)));
    case F8K_F32:
        break;
    }
    return least;
}

float f8k_scale(uint32_t amax_bits, enum f8k_dtype dtype, enum f8k_format format,
    enum f8k_scale_path path, bool power_of_two)
{
    if (f8k_is_nan(amax_bits))
        return f8k_from_bits(F8K_F32_NAN);
    double amax = f8k_from_bits(amax_bits);
    double least = path == F8K_SCALE_PRECOMPUTE ? rounded_floor(dtype) : AMAX_FLOOR;
    if (amax < least)
        amax = least;
    /* fp16's rounded floor is 0: the quotient is infinite there, and the cap catches it. */
    double scale = amax > 0 ? (double)f8k_format_max(format) / amax : (double)F16_MAX;
    if (dtype == F8K_F16 && scale > F16_MAX)
        scale = F16_MAX;
    return power_of_two ? f8k_floor_power_of_two((float)scale) : (float)scale;
}

size_t f8k_dtype_size(enum f8k_dtype dtype)
{
    switch (dtype) {
    case F8K_F32:
        return 4;
    case F8K_BF16:
    case F8K_F16:
        return 2;
    }
    return 0;
}

float f8k_format_max(enum f8k_format format)
{
    switch (format) {
    case F8K_E4M3FN:
    case F8K_E5M2:
        return f8k_from_bits(f8k_spec_of(format).max_bits);
    }
    return 0;
}

const char *f8k_dtype_name(enum f8k_dtype dtype)
{
    switch (dtype) {
    case F8K_F32:
        return "float32";
    case F8K_BF16:
        return "bfloat16";
    case F8K_F16:
        return "float16";
    }
    return NULL;
}

const char *f8k_format_name(enum f8k_format format)
{
    switch (format) {
    case F8K_E4M3FN:
        return "e4m3fn";
    case F8K_E5M2:
        return "e5m2";
    }
    return NULL;
}
