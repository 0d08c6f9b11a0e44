/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A channel to a fake daemon, and pings over it: what the channel's tests are made of.
 */
#ifndef F8_TESTS_PINGS_H
#define F8_TESTS_PINGS_H

#include <check.h>

#include "client/channel.h"
#include "tests/lib/fake_daemon.h"

/* Starts the daemon with the script, and connects to it. */
struct channel *open_channel(struct fake_daemon *daemon, fake_script *script);

/* Closes and stops both. */
void finish(struct fake_daemon *daemon, struct channel *channel);

/* Asserts that this thread's error contains `part`. */
void assert_text(const char *part);

/* Sends a ping; its id. */
uint64_t send_ping(struct channel *channel);

/* Waits for a ping, and checks that the reply is its own. */
void await_ping(struct channel *channel, uint64_t id);

/* Posts a release of a bucket. */
void post_release(struct channel *channel, uint32_t bucket);

/* For scripts: answers a ping with its own id. */
bool reply_ping(int fd, uint64_t id, const char *text);

#endif
