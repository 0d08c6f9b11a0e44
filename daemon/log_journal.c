/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines to journald by libsystemd, which waits while journald takes nothing, and with it would all
 * who gather. So they go through a queue, whose one thread sends them and may wait; where journald
 * does not listen it writes them to stderr. log fills the queue on the loop's thread, which waits
 * for nothing but, at the daemon's end and not for long, for the queue to be empty. The queue is
 * all that the two threads share.
 */
#include "daemon/log_journal.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <uv.h>

#define SD_JOURNAL_SUPPRESS_LOCATION /* of the call in this file, which is of no use to anyone */
#include <systemd/sd-journal.h>

#include "protocol.h"

/* Where libsystemd sends to. */
#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/*
 * Lines that wait while journald is busy: more than a start logs of all states of a uid, or a sync
 * of the ranks that are late. Memory that no burst has needed is never touched.
 */
#define QUEUE_LINES 2048

/* A message, five names and what stands around them. */
#define ENTRY_SIZE 4096
#define MAX_FIELDS 10

struct entry {
    enum log_level level;
    int num_fields;
    struct iovec fields[MAX_FIELDS]; /* borrowed: from text; the message is the first */
    size_t size;
    char text[ENTRY_SIZE];
};

static struct {
    bool running; /* the loop's: there is a thread, and what follows is set up */
    uv_thread_t thread;
    uv_mutex_t lock;     /* of all that follows, but for the oldest entry, which the thread reads */
    uv_cond_t changed;   /* the thread waits for a line, or log for the thread: never both */
    bool closing, ended; /* no more lines come; the thread does nothing more */
    unsigned first, count;
    struct entry entries[QUEUE_LINES];
} queue;

/* ---- a line, on the loop's thread ---- */

/* Adds "FIELD=value"; one that does not fit is left out. */
__attribute__((format(printf, 2, 3))) static void add(struct entry *entry, const char *format, ...)
{
    size_t room = sizeof(entry->text) - entry->size;
    char *field = entry->text + entry->size;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(field, room, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= room)
        return;
    f8_proto_make_printable(field); /* only names are not yet, and it makes nothing longer */
    size_t printable = strlen(field);
    entry->fields[entry->num_fields++] = (struct iovec){.iov_base = field, .iov_len = printable};
    entry->size += printable + 1;
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

static void fill(
    struct entry *entry, const struct log_fields *fields, enum log_level level, const char *message)
{
    entry->level = level;
    entry->num_fields = 0;
    entry->size = 0;
    add(entry, "MESSAGE=%s", message);
    add(entry, "PRIORITY=%d", (int)level);
    add(entry, "SYSLOG_IDENTIFIER=f8gatherd");
    if (fields)
        add_fields(entry, fields);
}

/* ---- the thread ---- */

/* The oldest line, which stays in the queue while it is sent; NULL: that was all. */
static const struct entry *await_line(void)
{
    uv_mutex_lock(&queue.lock);
    while (queue.count == 0 && !queue.closing)
        uv_cond_wait(&queue.changed, &queue.lock);
    queue.ended = queue.count == 0;
    if (queue.ended)
        uv_cond_signal(&queue.changed);
    const struct entry *entry = queue.ended ? NULL : &queue.entries[queue.first];
    uv_mutex_unlock(&queue.lock);
    return entry;
}

static void drop_line(void)
{
    uv_mutex_lock(&queue.lock);
    queue.first = (queue.first + 1) % QUEUE_LINES;
    queue.count--;
    uv_mutex_unlock(&queue.lock);
}

/* To libsystemd a line is sent, too, where journald's socket is not even there. */
static bool send_line(const struct entry *entry)
{
    return access(JOURNAL_SOCKET, F_OK) == 0 &&
           sd_journal_sendv(entry->fields, entry->num_fields) == 0;
}

static void run(void *unused)
{
    struct pollfd poll_fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    (void)unused;
    for (const struct entry *entry; (entry = await_line()); drop_line()) {
        if (send_line(entry))
            continue;
        (void)poll(&poll_fd, 1, -1); /* a write would not wait where another made it so */
        log_write_marked(entry->level, entry->text + strlen("MESSAGE="));
    }
}

/* ---- log's calls ---- */

/* Signals are the loop's, and a service manager's to the whole process. */
static int start_thread(void)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = uv_thread_create(&queue.thread, run, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

static bool start(void)
{
    if (uv_mutex_init(&queue.lock) < 0)
        return false;
    if (uv_cond_init(&queue.changed) < 0)
        goto no_cond;
    queue.closing = queue.ended = false;
    queue.first = queue.count = 0;
    if (start_thread() < 0)
        goto no_thread;
    return true;

no_thread:
    uv_cond_destroy(&queue.changed);
no_cond:
    uv_mutex_destroy(&queue.lock);
    return false;
}

enum journal_put log_journal_put(
    const struct log_fields *fields, enum log_level level, const char *message)
{
    if (!queue.running)
        queue.running = start();
    if (!queue.running)
        return JOURNAL_NONE;
    uv_mutex_lock(&queue.lock);
    bool full = queue.count == QUEUE_LINES;
    if (!full) {
        fill(&queue.entries[(queue.first + queue.count) % QUEUE_LINES], fields, level, message);
        queue.count++;
        uv_cond_signal(&queue.changed);
    }
    uv_mutex_unlock(&queue.lock);
    return full ? JOURNAL_FULL : JOURNAL_TAKEN;
}

bool log_journal_close(unsigned patience_ms)
{
    if (!queue.running)
        return true;
    uint64_t now = uv_hrtime(), end = now + (uint64_t)patience_ms * 1000000;
    uv_mutex_lock(&queue.lock);
    queue.closing = true;
    uv_cond_signal(&queue.changed);
    for (; !queue.ended && now < end; now = uv_hrtime())
        (void)uv_cond_timedwait(&queue.changed, &queue.lock, end - now);
    bool ended = queue.ended;
    queue.closing = ended; /* else the thread goes on, as long as the process does */
    uv_mutex_unlock(&queue.lock);
    if (!ended)
        return false;
    (void)uv_thread_join(&queue.thread);
    uv_cond_destroy(&queue.changed);
    uv_mutex_destroy(&queue.lock);
    queue.running = false;
    return true;
}
