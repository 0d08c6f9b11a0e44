/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A script of packets, turns of the backend and deaths, as bytes that may be anything, played to
 * three sessions: two trainers and an operator. Whatever it says, the daemon's rooms must come
 * through, and be empty when the sessions have ended. Any thread, one script at a time.
 */
#ifndef F8_TESTS_SESSION_FUZZ_H
#define F8_TESTS_SESSION_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "f8gather.pb-c.h"

#define FUZZ_CLIENTS 3

/* A step: one byte of op, one of detail, two of the packet's size (little-endian), the packet. */
enum fuzz_op {
    FUZZ_SEND,  /* detail: who sends, and which descriptors come along */
    FUZZ_TURN,  /* one work is done, one thing on devices, and the loop turns */
    FUZZ_DIE,   /* detail: who dies and is replaced by a newcomer */
    FUZZ_LEAVE, /* the same with a farewell */
    FUZZ_DRAIN, /* all work is done */
    FUZZ_OPS,   /* ops are taken modulo this */
};

#define FUZZ_HEAD 4

/* detail of FUZZ_SEND: the client plus this times the descriptors. */
enum fuzz_fds {
    FUZZ_NO_FD,
    FUZZ_REGION,
    FUZZ_TWO_REGIONS,
    FUZZ_PIPE,
    FUZZ_FDS,
};

#define FUZZ_DETAIL(client, fds) ((uint8_t)((client) + FUZZ_CLIENTS * (fds)))

/*
 * Aborts with a message on stderr if something is left over or answered wrongly. Gives the number
 * of gathers that were done, so that a test can tell that a script gets anywhere.
 */
uint64_t fuzz_play(const uint8_t *script, size_t size);

#define FUZZ_SCRIPT    65536
#define FUZZ_WHOLE_RUN 5 /* gathers of the script below */

/*
 * A script of a whole run that a well-behaved pair of trainers gives, on the host or on a device
 * each. Gives its size.
 */
size_t fuzz_whole_run(uint8_t script[FUZZ_SCRIPT], bool on_devices);

#endif
