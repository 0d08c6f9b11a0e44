/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl doctor without --peer: what is wrong with this host, whether a daemon runs or not. Runs the
 * tables of doctor_socket.c, doctor_directory.c, doctor_limits.c, doctor_kernel.c and
 * doctor_devices.c. Called by doctor.c.
 */
#include "client/ctl/doctor_host.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool host_line(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "re");
    bool read = file != NULL && fgets(line, (int)size, file) != NULL;

    if (file != NULL) {
        fclose(file);
    }
    if (read) {
        line[strcspn(line, "\n")] = '\0';
    }
    return read;
}

const char *host_user(uid_t uid, char name[HOST_NAME])
{
    const struct passwd *user = getpwuid(uid);

    if (user != NULL) {
        snprintf(name, HOST_NAME, "%s", user->pw_name);
    } else {
        snprintf(name, HOST_NAME, "%u", (unsigned)uid);
    }
    return name;
}

const char *host_group(gid_t gid, char name[HOST_NAME])
{
    const struct group *group = getgrgid(gid);

    if (group != NULL) {
        snprintf(name, HOST_NAME, "%s", group->gr_name);
    } else {
        snprintf(name, HOST_NAME, "%u", (unsigned)gid);
    }
    return name;
}

bool host_has_systemd(void)
{
    return access("/run/systemd/system", F_OK) == 0;
}

const char *host_start_command(const struct host *host)
{
    static char command[sizeof(host->socket) + 64];
    bool is_service = strcmp(host->socket, F8_PROTO_SOCKET) == 0 && host_has_systemd();

    if (is_service) {
        return "systemctl restart f8gatherd.service";
    }
    snprintf(command, sizeof(command), "f8gatherd --socket %s", host->socket);
    return command;
}

bool host_has_gpus(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || access("/proc/driver/nvidia/version", F_OK) == 0;
}

void doctor_host(struct doctor *doctor)
{
    struct host host = {.pid = 0};

    doctor->own = &host;
#define RUN_TABLE(name) doctor_run(doctor, host_checks_##name, host_num_checks_##name);
    HOST_TABLES(RUN_TABLE)
#undef RUN_TABLE
    fetch_done(&host.fetched);
    doctor->own = NULL;
}
