/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines to the journal with their fields. Called by log on the loop's thread, where standard error
 * is the journal.
 */
#ifndef F8_DAEMON_LOG_JOURNAL_H
#define F8_DAEMON_LOG_JOURNAL_H

#include "daemon/log.h"

enum journal_sent {
    JOURNAL_SENT,
    JOURNAL_FULL, /* it does not take a line now */
    JOURNAL_NONE, /* there is none where journald listens */
};

/* Sends a line; the message and the fields are text without control characters but for those of
 * names, which are replaced here. */
enum journal_sent log_journal_send(
    const struct log_fields *fields, enum log_level level, const char *message);

#endif
