/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of f8ctl's tables about the daemon, jobs, groups and rounds: how each field of a row
 * reads for people, what it is sorted by, and when it is worth a look. Pure; called by
 * print_table.c and sort.c through the lists below.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/columns_devices.h"
#include "client/ctl/columns_hosts.h"
#include "client/ctl/columns_private.h"
#include "client/ctl/columns_snapshots.h"

/* A duration that not every row has. */
static void duration_or_none(char *cell, bool has, uint64_t milliseconds)
{
    strcpy(cell, "-");
    if (has) {
        table_duration(cell, milliseconds);
    }
}

/* ---- status ---- */
CELL(status_version, F8__StatusInfo, "%s", r->version)
CELL(status_pid, F8__StatusInfo, "%" PRIu64, (uint64_t)r->pid)
CELL_BY(status_uptime, F8__StatusInfo, table_duration, r->uptime_ms)
CELL(status_socket, F8__StatusInfo, "%s", r->socket)
CELL(status_backend, F8__StatusInfo, "%s", r->backend)
CELL(status_kernels, F8__StatusInfo, "%s", r->kernels)
CELL(status_threads, F8__StatusInfo, "%" PRIu64, (uint64_t)r->threads)
CELL(status_connections, F8__StatusInfo, "%" PRIu64, (uint64_t)r->connections)
CELL(status_jobs, F8__StatusInfo, "%" PRIu64, (uint64_t)r->jobs)
CELL(status_groups, F8__StatusInfo, "%" PRIu64, (uint64_t)r->groups)
CELL(status_weights, F8__StatusInfo, "%" PRIu64, (uint64_t)r->weights)
CELL_BY(status_regions, F8__StatusInfo, table_bytes, r->region_bytes)
CELL_BY(status_arenas, F8__StatusInfo, table_bytes, r->arena_bytes)
CELL_BY(status_limit, F8__StatusInfo, table_bytes, r->memory_limit)
CELL(status_metrics, F8__StatusInfo, "%s", r->metrics[0] != '\0' ? r->metrics : "-")
CELL(status_gathers, F8__StatusInfo, "%" PRIu64, (uint64_t)r->gathers)
CELL(status_failed, F8__StatusInfo, "%" PRIu64, (uint64_t)r->failed_rounds)
ALARM(status_has_failed, F8__StatusInfo, r->failed_rounds > 0)

static const struct table_column status_list[] = {LEFT("version", status_version),
    LEFT("pid", status_pid), LEFT("up", status_uptime), LEFT("socket", status_socket),
    LEFT("backend", status_backend), LEFT("cuda", status_cuda), LEFT("hosts", status_hosts),
    LEFT("kept helpers", status_kept), LEFT("kernels", status_kernels),
    LEFT("threads", status_threads), LEFT("connections", status_connections),
    LEFT("jobs", status_jobs), LEFT("groups", status_groups), LEFT("weights", status_weights),
    LEFT("regions", status_regions), LEFT_ALARMING("states", status_states, status_states_alarm),
    LEFT_ALARMING("snapshots", status_snapshots, status_snapshots_alarm),
    LEFT("arenas", status_arenas), LEFT("limit a user", status_limit),
    LEFT("metrics", status_metrics), LEFT("gathers", status_gathers),
    LEFT_ALARMING("failed rounds", status_failed, status_has_failed)};
COLUMNS(columns_status, status_list);

/* ---- jobs ---- */
CELL(job_name, F8__JobInfo, "%s", r->name)
COUNT(job_uid, F8__JobInfo, uid)
COUNT(job_clients, F8__JobInfo, clients)
COUNT(job_groups, F8__JobInfo, groups)
BYTES(job_regions, F8__JobInfo, region_bytes)
BYTES(job_arenas, F8__JobInfo, arena_bytes)
bool columns_job_is_there(const void *row)
{
    const F8__JobInfo *job = row;

    return job->clients > 0 || job->groups > 0 || job->states == 0;
}

COUNT(job_states, F8__JobInfo, states)
CELL_BY(job_age, F8__JobInfo, duration_or_none, columns_job_is_there(r), r->age_ms)
NUMBER(job_age, F8__JobInfo, columns_job_is_there(r), r->age_ms)
CELL_BY(job_left, F8__JobInfo, duration_or_none, r->left_ms > 0, r->left_ms)
NUMBER(job_left, F8__JobInfo, r->left_ms > 0, r->left_ms)

