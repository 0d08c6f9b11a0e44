/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of f8ctl doctor: the daemon's socket and who is behind it. Each goes one step further than
 * the one before, as a client that connects does. Called by doctor_host.c, first.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/ctl/doctor_host.h"
#include "client/error.h"
#include "client/socket.h"

static void find_directory(struct host *host)
{
    char *slash;

    snprintf(host->directory, sizeof(host->directory), "%s", host->socket);
    slash = strrchr(host->directory, '/');
    if (slash == NULL) {
        strcpy(host->directory, ".");
    } else {
        slash[slash == host->directory] = '\0';
    }
}

static void add_missing(struct doctor *doctor, const struct check *check, int error)
{
    const struct host *host = doctor->own;
    struct finding *finding =
        doctor_add(doctor, check, DOCTOR_FAILED, "%s: %s", host->socket, strerror(error));

    if (error == EACCES) {
        doctor_remedy(finding, "chmod a+x %s", host->directory);
    } else {
        doctor_remedy(finding, "%s", host_start_command(host));
    }
}

static bool check_socket(struct doctor *doctor, const struct check *check)
{
    struct host *host = doctor->own;
    char user[HOST_NAME], group[HOST_NAME];
    struct stat stat;

    socket_choose(doctor->ctl->socket, host->socket, sizeof(host->socket));
    find_directory(host);
    if (lstat(host->socket, &stat) != 0) {
        add_missing(doctor, check, errno);
        return false;
    }
    if (!S_ISSOCK(stat.st_mode)) {
        doctor_remedy(doctor_add(doctor, check, DOCTOR_FAILED, "%s is no socket", host->socket),
            "mv %s %s.old && %s", host->socket, host->socket, host_start_command(host));
        return false;
    }
    host->has_owner = true;
    host->owner = stat.st_uid;
    doctor_add(doctor, check, DOCTOR_OK, "%s, mode %04o, of %s:%s", host->socket,
        (unsigned)(stat.st_mode & 07777), host_user(stat.st_uid, user),
        host_group(stat.st_gid, group));
    return true;
}

/* To be in root's group is far more than to train, so that is no remedy. */
static void add_forbidden(
    struct doctor *doctor, const struct check *check, const char *user, const struct stat *stat)
{
    char group[HOST_NAME];
    int error = errno;
    struct finding *finding =
        doctor_add(doctor, check, DOCTOR_FAILED, "%s may not connect: %s; it is for %s", user,
            strerror(error), host_group(stat->st_gid, group));

    if (stat->st_gid != 0) {
        doctor_remedy(finding, "usermod -aG %s %s, and log in anew", group, user);
    } else {
        doctor_remedy(finding,
            "run the daemon as user f8gatherd, not as root, and usermod -aG f8gatherd %s; or a "
            "daemon of your own: f8gatherd --socket PATH, and export " F8_PROTO_SOCKET_ENV "=PATH",
            user);
    }
}

/* Who may write to it, may train; beyond its group that is hardly meant. */
static bool check_permission(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;
    char user[HOST_NAME];
    struct stat stat;

    if (lstat(host->socket, &stat) != 0) {
        doctor_add(doctor, check, DOCTOR_FAILED, "%s: %s", host->socket, strerror(errno));
        return false;
    }
    host_user(geteuid(), user);
    if (faccessat(AT_FDCWD, host->socket, W_OK, AT_EACCESS) != 0) {
        add_forbidden(doctor, check, user, &stat);
        return false;
    }
    if (stat.st_mode & S_IWOTH) {
        doctor_remedy(doctor_add(doctor, check, DOCTOR_WARNING,
                          "%s may connect, and so may everybody else (mode %04o)", user,
                          (unsigned)(stat.st_mode & 07777)),
            "chmod 0660 %s", host->socket);
        return true;
    }
    doctor_add(doctor, check, DOCTOR_OK, "%s may connect", user);
    return true;
}

/* One connection without a word: 0 or what is in the way of it. */
static int try_connect(const char *path, struct ucred *ret_peer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = 2};
    socklen_t size = sizeof(*ret_peer);
    int error = 0, fd;

    if (strlen(path) >= sizeof(address.sun_path)) {
        return ENAMETOOLONG;
    }
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return errno;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_peer, &size) != 0) {
        error = errno;
    }
    close(fd);
    return error;
}

static void add_refusal(struct doctor *doctor, const struct check *check, int error)
{
    const struct host *host = doctor->own;

    switch (error) {
    case ECONNREFUSED:
        doctor_remedy(doctor_add(doctor, check, DOCTOR_FAILED,
                          "nobody listens: its daemon has ended, and "
                          "left it"),
            "%s, which replaces it", host_start_command(host));
        break;
    case EPROTOTYPE:
        doctor_remedy(doctor_add(doctor, check, DOCTOR_FAILED,
                          "another program listens there: it is no socket of f8gatherd"),
            "export " F8_PROTO_SOCKET_ENV "=" F8_PROTO_SOCKET ", or where f8gatherd listens");
        break;
    case EAGAIN:
        doctor_remedy(doctor_add(doctor, check, DOCTOR_FAILED,
                          "connections are not taken: its daemon is stopped, or hangs"),
            "kill -CONT $(cat %s.lock), or else %s", host->socket, host_start_command(host));
        break;
    default:
        doctor_remedy(
            doctor_add(doctor, check, DOCTOR_FAILED, "cannot connect: %s", strerror(error)), "%s",
            host_start_command(host));
    }
}

