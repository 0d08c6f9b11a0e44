/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of f8ctl's tables about groups over several hosts: who they are, when each was heard
 * last, and what moves bytes between them. As columns.c, whose lists take some of these.
 */
#include "client/ctl/columns_hosts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/columns_private.h"

/* ---- status ---- */

/* "by eth0 (10.0.0.1)"; daemons of before groups over hosts say nothing. */
void status_hosts(const void *row, char *cell)
{
    const F8__StatusInfo *status = row;

    if (status->hosts_interface[0] != '\0') {
        snprintf(
            cell, TABLE_MAX_CELL, "by %s (%s)", status->hosts_interface, status->hosts_address);
    } else if (status->hosts_reason[0] != '\0') {
        snprintf(cell, TABLE_MAX_CELL, "cannot be reached: %s", status->hosts_reason);
    } else {
        strcpy(cell, "-");
    }
}

/* "0/llm/dp (pid 4711, 2 hosts, for 9.5 min)": helpers that wait for their group to come back. */
void status_kept(const void *row, char *cell)
{
    const F8__StatusInfo *status = row;
    size_t used = 0;

    strcpy(cell, "-");
    for (size_t i = 0; i < status->n_kept_engines && used < TABLE_MAX_CELL; i++) {
        const F8__KeptEngine *kept = status->kept_engines[i];
        char left[TABLE_MAX_CELL];
        table_duration(left, kept->left_ms);
        used += (size_t)snprintf(cell + used, TABLE_MAX_CELL - used,
            "%s%.80s (pid %" PRIu32 ", %" PRIu32 " hosts, for %.20s)", i > 0 ? ", " : "",
            kept->group, kept->pid, kept->hosts, left);
    }
}

/* ---- groups ---- */

/* "4711 4712 811@gpu-07 -": pids are of the host that is named; -: the rank is not there. */
void group_pids(const void *row, char *cell)
{
    const F8__GroupInfo *group = row;
    size_t used = 0;

    cell[0] = '\0';
    for (size_t i = 0; i < group->n_pids && used < TABLE_MAX_CELL; i++) {
        const char *host = i < group->n_rank_hosts ? group->rank_hosts[i] : "";
        char pid[16] = "-";
        if (group->pids[i] > 0) {
            snprintf(pid, sizeof(pid), "%" PRIu32, group->pids[i]);
        }
        used += (size_t)snprintf(cell + used, TABLE_MAX_CELL - used, "%s%s%s%.64s",
            i > 0 ? " " : "", pid, host[0] != '\0' ? "@" : "", host);
    }
}

void group_hosts(const void *row, char *cell)
{
    const F8__GroupInfo *group = row;

    strcpy(cell, "-");
    if (group->hosts > 0) {
        snprintf(cell, TABLE_MAX_CELL, "%" PRIu32, group->hosts);
    }
}

/* "gloo (pid 4711) on eth0, sent 1.5 GiB, received 1.5 GiB"; "nccl on eth0" tells no bytes. */
void group_engine(const void *row, char *cell)
{
    const F8__GroupInfo *group = row;
    char sent[TABLE_MAX_CELL], received[TABLE_MAX_CELL], pid[24] = "";

    strcpy(cell, "-");
    if (group->hosts == 0 || group->engine[0] == '\0') {
        return;
    }
    if (group->engine_untold) {
        snprintf(cell, TABLE_MAX_CELL, "%s on %.40s", group->engine, group->interface);
        return;
    }
    if (group->engine_pid > 0) {
        snprintf(pid, sizeof(pid), " (pid %" PRIu32 ")", group->engine_pid);
    }
    table_bytes(sent, group->bytes_sent);
    table_bytes(received, group->bytes_received);
    snprintf(cell, TABLE_MAX_CELL, "%s%s on %.40s, sent %.16s, received %.16s", group->engine, pid,
        group->interface, sent, received);
}

/* "other hosts, of which the root at 10.0.0.1:4711 knows, for 12.0 s, 288.0 s left"; until they
 * have met. */
void group_waits(const void *row, char *cell)
{
    const F8__GroupInfo *group = row;
    char since[TABLE_MAX_CELL], left[TABLE_MAX_CELL];

    strcpy(cell, "-");
    if (group->meeting[0] == '\0') {
        return;
    }
    table_duration(since, group->meeting_ms);
    table_duration(left, group->meeting_left_ms);
    snprintf(cell, TABLE_MAX_CELL, "%.512s, for %.24s, %.24s left", group->meeting, since, left);
}

/* ---- hosts ---- */

CELL(host_job, F8__HostInfo, "%s", r->job)
CELL(host_group, F8__HostInfo, "%s", r->group)
CELL(host_name, F8__HostInfo, "%s", r->name)
CELL(host_address, F8__HostInfo, "%s", r->address)
CELL_BY(host_ranks, F8__HostInfo, table_numbers, r->ranks, r->n_ranks)
ALARM(host_is_lost, F8__HostInfo, r->lost)
NUMBER(host_heard, F8__HostInfo, true, r->silent_ms)

/* How long ago: "0.4 s", "here". */
static void host_heard(const void *row, char *cell)
{
    const F8__HostInfo *host = row;

    if (host->here) {
        strcpy(cell, "here");
    } else {
        table_duration(cell, host->silent_ms);
    }
}

static void host_state(const void *row, char *cell)
{
    const F8__HostInfo *host = row;
    const char *root = host->root ? ", root" : "";
    char since[TABLE_MAX_CELL], left[TABLE_MAX_CELL];

    if (!host->meeting) {
        snprintf(cell, TABLE_MAX_CELL, "%s%s", host->lost ? "lost" : "there", root);
        return;
    }
    table_duration(since, host->meeting_ms);
    table_duration(left, host->meeting_left_ms);
    snprintf(cell, TABLE_MAX_CELL, "waits for others for %.24s, %.24s left%s", since, left, root);
}

static const struct table_column host_list[] = {LEFT("JOB", host_job), LEFT("GROUP", host_group),
    LEFT("HOST", host_name), LEFT("ADDRESS", host_address), LEFT("RANKS", host_ranks),
    RIGHT("HEARD", host_heard), LEFT_ALARMING("STATE", host_state, host_is_lost)};
COLUMNS(columns_hosts, host_list);
