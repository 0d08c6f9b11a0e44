/* SPDX-License-Identifier: Apache-2.0 */
/* A mount namespace with a tmpfs on /run: see private_run.h. */
#include "tests/lib/private_run.h"

#include <check.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

bool private_run_enter(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("f8test", "/run", "tmpfs", 0, NULL) == 0;
}

int private_run_journal(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = PRIVATE_RUN_JOURNAL};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    (void)mkdir("/run/systemd", 0755);
    (void)mkdir("/run/systemd/journal", 0755);
    (void)unlink(PRIVATE_RUN_JOURNAL);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}
