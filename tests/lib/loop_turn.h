/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A turn of a loop, for tests that turn it until a condition holds.
 *
 * UV_RUN_ONCE is not it: it runs the timers that are due, and then still waits for something to
 * happen. On a busy machine the timer that makes the condition true is often due already, and the
 * wait is for whatever comes next, perhaps a deadline of ten minutes.
 */
#ifndef F8_TESTS_LOOP_TURN_H
#define F8_TESTS_LOOP_TURN_H

#include <poll.h>
#include <uv.h>

/* Waits until the loop has something to do, and does what there is; 0 if the loop has ended. */
static inline int loop_turn(uv_loop_t *turned)
{
    struct pollfd events = {.fd = uv_backend_fd(turned), .events = POLLIN};
    (void)poll(&events, 1, uv_backend_timeout(turned));
    return uv_run(turned, UV_RUN_NOWAIT);
}

#endif
