/* SPDX-License-Identifier: Apache-2.0 */
/*
 * journald, played by the test in a /run of its own (private_run.h), and the pipe that is given to
 * a daemon as the standard error that journald reads. One at a time; failures fail the test.
 */
#ifndef F8_TESTS_JOURNAL_H
#define F8_TESTS_JOURNAL_H

#include <stdbool.h>

/* Listens, with an empty pipe that JOURNAL_STREAM names; and ends, with a stderr as it was. */
void journal_begin(void);
void journal_end(void);

/* The pipe becomes this process's standard error. */
void journal_take_stderr(void);

/* What has come by the pipe since the last time. */
const char *journal_stderr(void);

/* journald ends; is killed, and leaves its socket behind; and is started again. */
void journal_go(void);
void journal_die(void);
void journal_return(void);

/* The next entry, if one comes in this time. */
bool journal_try(int wait_ms);

/* The next entry, which must come. */
const char *journal_receive(void);

/* The one that came last. Each line ends with a newline, as does what is put before the first. */
const char *journal_entry(void);

/* Whether it has this field, "NAME=value"; and that it has. */
bool journal_has(const char *field);
void journal_expect(const char *field);

/* The first entry from here on with these words in its message. */
void journal_await(const char *words);

#endif
