/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of the command line is about hosts: whether it goes together, and what it means. Called by
 * main through options.c, and by all that make hosts.
 */
#include "options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *options_interface(const struct options *options)
{
    /* Daemons that run already are on this machine, as the ranks are. */
    const char *shared = options->addresses.count > 0 ? options->interface
                         : options->ifname != NULL ? options->ifname : "lo";

    return options->addresses.count == 0 && options_counts(options) ? NETWORK_INTERFACE : shared;
}

bool options_counts(const struct options *options)
{
    if (options->addresses.count > 0) {
        return strcmp(options->interface, "lo") != 0;
    }
    return options->ifname == NULL && options->socket == NULL;
}

int options_take_hosts(const char *text, struct options *options)
{
    struct bench_error error;
    char *end;
    unsigned long count = strtoul(text, &end, 10);

    options->addresses.count = 0;
    if (text[0] >= '0' && text[0] <= '9' && *end == '\0') {
        if (count < 2 || count > NETWORK_MAX_HOSTS) {
            fprintf(stderr, "f8bench: --hosts %s: must be a number from 2 to %d, or addresses\n",
                text, NETWORK_MAX_HOSTS);
            return -1;
        }
        options->hosts = (uint32_t)count;
        return 0;
    }
    if (addresses_parse(text, &options->addresses, &error) != 0) {
        fprintf(stderr, "f8bench: --hosts %s: %s\n", text, error.text);
        return -1;
    }
    options->hosts = options->addresses.count;
    return 0;
}

int64_t options_deadline_ms(const struct options *options)
{
    return options->addresses.count > 0 ? options->deadline_s * INT64_C(1000) : F8_DEFAULT_DEADLINE;
}

int options_socket_of(const struct options *options, uint32_t host, char *path, size_t size)
{
    const char *at = options->socket;
    size_t length;

    for (uint32_t i = 0; options->hosts > 0 && at != NULL && i < host; i++) {
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
    }
    if (at == NULL) {
        return -1;
    }
    length = options->hosts > 0 ? strcspn(at, ",") : strlen(at);
    if (length == 0 || length >= size) {
        return -1;
    }
    memcpy(path, at, length);
    path[length] = '\0';
    return 0;
}

/* Without hosts there is nothing to tell of them. */
static int check_none(const struct options *options)
{
    const char *flag = options->ifname != NULL        ? "ifname"
                       : options->shape.rate_mbit > 0 ? "rate-mbit"
                       : options->shape.delay_us > 0  ? "delay-us"
                       : options->torch               ? "torch"
                                                      : NULL;

    if (flag != NULL) {
        fprintf(stderr, "f8bench: --%s: goes with --hosts only\n", flag);
        return -1;
    }
    return 0;
}

/* What goes with a list of addresses only, or not at all with it. */
static int check_addresses(struct options *options)
{
    const char *flag = options->ifname != NULL        ? "ifname"
                       : options->shape.rate_mbit > 0 ? "rate-mbit"
                       : options->shape.delay_us > 0  ? "delay-us"
                                                      : NULL;
    struct bench_error error;

    if (flag != NULL) {
        fprintf(stderr, "f8bench: --%s: cannot go with a list of --hosts: they are as they are\n",
            flag);
        return -1;
    }
    if (!options->host_given || options->host >= options->hosts) {
        fprintf(stderr,
            "f8bench: --host: which of the --hosts is this machine? It must be told, 0 to %" PRIu32
            "\n",
            options->hosts - 1);
        return -1;
    }
    if (addresses_interface(&options->addresses, options->host, options->interface, &error) != 0) {
        fprintf(stderr, "f8bench: --host %" PRIu32 ": %s\n", options->host, error.text);
        return -1;
    }
    return 0;
}

/* Flags that say something to machines only. */
static int check_no_addresses(const struct options *options)
{
    if (options->host_given || options->deadline_s > 0) {
        fprintf(stderr, "f8bench: --%s: goes with --hosts ADDRESS,ADDRESS,... only\n",
            options->host_given ? "host" : "deadline");
        return -1;
    }
    return 0;
}

static int check_sockets(const struct options *options)
{
    char path[OPTIONS_MAX_SOCKET];
    uint32_t count = 1;

    for (const char *c = options->socket; *c != '\0'; c++) {
        count += *c == ',';
    }
    if (options->addresses.count > 0 && count == 1 &&
        strlen(options->socket) < OPTIONS_MAX_SOCKET) {
        return 0;
    }
    if (count != options->hosts || options->addresses.count > 0) {
        fprintf(stderr, "f8bench: --socket %s: %s, not %" PRIu32 " in all\n", options->socket,
            options->addresses.count > 0
                ? "this machine has one daemon, with a path of 1 to 107 bytes"
                : "each of the hosts has a socket",
            count);
        return -1;
    }
    for (uint32_t host = 0; host < options->hosts; host++) {
        if (options_socket_of(options, host, path, sizeof(path)) != 0) {
            fprintf(stderr, "f8bench: --socket %s: the path of a socket has 1 to %d bytes\n",
                options->socket, OPTIONS_MAX_SOCKET - 1);
            return -1;
        }
    }
    return 0;
}

int options_check_hosts(struct options *options)
{
    bool shaped = options->shape.rate_mbit > 0 || options->shape.delay_us > 0;

    if (options->addresses.count == 0 && check_no_addresses(options) != 0) {
        return -1;
    }
    if (options->hosts == 0) {
        return check_none(options);
    }
    if (options->ranks < options->hosts) {
        fprintf(stderr, "f8bench: --hosts %" PRIu32 ": each needs a rank, of %" PRIu32 "\n",
            options->hosts, options->ranks);
        return -1;
    }
    if (options->jobs > 1) {
        fprintf(stderr, "f8bench: --hosts %" PRIu32 ": cannot go with several --jobs\n",
            options->hosts);
        return -1;
    }
    if (options->addresses.count > 0 && check_addresses(options) != 0) {
        return -1;
    }
    if (shaped && (options->ifname != NULL || options->socket != NULL)) {
        fprintf(stderr,
            "f8bench: --%s: only network namespaces have cables, and --%s asks for none\n",
            options->shape.rate_mbit > 0 ? "rate-mbit" : "delay-us",
            options->ifname != NULL ? "ifname" : "socket");
        return -1;
    }
    return options->socket != NULL ? check_sockets(options) : 0;
}
