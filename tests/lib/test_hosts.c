/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts for whole-process tests: see test_hosts.h. */
#include "lib/test_hosts.h"

#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/admin_link.h"
#include "lib/device_memory.h"

#define MAX_ARGUMENTS 24

/* The helper lies beside the daemon; ranks on devices have none. */
static int check_helper(struct bench_error *error)
{
    if (device_memory_used())
        return 0;
    char path[PATH_MAX];
    const char *daemon = test_daemon_program(), *slash = strrchr(daemon, '/');
    int folder = slash ? (int)(slash - daemon) + 1 : 0;
    (void)snprintf(path, sizeof(path), "%.*sf8gather-gloo", folder, daemon);
    return access(path, X_OK) == 0 ? 0 : bench_fail(error, "%s is not there (no libgloo?)", path);
}

bool test_hosts_possible(void)
{
    struct bench_error error;
    if (network_check(&error) == 0 && check_helper(&error) == 0)
        return true;
    printf("skipped: %s\n", error.text);
    return false;
}

/* In the namespace of the host, which the daemon inherits; the thread is back in its own then. */
static void launch(struct test_hosts *hosts, uint32_t host, bool again)
{
    char name[16];
    const char *argv[MAX_ARGUMENTS + 1] = {
        "--socket-ifname", NETWORK_INTERFACE, "--host-name", name};
    int own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    (void)snprintf(name, sizeof(name), "host%u", host);
    for (int i = 0; hosts->arguments && hosts->arguments[i] && 4 + i < MAX_ARGUMENTS; i++)
        argv[4 + i] = hosts->arguments[i];
    ck_assert_int_eq(network_enter(hosts->network, host), 0);
    if (again)
        test_daemon_restart(&hosts->daemons[host], argv);
    else
        test_daemon_start(&hosts->daemons[host], argv);
    ck_assert_int_eq(setns(own, CLONE_NEWNET), 0);
    (void)close(own);
}

void test_hosts_start(struct test_hosts *hosts, uint32_t count, const char *const *arguments)
{
    struct bench_error error;
    ck_assert_uint_le(count, TEST_HOSTS_MAX);
    *hosts = (struct test_hosts){.count = count, .arguments = arguments};
    ck_assert_msg(network_new(count, &hosts->network, &error) == 0, "%s", error.text);
    for (uint32_t h = 0; h < count; h++)
        launch(hosts, h, false);
}

void test_hosts_restart(struct test_hosts *hosts, uint32_t host)
{
    launch(hosts, host, true);
}

void test_hosts_stop(struct test_hosts *hosts)
{
    for (uint32_t h = 0; h < hosts->count; h++) {
        test_daemon_end(&hosts->daemons[h]);
        test_daemon_drop_states(&hosts->daemons[h]);
        (void)unlink(hosts->daemons[h].log);
        ck_assert_msg(rmdir(hosts->daemons[h].directory) == 0, "host%u left files behind", h);
    }
    network_free(hosts->network);
    hosts->network = NULL;
}

struct test_engine test_hosts_engine(
    const struct test_hosts *hosts, uint32_t host, const char *group)
{
    struct test_engine engine = {0};
    F8__Inspect inspect = F8__INSPECT__INIT;
    F8__Request request = F8__REQUEST__INIT;
    int link = admin_link_open(&hosts->daemons[host], F8__ROLE__ADMIN, ""), fd;
    inspect.view = F8__VIEW__GROUPS;
    inspect.job = "";
    inspect.name = (char *)(uintptr_t)group;
    request.body_case = F8__REQUEST__BODY_INSPECT;
    request.inspect = &inspect;
    F8__Reply *reply = admin_link_ask(link, &request, -1, &fd);
    ck_assert_uint_eq(reply->inspect->n_groups, 1);
    const F8__GroupInfo *info = reply->inspect->groups[0];
    engine.hosts = info->hosts;
    (void)snprintf(engine.name, sizeof(engine.name), "%s", info->engine);
    engine.pid = (pid_t)info->engine_pid;
    engine.untold = info->engine_untold;
    engine.sent = info->bytes_sent;
    engine.received = info->bytes_received;
    engine.told = info->control_received;
    f8__reply__free_unpacked(reply, NULL);
    (void)close(link);
    return engine;
}

bool test_hosts_round_is(const struct test_hosts *hosts, uint32_t host, const char *state)
{
    F8__Inspect inspect = F8__INSPECT__INIT;
    F8__Request request = F8__REQUEST__INIT;
    int link = admin_link_open(&hosts->daemons[host], F8__ROLE__ADMIN, ""), fd;
    bool found = false;
    inspect.view = F8__VIEW__ROUNDS;
    inspect.job = inspect.name = (char *)(uintptr_t) "";
    request.body_case = F8__REQUEST__BODY_INSPECT;
    request.inspect = &inspect;
    F8__Reply *reply = admin_link_ask(link, &request, -1, &fd);
    for (size_t i = 0; i < reply->inspect->n_rounds; i++)
        found = found || strcmp(reply->inspect->rounds[i]->state, state) == 0;
    f8__reply__free_unpacked(reply, NULL);
    (void)close(link);
    return found;
}
