/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8ctl prints of groups over several hosts, the whole program against a fake daemon: a line a
 * host, the engine beside the group, and both as JSON.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "lib/ctl_fake.h"
#include "lib/suite.h"

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

static bool answer_hosts(int fd, const F8__Request *request)
{
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
    return ctl_fake_inspected(fd, request, &inspect);
}

static bool answer_groups(int fd, const F8__Request *request)
{
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;
    F8__GroupInfo groups[3];
    F8__GroupInfo *list[] = {&groups[0], &groups[1], &groups[2]};
    for (int i = 0; i < 3; i++) {
        f8__group_info__init(&groups[i]);
        groups[i].job = (char *)"run";
        groups[i].name = (char *)(const char *[]){"dp", "alone", "gpus"}[i];
        groups[i].state = (char *)"sealed";
    }
    uint32_t pids[] = {4711, 4712, 811, 0};
    char *rank_hosts[] = {(char *)"", (char *)"", (char *)"gpu-08", (char *)"gpu-09"};
    groups[0].pids = pids;
    groups[0].n_pids = 4;
    groups[0].rank_hosts = rank_hosts;
    groups[0].n_rank_hosts = 4;
    groups[0].hosts = 3;
    groups[0].engine = (char *)"gloo";
    groups[0].engine_pid = 4711;
    groups[0].interface = (char *)"eth0";
    groups[0].bytes_sent = (uint64_t)3 << 29;
    groups[0].bytes_received = 1024;
    groups[0].control_sent = 77;
    groups[2].hosts = 2;
    groups[2].engine = (char *)"nccl";
    groups[2].engine_untold = true;
    groups[2].interface = (char *)"eth1";
    inspect.groups = list;
    inspect.n_groups = 3;
    return ctl_fake_inspected(fd, request, &inspect);
}

static bool answer_status(int fd, const F8__Request *request)
{
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;
    F8__StatusInfo status = F8__STATUS_INFO__INIT;
    F8__KeptEngine engine = F8__KEPT_ENGINE__INIT;
    F8__KeptEngine *engines[] = {&engine};
    engine.group = (char *)"0/run/dp";
    engine.pid = 4713;
    engine.hosts = 3;
    engine.left_ms = 9500;
    status.kept_engines = engines;
    status.n_kept_engines = 1;
    inspect.status = &status;
    return ctl_fake_inspected(fd, request, &inspect);
}

static bool answer_rounds(int fd, const F8__Request *request)
{
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;
    F8__RoundInfo round = F8__ROUND_INFO__INIT;
    F8__RoundInfo *list[] = {&round};
    uint32_t ranks[] = {1, 2, 3}, pids[] = {4712, 811, 0};
    char *missing_hosts[] = {(char *)"", (char *)"gpu-08", (char *)"gpu-09"};
    round.missing_ranks = ranks;
    round.n_missing_ranks = 3;
    round.missing_pids = pids;
    round.n_missing_pids = 3;
    round.missing_hosts = missing_hosts;
    round.n_missing_hosts = 3;
    inspect.rounds = list;
    inspect.n_rounds = 1;
    return ctl_fake_inspected(fd, request, &inspect);
}

static bool answer(int fd, const F8__Request *request, int memfd)
{
    (void)memfd;
    ck_assert_int_eq(request->body_case, F8__REQUEST__BODY_INSPECT);
    if (request->inspect->view == F8__VIEW__HOSTS)
        return answer_hosts(fd, request);
    if (request->inspect->view == F8__VIEW__STATUS)
        return answer_status(fd, request);
    if (request->inspect->view == F8__VIEW__ROUNDS)
        return answer_rounds(fd, request);
    return answer_groups(fd, request);
}

static void run(const char *command, char *text, size_t size)
{
    ctl_fake_must(answer, command, text, size);
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

/* A pid is one of the host that has the rank; none is no 0. */
START_TEST(ranks_of_other_hosts)
{
    char text[4096];
    run("groups", text, sizeof(text));
    has(text, " 4711 4712 811@gpu-08 -@gpu-09");
    run("rounds", text, sizeof(text));
    has(text, "1 (pid 4712) 2 (pid 811 on gpu-08) 3 (not connected on gpu-09)");
    json_t *object = run_json("groups --json");
    const json_t *names =
        json_object_get(json_array_get(json_object_get(object, "groups"), 0), "rank_hosts");
    ck_assert(json_is_null(json_array_get(names, 1)));
    ck_assert_str_eq(json_string_value(json_array_get(names, 2)), "gpu-08");
    json_decref(object);
}
END_TEST

START_TEST(helpers_that_are_kept)
{
    char text[4096];
    run("status", text, sizeof(text));
    has(text, "0/run/dp (pid 4713, 3 hosts, for 9.5 s)");
    json_t *object = run_json("status --json");
    const json_t *kept = json_object_get(json_object_get(object, "status"), "kept_helpers");
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(kept, 0), "pid")), 4713);
    json_decref(object);
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
    has(text, " 2      nccl on eth1 ");
    engine = json_object_get(json_array_get(groups, 2), "engine");
    ck_assert_str_eq(json_string_value(json_object_get(engine, "name")), "nccl");
    ck_assert(json_is_null(json_object_get(engine, "pid")));
    ck_assert(json_is_null(json_object_get(engine, "bytes_sent")));
    ck_assert(json_is_null(json_object_get(engine, "bytes_received")));
    json_decref(object);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("ctl_hosts");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, hosts_in_a_table);
    tcase_add_test(tcase, hosts_as_json);
    tcase_add_test(tcase, ranks_of_other_hosts);
    tcase_add_test(tcase, helpers_that_are_kept);
    tcase_add_test(tcase, engine_beside_the_group);
    return run_suite("ctl_hosts", tcase);
}
