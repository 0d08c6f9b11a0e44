/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hosts of a run and their daemons: network namespaces, or none; daemons that are started, or
 * given ones. A run without hosts has one daemon, the first here. Called by the parent, run.c.
 */
#include <stdlib.h>
#include <string.h>

#include "client/bench/run_private.h"

static int take_given(struct runner *runner, uint32_t host)
{
    struct socket_path *socket = &runner->sockets[host];

    if (options_socket_of(runner->options, host, socket->path, sizeof(socket->path)) != 0) {
        return bench_fail(&runner->outcome->error,
            "--socket %.500s: the path of a socket has 1 to %d bytes", runner->options->socket,
            OPTIONS_MAX_SOCKET - 1);
    }
    return 0;
}

static int start_daemon(struct runner *runner, uint32_t host)
{
    const struct options *options = runner->options;
    const struct daemon_options how = {.program = options->daemon,
        .interface = options->hosts > 0 ? options_interface(options) : NULL,
        .deadline_s = options->addresses.count > 0 ? options->deadline_s : 0,
        .network = runner->network,
        .host = options->host + host};
    struct daemon *daemon = &runner->daemons[host];

    if (daemon_start(&how, runner->signal_fd, daemon, &runner->outcome->error) != 0) {
        return -1;
    }
    runner->num_daemons++;
    snprintf(runner->sockets[host].path, sizeof(runner->sockets[host].path), "%s", daemon->socket);
    return 0;
}

/* Namespaces, unless the hosts are to share an interface that there is. */
static int make_network(struct runner *runner)
{
    const struct options *options = runner->options;
    struct bench_error *error = &runner->outcome->error;
    struct bench_error why;

    if (options->hosts == 0 || options->addresses.count > 0 || options->ifname != NULL ||
        options->socket != NULL) {
        return 0;
    }
    if (network_new(options->hosts, &runner->network, &why) != 0) {
        return bench_fail(error, "%.600s (or give --ifname or --socket)", why.text);
    }
    for (uint32_t host = 0; host < options->hosts; host++) {
        if (network_shape(runner->network, host, &options->shape, error) != 0) {
            return -1;
        }
    }
    return 0;
}

int run_start_hosts(struct runner *runner)
{
    runner->daemons = calloc(runner->num_hosts, sizeof(*runner->daemons));
    runner->sockets = calloc(runner->num_hosts, sizeof(*runner->sockets));
    if (runner->daemons == NULL || runner->sockets == NULL) {
        return bench_no_memory(&runner->outcome->error);
    }
    if (make_network(runner) != 0) {
        return -1;
    }
    for (uint32_t host = 0; host < runner->num_hosts; host++) {
        int result =
            runner->options->socket != NULL ? take_given(runner, host) : start_daemon(runner, host);
        if (result != 0) {
            return -1;
        }
    }
    return 0;
}

int run_stop_hosts(struct runner *runner, struct bench_error *error)
{
    struct bench_error later;
    int result = 0;

    for (uint32_t i = 0; i < runner->num_daemons; i++) {
        if (daemon_stop(&runner->daemons[i], result == 0 ? error : &later) != 0) {
            result = -1;
        }
    }
    network_free(runner->network);
    free(runner->daemons);
    free(runner->sockets);
    return result;
}
