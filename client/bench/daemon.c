/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts, awaits and ends the private daemon. It runs in its own process group, so that a Ctrl-C
 * reaches only the parent, which ends everything in order; and it dies with the parent.
 */
#include "daemon.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/bench/shared.h"

/* How long the daemon may take to open its socket, and to end. */
#define START_SECONDS     60
#define STOP_MILLISECONDS 60000

int daemon_beside(const char *name, char *path, size_t size)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    int written;

    if (length < 0) {
        return -1;
    }
    self[length] = '\0';
    written = snprintf(path, size, "%s/%s", dirname(self), name);
    return written > 0 && (size_t)written < size ? 0 : -1;
}

/* A name for the socket that nobody has, and a file for the log. */
static int prepare(struct daemon *daemon, struct bench_error *error)
{
    const char *parent = getenv("TMPDIR");
    uint64_t random = 0;

    /* The path of a socket has 107 bytes at most. */
    if (parent == NULL || parent[0] != '/' || strlen(parent) > 60) {
        parent = "/tmp";
    }
    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return bench_fail(error, "no random name for a socket: %s", strerror(errno));
    }
    snprintf(
        daemon->socket, sizeof(daemon->socket), "%s/f8bench-%016" PRIx64 ".sock", parent, random);
    daemon->log_fd = memfd_create("f8gatherd.log", MFD_CLOEXEC);
    if (daemon->log_fd < 0) {
        return bench_fail(error, "no memory file for the daemon's log: %s", strerror(errno));
    }
    return 0;
}

/* The arguments that every one has, and those of a host among others. */
#define MAX_ARGUMENTS 12

/* Those of them that are made. */
struct made {
    char name[32], deadline[16];
};

static void set_arguments(const struct daemon *daemon, const struct daemon_options *options,
    const char **arguments, struct made *made)
{
    /* Nobody continues the scaling states of a run: they go with its groups. */
    const char *const all[] = {options->program, "--socket", daemon->socket, "--linger", "0"};
    size_t count = sizeof(all) / sizeof(all[0]);

    memcpy(arguments, all, sizeof(all));
    if (options->interface != NULL) {
        snprintf(made->name, sizeof(made->name), "host%" PRIu32, options->host);
        arguments[count++] = "--socket-ifname";
        arguments[count++] = options->interface;
        arguments[count++] = "--host-name";
        arguments[count++] = made->name;
    }
    if (options->deadline_s > 0) {
        snprintf(made->deadline, sizeof(made->deadline), "%" PRIu32, options->deadline_s);
        arguments[count++] = "--world-deadline";
        arguments[count++] = made->deadline;
    }
    arguments[count] = NULL;
}

/* In the child: becomes the daemon. */
__attribute__((noreturn)) static void become(
    const struct daemon *daemon, const struct daemon_options *options, pid_t parent)
{
    const char *arguments[MAX_ARGUMENTS];
    struct made made;
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(1); /* it died before the line above */
    }
    setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(daemon->log_fd, STDOUT_FILENO);
    dup2(daemon->log_fd, STDERR_FILENO);
    if (options->network != NULL && network_enter(options->network, options->host) != 0) {
        fprintf(stderr, "cannot enter host %" PRIu32 ": %s\n", options->host, strerror(errno));
        _exit(127);
    }
    set_arguments(daemon, options, arguments, &made);
    execv(options->program, (char **)arguments);
    fprintf(stderr, "cannot run %s: %s\n", options->program, strerror(errno));
    _exit(127);
}

static int spawn(
    struct daemon *daemon, const struct daemon_options *options, struct bench_error *error)
{
    const char *program = options->program;
    pid_t parent = getpid();

    if (access(program, X_OK) != 0) {
        return bench_fail(error, "no daemon to start: %s: %s (give one with --daemon or --socket)",
            program, strerror(errno));
    }
    daemon->pid = fork();
    if (daemon->pid == 0) {
        become(daemon, options, parent);
    }
    daemon->pidfd = daemon->pid > 0 ? pidfd_open(daemon->pid, 0) : -1;
    if (daemon->pidfd < 0) {
        return bench_fail(error, "cannot start %s: %s", program, strerror(errno));
    }
    return 0;
}

static int can_connect(const char *socket_path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int result;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
    result = connect(fd, (struct sockaddr *)&address, sizeof(address));
    close(fd);
    return result == 0;
}

