/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl as a whole program against a fake daemon whose answers the test gives: each call has a
 * daemon of its own, which serves until f8ctl ends. Answers are given on the daemon's thread, while
 * the test waits.
 */
#ifndef F8_TESTS_CTL_FAKE_H
#define F8_TESTS_CTL_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/lib/fake_daemon.h"

/* Answers a request after the Hello; `memfd` came with it, or is -1. False: the client is gone. */
typedef bool ctl_fake_answer(int fd, const F8__Request *request, int memfd);

/* Sends what was inspected. */
bool ctl_fake_inspected(int fd, const F8__Request *request, F8__InspectReply *inspect);

/* Runs f8ctl with these arguments and --socket. What it prints in `text`; the exit status. */
int ctl_fake_run(ctl_fake_answer *answer, const char *arguments, char *text, size_t size);

/* The same on a terminal of that many columns: see ctl_terminal.h. */
int ctl_fake_on_terminal(ctl_fake_answer *answer, const char *environment, const char *arguments,
    int columns, char *text, size_t size);

/* As ctl_fake_run, and f8ctl must end well. */
void ctl_fake_must(ctl_fake_answer *answer, const char *arguments, char *text, size_t size);

#endif
