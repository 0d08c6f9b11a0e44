/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which address of a host the hosts of a world use: by the words of --socket-ifname, and of those
 * that an interface has one that others can be told.
 */
#include <arpa/inet.h>
#include <check.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>

#include "daemon/world_private.h"
#include "tests/lib/suite.h"

static const struct {
    const char *wanted;
    bool has_lo;
} choices[] = {{"lo", true}, {"l", true}, {"=lo", true}, {"=l", false}, {"nosuch,lo", true},
    {"=eth9,lo", true}, {"^eth9", true}, {"^lo", false}, {"^=l", true}, {"^=lo", false},
    {"^eth,l", false}, {"nosuch", false}, {",,lo", true}};

/* Whether loopback is among what these words mean: the last resort, if nothing else is. */
START_TEST(interfaces_are_chosen_by_name)
{
    struct config config = {.socket_family = CONFIG_FAMILY_IPV4};
    struct world_interface chosen;
    struct reason reason;
    (void)strcpy(config.socket_ifname, choices[_i].wanted);
    int status = world_interface_choose(&config, AF_UNSPEC, &chosen, &reason);
    bool excludes = choices[_i].wanted[0] == '^';
    if (choices[_i].has_lo && !excludes) {
        ck_assert_int_eq(status, F8_OK);
        ck_assert_str_eq(chosen.name, "lo");
    } else if (choices[_i].has_lo) {
        ck_assert_int_eq(status, F8_OK);
    } else if (status == F8_OK) {
        ck_assert_str_ne(chosen.name, "lo");
    }
}
END_TEST

/* An interface as getifaddrs tells it; `text` is an address. */
static struct ifaddrs interface_at(
    const char *name, const char *text, struct sockaddr_storage *address)
{
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)address;
    struct sockaddr_in *in = (struct sockaddr_in *)address;
    memset(address, 0, sizeof(*address));
    bool is_v6 = strchr(text, ':') != NULL;
    address->ss_family = is_v6 ? AF_INET6 : AF_INET;
    void *at = is_v6 ? (void *)&in6->sin6_addr : (void *)&in->sin_addr;
    ck_assert_int_eq(inet_pton(address->ss_family, text, at), 1);
    unsigned loopback = strcmp(name, "lo") == 0 ? IFF_LOOPBACK : 0;
    return (struct ifaddrs){.ifa_name = (char *)(uintptr_t)name,
        .ifa_flags = IFF_UP | loopback,
        .ifa_addr = (struct sockaddr *)address};
}

/* What a host has beside its loopback, and what is chosen; NULL: nothing. */
static const struct {
    const char *first, *second, *chosen;
} links[] = {{"fe80::1", "fe80::2", NULL}, {"fe80::1", "fd48::2", "fd48::2"},
    {"fd48::1", "10.0.0.2", "10.0.0.2"}, {"fe80::1", "10.0.0.2", "10.0.0.2"}};

/* Engines cannot connect to an address that needs a scope. */
START_TEST(addresses_of_one_link_are_not_chosen)
{
    struct config config = {.socket_ifname = ""};
    struct sockaddr_storage addresses[3];
    struct ifaddrs entries[3] = {interface_at("lo", "127.0.0.1", &addresses[0]),
        interface_at("eth0", links[_i].first, &addresses[1]),
        interface_at("eth0", links[_i].second, &addresses[2])};
    struct world_interface chosen;
    struct reason reason = {""};
    char text[WORLD_ADDRESS_SIZE] = "";
    entries[0].ifa_next = &entries[1];
    entries[1].ifa_next = &entries[2];
    int status = world_interface_pick(&config, AF_UNSPEC, entries, &chosen, &reason);
    ck_assert_int_eq(status, links[_i].chosen ? F8_OK : F8_EINVAL);
    if (links[_i].chosen) {
        world_address_text(&chosen.address, false, text);
        ck_assert_str_eq(text, links[_i].chosen);
    } else {
        ck_assert_msg(
            strstr(reason.text, "eth0 of this host has no address but fe80::1"), "%s", reason.text);
        ck_assert_ptr_nonnull(strstr(reason.text, "--socket-ifname"));
    }
}
END_TEST

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

int main(void)
{
    TCase *tcase = tcase_create("world_interface");
    tcase_add_loop_test(tcase, interfaces_are_chosen_by_name, 0, COUNT(choices));
    tcase_add_loop_test(tcase, addresses_of_one_link_are_not_chosen, 0, COUNT(links));
    return run_suite("world_interface", tcase);
}
