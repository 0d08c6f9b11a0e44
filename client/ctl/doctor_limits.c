/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of f8ctl doctor: what the kernel lets the daemon have. Limits are those of the daemon's
 * process, or, where none is known, those that one started from here would inherit. Called by
 * doctor_host.c.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "client/ctl/doctor_host.h"
#include "client/ctl/print_table.h"

#define UNLIMITED UINT64_MAX

/* Descriptors: two a client and one a region. */
#define FEW_FILES   4096
#define LEAST_FILES 64

#define FEW_MEMORY ((uint64_t)256 << 20)
/* What a control group of version 1 has for none: the largest number of whole pages. */
#define NO_LIMIT_V1 ((uint64_t)INT64_MAX - 0xffff)

#define FEW_SHARED ((uint64_t)1 << 30)

/* ---- limits of a process ---- */

static pid_t subject(const struct host *host)
{
    return host->pid > 0 ? host->pid : getpid();
}

static const char *subject_text(const struct host *host)
{
    return host->pid > 0 ? "the daemon" : "a daemon from here";
}

/* One line of /proc/PID/limits: its soft and hard limit. False: it cannot be read. */
static bool limit_of(
    const struct host *host, const char *name, uint64_t *ret_soft, uint64_t *ret_hard)
{
    char path[48], line[256], soft[32], hard[32];
    bool found = false;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/limits", (int)subject(host));
    file = fopen(path, "re");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        found = strncmp(line, name, strlen(name)) == 0 &&
                sscanf(line + strlen(name), "%31s %31s", soft, hard) == 2;
    }
    if (file != NULL) {
        fclose(file);
    }
    if (found) {
        *ret_soft = strcmp(soft, "unlimited") == 0 ? UNLIMITED : strtoull(soft, NULL, 10);
        *ret_hard = strcmp(hard, "unlimited") == 0 ? UNLIMITED : strtoull(hard, NULL, 10);
    }
    return found;
}

static void add_unreadable(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;

    doctor_remedy(doctor_add(doctor, check, DOCTOR_WARNING, "the limits of pid %d cannot be read",
                      (int)subject(host)),
        "sudo f8ctl doctor");
}

static const char *limit_text(uint64_t limit, char text[TABLE_MAX_CELL])
{
    if (limit == UNLIMITED) {
        strcpy(text, "unlimited");
    } else {
        snprintf(text, TABLE_MAX_CELL, "%" PRIu64, limit);
    }
    return text;
}

/* The remedy for a limit of the daemon's service, or of a shell that starts one. */
static void raise_limit(
    struct finding *finding, const char *unit, const char *shell, const char *value)
{
    if (host_has_systemd()) {
        doctor_remedy(finding,
            "systemctl set-property f8gatherd.service %s=%s, or the same in a drop-in: systemctl "
            "edit f8gatherd.service; then systemctl restart f8gatherd.service",
            unit, value);
    } else {
        doctor_remedy(finding, "ulimit %s %s, before f8gatherd is started", shell, value);
    }
}

/* Descriptors that the daemon has open; 0: they cannot be counted. */
static unsigned count_open(const struct host *host)
{
    char path[32];
    unsigned count = 0;
    DIR *entries;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)host->pid);
    entries = host->pid > 0 ? opendir(path) : NULL;
    while (entries != NULL && readdir(entries) != NULL) {
        count++;
    }
    if (entries != NULL) {
        closedir(entries);
    }
    return count > 2 ? count - 2 : 0;
}

/* A daemon raises its soft limit by itself, at its start. */
static bool check_files(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;
    char text[TABLE_MAX_CELL], in_use[32];
    uint64_t soft, hard, most;
    unsigned open = count_open(host);
    enum doctor_result result = DOCTOR_OK;
    struct finding *finding;

    if (!limit_of(host, "Max open files", &soft, &hard)) {
        add_unreadable(doctor, check);
        return true;
    }
    most = host->pid > 0 ? soft : hard;
    if (most < LEAST_FILES || open >= most) {
        result = DOCTOR_FAILED;
    } else if (most < FEW_FILES || open > most / 5 * 4) {
        result = DOCTOR_WARNING;
    }
    snprintf(in_use, sizeof(in_use), ", has %u open", open);
    finding = doctor_add(doctor, check, result, "%s may have %s%s; a client takes 2, a region 1",
        subject_text(host), limit_text(most, text), open > 0 ? in_use : "");
    finding->number = (double)most;
    finding->unit = "files";
    raise_limit(finding, "LimitNOFILE", "-n", "1048576");
    return true;
}

static bool check_locked(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;
    char text[TABLE_MAX_CELL];
    uint64_t soft, hard;
    bool matters = host_has_gpus();
    struct finding *finding;

    if (!limit_of(host, "Max locked memory", &soft, &hard)) {
        add_unreadable(doctor, check);
        return true;
    }
    if (soft == UNLIMITED) {
        strcpy(text, "without limit");
    } else {
        table_bytes(text, soft);
    }
    finding = doctor_add(doctor, check, matters && soft != UNLIMITED ? DOCTOR_WARNING : DOCTOR_OK,
        "%s may lock %s%s", subject_text(host), text,
        matters ? "; what GPUs reach on the host is locked" : "; without GPUs it locks none");
    raise_limit(finding, "LimitMEMLOCK", "-l", host_has_systemd() ? "infinity" : "unlimited");
    return true;
}

