/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_journal.h where there is no libsystemd: log writes "<N>" to stderr, from which journald has
 * lines and their priorities, and no fields. On the loop's thread.
 */
#include "daemon/log_journal.h"

enum journal_put log_journal_put(
    const struct log_fields *fields, enum log_level level, const char *message)
{
    (void)fields;
    (void)level;
    (void)message;
    return JOURNAL_NONE;
}

bool log_journal_close(unsigned patience_ms)
{
    (void)patience_ms;
    return true;
}
