/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the checks of this host share, one table of them a file: what is known of the daemon, which
 * may not be there, and how to look at files of the kernel. Called by doctor_host.c in their order.
 */
#ifndef F8CTL_DOCTOR_HOST_H
#define F8CTL_DOCTOR_HOST_H

#include <limits.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "client/ctl/doctor.h"
#include "client/ctl/fetch.h"

/* doctor->own of these checks. */
struct host {
    char socket[PATH_MAX];        /* where it is, or would be */
    char directory[PATH_MAX];     /* that it is in */
    pid_t pid;                    /* of the daemon; 0: none is known */
    bool has_owner;               /* whose daemon it is, is known */
    uid_t owner;                  /* whose */
    const F8__StatusInfo *status; /* borrowed: from fetched; NULL: no daemon tells it */
    struct fetched fetched;
};

/* The tables, in this order; a check with a false end ends its table only. */
#define HOST_TABLES(X) X(socket) X(directory) X(limits) X(kernel) X(devices) X(hosts)

#define HOST_DECLARE(name)                                                                         \
    extern const struct check host_checks_##name[];                                                \
    extern const size_t host_num_checks_##name;
HOST_TABLES(HOST_DECLARE)
#undef HOST_DECLARE

/* The length of a table, beside it. */
#define HOST_COUNT(name)                                                                           \
    const size_t host_num_checks_##name = sizeof(host_checks_##name) / sizeof(host_checks_##name[0])

/* The first line of a file, without its end: false if it cannot be read. */
bool host_line(const char *path, char *line, size_t size);

/* The name of a user, or the number: in a buffer, which it returns. */
#define HOST_NAME 64
const char *host_user(uid_t uid, char name[HOST_NAME]);
const char *host_group(gid_t gid, char name[HOST_NAME]);

/* Whether systemd runs services here: then it is who starts the daemon. */
bool host_has_systemd(void);

/* The command that starts the daemon, in a static buffer. */
const char *host_start_command(const struct host *host);

/* Whether there is a device file of NVIDIA's driver. */
bool host_has_gpus(void);

#endif
