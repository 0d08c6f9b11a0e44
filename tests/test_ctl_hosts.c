/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8ctl prints of groups over several hosts, the whole program against a fake daemon: a line a
 * host, the engine beside the group, and both as JSON.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "lib/ctl_run.h"
#include "lib/fake_daemon.h"
#include "lib/suite.h"

static struct fake_daemon fake;

static void make_host(F8__HostInfo *host, const char *name, uint32_t *ranks, size_t num_ranks)
{
    f8__host_info__init(host);
    host->job = (char *)"run";
    host->group = (char *)"dp";
    host->name = (char *)(uintptr_t)name;
    host->address = (char *)"10.0.0.7:4711";
    host->ranks = ranks;
    host->n_ranks = num_ranks;
}

static bool answer_hosts(int fd, uint64_t id)
{
    F8__Reply reply = F8__REPLY__INIT;
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;
    uint32_t ranks[] = {0, 1, 2};
    F8__HostInfo hosts[3];
    F8__HostInfo *list[] = {&hosts[0], &hosts[1], &hosts[2]};
    make_host(&hosts[0], "gpu-07", ranks, 2);
    hosts[0].here = hosts[0].root = true;
    make_host(&hosts[1], "gpu-08", ranks + 2, 1);
    hosts[1].silent_ms = 400;
    make_host(&hosts[2], "gpu-09", NULL, 0);
    hosts[2].silent_ms = 12000;
    hosts[2].lost = true;
    inspect.hosts = list;
    inspect.n_hosts = 3;
    reply.id = id;
    reply.body_case = F8__REPLY__BODY_INSPECT;
    reply.inspect = &inspect;
    return fake_reply(fd, &reply, -1);
}

static bool answer_groups(int fd, uint64_t id)
{
    F8__Reply reply = F8__REPLY__INIT;
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;
    F8__GroupInfo groups[2];
    F8__GroupInfo *list[] = {&groups[0], &groups[1]};
    for (int i = 0; i < 2; i++) {
        f8__group_info__init(&groups[i]);
        groups[i].job = (char *)"run";
        groups[i].name = (char *)(i == 0 ? "dp" : "alone");
        groups[i].state = (char *)"sealed";
    }
    groups[0].hosts = 3;
    groups[0].engine = (char *)"gloo";
    groups[0].engine_pid = 4711;
    groups[0].interface = (char *)"eth0";
    groups[0].bytes_sent = (uint64_t)3 << 29;
    groups[0].bytes_received = 1024;
    groups[0].control_sent = 77;
    inspect.groups = list;
    inspect.n_groups = 2;
    reply.id = id;
    reply.body_case = F8__REPLY__BODY_INSPECT;
    reply.inspect = &inspect;
    return fake_reply(fd, &reply, -1);
}

static void serve(struct fake_daemon *daemon, int fd)
{
    F8__Request *request;
    (void)daemon;
    if (!fake_hello(fd))
        return;
    while ((request = fake_receive(fd, NULL)) != NULL) {
        ck_assert_int_eq(request->body_case, F8__REQUEST__BODY_INSPECT);
        if (request->inspect->view == F8__VIEW__HOSTS)
            (void)answer_hosts(fd, request->id);
        else
            (void)answer_groups(fd, request->id);
        fake_free(request);
    }
}

static void run(const char *command, char *text, size_t size)
{
    char all[512];
    fake_start(&fake, serve);
    (void)snprintf(all, sizeof(all), "--socket %s %s", fake.socket, command);
    ck_assert_int_eq(ctl_run(all, text, size), 0);
    fake_stop(&fake);
}

static void has(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "got: %s\nmust have: %s", text, part);
}

static json_t *run_json(const char *command)
{
    char text[8192];
    run(command, text, sizeof(text));
    json_t *object = json_loads(text, 0, NULL);
    ck_assert_msg(object != NULL, "no JSON: %s", text);
    return object;
}

START_TEST(hosts_in_a_table)
{
    char text[4096];
    run("hosts", text, sizeof(text));
    has(text, "JOB  GROUP  HOST    ADDRESS        RANKS   HEARD  STATE");
    has(text, "gpu-07  10.0.0.7:4711  0 1      here  there, root");
    has(text, "gpu-08  10.0.0.7:4711  2       0.4 s  there");
    has(text, "gpu-09  10.0.0.7:4711         12.0 s  lost");
}
END_TEST

START_TEST(hosts_as_json)
{
    json_t *object = run_json("hosts --json");
    const json_t *hosts = json_object_get(object, "hosts");
    const json_t *host = json_array_get(hosts, 1);
    ck_assert_uint_eq(json_array_size(hosts), 3);
    ck_assert_str_eq(json_string_value(json_object_get(host, "name")), "gpu-08");
    ck_assert_int_eq(json_integer_value(json_object_get(host, "silent_ms")), 400);
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(host, "ranks"), 0)), 2);
    ck_assert(json_is_false(json_object_get(host, "here")));
    ck_assert(json_is_true(json_object_get(json_array_get(hosts, 2), "lost")));
    json_decref(object);
}
END_TEST

START_TEST(engine_beside_the_group)
{
    char text[4096];
    run("groups", text, sizeof(text));
    has(text, "HOSTS  ENGINE");
    has(text, " 3      gloo (pid 4711) on eth0, sent 1.5 GiB, received 1.0 KiB ");
    json_t *object = run_json("groups --json");
    const json_t *groups = json_object_get(object, "groups");
    const json_t *engine = json_object_get(json_array_get(groups, 0), "engine");
    ck_assert_str_eq(json_string_value(json_object_get(engine, "name")), "gloo");
    ck_assert_int_eq(json_integer_value(json_object_get(engine, "bytes_received")), 1024);
    ck_assert_int_eq(json_integer_value(json_object_get(engine, "control_bytes_sent")), 77);
    ck_assert(json_is_null(json_object_get(json_array_get(groups, 1), "engine")));
    json_decref(object);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("ctl_hosts");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, hosts_in_a_table);
    tcase_add_test(tcase, hosts_as_json);
    tcase_add_test(tcase, engine_beside_the_group);
    return run_suite("ctl_hosts", tcase);
}
