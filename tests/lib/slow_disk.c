/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that waits for the test: see slow_disk.h. */
#include "lib/slow_disk.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/shim.h"

static const char *inside(const struct slow_disk *disk, const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", disk->path, name);
    return path;
}

void slow_disk_open(struct slow_disk *disk, const char *shim)
{
    (void)strcpy(disk->path, "/tmp/f8disk-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(disk->path));
    ck_assert_int_eq(mkdir(inside(disk, "lost"), 0700), 0);
    ck_assert_int_eq(mkfifo(inside(disk, "asked"), 0600), 0);
    disk->hold = open(inside(disk, "hold"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    disk->asked = open(inside(disk, "asked"), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    ck_assert(disk->hold >= 0 && disk->asked >= 0);
    ck_assert_int_eq(setenv("F8_SHIM_DISK", disk->path, 1), 0);
    shim_preload(shim);
}

void slow_disk_unload(void)
{
    shim_unload();
}

static void walk(const char *path, int to)
{
    DIR *entries = opendir(path);
    ck_assert_ptr_nonnull(entries);
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (entry->d_name[0] == '.')
            continue;
        if (to >= 0)
            (void)renameat(dirfd(entries), entry->d_name, to, entry->d_name);
        else
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
    }
    (void)closedir(entries);
}

void slow_disk_close(struct slow_disk *disk)
{
    (void)close(disk->hold);
    (void)close(disk->asked);
    walk(inside(disk, "lost"), -1);
    (void)rmdir(inside(disk, "lost"));
    walk(disk->path, -1);
    ck_assert_int_eq(rmdir(disk->path), 0);
}

void slow_disk_hold(struct slow_disk *disk)
{
    char before[64];
    ck_assert_int_eq(flock(disk->hold, LOCK_EX), 0);
    while (read(disk->asked, before, sizeof(before)) > 0)
        ;
}

void slow_disk_let_go(struct slow_disk *disk)
{
    ck_assert_int_eq(flock(disk->hold, LOCK_UN), 0);
}

void slow_disk_await_sync(const struct slow_disk *disk)
{
    char one;
    struct pollfd asked = {.fd = disk->asked, .events = POLLIN};
    ck_assert_msg(poll(&asked, 1, PATIENCE_MS) == 1, "nothing is synced");
    ck_assert_int_eq(read(disk->asked, &one, 1), 1);
}

void slow_disk_break(const struct slow_disk *disk, bool broken)
{
    if (broken)
        ck_assert_int_ge(mknod(inside(disk, "broken"), S_IFREG | 0600, 0), 0);
    else
        ck_assert_int_eq(unlink(inside(disk, "broken")), 0);
}

void slow_disk_cut_power(const struct slow_disk *disk, const char *directory)
{
    int to = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(to, 0);
    walk(inside(disk, "lost"), to);
    (void)close(to);
}
