/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of f8ctl's tables: how each field of a row reads for people, and when it is worth a
 * look. Pure; called by print_table.c through the lists below.
 */
#include "client/ctl/columns.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "f8gather.pb-c.h"
#include "proto/protocol.h"

/* A function that prints a field of a row of that type. */
#define CELL(name, type, format, ...)                                                              \
    static void name(const void *row, char *cell)                                                  \
    {                                                                                              \
        const type *r = row;                                                                       \
        snprintf(cell, TABLE_MAX_CELL, format, __VA_ARGS__);                                       \
    }

/* A function that makes a cell with one of print_table's. */
#define CELL_BY(name, type, make, ...)                                                             \
    static void name(const void *row, char *cell)                                                  \
    {                                                                                              \
        const type *r = row;                                                                       \
        make(cell, __VA_ARGS__);                                                                   \
    }

/* A function that tells when a field is worth a look. */
#define ALARM(name, type, condition)                                                               \
    static bool name(const void *row)                                                              \
    {                                                                                              \
        const type *r = row;                                                                       \
        return condition;                                                                          \
    }

#define LEFT(title, text)                                                                          \
    {                                                                                              \
        title, false, text, NULL                                                                   \
    }
#define RIGHT(title, text)                                                                         \
    {                                                                                              \
        title, true, text, NULL                                                                    \
    }

#define COLUMNS(name, list) const struct columns name = {list, sizeof(list) / sizeof((list)[0])}

static const char *known(const char *name)
{
    return name != NULL ? name : "?";
}

/* ---- status ---- */
CELL(status_version, F8__StatusInfo, "%s", r->version)
CELL(status_pid, F8__StatusInfo, "%" PRIu32, r->pid)
CELL_BY(status_uptime, F8__StatusInfo, table_duration, r->uptime_ms)
CELL(status_socket, F8__StatusInfo, "%s", r->socket)
CELL(status_backend, F8__StatusInfo, "%s", r->backend)
CELL(status_kernels, F8__StatusInfo, "%s", r->kernels)
CELL(status_threads, F8__StatusInfo, "%" PRIu32, r->threads)
CELL(status_connections, F8__StatusInfo, "%" PRIu32, r->connections)
CELL(status_jobs, F8__StatusInfo, "%" PRIu32, r->jobs)
CELL(status_groups, F8__StatusInfo, "%" PRIu32, r->groups)
CELL(status_weights, F8__StatusInfo, "%" PRIu64, r->weights)
CELL_BY(status_regions, F8__StatusInfo, table_bytes, r->region_bytes)
CELL_BY(status_arenas, F8__StatusInfo, table_bytes, r->arena_bytes)
CELL_BY(status_limit, F8__StatusInfo, table_bytes, r->memory_limit)
CELL(status_gathers, F8__StatusInfo, "%" PRIu64, r->gathers)
CELL(status_failed, F8__StatusInfo, "%" PRIu64, r->failed_rounds)
ALARM(status_has_failed, F8__StatusInfo, r->failed_rounds > 0)

static const struct table_column status_list[] = {LEFT("version", status_version),
    LEFT("pid", status_pid), LEFT("up", status_uptime), LEFT("socket", status_socket),
    LEFT("backend", status_backend), LEFT("kernels", status_kernels),
    LEFT("threads", status_threads), LEFT("connections", status_connections),
    LEFT("jobs", status_jobs), LEFT("groups", status_groups), LEFT("weights", status_weights),
    LEFT("regions", status_regions), LEFT("arenas", status_arenas),
    LEFT("limit a user", status_limit), LEFT("gathers", status_gathers),
    {"failed rounds", false, status_failed, status_has_failed}};
COLUMNS(columns_status, status_list);

/* ---- jobs ---- */
CELL(job_name, F8__JobInfo, "%s", r->name)
CELL(job_uid, F8__JobInfo, "%" PRIu32, r->uid)
CELL(job_clients, F8__JobInfo, "%" PRIu32, r->clients)
CELL(job_groups, F8__JobInfo, "%" PRIu32, r->groups)
CELL_BY(job_regions, F8__JobInfo, table_bytes, r->region_bytes)
CELL_BY(job_arenas, F8__JobInfo, table_bytes, r->arena_bytes)
CELL_BY(job_age, F8__JobInfo, table_duration, r->age_ms)

static const struct table_column job_list[] = {LEFT("JOB", job_name), RIGHT("UID", job_uid),
    RIGHT("CLIENTS", job_clients), RIGHT("GROUPS", job_groups), RIGHT("REGIONS", job_regions),
    RIGHT("ARENAS", job_arenas), RIGHT("AGE", job_age)};
