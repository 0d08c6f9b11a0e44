/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal's native protocol: one datagram a line, FIELD=value lines within it. It is spoken
 * here, and not by sd_journal_sendv, because that one waits while journald takes nothing, and with
 * it would all who gather. The socket is not connected: journald may be started again. On the loop.
 */
#include "daemon/log_journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/* A message, five names and what stands around them. */
#define ENTRY_SIZE 4096

struct entry {
    char text[ENTRY_SIZE];
    size_t size;
};

/* Adds one line; a field that does not fit is left out. */
__attribute__((format(printf, 2, 3))) static void add(struct entry *entry, const char *format, ...)
{
    size_t room = sizeof(entry->text) - entry->size;
    char *line = entry->text + entry->size;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, room, format, args);
    va_end(args);
    if (length < 0 || (size_t)length + 1 >= room)
        return;
    for (int i = 0; i < length; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?'; /* a newline would end the field */
    line[length] = '\n';
    entry->size += (size_t)length + 1;
}

static void add_name(struct entry *entry, const char *field, const char *name)
{
    if (name && name[0])
        add(entry, "%s=%s", field, name);
}

static void add_fields(struct entry *entry, const struct log_fields *fields)
{
    add_name(entry, "JOB", fields->job);
    add_name(entry, "GROUP", fields->group);
    add_name(entry, "BUCKET", fields->bucket);
    add_name(entry, "WEIGHT", fields->weight);
    add_name(entry, "HOST", fields->host);
    if (fields->rank > 0)
        add(entry, "RANK=%" PRIu64, fields->rank - 1);
    if (fields->pid > 0)
        add(entry, "PID=%" PRIu32, fields->pid);
}

enum journal_sent log_journal_send(
    const struct log_fields *fields, enum log_level level, const char *message)
{
    static const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = JOURNAL_SOCKET};
    static int fd = -1;
    struct entry entry = {.size = 0};
    if (fd < 0)
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    add(&entry, "MESSAGE=%s", message);
    add(&entry, "PRIORITY=%d", (int)level);
    add(&entry, "SYSLOG_IDENTIFIER=f8gatherd");
    if (fields)
        add_fields(&entry, fields);
    ssize_t sent;
    do
        sent = sendto(fd, entry.text, entry.size, MSG_NOSIGNAL | MSG_DONTWAIT,
            (const struct sockaddr *)&address, sizeof(address));
    while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return JOURNAL_SENT;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? JOURNAL_FULL
                                                                       : JOURNAL_NONE;
}