static bool check_listener(struct doctor *doctor, const struct check *check)
{
    struct host *host = doctor->own;
    struct ucred peer = {.pid = 0};
    char user[HOST_NAME];
    int error = try_connect(host->socket, &peer);

    if (error != 0) {
        add_refusal(doctor, check, error);
        return false;
    }
    host->pid = peer.pid; /* who called listen(): systemd, where it has passed the socket */
    doctor_add(
        doctor, check, DOCTOR_OK, "pid %d of %s listens", (int)peer.pid, host_user(peer.uid, user));
    return true;
}

/* The process's own user: a socket that systemd has passed is root's. */
static void see_owner(struct host *host)
{
    char path[32];
    struct stat process;

    snprintf(path, sizeof(path), "/proc/%d", (int)host->pid);
    if (stat(path, &process) == 0) {
        host->owner = process.st_uid;
    }
}

/* What --timeout leaves, but no longer than others wait for a daemon. */
static int patience(const struct doctor *doctor)
{
    int left = doctor_left(doctor);

    return left == 0 ? 1 : left < SOCKET_PATIENCE_MS ? left : SOCKET_PATIENCE_MS;
}

/* The status is asked for too, for the checks to come. */
static int ask_daemon(struct doctor *doctor)
{
    struct host *host = doctor->own;
    struct ctl *ctl = doctor->ctl;
    struct channel_options options = {
        .socket = host->socket, .role = F8__ROLE__ADMIN, .timeout_ms = patience(doctor)};
    int status = channel_open(&options, &ctl->channel);

    if (status == F8_OK) {
        status = fetch(ctl, F8__VIEW__STATUS, NULL, &host->fetched);
    }
    if (status == F8_OK && host->fetched.num_rows == 1) {
        host->status = host->fetched.rows[0];
        host->pid = channel_daemon_pid(ctl->channel);
        see_owner(host);
    }
    return status;
}

/* Whether the process is stopped, as by SIGSTOP or a debugger. */
static bool is_stopped(pid_t pid)
{
    char path[32], line[512];
    const char *fields;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fields = host_line(path, line, sizeof(line)) ? strrchr(line, ')') : NULL;
    return fields != NULL && (fields[2] == 'T' || fields[2] == 't');
}

/* It took the connection, and that was all. */
static void add_silence(struct doctor *doctor, const struct check *check, const char *why)
{
    const struct host *host = doctor->own;
    bool stopped = is_stopped(host->pid);
    struct finding *finding = doctor_add(
        doctor, check, DOCTOR_FAILED, "%s%s", why, stopped ? ": its process is stopped" : "");

    if (stopped) {
        doctor_remedy(finding, "kill -CONT %d", (int)host->pid);
    } else {
        doctor_remedy(finding, "kill %d; then %s", (int)host->pid, host_start_command(host));
    }
}

static bool check_daemon(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;
    char user[HOST_NAME];
    double begin = doctor_clock();
    int status = ask_daemon(doctor);
    struct finding *finding;

    if (status == F8_EPERM) {
        doctor_remedy(doctor_add(doctor, check, DOCTOR_WARNING, "it answers, but %s", error_text()),
            "sudo f8ctl doctor, or admin-group = GROUP in /etc/f8gatherd/f8gatherd.conf (%s is "
            "to be in it)",
            host_user(geteuid(), user));
        return false;
    }
    if (host->status == NULL) {
        add_silence(doctor, check, status != F8_OK ? error_text() : "the daemon told no status");
        return false;
    }
    finding = doctor_add(doctor, check, DOCTOR_OK, "f8gatherd %s (pid %d) answers in %.1f ms",
        host->status->version, (int)host->pid, doctor_clock() - begin);
    finding->number = doctor_clock() - begin;
    finding->unit = "ms";
    return true;
}

static bool check_version(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;

    if (strcmp(host->status->version, F8_VERSION) == 0) {
        doctor_add(doctor, check, DOCTOR_OK, "f8ctl and f8gatherd are %s", F8_VERSION);
        return true;
    }
    doctor_remedy(doctor_add(doctor, check, DOCTOR_WARNING, "f8ctl is %s, the daemon is %s",
                      F8_VERSION, host->status->version),
        "%s, once the newer one is installed", host_start_command(host));
    return true;
}

const struct check host_checks_socket[] = {
    {"socket", "", check_socket},
    {"permission", "", check_permission},
    {"listener", "", check_listener},
    {"daemon", "", check_daemon},
    {"version", "", check_version},
};
HOST_COUNT(socket);
