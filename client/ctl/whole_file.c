/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are written whole or not at all: see whole_file.h. */
#include "client/ctl/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/error.h"
#include "proto/status.h"

static int is_there(const char *name)
{
    return error_set(F8_EEXIST, "%s is there already: --force replaces it", name);
}

/* What nothing can be written to, or what a file must not take the place of. */
static int refuse(const char *name, const char *what)
{
    return error_set(F8_EIO, "%s is %s, and not replaced: name a file", name, what);
}

/* Where a link leads, for the file there is what is replaced. */
static int follow_link(struct whole_file *file)
{
    struct stat stat_of;

    file->target = realpath(file->name, NULL);
    if (file->target == NULL) {
        return error_set(
            F8_EIO, "%s is a symbolic link that leads to no file: %s", file->name, strerror(errno));
    }
    if (stat(file->target, &stat_of) != 0 || !S_ISREG(stat_of.st_mode)) {
        return error_set(F8_EIO, "%s is a symbolic link to %s, which is no regular file",
            file->name, file->target);
    }
    return F8_OK;
}

/* Devices and FIFOs stay what they are: it goes through them, whole or not. */
static int write_through(struct whole_file *file)
{
    int fd = open(file->name, O_WRONLY | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);

    file->stream = fd >= 0 ? fdopen(fd, "w") : NULL;
    return file->stream != NULL ? F8_OK : error_set(F8_EIO, "%s: %s", file->name, strerror(errno));
}

/* What is there by that name already. */
static int take_place(struct whole_file *file, mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return refuse(file->name, "a directory");
    case S_IFSOCK:
        return refuse(file->name, "a socket");
    case S_IFCHR:
    case S_IFBLK:
    case S_IFIFO:
        return file->replace ? write_through(file)
                             : error_set(F8_EEXIST, "%s is a %s: --force writes to it", file->name,
                                   S_ISFIFO(mode) ? "FIFO" : "device");
    default:
        if (!file->replace) {
            return is_there(file->name);
        }
        return S_ISLNK(mode) ? follow_link(file) : F8_OK;
    }
}

static int make_temporary(struct whole_file *file)
{
    int fd;

    if (file->target == NULL) {
        file->target = strdup(file->name);
    }
    if (file->target == NULL || asprintf(&file->temporary, "%s.XXXXXX", file->target) < 0) {
        file->temporary = NULL;
        return error_set(F8_ENOMEM, "no memory for a name");
    }
    fd = mkostemp(file->temporary, O_CLOEXEC);
    file->stream = fd >= 0 ? fdopen(fd, "w") : NULL;
    return file->stream != NULL
               ? F8_OK
               : error_set(F8_EIO, "%s cannot be made: %s", file->temporary, strerror(errno));
}

static void forget_names(struct whole_file *file)
{
    free(file->temporary);
    free(file->target);
}

int whole_file_open(struct whole_file *file, const char *name, bool replace)
{
    struct stat there;
    int status = F8_OK;

    *file = (struct whole_file){.name = name, .replace = replace};
    if (strcmp(name, "-") == 0) {
        file->name = "standard output";
        file->stream = stdout;
        return F8_OK;
    }
    if (lstat(name, &there) == 0) {
        status = take_place(file, there.st_mode);
    }
    if (status == F8_OK && file->stream == NULL) {
        status = make_temporary(file);
    }
    if (status != F8_OK) {
        forget_names(file);
    }
    return status;
}

/* Its bytes are there, with the rights that a new file has. */
static int complete(struct whole_file *file)
{
    mode_t mask = umask(0); /* there is no other way to ask for it */

    umask(mask);
    if (ferror(file->stream) || fflush(file->stream) != 0 ||
        (file->temporary != NULL && (fchmod(fileno(file->stream), 0666 & ~mask) != 0 ||
                                        fsync(fileno(file->stream)) != 0))) {
        return error_set(F8_EIO, "%s: %s", file->name, strerror(errno));
    }
    return F8_OK;
}

/* At once, and not in the place of another unless it may. */
static int give_name(const struct whole_file *file)
{
    if (file->replace ? rename(file->temporary, file->target) == 0
                      : link(file->temporary, file->target) == 0) {
        return F8_OK;
    }
    return errno == EEXIST
               ? is_there(file->name)
               : error_set(F8_EIO, "%s cannot be made: %s", file->name, strerror(errno));
}

int whole_file_close(struct whole_file *file, int status)
{
    if (status == F8_OK) {
        status = complete(file);
    }
    if (file->stream != stdout) {
        fclose(file->stream);
    }
    if (file->temporary != NULL && status == F8_OK) {
        status = give_name(file);
    }
    if (file->temporary != NULL) {
        unlink(file->temporary); /* after a rename it is not there any more */
    }
    forget_names(file);
    return status;
}
