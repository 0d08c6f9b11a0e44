/* SPDX-License-Identifier: Apache-2.0 */
/* The private daemons of an index and where its ranks are: see daemons.h. */
#include "tests/conformance/daemons.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/device_memory.h"

/* Where the daemon is, seen from the folder of this program; $F8_TEST_DAEMON is another. */
static const char *const places[] = {"../bin/f8gatherd", "f8gatherd"};

static int find_program(char *program, size_t size, struct bench_error *error)
{
    const char *named = getenv("F8_TEST_DAEMON");
    program[0] = '\0';
    if (named)
        (void)snprintf(program, size, "%s", named);
    for (size_t i = 0; !named && i < sizeof(places) / sizeof(places[0]); i++)
        if (daemon_beside(places[i], program, size) == 0 && access(program, X_OK) == 0)
            break;
    return program[0] != '\0' ? 0 : bench_fail(error, "cannot tell where this program lies");
}

int daemons_check(struct bench_error *error)
{
    char program[PATH_MAX], helper[PATH_MAX + 16];
    if (network_check(error) != 0 || find_program(program, sizeof(program), error) != 0)
        return -1;
    if (device_memory_used()) /* devices have no helper between them */
        return 0;
    char *slash = strrchr(program, '/');
    if (slash)
        slash[1] = '\0';
    (void)snprintf(helper, sizeof(helper), "%sf8gather-gloo", slash ? program : "");
    return access(helper, X_OK) == 0 ? 0
                                     : bench_fail(error, "%s is not there (no libgloo?)", helper);
}

int daemons_start(uint32_t hosts, struct daemons *ret_daemons, struct bench_error *error)
{
    struct daemons daemons = {.hosts = hosts};
    struct bench_error second;
    char program[PATH_MAX];
    int result = find_program(program, sizeof(program), error);
    for (uint32_t h = 0; h < DAEMONS_MAX; h++)
        daemons.items[h] = (struct daemon)DAEMON_NONE;
    if (result == 0 && hosts > 0)
        result = network_new(hosts, &daemons.network, error);
    for (uint32_t h = 0; h < (hosts > 0 ? hosts : 1) && result == 0; h++) {
        const struct daemon_options options = {.program = program,
            .interface = hosts > 0 ? NETWORK_INTERFACE : NULL,
            .network = daemons.network,
            .host = h};
        result = daemon_start(&options, -1, &daemons.items[h], error);
    }
    if (result == 0)
        *ret_daemons = daemons;
    else
        (void)daemons_stop(&daemons, &second);
    return result;
}

int daemons_stop(struct daemons *daemons, struct bench_error *error)
{
    int result = 0;
    for (uint32_t h = 0; h < DAEMONS_MAX; h++) {
        struct bench_error later;
        if (daemon_stop(&daemons->items[h], result == 0 ? error : &later) != 0)
            result = -1;
    }
    network_free(daemons->network);
    daemons->network = NULL;
    return result;
}

/* ---- where ranks are ---- */

uint32_t placement_hosts(const struct placement *placement)
{
    uint32_t hosts = placement->daemons->hosts;
    return hosts < placement->world ? hosts : placement->world;
}

static uint32_t host_of(const struct placement *placement, uint32_t rank)
{
    uint32_t hosts = placement_hosts(placement);
    if (hosts < 2)
        return 0;
    return placement->dealt ? rank % hosts : rank * hosts / placement->world;
}

int placement_prepare(struct placement *placement, const char *job)
{
    const struct f8_connect_options options = {
        .socket = placement_socket(placement, 0), .job = job};
    struct f8_client *client = NULL;
    if (placement_hosts(placement) < 2)
        return F8_OK;
    int status = f8_connect(&options, &client);
    if (status == F8_OK)
        status = f8_unique_id(client, placement->id);
    f8_close(client);
    return status;
}

const char *placement_socket(const struct placement *placement, uint32_t rank)
{
    return placement->daemons->items[host_of(placement, rank)].socket;
}

int placement_join(const struct placement *placement, struct f8_client *client, uint32_t rank,
    struct f8_group **ret_group)
{
    struct f8_hosts hosts = {.id = placement->id};
    if (placement_hosts(placement) < 2)
        return f8_group_join(client, "dp", rank, placement->world, ret_group);
    for (uint32_t r = 0; r < placement->world; r++)
        hosts.local_ranks += host_of(placement, r) == host_of(placement, rank);
    return f8_group_join_hosts(client, "dp", rank, placement->world, &hosts, ret_group);
}
