/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl doctor --peer HOST: whether packets find their way to a host and back, without any help of
 * that host. Called by doctor.c. A TCP port that is closed answers as surely as an open one.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/ctl/doctor.h"
#include "client/ctl/fetch.h"
#include "client/error.h"

#define PORT          "9" /* discard, which hardly anybody serves any more */
#define NUM_TRIES     5
#define MAX_ADDRESSES 8
#define TRY_MS        5000  /* at most for one */
#define IP_MAX        65535 /* bytes of a packet of IPv4, less than the loopback interface takes */
#define RESEND_MS     1000  /* after this TCP sends its first packet again */

struct path {
    struct addrinfo *addresses;     /* owned; of the peer */
    const struct addrinfo *address; /* borrowed: from these; that is being tested */
    size_t num_left;                /* it and those after it */
    int udp;                        /* owned: a socket that is connected to it; -1: none */
    char interface[IF_NAMESIZE];    /* that leads to it */
    char daemons[IF_NAMESIZE];      /* the daemon's; empty: unknown */
    char daemons_address[64];
};

/* ---- once ---- */

/* The daemon is there, but chose no interface: another remedy than where there is none. */
static const struct check no_interface = {.what = "daemon",
    .remedy = "give the daemon one that ip addr shows as up: --socket-ifname, F8_SOCKET_IFNAME, or "
              "socket-ifname in its file (see f8gatherd --print-config), and restart it"};

static void check_status(
    struct doctor *doctor, const struct check *check, const F8__StatusInfo *status)
{
    struct path *path = doctor->own;

    if (status->hosts_interface[0] == '\0') {
        bool told = status->hosts_reason[0] != '\0';
        doctor_add(doctor, told ? &no_interface : check, DOCTOR_FAILED, "f8gatherd %s at %s: %s",
            status->version, status->socket,
            told ? status->hosts_reason : "it tells of no interface to other hosts");
        return;
    }
    snprintf(path->daemons, sizeof(path->daemons), "%s", status->hosts_interface);
    snprintf(path->daemons_address, sizeof(path->daemons_address), "%s", status->hosts_address);
    doctor_add(doctor, check, DOCTOR_OK, "f8gatherd %s (pid %u) at %s, hosts by %s (%s)",
        status->version, status->pid, status->socket, path->daemons, path->daemons_address);
}

/* The way can be tested without a daemon too. */
static bool check_daemon(struct doctor *doctor, const struct check *check)
{
    struct fetched fetched;
    int status = doctor_connect(doctor);

    if (status == F8_OK) {
        status = fetch(doctor->ctl, F8__VIEW__STATUS, NULL, &fetched);
    }
    if (status != F8_OK) {
        doctor_add(doctor, check, DOCTOR_WARNING, "%s", error_text());
        return true;
    }
    if (fetched.num_rows == 1) {
        check_status(doctor, check, fetched.rows[0]);
    } else {
        doctor_add(doctor, check, DOCTOR_WARNING, "the daemon told no status");
    }
    fetch_done(&fetched);
    return true;
}

static void address_text(const struct sockaddr *address, socklen_t size, char text[64])
{
    if (getnameinfo(address, size, text, 64, NULL, 0, NI_NUMERICHOST) != 0) {
        snprintf(text, 64, "an address of family %d", address->sa_family);
    }
}

static bool check_name(struct doctor *doctor, const struct check *check)
{
    struct path *path = doctor->own;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const char *peer = doctor->ctl->peer;
    char list[DOCTOR_VALUE_SIZE / 2] = "", text[64];
    int error = getaddrinfo(peer, PORT, &hints, &path->addresses);

    if (error != 0) {
        path->addresses = NULL;
        doctor_add(doctor, check, DOCTOR_FAILED, "%s does not resolve: %s", peer,
            error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
        return false;
    }
    for (const struct addrinfo *a = path->addresses; a != NULL; a = a->ai_next) {
        size_t used = strlen(list);
        address_text(a->ai_addr, a->ai_addrlen, text);
        snprintf(list + used, sizeof(list) - used, "%s%s", used > 0 ? ", " : "", text);
        path->num_left++;
    }
    doctor_add(doctor, check, DOCTOR_OK, "%s is %s", peer, list);
    return true;
}

static const struct check checks_once[] = {
    {"daemon",
        "start f8gatherd here, or name its socket with --socket; --socket-ifname is its interface",
        check_daemon},
    {"name", "give an address, or enter the name in /etc/hosts or the DNS of this host",
        check_name},
};

/* ---- for each address ---- */

/* The interface that has an address of this host. */
static void find_interface(const struct sockaddr *local, socklen_t size, char name[IF_NAMESIZE])
{
    char wanted[64], text[64];
    struct ifaddrs *entries = NULL;

    snprintf(name, IF_NAMESIZE, "?");
    address_text(local, size, wanted);
    (void)getifaddrs(&entries);
    for (const struct ifaddrs *entry = entries; entry != NULL; entry = entry->ifa_next) {
        if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != local->sa_family) {
            continue;
        }
        address_text(entry->ifa_addr, size, text);
        if (strcmp(text, wanted) == 0) {
            snprintf(name, IF_NAMESIZE, "%s", entry->ifa_name);
        }
    }
    freeifaddrs(entries);
}

