/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads lists of addresses, and finds which interface has one. Names are not taken: what a
 * machine's own name stands for on that machine is mostly its loopback. Called as addresses.h says.
 */
#include "addresses.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

socklen_t addresses_size(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

/* The port lies alike in both kinds of addresses. */
uint16_t addresses_port(const struct sockaddr_storage *address)
{
    return ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
}

void addresses_set_port(struct sockaddr_storage *address, uint16_t port)
{
    ((struct sockaddr_in *)(void *)address)->sin_port = htons(port);
}

static const void *bytes_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6
               ? (const void *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr
               : (const void *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
}

static bool is_same(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    size_t size = a->ss_family == AF_INET6 ? sizeof(struct in6_addr) : sizeof(struct in_addr);

    return a->ss_family == b->ss_family && memcmp(bytes_of(a), bytes_of(b), size) == 0;
}

void addresses_text(const struct addresses *addresses, uint32_t host, char *text, size_t size)
{
    const struct sockaddr_storage *address = &addresses->hosts[host];

    if (inet_ntop(address->ss_family, bytes_of(address), text, (socklen_t)size) == NULL) {
        snprintf(text, size, "?");
    }
}

/* Parts "[fd48::1]:7000", "10.0.0.1:7000", "fd48::2" in two; *ret_port is NULL where it has none.
 */
static void part(char *text, char **ret_address, char **ret_port)
{
    char *colon = strchr(text, ':');
    char *end = text[0] == '[' ? strchr(text, ']') : NULL;

    *ret_address = text;
    *ret_port = NULL;
    if (end != NULL) {
        *ret_address = text + 1;
        *end = '\0';
        *ret_port = end[1] == ':' ? end + 2 : NULL;
    } else if (colon != NULL && strchr(colon + 1, ':') == NULL) {
        *colon = '\0';
        *ret_port = colon + 1;
    }
}

static bool read_port(const char *text, uint16_t *ret_port)
{
    char *end;
    unsigned long port = strtoul(text, &end, 10);

    if (text[0] < '0' || text[0] > '9' || *end != '\0' || port == 0 || port > UINT16_MAX) {
        return false;
    }
    *ret_port = (uint16_t)port;
    return true;
}

static bool read_address(const char *text, struct sockaddr_storage *ret_address)
{
    struct sockaddr_storage address = {.ss_family = AF_INET};
    void *v4 = &((struct sockaddr_in *)(void *)&address)->sin_addr;
    void *v6 = &((struct sockaddr_in6 *)(void *)&address)->sin6_addr;
    bool ok = inet_pton(AF_INET, text, v4) == 1;

    if (!ok) {
        memset(&address, 0, sizeof(address));
        address.ss_family = AF_INET6;
        ok = inet_pton(AF_INET6, text, v6) == 1;
    }
    if (ok) {
        *ret_address = address;
    }
    return ok;
}

/* One more host, of this much of the list. */
static int add(
    const char *at, size_t length, struct addresses *addresses, struct bench_error *error)
{
    struct sockaddr_storage address;
    char text[INET6_ADDRSTRLEN + sizeof("[]:65535")];
    uint16_t port = addresses->count == 0 ? ADDRESSES_PORT : 0;
    char *host;
    char *service;

    snprintf(text, sizeof(text), "%.*s", (int)(length < sizeof(text) ? length : sizeof(text)), at);
    part(text, &host, &service);
    if (!read_address(host, &address)) {
        return bench_fail(error, "%.*s is no numeric address such as 10.0.0.1 or fd48::1",
            (int)(length < 200 ? length : 200), at);
    }
    if (service != NULL && addresses->count > 0) {
        return bench_fail(
            error, "%s:%s: only the first has a port, as only host 0 listens", host, service);
    }
    if (service != NULL && !read_port(service, &port)) {
        return bench_fail(error, "%s: the port of %s must be 1 to 65535", service, host);
    }
    if (addresses->count == NETWORK_MAX_HOSTS) {
        return bench_fail(error, "%s is one too many: %d hosts at most", host, NETWORK_MAX_HOSTS);
    }
    addresses_set_port(&address, port);
    addresses->hosts[addresses->count++] = address;
    return 0;
}

/* Each once, and all of one family, as each must reach each. */
static int check(const struct addresses *addresses, struct bench_error *error)
{
    char text[INET6_ADDRSTRLEN];

    for (uint32_t i = 1; i < addresses->count; i++) {
        addresses_text(addresses, i, text, sizeof(text));
        if (addresses->hosts[i].ss_family != addresses->hosts[0].ss_family) {
            return bench_fail(error, "%s and the first are not both IPv4 or both IPv6", text);
        }
        for (uint32_t j = 0; j < i; j++) {
            if (is_same(&addresses->hosts[i], &addresses->hosts[j])) {
                return bench_fail(error, "%s is there twice", text);
            }
        }
    }
    return addresses->count >= 2
               ? 0
               : bench_fail(error, "one host is none: 2 to %d of them", NETWORK_MAX_HOSTS);
}

int addresses_parse(const char *list, struct addresses *ret_addresses, struct bench_error *error)
{
    struct addresses addresses = {0};

    for (const char *at = list;;) {
        size_t length = strcspn(at, ",");
        if (add(at, length, &addresses, error) != 0) {
            return -1;
        }
        if (at[length] == '\0') {
            break;
        }
        at += length + 1;
    }
    if (check(&addresses, error) != 0) {
        return -1;
    }
    *ret_addresses = addresses;
    return 0;
}

/* All of 127.0.0.0/8 is this machine's, though its loopback tells only one of them. */
static bool has_address(const struct ifaddrs *at, const struct sockaddr_storage *address)
{
    struct sockaddr_storage own = {0};
    const uint8_t *first = bytes_of(address);

    if (at->ifa_addr == NULL || at->ifa_addr->sa_family != address->ss_family) {
        return false;
    }
    if (address->ss_family == AF_INET && *first == 127) {
        return (at->ifa_flags & IFF_LOOPBACK) != 0;
    }
    memcpy(&own, at->ifa_addr, addresses_size(address));
    return is_same(&own, address);
}

int addresses_interface(const struct addresses *addresses, uint32_t host,
    char interface[IF_NAMESIZE], struct bench_error *error)
{
    struct ifaddrs *all = NULL;
    char text[INET6_ADDRSTRLEN];
    bool found = false;

    if (getifaddrs(&all) != 0) {
        return bench_fail(error, "cannot list the interfaces: %s", strerror(errno));
    }
    for (const struct ifaddrs *at = all; at != NULL && !found; at = at->ifa_next) {
        found = has_address(at, &addresses->hosts[host]);
        if (found) {
            snprintf(interface, IF_NAMESIZE, "%s", at->ifa_name);
        }
    }
    freeifaddrs(all);
    if (!found) {
        addresses_text(addresses, host, text, sizeof(text));
        return bench_fail(error,
            "host %" PRIu32 " is %s, an address that no interface of this machine has (`ip address`"
            " lists those that there are)",
            host, text);
    }
    return 0;
}
