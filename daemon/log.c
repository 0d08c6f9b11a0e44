/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of log: one write to stderr a line, so that lines of several processes do not mix. Where
 * stderr is the journal they go to journald itself, for the sake of their fields; where that cannot
 * be, "<N>" on stderr carries the priority; elsewhere a word does. Names that peers chose appear in
 * lines, so what is not printable is replaced: a peer cannot forge a line, nor command the terminal
 * that shows it.
 * Called by every room on the loop's thread.
 */
#include "log.h"

#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/log_journal.h"
#include "protocol.h"

#define LINE_SIZE 1024

/* Of a log_limit. */
#define LIMIT_LINES     10
#define LIMIT_WINDOW_MS 10000

static const struct {
    enum log_level level;
    const char *word;
} levels[] = {
    {LOG_LEVEL_ERROR, "error"},
    {LOG_LEVEL_WARNING, "warning"},
    {LOG_LEVEL_INFO, "info"},
    {LOG_LEVEL_DEBUG, "debug"},
};

#define NUM_LEVELS (sizeof(levels) / sizeof(levels[0]))

static enum log_level max_level = LOG_LEVEL_INFO;
static unsigned missing; /* lines since the last one that was taken */

void log_set_level(enum log_level level)
{
    max_level = level;
}

enum log_level log_get_level(void)
{
    return max_level;
}

int log_level_parse(const char *word)
{
    for (size_t i = 0; i < NUM_LEVELS; i++)
        if (strcmp(levels[i].word, word) == 0)
            return (int)levels[i].level;
    return -1;
}

const char *log_level_word(enum log_level level)
{
    for (size_t i = 0; i < NUM_LEVELS; i++)
        if (levels[i].level == level)
            return levels[i].word;
    return "info";
}

/* systemd's rule: $JOURNAL_STREAM is "device:inode" of the stream that it gave us. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    uintmax_t device, inode;
    struct stat st;
    if (!stream || sscanf(stream, "%ju:%ju", &device, &inode) != 2)
        return false;
    return fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

/* Whether a line can be written at once: a pipe that nobody reads fills up and would stop us. */
static bool stderr_takes_a_line(void)
{
    struct pollfd poll_fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLOUT);
}

/* There is nobody to tell that stderr takes no line. */
__attribute__((format(printf, 1, 2))) static void write_line(const char *format, ...)
{
    char line[LINE_SIZE + 64];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    ssize_t written = write(STDERR_FILENO, line, (size_t)length);
    (void)written;
}

void log_write_marked(enum log_level level, const char *message)
{
    write_line("<%d>%s\n", (int)level, message);
}

/* False: it was left out. `sure`: stderr has just been found to take lines. */
static bool put_line(
    const struct log_fields *fields, enum log_level level, const char *message, bool sure)
{
    bool journal = stderr_is_journal();
    enum journal_put put = journal ? log_journal_put(fields, level, message) : JOURNAL_NONE;
    if (put != JOURNAL_NONE)
        return put == JOURNAL_TAKEN;
    if (!sure && !stderr_takes_a_line())
        return false;
    if (journal)
        log_write_marked(level, message);
    else
        write_line("f8gatherd: %s: %s\n", log_level_word(level), message);
    return true;
}

/* False: there is no room for this line either. */
static bool tell_missing(void)
{
    char note[80];
    (void)snprintf(note, sizeof(note),
        "%u lines are missing here: they came faster than they were taken", missing);
    if (!put_line(NULL, LOG_LEVEL_WARNING, note, false))
        return false;
    missing = 0;
    return true;
}

void log_of(const struct log_fields *fields, enum log_level level, const char *format, ...)
{
    char message[LINE_SIZE];
    va_list args;
    if (level > max_level)
        return;

    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    f8_proto_make_printable(message);

    bool told = missing > 0 && tell_missing();
    if (missing > 0 || !put_line(fields, level, message, told))
        missing++;
}

void log_close(unsigned patience_ms)
{
    if (log_journal_close(patience_ms) && missing > 0 && tell_missing())
        (void)log_journal_close(patience_ms);
}

bool log_allows(struct log_limit *limit, uint64_t now)
{
    if (now - limit->since >= LIMIT_WINDOW_MS) {
        if (limit->left_out > 0)
            log_warning("%u lines such as the next one were left out", limit->left_out);
        *limit = (struct log_limit){.since = now};
    }
    bool allowed = limit->written < LIMIT_LINES;
    limit->written += allowed;
    limit->left_out += !allowed;
    return allowed;
}
