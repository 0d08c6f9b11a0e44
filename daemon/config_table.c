/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of settings and their defaults: see config_private.h. Flags, environment, files, help
 * and checks are all made from it, so that none of them can be forgotten for a new one.
 */
#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "daemon/config_private.h"

#define MAX_BYTES ((uint64_t)1 << 62)

#define AT(field) offsetof(struct config, field)

const struct config_setting config_settings[] = {
    {"socket", "PATH", "where to listen", KIND_SOCKET, false, AT(socket), 0, 0},
    {"threads", "N", "workers for amax and cast (default: the number of CPUs)", KIND_COUNT, false,
        AT(threads), 1, 1024},
    {"log-level", "LEVEL", "error, warning, info or debug (default: info)", KIND_LEVEL, true,
        AT(log_level), 0, 0},
    {"memory-per-uid", "BYTES",
        "regions and gathered weights of one uid, with K, M, G or T "
        "(default: 80% of memory)",
        KIND_BYTES, true, AT(memory_per_uid), 1 << 20, MAX_BYTES},
    {"deadline", "SECONDS", "of a collective that gives none (default: 600)", KIND_SECONDS, true,
        AT(deadline_ms), 1, 1 << 30},
    {"slow", "SECONDS", "after which a waiting collective is logged (default: 30)", KIND_SECONDS,
        true, AT(slow_ms), 1, 1 << 30},
    {"saturation-warning", "N",
        "saturated elements in a million of a gathered weight past which an event tells "
        "(default: 1000)",
        KIND_COUNT, true, AT(saturation_ppm), 0, 1000000},
    {"admin-group", "NAME", "whose members may inspect, besides root and the daemon's uid",
        KIND_GROUP, true, AT(admin_gid), 0, 0},
    {"max-connections", "N", "clients at once (default: 1024)", KIND_COUNT, true,
        AT(max_connections), 1, 1 << 20},
    {"max-jobs", "N", "jobs at once (default: 256)", KIND_COUNT, true, AT(max_jobs), 1, 1 << 20},
    {"max-groups", "N", "groups of one client (default: 64)", KIND_COUNT, true, AT(max_groups), 1,
        1 << 16},
    {"max-regions", "N", "regions of one client (default: 4096)", KIND_COUNT, true, AT(max_regions),
        1, 1 << 20},
    {"max-weights", "N", "weights of one group (default: 65536)", KIND_COUNT, false,
        AT(max_weights), 1, 1 << 24},
    {"max-ranks", "N", "ranks of one group (default: 256)", KIND_COUNT, true, AT(max_ranks), 1,
        4096},
    {"credit", "N", "open requests of one client, past which it is not read (default: 4096)",
        KIND_COUNT, false, AT(credit), 1, 1 << 20},
    {"max-rounds", "N", "open collectives of one group (default: 4096)", KIND_COUNT, false,
        AT(max_rounds), 1, 1 << 20},
    {"max-states", "N", "scaling states stored for one uid (default: 1024)", KIND_COUNT, true,
        AT(max_states), 1, 1 << 20},
    {"linger", "SECONDS", "that a group's scaling state outlives it (default: 600)", KIND_SECONDS,
        true, AT(linger_ms), 0, 1 << 30},
    {"state-dir", "PATH",
        "where snapshots of scaling states outlive a reboot; none: nowhere (default: "
        "$STATE_DIRECTORY, or /var/lib/f8gatherd for the system's socket)",
        KIND_STATE_DIR, false, AT(state_dir), 0, 0},
    {"snapshot-interval", "SECONDS",
        "between snapshots of what has changed; 0: only at the end and on demand (default: 60)",
        KIND_SECONDS, true, AT(snapshot_interval_ms), 0, 1 << 30},
    {"snapshot-keep", "SECONDS",
        "that a group's scaling state outlives it where there are snapshots, if --linger is "
        "shorter (default: 604800, 7 days)",
        KIND_SECONDS, true, AT(snapshot_keep_ms), 0, 1 << 30},
    {"drain", "SECONDS", "that SIGTERM gives the collectives under way (default: 10)", KIND_SECONDS,
        true, AT(drain_ms), 0, 1 << 20},
    {"cuda", "WHEN", "serve GPUs: auto, off, or require, to end without (default: auto)", KIND_CUDA,
        false, AT(cuda), 0, 0},
    {"cuda-limit", "SECONDS", "for a call of CUDA, past which the daemon ends (default: 120)",
        KIND_SECONDS, false, AT(cuda_limit_ms), 1, 1 << 30},
    {"socket-ifname", "NAMES",
        "interfaces to other hosts: eth,ib (prefixes), =eth0 or ^docker; also F8_SOCKET_IFNAME",
        KIND_IFNAME, false, AT(socket_ifname), 0, 0},
    {"socket-family", "FAMILY", "to other hosts: ipv4, ipv6 or any (default: any)", KIND_FAMILY,
        false, AT(socket_family), 0, 0},
    {"host-name", "NAME", "of this host, for the others of a group (default: the system's)",
        KIND_HOST, false, AT(host_name), 0, 0},
    {"world-deadline", "SECONDS", "for all hosts of a group to come (default: 300)", KIND_SECONDS,
        true, AT(world_deadline_ms), 1, 1 << 30},
    {"heartbeat", "MILLISECONDS", "between the hosts of a group (default: 1000)", KIND_MS, false,
        AT(heartbeat_ms), 10, 60000},
    {"host-timeout", "MILLISECONDS", "after which a silent host is lost (default: 10000)", KIND_MS,
        false, AT(host_timeout_ms), 40, 1 << 30},
    {"max-worlds", "N", "groups over several hosts that form here at once (default: 64)",
        KIND_COUNT, true, AT(max_worlds), 1, 1 << 16},
    {"metrics", "ADDRESS",
        "serve metrics over HTTP: the path of a socket, 127.0.0.1:PORT or [::1]:PORT (default: "
        "off)",
        KIND_METRICS, false, AT(metrics), 0, 0},
    {"metrics-reach", "WHO",
        "whom --metrics may serve: loopback, or any, for addresses of the network (default: "
        "loopback)",
        KIND_REACH, false, AT(metrics_reach), 0, 0},
};

