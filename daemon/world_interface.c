/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of this host's addresses the hosts of a world use: chosen as NCCL chooses with
 * NCCL_SOCKET_IFNAME, from the same words. Called by root and host, on the loop.
 */
#include "daemon/world_private.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>

/* Whether one word, of `length` bytes, means the interface. */
static bool word_means(const char *word, size_t length, bool exact, const char *name)
{
    return strncmp(name, word, length) == 0 && (!exact || name[length] == '\0');
}

/* "eth,ib": begins with one of these; "=eth0": is one of these; "^docker,lo": with none. */
static bool is_wanted(const char *wanted, const char *name)
{
    bool exclude = wanted[0] == '^';
    const char *word = wanted + exclude;
    bool exact = *word == '=';
    word += exact;
    for (;;) {
        size_t length = strcspn(word, ",");
        if (length > 0 && word_means(word, length, exact, name))
            return !exclude;
        if (word[length] == '\0')
            return exclude;
        word += length + 1;
    }
}

static int configured_family(const struct config *config)
{
    return config->socket_family == CONFIG_FAMILY_IPV4   ? AF_INET
           : config->socket_family == CONFIG_FAMILY_IPV6 ? AF_INET6
                                                         : AF_UNSPEC;
}

/* The smaller, the better: what others can reach, containers' bridges last but for loopback; and
 * of one kind IPv4, then IPv6, then addresses that need a scope, which are refused. */
static unsigned rate(const struct ifaddrs *entry, const struct sockaddr_storage *address)
{
    unsigned rating = 0;
    if (entry->ifa_flags & IFF_LOOPBACK)
        rating += 200;
    if (strncmp(entry->ifa_name, "docker", 6) == 0)
        rating += 100;
    if (address->ss_family == AF_INET6)
        rating += 1;
    if (world_is_link_local(address))
        rating += 10;
    return rating;
}

static bool is_usable(const struct config *config, int family, const struct ifaddrs *entry)
{
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP))
        return false;
    int is = entry->ifa_addr->sa_family;
    if ((is != AF_INET && is != AF_INET6) || (family != AF_UNSPEC && is != family))
        return false;
    return config->socket_ifname[0] == '\0' || is_wanted(config->socket_ifname, entry->ifa_name);
}