/* A UDP socket says which way it would send, and sends nothing. */
static bool check_route(struct doctor *doctor, const struct check *check)
{
    struct path *path = doctor->own;
    const struct addrinfo *address = path->address;
    struct sockaddr_storage local;
    socklen_t size = sizeof(local);
    char text[64];

    path->udp = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (path->udp < 0 || connect(path->udp, address->ai_addr, address->ai_addrlen) != 0 ||
        getsockname(path->udp, (struct sockaddr *)&local, &size) != 0) {
        doctor_add(doctor, check, DOCTOR_FAILED, "%s", strerror(errno));
        return false;
    }
    find_interface((struct sockaddr *)&local, size, path->interface);
    address_text((struct sockaddr *)&local, size, text);
    doctor_add(doctor, check, DOCTOR_OK, "by %s from %s", path->interface, text);
    return true;
}

static bool check_interface(struct doctor *doctor, const struct check *check)
{
    const struct path *path = doctor->own;

    if (path->daemons[0] == '\0') {
        return true; /* that it is unknown was said */
    }
    if (strcmp(path->daemons, path->interface) == 0) {
        doctor_add(doctor, check, DOCTOR_OK, "%s, as the daemon's", path->interface);
    } else {
        doctor_add(doctor, check, DOCTOR_WARNING, "%s, but the daemon's is %s (%s)",
            path->interface, path->daemons, path->daemons_address);
    }
    return true;
}

/* Waits for what connect began: 0 or an errno. */
static int await_connected(int fd, int limit_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof(error);
    int ready = poll(&poll_fd, 1, limit_ms);

    if (ready == 0) {
        return ETIMEDOUT;
    }
    return ready < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 ? errno : error;
}

/* Connects to the port: 0 or ECONNREFUSED if the host answered, else the errno; and how long. */
static int try_path(const struct addrinfo *address, int limit_ms, double *ret_ms)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    double begin = doctor_clock();
    int error;

    if (fd < 0) {
        return errno;
    }
    error = connect(fd, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        error = await_connected(fd, limit_ms);
    }
    *ret_ms = doctor_clock() - begin;
    (void)close(fd);
    return error;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void add_round_trips(
    struct doctor *doctor, const struct check *check, double times[NUM_TRIES], bool refused)
{
    struct finding *finding;
    double median, longest;

    qsort(times, NUM_TRIES, sizeof(times[0]), compare);
    median = times[NUM_TRIES / 2];
    longest = times[NUM_TRIES - 1];
    finding = doctor_add(doctor, check, longest < RESEND_MS ? DOCTOR_OK : DOCTOR_WARNING,
        "answers in %.3f ms (median of %d, %.3f to %.3f)%s%s", median, NUM_TRIES, times[0], longest,
        refused ? "" : ", port " PORT " is open", longest < RESEND_MS ? "" : "; packets were lost");
    finding->number = median;
    finding->unit = "ms";
}

static bool check_path(struct doctor *doctor, const struct check *check)
{
    const struct path *path = doctor->own;
    double times[NUM_TRIES];
    int error = 0;

    for (int i = 0; i < NUM_TRIES; i++) {
        int limit_ms = doctor_left(doctor) / (int)path->num_left;
        limit_ms = limit_ms < TRY_MS ? limit_ms : TRY_MS;
        error = try_path(path->address, limit_ms, &times[i]);
        if (error == ETIMEDOUT) {
            doctor_add(doctor, check, DOCTOR_FAILED,
                "try %d of %d, TCP to port " PORT ": no answer in %.1f s", i + 1, NUM_TRIES,
                times[i] / 1000);
            return true;
        }
        if (error != 0 && error != ECONNREFUSED) {
            doctor_add(doctor, check, DOCTOR_FAILED, "try %d of %d, TCP to port " PORT ": %s",
                i + 1, NUM_TRIES, strerror(error));
            return true;
        }
    }
    add_round_trips(doctor, check, times, error == ECONNREFUSED);
    return true;
}

