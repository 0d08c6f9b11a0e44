/* SPDX-License-Identifier: Apache-2.0 */
/* A real f8gatherd for one test: see test_daemon.h. */
#include "lib/test_daemon.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/patience.h"

#define MAX_ARGUMENTS 32

const char *test_daemon_program(void)
{
    const char *program = getenv("F8_TEST_DAEMON");
    return program ? program : F8_TEST_DAEMON;
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void show_log(const struct test_daemon *daemon)
{
    char line[1024];
    FILE *file = fopen(daemon->log, "re");
    while (file && fgets(line, sizeof(line), file))
        (void)fputs(line, stderr);
    if (file)
        (void)fclose(file);
}

/* In the child: becomes the daemon, and dies with the test. */
static void exec_daemon(const struct test_daemon *daemon, const char *const *arguments)
{
    const char *argv[MAX_ARGUMENTS + 4] = {test_daemon_program(), "--socket", daemon->socket};
    for (int i = 0; arguments && arguments[i] && i < MAX_ARGUMENTS; i++)
        argv[3 + i] = arguments[i];
    int log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    (void)dup2(log, STDERR_FILENO);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)execv(argv[0], (char *const *)argv);
    _exit(127);
}

int test_daemon_connect(const struct test_daemon *daemon)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", daemon->socket);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

/*
 * Until the daemon has taken this connection, seen its end, and let it go. Its loop runs then, and
 * nothing is left of the connection. A signal before that may be lost under ThreadSanitizer: it
 * makes a thread's record of signals at the thread's first call that can block, and one that comes
 * in the midst of that is gone.
 */
static void await_service(int fd)
{
    struct pollfd end = {.fd = fd, .events = POLLIN};
    (void)shutdown(fd, SHUT_WR);
    ck_assert_msg(poll(&end, 1, PATIENCE_S * 1000) == 1, "the daemon does not serve");
    (void)close(fd);
}

static void launch(struct test_daemon *daemon, const char *const *arguments)
{
    daemon->pid = fork();
    if (daemon->pid == 0)
        exec_daemon(daemon, arguments);
    ck_assert_int_ge(daemon->pid, 0);
    double end = now() + PATIENCE_S;
    int fd = -1;
    while ((fd = test_daemon_connect(daemon)) < 0 && now() < end) {
        bool ended = waitpid(daemon->pid, NULL, WNOHANG) != 0;
        if (ended)
            show_log(daemon);
        ck_assert_msg(!ended, "the daemon ended at its start");
        (void)poll(NULL, 0, 1);
    }
    ck_assert_msg(fd >= 0, "the daemon does not answer");
    await_service(fd);
}

void test_daemon_start(struct test_daemon *daemon, const char *const *arguments)
{
    *daemon = (struct test_daemon){0};
    (void)strcpy(daemon->directory, "/tmp/f8test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(daemon->directory));
    (void)snprintf(daemon->socket, sizeof(daemon->socket), "%s/s", daemon->directory);
    (void)snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->directory);
    launch(daemon, arguments);
}

void test_daemon_restart(struct test_daemon *daemon, const char *const *arguments)
{
    launch(daemon, arguments);
}

/*
 * ThreadSanitizer can hold a signal back until the program's next system call, and an idle daemon
 * makes none: a connection now and then makes it.
 */
static void poke_until_end(const struct test_daemon *daemon)
{
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, daemon->pid, 0), .events = POLLIN};
    for (int i = 0; i < PATIENCE_S * 10 && poll(&ended, 1, 100) == 0; i++) {
        int fd = test_daemon_connect(daemon);
        if (fd >= 0)
            (void)close(fd);
    }
    (void)close(ended.fd);
}

void test_daemon_end(const struct test_daemon *daemon)
{
    ck_assert_int_eq(kill(daemon->pid, SIGTERM), 0);
    poke_until_end(daemon);
    int status = test_wait(daemon->pid);
    if (status != 0)
        show_log(daemon);
    ck_assert_int_eq(status, 0);
}

void test_daemon_stop(struct test_daemon *daemon)
{
    test_daemon_end(daemon);
    ck_assert_msg(access(daemon->socket, F_OK) < 0, "the socket was left behind");
    (void)unlink(daemon->log);
    ck_assert_msg(rmdir(daemon->directory) == 0, "%s: %s", daemon->directory, strerror(errno));
}

void test_remove_directory(const char *path)
{
    DIR *entries = opendir(path);
    for (const struct dirent *entry; entries && (entry = readdir(entries));)
        if (entry->d_name[0] != '.')
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries)
        (void)closedir(entries);
    (void)rmdir(path);
}

void test_daemon_drop_states(const struct test_daemon *daemon)
{
    char directory[160];
    (void)snprintf(directory, sizeof(directory), "%s.state", daemon->socket);
    test_remove_directory(directory);
}

void test_daemon_kill(struct test_daemon *daemon)
{
    ck_assert_int_eq(kill(daemon->pid, SIGKILL), 0);
    ck_assert_int_eq(test_wait(daemon->pid), -SIGKILL);
}

static bool log_has(const struct test_daemon *daemon, const char *text)
{
    char content[65536];
    int fd = open(daemon->log, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, content, sizeof(content) - 1);
    (void)close(fd);
    content[n > 0 ? n : 0] = '\0';
    return strstr(content, text) != NULL;
}

/* `pokes`: with connections, for what poke_until_end says. */
static void await_log(const struct test_daemon *daemon, const char *text, bool pokes)
{
    double end = now() + PATIENCE_S;
    for (int i = 1; now() < end; i++) {
        int fd = pokes && i % 100 == 0 ? test_daemon_connect(daemon) : -1;
        if (fd >= 0)
            (void)close(fd);
        if (log_has(daemon, text))
            return;
        (void)poll(NULL, 0, 1);
    }
    show_log(daemon);
    ck_abort_msg("the daemon never logged: %s", text);
}

void test_daemon_await_log(const struct test_daemon *daemon, const char *text)
{
    await_log(daemon, text, false);
}

void test_daemon_signal(const struct test_daemon *daemon, int number, const char *text)
{
    ck_assert_int_eq(kill(daemon->pid, number), 0);
    await_log(daemon, text, true);
}

pid_t test_fork(int (*body)(void *argument), void *argument)
{
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        /* No assertion here: it writes to the file that Check reads in the parent. */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        int status = body(argument);
        (void)fflush(NULL);
        _exit(status);
    }
    ck_assert_int_ge(pid, 0);
    return pid;
}

int test_wait(pid_t pid)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    ck_assert_int_ge(pidfd, 0);
    int ready = poll(&ended, 1, PATIENCE_S * 1000);
    (void)close(pidfd);
    ck_assert_msg(ready == 1, "process %d does not end", (int)pid);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}
