/* SPDX-License-Identifier: Apache-2.0 */
/* Views of the fake fleet: see fake_fleet_views.h. Static memory: one fleet at a time. */
#include "tests/lib/fake_fleet_views.h"

#include <stdbool.h>
#include <string.h>

static void devices(F8__StatusInfo *status)
{
    static F8__DeviceInfo infos[2];
    static F8__DeviceInfo *list[2] = {&infos[0], &infos[1]};
    static uint8_t uuids[2][16];

    for (size_t d = 0; d < 2; d++) {
        f8__device_info__init(&infos[d]);
        memset(uuids[d], (int)(0xa0 + d), sizeof(uuids[d]));
        infos[d].uuid = (ProtobufCBinaryData){.len = sizeof(uuids[d]), .data = uuids[d]};
        infos[d].name = (char *)"Accelerator <80 GB>";
        infos[d].pci = (char *)(d == 0 ? "0000:17:00.0" : "0000:65:00.0");
        infos[d].memory = (uint64_t)80 << 30;
        infos[d].memory_free = (uint64_t)(30 + d) << 30;
        infos[d].arena_bytes = (uint64_t)9 << 30;
        infos[d].mapped_bytes = (uint64_t)18 << 30;
        infos[d].compute_capability = 90;
        infos[d].clients = 4;
    }
    status->devices = list;
    status->n_devices = 2;
}

static void status(F8__InspectReply *reply, uint64_t num_weights)
{
    static F8__StatusInfo info;

    f8__status_info__init(&info);
    info.version = (char *)"9.9.9";
    info.pid = 4711;
    info.uptime_ms = 3 * 3600000 + 240000;
    info.socket = (char *)"/run/<socket>";
    info.kernels = (char *)"avx512";
    info.threads = 16;
    info.connections = 9;
    info.jobs = 2;
    info.groups = 2;
    info.weights = num_weights;
    info.region_bytes = (uint64_t)37 << 30;
    info.arena_bytes = (uint64_t)9 << 30;
    info.gathers = 1234567;
    info.failed_rounds = 3;
    info.memory_limit = (uint64_t)64 << 30;
    info.backend = (char *)"host, cuda";
    info.hosts_interface = (char *)"eth0";
    info.hosts_address = (char *)"10.0.0.1";
    devices(&info);
    reply->status = &info;
}

static void jobs(F8__InspectReply *reply)
{
    static F8__JobInfo infos[2];
    static F8__JobInfo *list[2] = {&infos[0], &infos[1]};

    for (size_t j = 0; j < 2; j++) {
        f8__job_info__init(&infos[j]);
        infos[j].name = (char *)(j == 0 ? "run<b>" : "other");
        infos[j].uid = 1000;
        infos[j].clients = 8;
        infos[j].groups = 1;
        infos[j].region_bytes = (uint64_t)(18 + j) << 30;
        infos[j].arena_bytes = (uint64_t)(4 + j) << 30;
        infos[j].age_ms = 3600000 * (1 + j);
    }
    reply->jobs = list;
    reply->n_jobs = 2;
}

static void groups(F8__InspectReply *reply, uint64_t num_weights)
{
    static F8__GroupInfo infos[2];
    static F8__GroupInfo *list[2] = {&infos[0], &infos[1]};
    static uint32_t pids[] = {1001, 1002, 1003, 1004};

    for (size_t g = 0; g < 2; g++) {
        f8__group_info__init(&infos[g]);
        infos[g].job = (char *)(g == 0 ? "run<b>" : "other");
        infos[g].uid = 1000;
        infos[g].name = (char *)"dp";
        infos[g].generation = 3 + g;
        infos[g].state = (char *)(g == 0 ? "sealed" : "broken");
        infos[g].cause = (char *)(g == 0 ? "" : "rank 2 (pid 1003) died & left <its> shard");
        infos[g].world_size = 4;
        infos[g].pids = pids;
        infos[g].n_pids = 4;
        infos[g].weights = g == 0 ? (uint32_t)num_weights : 0;
        infos[g].buckets = 32;
        infos[g].slots = 2;
        infos[g].arena_bytes = (uint64_t)4 << 30;
        infos[g].gathers = 1234567;
        infos[g].float8_bytes = (uint64_t)8 << 30;
        infos[g].hosts = g == 0 ? 2 : 0;
        infos[g].engine = (char *)"gloo";
        infos[g].interface = (char *)"eth0";
        infos[g].bytes_sent = infos[g].bytes_received = (uint64_t)7 << 40;
    }
    reply->groups = list;
    reply->n_groups = 2;
}

