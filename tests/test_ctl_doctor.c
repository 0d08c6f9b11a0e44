/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl status of the way to other hosts, and f8ctl doctor, the whole program against a fake
 * daemon, or none: what a daemon tells of its host; hosts that answer, names and addresses that do
 * not, and mistakes.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/ctl_run.h"
#include "lib/fake_daemon.h"
#include "lib/suite.h"
#include "protocol.h"

static struct fake_daemon fake;

/* By which interface the fake daemon reaches others, or why by none. */
static const char *interface, *reason;

/* Where it keeps snapshots, and why it does not. */
static const char *state_directory = "", *snapshot_reason = "";

/* Files that it found and does not use; NULL: none. */
static char *damaged, *newer;

static bool answer_status(int fd, uint64_t id)
{
    F8__Reply reply = F8__REPLY__INIT;
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;
    F8__StatusInfo status = F8__STATUS_INFO__INIT;
    status.version = (char *)"9.8.7";
    status.socket = fake.socket;
    status.hosts_interface = (char *)interface;
    status.hosts_address = (char *)(interface[0] != '\0' ? "10.0.0.1" : "");
    status.hosts_reason = (char *)reason;
    status.state_directory = (char *)state_directory;
    status.snapshot_reason = (char *)snapshot_reason;
    status.state_keep_ms = 604800000;
    if (damaged) {
        status.snapshots_damaged = status.states_damaged = &damaged;
        status.n_snapshots_damaged = status.n_states_damaged = status.num_states_damaged = 1;
        status.num_snapshots_damaged = 4;
    }
    if (newer) {
        status.snapshots_newer = status.states_newer = &newer;
        status.n_snapshots_newer = status.n_states_newer = 1;
        status.num_snapshots_newer = status.num_states_newer = 1;
    }
    inspect.status = &status;
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
        ck_assert_int_eq(request->inspect->view, F8__VIEW__STATUS);
        (void)answer_status(fd, request->id);
        fake_free(request);
    }
}

/* The doctor connects without a word first. */
static void serve_second(struct fake_daemon *daemon, int fd)
{
    char byte;
    ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
    int second = accept4(daemon->listener, NULL, NULL, SOCK_CLOEXEC);
    serve(daemon, second);
    (void)close(second);
}

/* A daemon that takes the connection and is never heard of again. */
static void hang(struct fake_daemon *daemon, int fd)
{
    (void)fd;
    fake_await_go(daemon);
}

/* f8ctl's exit status; what it printed in `text`. */
static int run(const char *name, const char *why, const char *command, char *text, size_t size)
{
    char all[512];
    interface = name;
    reason = why;
    fake_start(&fake, strcmp(command, "doctor") == 0 ? serve_second : serve);
    (void)snprintf(all, sizeof(all), "--socket %s %s", fake.socket, command);
    int result = ctl_run(all, text, size);
    fake_stop(&fake);
    return result;
}

static void has(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "got: %s\nmust have: %s", text, part);
}

static void has_not(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) == NULL, "got: %s\nmust not have: %s", text, part);
}

START_TEST(status_says_where_hosts_reach_this_one)
{
    char text[4096];
    ck_assert_int_eq(run("eth0", "", "status", text, sizeof(text)), 0);
    has(text, "hosts          by eth0 (10.0.0.1)\n");
    ck_assert_int_eq(run("", "no interface is up", "status", text, sizeof(text)), 0);
    has(text, "hosts          cannot be reached: no interface is up\n");
    ck_assert_int_eq(run("", "", "status", text, sizeof(text)), 0);
    has(text, "hosts          -\n");
    ck_assert_int_eq(run("eth0", "", "status --json", text, sizeof(text)), 0);
    has(text, "\"hosts_interface\":\"eth0\",\"hosts_address\":\"10.0.0.1\",\"no_hosts\":null");
}
END_TEST

START_TEST(snapshots_that_failed_are_told)
{
    char text[8192];
    (void)run("eth0", "", "doctor", text, sizeof(text));
    has_not(text, " snapshots: ");
    state_directory = "/x/states";
    (void)run("eth0", "", "doctor", text, sizeof(text));
    has(text, "ok       snapshots: 0 groups in /x/states\n");
    snapshot_reason = "cannot find the state directory /x/states any more";
    ck_assert_int_eq(run("eth0", "", "doctor", text, sizeof(text)), 1);
    has(text, "FAILED   snapshots: the last try failed: cannot find the state directory /x/states");
    state_directory = snapshot_reason = "";
}
END_TEST

