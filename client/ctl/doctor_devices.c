/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of f8ctl doctor: GPUs, and what reaches other hosts. The daemon says best what it has and
 * why not; without one, what can be seen of the driver and of files is told. Called by
 * doctor_host.c.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/ctl/doctor_host.h"

#define GLOO_HELPER "f8gather-gloo"

/* ---- GPUs ---- */

/* The device files that CUDA opens. */
static bool check_device_files(struct doctor *doctor, const struct check *check)
{
    static const char *const files[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"};

    if (!host_has_gpus()) {
        doctor_add(doctor, check, DOCTOR_OK, "none: no NVIDIA driver is loaded");
        return false;
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (access(files[i], R_OK | W_OK) != 0) {
            struct finding *finding =
                doctor_add(doctor, check, DOCTOR_WARNING, "%s: %s", files[i], strerror(errno));
            if (errno == EACCES) {
                doctor_remedy(
                    finding, "chmod a+rw %s, or a group for it in a rule of udev", files[i]);
            }
            return true;
        }
    }
    doctor_add(
        doctor, check, DOCTOR_OK, "%s, %s and %s can be opened", files[0], files[1], files[2]);
    return true;
}

static bool check_cuda(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;
    const F8__StatusInfo *status = host->status;
    char version[256] = "of unknown version";

    if (status == NULL) {
        host_line("/proc/driver/nvidia/version", version, sizeof(version));
        doctor_add(
            doctor, check, DOCTOR_OK, "driver: %s; no daemon tells whether it uses it", version);
        return false;
    }
    if (status->n_devices == 0) {
        doctor_add(doctor, check, DOCTOR_FAILED,
            "there is a driver, but the daemon has no device: "
            "%s",
            status->cuda);
        return false;
    }
    doctor_add(doctor, check, DOCTOR_OK, "%zu devices%s, driver %u.%u, runtime %u.%u",
        status->n_devices, status->simulated ? " (simulated)" : "", status->cuda_driver / 1000,
        status->cuda_driver % 1000 / 10, status->cuda_runtime / 1000,
        status->cuda_runtime % 1000 / 10);
    return true;
}

static bool check_nccl(struct doctor *doctor, const struct check *check)
{
    const F8__StatusInfo *status = ((const struct host *)doctor->own)->status;

    if (status->nccl != 0) {
        doctor_add(doctor, check, DOCTOR_OK, "%u.%u.%u", status->nccl / 10000,
            status->nccl % 10000 / 100, status->nccl % 100);
    } else {
        doctor_add(doctor, check, status->n_devices > 1 ? DOCTOR_WARNING : DOCTOR_OK,
            "%s: no group can be on several devices", status->nccl_reason);
    }
    return true;
}

const struct check host_checks_devices[] = {
    {"GPU files", "nvidia-modprobe -u -c 0", check_device_files},
    {"CUDA", "apt-get install f8gatherd-cuda && systemctl restart f8gatherd.service", check_cuda},
    {"NCCL", "apt-get install libnccl2 && systemctl restart f8gatherd.service", check_nccl},
};
HOST_COUNT(devices);

/* ---- other hosts ---- */

/* The helper lies beside the daemon's program; without a daemon, beside this one. */
static bool check_helper(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;
    char link[32] = "/proc/self/exe", path[PATH_MAX], helper[PATH_MAX + sizeof(GLOO_HELPER) + 1];
    ssize_t length;

    if (host->pid > 0) {
        snprintf(link, sizeof(link), "/proc/%d/exe", (int)host->pid);
    }
    length = readlink(link, path, sizeof(path) - 1);
    if (length < 0) {
        doctor_remedy(doctor_add(doctor, check, DOCTOR_WARNING,
                          "it is not known where the daemon's program is: %s", strerror(errno)),
            "sudo f8ctl doctor");
        return true;
    }
    path[length] = '\0';
    *strrchr(path, '/') = '\0';
    snprintf(helper, sizeof(helper), "%s/" GLOO_HELPER, path);
    if (access(helper, X_OK) == 0) {
        doctor_add(doctor, check, DOCTOR_OK, "%s", helper);
    } else {
        doctor_add(doctor, check, DOCTOR_WARNING, "%s: %s: groups of CPUs cannot span hosts",
            helper, strerror(errno));
    }
    return true;
}

/* Interfaces that are up and have an address, other than the loopback: their names. */
static size_t list_interfaces(char *names, size_t size)
{
    struct ifaddrs *list = NULL;
    size_t count = 0;

    names[0] = '\0';
    if (getifaddrs(&list) != 0) {
        return 0;
    }
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        size_t used = strlen(names);
        bool has_address = i->ifa_addr != NULL && (i->ifa_addr->sa_family == AF_INET ||
                                                      i->ifa_addr->sa_family == AF_INET6);
        if (!has_address || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK) ||
            strstr(names, i->ifa_name) != NULL) {
            continue;
        }
        snprintf(names + used, size - used, "%s%s", count > 0 ? " " : "", i->ifa_name);
        count++;
    }
    freeifaddrs(list);
    return count;
}

static bool check_interfaces(struct doctor *doctor, const struct check *check)
{
    const F8__StatusInfo *status = ((const struct host *)doctor->own)->status;
    char names[256];
    size_t count = list_interfaces(names, sizeof(names));

    if (status != NULL && status->hosts_interface[0] != '\0') {
        doctor_add(doctor, check, DOCTOR_OK, "other hosts are reached by %s (%s)",
            status->hosts_interface, status->hosts_address);
    } else if (status != NULL) {
        doctor_add(doctor, check, DOCTOR_WARNING, "no group can span hosts: %s",
            status->hosts_reason[0] != '\0' ? status->hosts_reason : "the daemon tells not why");
    } else {
        doctor_add(doctor, check, count > 0 ? DOCTOR_OK : DOCTOR_WARNING, "%s",
            count > 0 ? names : "only the loopback is up: no group can span hosts");
    }
    return true;
}

const struct check host_checks_hosts[] = {
    {"Gloo helper",
        "apt-get install libgloo-dev, and build f8gather with it; or the package that "
        "has " GLOO_HELPER,
        check_helper},
    {"interfaces", "ip link set INTERFACE up; or name one: --socket-ifname", check_interfaces},
};
HOST_COUNT(hosts);
