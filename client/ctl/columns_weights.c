/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of f8ctl's tables about weights, buckets and syncs: as columns.c. Floats are printed
 * so that they read back exactly; what is not known, or means nothing for a weight, is "-".
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/columns_private.h"
#include "client/ctl/sparkline.h"

static const char *known(const char *name)
{
    return name != NULL ? name : "?";
}

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Whether fp32 bits are an infinity or NaN. */
static bool is_special(uint32_t bits)
{
    return (bits & 0x7f800000u) == 0x7f800000u;
}

static void real(char *cell, uint32_t bits, bool is_known)
{
    if (is_known) {
        snprintf(cell, TABLE_MAX_CELL, "%.9g", (double)float_of(bits));
    } else {
        strcpy(cell, "-");
    }
}

static void hex(char *cell, uint32_t bits, bool is_known)
{
    if (is_known) {
        snprintf(cell, TABLE_MAX_CELL, "0x%08" PRIx32, bits);
    } else {
        strcpy(cell, "-");
    }
}

static void count_if(char *cell, uint64_t count, bool is_known)
{
    if (is_known) {
        snprintf(cell, TABLE_MAX_CELL, "%" PRIu64, count);
    } else {
        strcpy(cell, "-");
    }
}

/* A count that only some rows have. */
#define COUNT_IF(name, type, is_known, value)                                                      \
    CELL_BY(name, type, count_if, value, is_known)                                                 \
    NUMBER(name, type, is_known, value)

/* ---- weights, scales, amax, show ---- */
#define IS_DELAYED (r->flavour == F8_PROTO_DELAYED)

CELL(weight_job, F8__WeightInfo, "%s", r->job)
CELL(weight_uid, F8__WeightInfo, "%" PRIu32, r->uid)
CELL(weight_group, F8__WeightInfo, "%s", r->group)
CELL(weight_amax_group, F8__WeightInfo, "%s", r->amax_group[0] != '\0' ? r->amax_group : r->group)
CELL(weight_bucket, F8__WeightInfo, "%s", r->bucket)
CELL(weight_name, F8__WeightInfo, "%s", r->name)
CELL_BY(weight_shape, F8__WeightInfo, table_shape, r->shape, r->n_shape)
CELL(weight_dtype, F8__WeightInfo, "%s", known(f8_proto_dtype_name(r->dtype)))
CELL(weight_flavour, F8__WeightInfo, "%s%s", known(f8_proto_flavour_name(r->flavour)),
    r->power_of_two ? ", power of two" : "")
CELL(weight_wire, F8__WeightInfo, "%s", r->wire)
BYTES(weight_bytes, F8__WeightInfo, bytes)
COUNT(weight_gathers, F8__WeightInfo, gathers)
COUNT(weight_saturated, F8__WeightInfo, saturated)
COUNT(weight_nan, F8__WeightInfo, nan)
COUNT(weight_stale, F8__WeightInfo, stale)
COUNT_IF(weight_syncs, F8__WeightInfo, IS_DELAYED, r->syncs)
COUNT_IF(weight_since_sync, F8__WeightInfo, IS_DELAYED, r->since_sync)
COUNT_IF(weight_kept, F8__WeightInfo, IS_DELAYED, r->kept)
ALARM(weight_saturates, F8__WeightInfo, r->saturated > 0)
ALARM(weight_has_nan, F8__WeightInfo, r->nan > 0)
ALARM(weight_is_stale, F8__WeightInfo, r->stale > 0)
ALARM(weight_is_kept, F8__WeightInfo, r->kept > 0)
ALARM(weight_amax_is_special, F8__WeightInfo, r->amax_known &&is_special(r->amax))

CELL_BY(weight_scale, F8__WeightInfo, real, r->scale, r->scale_known)
NUMBER(weight_scale, F8__WeightInfo, r->scale_known, float_of(r->scale))
CELL_BY(weight_bits, F8__WeightInfo, hex, r->scale, r->scale_known)
CELL_BY(weight_amax, F8__WeightInfo, real, r->amax, r->amax_known)
NUMBER(weight_amax, F8__WeightInfo, r->amax_known, float_of(r->amax))