/* A snapshot that is not used is a warning; once it is gone, all is well. */
START_TEST(files_that_are_not_used_are_told)
{
    char text[8192];
    state_directory = "/x/states";
    damaged = (char *)"7.snapshot.damaged";
    newer = (char *)"8.snapshot";
    (void)run("eth0", "", "doctor", text, sizeof(text));
    has_not(text, "ok       snapshots: ");
    has(text, "warning  snapshots: 4 damaged in /x/states: 7.snapshot.damaged, ...; 0 groups have "
              "one that is sound");
    has(text, "rm /x/states/*.damaged");
    has(text, "warning  snapshots: 1 in /x/states of a newer form not used: 8.snapshot; ");
    has(text, ".state of a newer form not used: 8.snapshot; ");
    has(text, "install the f8gatherd that wrote it");
    ck_assert_int_eq(run("eth0", "", "status", text, sizeof(text)), 0);
    has(text, "states         kept for 7 d 0 h after their groups; damaged and set aside: "
              "7.snapshot.damaged; of a newer form and left as they are: 8.snapshot\n");
    has(text, "in /x/states; damaged and set aside: 7.snapshot.damaged and 3 more; of a newer form "
              "and left as they are: 8.snapshot\n");
    ck_assert_int_eq(run("eth0", "", "status --json", text, sizeof(text)), 0);
    has(text, "\"states\":{\"keep_ms\":604800000,\"damaged\":[\"7.snapshot.damaged\"],"
              "\"num_damaged\":1,\"newer\":[\"8.snapshot\"],\"num_newer\":1}");
    damaged = newer = NULL;
    (void)run("eth0", "", "doctor", text, sizeof(text));
    has(text, "ok       snapshots: 0 groups in /x/states\n");
    state_directory = "";
}
END_TEST

START_TEST(what_the_daemon_tells)
{
    char text[8192];
    ck_assert_int_eq(run("eth0", "", "doctor", text, sizeof(text)), 0);
    has(text, "warning  version: f8ctl is ");
    has(text, ", the daemon is 9.8.7; f8gatherd --socket ");
    has(text, "ok       interfaces: other hosts are reached by eth0 (10.0.0.1)\n");
    ck_assert_int_eq(run("", "no interface is up", "doctor", text, sizeof(text)), 0);
    has(text, "warning  interfaces: no group can span hosts: no interface is up; ip link set ");
}
END_TEST

START_TEST(loopback_answers)
{
    char text[4096];
    ck_assert_int_eq(run("lo", "", "doctor --peer 127.0.0.1", text, sizeof(text)), 0);
    has(text, "ok       daemon: f8gatherd 9.8.7 (pid ");
    has(text, ", hosts by lo (10.0.0.1)\n");
    has(text, "ok       name: 127.0.0.1 is 127.0.0.1\n");
    has(text, "ok       route to 127.0.0.1: by lo from 127.0.0.1\n");
    has(text, "ok       interface to 127.0.0.1: lo, as the daemon's\n");
    has(text, " path to 127.0.0.1: answers in ");
    has(text, "ok       path MTU to 127.0.0.1: ");
    has_not(text, "FAILED");
}
END_TEST

static bool has_ipv6_loopback(void)
{
    char line[128];
    bool found = false;
    FILE *file = fopen("/proc/net/if_inet6", "r");
    while (file && fgets(line, sizeof(line), file))
        found = found || strncmp(line, "00000000000000000000000000000001 ", 33) == 0;
    if (file)
        (void)fclose(file);
    return found;
}

/* Where there is no IPv6, the way there must be what fails. */
START_TEST(loopback_of_ipv6)
{
    char text[4096];
    int result = run("lo", "", "doctor --peer ::1", text, sizeof(text));
    ck_assert_int_eq(result, has_ipv6_loopback() ? 0 : 1);
    if (result == 0)
        has(text, "ok       route to ::1: by lo from ::1\n");
    has(text, result == 0 ? " path to ::1: answers in " : "FAILED   route to ::1: ");
}
END_TEST

START_TEST(another_interface_is_worth_a_warning)
{
    char text[4096];
    ck_assert_int_eq(run("eth7", "", "doctor --peer 127.0.0.1", text, sizeof(text)), 0);
    has(text, "warning  interface to 127.0.0.1: lo, but the daemon's is eth7 (10.0.0.1); give ");
    has(text, "--socket-ifname");
}
END_TEST

START_TEST(daemon_without_an_interface_fails)
{
    char text[4096];
    ck_assert_int_eq(run("", "none is up", "doctor --peer 127.0.0.1", text, sizeof(text)), 1);
    has(text, ": none is up; give the daemon one that ip addr shows as up: --socket-ifname, "
              "F8_SOCKET_IFNAME, or socket-ifname in its file");
    has(text, "ok       route to 127.0.0.1: "); /* the rest is tested all the same */
    has_not(text, "interface to 127");
    ck_assert_int_eq(run("", "", "doctor --peer 127.0.0.1", text, sizeof(text)), 1);
    has(text, "it tells of no interface to other hosts; start f8gatherd");
}
END_TEST

START_TEST(no_daemon_is_worth_a_warning)
{
    char text[4096];
    ck_assert_int_eq(
        ctl_run("--socket /nowhere/f8.sock doctor --peer 127.0.0.1", text, sizeof(text)), 0);
    has(text, "warning  daemon: no daemon answers; tried /nowhere/f8.sock");
    has(text, " path to 127.0.0.1: answers in ");
}
END_TEST

