/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of f8bench over several "machines": addresses of the loopback, or network namespaces,
 * each with an f8bench of its own. For whole-process tests, in their only thread; failures fail
 * the test.
 */
#ifndef F8_TEST_BENCH_MACHINES_H
#define F8_TEST_BENCH_MACHINES_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/bench/network.h"
#include "lib/patience.h"
#include "lib/program.h"

/* Long enough for hosts that have begun before, and for their steps, on a busy machine; tests wait
 * as long for those that do not come. */
#define SHORT_DEADLINE_S 5
#define HANG_DEADLINE_S  (PATIENCE_S > 60 ? 15 : 6)

#define MACHINES_MAX 3

/* The f8bench of each, and the port of host 0. */
extern struct program machines[MACHINES_MAX];
extern uint16_t machines_port;
extern bool machines_ipv6; /* in namespaces; false unless a test sets it */
extern char machines_directory[];

/* Fixtures: at addresses of the loopback; in namespaces; nothing may be left of either. */
void machines_make(void);
void machines_make_network(void);
void machines_unmake(void);

/* Starts the f8bench of a host, of so many, with --model tiny and more flags. */
void machines_start(uint32_t host, uint32_t count, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Its end with this status. */
void machines_expect(uint32_t host, int status);
void machines_done(uint32_t count);

/* "host 1 (127.0.0.2)" and what follows must be in a text. */
void machines_expect_named(const char *text, uint32_t host, const char *what);

/* The test's own thread and what it starts are where a host is. */
void machines_enter(uint32_t host);

/* A child of a host's f8bench, a daemon or the last of its ranks, once there is one. */
pid_t machines_await_child(uint32_t host, bool daemon);

/* Runs a suite of the tests that `add` adds, at addresses of the loopback (with `more`, that need
 * nothing else) and, as root, in namespaces (with `wired`). The program's exit status. */
int machines_run(const char *name, void (*add)(TCase *cases), void (*more)(TCase *cases),
    void (*wired)(TCase *cases));

#endif