static_assert(sizeof(config_settings) / sizeof(config_settings[0]) == CONFIG_NUM_SETTINGS,
    "a setting without its place in struct config_draft");

const struct config_setting *config_find(const char *flag)
{
    for (size_t i = 0; i < CONFIG_NUM_SETTINGS; i++)
        if (strcmp(config_settings[i].flag, flag) == 0)
            return &config_settings[i];
    return NULL;
}

static uint64_t total_memory(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

void config_set_defaults(struct config_draft *draft)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    draft->config = (struct config){
        .log_level = LOG_LEVEL_INFO,
        .threads = cpus < 1 ? 1 : (uint32_t)cpus,
        .max_connections = 1024,
        .max_jobs = 256,
        .max_groups = 64,
        .max_regions = 4096,
        .max_weights = 65536,
        .max_ranks = 256,
        .credit = 4096,
        .max_rounds = 4096,
        .max_states = 1024,
        .saturation_ppm = 1000,
        .memory_per_uid = total_memory() / 5 * 4,
        .deadline_ms = 600000,
        .slow_ms = 30000,
        .linger_ms = 600000,
        .drain_ms = 10000,
        .snapshot_interval_ms = 60000,
        .snapshot_keep_ms = (uint64_t)7 * 24 * 3600 * 1000,
        .cuda = CONFIG_CUDA_AUTO,
        .cuda_limit_ms = 120000,
        .socket_family = CONFIG_FAMILY_ANY,
        .world_deadline_ms = 300000,
        .heartbeat_ms = 1000,
        .host_timeout_ms = 10000,
        .max_worlds = 64,
    };
    for (size_t i = 0; i < CONFIG_NUM_SETTINGS; i++)
        (void)strcpy(draft->origins[i], "default");
}
