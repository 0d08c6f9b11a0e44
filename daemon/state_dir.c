/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of state files: see state_dir.h. */
#include "daemon/state_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "daemon/log.h"
#include "status.h"

/* "0000000000000007.state", and while it is written "....new". */
#define NAME_SIZE 32
#define DIGITS    16

void state_dir_init(struct state_dir *dir, const char *socket)
{
    *dir = (struct state_dir){.fd = -1};
    (void)snprintf(dir->path, sizeof(dir->path), "%s" STATE_DIR_SUFFIX, socket);
}

static char *name_of(uint64_t number, const char *suffix, char *name)
{
    (void)snprintf(name, NAME_SIZE, "%016" PRIx64 "%s", number, suffix);
    return name;
}

/* Who has locked the directory, by the kernel's word; 0: it is not seen from here. */
static int holder_of(const struct stat *st)
{
    char line[256];
    int holder = 0;
    FILE *locks = fopen("/proc/locks", "re");
    while (locks && holder == 0 && fgets(line, sizeof(line), locks)) {
        unsigned on_major, on_minor;
        unsigned long long inode;
        int pid;
        if (sscanf(line, "%*s FLOCK %*s %*s %d %x:%x:%llu", &pid, &on_major, &on_minor, &inode) ==
                4 &&
            inode == st->st_ino && on_major == major(st->st_dev) && on_minor == minor(st->st_dev))
            holder = pid;
    }
    if (locks)
        (void)fclose(locks);
    return holder;
}

static int refuse_locked(const struct stat *st, const char *path, struct reason *reason)
{
    if (errno != EWOULDBLOCK)
        return reason_set(
            reason, F8_EIO, "the state directory %s cannot be locked: %s", path, strerror(errno));
    int holder = holder_of(st);
    (void)reason_set(
        reason, F8_EBUSY, "the state directory %s cannot be locked: another daemon uses it", path);
    if (holder > 0)
        reason_append(reason, ", pid %d", holder);
    return F8_EBUSY;
}

/* That it is a directory, ours alone, and that no other daemon has it. */
static int check(int fd, const char *path, struct reason *reason)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return reason_set(
            reason, F8_EIO, "cannot fstat the state directory %s: %s", path, strerror(errno));
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        return reason_set(reason, F8_EPERM,
            "the state directory %s is of uid %u and mode %03o, it must be of uid %u and mode 700",
            path, (unsigned)st.st_uid, (unsigned)(st.st_mode & 0777), (unsigned)geteuid());
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return refuse_locked(&st, path, reason);
    return F8_OK;
}

int state_dir_open(const char *path, int *ret_fd, struct reason *reason)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return reason_set(reason, errno == ENOENT ? F8_ENOENT : F8_EIO,
            "cannot open the state directory %s: %s", path, strerror(errno));
    int status = check(fd, path, reason);
    if (status < 0)
        (void)close(fd);
    else
        *ret_fd = fd;
    return status;
}

static int make_directory(struct state_dir *dir, struct reason *reason)
{
    if (dir->fd >= 0)
        return F8_OK;
    if (mkdir(dir->path, 0700) < 0 && errno != EEXIST)
        return reason_set(
            reason, F8_EIO, "cannot make the state directory %s: %s", dir->path, strerror(errno));
    return state_dir_open(dir->path, &dir->fd, reason);
}

/* Whether it is a number of ours and the suffix. */
static bool parse_name(const char *name, const char *suffix, uint64_t *ret_number)
{
    char again[NAME_SIZE];
    uint64_t number;
    if (sscanf(name, "%16" SCNx64, &number) != 1 ||
        strcmp(name_of(number, suffix, again), name) != 0)
        return false;
    *ret_number = number;
    return true;
}

static struct state_place place_of(const struct state_dir *dir)
{
    return (struct state_place){
        .fd = dir->fd, .path = dir->path, .what = "", .option = "", .aside = ".bad"};
}

static void set_aside(struct state_dir *dir, const char *name, const char *why)
{
    const struct state_place place = place_of(dir);
    state_set_aside(&place, name, why, &dir->damaged);
    dir->lacks = true;
}

static void leave_newer(struct state_dir *dir, const char *name, const char *why)
{
    const struct state_place place = place_of(dir);
    state_leave_newer(&place, name, why, &dir->newer);
    dir->lacks = true;
}

/* Also of a file that is not loaded: its number is not given out again. */
static void see_number(struct state_dir *dir, const char *name)
{
    uint64_t number;
    bool aside = parse_name(name, ".state.bad", &number);
    if (aside)
        state_note(&dir->damaged, name);
    if ((aside || parse_name(name, ".state", &number)) && number > dir->last)
        dir->last = number;
}

static int load_one(struct state_dir *dir, const char *name, state_dir_taker *take, void *context,
    struct reason *reason)
{
    uint64_t number;
    struct state_file file;
    struct reason why;
    const struct state_place place = place_of(dir);
    see_number(dir, name);
    if (parse_name(name, ".new", &number))
        (void)unlinkat(dir->fd, name, 0); /* whoever wrote it was killed before it was whole */
    if (!parse_name(name, ".state", &number))
        return F8_OK;
    int status = state_file_open(dir->fd, name, &file, &why);
    if (status == F8_EIO)
        return state_refuse_unread(&place, &why, reason);
    if (status == F8_EVERSION)
        leave_newer(dir, name, why.text);
    else if (status < 0)
        set_aside(dir, name, why.text);
    if (status < 0)
        return F8_OK;
    status = take(context, number, &file);
    if (status < 0)
        state_file_close(&file);
    if (status == F8_EEXIST)
        set_aside(dir, name, "another file has the state of the same job and group");
    else if (status < 0)
        return reason_set(reason, status, "out of memory loading states");
    return F8_OK;
}

/* Names begin with a number of fixed length: of two of one group the later one comes first. */
static int highest_first(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*b)->d_name, (*a)->d_name);
}

int state_dir_load(
    struct state_dir *dir, state_dir_taker *take, void *context, struct reason *reason)
{
    struct dirent **entries;
    int status = state_dir_open(dir->path, &dir->fd, reason);
    if (status == F8_ENOENT)
        return F8_OK;
    if (status < 0)
        return status;
    int count = scandirat(dir->fd, ".", &entries, NULL, highest_first);
    if (count < 0)
        return reason_set(
            reason, F8_EIO, "cannot read the state directory %s: %s", dir->path, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (status == F8_OK)
            status = load_one(dir, entries[i]->d_name, take, context, reason);
        free(entries[i]);
    }
    free(entries);
    return status;
}

int state_dir_write(struct state_dir *dir, uint64_t number, const struct state_form *form,
    uint32_t counter, struct state_file *ret_file, struct reason *reason)
{
    char temporary[NAME_SIZE], name[NAME_SIZE];
    int status = make_directory(dir, reason);
    if (status < 0)
        return status;
    return state_file_create(dir->fd, name_of(number, ".new", temporary),
        name_of(number, ".state", name), form, counter, ret_file, reason);
}

void state_dir_remove(struct state_dir *dir, uint64_t number)
{
    char name[NAME_SIZE];
    (void)unlinkat(dir->fd, name_of(number, ".state", name), 0);
}

void state_dir_done(struct state_dir *dir)
{
    if (dir->fd < 0)
        return;
    (void)rmdir(dir->path); /* of a directory that is not empty it does nothing */
    (void)close(dir->fd);
    dir->fd = -1;
}