/* Counts of changes, 0 if they are not known; and how many of them the scale has missed. */
#define AGE_KNOWN (r->version > 0 && r->scale_version > 0)
COUNT_IF(weight_version, F8__WeightInfo, r->version > 0, r->version)
COUNT_IF(weight_scale_version, F8__WeightInfo, r->scale_version > 0, r->scale_version)
NUMBER(weight_age, F8__WeightInfo, AGE_KNOWN, (int64_t)(r->version - r->scale_version))

static void weight_age(const void *row, char *cell)
{
    double age;

    if (weight_age_number(row, &age)) {
        snprintf(cell, TABLE_MAX_CELL, "%.0f", age);
    } else {
        strcpy(cell, "-");
    }
}

static bool weight_shape_number(const void *row, double *ret_number)
{
    const F8__WeightInfo *r = row;

    *ret_number = 1;
    for (size_t i = 0; i < r->n_shape; i++) {
        *ret_number *= (double)r->shape[i];
    }
    return true;
}

/* The amax history, the oldest first, as people read; "-" if there is none. */
static void weight_window(const void *row, char *cell)
{
    const F8__WeightInfo *r = row;
    sparkline_draw(cell, TABLE_MAX_CELL, r->history, r->n_history);
}

ALARM(weight_window_is_special, F8__WeightInfo, sparkline_has_special(r->history, r->n_history))

/* "16, max", "1, most-recent" */
static void weight_history(const void *row, char *cell)
{
    const F8__WeightInfo *r = row;

    if (IS_DELAYED) {
        snprintf(cell, TABLE_MAX_CELL, "%" PRIu32 ", %s", r->history_length,
            known(f8_proto_history_name(r->history_algorithm)));
    } else {
        strcpy(cell, "-");
    }
}

CELL(weight_initialised, F8__WeightInfo, "%s", !IS_DELAYED ? "-" : r->initialised ? "yes" : "no")

static const struct table_column weight_list[] = {LEFT("JOB", weight_job),
    LEFT("GROUP", weight_group), LEFT("BUCKET", weight_bucket), LEFT("NAME", weight_name),
    RIGHT("SHAPE", weight_shape), LEFT("SOURCE", weight_dtype), LEFT("FLAVOUR", weight_flavour),
    LEFT("GATHERED AS", weight_wire), RIGHT("BYTES", weight_bytes),
    RIGHT("GATHERS", weight_gathers)};
COLUMNS(columns_weights, weight_list);

/* What scales did, and how old they are. */
#define HEALTH                                                                                     \
    SPARE_ALARMING(3, "STALE", weight_stale, weight_is_stale),                                     \
        SPARE_ALARMING(1, "SATURATED", weight_saturated, weight_saturates),                        \
        SPARE_ALARMING(2, "NAN", weight_nan, weight_has_nan),                                      \
        SPARE_RIGHT(6, "SINCE SYNC", weight_since_sync),                                           \
        SPARE_ALARMING(5, "KEPT", weight_kept, weight_is_kept)

static const struct table_column scale_list[] = {LEFT("JOB", weight_job), LEFT("NAME", weight_name),
    RIGHT("SCALE", weight_scale), SPARE_LEFT(7, "BITS", weight_bits), RIGHT("AMAX", weight_amax),
    SPARE_RIGHT(8, "VERSION", weight_version), SPARE_RIGHT(9, "SCALED AT", weight_scale_version),
    SPARE_RIGHT(4, "AGE", weight_age), HEALTH};
COLUMNS(columns_scales, scale_list);

static const struct table_column amax_list[] = {LEFT("JOB", weight_job),
    SPARE_LEFT(8, "GROUP", weight_group), LEFT("NAME", weight_name),
    ALARMING("AMAX", weight_amax, weight_amax_is_special), RIGHT("SCALE", weight_scale),
    LEFT_ALARMING("WINDOW", weight_window, weight_window_is_special),
    SPARE_RIGHT(7, "SYNCS", weight_syncs), HEALTH};
COLUMNS(columns_amax, amax_list);