COLUMNS(columns_jobs, job_list);

/* ---- groups ---- */
CELL(group_job, F8__GroupInfo, "%s", r->job)
CELL(group_name, F8__GroupInfo, "%s", r->name)
CELL(group_generation, F8__GroupInfo, "%" PRIu64, r->generation)
CELL(group_state, F8__GroupInfo, "%s", r->state)
CELL(group_world, F8__GroupInfo, "%" PRIu32, r->world_size)
CELL(group_weights, F8__GroupInfo, "%" PRIu32, r->weights)
CELL(group_buckets, F8__GroupInfo, "%" PRIu32, r->buckets)
CELL_BY(group_arena, F8__GroupInfo, table_bytes, r->arena_bytes)
CELL_BY(group_float8, F8__GroupInfo, table_bytes, r->float8_bytes)
CELL(group_gathers, F8__GroupInfo, "%" PRIu64, r->gathers)
CELL_BY(group_pids, F8__GroupInfo, table_numbers, r->pids, r->n_pids)
CELL(group_cause, F8__GroupInfo, "%s", r->cause)
ALARM(group_is_broken, F8__GroupInfo, strcmp(r->state, "broken") == 0)

static void group_slots(const void *row, char *cell)
{
    const F8__GroupInfo *r = row;

    if (r->slots > 0) {
        snprintf(cell, TABLE_MAX_CELL, "%" PRIu32, r->slots);
    } else {
        strcpy(cell, "own");
    }
}

static const struct table_column group_list[] = {LEFT("JOB", group_job), LEFT("GROUP", group_name),
    RIGHT("GENERATION", group_generation), {"STATE", false, group_state, group_is_broken},
    RIGHT("RANKS", group_world), RIGHT("WEIGHTS", group_weights), RIGHT("BUCKETS", group_buckets),
    RIGHT("PLACES", group_slots), RIGHT("ARENA", group_arena), RIGHT("FLOAT8", group_float8),
    RIGHT("GATHERS", group_gathers), LEFT("PIDS BY RANK", group_pids), LEFT("CAUSE", group_cause)};
COLUMNS(columns_groups, group_list);

/* ---- weights, scales, show ---- */
CELL(weight_job, F8__WeightInfo, "%s", r->job)
CELL(weight_uid, F8__WeightInfo, "%" PRIu32, r->uid)
CELL(weight_group, F8__WeightInfo, "%s", r->group)
CELL(weight_bucket, F8__WeightInfo, "%s", r->bucket)
CELL(weight_name, F8__WeightInfo, "%s", r->name)
CELL_BY(weight_shape, F8__WeightInfo, table_shape, r->shape, r->n_shape)
CELL(weight_dtype, F8__WeightInfo, "%s", known(f8_proto_dtype_name(r->dtype)))
CELL(weight_flavour, F8__WeightInfo, "%s%s", known(f8_proto_flavour_name(r->flavour)),
    r->power_of_two ? ", power of two" : "")
CELL(weight_wire, F8__WeightInfo, "%s", r->wire)
CELL_BY(weight_bytes, F8__WeightInfo, table_bytes, r->bytes)
CELL(weight_gathers, F8__WeightInfo, "%" PRIu64, r->gathers)
CELL(weight_saturated, F8__WeightInfo, "%" PRIu64, r->saturated)
CELL(weight_nan, F8__WeightInfo, "%" PRIu64, r->nan)
CELL(weight_stale, F8__WeightInfo, "%" PRIu64, r->stale)
ALARM(weight_saturates, F8__WeightInfo, r->saturated > 0)
ALARM(weight_has_nan, F8__WeightInfo, r->nan > 0)
ALARM(weight_is_stale, F8__WeightInfo, r->stale > 0)