/* These two end a daemon's memory where nobody looks for it: a memfd is a file. */
static bool check_size(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;
    uint64_t file, space, hard;
    struct finding *finding;

    if (!limit_of(host, "Max file size", &file, &hard) ||
        !limit_of(host, "Max address space", &space, &hard)) {
        add_unreadable(doctor, check);
        return true;
    }
    if (file == UNLIMITED && space == UNLIMITED) {
        doctor_add(doctor, check, DOCTOR_OK, "files and addresses of %s have no limit",
            subject_text(host));
        return true;
    }
    finding = doctor_add(doctor, check, DOCTOR_WARNING,
        "%s of %s are limited to %" PRIu64 " bytes: gathered weights must fit",
        file != UNLIMITED ? "files" : "addresses", subject_text(host),
        file != UNLIMITED ? file : space);
    raise_limit(finding, file != UNLIMITED ? "LimitFSIZE" : "LimitAS",
        file != UNLIMITED ? "-f" : "-v", host_has_systemd() ? "infinity" : "unlimited");
    return true;
}

/* ---- memory ---- */

/* The number in a file of a control group; UNLIMITED for "max" and what cannot be read. */
static uint64_t group_number(const char *group, const char *name)
{
    char path[PATH_MAX + 64], line[64];

    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", group, name);
    return host_line(path, line, sizeof(line)) && line[0] >= '0' && line[0] <= '9'
               ? strtoull(line, NULL, 10)
               : UNLIMITED;
}

/* Which hierarchy counts the memory of a process. */
enum hierarchy {
    HIERARCHY_NONE, /* the kernel tells none */
    HIERARCHY_V1,   /* a controller of its own: also where version 2 is there without it */
    HIERARCHY_V2,
};

/* Whether a line of /proc/PID/cgroup, "4:cpu,memory:/path", is of version 1's memory. */
static bool counts_memory(const char *line)
{
    const char *names = strchr(line, ':'), *end = names != NULL ? strchr(names + 1, ':') : NULL;

    for (const char *name = names; name != NULL && name < end; name = strpbrk(name + 1, ",:")) {
        if (strncmp(name + 1, "memory", 6) == 0 && (name[7] == ',' || name[7] == ':')) {
            return true;
        }
    }
    return false;
}

/* The control group of the process that counts its memory. */
static enum hierarchy group_of(const struct host *host, char group[PATH_MAX])
{
    char path[32], line[PATH_MAX];
    enum hierarchy found = HIERARCHY_NONE;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)subject(host));
    file = fopen(path, "re");
    while (file != NULL && found != HIERARCHY_V1 && fgets(line, sizeof(line), file) != NULL) {
        bool is_v1 = counts_memory(line);
        if (!is_v1 && strncmp(line, "0::", 3) != 0) {
            continue;
        }
        found = is_v1 ? HIERARCHY_V1 : HIERARCHY_V2;
        line[strcspn(line, "\n")] = '\0';
        snprintf(group, PATH_MAX, "%s", strchr(strchr(line, ':') + 1, ':') + 1);
    }
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

/* Of a group of version 1 and those that it is in; false: it cannot be seen from here. */
static bool limit_of_v1(const char *group, uint64_t *ret_limit)
{
    char path[PATH_MAX + 64], line[128];
    bool found = false;
    FILE *file;

    snprintf(path, sizeof(path), "/sys/fs/cgroup/memory%s/memory.stat", group);
    file = fopen(path, "re");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        found = sscanf(line, "hierarchical_memory_limit %" SCNu64, ret_limit) == 1;
    }
    if (file != NULL) {
        fclose(file);
    }
    if (found && *ret_limit >= NO_LIMIT_V1) {
        *ret_limit = UNLIMITED;
    }
    return found;
}

/* The least limit of the group and of those that it is in, and which has it. */
static uint64_t least_limit(char group[PATH_MAX], char ret_group[PATH_MAX])
{
    uint64_t least = UNLIMITED;

    for (;;) {
        uint64_t limit = group_number(group, "memory.max");
        char *slash = strrchr(group, '/');
        if (limit < least) {
            least = limit;
            snprintf(ret_group, PATH_MAX, "%s", group);
        }
        if (slash == NULL) {
            return least;
        }
        *slash = '\0';
    }
}

