/* SPDX-License-Identifier: Apache-2.0 */
/* Between a state's two forms, from memfd to memfd: see transfer_form.h. */
#include "client/ctl/transfer_form.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/state_doc.h"
#include "client/error.h"
#include "proto/status.h"

/* Memory that is mapped from a file. */
struct mapped {
    const char *bytes;
    size_t size;
};

static int map(int fd, const char *what, struct mapped *ret_mapped)
{
    struct stat stat;
    void *bytes;

    if (fstat(fd, &stat) != 0 || stat.st_size <= 0) {
        return error_set(F8_EIO, "%s is empty", what);
    }
    bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) {
        return error_set(F8_EIO, "%s cannot be mapped: %s", what, strerror(errno));
    }
    *ret_mapped = (struct mapped){.bytes = bytes, .size = (size_t)stat.st_size};
    return F8_OK;
}

static int replace(int *fd, const void *bytes, size_t size)
{
    int memfd = memfd_create("f8ctl-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t done = 0;

    while (memfd >= 0 && done < size) {
        ssize_t put = write(memfd, (const char *)bytes + done, size - done);
        if (put < 0 && errno != EINTR) {
            break;
        }
        done += put > 0 ? (size_t)put : 0;
    }
    if (memfd < 0 || done < size) {
        int status = error_set(F8_ENOMEM, "no memory for %zu bytes: %s", size, strerror(errno));
        if (memfd >= 0) {
            close(memfd);
        }
        return status;
    }
    close(*fd);
    *fd = memfd;
    return F8_OK;
}

int transfer_to_json(int *fd)
{
    struct state_doc doc = {0};
    struct mapped mapped;
    char *text = NULL;
    size_t size = 0;
    int status = map(*fd, "the export", &mapped);

    if (status != F8_OK) {
        return status;
    }
    status = state_doc_read((const uint8_t *)mapped.bytes, mapped.size, "the export", &doc);
    if (status == F8_OK) {
        status = state_json_write(&doc, &text, &size);
    }
    if (status == F8_OK) {
        status = replace(fd, text, size);
    }
    munmap((void *)(uintptr_t)mapped.bytes, mapped.size);
    free(text);
    state_doc_done(&doc);
    return status;
}

/* The binary form begins with a word of its own; JSON with a bracket, after blanks. */
static bool is_json(const struct mapped *mapped)
{
    size_t i = 0;

    while (i < mapped->size && strchr(" \t\r\n", mapped->bytes[i]) != NULL &&
           mapped->bytes[i] != '\0') {
        i++;
    }
    return i < mapped->size && (mapped->bytes[i] == '{' || mapped->bytes[i] == '[');
}

int transfer_from_json(int *fd, const char *file)
{
    struct state_doc doc = {0};
    struct mapped mapped;
    uint8_t *bytes = NULL;
    size_t size = 0;
    int status = map(*fd, file, &mapped);

    if (status != F8_OK) {
        return status;
    }
    if (is_json(&mapped)) {
        status = state_json_read(mapped.bytes, mapped.size, file, &doc);
        if (status == F8_OK) {
            status = state_doc_write(&doc, &bytes, &size);
        }
        if (status == F8_OK) {
            status = replace(fd, bytes, size);
        }
    }
    munmap((void *)(uintptr_t)mapped.bytes, mapped.size);
    free(bytes);
    state_doc_done(&doc);
    return status;
}

int transfer_syncs(int fd, const char *file, uint64_t *ret_syncs)
{
    struct state_doc doc = {0};
    struct mapped mapped;
    int status = map(fd, file, &mapped);

    if (status != F8_OK) {
        return status;
    }
    status = state_doc_read((const uint8_t *)mapped.bytes, mapped.size, file, &doc);
    munmap((void *)(uintptr_t)mapped.bytes, mapped.size);
    if (status == F8_OK) {
        *ret_syncs = doc.syncs;
    }
    state_doc_done(&doc);
    return status;
}
