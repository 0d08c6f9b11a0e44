/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots as they are found at the start: of each number the newest that is whole, see
 * state_snapshot.h. What is damaged is set aside under another name, and never used in part.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/state_dir.h"
#include "daemon/state_snapshot_name.h"
#include "status.h"

/* A snapshot that was read. */
struct loaded {
    struct state_form form; /* owned */
    uint64_t written_ns;
};

/* What the directory has. */
struct found {
    uint64_t *numbers; /* owned: of snapshots, each maybe twice */
    size_t count, room;
};

static int read_all(int fd, uint8_t *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(fd, bytes + done, size - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

/* The bytes of an open file, checked. F8_EINVAL: by what it is or has; F8_EIO: it cannot be read.
 */
static int read_form(int fd, const char *name, struct loaded *ret_loaded, struct reason *reason)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return reason_set(reason, F8_EIO, "cannot fstat %s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 || (uint64_t)st.st_size > STATE_FORM_MAX_SIZE)
        return reason_set(reason, F8_EINVAL,
            "%s is empty, too large, or no regular file: it can be no snapshot", name);
    struct state_form form = {.size = (size_t)st.st_size};
    form.bytes = malloc(form.size);
    if (!form.bytes)
        return reason_set(
            reason, F8_ENOMEM, "out of memory for the %zu bytes of %s", form.size, name);
    int status = F8_OK;
    errno = 0;
    if (read_all(fd, form.bytes, form.size) < 0)
        status = reason_set(reason, errno ? F8_EIO : F8_EINVAL, "cannot read %s: %s", name,
            errno ? strerror(errno) : "it became shorter");
    if (status == F8_OK)
        status = state_form_check(form.bytes, form.size, name, &form.head, reason);
    if (status == F8_OK)
        *ret_loaded = (struct loaded){.form = form,
            .written_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec};
    else
        free(form.bytes);
    return status;
}

/*
 * Only what a file is makes it damaged (a link is none of ours). What cannot be opened for want of
 * a right, of descriptors or of a disk that works may be whole.
 */
static int status_of_open(int error)
{
    if (error == ENOENT)
        return F8_ENOENT;
    return error == ELOOP || error == ENXIO ? F8_EINVAL : F8_EIO;
}

/* F8_ENOENT: there is no such file; else as read_form. */
static int load_file(const struct snapshot_dir *dir, const char *name, struct loaded *ret_loaded,
    struct reason *reason)
{
    int fd = openat(dir->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return reason_set(
            reason, status_of_open(errno), "cannot open %s: %s", name, strerror(errno));
    int status = read_form(fd, name, ret_loaded, reason);
    (void)close(fd);
    return status;
}

static struct state_place place_of(const struct snapshot_dir *dir)
{
    return (struct state_place){.fd = dir->fd,
        .path = dir->path,
        .what = "the snapshot ",
        .option = " (--state-dir)",
        .aside = SNAPSHOT_ASIDE};
}

/*
 * The newest of a number that is whole. F8_ENOENT: there is none. The one before a newer form is
 * not taken for it: it is older than what the daemon that wrote that will find there.
 */
static int load_number(struct snapshot_dir *dir, uint64_t number, char name[SNAPSHOT_NAME_SIZE],
    struct loaded *ret_loaded, struct reason *reason)
{
    static const enum snapshot_kind kinds[] = {SNAPSHOT_CURRENT, SNAPSHOT_PREVIOUS};
    const struct state_place place = place_of(dir);
    struct reason why;
    int status = F8_ENOENT;
    bool damaged = false;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        status = load_file(dir, snapshot_name(number, kinds[i], name), ret_loaded, &why);
        if (status == F8_OK && damaged)
            log_warning("the snapshot before it, %s/%s, is used", dir->path, name);
        if (status == F8_EIO)
            return state_refuse_unread(&place, &why, reason);
        if (status == F8_ENOMEM)
            *reason = why;
        if (status == F8_OK || status == F8_ENOMEM)
            return status;
        if (status == F8_EVERSION) {
            state_leave_newer(&place, name, why.text, &dir->newer);
            return F8_ENOENT;
        }
        if (status != F8_ENOENT) {
            state_set_aside(&place, name, why.text, &dir->damaged);
            damaged = true;
        }
    }
    return F8_ENOENT;
}

static int take_number(struct snapshot_dir *dir, uint64_t number, snapshot_taker *take,
    void *context, struct reason *reason)
{
    char name[SNAPSHOT_NAME_SIZE];
    struct loaded loaded;
    int status = load_number(dir, number, name, &loaded, reason);
    if (status < 0)
        return status == F8_ENOENT ? F8_OK : status;
    status = take(context, number, &loaded.form, loaded.written_ns, reason);
    state_form_done(&loaded.form);
    if (status != F8_EEXIST)
        return status;
    const struct state_place place = place_of(dir);
    state_set_aside(
        &place, name, "a later one has the state of the same job and group", &dir->damaged);
    return F8_OK;
}

static int note_entry(struct snapshot_dir *dir, struct found *found, const char *name)
{
    uint64_t number;
    enum snapshot_kind kind;
    bool aside;
    if (!snapshot_parse(name, &number, &kind, &aside))
        return F8_OK;
    if (number > dir->last)
        dir->last = number;
    if (aside)
        state_note(&dir->damaged, name);
    else if (kind == SNAPSHOT_NEW)
        (void)unlinkat(dir->fd, name, 0); /* whoever wrote it was killed before it was whole */
    if (aside || kind == SNAPSHOT_NEW)
        return F8_OK;
    if (found->count == found->room) {
        size_t room = found->room ? 2 * found->room : 64;
        uint64_t *numbers = realloc(found->numbers, room * sizeof(*numbers));
        if (!numbers)
            return F8_ENOMEM;
        found->numbers = numbers;
        found->room = room;
    }
    found->numbers[found->count++] = number;
    return F8_OK;
}

static int list_entries(struct snapshot_dir *dir, struct found *found, struct reason *reason)
{
    int status = F8_OK, fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        status = reason_set(
            reason, F8_EIO, "cannot read the state directory %s: %s", dir->path, strerror(errno));
        if (fd >= 0)
            (void)close(fd);
        return status;
    }
    for (const struct dirent *entry = readdir(entries); entry && status == F8_OK;
         entry = readdir(entries))
        status = note_entry(dir, found, entry->d_name);
    (void)closedir(entries);
    if (status < 0)
        return reason_set(
            reason, status, "out of memory reading the state directory %s", dir->path);
    return F8_OK;
}

/* Numbers are given out upwards: of two of one group the higher one is the later one. */
static int highest_first(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left < right) - (left > right);
}

static int load(
    struct snapshot_dir *dir, snapshot_taker *take, void *context, struct reason *reason)
{
    struct found found = {0};
    int status = list_entries(dir, &found, reason);
    if (found.count > 0)
        qsort(found.numbers, found.count, sizeof(*found.numbers), highest_first);
    for (size_t i = 0; i < found.count && status == F8_OK; i++)
        if (i == 0 || found.numbers[i] != found.numbers[i - 1])
            status = take_number(dir, found.numbers[i], take, context, reason);
    free(found.numbers);
    return status;
}

int snapshot_dir_open(struct snapshot_dir *dir, const char *path, snapshot_taker *take,
    void *context, struct reason *reason)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return reason_set(reason, F8_EIO, "cannot make the state directory %s (--state-dir): %s",
            path, strerror(errno));
    /* A link is the administrator's own. */
    char *real = realpath(path, NULL);
    int status = state_dir_open(real ? real : path, &dir->fd, reason);
    free(real);
    if (status < 0) {
        reason_append(reason, " (--state-dir)");
        return status;
    }
    (void)snprintf(dir->path, sizeof(dir->path), "%s", path);
    return load(dir, take, context, reason);
}
