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

int whole_file_open(struct whole_file *file, const char *name, bool replace)
{
    int fd;

    *file = (struct whole_file){.name = name, .replace = replace, .stream = stdout};
    if (strcmp(name, "-") == 0) {
        file->name = "standard output";
        return F8_OK;
    }
    if (!replace && access(name, F_OK) == 0) {
        return is_there(name);
    }
    if (asprintf(&file->temporary, "%s.XXXXXX", name) < 0) {
        return error_set(F8_ENOMEM, "no memory for a name");
    }
    fd = mkostemp(file->temporary, O_CLOEXEC);
    file->stream = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file->stream == NULL) {
        error_set(F8_EIO, "%s cannot be made: %s", file->temporary, strerror(errno));
        free(file->temporary);
        return F8_EIO;
    }
    return F8_OK;
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
    if (file->replace ? rename(file->temporary, file->name) == 0
                      : link(file->temporary, file->name) == 0) {
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
    if (file->temporary == NULL) {
        return status;
    }
    fclose(file->stream);
    if (status == F8_OK) {
        status = give_name(file);
    }
    unlink(file->temporary); /* after a rename it is not there any more */
    free(file->temporary);
    return status;
}
