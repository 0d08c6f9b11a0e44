/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl doctor on the memory limit of the daemon's control group, of either version: as the kernel
 * tells it, which is files in a mount namespace of the test's own. Takes root.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/findings.h"
#include "lib/private_run.h"
#include "lib/program.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define SKIPPED 77

static struct test_daemon server;
static char groups[160]; /* the file that is in the place of the daemon's /proc/PID/cgroup */

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_msg(file != NULL, "%s", path);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static void set_up(void)
{
    char proc[64];
    test_daemon_start(&server, NULL);
    (void)snprintf(groups, sizeof(groups), "%s/cgroup", server.directory);
    (void)snprintf(proc, sizeof(proc), "/proc/%d/cgroup", (int)server.pid);
    write_file(groups, "");
    ck_assert_int_eq(mount(groups, proc, NULL, MS_BIND, NULL), 0);
    ck_assert_int_eq(mount("f8test", "/sys/fs/cgroup", "tmpfs", 0, NULL), 0);
}

static void tear_down(void)
{
    char proc[64];
    findings_drop();
    (void)snprintf(proc, sizeof(proc), "/proc/%d/cgroup", (int)server.pid);
    ck_assert_int_eq(umount(proc), 0);
    ck_assert_int_eq(umount("/sys/fs/cgroup"), 0);
    ck_assert_int_eq(unlink(groups), 0);
    test_daemon_stop(&server);
}

static void finds(const char *result, const char *value, const char *remedy)
{
    struct program program;
    program_start(&program, F8_TEST_CTL, NULL, "--socket %s doctor --json", server.socket);
    program_expect(&program, 0);
    findings_take(program.out);
    program_done(&program);
    found("memory limit", result, value, remedy);
}

/* Where both are mounted, memory is counted by one of them. */
START_TEST(version_1_has_a_limit)
{
    ck_assert_int_eq(mkdir("/sys/fs/cgroup/memory", 0755), 0);
    ck_assert_int_eq(mkdir("/sys/fs/cgroup/memory/f8gather", 0755), 0);
    write_file("/sys/fs/cgroup/memory.max", "max\n");
    write_file(groups, "9:name=systemd:/\n4:cpu,memory:/f8gather\n1:memory_other:/\n0::/\n");
    finds("ok",
        "version 1, and its limit cannot be seen from here: "
        "/sys/fs/cgroup/memory/f8gather/memory.stat is not there",
        NULL);
    write_file("/sys/fs/cgroup/memory/f8gather/memory.stat",
        "cache 0\nhierarchical_memory_limit 67108864\nhierarchical_memsw_limit 134217728\n");
    finds("warning", "control group /f8gather has at most 64.0 MiB; memory-per-uid is ",
        "memory-per-uid = 51M");
    write_file("/sys/fs/cgroup/memory/f8gather/memory.stat",
        "cache 0\nhierarchical_memory_limit 9223372036854771712\n");
    finds("ok", "no control group of the daemon limits its memory", NULL);
}
END_TEST

START_TEST(version_2_has_the_least_of_its_groups)
{
    ck_assert_int_eq(mkdir("/sys/fs/cgroup/outer", 0755), 0);
    ck_assert_int_eq(mkdir("/sys/fs/cgroup/outer/f8", 0755), 0);
    write_file("/sys/fs/cgroup/outer/memory.max", "67108864\n");
    write_file("/sys/fs/cgroup/outer/f8/memory.max", "max\n");
    write_file(groups, "0::/outer/f8\n");
    finds("warning", "control group /outer has at most 64.0 MiB", "memory-per-uid = 51M");
    write_file("/sys/fs/cgroup/outer/memory.max", "max\n");
    finds("ok", "no control group of the daemon limits its memory", NULL);
}
END_TEST

START_TEST(without_control_groups_it_is_said)
{
    finds("ok", "the daemon is in no control group that counts memory", NULL);
}
END_TEST

int main(void)
{
    if (geteuid() != 0 || !private_run_enter()) {
        (void)printf("skipped: it takes root to mount files in the place of the kernel's\n");
        return SKIPPED;
    }
    TCase *tcase = tcase_create("processes");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, version_1_has_a_limit);
    tcase_add_test(tcase, version_2_has_the_least_of_its_groups);
    tcase_add_test(tcase, without_control_groups_it_is_said);
    return run_suite("doctor_memory", tcase);
}
