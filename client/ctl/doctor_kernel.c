/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of f8ctl doctor: what the kernel and the CPU can do, each tried rather than read from a
 * version: containers and seccomp take away what a version promises. Called by doctor_host.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "client/ctl/doctor_host.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE_PAGE     ((size_t)2 << 20)
#define SHMEM_ENABLED "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
#define CLOCKSOURCE   "/sys/devices/system/clocksource/clocksource0/"

static bool check_kernel(struct doctor *doctor, const struct check *check)
{
    struct utsname name;

    uname(&name);
    doctor_add(doctor, check, DOCTOR_OK, "%s %s, %s", name.sysname, name.release, name.machine);
    return true;
}

/* By it the daemon sees that a client has died, even while a child of it holds the socket. */
static bool check_pidfd(struct doctor *doctor, const struct check *check)
{
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    if (fd >= 0) {
        close(fd);
        doctor_add(doctor, check, DOCTOR_OK, "deaths of ranks are seen at once");
        return true;
    }
    doctor_remedy(doctor_add(doctor, check, DOCTOR_FAILED,
                      "%s: a rank that dies is only seen when its socket closes", strerror(errno)),
        errno == ENOSYS ? "install Linux 5.3 or later"
                        : "allow pidfd_open in the container's seccomp profile");
    return true;
}

static bool check_peer_pidfd(struct doctor *doctor, const struct check *check)
{
    int ends[2], fd = -1;
    socklen_t size = sizeof(fd);

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        doctor_add(doctor, check, DOCTOR_WARNING, "no pair of sockets: %s", strerror(errno));
        return true;
    }
    if (getsockopt(ends[0], SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) {
        close(fd);
        doctor_add(doctor, check, DOCTOR_OK, "clients are told apart without their pids");
    } else {
        doctor_add(doctor, check, DOCTOR_OK, "not there before Linux 6.5: by their pids, as well");
    }
    close(ends[0]);
    close(ends[1]);
    return true;
}

/* Without it no client could be kept from writing to what is gathered. */
static bool check_seals(struct doctor *doctor, const struct check *check)
{
    int fd = memfd_create("f8ctl-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0) {
        doctor_add(doctor, check, DOCTOR_OK, "gathered weights can be sealed (FUTURE_WRITE)");
    } else {
        doctor_add(doctor, check, DOCTOR_FAILED, "a memfd takes no F_SEAL_FUTURE_WRITE: %s",
            strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    return true;
}

/* Collapses one aligned huge page of a memfd, as arenas are; 0 or errno. */
static int collapse(int fd)
{
    char *address, *aligned;
    int error = 0;

    if (fd < 0 || ftruncate(fd, (off_t)(2 * HUGE_PAGE)) != 0) {
        return errno;
    }
    /* A mapping is aligned as the file is only where its address is. */
    address = mmap(NULL, 3 * HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
        return errno;
    }
    aligned = address + (HUGE_PAGE - (uintptr_t)address % HUGE_PAGE) % HUGE_PAGE;
    if (mmap(aligned, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
        error = errno;
    } else {
        memset(aligned, 1, HUGE_PAGE);
        error = madvise(aligned, HUGE_PAGE, MADV_COLLAPSE) == 0 ? 0 : errno;
    }
    munmap(address, 3 * HUGE_PAGE);
    return error;
}

static bool check_collapse(struct doctor *doctor, const struct check *check)
{
    int fd = memfd_create("f8ctl-doctor", MFD_CLOEXEC);
    int error = collapse(fd);

    if (error == 0) {
        doctor_add(doctor, check, DOCTOR_OK, "gathered weights lie in huge pages (MADV_COLLAPSE)");
    } else {
        doctor_add(doctor, check, DOCTOR_WARNING,
            "gathered weights lie in small pages (MADV_COLLAPSE: %s): gathers are slower",
            strerror(error));
    }
    if (fd >= 0) {
        close(fd);
    }
    return true;
}

/* What is chosen stands in brackets. */
static bool check_huge_pages(struct doctor *doctor, const struct check *check)
{
    char line[128];
    bool denied;

    if (!host_line(SHMEM_ENABLED, line, sizeof(line))) {
        doctor_add(
            doctor, check, DOCTOR_WARNING, SHMEM_ENABLED " is not there: %s", strerror(errno));
        return true;
    }
    denied = strstr(line, "[deny]") != NULL;
    doctor_add(doctor, check, denied ? DOCTOR_WARNING : DOCTOR_OK, "shmem_enabled: %s", line);
    return true;
}

/* What the CPU has, of what there are kernels for. */
static bool runs_avx2(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

static bool check_cpu(struct doctor *doctor, const struct check *check)
{
    const struct host *host = doctor->own;
    const char *chosen = host->status != NULL ? host->status->kernels : NULL;
    bool slow = !runs_avx2() || (chosen != NULL && strcmp(chosen, "ref") == 0);
    struct finding *finding = doctor_add(doctor, check, slow ? DOCTOR_WARNING : DOCTOR_OK, "%s%s%s",
        runs_avx2() ? "AVX2" : "no AVX2: the plain kernels, about ten times slower",
        chosen != NULL ? "; the daemon runs kernels " : "", chosen != NULL ? chosen : "");

    if (runs_avx2()) {
        doctor_remedy(finding, "unset F8K_CPU_DISABLE in the daemon's environment; %s",
            host_start_command(host));
    }
    return true;
}

/* Each gather reads the clock several times. */
static bool check_clock_source(struct doctor *doctor, const struct check *check)
{
    static const char *const slow[] = {"hpet", "acpi_pm", "jiffies", "pit"};
    char line[64];
    enum doctor_result result = DOCTOR_OK;

    if (!host_line(CLOCKSOURCE "current_clocksource", line, sizeof(line))) {
        doctor_add(doctor, check, DOCTOR_OK, "not told by this kernel");
        return true;
    }
    for (size_t i = 0; i < sizeof(slow) / sizeof(slow[0]); i++) {
        if (strcmp(line, slow[i]) == 0) {
            result = DOCTOR_WARNING;
        }
    }
    doctor_add(doctor, check, result, "%s", line);
    return true;
}

/* Nothing fails by it; but logs of several hosts are read side by side. */
static bool check_time(struct doctor *doctor, const struct check *check)
{
    struct timex timex = {.modes = 0};
    int state = adjtimex(&timex);
    bool loose = state < 0 || (timex.status & STA_UNSYNC) != 0;

    if (loose) {
        doctor_add(doctor, check, DOCTOR_WARNING,
            "is not kept by any other clock: logs of several hosts do not compare");
    } else {
        doctor_add(
            doctor, check, DOCTOR_OK, "is kept to %ld us of another clock's", timex.maxerror);
    }
    return true;
}

const struct check host_checks_kernel[] = {
    {"kernel", "", check_kernel},
    {"pidfd", "", check_pidfd},
    {"SO_PEERPIDFD", "", check_peer_pidfd},
    {"memfd seals", "install Linux 5.1 or later", check_seals},
    {"large pages", "install Linux 6.1 or later with CONFIG_TRANSPARENT_HUGEPAGE", check_collapse},
    {"huge pages of memfds", "echo advise > " SHMEM_ENABLED, check_huge_pages},
    {"CPU", "run on x86-64 with AVX2", check_cpu},
    {"clock source", "echo tsc > " CLOCKSOURCE "current_clocksource", check_clock_source},
    {"time of day", "timedatectl set-ntp true", check_time},
};
HOST_COUNT(kernel);
