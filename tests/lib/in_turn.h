/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Daemons that take one another's place at the same socket, for the tests of clients that connect
 * again by themselves: a script for one_rank_seal_as, and what ends and follows it. One at a time
 * in a process.
 */
#ifndef F8_TESTS_IN_TURN_H
#define F8_TESTS_IN_TURN_H

#include <stdatomic.h>

#include "tests/lib/one_rank.h"

/* No daemon takes the place of one that ends, until this is false and fake_go. */
extern atomic_bool in_turn_away;

/* Script: each willing. */
void in_turn_serve(struct fake_daemon *daemon, int fd);

/* Ends the one that is there. */
void in_turn_end(void);

/* Asserts F8_OK. */
void must(int status);

/* Re-joins and seals, and all is as it was. */
void in_turn_recover(struct one_rank *rank);

#endif
