/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Network namespaces as hosts: makes them, and counts what passes their cables. The work
 * is that of iproute2's `ip` and `tc`, run inside a namespace with a script on standard input.
 * Called as network.h says; a thread that visits a namespace here is back in its own when a call
 * returns.
 */
#include "network.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/bench/network_private.h"

/* Of the calling thread: its namespace, and its view of the counters. */
/* To see a route, each of some milliseconds. */
#define MAX_TRIES 2000

#define OWN_NAMESPACE "/proc/thread-self/ns/net"
#define OWN_COUNTERS  "/proc/thread-self/net/dev"

/* In the child: becomes `program` in the namespace, fed with the script from a descriptor. */
__attribute__((noreturn)) static void become(
    int ns_fd, const char *program, int script_fd, int says_fd)
{
    const char *path = getenv("PATH");
    char with_sbin[2048];

    /* A user who became root may not have it in his PATH. */
    snprintf(with_sbin, sizeof(with_sbin), "%s:/usr/sbin:/sbin", path != NULL ? path : "/usr/bin");
    setenv("PATH", with_sbin, 1);
    dup2(script_fd, STDIN_FILENO);
    dup2(says_fd, STDOUT_FILENO);
    dup2(says_fd, STDERR_FILENO);
    if (setns(ns_fd, CLONE_NEWNET) == 0) {
        execlp(program, program, "-batch", "-", (char *)NULL);
    }
    fprintf(stderr, "%s (of iproute2): %s\n", program, strerror(errno));
    _exit(127);
}

/* What it said, in one line, for a message. */
static void read_said(int fd, char *said, size_t size)
{
    size_t length = 0;
    ssize_t got;

    while (length < size - 1 && (got = read(fd, said + length, size - 1 - length)) > 0) {
        length += (size_t)got;
    }
    said[length] = '\0';
    for (char *c = said; *c != '\0'; c++) {
        *c = *c == '\n' ? ' ' : *c;
    }
}

int network_run(int ns_fd, const char *program, const char *script, struct bench_error *error)
{
    int script_ends[2];
    int says_ends[2];
    char said[400];
    int status = -1;
    pid_t pid;

    if (pipe2(script_ends, O_CLOEXEC) != 0) {
        return bench_fail(error, "no pipe for %s: %s", program, strerror(errno));
    }
    if (pipe2(says_ends, O_CLOEXEC) != 0) {
        close(script_ends[0]);
        close(script_ends[1]);
        return bench_fail(error, "no pipe for %s: %s", program, strerror(errno));
    }
    /* Both ends are ours still, and a pipe holds more than a script. */
    dprintf(script_ends[1], "%s", script);
    close(script_ends[1]);
    pid = fork();
    if (pid == 0) {
        become(ns_fd, program, script_ends[0], says_ends[1]);
    }
    close(script_ends[0]);
    close(says_ends[1]);
    read_said(says_ends[0], said, sizeof(said));
    close(says_ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        return bench_fail(error, "%s failed: %s", program, said);
    }
    return 0;
}

int network_check(struct bench_error *error)
{
    int own = open(OWN_NAMESPACE, O_RDONLY | O_CLOEXEC);
    int result = 0;

    if (own < 0) {
        return bench_fail(error, "no network namespaces: %s: %s", OWN_NAMESPACE, strerror(errno));
    }
    if (unshare(CLONE_NEWNET) != 0) {
        result = bench_fail(
            error, "hosts in network namespaces need root (unshare: %s)", strerror(errno));
    } else if (setns(own, CLONE_NEWNET) != 0) {
        abort(); /* in a namespace without any network nothing can go on */
    }
    /* And the programs, with nothing to do. */
    if (result == 0) {
        result = network_run(own, "ip", "", error);
    }
    if (result == 0) {
        result = network_run(own, "tc", "", error);
    }
    close(own);
    return result;
}

