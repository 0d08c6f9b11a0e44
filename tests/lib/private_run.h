/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A /run of the test's own, empty and seen by nobody else, in which it may be journald. Takes the
 * right to mount. The process stays in it.
 */
#ifndef F8_TESTS_PRIVATE_RUN_H
#define F8_TESTS_PRIVATE_RUN_H

#include <stdbool.h>

#define PRIVATE_RUN_JOURNAL "/run/systemd/journal/socket"

/* False: this user may not. Once a process. */
bool private_run_enter(void);

/* Listens where journald would: a socket of datagrams, CLOEXEC. Only in a private /run. */
int private_run_journal(void);

#endif