static void rounds(F8__InspectReply *reply)
{
    static F8__RoundInfo info;
    static F8__RoundInfo *list[] = {&info};
    static uint32_t ranks[] = {3}, pids[] = {1004};

    f8__round_info__init(&info);
    info.job = (char *)"run<b>";
    info.group = (char *)"dp";
    info.collective = 1234568;
    info.kind = (char *)"gather";
    info.bucket = (char *)"layers";
    info.state = (char *)"waiting for ranks";
    info.waited_ms = 61000;
    info.deadline_ms = 240000;
    info.missing_ranks = ranks;
    info.missing_pids = pids;
    info.n_missing_ranks = info.n_missing_pids = 1;
    reply->rounds = list;
    reply->n_rounds = 1;
}

static void hosts(F8__InspectReply *reply)
{
    static F8__HostInfo infos[2];
    static F8__HostInfo *list[2] = {&infos[0], &infos[1]};
    static uint32_t ranks[] = {0, 1, 2, 3};

    for (size_t h = 0; h < 2; h++) {
        f8__host_info__init(&infos[h]);
        infos[h].job = (char *)"run<b>";
        infos[h].group = (char *)"dp";
        infos[h].name = (char *)(h == 0 ? "node1" : "node2");
        infos[h].address = (char *)(h == 0 ? "10.0.0.1" : "10.0.0.2");
        infos[h].ranks = ranks + 2 * h;
        infos[h].n_ranks = 2;
        infos[h].here = infos[h].root = h == 0;
        infos[h].silent_ms = h * 9000;
        infos[h].lost = h == 1;
    }
    reply->hosts = list;
    reply->n_hosts = 2;
}

void fleet_view(F8__InspectReply *reply, const F8__Inspect *ask, uint64_t num_weights)
{
    switch (ask->view) {
    case F8__VIEW__STATUS:
        status(reply, num_weights);
        break;
    case F8__VIEW__JOBS:
        jobs(reply);
        break;
    case F8__VIEW__GROUPS:
        groups(reply, num_weights);
        break;
    case F8__VIEW__ROUNDS:
        rounds(reply);
        break;
    case F8__VIEW__HOSTS:
        hosts(reply);
        break;
    default:
        break;
    }
}

/* ---- counts ---- */

/* A hundred durations: 90 of at most 1 ms, 9 of at most 10 ms, one beyond. */
static F8__HistogramInfo *histogram(size_t which, uint32_t times)
{
    static F8__HistogramInfo infos[3];
    static uint64_t bounds[] = {1000000, 10000000}, counts[3][3];

    f8__histogram_info__init(&infos[which]);
    counts[which][0] = 90 * (uint64_t)times;
    counts[which][1] = 9 * (uint64_t)times;
    counts[which][2] = times;
    infos[which].bounds = bounds;
    infos[which].n_bounds = 2;
    infos[which].counts = counts[which];
    infos[which].n_counts = 3;
    infos[which].sum = 200 * (uint64_t)1000000 * times;
    return &infos[which];
}

static F8__CountInfo *count(size_t which, const char *name, uint64_t number)
{
    static F8__CountInfo infos[4];

    f8__count_info__init(&infos[which]);
    infos[which].name = (char *)name;
    infos[which].count = number;
    return &infos[which];
}

void fleet_stats(F8__InspectReply *reply, const F8__Inspect *ask, uint32_t times)
{
    static F8__StatsInfo info;
    static F8__StatsInfo *list[] = {&info};
    static F8__CountInfo *bytes[2], *failed[2];
    bool job = ask->job[0] != '\0';

    f8__stats_info__init(&info);
    info.job = (char *)(job ? "run<b>" : "");
    info.uid = job ? 1000 : 0;
    info.age_ms = 10000 * (uint64_t)times;
    info.gathers = 1000 * (uint64_t)times;
    info.saturated = 20 * (uint64_t)times;
    info.nan = times == 1 ? 8 : 2; /* it went down */
    info.stale = 0;
    bytes[0] = count(0, "e4m3fn", (uint64_t)times << 30);
    bytes[1] = count(1, "float16", 0);
    failed[0] = count(2, job ? "any" : "deadline", 0);
    failed[1] = count(3, "rank_died", 3);
    info.bytes = bytes;
    info.n_bytes = 2;
    info.failed = failed;
    info.n_failed = job ? 1 : 2;
    if (!job) {
        info.gather = histogram(0, times);
        info.wait = histogram(1, times);
        info.rpc = histogram(2, times);
    }
    reply->stats = list;
    reply->n_stats = 1;
}