static void real(char *cell, uint32_t bits, bool is_known)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    if (is_known) {
        snprintf(cell, TABLE_MAX_CELL, "%.9g", (double)value);
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

/* A count of changes, 0 if it is not known. */
static void version(char *cell, uint64_t count)
{
    if (count > 0) {
        snprintf(cell, TABLE_MAX_CELL, "%" PRIu64, count);
    } else {
        strcpy(cell, "-");
    }
}

CELL_BY(weight_scale, F8__WeightInfo, real, r->scale, r->scale_known)
CELL_BY(weight_bits, F8__WeightInfo, hex, r->scale, r->scale_known)
CELL_BY(weight_amax, F8__WeightInfo, real, r->amax, r->amax_known)
CELL_BY(weight_version, F8__WeightInfo, version, r->version)
CELL_BY(weight_scale_version, F8__WeightInfo, version, r->scale_version)

/* How many changes of the values the scale has missed. */
static void weight_age(const void *row, char *cell)
{
    const F8__WeightInfo *r = row;

    if (r->version > 0 && r->scale_version > 0) {
        snprintf(cell, TABLE_MAX_CELL, "%" PRId64, (int64_t)(r->version - r->scale_version));
    } else {
        strcpy(cell, "-");
    }
}

static const struct table_column weight_list[] = {LEFT("JOB", weight_job),
    LEFT("GROUP", weight_group), LEFT("BUCKET", weight_bucket), LEFT("NAME", weight_name),
    RIGHT("SHAPE", weight_shape), LEFT("SOURCE", weight_dtype), LEFT("FLAVOUR", weight_flavour),
    LEFT("GATHERED AS", weight_wire), RIGHT("BYTES", weight_bytes),
    RIGHT("GATHERS", weight_gathers)};
COLUMNS(columns_weights, weight_list);

static const struct table_column scale_list[] = {LEFT("JOB", weight_job), LEFT("NAME", weight_name),
    RIGHT("SCALE", weight_scale), LEFT("BITS", weight_bits), RIGHT("AMAX", weight_amax),
    RIGHT("VERSION", weight_version), RIGHT("SCALED AT", weight_scale_version),
    RIGHT("AGE", weight_age), {"STALE", true, weight_stale, weight_is_stale},
    {"SATURATED", true, weight_saturated, weight_saturates},
    {"NAN", true, weight_nan, weight_has_nan}};
COLUMNS(columns_scales, scale_list);

static const struct table_column show_list[] = {LEFT("name", weight_name), LEFT("job", weight_job),
    LEFT("uid", weight_uid), LEFT("group", weight_group), LEFT("bucket", weight_bucket),
    LEFT("shape", weight_shape), LEFT("source", weight_dtype), LEFT("flavour", weight_flavour),
    LEFT("gathered as", weight_wire), LEFT("bytes", weight_bytes), LEFT("gathers", weight_gathers),
    LEFT("scale", weight_scale), LEFT("scale bits", weight_bits), LEFT("amax", weight_amax),
    LEFT("version", weight_version), LEFT("scale version", weight_scale_version),
    LEFT("age in changes", weight_age), {"stale gathers", false, weight_stale, weight_is_stale},
    {"saturated", false, weight_saturated, weight_saturates},
    {"nan", false, weight_nan, weight_has_nan}};
COLUMNS(columns_show, show_list);

/* ---- rounds ---- */
CELL(round_job, F8__RoundInfo, "%s", r->job)
CELL(round_group, F8__RoundInfo, "%s", r->group)
CELL(round_collective, F8__RoundInfo, "%" PRIu64, r->collective)
CELL(round_kind, F8__RoundInfo, "%s", r->kind)
CELL(round_bucket, F8__RoundInfo, "%s", r->bucket[0] != '\0' ? r->bucket : "-")
CELL(round_state, F8__RoundInfo, "%s", r->state)
CELL_BY(round_waited, F8__RoundInfo, table_duration, r->waited_ms)
CELL_BY(round_deadline, F8__RoundInfo, table_duration, r->deadline_ms)

/* "2 (pid 4711) 3 (not connected)" */
static void round_missing(const void *row, char *cell)
{
    const F8__RoundInfo *r = row;
    size_t used = 0;

    for (size_t i = 0; i < r->n_missing_ranks && used < TABLE_MAX_CELL; i++) {
        uint32_t pid = i < r->n_missing_pids ? r->missing_pids[i] : 0;
        used += (size_t)snprintf(cell + used, TABLE_MAX_CELL - used,
            pid > 0 ? "%s%" PRIu32 " (pid %" PRIu32 ")" : "%s%" PRIu32 " (not connected)",
            i > 0 ? " " : "", r->missing_ranks[i], pid);
    }
}

static const struct table_column round_list[] = {LEFT("JOB", round_job), LEFT("GROUP", round_group),
    RIGHT("NUMBER", round_collective), LEFT("KIND", round_kind), LEFT("BUCKET", round_bucket),
    LEFT("STATE", round_state), RIGHT("WAITED", round_waited), RIGHT("DEADLINE IN", round_deadline),
    LEFT("MISSING RANKS", round_missing)};
COLUMNS(columns_rounds, round_list);