static void copy_address(const struct sockaddr *from, struct sockaddr_storage *to)
{
    memset(to, 0, sizeof(*to));
    memcpy(to, from,
        from->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
}

static const struct config any = {.socket_ifname = ""};

/* An interface has an entry for each address: whether one before this one is of the same. */
static bool is_listed(const struct ifaddrs *entries, int family, const struct ifaddrs *end)
{
    for (const struct ifaddrs *entry = entries; entry != end; entry = entry->ifa_next)
        if (is_usable(&any, family, entry) && strcmp(entry->ifa_name, end->ifa_name) == 0)
            return true;
    return false;
}

/* Those that there are to choose from: "lo, eth0"; "none". */
static void list_usable(const struct ifaddrs *entries, int family, char *list, size_t size)
{
    (void)snprintf(list, size, "none");
    size_t used = 0;
    for (const struct ifaddrs *entry = entries; entry && used < size; entry = entry->ifa_next)
        if (is_usable(&any, family, entry) && !is_listed(entries, family, entry))
            used += (size_t)snprintf(
                list + used, size - used, "%s%s", used > 0 ? ", " : "", entry->ifa_name);
}

static int refuse(
    const struct config *config, int family, const struct ifaddrs *entries, struct reason *reason)
{
    const char *kind = family == AF_INET ? "IPv4 " : family == AF_INET6 ? "IPv6 " : "";
    const char *from = config->socket_ifname_from;
    char list[128];
    if (config->socket_ifname[0] == '\0')
        return reason_set(reason, F8_EINVAL, "no interface of this host has an %saddress", kind);
    list_usable(entries, family, list, sizeof(list));
    return reason_set(reason, F8_EINVAL,
        "no interface of this host that %.120s %.120s means is up and has an %saddress; there is "
        "%s",
        from[0] != '\0' ? from : "--socket-ifname", config->socket_ifname, kind, list);
}

/* Engines are told addresses, and none of theirs has a scope; nor has the unique id. */
static int refuse_link_local(const struct world_interface *interface, struct reason *reason)
{
    char text[WORLD_ADDRESS_SIZE];
    world_address_text(&interface->address, false, text);
    return reason_set(reason, F8_EINVAL,
        "interface %s of this host has no address but %s, which holds on one link only and which "
        "groups over hosts cannot use: give it another, or name an interface that has one by "
        "--socket-ifname",
        interface->name, text);
}

int world_interface_pick(const struct config *config, int family, const struct ifaddrs *entries,
    struct world_interface *ret, struct reason *reason)
{
    struct world_interface best;
    unsigned best_rating = UINT32_MAX;
    if (family == AF_UNSPEC)
        family = configured_family(config);
    for (const struct ifaddrs *entry = entries; entry; entry = entry->ifa_next) {
        struct sockaddr_storage address;
        if (!is_usable(config, family, entry))
            continue;
        copy_address(entry->ifa_addr, &address);
        unsigned rating = rate(entry, &address);
        if (rating >= best_rating)
            continue;
        best_rating = rating;
        best.address = address;
        (void)snprintf(best.name, sizeof(best.name), "%s", entry->ifa_name);
    }
    if (best_rating == UINT32_MAX)
        return refuse(config, family, entries, reason);
    if (world_is_link_local(&best.address))
        return refuse_link_local(&best, reason);
    *ret = best;
    return F8_OK;
}

int world_interface_choose(
    const struct config *config, int family, struct world_interface *ret, struct reason *reason)
{
    struct ifaddrs *entries;
    if (getifaddrs(&entries) < 0)
        return reason_set(
            reason, F8_EIO, "cannot list the interfaces of this host: %s", strerror(errno));
    int status = world_interface_pick(config, family, entries, ret, reason);
    freeifaddrs(entries);
    return status;
}

int world_interface_family(
    const struct config *config, const struct sockaddr_storage *root, struct reason *reason)
{
    int family = configured_family(config);
    char text[WORLD_ADDRESS_SIZE];
    if (family == AF_UNSPEC || family == root->ss_family)
        return F8_OK;
    world_address_text(root, true, text);
    return reason_set(reason, F8_EINVAL,
        "the root of this unique id is at %s, which --socket-family %s of this host's daemon does "
        "not allow: start all daemons with the same",
        text, family == AF_INET ? "ipv4" : "ipv6");
}

int world_place(const struct config *config, struct world_place *ret, struct reason *reason)
{
    struct world_interface chosen;
    int status = world_interface_choose(config, AF_UNSPEC, &chosen, reason);
    if (status < 0)
        return status;
    (void)snprintf(ret->interface, sizeof(ret->interface), "%s", chosen.name);
    world_address_text(&chosen.address, false, ret->address);
    return F8_OK;
}

static bool same_address(const struct sockaddr *a, const struct sockaddr_storage *b)
{
    if (a->sa_family != b->ss_family)
        return false;
    if (a->sa_family == AF_INET)
        return memcmp(&((const struct sockaddr_in *)a)->sin_addr,
                   &((const struct sockaddr_in *)b)->sin_addr, sizeof(struct in_addr)) == 0;
    return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
               &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

void world_interface_of(const struct sockaddr_storage *address, char name[WORLD_INTERFACE_SIZE])
{
    struct ifaddrs *entries;
    name[0] = '\0';
    if (getifaddrs(&entries) < 0)
        return;
    for (const struct ifaddrs *entry = entries; entry && !name[0]; entry = entry->ifa_next)
        if (entry->ifa_addr && same_address(entry->ifa_addr, address))
            (void)snprintf(name, WORLD_INTERFACE_SIZE, "%s", entry->ifa_name);
    freeifaddrs(entries);
}
