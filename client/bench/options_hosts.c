/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of the command line is about hosts: whether it goes together, and what it means. Called by
 * main through options.c, and by all that make hosts.
 */
#include "options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *options_interface(const struct options *options)
{
    /* Daemons that run already are on this machine, as the ranks are. */
    const char *shared = options->ifname != NULL ? options->ifname : "lo";

    return options->ifname == NULL && options->socket == NULL ? NETWORK_INTERFACE : shared;
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

static int check_sockets(const struct options *options)
{
    char path[OPTIONS_MAX_SOCKET];
    uint32_t count = 1;

    for (const char *c = options->socket; *c != '\0'; c++) {
        count += *c == ',';
    }
    if (count != options->hosts) {
        fprintf(stderr,
            "f8bench: --socket %s: %" PRIu32 " hosts have a socket each, not %" PRIu32 " in all\n",
            options->socket, options->hosts, count);
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

int options_check_hosts(const struct options *options)
{
    bool shaped = options->shape.rate_mbit > 0 || options->shape.delay_us > 0;

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
    if (shaped && (options->ifname != NULL || options->socket != NULL)) {
        fprintf(stderr,
            "f8bench: --%s: only network namespaces have cables, and --%s asks for none\n",
            options->shape.rate_mbit > 0 ? "rate-mbit" : "delay-us",
            options->ifname != NULL ? "ifname" : "socket");
        return -1;
    }
    return options->socket != NULL ? check_sockets(options) : 0;
}
