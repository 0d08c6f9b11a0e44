/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain TCP between all hosts: the connections, and exchanges over them in one loop of poll. Called
 * by one process of each host, in its only thread.
 */
#include "exchange.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* How long nothing may move, and how long another host may take to come. */
#define PATIENCE_S 60

/* How long who connects may take to say which host it is. */
#define HELLO_SECONDS 5

/* Bytes that one call of send or recv is for: others must have their turn. */
#define MAX_CALL (1 << 20)

/* The connection to another host, and what is left to do over it. */
struct peer {
    int fd; /* owned; -1: it is this host */
    const uint8_t *from;
    uint64_t to_send;
    uint8_t *to;
    uint64_t to_receive;
};

struct exchange {
    uint32_t host, num_hosts;
    uint32_t patience_s;
    uint8_t *out;      /* owned: what this host sends, its mark in every byte */
    uint64_t out_size; /* the most that is sent to one host */
    uint8_t *in;       /* owned: what comes, by host; */
    uint64_t in_size;  /* all of it */
    uint64_t in_begin[NETWORK_MAX_HOSTS];
    struct peer peers[NETWORK_MAX_HOSTS];
};

static uint8_t mark_of(uint32_t host)
{
    return (uint8_t)(host + 1);
}

static socklen_t size_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

/* The first address of a family that an interface has. */
static bool find_address(
    const struct ifaddrs *all, const char *interface, int family, struct sockaddr_storage *ret)
{
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if (strcmp(at->ifa_name, interface) == 0 && at->ifa_addr != NULL &&
            at->ifa_addr->sa_family == family) {
            memset(ret, 0, sizeof(*ret));
            memcpy(ret, at->ifa_addr,
                family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
            return true;
        }
    }
    return false;
}