START_TEST(name_that_does_not_resolve)
{
    char text[4096];
    /* no name by RFC 6761; with dots, so that it is none of this network's either */
    ck_assert_int_eq(run("lo", "", "doctor --peer no..such.invalid", text, sizeof(text)), 1);
    has(text, "FAILED   name: no..such.invalid does not resolve: ");
    has(text, "; give an address, or enter the name in /etc/hosts");
    has_not(text, "route");
}
END_TEST

/* Refused by the kernel or without an answer, whatever network this runs in. */
START_TEST(address_that_is_not_reached)
{
    char text[4096];
    ck_assert_int_eq(
        run("lo", "", "--timeout 0.3 doctor --peer 255.255.255.255", text, sizeof(text)), 1);
    has(text, "FAILED   ");
    has(text, "to 255.255.255.255: ");
}
END_TEST

static const json_t *find(const json_t *findings, const char *check)
{
    size_t i;
    const json_t *finding;
    json_array_foreach((json_t *)findings, i,
        finding) if (strcmp(json_string_value(json_object_get(finding, "check")), check) ==
                     0) return finding;
    ck_abort_msg("no finding of %s", check);
    return NULL;
}

START_TEST(findings_as_json)
{
    char text[8192];
    ck_assert_int_eq(run("eth7", "", "--json doctor --peer 127.0.0.1", text, sizeof(text)), 0);
    json_t *object = json_loads(text, 0, NULL);
    ck_assert_msg(object != NULL, "no JSON: %s", text);
    const json_t *findings = json_object_get(object, "findings");
    const json_t *path = find(findings, "path"), *interfaces = find(findings, "interface");
    ck_assert_str_eq(json_string_value(json_object_get(object, "socket")), fake.socket);
    ck_assert_str_eq(json_string_value(json_object_get(path, "address")), "127.0.0.1");
    ck_assert_str_eq(json_string_value(json_object_get(path, "unit")), "ms");
    ck_assert(json_real_value(json_object_get(path, "number")) > 0);
    ck_assert_str_eq(json_string_value(json_object_get(interfaces, "result")), "warning");
    ck_assert(json_is_string(json_object_get(interfaces, "remedy")));
    ck_assert(json_is_null(json_object_get(find(findings, "name"), "remedy")));
    ck_assert(json_is_null(json_object_get(find(findings, "name"), "address")));
    json_decref(object);
    ck_assert_int_eq(ctl_run("--socket /nowhere/f8.sock --json doctor --peer no..such.invalid",
                         text, sizeof(text)),
        1);
    has(text, "\"socket\":null,");
    has(text, "\"result\":\"FAILED\",\"check\":\"name\"");
}
END_TEST

START_TEST(daemon_that_hangs)
{
    char all[512], text[4096];
    fake_start(&fake, hang);
    (void)snprintf(
        all, sizeof(all), "--socket %s --timeout 0.1 doctor --peer 127.0.0.1", fake.socket);
    ck_assert_int_eq(ctl_run(all, text, sizeof(text)), 1);
    ck_assert_str_eq(text, "f8ctl: doctor: gave up at --timeout; what did not end: daemon\n");
    fake_go(&fake);
    fake_stop(&fake);
}
END_TEST

START_TEST(mistakes)
{
    char text[4096], all[600];
    ck_assert_int_eq(ctl_run("doctor --peer=", text, sizeof(text)), 2);
    has(text, "--peer is empty: give the other host's name or address");
    ck_assert_int_eq(ctl_run("--peer a status", text, sizeof(text)), 2);
    has(text, "status: takes no --peer");
    (void)snprintf(all, sizeof(all), "doctor --peer %0255d", 0);
    ck_assert_int_eq(ctl_run(all, text, sizeof(text)), 2);
    has(text, "a unique id has 256 hexadecimal digits, these are 255");
    (void)snprintf(all, sizeof(all), "doctor --peer %0200dx%055d", 0, 0);
    ck_assert_int_eq(ctl_run(all, text, sizeof(text)), 2);
    has(text, "a unique id is hexadecimal; character 201, x, is not");
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("ctl_doctor");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, status_says_where_hosts_reach_this_one);
    tcase_add_test(tcase, snapshots_that_failed_are_told);
    tcase_add_test(tcase, files_that_are_not_used_are_told);
    tcase_add_test(tcase, what_the_daemon_tells);
    tcase_add_test(tcase, loopback_answers);
    tcase_add_test(tcase, loopback_of_ipv6);
    tcase_add_test(tcase, another_interface_is_worth_a_warning);
    tcase_add_test(tcase, daemon_without_an_interface_fails);
    tcase_add_test(tcase, no_daemon_is_worth_a_warning);
    tcase_add_test(tcase, name_that_does_not_resolve);
    tcase_add_test(tcase, address_that_is_not_reached);
    tcase_add_test(tcase, findings_as_json);
    tcase_add_test(tcase, daemon_that_hangs);
    tcase_add_test(tcase, mistakes);
    return run_suite("ctl_doctor", tcase);
}
