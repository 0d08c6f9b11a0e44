/* SPDX-License-Identifier: Apache-2.0 */
/* Files of two halves and a word: see state_file.h. */
#include "daemon/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/state_bytes.h"
#include "daemon/state_table.h"
#include "status.h"

/* Bytes of the word. It holds the counter of the half that holds, and its complement. */
#define WORD_SIZE 8

static uint64_t word_of(uint32_t counter)
{
    return (uint64_t)~counter << 32 | counter;
}

uint64_t state_file_size(const struct state_head *head)
{
    return (uint64_t)head->size + WORD_SIZE + 2 * (uint64_t)head->values_size;
}

static uint64_t *word_at(const struct state_file *file)
{
    return (uint64_t *)(void *)(file->data + file->head.size);
}

static uint8_t *half_at(const struct state_file *file, uint32_t counter)
{
    return file->data + file->head.size + WORD_SIZE + (counter & 1) * file->head.values_size;
}

uint32_t state_file_counter(const struct state_file *file)
{
    return (uint32_t)le64toh(__atomic_load_n(word_at(file), __ATOMIC_ACQUIRE));
}

const uint8_t *state_file_values(const struct state_file *file)
{
    return half_at(file, state_file_counter(file));
}

void state_file_write(struct state_file *file, uint64_t syncs, const struct weight_list *list,
    const struct scaling *scalings)
{
    uint32_t next = state_file_counter(file) + 1;
    state_values_write(half_at(file, next), file->head.values_size, next, syncs, list, scalings);
}

/* One aligned store after all others: a process that ends has made either all of them or none. */
void state_file_flip(struct state_file *file)
{
    __atomic_store_n(
        word_at(file), htole64(word_of(state_file_counter(file) + 1)), __ATOMIC_RELEASE);
}

void state_file_close(struct state_file *file)
{
    if (file->data)
        (void)munmap(file->data, file->size);
    *file = (struct state_file){0};
}

static int map(
    int fd, const char *name, size_t size, struct state_file *file, struct reason *reason)
{
    void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return reason_set(
            reason, F8_EIO, "cannot map the state file %s: %s", name, strerror(errno));
    *file = (struct state_file){.data = data, .size = size};
    return F8_OK;
}

/* Fills a file of which nobody knows yet. */
static int fill(int fd, const char *name, const struct state_form *form, uint32_t counter,
    struct state_file *ret_file, struct reason *reason)
{
    size_t size = state_file_size(&form->head);
    /* Reserved in full: a store to the mapping must not meet a full disk. */
    int error = posix_fallocate(fd, 0, (off_t)size);
    if (error)
        return reason_set(reason, F8_EIO,
            "cannot store the state of group %s: the file takes %zu bytes: %s",
            form->head.owner.group, size, strerror(error));
    struct state_file file;
    int status = map(fd, name, size, &file, reason);
    if (status < 0)
        return status;
    memcpy(file.data, form->bytes, form->head.size);
    status = state_head_check(file.data, size, name, &file.head, reason);
    if (status < 0) {
        state_file_close(&file);
        return status;
    }
    state_values_copy(
        half_at(&file, counter), form->bytes + form->head.size, form->head.values_size, counter);
    __atomic_store_n(word_at(&file), htole64(word_of(counter)), __ATOMIC_RELEASE);
    *ret_file = file;
    return F8_OK;
}

int state_file_create(int directory, const char *temporary, const char *name,
    const struct state_form *form, uint32_t counter, struct state_file *ret_file,
    struct reason *reason)
{
    struct state_file file;
    int fd = openat(directory, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return reason_set(reason, F8_EIO,
            "cannot store the state of group %s: cannot make the file %s: %s",
            form->head.owner.group, temporary, strerror(errno));
    int status = fill(fd, temporary, form, counter, &file, reason);
    (void)close(fd);
    if (status == F8_OK && renameat(directory, temporary, directory, name) < 0) {
        status = reason_set(reason, F8_EIO,
            "cannot store the state of group %s: cannot rename %s to %s: %s",
            form->head.owner.group, temporary, name, strerror(errno));
        state_file_close(&file);
    }
    if (status < 0)
        (void)unlinkat(directory, temporary, 0);
    else
        *ret_file = file;
    return status;
}

/* What a file must be before its bytes are looked at. */
static int check_kind(
    int fd, const char *name, size_t *ret_size, uint64_t *ret_written_ns, struct reason *reason)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return reason_set(reason, F8_EIO, "cannot fstat %s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size <= 0)
        return reason_set(reason, F8_EINVAL, "%s is empty, or no regular file", name);
    *ret_size = (size_t)st.st_size;
    *ret_written_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
    return F8_OK;
}

static int check(struct state_file *file, const char *name, struct reason *reason)
{
    int status = state_head_check(file->data, file->size, name, &file->head, reason);
    if (status < 0)
        return status;
    if (file->size != state_file_size(&file->head))
        return reason_set(reason, F8_EINVAL, "%s is cut or too long: %zu bytes where %zu are due",
            name, file->size, (size_t)state_file_size(&file->head));
    uint64_t word = le64toh(*word_at(file));
    if (word != word_of((uint32_t)word))
        return reason_set(
            reason, F8_EINVAL, "%s is damaged: no half has the counter of its word", name);
    const uint8_t *values = state_file_values(file);
    status = state_values_check(&file->head, values, name, reason);
    if (status == F8_OK && state_values_counter(values) != (uint32_t)word)
        return reason_set(reason, F8_EINVAL,
            "%s is damaged: its half has counter %u where its word has %u", name,
            state_values_counter(values), (uint32_t)word);
    return status;
}

int state_file_open(
    int directory, const char *name, struct state_file *ret_file, struct reason *reason)
{
    int fd = openat(directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) { /* a link, a directory or a socket is none of ours */
        bool other = errno == ELOOP || errno == EISDIR || errno == ENXIO;
        return reason_set(
            reason, other ? F8_EINVAL : F8_EIO, "cannot open %s: %s", name, strerror(errno));
    }
    size_t size = 0;
    uint64_t written_ns = 0;
    struct state_file file = {0};
    int status = check_kind(fd, name, &size, &written_ns, reason);
    if (status == F8_OK)
        status = map(fd, name, size, &file, reason);
    (void)close(fd);
    if (status < 0)
        return status;
    file.written_ns = written_ns;
    status = check(&file, name, reason);
    if (status < 0)
        state_file_close(&file);
    else
        *ret_file = file;
    return status;
}