/*
 * Hosts send as those of clusters mostly do, whatever this machine is set to: BBR, for one, probes
 * for some rounds what a shaped cable can do. Kernels without cubic keep what they have.
 */
static void set_congestion_control(void)
{
    int fd = open("/proc/sys/net/ipv4/tcp_congestion_control", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!write(fd, "cubic", 5);
        close(fd);
    }
}

/* A namespace of nobody, held by the descriptor. */
static int make_namespace(struct bench_error *error)
{
    int own = open(OWN_NAMESPACE, O_RDONLY | O_CLOEXEC);
    int made = -1;

    if (own >= 0 && unshare(CLONE_NEWNET) == 0) {
        made = open(OWN_NAMESPACE, O_RDONLY | O_CLOEXEC);
        set_congestion_control();
        if (setns(own, CLONE_NEWNET) != 0) {
            abort(); /* as in network_check */
        }
    }
    if (made < 0) {
        bench_fail(error, "cannot make a network namespace: %s", strerror(errno));
    }
    if (own >= 0) {
        close(own);
    }
    return made;
}

void network_address(uint32_t host, bool ipv6, char *text, size_t size)
{
    if (ipv6) {
        snprintf(text, size, "fd48::%" PRIx32, host + 1);
    } else {
        snprintf(text, size, "10.48.0.%" PRIu32, host + 1);
    }
}

static int make_switch(struct network *network, struct bench_error *error)
{
    network->switch_fd = make_namespace(error);
    if (network->switch_fd < 0) {
        return -1;
    }
    return network_run(network->switch_fd, "ip",
        "link add switch type bridge mcast_snooping 0\n"
        "link set switch addrgenmode none\n"
        "link set switch up\n",
        error);
}

/* The cable's end at the switch is called h and the number of the host. */
static int plug_in(const struct network *network, uint32_t host, struct bench_error *error)
{
    char script[MAX_SCRIPT];

    snprintf(script, sizeof(script),
        "link add h%u type veth peer name " NETWORK_INTERFACE " netns /proc/%d/fd/%d\n"
        "link set h%u addrgenmode none master switch\n"
        "link set h%u up\n",
        host, (int)getpid(), network->host_fds[host], host, host);
    return network_run(network->switch_fd, "ip", script, error);
}

static int make_host(struct network *network, uint32_t host, struct bench_error *error)
{
    char script[MAX_SCRIPT];
    char address[64];
    char address6[64];
    int fd = make_namespace(error);

    if (fd < 0) {
        return -1;
    }
    network->host_fds[network->num_hosts++] = fd;
    network_address(host, false, address, sizeof(address));
    network_address(host, true, address6, sizeof(address6));
    /* No address that the kernel makes itself, and no wait for somebody else who has it. */
    snprintf(script, sizeof(script),
        "link set lo up\n"
        "link set " NETWORK_INTERFACE " addrgenmode none\n"
        "address add %s/24 dev " NETWORK_INTERFACE "\n"
        "address add %s/64 dev " NETWORK_INTERFACE " nodad\n"
        "link set " NETWORK_INTERFACE " up\n",
        address, address6);
    return plug_in(network, host, error) != 0 ? -1 : network_run(fd, "ip", script, error);
}

/*
 * A host has its IPv6 routes, the one to itself too, only once the kernel has noticed that there is
 * a cable in its interface, which it does when it comes to it. It tells nobody who does not listen
 * for all that happens there, so this asks, again and again for some seconds.
 */
static int await_routes(const struct network *network, uint32_t host, struct bench_error *error)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    char script[MAX_SCRIPT], own[64], far[64];
    int result = -1;

    network_address(host, true, own, sizeof(own));
    network_address(NETWORK_MAX_HOSTS, true, far, sizeof(far));
    snprintf(script, sizeof(script), "route get %s\nroute get %s\n", own, far);
    for (int tries = 0; result != 0 && tries < MAX_TRIES; tries++) {
        if (tries > 0) {
            nanosleep(&nap, NULL);
        }
        result = network_run(network->host_fds[host], "ip", script, error);
    }
    return result;
}