/* No event tells when a socket listens, so it is tried every few milliseconds. */
static int await(struct daemon *daemon, int signal_fd, struct bench_error *error)
{
    double deadline = shared_now() + START_SECONDS;
    struct pollfd fds[] = {
        {.fd = daemon->pidfd, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};

    while (!can_connect(daemon->socket)) {
        poll(fds, 2, 5);
        if (fds[0].revents != 0) {
            return daemon_explain(daemon, error);
        }
        if (fds[1].revents != 0) {
            return bench_fail(error, "interrupted");
        }
        if (shared_now() > deadline) {
            return bench_fail(error, "the daemon (pid %d) did not open %s within %d s",
                (int)daemon->pid, daemon->socket, START_SECONDS);
        }
    }
    return 0;
}

int daemon_start(const struct daemon_options *options, int signal_fd, struct daemon *ret_daemon,
    struct bench_error *error)
{
    struct daemon_options with_program = *options;
    struct daemon daemon = DAEMON_NONE;
    char beside[PATH_MAX];
    int result;

    if (options->program == NULL) {
        if (daemon_beside("f8gatherd", beside, sizeof(beside)) != 0) {
            return bench_fail(error, "cannot tell where f8bench lies; give --daemon");
        }
        with_program.program = beside;
    }
    result = prepare(&daemon, error);
    if (result == 0) {
        result = spawn(&daemon, &with_program, error);
    }
    if (result == 0) {
        result = await(&daemon, signal_fd, error);
    }
    if (result != 0) {
        struct bench_error second;
        daemon_stop(&daemon, &second); /* the first reason is the one to tell */
        return -1;
    }
    *ret_daemon = daemon;
    return 0;
}

/* The last bytes of the log, from the begin of a line on. */
static void read_tail(int fd, char *tail, size_t size)
{
    off_t end = lseek(fd, 0, SEEK_END);
    off_t from = end > (off_t)size - 1 ? end - (off_t)size + 1 : 0;
    ssize_t got = pread(fd, tail, size - 1, from);
    char *line;

    tail[got > 0 ? got : 0] = '\0';
    line = from > 0 ? strchr(tail, '\n') : NULL;
    if (line != NULL) {
        memmove(tail, line + 1, strlen(line + 1) + 1);
    }
}

int daemon_explain(struct daemon *daemon, struct bench_error *error)
{
    siginfo_t how = {0};
    char tail[480];

    waitid(P_PIDFD, (id_t)daemon->pidfd, &how, WEXITED | WNOWAIT);
    read_tail(daemon->log_fd, tail, sizeof(tail));
    return bench_fail(error, "the daemon (pid %d) %s %d; the end of its log:\n%s", (int)daemon->pid,
        how.si_code == CLD_EXITED ? "ended with status" : "was ended by signal", how.si_status,
        tail[0] != '\0' ? tail : "(empty)");
}

/* SIGTERM, and if need be SIGKILL. -1 if it did not end with status 0, or was dead before. */
static int end_process(struct daemon *daemon, struct bench_error *error)
{
    struct pollfd ended = {.fd = daemon->pidfd, .events = POLLIN};
    siginfo_t how = {0};
    int result = 0;

    kill(daemon->pid, SIGTERM);
    if (daemon->pidfd < 0 || poll(&ended, 1, STOP_MILLISECONDS) <= 0) {
        result = bench_fail(error, "the daemon (pid %d) did not end within %d ms of SIGTERM",
            (int)daemon->pid, STOP_MILLISECONDS);
        kill(daemon->pid, SIGKILL);
    } else if (waitid(P_PIDFD, (id_t)daemon->pidfd, &how, WEXITED | WNOWAIT) == 0 &&
               (how.si_code != CLD_EXITED || how.si_status != 0)) {
        result = daemon_explain(daemon, error);
    }
    waitpid(daemon->pid, NULL, 0);
    return result;
}

/* What is there still if it was killed: the socket, its lock, and states that its groups had. */
static void remove_leftovers(const char *socket_path)
{
    char path[sizeof(((struct daemon *)NULL)->socket) + sizeof(".state")];
    const struct dirent *entry;
    DIR *states;

    unlink(socket_path);
    snprintf(path, sizeof(path), "%s.lock", socket_path);
    unlink(path);
    snprintf(path, sizeof(path), "%s.state", socket_path);
    states = opendir(path);
    if (states == NULL) {
        return;
    }
    while ((entry = readdir(states)) != NULL) {
        unlinkat(dirfd(states), entry->d_name, 0); /* not the folder and its parent */
    }
    closedir(states);
    rmdir(path);
}

int daemon_stop(struct daemon *daemon, struct bench_error *error)
{
    int result = daemon->pid > 0 ? end_process(daemon, error) : 0;

    if (daemon->pidfd >= 0) {
        close(daemon->pidfd);
    }
    if (daemon->log_fd >= 0) {
        close(daemon->log_fd);
    }
    if (daemon->socket[0] != '\0') {
        remove_leftovers(daemon->socket);
    }
    *daemon = (struct daemon)DAEMON_NONE;
    return result;
}
