/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cables of hosts that are network namespaces: shapes, cuts and mends them. Rates are tbf's at
 * both ends; delays netem's at the host's end, or where the kernel has none a process's at the
 * switch's. Called as network.h says.
 */
#include <inttypes.h>
#include <signal.h>
#include <sys/wait.h>

#include "client/bench/network_delay.h"
#include "client/bench/network_private.h"

/*
 * What a shaped cable may hold before it drops, and what tbf lets pass at once: just one
 * joined segment of 64 KiB with its headers, which it would have to cut otherwise.
 */
#define QUEUE_PACKETS 100000
#define QUEUE_BYTES   (64 << 20)
#define BURST_BYTES   (72 << 10)

/* What leaves by one end of a cable goes at this rate. Not by netem: some kernels have tbf only. */
static int limit_end(
    int ns_fd, const char *interface, uint32_t rate_mbit, struct bench_error *error)
{
    char script[MAX_SCRIPT];

    if (rate_mbit == 0) {
        snprintf(script, sizeof(script), "qdisc replace dev %s root noqueue\n", interface);
    } else {
        snprintf(script, sizeof(script),
            "qdisc replace dev %s root tbf rate %" PRIu32 "mbit burst %d limit %d\n", interface,
            rate_mbit, BURST_BYTES, QUEUE_BYTES);
    }
    return network_run(ns_fd, "tc", script, error);
}

/* Where there is netem, it has both on the host's own end. -1: there is none. */
static int delay_by_netem(int ns_fd, const struct network_shape *shape)
{
    struct bench_error unused;
    char script[MAX_SCRIPT];
    char rate[48] = "";

    if (shape->rate_mbit > 0) {
        snprintf(rate, sizeof(rate), "rate %" PRIu32 "mbit", shape->rate_mbit);
    }
    snprintf(script, sizeof(script),
        "qdisc replace dev " NETWORK_INTERFACE " root netem delay %" PRIu32 "us %s limit %d\n",
        shape->delay_us, rate, QUEUE_PACKETS);
    return network_run(ns_fd, "tc", script, &unused);
}

/*
 * Puts a stretch between the cable's end and the switch, "slowH" to "fastH", with a process between
 * the end and the stretch.
 */
static int delay_by_process(
    struct network *network, uint32_t host, uint32_t delay_us, struct bench_error *error)
{
    char script[MAX_SCRIPT];
    char end[16];
    char stretch[16];

    snprintf(end, sizeof(end), "h%" PRIu32, host);
    snprintf(stretch, sizeof(stretch), "slow%" PRIu32, host);
    snprintf(script, sizeof(script),
        "link add %s type veth peer name fast%" PRIu32 "\n"
        "link set fast%" PRIu32 " addrgenmode none master switch up\n"
        "link set %s addrgenmode none up\n"
        "link set %s nomaster promisc on\n",
        stretch, host, host, stretch, end);
    if (network_run(network->switch_fd, "ip", script, error) != 0) {
        return -1;
    }
    network->delays[host] = network_delay_start(network->switch_fd, end, stretch, delay_us, error);
    if (network->delays[host] < 0) {
        network->delays[host] = 0;
        return -1;
    }
    return 0;
}

void network_stop_delay(struct network *network, uint32_t host)
{
    if (network->delays[host] > 0) {
        kill(network->delays[host], SIGKILL);
        waitpid(network->delays[host], NULL, 0);
        network->delays[host] = 0;
    }
}

/* The cable's end is at the switch again. */
static int undelay(struct network *network, uint32_t host, struct bench_error *error)
{
    char script[MAX_SCRIPT];

    if (network->delays[host] == 0) {
        return 0;
    }
    network_stop_delay(network, host);
    snprintf(script, sizeof(script),
        "link del slow%" PRIu32 "\n"
        "link set h%" PRIu32 " master switch promisc off\n",
        host, host);
    return network_run(network->switch_fd, "ip", script, error);
}

int network_shape(struct network *network, uint32_t host, const struct network_shape *shape,
    struct bench_error *error)
{
    int host_fd = network->host_fds[host];
    char end[16];

    snprintf(end, sizeof(end), "h%" PRIu32, host);
    if (undelay(network, host, error) != 0 ||
        limit_end(network->switch_fd, end, shape->rate_mbit, error) != 0) {
        return -1;
    }
    if (shape->delay_us > 0 && delay_by_netem(host_fd, shape) == 0) {
        return 0;
    }
    if (limit_end(host_fd, NETWORK_INTERFACE, shape->rate_mbit, error) != 0) {
        return -1;
    }
    return shape->delay_us > 0 ? delay_by_process(network, host, shape->delay_us, error) : 0;
}

static int set_cable(
    const struct network *network, uint32_t host, const char *state, struct bench_error *error)
{
    char script[MAX_SCRIPT];

    snprintf(script, sizeof(script), "link set h%" PRIu32 " %s\n", host, state);
    return network_run(network->switch_fd, "ip", script, error);
}

int network_cut(const struct network *network, uint32_t host, struct bench_error *error)
{
    return set_cable(network, host, "down", error);
}

int network_mend(const struct network *network, uint32_t host, struct bench_error *error)
{
    return set_cable(network, host, "up", error);
}

/* Takes an address of Ethernet that nobody has for the other host's, or no longer. */
static int set_way(
    const struct network *network, uint32_t from, uint32_t to, bool lost, struct bench_error *error)
{
    char script[MAX_SCRIPT] = "";
    size_t used = 0;

    for (int ipv6 = 0; ipv6 < 2; ipv6++) {
        char address[64];
        network_address(to, ipv6 == 1, address, sizeof(address));
        used += (size_t)snprintf(script + used, sizeof(script) - used,
            lost ? "neigh replace %s lladdr 02:00:00:00:00:fe nud permanent dev " NETWORK_INTERFACE
                   "\n"
                 : "neigh del %s dev " NETWORK_INTERFACE "\n",
            address);
    }
    return network_run(network->host_fds[from], "ip", script, error);
}

static int set_ways(const struct network *network, uint32_t one, uint32_t other, bool lost,
    struct bench_error *error)
{
    int result = set_way(network, one, other, lost, error);

    return result == 0 ? set_way(network, other, one, lost, error) : result;
}

int network_part(
    const struct network *network, uint32_t one, uint32_t other, struct bench_error *error)
{
    return set_ways(network, one, other, true, error);
}

int network_rejoin(
    const struct network *network, uint32_t one, uint32_t other, struct bench_error *error)
{
    return set_ways(network, one, other, false, error);
}
