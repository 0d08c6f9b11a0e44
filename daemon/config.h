/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's settings: defaults, then files, then the environment, then flags. Read by main
 * before the loop, and again by server at SIGHUP, which changes some of them; everyone else sees
 * it const, and on the loop.
 */
#ifndef F8_DAEMON_CONFIG_H
#define F8_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "daemon/log.h"
#include "daemon/reason.h"

enum config_cuda {
    CONFIG_CUDA_AUTO,    /* if there is something to work with */
    CONFIG_CUDA_OFF,     /* the module is not looked for */
    CONFIG_CUDA_REQUIRE, /* the daemon does not start without */
};

/* Of the addresses by which hosts reach one another. */
enum config_family {
    CONFIG_FAMILY_ANY, /* IPv4 first */
    CONFIG_FAMILY_IPV4,
    CONFIG_FAMILY_IPV6,
};

/* Which addresses may serve metrics. */
enum config_reach {
    CONFIG_REACH_LOOPBACK,
    CONFIG_REACH_ANY,
};

struct config {
    char socket[108];              /* path, as long as sun_path */
    char state_dir[256];           /* of snapshots; empty: none are kept */
    uint64_t snapshot_interval_ms; /* 0: at the end and on demand only */
    uint64_t snapshot_keep_ms;     /* with a state_dir: as linger_ms, if it is longer */
    enum log_level log_level;
    uint32_t threads; /* of the worker pool */
    uint32_t max_connections;
    uint32_t max_jobs;
    uint32_t max_groups;     /* of one connection */
    uint32_t max_regions;    /* of one connection */
    uint32_t max_weights;    /* of one group */
    uint32_t max_ranks;      /* of one group, on this host */
    uint32_t credit;         /* open requests of one connection */
    uint32_t max_rounds;     /* open collectives of one group */
    uint32_t saturation_ppm; /* of a gathered weight's elements, past which an event tells */
    uint32_t max_states;     /* scaling states stored for one uid */
    uint64_t memory_per_uid; /* bytes: regions, arenas and stored states */
    uint64_t deadline_ms;    /* of a collective that names none */
    uint64_t slow_ms;        /* after which a waiting collective is logged */
    uint64_t linger_ms;      /* that a scaling state is kept after its group is gone */
    uint64_t drain_ms;       /* that SIGTERM gives the collectives under way */
    enum config_cuda cuda;
    uint64_t cuda_limit_ms;       /* for one call of CUDA, then the daemon ends */
    char socket_ifname[256];      /* as NCCL_SOCKET_IFNAME; empty: any interface */
    char socket_ifname_from[320]; /* what set it: "--socket-ifname", "F8_SOCKET_IFNAME" */
    enum config_family socket_family;
    char host_name[65];         /* for the other hosts of a group; empty: the system's */
    uint64_t world_deadline_ms; /* for all hosts of a group to come */
    uint64_t heartbeat_ms;      /* between hosts */
    uint64_t host_timeout_ms;   /* after which a silent host is lost */
    uint32_t max_worlds;        /* groups over several hosts that form here at once */
    char metrics[128];          /* where HTTP serves metrics; empty: nowhere */
    enum config_reach metrics_reach;
    bool has_admin_gid;
    gid_t admin_gid; /* besides root and the daemon's own uid */
};

/* Where metrics are served over HTTP. */
struct config_address {
    struct sockaddr_storage address; /* AF_UNIX, AF_INET or AF_INET6 */
    socklen_t size;
};

/* The address of config->metrics, which is not empty and was checked. */
void config_metrics_address(const struct config *config, struct config_address *ret_address);

/* What config_parse found. */
enum config_action {
    CONFIG_RUN,
    CONFIG_EXIT, /* --help, --version, --check-config or --print-config was served */
};

/*
 * Fills in the settings. F8_EINVAL: the reason names the flag, the variable or the file and line,
 * and the value. Makes nothing in the file system.
 */
int config_parse(int argc, char **argv, struct config *ret_config, enum config_action *ret_action,
    struct reason *reason);

/*
 * Reads all again. `told` is what config_parse gave and what later calls changed in it; what
 * differs from it and may change is taken over into it and into `live`, which the daemon runs by.
 * All differences are logged. As config_parse on failure, and then nothing has changed.
 */
int config_reload(
    int argc, char **argv, struct config *told, struct config *live, struct reason *reason);

#endif