static const struct table_column job_list[] = {LEFT("JOB", job_name), RIGHT("UID", job_uid),
    RIGHT("CLIENTS", job_clients), RIGHT("GROUPS", job_groups), RIGHT("REGIONS", job_regions),
    RIGHT("ARENAS", job_arenas), RIGHT("AGE", job_age), RIGHT("STATES", job_states),
    RIGHT("KEPT-FOR", job_left)};
COLUMNS(columns_jobs, job_list);

/* ---- groups ---- */
CELL(group_job, F8__GroupInfo, "%s", r->job)
CELL(group_name, F8__GroupInfo, "%s", r->name)
COUNT(group_generation, F8__GroupInfo, generation)
CELL(group_state, F8__GroupInfo, "%s", r->state)
COUNT(group_world, F8__GroupInfo, world_size)
COUNT(group_weights, F8__GroupInfo, weights)
COUNT(group_buckets, F8__GroupInfo, buckets)
BYTES(group_arena, F8__GroupInfo, arena_bytes)
BYTES(group_float8, F8__GroupInfo, float8_bytes)
COUNT(group_gathers, F8__GroupInfo, gathers)
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
NUMBER(group_slots, F8__GroupInfo, true, r->slots)

static const struct table_column group_list[] = {LEFT("JOB", group_job), LEFT("GROUP", group_name),
    SPARE_RIGHT(10, "GENERATION", group_generation),
    LEFT_ALARMING("STATE", group_state, group_is_broken), RIGHT("RANKS", group_world),
    SPARE_RIGHT(6, "WEIGHTS", group_weights), SPARE_RIGHT(7, "BUCKETS", group_buckets),
    SPARE_RIGHT(8, "PLACES", group_slots), SPARE_RIGHT(5, "ARENA", group_arena),
    SPARE_RIGHT(9, "FLOAT8", group_float8), RIGHT("GATHERS", group_gathers),
    SPARE_LEFT(4, "DEVICES", group_devices), SPARE_LEFT(12, "EXCHANGE", group_exchange),
    SPARE_LEFT(13, "WARM", group_warm), SPARE_LEFT(3, "HOSTS", group_hosts),
    SPARE_LEFT(11, "ENGINE", group_engine), SPARE_LEFT(2, "PIDS BY RANK", group_pids),
    LEFT("CAUSE", group_cause), LEFT("WAITS FOR", group_waits)};
COLUMNS(columns_groups, group_list);

/* ---- rounds ---- */
CELL(round_job, F8__RoundInfo, "%s", r->job)
CELL(round_group, F8__RoundInfo, "%s", r->group)
COUNT(round_collective, F8__RoundInfo, collective)
CELL(round_kind, F8__RoundInfo, "%s", r->kind)
CELL(round_bucket, F8__RoundInfo, "%s", r->bucket[0] != '\0' ? r->bucket : "-")
CELL(round_state, F8__RoundInfo, "%s", r->state)
DURATION(round_waited, F8__RoundInfo, waited_ms)
DURATION(round_deadline, F8__RoundInfo, deadline_ms)

/* "2 (pid 4711) 3 (not connected) 4 (pid 4712 on gpu-07)" */
static void round_missing(const void *row, char *cell)
{
    const F8__RoundInfo *r = row;
    size_t used = 0;

    for (size_t i = 0; i < r->n_missing_ranks && used < TABLE_MAX_CELL; i++) {
        uint32_t pid = i < r->n_missing_pids ? r->missing_pids[i] : 0;
        const char *host = i < r->n_missing_hosts ? r->missing_hosts[i] : "";
        char who[64] = "not connected";
        if (pid > 0) {
            snprintf(who, sizeof(who), "pid %" PRIu32, pid);
        }
        used += (size_t)snprintf(cell + used, TABLE_MAX_CELL - used, "%s%" PRIu32 " (%s%s%.64s)",
            i > 0 ? " " : "", r->missing_ranks[i], who, host[0] != '\0' ? " on " : "", host);
    }
}

static const struct table_column round_list[] = {LEFT("JOB", round_job), LEFT("GROUP", round_group),
    RIGHT("NUMBER", round_collective), LEFT("KIND", round_kind), LEFT("BUCKET", round_bucket),
    LEFT("STATE", round_state), RIGHT("WAITED", round_waited), RIGHT("DEADLINE IN", round_deadline),
    LEFT("MISSING RANKS", round_missing)};
COLUMNS(columns_rounds, round_list);
