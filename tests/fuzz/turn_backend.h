/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend that computes on the caller's thread, one work a turn, in the order of submission: so
 * that a sequence of requests and turns is the same every time, and an adversary chooses what
 * happens while work is in flight.
 */
#ifndef F8_TESTS_TURN_BACKEND_H
#define F8_TESTS_TURN_BACKEND_H

#include <stdbool.h>

#include "daemon/backend.h"

/* NULL if memory is short. Freed with backend_free, when nothing is left to do. */
struct backend *turn_backend_new(void);

/* Does the oldest work or reservation and tells of its end; false if there is none. */
bool turn_backend_turn(struct backend *backend);

#endif
