/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line of log to stderr, or, where that is the journal, to journald, with fields by which it
 * can be found (journalctl JOB=run). A line that stderr does not take at once, or that comes while
 * many wait for journald, is left out, and the next one, or the end, says so: a reader that stops
 * must not stop the daemon. SIGPIPE must be ignored. Called from the loop's thread by every room.
 */
#ifndef F8_DAEMON_LOG_H
#define F8_DAEMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level {
    LOG_LEVEL_ERROR = 3, /* syslog's numbers */
    LOG_LEVEL_WARNING = 4,
    LOG_LEVEL_INFO = 6,
    LOG_LEVEL_DEBUG = 7,
};

/* Lines above this level are dropped. Before the loop starts, or on it. */
void log_set_level(enum log_level level);

/* The one that holds. */
enum log_level log_get_level(void);

/* "error", "warning", "info" or "debug" to its level; -1 for another word. */
int log_level_parse(const char *word);

/* The other way round. */
const char *log_level_word(enum log_level level);

/* For a line that peers can cause at will. Zero-initialise. */
struct log_limit {
    uint64_t since; /* loop time, ms */
    unsigned written, left_out;
};

/* Whether the line may be written now: ten in ten seconds. Says first how many were left out. */
bool log_allows(struct log_limit *limit, uint64_t now);

/* What a line is about, besides what its text says. All strings are borrowed for the call. */
struct log_fields {
    const char *job, *group, *bucket, *weight; /* NULL: of none */
    const char *host;                          /* another one, by its name */
    uint64_t rank;                             /* LOG_RANK(rank); 0: of none */
    uint32_t pid;                              /* of a client; 0: of none */
};

#define LOG_RANK(rank) ((uint64_t)(rank) + 1)

/* A line with fields, which may be NULL. */
__attribute__((format(printf, 3, 4))) void log_of(
    const struct log_fields *fields, enum log_level level, const char *format, ...);

/* How long an end waits for lines: one in order, and one at once. */
#define LOG_CLOSE_MS         2000
#define LOG_CLOSE_AT_ONCE_MS 200

/*
 * The last call before the process ends: waits until the lines that wait for journald are sent, at
 * most so long, and then says how many are missing, if any, for which it waits as long again at
 * most. Without a journal there is nothing to wait for.
 */
void log_close(unsigned patience_ms);

#define log_line(level, ...) log_of(NULL, level, __VA_ARGS__)

#define log_error(...)   log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
