/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of f8ctl doctor: the directories that the daemon keeps its socket, its live scaling states
 * and its snapshots in. Called by doctor_host.c, after the socket's checks.
 */
#include <dirent.h>
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "client/ctl/doctor_host.h"
#include "client/ctl/print_table.h"

#define STATE_DIRECTORY "/var/lib/f8gatherd"

/* Of a file system: below the first nothing can be stored, below the second not much. */
#define LEAST_BYTES  ((uint64_t)1 << 20)
#define FEW_BYTES    ((uint64_t)16 << 20)
#define LEAST_INODES 2
#define FEW_INODES   64

/* The daemon's user; if there is none, whoever asks may be about to start one. */
static uid_t owner_of(const struct host *host)
{
    return host->has_owner ? host->owner : geteuid();
}

/* Whether that user can make files in a directory, as far as the mode tells it. */
static bool may_write(const struct stat *directory, uid_t uid)
{
    return uid == 0 || (uid == directory->st_uid && (directory->st_mode & S_IWUSR)) ||
           (directory->st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

/* What is wrong with a directory for the socket: whoever may write to it may replace that. */
static void judge_runtime(
    struct doctor *doctor, const struct check *check, const struct stat *directory)
{
    const struct host *host = doctor->own;
    const char *path = host->directory;
    char user[HOST_NAME], daemon[HOST_NAME];
    unsigned mode = directory->st_mode & 07777;

    host_user(directory->st_uid, user);
    host_user(owner_of(host), daemon);
    if ((mode & 0022) != 0 && (mode & 01000) == 0) {
        doctor_remedy(doctor_add(doctor, check, DOCTOR_FAILED,
                          "%s has mode %04o: others may replace the socket", path, mode),
            "chmod 0755 %s", path);
    } else if (!may_write(directory, owner_of(host))) {
        doctor_remedy(
            doctor_add(doctor, check, DOCTOR_FAILED,
                "%s is %s's, mode %04o: %s can make no files in it", path, user, mode, daemon),
            "chown %s %s && chmod 0755 %s", daemon, path, path);
    } else if (directory->st_uid != 0 && directory->st_uid != owner_of(host)) {
        doctor_remedy(doctor_add(doctor, check, DOCTOR_WARNING,
                          "%s is %s's, who may replace the socket of %s", path, user, daemon),
            "chown %s %s", daemon, path);
    } else {
        doctor_add(doctor, check, DOCTOR_OK, "%s, mode %04o, of %s", path, mode, user);
    }
}

static bool check_runtime(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;
    struct stat directory;

    if (stat(host->directory, &directory) != 0) {
        doctor_remedy(
            doctor_add(doctor, check, DOCTOR_FAILED, "%s: %s", host->directory, strerror(errno)),
            "mkdir -m 0755 -p %s", host->directory);
        return false;
    }
    if (!S_ISDIR(directory.st_mode)) {
        doctor_remedy(
            doctor_add(doctor, check, DOCTOR_FAILED, "%s is no directory", host->directory),
            "export " F8_PROTO_SOCKET_ENV "=" F8_PROTO_SOCKET ", or where f8gatherd listens");
        return false;
    }
    judge_runtime(doctor, check, &directory);
    return true;
}

/* A sync writes to it, so memory is to be preferred; and it is emptied by a reboot either way. */
static bool check_type(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;
    struct statfs fs;

    if (statfs(host->directory, &fs) != 0) {
        doctor_add(doctor, check, DOCTOR_FAILED, "%s: %s", host->directory, strerror(errno));
        return false;
    }
    if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC) {
        doctor_add(doctor, check, DOCTOR_OK, "%s is in memory (tmpfs)", host->directory);
    } else {
        doctor_remedy(doctor_add(doctor, check, DOCTOR_WARNING,
                          "%s is on no tmpfs (type %#lx): live scaling states go to a disk",
                          host->directory, (unsigned long)fs.f_type),
            "f8gatherd --socket " F8_PROTO_SOCKET ", or another in /run");
    }
    return true;
}

/* Where the file system of a directory begins, as its parents tell. */
static const char *mount_of(const char *directory, char *ret_mount)
{
    struct stat here, above;
    char parent[PATH_MAX];

    if (realpath(directory, ret_mount) == NULL || stat(ret_mount, &here) != 0) {
        snprintf(ret_mount, PATH_MAX, "%s", directory);
        return ret_mount;
    }
    while (strcmp(ret_mount, "/") != 0) {
        char *slash;
        snprintf(parent, sizeof(parent), "%s", ret_mount);
        slash = strrchr(parent, '/');
        slash[slash == parent] = '\0';
        if (stat(parent, &above) != 0 || above.st_dev != here.st_dev) {
            break;
        }
        strcpy(ret_mount, parent);
    }
    return ret_mount;
}

/* What is left in the file system of a directory. */
static void check_room(struct doctor *doctor, const struct check *check, const char *directory)
{
    struct statvfs fs;
    struct finding *finding;
    char bytes[TABLE_MAX_CELL], inodes[48], mount[PATH_MAX];
    enum doctor_result result = DOCTOR_OK;
    bool counts_inodes;

    if (statvfs(directory, &fs) != 0) {
        doctor_add(doctor, check, DOCTOR_FAILED, "%s: %s", directory, strerror(errno));
        return;
    }
    uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize;
    counts_inodes = fs.f_files > 0;
    if (left < LEAST_BYTES || (counts_inodes && fs.f_favail < LEAST_INODES)) {
        result = DOCTOR_FAILED;
    } else if (left < FEW_BYTES || (counts_inodes && fs.f_favail < FEW_INODES)) {
        result = DOCTOR_WARNING;
    }
    table_bytes(bytes, left);
    if (counts_inodes) {
        snprintf(inodes, sizeof(inodes), ", and %llu inodes", (unsigned long long)fs.f_favail);
    }
    finding = doctor_add(
        doctor, check, result, "%s has %s left%s", directory, bytes, counts_inodes ? inodes : "");
    finding->number = (double)left;
    finding->unit = "bytes";
    doctor_remedy(finding, "df -h %s; df -i %s; then remove what is not needed on %s", directory,
        directory, mount_of(directory, mount));
}

static bool check_runtime_room(struct doctor *doctor, const struct check *check)
{
    check_room(doctor, check, ((const struct host *)doctor->own)->directory);
    return true;
}

/* Files that the daemon found damaged and left for somebody to look at. */
static unsigned count_bad(const char *directory)
{
    DIR *entries = opendir(directory);
    unsigned count = 0;

    for (const struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        size_t length = strlen(entry->d_name);
        count += length > 4 && strcmp(entry->d_name + length - 4, ".bad") == 0;
    }
    if (entries != NULL) {
        closedir(entries);
    }
    return count;
}

/* A directory of the daemon's own: 0700, and nobody else's. False: it is not there. */
static bool check_own(
    struct doctor *doctor, const struct check *check, const char *directory, const char *what)
{
    const struct host *host = doctor->own;
    char user[HOST_NAME], daemon[HOST_NAME];
    struct stat stat_of;
    unsigned bad;

    if (lstat(directory, &stat_of) != 0) {
        bool absent = errno == ENOENT;
        doctor_remedy(doctor_add(doctor, check, absent ? DOCTOR_OK : DOCTOR_WARNING, "%s: %s",
                          directory, absent ? "nothing is stored" : strerror(errno)),
            "sudo f8ctl doctor");
        return false;
    }
    host_user(stat_of.st_uid, user);
    host_user(owner_of(host), daemon);
    bad = count_bad(directory);
    if (!S_ISDIR(stat_of.st_mode)) {
        doctor_remedy(doctor_add(doctor, check, DOCTOR_FAILED, "%s is no directory", directory),
            "mv %s %s.old", directory, directory);
    } else if (host->has_owner && stat_of.st_uid != host->owner) {
        doctor_remedy(doctor_add(doctor, check, DOCTOR_FAILED,
                          "%s is %s's, not %s's: the daemon refuses it", directory, user, daemon),
            "chown -R %s %s", daemon, directory);
    } else if ((stat_of.st_mode & 0077) != 0) {
        doctor_remedy(doctor_add(doctor, check, DOCTOR_FAILED,
                          "%s has mode %04o: it is to be the daemon's alone", directory,
                          (unsigned)(stat_of.st_mode & 07777)),
            "chmod 0700 %s", directory);
    } else if (bad > 0) {
        doctor_remedy(
            doctor_add(doctor, check, DOCTOR_WARNING, "%s has %u damaged files", directory, bad),
            "rm %s/*.bad, once the log has told why", directory);
    } else {
        doctor_add(doctor, check, DOCTOR_OK, "%s, of %s, has %s", directory, user, what);
    }
    return true;
}

/* Files of a newer form, which wait for a daemon that reads it. */
static void tell_newer(struct doctor *doctor, const struct check *check, const char *directory,
    char *const *names, uint32_t count)
{
    if (count == 0) {
        return;
    }
    doctor_remedy(
        doctor_add(doctor, check, DOCTOR_WARNING, "%u in %s of a newer form not used: %s%s",
            (unsigned)count, directory, names != NULL ? names[0] : "", count > 1 ? ", ..." : ""),
        "install the f8gatherd that wrote it, or a newer one, and restart it");
}

static bool check_states(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;
    char path[PATH_MAX + 8];

    snprintf(path, sizeof(path), "%s.state", host->socket);
    check_own(doctor, check, path, "live scaling states");
    if (host->status != NULL) {
        tell_newer(doctor, check, path, host->status->states_newer, host->status->num_states_newer);
    }
    return true;
}

/* A service's; another daemon may have none. */
static bool check_snapshots(struct doctor *doctor, const struct check *check)
{
    return strcmp(((const struct host *)doctor->own)->socket, F8_PROTO_SOCKET) == 0 &&
           check_own(doctor, check, STATE_DIRECTORY, "what outlives a reboot");
}

/* Told of until the daemon starts without them. */
static void tell_damaged(
    struct doctor *doctor, const struct check *check, const F8__StatusInfo *status)
{
    const char *directory = status->state_directory;
    unsigned count = (unsigned)status->num_snapshots_damaged;

    doctor_remedy(doctor_add(doctor, check, DOCTOR_WARNING,
                      "%u damaged in %s: %s%s; %u groups have one that is sound", count, directory,
                      status->n_snapshots_damaged > 0 ? status->snapshots_damaged[0] : "",
                      count > 1 ? ", ..." : "", (unsigned)status->snapshots),
        "once the log has told why: rm %s/*.damaged, and restart f8gatherd when it suits",
        directory);
}

/* What the daemon's start and its last pass met, wherever it keeps them. */
static bool check_saved(struct doctor *doctor, const struct check *check)
{
    const F8__StatusInfo *status = ((const struct host *)doctor->own)->status;

    if (status == NULL || status->state_directory[0] == '\0') {
        return true;
    }
    if (status->snapshot_reason[0] != '\0') {
        doctor_add(
            doctor, check, DOCTOR_FAILED, "the last try failed: %s", status->snapshot_reason);
    } else if (status->num_snapshots_damaged > 0) {
        tell_damaged(doctor, check, status);
    } else if (status->num_snapshots_newer == 0) {
        doctor_add(doctor, check, DOCTOR_OK, "%u groups in %s", (unsigned)status->snapshots,
            status->state_directory);
    }
    tell_newer(doctor, check, status->state_directory, status->snapshots_newer,
        status->num_snapshots_newer);
    return true;
}

static bool check_snapshots_room(struct doctor *doctor, const struct check *check)
{
    check_room(doctor, check, STATE_DIRECTORY);
    return true;
}

const struct check host_checks_directory[] = {
    {"runtime directory", "", check_runtime},
    {"runtime file system", "", check_type},
    {"runtime room", "", check_runtime_room},
    {"states", "", check_states},
    {"snapshots", "once that is put right, f8ctl snapshot", check_saved},
    {"state directory", "", check_snapshots},
    {"state room", "", check_snapshots_room},
};
HOST_COUNT(directory);
