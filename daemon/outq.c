/* SPDX-License-Identifier: Apache-2.0 */
/* Packets that wait for a socket: see outq.h. */
#include "daemon/outq.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "status.h"

#define FIRST_CAPACITY 4096

struct record {
    uint32_t size;
    int32_t fd;
};

/* Moves what waits to the front, or into a bigger buffer, until `need` bytes fit behind it. */
static int make_room(struct outq *queue, size_t need)
{
    if (queue->capacity - queue->tail >= need)
        return F8_OK;
    size_t used = queue->tail - queue->head;
    if (queue->head > 0)
        memmove(queue->data, queue->data + queue->head, used);
    queue->head = 0;
    queue->tail = used;
    size_t capacity = queue->capacity ? queue->capacity : FIRST_CAPACITY;
    while (capacity - used < need)
        capacity *= 2;
    if (capacity == queue->capacity)
        return F8_OK;
    uint8_t *bigger = realloc(queue->data, capacity);
    if (!bigger)
        return F8_ENOMEM;
    queue->data = bigger;
    queue->capacity = capacity;
    return F8_OK;
}

int outq_push(struct outq *queue, const void *data, size_t size, int fd)
{
    if (make_room(queue, sizeof(struct record) + size) < 0)
        return F8_ENOMEM;
    struct record record = {.size = (uint32_t)size, .fd = -1};
    if (fd >= 0)
        record.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0 && record.fd < 0)
        return F8_EIO;
    memcpy(queue->data + queue->tail, &record, sizeof(record));
    memcpy(queue->data + queue->tail + sizeof(record), data, size);
    queue->tail += sizeof(record) + size;
    queue->count++;
    return F8_OK;
}

static struct record first_record(const struct outq *queue)
{
    struct record record;
    memcpy(&record, queue->data + queue->head, sizeof(record));
    return record;
}

struct outq_packet outq_first(const struct outq *queue)
{
    struct record record = first_record(queue);
    return (struct outq_packet){
        .data = queue->data + queue->head + sizeof(record),
        .size = record.size,
        .fd = record.fd,
    };
}

void outq_pop(struct outq *queue)
{
    struct record record = first_record(queue);
    if (record.fd >= 0)
        (void)close(record.fd);
    queue->head += sizeof(record) + record.size;
    if (--queue->count == 0)
        queue->head = queue->tail = 0;
}

void outq_done(struct outq *queue)
{
    while (queue->count > 0)
        outq_pop(queue);
    free(queue->data);
    *queue = (struct outq){0};
}

size_t outq_bytes(const struct outq *queue)
{
    return queue->tail - queue->head;
}
