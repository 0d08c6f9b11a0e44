/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl doctor --peer new and --peer ID against two real daemons on loopback: both meet and
 * measure, and what each says when the other never comes, dies, or is the same host.
 */
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/program.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define ID_DIGITS 256
#define BEFORE_ID "on the other host: f8ctl doctor --peer "

static struct test_daemon servers[2];

static void setup(void)
{
    static const char *const names[] = {"a", "b"};
    ck_assert_int_eq(setenv("F8_SOCKET_IFNAME", "lo", 1), 0);
    for (int h = 0; h < 2; h++) {
        const char *arguments[] = {"--host-name", names[h], NULL};
        test_daemon_start(&servers[h], arguments);
    }
}

static void teardown(void)
{
    for (int h = 0; h < 2; h++)
        test_daemon_stop(&servers[h]);
}

/* Waits for the command that f8ctl prints for the other host, on `fd`, and takes the id. */
static void take_id(int fd, char id[ID_DIGITS + 1])
{
    char text[512];
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
        text[size > 0 ? size : 0] = '\0';
        if (strchr(text, '\n'))
            break;
        (void)poll(NULL, 0, 10);
    }
    ck_assert_msg(strncmp(text, BEFORE_ID, strlen(BEFORE_ID)) == 0, "it printed: %s", text);
    memcpy(id, text + strlen(BEFORE_ID), ID_DIGITS);
    id[ID_DIGITS] = '\0';
    ck_assert_uint_eq(strspn(id, "0123456789abcdef"), ID_DIGITS);
}

static void start(struct program *ctl, int server, const char *flags, const char *peer)
{
    program_start(ctl, F8_TEST_CTL, NULL, "--socket %s %s doctor --peer %s", servers[server].socket,
        flags, peer);
}

static void has(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "got: %s\nmust have: %s", text, part);
}

static void has_measured(const struct program *ctl, const char *rank)
{
    has(ctl->out, "ok       meeting: after ");
    has(ctl->out, rank);
    has(ctl->out, "ok       small gather: ");
    has(ctl->out, "ok       large gather: ");
    has(ctl->out, " GB/s to here for 32 MiB from each");
    ck_assert_str_eq(ctl->err, "");
}

START_TEST(both_meet)
{
    struct program a, b;
    char id[ID_DIGITS + 1];
    start(&a, 0, "", "new");
    take_id(a.out_fd, id);
    start(&b, 1, "", id);
    program_expect(&b, 0);
    program_expect(&a, 0);
    has_measured(&a, ", as rank 0 of 2\n");
    has_measured(&b, ", as rank 1 of 2\n");
    has(a.out, "ok       hosts: a (127.0.0.1:");
    has(a.out, ", here), b (127.0.0.1:");
    has(b.out, "ok       hosts: a (127.0.0.1:");
    has(b.out, ", here)\n");
    program_done(&a);
    program_done(&b);
}
END_TEST

static double number_of(const struct program *ctl, const char *check, const char *unit)
{
    json_t *object = program_json(ctl), *finding;
    double number = -1;
    size_t i;
    json_array_foreach(json_object_get(object, "findings"), i, finding)
    {
        if (strcmp(json_string_value(json_object_get(finding, "check")), check) != 0)
            continue;
        ck_assert_str_eq(json_string_value(json_object_get(finding, "result")), "ok");
        ck_assert_str_eq(json_string_value(json_object_get(finding, "unit")), unit);
        number = json_number_value(json_object_get(finding, "number"));
    }
    json_decref(object);
    return number;
}

START_TEST(both_meet_in_json)
{
    struct program a, b;
    char id[ID_DIGITS + 1];
    start(&a, 0, "--json", "new");
    take_id(a.err_fd, id);
    start(&b, 1, "--json", id);
    program_expect(&b, 0);
    program_expect(&a, 0);
    ck_assert(number_of(&a, "meeting", "s") > 0);
    ck_assert(number_of(&a, "small gather", "us") > 0);
    ck_assert(number_of(&b, "large gather", "GB/s") > 0);
    program_done(&a);
    program_done(&b);
}
END_TEST

/* Runs one that cannot meet anybody, and looks for what it says. */
static void alone(int server, const char *flags, const char *peer, const char *text)
{
    struct program ctl;
    start(&ctl, server, flags, peer);
    program_expect(&ctl, 1);
    has(ctl.out, text);
    program_done(&ctl);
}

START_TEST(other_side_never_comes)
{
    alone(0, "--timeout 3", "new", "FAILED   meeting: the deadline of the seal, ");
    alone(0, "--timeout 3", "new", "rank 1 (not there) did not ask for it; run f8ctl doctor ");
}
END_TEST

START_TEST(id_that_is_none)
{
    char zeros[ID_DIGITS + 1];
    memset(zeros, '0', ID_DIGITS);
    zeros[ID_DIGITS] = '\0';
    alone(0, "", zeros, "FAILED   meeting: ");
}
END_TEST

/* The root's port closes with its daemon; a new one knows nothing of the id. */
START_TEST(id_of_a_daemon_that_is_gone)
{
    struct program a;
    char id[ID_DIGITS + 1];
    start(&a, 0, "", "new");
    take_id(a.out_fd, id);
    test_daemon_kill(&servers[0]);
    program_expect(&a, 1);
    has(a.out, "FAILED   meeting: the connection to f8gatherd ");
    program_done(&a);
    alone(1, "", id, "cannot be joined");
    test_daemon_restart(&servers[0], NULL);
}
END_TEST

/* Both commands on one host: the one daemon has one rank of the two. */
START_TEST(same_host_twice)
{
    struct program a;
    char id[ID_DIGITS + 1];
    start(&a, 0, "--timeout 20", "new");
    take_id(a.out_fd, id);
    test_daemon_await_log(&servers[0], "a world forms");
    alone(0, "--timeout 3", id, "FAILED   meeting: ");
    ck_assert_int_eq(kill(a.pid, SIGKILL), 0);
    program_wait(&a); /* if it came second, it is the one that was refused */
    ck_assert(a.status == -SIGKILL || a.status == 1);
    program_done(&a);
}
END_TEST

START_TEST(no_daemon)
{
    struct program ctl;
    program_start(
        &ctl, F8_TEST_CTL, NULL, "--socket %s/none doctor --peer new", servers[0].directory);
    program_expect(&ctl, 1);
    has(ctl.out, "FAILED   daemon: no daemon answers; tried ");
    program_done(&ctl);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("ctl_peer");
    tcase_set_timeout(tcase, 240);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, both_meet);
    tcase_add_test(tcase, both_meet_in_json);
    tcase_add_test(tcase, other_side_never_comes);
    tcase_add_test(tcase, id_that_is_none);
    tcase_add_test(tcase, id_of_a_daemon_that_is_gone);
    tcase_add_test(tcase, same_host_twice);
    tcase_add_test(tcase, no_daemon);
    return run_suite("ctl_peer", tcase);
}
