/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8bench says of machines that do not come, die or hang, as whole programs at addresses of
 * the loopback, and (as root) in network namespaces: all that are left name the one, and end.
 */
#include <signal.h>
#include <string.h>

#include "lib/bench_machines.h"

START_TEST(test_a_missing_host_is_named)
{
    machines_start(0, 3, "--ranks 3 --deadline %d", DEADLINE_S);
    machines_start(2, 3, "--ranks 3 --deadline %d", DEADLINE_S);
    machines_expect(0, 1);
    machines_expect_named(machines[0].out, 1, " has not come within ");
    machines_expect(2, 1);
    machines_expect_named(machines[2].out, 1, " has not come within ");
    program_done(&machines[0]);
    program_done(&machines[2]);
}
END_TEST

START_TEST(test_a_missing_host_0_is_named)
{
    char said[80];
    machines_start(1, 2, "--deadline 1");
    machines_expect(1, 1);
    snprintf(said, sizeof(said), ", port %u, has not come within 1 s: Connection refused",
        machines_port);
    machines_expect_named(machines[1].out, 0, said);
    program_done(&machines[1]);
}
END_TEST

START_TEST(test_a_death_on_any_host_is_named_on_all)
{
    uint32_t host = (uint32_t)_i % 3;
    bool daemon = _i >= 3;
    char said[100];
    for (uint32_t i = 0; i < 3; i++)
        machines_start(i, 3, "--ranks 3 --steps 1000000");
    pid_t pid = machines_await_child(host, daemon);
    kill(pid, SIGKILL);
    for (uint32_t i = 0; i < 3; i++)
        machines_expect(i, 1);
    snprintf(said, sizeof(said),
        daemon ? "the daemon (pid %d) was ended by signal 9" : "(pid %d) was ended by signal 9",
        (int)pid);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_msg(strstr(machines[i].out, said) != NULL, "host %u: %s", i, machines[i].out);
        if (i != host)
            machines_expect_named(machines[i].out, host, ": ");
    }
    machines_done(3);
}
END_TEST

/* The whole f8bench of a host is gone. */
START_TEST(test_a_lost_host_is_named)
{
    uint32_t host = (uint32_t)_i;
    for (uint32_t i = 0; i < 3; i++)
        machines_start(i, 3, "--ranks 3 --steps 1000000");
    (void)machines_await_child(host, false);
    kill(machines[host].pid, SIGKILL);
    for (uint32_t i = 0; i < 3; i++)
        machines_expect(i, i == host ? -SIGKILL : 1);
    for (uint32_t i = 0; i < 3; i++) {
        if (i != host)
            machines_expect_named(machines[i].out, host, " was lost: ");
    }
    machines_done(3);
}
END_TEST

START_TEST(test_a_host_that_hangs_is_named)
{
    for (uint32_t i = 0; i < 2; i++)
        machines_start(i, 2, "--ranks 2 --steps 1000000 --deadline %d", DEADLINE_S);
    (void)machines_await_child(1, false);
    kill(machines[1].pid, SIGSTOP);
    machines_expect(0, 1);
    machines_expect_named(machines[0].out, 1, " has not come to where the others are within ");
    kill(machines[1].pid, SIGCONT);
    machines_expect(1, 1);
    machines_expect_named(machines[1].out, 1, " has not come to where the others are within ");
    machines_done(2);
}
END_TEST

START_TEST(test_an_interrupt_ends_all)
{
    for (uint32_t i = 0; i < 2; i++)
        machines_start(i, 2, "--ranks 2 --steps 1000000");
    (void)machines_await_child(1, false);
    kill(machines[_i].pid, SIGINT);
    machines_expect((uint32_t)_i, 130);
    machines_expect(1 - (uint32_t)_i, 1);
    machines_expect_named(machines[1 - _i].out, (uint32_t)_i, ": interrupted");
    machines_done(2);
}
END_TEST

static void add(TCase *cases)
{
    tcase_add_test(cases, test_a_missing_host_is_named);
    tcase_add_test(cases, test_a_missing_host_0_is_named);
    tcase_add_loop_test(cases, test_a_death_on_any_host_is_named_on_all, 0, 6);
    tcase_add_loop_test(cases, test_a_lost_host_is_named, 0, 3);
}

static void add_more(TCase *cases)
{
    tcase_add_test(cases, test_a_host_that_hangs_is_named);
    tcase_add_loop_test(cases, test_an_interrupt_ends_all, 0, 2);
}

static void add_none(TCase *cases)
{
    (void)cases;
}

int main(void)
{
    return machines_run("bench at addresses, lost", add, add_more, add_none);
}
