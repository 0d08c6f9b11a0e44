/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A crew: processes that a test forks and leads from mark to mark. A member says that it has come
 * to a mark and waits there; the test looks at the world while all stand still, then lets them go.
 * Pipes carry this, so that no message of a socket is the test's own. Single-threaded.
 */
#ifndef F8_TESTS_CREW_H
#define F8_TESTS_CREW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CREW_MAX 64

struct crew_member {
    uint32_t index;
    int said, told; /* pipe ends; -1 in a member that nobody leads */
};

/* What a member does; 0 if all went well. It says on stderr what did not. */
typedef int crew_body(struct crew_member *member, const void *argument);

struct crew {
    uint32_t size;
    pid_t pids[CREW_MAX]; /* 0: ended */
    int said[CREW_MAX], told[CREW_MAX];
};

/* Forks `size` members that run `body`; each dies with the test. */
void crew_start(struct crew *crew, uint32_t size, crew_body *body, const void *argument);

/* Waits until all members that live are at their next mark; fails the test if one ends instead. */
void crew_await(struct crew *crew);

/* Lets all members go on from their mark. */
void crew_go(struct crew *crew);

/* SIGKILL to one member, and waits for its end. */
void crew_kill(struct crew *crew, uint32_t index);

/* Waits for the end of all members, each with `status`. */
void crew_end(struct crew *crew, int status);

/* In a member: comes to a mark and waits there. */
void crew_mark(struct crew_member *member);

#endif
