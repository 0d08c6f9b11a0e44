/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines to the journal with their fields, in their order, by a thread that log_journal has for it.
 * Called by log on the loop's thread, where standard error is the journal.
 */
#ifndef F8_DAEMON_LOG_JOURNAL_H
#define F8_DAEMON_LOG_JOURNAL_H

#include "daemon/log.h"

enum journal_put {
    JOURNAL_TAKEN, /* it is sent, or written to stderr, when its turn comes */
    JOURNAL_FULL,  /* as many lines wait as may: it is left out */
    JOURNAL_NONE,  /* nothing here sends it: built without libsystemd, or there is no thread */
};

/* Never waits. What is not printable in names is replaced; the message is printable. */
enum journal_put log_journal_put(
    const struct log_fields *fields, enum log_level level, const char *message);

/*
 * Waits until all is sent and the thread has ended, at most so long; lines may follow. False: some
 * still wait.
 */
bool log_journal_close(unsigned patience_ms);

/* Of log, on any thread: "<N>message" to stderr, in one write, whether that takes it or not. */
void log_write_marked(enum log_level level, const char *message);

#endif
