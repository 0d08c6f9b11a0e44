/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rows of each index want of a real daemon: fsdp_*.tsv what they say; cast.tsv as a flat
 * and as an uneven 2-D weight over 1, 2 and 3 ranks by both paths; pattern.tsv as static weights.
 * Called by each_row() after the kernel cases, which have found the row to be readable; one thread.
 */
#include "tests/conformance/cases.h"
#include "tests/conformance/tensors.h"

#include <stdlib.h>
#include <string.h>

/* So many processes are started at most. */
#define MAX_WORLD 64

static enum f8_dtype client_dtype(enum f8k_dtype dtype)
{
    static const enum f8_dtype dtypes[] = {
        [F8K_F32] = F8_F32, [F8K_BF16] = F8_BF16, [F8K_F16] = F8_F16};
    return dtypes[dtype];
}

static enum f8_format client_format(enum f8k_format format)
{
    return format == F8K_E5M2 ? F8_E5M2 : F8_E4M3FN;
}

/* world path rows cols src_dtype scale full_weight gathered */
bool daemon_fsdp_row(const struct row *row)
{
    struct fsdp_case fsdp;
    if (!fsdp_case_read(row, &fsdp))
        return false;
    if (fsdp.world > MAX_WORLD) {
        row_fail(
            row, "%zu ranks are too many for real processes, %d at most", fsdp.world, MAX_WORLD);
        fsdp_case_done(&fsdp);
        return false;
    }
    return tensors_add(row, (struct tensor){.world = (uint32_t)fsdp.world,
                                .rows = fsdp.rows,
                                .cols = fsdp.cols,
                                .ndim = 2,
                                .dtype = client_dtype(fsdp.dtype),
                                .format = client_format(fsdp.format),
                                .flavour = F8_DYNAMIC,
                                .precompute = fsdp.path == F8K_SCALE_PRECOMPUTE,
                                .scale_bits = fsdp.scale_bits,
                                .source = fsdp.full,
                                .want = fsdp.gathered});
}

static void *copy_of(const void *bytes, size_t size)
{
    void *copy = malloc(size + 1);
    if (copy)
        memcpy(copy, bytes, size);
    return copy;
}

/*
 * The codes for a scale that the file has no output of (bf16 below 1e-12, where the paths differ):
 * by the specification, which the kernel cases have held against the file's.
 */
static uint8_t *codes_of(const struct f8k_cast *with_scale)
{
    struct f8k_cast cast = *with_scale;
    struct f8k_counts counts = {0};
    cast.dst = malloc(cast.count + 1);
    if (cast.dst)
        f8k_variant(0)->cast(&cast, &counts);
    return cast.dst;
}

/* The smallest factor above 1; 0 if there is none but the number itself. */
static size_t smallest_factor(size_t number)
{
    for (size_t factor = 2; factor <= number / factor; factor++)
        if (number % factor == 0)
            return factor;
    return 0;
}

/* A row of cast.tsv as it was read: the source, both scales and the codes for the first. */
struct cast_case {
    struct f8k_cast cast;
    uint32_t scale_bits[2]; /* direct, precompute */
    bool has[2];            /* that path is to be run */
    uint8_t *input, *output;
};

/* One path, one shape, one world. */
static bool add_cast(
    const struct row *row, const struct cast_case *from, bool precompute, size_t rows, size_t world)
{
    uint32_t bits = from->scale_bits[precompute];
    struct f8k_cast cast = from->cast;
    memcpy(&cast.scale, &bits, sizeof(bits));
    bool recorded = bits_equal(bits, from->scale_bits[0]);
    return tensors_add(
        row, (struct tensor){.world = (uint32_t)world,
                 .rows = rows,
                 .cols = cast.count / rows,
                 .ndim = rows == cast.count ? 1 : 2,
                 .dtype = client_dtype(cast.dtype),
                 .format = client_format(cast.format),
                 .flavour = F8_DYNAMIC,
                 .precompute = precompute,
                 .scale_bits = bits,
                 .source = copy_of(cast.src, cast.count * f8k_dtype_size(cast.dtype)),
                 .want = recorded ? copy_of(from->output, cast.count) : codes_of(&cast)});
}

static bool add_casts(const struct row *row, const struct cast_case *from)
{
    size_t shapes[] = {from->cast.count, smallest_factor(from->cast.count)};
    for (size_t world = 1; world <= 3; world++)
        for (int path = 0; path < 2; path++)
            for (size_t s = 0; s < 2; s++)
                if (from->has[path] && shapes[s] > 0 &&
                    !add_cast(row, from, path == 1, shapes[s], world))
                    return false;
    return true;
}

/* src_dtype kind fp8 count amax scale precompute_scale input output */
bool daemon_cast_row(const struct row *row)
{
    struct cast_case from = {.has = {true, strcmp(row->column[6], "-") != 0}};
    if (!row_dtype(row, 0, &from.cast.dtype) || !row_format(row, 2, &from.cast.format) ||
        !row_size(row, 3, (size_t)1 << 40, &from.cast.count) ||
        !row_bits(row, 5, &from.scale_bits[0]) ||
        (from.has[1] && !row_bits(row, 6, &from.scale_bits[1])))
        return false;
    from.input = row_file_of(row, 7, from.cast.count * f8k_dtype_size(from.cast.dtype));
    from.output = from.input ? row_file_of(row, 8, from.cast.count) : NULL;
    from.cast.src = from.input;
    bool added = from.output && add_casts(row, &from);
    free(from.input);
    free(from.output);
    return added;
}

/* src_dtype fp8 scale output */
bool daemon_pattern_row(const struct row *row)
{
    enum f8k_dtype dtype;
    enum f8k_format format;
    uint32_t scale_bits;
    if (!row_dtype(row, 0, &dtype) || !row_format(row, 1, &format) ||
        !row_bits(row, 2, &scale_bits))
        return false;
    uint8_t *output = row_file_of(row, 3, 65536);
    uint16_t *patterns = malloc(65536 * sizeof(*patterns));
    for (size_t i = 0; patterns && i < 65536; i++)
        patterns[i] = (uint16_t)i;
    return tensors_add(row, (struct tensor){.world = 4,
                                .rows = 256,
                                .cols = 256,
                                .ndim = 2,
                                .dtype = client_dtype(dtype),
                                .format = client_format(format),
                                .flavour = F8_STATIC,
                                .scale_bits = scale_bits,
                                .source = (uint8_t *)patterns,
                                .want = output});
}
