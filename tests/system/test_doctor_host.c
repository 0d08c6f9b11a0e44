/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl doctor on a host where something is really wrong: sockets that nobody, or somebody else,
 * serves, directories of the wrong owner, mode or room, limits, system calls that a container
 * forbids, kernels that are not used. Each finding comes with its remedy, and the exit status says
 * whether any check failed. What takes root is left out without it.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/findings.h"
#include "lib/private_run.h"
#include "lib/program.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define NOBODY 65534

static struct test_daemon server;

/* ---- a run ---- */

/* As this user, with this status. */
static void examine(int status)
{
    struct program program;
    program_start(&program, F8_TEST_CTL, NULL, "--socket %s doctor --json", server.socket);
    program_expect(&program, status);
    findings_take(program.out);
    program_done(&program);
}

static bool is_root(void)
{
    return geteuid() == 0;
}

/* In a child, what comes before f8ctl is run; then its output is taken as by examine(). */
static void examine_after(int status, int (*prepare)(void))
{
    char text[65536];
    int ends[2], result;
    size_t length = 0;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        if (prepare() == 0)
            (void)execl(
                F8_TEST_CTL, "f8ctl", "--socket", server.socket, "doctor", "--json", (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    for (ssize_t n; (n = read(ends[0], text + length, sizeof(text) - 1 - length)) > 0;)
        length += (size_t)n;
    text[length] = '\0';
    (void)close(ends[0]);
    ck_assert_int_eq(waitpid(pid, &result, 0), pid);
    ck_assert_msg(WIFEXITED(result) && WEXITSTATUS(result) == status, "%d: %s", result, text);
    findings_take(text);
}

static void set_up(void)
{
    test_daemon_start(&server, NULL);
}

static void tear_down(void)
{
    findings_drop();
    test_daemon_stop(&server);
}

/* ---- the socket ---- */

START_TEST(nothing_is_wrong)
{
    char value[64];
    examine(0);
    (void)snprintf(value, sizeof(value), "(pid %d) answers in ", (int)server.pid);
    found("socket", "ok", "mode 0660", NULL);
    found("daemon", "ok", value, NULL);
    found("version", "ok", "f8ctl and f8gatherd are", NULL);
    found("runtime directory", "ok", server.directory, NULL);
    found("states", "ok", "nothing is stored", NULL);
    found("pidfd", "ok", NULL, NULL);
    found("memfd seals", "ok", NULL, NULL);
    found("open files", "ok", "the daemon may have", NULL);
    found("CPU", "ok", "the daemon runs kernels", NULL);
}
END_TEST

START_TEST(no_daemon)
{
    char value[128];
    test_daemon_end(&server);
    examine(1);
    (void)snprintf(value, sizeof(value), "f8gatherd --socket %s", server.socket);
    found("socket", "FAILED", "No such file or directory", value);
    found("runtime directory", "ok", NULL, NULL);
    found("open files", "ok", "a daemon from here may have", NULL);
    found("kernel", "ok", "Linux", NULL);
    test_daemon_restart(&server, NULL);
}
END_TEST

START_TEST(stale_socket)
{
    test_daemon_kill(&server);
    examine(1);
    found("listener", "FAILED", "nobody listens", "which replaces it");
    test_daemon_restart(&server, NULL);
    examine(0);
}
END_TEST

/* A socket of that type at the daemon's path, which somebody listens at. */
static int listen_there(int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", server.socket);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    return fd;
}

START_TEST(socket_of_another_program)
{
    test_daemon_end(&server);
    int fd = listen_there(SOCK_STREAM);
    examine(1);
    found("listener", "FAILED", "another program listens there", "export F8GATHERD_SOCKET=");
    (void)close(fd);
    ck_assert_int_eq(unlink(server.socket), 0);
    ck_assert_int_eq(close(open(server.socket, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
    examine(1);
    found("socket", "FAILED", "is no socket", "mv ");
    ck_assert_int_eq(unlink(server.socket), 0);
    test_daemon_restart(&server, NULL);
}
END_TEST

/* The kernel takes the connection for it, and then there is silence. */
static void stopped_daemon_is_left_at_timeout(void)
{
    struct program program;
    program_start(&program, F8_TEST_CTL, NULL, "--socket %s --timeout 0.3 status", server.socket);
    program_expect(&program, 3);
    ck_assert_msg(
        strstr(program.err, "did not answer within 0.3 s; it may be stopped"), "%s", program.err);
    program_done(&program);
}

START_TEST(daemon_that_is_stopped)
{
    char remedy[32];
    int status;
    ck_assert_int_eq(kill(server.pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(server.pid, &status, WUNTRACED), server.pid);
    examine(1);
    (void)snprintf(remedy, sizeof(remedy), "kill -CONT %d", (int)server.pid);
    found("daemon", "FAILED", "its process is stopped", remedy);
    stopped_daemon_is_left_at_timeout();
    ck_assert_int_eq(kill(server.pid, SIGCONT), 0);
}
END_TEST

static int become_nobody(void)
{
    return setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0 &&
                   access(F8_TEST_CTL, X_OK) == 0
               ? 0
               : -1;
}

/* Whether nobody can run the f8ctl of this build at all. */
static bool nobody_can_run(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(become_nobody() == 0 ? 0 : 1);
    return waitpid(pid, &status, 0) == pid && status == 0;
}

START_TEST(users_who_may_not)
{
    if (!is_root() || !nobody_can_run())
        return;
    ck_assert_int_eq(chmod(server.directory, 0755), 0);
    examine_after(1, become_nobody);
    found("permission", "FAILED", "may not connect: Permission denied; it is for root",
        "run the daemon as user f8gatherd, not as root, and usermod -aG f8gatherd ");
    ck_assert_int_eq(chown(server.socket, (uid_t)-1, 1), 0); /* a group that may be joined */
    examine_after(1, become_nobody);
    found("permission", "FAILED", "may not connect: Permission denied; it is for ", "usermod -aG ");
    ck_assert_int_eq(chmod(server.socket, 0666), 0);
    examine_after(0, become_nobody);
    found("permission", "warning", "so may everybody else (mode 0666)", "chmod 0660 ");
    found("daemon", "warning", "it answers, but uid 65534 may not inspect", "admin-group");
    ck_assert_int_eq(chmod(server.directory, 0700), 0);
    examine_after(1, become_nobody);
    found("socket", "FAILED", "Permission denied", "chmod a+x ");
}
END_TEST

/* ---- directories ---- */

START_TEST(directory_that_others_write_to)
{
    ck_assert_int_eq(chmod(server.directory, 0777), 0);
    examine(1);
    found("runtime directory", "FAILED", "others may replace the socket", "chmod 0755 ");
    ck_assert_int_eq(chmod(server.directory, 01777), 0); /* as /tmp */
    examine(0);
    found("runtime directory", "ok", "mode 1777", NULL);
}
END_TEST

START_TEST(directory_of_another)
{
    if (!is_root())
        return;
    ck_assert_int_eq(chown(server.directory, NOBODY, NOBODY), 0);
    examine(0);
    found("runtime directory", "warning", "who may replace the socket of root", "chown root ");
    ck_assert_int_eq(chown(server.directory, 0, 0), 0);
}
END_TEST

static void make_file(const char *path)
{
    ck_assert_int_eq(close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
}

START_TEST(states_that_are_not_well)
{
    char directory[128], bad[160];
    (void)snprintf(directory, sizeof(directory), "%s.state", server.socket);
    (void)snprintf(bad, sizeof(bad), "%s/1.state.bad", directory);
    ck_assert_int_eq(mkdir(directory, 0700), 0);
    examine(0);
    found("states", "ok", directory, NULL);
    make_file(bad);
    examine(0);
    found("states", "warning", "has 1 damaged files", "*.bad");
    ck_assert_int_eq(unlink(bad), 0);
    ck_assert_int_eq(chmod(directory, 0750), 0);
    examine(1);
    found("states", "FAILED", "mode 0750", "chmod 0700 ");
    if (is_root()) {
        ck_assert_int_eq(chmod(directory, 0700), 0);
        ck_assert_int_eq(chown(directory, NOBODY, NOBODY), 0);
        examine(1);
        found("states", "FAILED", "not root's: the daemon refuses it", "chown -R root ");
    }
    ck_assert_int_eq(rmdir(directory), 0);
}
END_TEST

/* Puts a file of that size on the file system of the daemon's directory, or as much as fits. */
static void fill(const char *path, size_t size)
{
    static const char page[4096];
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    for (size_t done = 0; done < size; done += sizeof(page))
        if (write(fd, page, sizeof(page)) < 0)
            break;
    (void)close(fd);
}

START_TEST(directory_without_room)
{
    char path[128];
    if (!is_root() || !private_run_enter())
        return;
    test_daemon_end(&server);
    ck_assert_int_eq(mount("f8test", server.directory, "tmpfs", 0, "size=32m,nr_inodes=1000"), 0);
    test_daemon_restart(&server, NULL);
    examine(0);
    found("runtime file system", "ok", "tmpfs", NULL);
    found("runtime room", "ok", " inodes", NULL);
    (void)snprintf(path, sizeof(path), "%s/full", server.directory);
    fill(path, (size_t)24 << 20);
    examine(0);
    found("runtime room", "warning", " left", "df -h ");
    fill(path, (size_t)64 << 20);
    examine(1);
    found("runtime room", "FAILED", "0 B left", "then remove what is not needed on ");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mount(NULL, server.directory, NULL, MS_REMOUNT, "nr_inodes=5"), 0);
    examine(1);
    found("runtime room", "FAILED", " inodes", "df -i ");
    test_daemon_end(&server);
    ck_assert_int_eq(unlink(server.log), 0);
    ck_assert_int_eq(umount(server.directory), 0);
    test_daemon_restart(&server, NULL);
}
END_TEST

/* ---- limits ---- */

/* The daemon's soft limit, which can be raised again; gives what it was. */
static rlim_t limit(int resource, rlim_t most)
{
    enum __rlimit_resource which = (enum __rlimit_resource)resource;
    struct rlimit before, after;
    ck_assert_int_eq(prlimit(server.pid, which, NULL, &before), 0);
    after = (struct rlimit){.rlim_cur = most, .rlim_max = before.rlim_max};
    ck_assert_int_eq(prlimit(server.pid, which, &after, NULL), 0);
    return before.rlim_cur;
}

START_TEST(limits_of_the_daemon)
{
    rlim_t files = limit(RLIMIT_NOFILE, 1000);
    examine(0);
    found("open files", "warning", "the daemon may have 1000, has ", "1048576");
    rlim_t size = limit(RLIMIT_FSIZE, (rlim_t)1 << 30);
    examine(0);
    found("sizes", "warning", "files of the daemon are limited to 1073741824 bytes", NULL);
    (void)limit(RLIMIT_NOFILE, 2);
    examine(1); /* it has more open than it may */
    found("open files", "FAILED", "may have 2, has ", NULL);
    (void)limit(RLIMIT_NOFILE, files);
    (void)limit(RLIMIT_FSIZE, size);
}
END_TEST

static int limit_here(void)
{
    return setrlimit(RLIMIT_NOFILE, &(const struct rlimit){.rlim_cur = 60, .rlim_max = 60});
}

START_TEST(limits_that_a_daemon_would_inherit)
{
    test_daemon_end(&server);
    examine_after(1, limit_here);
    found("open files", "FAILED", "a daemon from here may have 60", NULL);
    test_daemon_restart(&server, NULL);
}
END_TEST

/* ---- the kernel and the CPU ---- */

/* As a container's seccomp profile: these calls are not permitted. */
static int forbid(unsigned first, unsigned second, unsigned error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = 5, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0
               ? 0
               : -1;
}

static int forbid_pidfd_and_memfd(void)
{
    return forbid(SYS_pidfd_open, SYS_memfd_create, EPERM);
}

static int have_old_kernel(void)
{
    return forbid(SYS_pidfd_open, SYS_memfd_create, ENOSYS);
}

START_TEST(calls_that_are_forbidden)
{
    examine_after(1, forbid_pidfd_and_memfd);
    found("pidfd", "FAILED", "Operation not permitted", "seccomp profile");
    found("shared memory", "FAILED", "Operation not permitted", "seccomp profile");
    found("memfd seals", "FAILED", "Operation not permitted", NULL);
    found("large pages", "warning", "small pages", NULL);
    examine_after(1, have_old_kernel);
    found("pidfd", "FAILED", "Function not implemented", "install Linux 5.3");
}
END_TEST

/* Another file in the place of one of the kernel's, for this process and its children. */
static void put_over(const char *path, const char *text)
{
    char file[] = "/tmp/f8test-over-XXXXXX";
    int fd = mkstemp(file);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    ck_assert_int_eq(mount(file, path, NULL, MS_BIND, NULL), 0);
    (void)unlink(file);
}

START_TEST(settings_of_the_kernel)
{
    static const char huge[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    static const char source[] = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    if (!is_root() || access(huge, R_OK) != 0 || access(source, R_OK) != 0 || !private_run_enter())
        return;
    put_over(huge, "always within_size advise never [deny] force\n");
    put_over(source, "acpi_pm\n");
    examine(0);
    found("huge pages of memfds", "warning", "[deny]", "echo advise > /sys/kernel/mm/");
    found("clock source", "warning", "acpi_pm", "echo tsc > /sys/devices/");
    ck_assert_int_eq(umount(huge), 0);
    ck_assert_int_eq(umount(source), 0);
}
END_TEST

START_TEST(kernels_that_are_not_used)
{
    test_daemon_end(&server);
    ck_assert_int_eq(setenv("F8K_CPU_DISABLE", "avx2", 1), 0);
    test_daemon_restart(&server, NULL);
    ck_assert_int_eq(unsetenv("F8K_CPU_DISABLE"), 0);
    examine(0);
    found("CPU", "warning", "the daemon runs kernels ref", NULL);
}
END_TEST

/* ---- as text ---- */

START_TEST(lines_for_people)
{
    struct program program;
    test_daemon_kill(&server);
    program_start(&program, F8_TEST_CTL, NULL, "--socket %s doctor", server.socket);
    program_expect(&program, 1);
    ck_assert_msg(strstr(program.out, "\nFAILED   listener: nobody listens"), "%s", program.out);
    ck_assert_msg(strstr(program.out, "left it; f8gatherd --socket "), "%s", program.out);
    ck_assert_msg(strstr(program.out, "\nok       kernel: Linux "), "%s", program.out);
    program_done(&program);
    test_daemon_restart(&server, NULL);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("doctor_host");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, nothing_is_wrong);
    tcase_add_test(tcase, no_daemon);
    tcase_add_test(tcase, stale_socket);
    tcase_add_test(tcase, socket_of_another_program);
    tcase_add_test(tcase, daemon_that_is_stopped);
    tcase_add_test(tcase, users_who_may_not);
    tcase_add_test(tcase, directory_that_others_write_to);
    tcase_add_test(tcase, directory_of_another);
    tcase_add_test(tcase, states_that_are_not_well);
    tcase_add_test(tcase, directory_without_room);
    tcase_add_test(tcase, limits_of_the_daemon);
    tcase_add_test(tcase, limits_that_a_daemon_would_inherit);
    tcase_add_test(tcase, calls_that_are_forbidden);
    tcase_add_test(tcase, settings_of_the_kernel);
    tcase_add_test(tcase, kernels_that_are_not_used);
    tcase_add_test(tcase, lines_for_people);
    if (!is_root())
        (void)printf("left out without root: other users, owners, full and other file systems\n");
    return run_suite("doctor_host", tcase);
}
