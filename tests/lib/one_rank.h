/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that is one rank of a group at a fake daemon: an own bucket and three shared ones over
 * two slots. For the tests of the library above the channel.
 */
#ifndef F8_TESTS_ONE_RANK_H
#define F8_TESTS_ONE_RANK_H

#include <check.h>

#include "client/f8client.h"
#include "tests/lib/fake_daemon.h"

#define ONE_RANK_ARENA ((size_t)1 << 20)

enum {
    EMBED = 0, /* bucket: own place, weight 0 (5 x 3, e4m3fn) */
    LAYER_0,   /* shared, weights 1 (4 x 2, e5m2, static) and 2 (4, raw fp32) */
    LAYER_1,   /* shared, weights 3 and 4, likewise */
    LAYER_2,   /* shared, weights 5 and 6, likewise */
};

struct one_rank {
    struct fake_daemon daemon;
    struct f8_client *client;
    struct f8_group *group;
    unsigned char *arena; /* owned: the daemon's writable mapping */
};

/* Connects and joins as rank 0 of `world_size`. */
void one_rank_join(struct one_rank *rank, uint32_t world_size);

/* one_rank_join, registers the buckets above, and seals with two slots. */
void one_rank_seal(struct one_rank *rank, uint32_t world_size);

/* The same with a script and f8_connect_options.reconnect_ms, for a group of two ranks. */
void one_rank_seal_as(struct one_rank *rank, fake_script *script, int reconnect_ms);

/* Seals the group with two slots. */
int one_rank_seal_again(struct one_rank *rank);

/* Gathers a bucket and waits for it. */
void one_rank_hold(struct one_rank *rank, uint32_t bucket);

/* Closes and stops the daemon. */
void one_rank_stop(struct one_rank *rank);

/* Asserts that f8_error_text() contains `part`. */
void assert_text(const char *part);

/* Asserts the status, and the text that goes with it. */
void assert_fails(int status, int expected, const char *part);

#endif