static const struct table_column show_list[] = {LEFT("name", weight_name), LEFT("job", weight_job),
    LEFT("uid", weight_uid), LEFT("group", weight_group), LEFT("amax group", weight_amax_group),
    LEFT("bucket", weight_bucket), LEFT("shape", weight_shape), LEFT("source", weight_dtype),
    LEFT("flavour", weight_flavour), LEFT("gathered as", weight_wire), LEFT("bytes", weight_bytes),
    LEFT("gathers", weight_gathers), LEFT("scale", weight_scale), LEFT("scale bits", weight_bits),
    LEFT_ALARMING("amax", weight_amax, weight_amax_is_special), LEFT("version", weight_version),
    LEFT("scale version", weight_scale_version), LEFT("age in changes", weight_age),
    LEFT_ALARMING("stale gathers", weight_stale, weight_is_stale),
    LEFT_ALARMING("saturated", weight_saturated, weight_saturates),
    LEFT_ALARMING("nan", weight_nan, weight_has_nan), LEFT("history", weight_history),
    LEFT_ALARMING("window", weight_window, weight_window_is_special),
    LEFT("initialised", weight_initialised), LEFT("syncs", weight_syncs),
    LEFT("gathers since", weight_since_sync),
    LEFT_ALARMING("syncs kept", weight_kept, weight_is_kept)};
COLUMNS(columns_show, show_list);

/* ---- buckets ---- */
CELL(bucket_job, F8__BucketInfo, "%s", r->job)
CELL(bucket_group, F8__BucketInfo, "%s", r->group)
CELL(bucket_name, F8__BucketInfo, "%s", r->name)
COUNT(bucket_weights, F8__BucketInfo, weights)
CELL(bucket_place, F8__BucketInfo, "%s", r->shared ? "slot" : "own")
BYTES(bucket_bytes, F8__BucketInfo, bytes)
COUNT(bucket_gathers, F8__BucketInfo, gathers)
COUNT(bucket_stale, F8__BucketInfo, stale)
COUNT(bucket_saturated, F8__BucketInfo, saturated)
COUNT(bucket_nan, F8__BucketInfo, nan)
CELL_BY(bucket_holders, F8__BucketInfo, table_numbers, r->holders, r->n_holders)
ALARM(bucket_is_stale, F8__BucketInfo, r->stale > 0)
ALARM(bucket_saturates, F8__BucketInfo, r->saturated > 0)
ALARM(bucket_has_nan, F8__BucketInfo, r->nan > 0)

static const struct table_column bucket_list[] = {LEFT("JOB", bucket_job),
    LEFT("GROUP", bucket_group), LEFT("NAME", bucket_name), RIGHT("WEIGHTS", bucket_weights),
    LEFT("PLACE", bucket_place), RIGHT("BYTES", bucket_bytes), RIGHT("GATHERS", bucket_gathers),
    ALARMING("STALE", bucket_stale, bucket_is_stale),
    ALARMING("SATURATED", bucket_saturated, bucket_saturates),
    ALARMING("NAN", bucket_nan, bucket_has_nan), LEFT("HELD BY RANKS", bucket_holders)};
COLUMNS(columns_buckets, bucket_list);

/* ---- history ---- */
COUNT(sync_number, struct sync_row, number)
CELL_BY(sync_amax, struct sync_row, real, r->amax, true)
NUMBER(sync_amax, struct sync_row, true, float_of(r->amax))
CELL_BY(sync_amax_bits, struct sync_row, hex, r->amax, true)
CELL_BY(sync_scale, struct sync_row, real, r->scale, true)
NUMBER(sync_scale, struct sync_row, true, float_of(r->scale))
CELL_BY(sync_scale_bits, struct sync_row, hex, r->scale, true)
ALARM(sync_is_special, struct sync_row, is_special(r->amax))

static const struct table_column sync_list[] = {RIGHT("SYNC", sync_number),
    ALARMING("AMAX", sync_amax, sync_is_special), LEFT("BITS", sync_amax_bits),
    RIGHT("NEXT SCALE", sync_scale), LEFT("BITS", sync_scale_bits)};
COLUMNS(columns_syncs, sync_list);
