/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts that are made of network namespaces of this machine, for runs and tests over several hosts:
 * each has one interface, eth0, whose cable ends at one switch that joins all. Only descriptors
 * hold the namespaces: nothing has a name, and nothing is left of them when the last process that
 * has one ends, however it ends. Needs root, and `ip` and `tc` of iproute2. Called by the parent,
 * which has one thread, before it forks the processes that live there; network_enter and
 * network_count_own by those.
 */
#ifndef F8BENCH_NETWORK_H
#define F8BENCH_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/bench/error.h"

#define NETWORK_MAX_HOSTS 64

/* The interface of each host. */
#define NETWORK_INTERFACE "eth0"

struct network {
    int switch_fd; /* owned: the namespace of the switch */
    uint32_t num_hosts;
    int host_fds[NETWORK_MAX_HOSTS]; /* owned: theirs */
    pid_t delays[NETWORK_MAX_HOSTS]; /* owned: processes that delay; 0: none */
};

/*
 * What has passed an interface, Ethernet headers included. Where the kernel hands on segments
 * joined (GSO, as a veth does), each joined one counts with one header.
 */
struct network_traffic {
    uint64_t in_bytes, out_bytes;
    uint64_t in_packets, out_packets;
};

/* How a host's cable is: both directions alike. 0: as fast as it goes. */
struct network_shape {
    uint32_t delay_us;  /* on the way out, so once on each way between two hosts */
    uint32_t rate_mbit; /* 10^6 bits a second, each way */
};

/* Whether this process may make networks here; -1 with what is missing: to be root, mostly. */
int network_check(struct bench_error *error);

/*
 * Makes 1 to NETWORK_MAX_HOSTS hosts with addresses (see network_address) and a loopback that is
 * up. The caller frees it. -1 with the reason otherwise; then nothing of it is left.
 */
int network_new(uint32_t num_hosts, struct network **ret_network, struct bench_error *error);

/* NULL is fine. Hosts vanish when the processes that entered them have ended, too. */
void network_free(struct network *network);

/* The address of a host's eth0, as text: 10.48.0.1 and fd48::1 for host 0, and so on. */
void network_address(uint32_t host, bool ipv6, char *text, size_t size);

/* Moves the calling thread, and what it starts from then on, to a host. -1: errno says why. */
int network_enter(const struct network *network, uint32_t host);

/* Of a host's eth0 since it was made, seen from the switch. */
int network_count(const struct network *network, uint32_t host, struct network_traffic *ret_traffic,
    struct bench_error *error);

/* The same of an interface where the calling thread is. -1: it is not there. */
int network_count_own(const char *interface, struct network_traffic *ret_traffic);

/* What has passed between two looks at an interface. */
struct network_traffic network_traffic_between(
    const struct network_traffic *before, const struct network_traffic *after);

/*
 * Gives a host's cable this shape, in place of the one it has. Delays are netem's where the kernel
 * has it; else a process of our own carries the packets, which dies with the calling thread.
 */
int network_shape(struct network *network, uint32_t host, const struct network_shape *shape,
    struct bench_error *error);

/* Pulls a host's cable at the switch, or plugs it in again, which the kernel sees in a moment: what
 * is sent meanwhile is lost. */
int network_cut(const struct network *network, uint32_t host, struct bench_error *error);
int network_mend(const struct network *network, uint32_t host, struct bench_error *error);

/* Two hosts lose what they send to each other, unnoticed by the kernels, and reach all others; or
 * reach each other again. */
int network_part(
    const struct network *network, uint32_t one, uint32_t other, struct bench_error *error);
int network_rejoin(
    const struct network *network, uint32_t one, uint32_t other, struct bench_error *error);

#endif