int exchange_listen_at(struct sockaddr_storage *address, struct bench_error *error)
{
    socklen_t size = size_of(address);
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)address, size) != 0 ||
        listen(fd, NETWORK_MAX_HOSTS) != 0 ||
        getsockname(fd, (struct sockaddr *)address, &size) != 0) {
        bench_fail(error, "cannot listen for an exchange over plain TCP: %s", strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

int exchange_listen(
    const char *interface, struct sockaddr_storage *ret_address, struct bench_error *error)
{
    struct ifaddrs *all = NULL;
    struct sockaddr_storage address;
    bool found;
    int fd;

    found = getifaddrs(&all) == 0 && (find_address(all, interface, AF_INET, &address) ||
                                         find_address(all, interface, AF_INET6, &address));
    freeifaddrs(all);
    if (!found) {
        return bench_fail(error, "interface %s is not there, or has no address", interface);
    }
    fd = exchange_listen_at(&address, error);
    if (fd >= 0) {
        *ret_address = address;
    }
    return fd;
}

static void set_up(int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* To a host that listens: says who calls. */
static int call(struct exchange *exchange, const struct exchange_place *place, uint32_t host,
    struct bench_error *error)
{
    const struct sockaddr_storage *address = &place->addresses[host];
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    exchange->peers[host].fd = fd;
    if (fd < 0 || connect(fd, (const struct sockaddr *)address, size_of(address)) != 0 ||
        send(fd, &place->host, sizeof(place->host), MSG_NOSIGNAL) != sizeof(place->host)) {
        return bench_fail(error, "host %" PRIu32 " cannot connect to host %" PRIu32 ": %s",
            place->host, host, strerror(errno));
    }
    set_up(fd);
    return 0;
}

/* Whether who has connected is a host behind this one that has not called yet. */
static bool is_awaited(
    const struct exchange *exchange, const struct exchange_place *place, int fd, uint32_t *ret_host)
{
    const struct timeval patience = {.tv_sec = HELLO_SECONDS};
    uint32_t host = 0;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (recv(fd, &host, sizeof(host), MSG_WAITALL) != sizeof(host) || host <= place->host ||
        host >= place->num_hosts || exchange->peers[host].fd >= 0) {
        return false;
    }
    *ret_host = host;
    return true;
}

/* Names the first host behind this one that has not called. */
static int fail_missing(
    const struct exchange *exchange, const struct exchange_place *place, struct bench_error *error)
{
    uint32_t host = place->host + 1;
    char address[INET6_ADDRSTRLEN] = "";

    while (exchange->peers[host].fd >= 0) {
        host++;
    }
    (void)getnameinfo((const struct sockaddr *)&place->addresses[host],
        size_of(&place->addresses[host]), address, sizeof(address), NULL, 0, NI_NUMERICHOST);
    return bench_fail(error,
        "host %" PRIu32 " (%s) has not come to where the others are within %" PRIu32
        " s: it is to connect to host %" PRIu32 " over plain TCP",
        host, address, exchange->patience_s, place->host);
}

/* Takes the next call of a host; strangers are sent away. */
static int answer(
    struct exchange *exchange, const struct exchange_place *place, struct bench_error *error)
{
    struct pollfd ready = {.fd = place->listener, .events = POLLIN};

    while (poll(&ready, 1, (int)exchange->patience_s * 1000) > 0) {
        int fd = accept4(place->listener, NULL, NULL, SOCK_CLOEXEC);
        uint32_t host = 0;
        if (fd >= 0 && is_awaited(exchange, place, fd, &host)) {
            exchange->peers[host].fd = fd;
            set_up(fd);
            return 0;
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    return fail_missing(exchange, place, error);
}

static int connect_all(
    struct exchange *exchange, const struct exchange_place *place, struct bench_error *error)
{
    for (uint32_t host = 0; host < place->host; host++) {
        if (call(exchange, place, host, error) != 0) {
            return -1;
        }
    }
    for (uint32_t host = place->host + 1; host < place->num_hosts; host++) {
        if (answer(exchange, place, error) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Memory that has been touched; one byte more, as a mapping cannot be empty. */
static uint8_t *map(uint64_t size, uint8_t fill)
{
    uint8_t *memory =
        mmap(NULL, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        return NULL;
    }
    madvise(memory, size + 1, MADV_HUGEPAGE); /* as good as the kernel has it */
    memset(memory, fill, size + 1);
    return memory;
}

int exchange_open(const struct exchange_place *place, const struct exchange_sizes *most,
    struct exchange **ret_exchange, struct bench_error *error)
{
    struct exchange *exchange = calloc(1, sizeof(*exchange));

    if (exchange == NULL) {
        return bench_no_memory(error);
    }
    exchange->host = place->host;
    exchange->patience_s = place->patience_s > 0 ? place->patience_s : PATIENCE_S;
    exchange->num_hosts = place->num_hosts;
    for (uint32_t host = 0; host < place->num_hosts; host++) {
        exchange->peers[host].fd = -1;
        exchange->in_begin[host] = exchange->in_size;
        exchange->in_size += most->in[host];
        exchange->out_size =
            most->out[host] > exchange->out_size ? most->out[host] : exchange->out_size;
    }
    exchange->out = map(exchange->out_size, mark_of(place->host));
    exchange->in = map(exchange->in_size, 0);
    if (exchange->out == NULL || exchange->in == NULL) {
        exchange_close(exchange);
        return bench_no_memory(error);
    }
    if (connect_all(exchange, place, error) != 0) {
        exchange_close(exchange);
        return -1;
    }
    *ret_exchange = exchange;
    return 0;
}

void exchange_close(struct exchange *exchange)
{
    if (exchange == NULL) {
        return;
    }
    for (uint32_t host = 0; host < exchange->num_hosts; host++) {
        if (exchange->peers[host].fd >= 0) {
            close(exchange->peers[host].fd);
        }
    }
    if (exchange->out != NULL) {
        munmap(exchange->out, exchange->out_size + 1);
    }
    if (exchange->in != NULL) {
        munmap(exchange->in, exchange->in_size + 1);
    }
    free(exchange);
}

static size_t at_most(uint64_t size)
{
    return size < MAX_CALL ? (size_t)size : MAX_CALL;
}

/* What a socket that is ready takes or gives now; -1: it is broken. */
static int move(struct peer *peer, short ready)
{
    ssize_t moved;

    if ((ready & (POLLOUT | POLLERR | POLLHUP)) != 0 && peer->to_send > 0) {
        moved = send(peer->fd, peer->from, at_most(peer->to_send), MSG_NOSIGNAL);
        if (moved < 0 && errno != EAGAIN) {
            return -1;
        }
        peer->from += moved > 0 ? moved : 0;
        peer->to_send -= moved > 0 ? (uint64_t)moved : 0;
    }
    if ((ready & (POLLIN | POLLERR | POLLHUP)) != 0 && peer->to_receive > 0) {
        moved = recv(peer->fd, peer->to, at_most(peer->to_receive), 0);
        if (moved == 0 || (moved < 0 && errno != EAGAIN)) {
            errno = moved == 0 ? ECONNRESET : errno;
            return -1;
        }
        peer->to += moved > 0 ? moved : 0;
        peer->to_receive -= moved > 0 ? (uint64_t)moved : 0;
    }
    return 0;
}

/* Lists the peers with which there is something left; their number. */
static nfds_t list_busy(const struct exchange *exchange, struct pollfd *fds, uint32_t *hosts)
{
    nfds_t count = 0;

    for (uint32_t host = 0; host < exchange->num_hosts; host++) {
        const struct peer *peer = &exchange->peers[host];
        int events = (peer->to_send > 0 ? POLLOUT : 0) | (peer->to_receive > 0 ? POLLIN : 0);
        if (events != 0) {
            hosts[count] = host;
            fds[count++] = (struct pollfd){.fd = peer->fd, .events = (short)events};
        }
    }
    return count;
}

/* Until nothing is left with any peer. */
static int move_all(struct exchange *exchange, struct bench_error *error)
{
    struct pollfd fds[NETWORK_MAX_HOSTS];
    uint32_t hosts[NETWORK_MAX_HOSTS];
    nfds_t count;

    while ((count = list_busy(exchange, fds, hosts)) > 0) {
        int ready = poll(fds, count, (int)exchange->patience_s * 1000);
        if (ready == 0) {
            return bench_fail(error,
                "host %" PRIu32 ": nothing came from host %" PRIu32 " or went there for %" PRIu32
                " s",
                exchange->host, hosts[0], exchange->patience_s);
        }
        for (nfds_t i = 0; ready > 0 && i < count; i++) {
            if (fds[i].revents != 0 && move(&exchange->peers[hosts[i]], fds[i].revents) != 0) {
                return bench_fail(error, "host %" PRIu32 " lost host %" PRIu32 ": %s",
                    exchange->host, hosts[i], strerror(errno));
            }
        }
    }
    return 0;
}

int exchange_direct(
    struct exchange *exchange, const struct exchange_sizes *sizes, struct bench_error *error)
{
    for (uint32_t host = 0; host < exchange->num_hosts; host++) {
        struct peer *peer = &exchange->peers[host];
        if (host != exchange->host) {
            peer->from = exchange->out;
            peer->to_send = sizes->out[host];
            peer->to = exchange->in + exchange->in_begin[host];
            peer->to_receive = sizes->in[host];
        }
    }
    return move_all(exchange, error);
}

int exchange_ring(struct exchange *exchange, const uint64_t *parts, struct bench_error *error)
{
    uint32_t num_hosts = exchange->num_hosts;
    struct peer *next = &exchange->peers[(exchange->host + 1) % num_hosts];
    struct peer *previous = &exchange->peers[(exchange->host + num_hosts - 1) % num_hosts];

    for (uint32_t turn = 0; turn + 1 < num_hosts; turn++) {
        uint32_t mine = (exchange->host + num_hosts - turn) % num_hosts;
        uint32_t theirs = (mine + num_hosts - 1) % num_hosts;
        next->from = turn == 0 ? exchange->out : exchange->in + exchange->in_begin[mine];
        next->to_send = parts[mine];
        previous->to = exchange->in + exchange->in_begin[theirs];
        previous->to_receive = parts[theirs];
        if (move_all(exchange, error) != 0) {
            return -1;
        }
    }
    return 0;
}

int exchange_check(
    const struct exchange *exchange, const struct exchange_sizes *sizes, struct bench_error *error)
{
    for (uint32_t host = 0; host < exchange->num_hosts; host++) {
        const uint8_t *in = exchange->in + exchange->in_begin[host];
        for (uint64_t i = 0; host != exchange->host && i < sizes->in[host]; i++) {
            if (in[i] != mark_of(host)) {
                return bench_fail(error,
                    "host %" PRIu32 ": byte %" PRIu64 " from host %" PRIu32 " is %u, not %u",
                    exchange->host, i, host, in[i], mark_of(host));
            }
        }
    }
    return 0;
}