/* What the kernel knows, after the packets above: 0 if it knows nothing. */
static int path_mtu(const struct path *path)
{
    int mtu = 0;
    socklen_t size = sizeof(mtu);
    bool ipv6 = path->address->ai_family == AF_INET6;

    if (getsockopt(path->udp, ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, ipv6 ? IPV6_MTU : IP_MTU, &mtu,
            &size) != 0) {
        return 0;
    }
    return mtu;
}

static bool check_mtu(struct doctor *doctor, const struct check *check)
{
    const struct path *path = doctor->own;
    struct ifreq request = {0};
    int mtu = path_mtu(path);
    struct finding *finding;

    if (mtu == 0) {
        doctor_add(doctor, check, DOCTOR_WARNING, "unknown: %s", strerror(errno));
        return true;
    }
    memcpy(request.ifr_name, path->interface, sizeof(request.ifr_name));
    if (ioctl(path->udp, SIOCGIFMTU, &request) == 0 && mtu < request.ifr_mtu && mtu < IP_MAX) {
        finding = doctor_add(doctor, check, DOCTOR_WARNING, "%d bytes, less than the %d of %s", mtu,
            request.ifr_mtu, path->interface);
    } else {
        finding = doctor_add(doctor, check, DOCTOR_OK, "%d bytes", mtu);
    }
    finding->number = mtu;
    finding->unit = "bytes";
    return true;
}

static const struct check checks_address[] = {
    {"route", "this host knows no way there: see ip route, and that the interface is up",
        check_route},
    {"interface",
        "give the peer's address in the daemon's network, or start the daemon with --socket-ifname "
        "(F8_SOCKET_IFNAME) for this one",
        check_interface},
    {"path",
        "the host is down, or a firewall there or on the way drops TCP; daemons listen on ports "
        "that the kernel chooses (net.ipv4.ip_local_port_range): see traceroute",
        check_path},
    {"path MTU", "a router or tunnel on the way carries less than the interface: see tracepath",
        check_mtu},
};

/* ---- all of it ---- */

static void test_address(struct doctor *doctor)
{
    struct path *path = doctor->own;
    char text[64];

    address_text(path->address->ai_addr, path->address->ai_addrlen, text);
    doctor->about = text;
    path->udp = -1;
    doctor_run(doctor, checks_address, sizeof(checks_address) / sizeof(checks_address[0]));
    if (path->udp >= 0) {
        (void)close(path->udp);
    }
    doctor->about = "";
}

/* What failed from `first` to `end`; the rest of it is only worth a warning. */
static size_t count_failed(const struct doctor *doctor, size_t first, size_t end)
{
    size_t failed = 0;

    for (size_t i = first; i < end; i++) {
        failed += doctor->findings[i].result == DOCTOR_FAILED;
    }
    return failed;
}

/* One address that is reached is enough: daemons tell one another only one. */
static void test_addresses(struct doctor *doctor)
{
    struct path *path = doctor->own;
    size_t first = doctor->count;
    bool reached = false;

    path->num_left = path->num_left < MAX_ADDRESSES ? path->num_left : MAX_ADDRESSES;
    doctor->hold = true;
    for (path->address = path->addresses; path->num_left > 0; path->num_left--) {
        size_t before = doctor->count;
        test_address(doctor);
        reached = reached || count_failed(doctor, before, doctor->count) == 0;
        path->address = path->address->ai_next;
    }
    for (size_t i = first; i < doctor->count && reached; i++) {
        if (doctor->findings[i].result == DOCTOR_FAILED) {
            doctor->findings[i].result = DOCTOR_WARNING;
        }
    }
    doctor->hold = false;
    doctor_print(doctor);
}

void doctor_path(struct doctor *doctor)
{
    struct path path = {.udp = -1};

    doctor->own = &path;
    doctor_run(doctor, checks_once, sizeof(checks_once) / sizeof(checks_once[0]));
    if (path.addresses != NULL) {
        test_addresses(doctor);
        freeaddrinfo(path.addresses);
    }
    doctor->own = NULL;
}
