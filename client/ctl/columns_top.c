/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of f8ctl top: of its weights, which its keys and --sort may name, and of its groups.
 * As columns.c. A rate that is not known yet is "-".
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/columns_private.h"
#include "client/ctl/columns_top.h"
#include "client/ctl/top.h"

void columns_top_rate(char *cell, double rate)
{
    if (isnan(rate)) {
        strcpy(cell, "-");
    } else if (rate > 0 && rate < 100) {
        snprintf(cell, TABLE_MAX_CELL, "%.1f", rate);
    } else {
        snprintf(cell, TABLE_MAX_CELL, "%.0f", rate);
    }
}

void columns_top_bytes(char *cell, double rate)
{
    if (isnan(rate)) {
        strcpy(cell, "-");
    } else {
        snprintf(cell, TABLE_MAX_CELL, "%.*f", rate < 1e9 ? 3 : 2, rate / 1e9);
    }
}

static void real(char *cell, uint32_t bits, bool is_known)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    if (is_known) {
        snprintf(cell, TABLE_MAX_CELL, "%.4g", (double)value);
    } else {
        strcpy(cell, "-");
    }
}

static double real_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

/* Both of a rate. */
#define RATE(name, type, field)                                                                    \
    CELL_BY(name, type, columns_top_rate, r->rates.field)                                          \
    NUMBER(name, type, !isnan(r->rates.field), r->rates.field)

/* ---- weights ---- */
CELL(weight_job, struct top_weight, "%s", r->info->job)
CELL(weight_group, struct top_weight, "%s", r->info->group)
CELL(weight_bucket, struct top_weight, "%s", r->info->bucket)
CELL(weight_name, struct top_weight, "%s", r->info->name)
CELL_BY(weight_scale, struct top_weight, real, r->info->scale, r->info->scale_known)
NUMBER(weight_scale, struct top_weight, r->info->scale_known, real_of(r->info->scale))
CELL_BY(weight_amax, struct top_weight, real, r->info->amax, r->info->amax_known)
NUMBER(weight_amax, struct top_weight, r->info->amax_known, real_of(r->info->amax))
RATE(weight_gathers, struct top_weight, gathers)
RATE(weight_saturated_rate, struct top_weight, saturated)
RATE(weight_stale_rate, struct top_weight, stale)
COUNT(weight_saturated, struct top_weight, info->saturated)
COUNT(weight_stale, struct top_weight, info->stale)
COUNT(weight_nan, struct top_weight, info->nan)
ALARM(weight_saturates, struct top_weight, r->rates.saturated > 0)
ALARM(weight_is_stale, struct top_weight, r->rates.stale > 0)
ALARM(weight_has_nan, struct top_weight, r->info->nan > 0)

/* What is past the edge of a terminal is cut: which weight it is and what it suffers come first. */
static const struct table_column top_list[] = {LEFT("NAME", weight_name),
    ALARMING("SATURATED/S", weight_saturated_rate, weight_saturates),
    ALARMING("STALE/S", weight_stale_rate, weight_is_stale), RIGHT("GATHERS/S", weight_gathers),
    RIGHT("SATURATED", weight_saturated), RIGHT("STALE", weight_stale),
    ALARMING("NAN", weight_nan, weight_has_nan), RIGHT("SCALE", weight_scale),
    RIGHT("AMAX", weight_amax), LEFT("BUCKET", weight_bucket), LEFT("GROUP", weight_group),
    LEFT("JOB", weight_job)};
COLUMNS(columns_top, top_list);

/* ---- groups ---- */
CELL(group_job, struct top_group, "%s", r->info->job)
CELL(group_name, struct top_group, "%s", r->info->name)
CELL(group_state, struct top_group, "%s", r->info->state)
CELL(group_ranks, struct top_group, "%" PRIu32, r->info->world_size)
NUMBER(group_ranks, struct top_group, true, r->info->world_size)
RATE(group_gathers, struct top_group, gathers)
CELL_BY(group_bytes, struct top_group, columns_top_bytes, r->rates.bytes)
NUMBER(group_bytes, struct top_group, !isnan(r->rates.bytes), r->rates.bytes)
RATE(group_saturated, struct top_group, saturated)
RATE(group_stale, struct top_group, stale)
RATE(group_nan, struct top_group, nan)
COUNT(group_failed, struct top_group, info->failed)
ALARM(group_saturates, struct top_group, r->rates.saturated > 0)
ALARM(group_is_stale, struct top_group, r->rates.stale > 0)
ALARM(group_has_nan, struct top_group, r->rates.nan > 0)
ALARM(group_is_broken, struct top_group, strcmp(r->info->state, "broken") == 0)
ALARM(group_waits, struct top_group, r->round != NULL && r->round->waited_ms >= 1000)

/* "gather layers.4, 3.2 s, for rank 1 (pid 4711) and 2 more" */
static void group_waiting(const void *row, char *cell)
{
    const F8__RoundInfo *round = ((const struct top_group *)row)->round;
    size_t used;

    strcpy(cell, "-");
    if (round == NULL || strncmp(round->state, "waiting", 7) != 0) {
        return;
    }
    used = (size_t)snprintf(cell, TABLE_MAX_CELL, "%s%s%s, %.1f s", round->kind,
        round->bucket[0] != '\0' ? " " : "", round->bucket, (double)round->waited_ms / 1000);
    if (round->n_missing_ranks == 0 || round->n_missing_pids == 0) {
        return;
    }
    used += (size_t)snprintf(
        cell + used, TABLE_MAX_CELL - used, ", for rank %" PRIu32, round->missing_ranks[0]);
    if (round->missing_pids[0] != 0) {
        used += (size_t)snprintf(
            cell + used, TABLE_MAX_CELL - used, " (pid %" PRIu32 ")", round->missing_pids[0]);
    }
    if (round->n_missing_ranks > 1) {
        snprintf(cell + used, TABLE_MAX_CELL - used, " and %zu more", round->n_missing_ranks - 1);
    }
}

/* As the weights': what a group waits for is read before its rates, which are low while it waits.
 */
static const struct table_column group_list[] = {LEFT("JOB", group_job), LEFT("GROUP", group_name),
    LEFT_ALARMING("STATE", group_state, group_is_broken),
    LEFT_ALARMING("WAITS", group_waiting, group_waits), RIGHT("RANKS", group_ranks),
    RIGHT("GATHERS/S", group_gathers), RIGHT("GB/S", group_bytes),
    ALARMING("SATURATED/S", group_saturated, group_saturates),
    ALARMING("STALE/S", group_stale, group_is_stale), ALARMING("NAN/S", group_nan, group_has_nan),
    RIGHT("FAILED", group_failed)};
COLUMNS(columns_top_groups, group_list);