int network_new(uint32_t num_hosts, struct network **ret_network, struct bench_error *error)
{
    struct network *network;
    int result;

    if (num_hosts == 0 || num_hosts > NETWORK_MAX_HOSTS) {
        return bench_fail(
            error, "%" PRIu32 " hosts: must be 1 to %d", num_hosts, NETWORK_MAX_HOSTS);
    }
    if (network_check(error) != 0) {
        return -1;
    }
    network = calloc(1, sizeof(*network));
    if (network == NULL) {
        return bench_no_memory(error);
    }
    result = make_switch(network, error);
    for (uint32_t host = 0; result == 0 && host < num_hosts; host++) {
        result = make_host(network, host, error);
    }
    for (uint32_t host = 0; result == 0 && host < num_hosts; host++) {
        result = await_routes(network, host, error);
    }
    if (result != 0) {
        network_free(network);
        return -1;
    }
    *ret_network = network;
    return 0;
}

void network_free(struct network *network)
{
    if (network == NULL) {
        return;
    }
    for (uint32_t host = 0; host < network->num_hosts; host++) {
        network_stop_delay(network, host);
        close(network->host_fds[host]);
    }
    if (network->switch_fd >= 0) {
        close(network->switch_fd);
    }
    free(network);
}

int network_enter(const struct network *network, uint32_t host)
{
    return setns(network->host_fds[host], CLONE_NEWNET);
}

/* The counters of an interface in the thread's namespace; -1: there is none. */
static int read_counters(const char *interface, struct network_traffic *ret_traffic)
{
    struct network_traffic traffic;
    size_t length = strlen(interface);
    FILE *file = fopen(OWN_COUNTERS, "re");
    char line[512];
    int result = -1;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *name = line + strspn(line, " ");
        /* "name: in: bytes packets and 6 more, out: bytes packets ..." */
        if (strncmp(name, interface, length) == 0 && name[length] == ':' &&
            sscanf(name + length + 1, "%" SCNu64 "%" SCNu64 "%*u%*u%*u%*u%*u%*u%" SCNu64 "%" SCNu64,
                &traffic.in_bytes, &traffic.in_packets, &traffic.out_bytes,
                &traffic.out_packets) == 4) {
            *ret_traffic = traffic;
            result = 0;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return result;
}

int network_count_own(const char *interface, struct network_traffic *ret_traffic)
{
    return read_counters(interface, ret_traffic);
}

struct network_traffic network_traffic_between(
    const struct network_traffic *before, const struct network_traffic *after)
{
    return (struct network_traffic){.in_bytes = after->in_bytes - before->in_bytes,
        .out_bytes = after->out_bytes - before->out_bytes,
        .in_packets = after->in_packets - before->in_packets,
        .out_packets = after->out_packets - before->out_packets};
}

int network_count(const struct network *network, uint32_t host, struct network_traffic *ret_traffic,
    struct bench_error *error)
{
    int own = open(OWN_NAMESPACE, O_RDONLY | O_CLOEXEC);
    struct network_traffic port;
    char name[16];
    int result = -1;

    snprintf(name, sizeof(name), "h%" PRIu32, host);
    if (own >= 0 && setns(network->switch_fd, CLONE_NEWNET) == 0) {
        result = read_counters(name, &port);
        if (setns(own, CLONE_NEWNET) != 0) {
            abort(); /* as in network_check */
        }
    }
    if (own >= 0) {
        close(own);
    }
    if (result != 0) {
        return bench_fail(error, "cannot read what host %" PRIu32 " has sent and received", host);
    }
    /* What the switch's end receives the host has sent. */
    *ret_traffic = (struct network_traffic){.in_bytes = port.out_bytes,
        .out_bytes = port.in_bytes,
        .in_packets = port.out_packets,
        .out_packets = port.in_packets};
    return 0;
}
