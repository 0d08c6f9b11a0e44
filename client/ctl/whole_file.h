/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that is written whole or not at all: it gets its name when it is complete, and does not
 * take that of another file unless it may, nor ever that of what is no file. Called by the commands
 * that write files.
 */
#ifndef F8CTL_WHOLE_FILE_H
#define F8CTL_WHOLE_FILE_H

#include <stdbool.h>
#include <stdio.h>

struct whole_file {
    FILE *stream;     /* owned, but for standard output */
    const char *name; /* borrowed: from the caller of whole_file_open */
    char *target;     /* owned: the file to come: `name`, or where that leads as a symbolic link */
    char *temporary;  /* owned: beside `target`, so that it can be renamed; NULL: it is standard
                         output, a device or a FIFO */
    bool replace;
};

/*
 * Begins a file; "-" is standard output. With `replace` a symbolic link to a regular file stays and
 * that file is replaced, and a device or FIFO is written to. F8_EIO, also for other links, for a
 * directory and a socket; F8_ENOMEM; or F8_EEXIST, before work is done.
 */
int whole_file_open(struct whole_file *file, const char *name, bool replace);

/*
 * Ends it: with `status` F8_OK it gets its name, else it is gone. Gives `status`, or F8_EIO or
 * F8_EEXIST if it could not be written or named.
 */
int whole_file_close(struct whole_file *file, int status);

#endif
