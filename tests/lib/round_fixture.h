/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A state machine of rounds under test, whose ops write down what they are told as text: a test
 * does something and compares what was said. One machine per process, on the test's only thread.
 */
#ifndef F8_TESTS_ROUND_FIXTURE_H
#define F8_TESTS_ROUND_FIXTURE_H

#include <check.h>

#include "daemon/round.h"
#include "status.h"

enum { A, B, C, D }; /* buckets */

struct round_fixture {
    struct rounds *rounds; /* owned */
    uint32_t ranks;
    struct round_cause cause; /* of the last break */
    uint64_t now, deadline_ms;
    int start_status;      /* what start() answers */
    bool prepare_begins;   /* what prepare() answers */
    bool clean_begins;     /* what clean() answers */
    uint32_t requests[32]; /* per rank, how many it has made */
    char said[4096];
};
extern struct round_fixture fix;

/* A machine with all ranks in. buckets: a letter each, 'o' for its own place, 's' for a slot. */
void fix_begin(uint32_t ranks, const char *buckets, uint32_t slots, uint32_t depth);
void fix_end(void);

/* A rank asks for its next collective; its n-th request has the tag 100 * (rank + 1) + n. */
int fix_ask(uint32_t rank, enum round_kind kind, uint32_t bucket);

/* The same, and it must be accepted. */
void fix_precompute(uint32_t rank);
void fix_gather(uint32_t rank, uint32_t bucket);

/* All ranks gather the bucket and hold it; what is said is forgotten. */
void fix_hold_all(uint32_t bucket);

/* What the machine broke of. */
void assert_cause(enum round_trouble trouble, int status, uint64_t number, uint32_t rank);

/* Once it is broken and has answered: everybody is refused, nothing waits. */
void assert_over(void);

/*
 * Whether exactly this was said since the last time; forgets it. Each op is a sentence ended by
 * "; ": "start 0 gather A at 2", "prepare 0 A at 2", "cancel", "clean 2", "broken", "100 OK".
 */
#define assert_said(text)                                                                          \
    do {                                                                                           \
        ck_assert_str_eq(fix.said, (text));                                                        \
        fix.said[0] = '\0';                                                                        \
    } while (0)

#endif