/* Where there is no limit, or none that can be seen from here. */
static bool add_no_limit(struct doctor *doctor, const struct check *check, enum hierarchy hierarchy,
    bool seen, const char *group)
{
    const char *who = subject_text(doctor->own);

    if (hierarchy == HIERARCHY_NONE) {
        doctor_add(doctor, check, DOCTOR_OK, "%s is in no control group that counts memory", who);
    } else if (seen) {
        doctor_add(doctor, check, DOCTOR_OK, "no control group of %s limits its memory", who);
    } else {
        doctor_add(doctor, check, DOCTOR_OK,
            "the control group of %s is of version 1, and its limit cannot be seen from here: "
            "/sys/fs/cgroup/memory%s/memory.stat is not there",
            who, group);
    }
    return true;
}

/* Past it the kernel kills the daemon, where its own limit would have refused a client. */
static bool check_group(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;
    char group[PATH_MAX], limiting[PATH_MAX], most[TABLE_MAX_CELL], uid[TABLE_MAX_CELL] = "";
    enum hierarchy hierarchy = group_of(host, group);
    uint64_t limit = UNLIMITED;
    uint64_t of_uid = host->status != NULL ? host->status->memory_limit : 0;
    bool seen = hierarchy == HIERARCHY_V2;
    struct finding *finding;

    if (hierarchy == HIERARCHY_V1) {
        seen = limit_of_v1(group, &limit);
        snprintf(limiting, sizeof(limiting), "%s", group);
    } else if (hierarchy == HIERARCHY_V2) {
        limit = least_limit(group, limiting);
    }
    if (limit == UNLIMITED) {
        return add_no_limit(doctor, check, hierarchy, seen, group);
    }
    table_bytes(most, limit);
    table_bytes(uid, of_uid);
    finding = doctor_add(doctor, check, of_uid > limit ? DOCTOR_WARNING : DOCTOR_OK,
        "control group %s has at most %s%s%s%s", limiting[0] != '\0' ? limiting : "/", most,
        of_uid > 0 ? "; memory-per-uid is " : "", of_uid > 0 ? uid : "",
        of_uid > limit ? ": past it the daemon is killed" : "");
    finding->number = (double)limit;
    finding->unit = "bytes";
    doctor_remedy(finding,
        "echo 'memory-per-uid = %" PRIu64 "M' > /etc/f8gatherd/f8gatherd.conf.d/memory.conf && %s",
        (limit / 5 * 4) >> 20, host_start_command(host));
    return true;
}

static bool check_memory(struct doctor *doctor, const struct check *check)
{
    char line[128], left[TABLE_MAX_CELL];
    uint64_t available = 0;
    struct finding *finding;
    FILE *file = fopen("/proc/meminfo", "re");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "MemAvailable:", 13) == 0) {
            available = strtoull(line + 13, NULL, 10) << 10;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    table_bytes(left, available);
    finding = doctor_add(doctor, check, available < FEW_MEMORY ? DOCTOR_WARNING : DOCTOR_OK,
        "%s are available", left);
    finding->number = (double)available;
    finding->unit = "bytes";
    return true;
}

/* Regions and arenas are memfds. */
static bool check_shared(struct doctor *doctor, const struct check *check)
{
    int fd = memfd_create("f8ctl-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error = fd < 0 ? errno : posix_fallocate(fd, 0, 1 << 20);

    if (error != 0) {
        doctor_remedy(
            doctor_add(doctor, check, DOCTOR_FAILED, "no memfd of 1 MiB: %s", strerror(error)),
            error == ENOSYS || error == EPERM
                ? "allow memfd_create in the container's seccomp profile"
                : "ulimit -f unlimited, or free memory");
    } else {
        doctor_add(doctor, check, DOCTOR_OK, "memfds can be made");
    }
    if (fd >= 0) {
        close(fd);
    }
    return true;
}

/* NCCL and the trainers' own workers use it; containers often have 64 MiB. */
static bool check_dev_shm(struct doctor *doctor, const struct check *check)
{
    struct statvfs fs;
    char left[TABLE_MAX_CELL];
    uint64_t bytes;
    struct finding *finding;

    if (statvfs("/dev/shm", &fs) != 0) {
        doctor_remedy(doctor_add(doctor, check, host_has_gpus() ? DOCTOR_WARNING : DOCTOR_OK,
                          "/dev/shm: %s; f8gatherd does without, NCCL does not", strerror(errno)),
            "mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /dev/shm");
        return true;
    }
    bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    table_bytes(left, bytes);
    finding = doctor_add(doctor, check,
        host_has_gpus() && bytes < FEW_SHARED ? DOCTOR_WARNING : DOCTOR_OK,
        "%s left; f8gatherd does without, NCCL does not", left);
    finding->number = (double)bytes;
    finding->unit = "bytes";
    doctor_remedy(finding, "mount -o remount,size=8G /dev/shm; of a container: --shm-size=8g");
    return true;
}

const struct check host_checks_limits[] = {
    {"open files", "", check_files},
    {"locked memory", "", check_locked},
    {"sizes", "", check_size},
    {"memory limit", "", check_group},
    {"memory", "end what uses it; f8ctl jobs tells what runs hold", check_memory},
    {"shared memory", "", check_shared},
    {"/dev/shm", "", check_dev_shm},
};
HOST_COUNT(limits);
