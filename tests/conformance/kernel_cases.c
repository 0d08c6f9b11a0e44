/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test vectors straight through the kernels, once with every variant. Called by each_row() for the
 * rows of cast.tsv, pattern.tsv and fsdp_*.tsv; one thread.
 */
#include "tests/conformance/cases.h"

#include <stdlib.h>
#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Casts with one variant and counts a pass or a fail. */
static void check_cast(
    const struct row *row, const struct f8k_ops *ops, struct f8k_cast cast, const uint8_t *want)
{
    struct f8k_counts counts = {0};
    cast.dst = malloc(cast.count + 1);
    if (!cast.dst) {
        row_fail(row, "no memory for %zu bytes", cast.count);
        return;
    }
    ops->cast(&cast, &counts);
    size_t at = first_difference(cast.format, cast.dst, want, cast.count);
    if (at < cast.count)
        row_fail(row, "%s: byte %zu is %02x, want %02x", ops->name, at, cast.dst[at], want[at]);
    else
        row_pass(row);
    free(cast.dst);
}

/* The columns of cast.tsv that are bits. */
struct cast_facts {
    uint32_t amax, direct, precompute;
    bool has_precompute;
};

static bool parse_facts(const struct row *row, struct cast_facts *facts)
{
    facts->has_precompute = strcmp(row->column[6], "-") != 0;
    return row_bits(row, 4, &facts->amax) && row_bits(row, 5, &facts->direct) &&
           (!facts->has_precompute || row_bits(row, 6, &facts->precompute));
}

/* True if amax and scales are right for this variant; else one failure is counted. */
static bool check_facts(const struct row *row, const struct f8k_ops *ops,
    const struct f8k_cast *cast, const struct cast_facts *facts)
{
    uint32_t amax = ops->amax(cast->dtype, cast->src, cast->count);
    uint32_t direct = bits_of(f8k_scale(amax, cast->dtype, cast->format, F8K_SCALE_DIRECT, false));
    uint32_t precompute =
        bits_of(f8k_scale(amax, cast->dtype, cast->format, F8K_SCALE_PRECOMPUTE, false));
    if (!bits_equal(amax, facts->amax))
        row_fail(row, "%s: amax %08x, want %08x", ops->name, amax, facts->amax);
    else if (!bits_equal(direct, facts->direct))
        row_fail(row, "%s: scale %08x, want %08x", ops->name, direct, facts->direct);
    else if (facts->has_precompute && !bits_equal(precompute, facts->precompute))
        row_fail(
            row, "%s: precomputed scale %08x, want %08x", ops->name, precompute, facts->precompute);
    else
        return true;
    return false;
}

/* src_dtype kind fp8 count amax scale precompute_scale input output */
bool kernel_cast_row(const struct row *row)
{
    struct f8k_cast cast = {0};
    struct cast_facts facts = {0};
    if (!row_dtype(row, 0, &cast.dtype) || !row_format(row, 2, &cast.format) ||
        !row_size(row, 3, (size_t)1 << 40, &cast.count) || !parse_facts(row, &facts))
        return false;
    uint8_t *input = row_file_of(row, 7, cast.count * f8k_dtype_size(cast.dtype));
    uint8_t *output = input ? row_file_of(row, 8, cast.count) : NULL;
    cast.src = input;
    cast.scale = from_bits(facts.direct);
    for (size_t i = 0; output && f8k_variant(i); i++)
        if (check_facts(row, f8k_variant(i), &cast, &facts))
            check_cast(row, f8k_variant(i), cast, output);
    free(input);
    free(output);
    return output != NULL;
}

/* src_dtype fp8 scale output */
bool kernel_pattern_row(const struct row *row)
{
    struct f8k_cast cast = {.count = 65536};
    uint32_t scale;
    if (!row_dtype(row, 0, &cast.dtype) || !row_format(row, 1, &cast.format) ||
        !row_bits(row, 2, &scale))
        return false;
    if (f8k_dtype_size(cast.dtype) != sizeof(uint16_t)) {
        row_fail(row, "'%s' has more than 65536 patterns", row->column[0]);
        return false;
    }
    uint16_t *patterns = malloc(cast.count * sizeof(*patterns));
    uint8_t *output = row_file_of(row, 3, cast.count);
    if (!patterns)
        row_fail(row, "no memory for %zu patterns", cast.count);
    for (size_t i = 0; patterns && i < cast.count; i++)
        patterns[i] = (uint16_t)i;
    cast.src = patterns;
    cast.scale = from_bits(scale);
    for (size_t i = 0; patterns && output && f8k_variant(i); i++)
        check_cast(row, f8k_variant(i), cast, output);
    bool read = patterns && output;
    free(patterns);
    free(output);
    return read;
}

/* What the ranks do, one after the other: amax of each shard, one maximum, a cast into each place.
 */
static float gather(const struct f8k_ops *ops, const struct fsdp_case *fsdp, uint8_t *gathered)
{
    size_t row_bytes = fsdp->cols * f8k_dtype_size(fsdp->dtype), first, rows;
    uint32_t amax = 0;
    for (size_t rank = 0; rank < fsdp->world; rank++) {
        rows = fsdp_shard(fsdp, rank, &first);
        uint32_t local = ops->amax(fsdp->dtype, fsdp->full + first * row_bytes, rows * fsdp->cols);
        amax = local > amax ? local : amax;
    }
    float scale = f8k_scale(amax, fsdp->dtype, fsdp->format, fsdp->path, false);
    for (size_t rank = 0; rank < fsdp->world; rank++) {
        rows = fsdp_shard(fsdp, rank, &first);
        struct f8k_counts counts = {0};
        struct f8k_cast cast = {
            .src = fsdp->full + first * row_bytes,
            .dst = gathered + rank * fsdp->chunk_rows * fsdp->cols,
            .count = rows * fsdp->cols,
            .scale = scale,
            .dtype = fsdp->dtype,
            .format = fsdp->format,
        };
        ops->cast(&cast, &counts);
    }
    return scale;
}

/* world path rows cols src_dtype scale full_weight gathered */
bool kernel_fsdp_row(const struct row *row)
{
    struct fsdp_case fsdp;
    if (!fsdp_case_read(row, &fsdp))
        return false;
    for (size_t i = 0; f8k_variant(i); i++) {
        uint8_t *gathered = calloc(fsdp.chunk_rows * fsdp.world * fsdp.cols + 1, 1);
        if (gathered) {
            float scale = gather(f8k_variant(i), &fsdp, gathered);
            fsdp_check(row, &fsdp, f8k_variant(i)->name, bits_of(scale), gathered);
        } else {
            row_fail(row, "no memory for the gathered weight");
        }
        free(gathered);
    }
    fsdp_case_done(&fsdp);
    return true;
}
