/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that speaks raw packets to a real daemon, for all that the library would never send,
 * and a look into the daemon from outside: what it says it holds, and its descriptors.
 */
#ifndef F8_TESTS_RAW_CLIENT_H
#define F8_TESTS_RAW_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "f8gather.pb-c.h"
#include "lib/ranks.h"
#include "lib/test_daemon.h"

struct raw_client {
    int fd; /* owned */
    uint64_t last_id;
};

/* Connects; says nothing yet. */
void raw_open(struct raw_client *raw, const struct test_daemon *daemon);

/* Connects and greets, as a trainer of the job, or (NULL) as an operator. */
void raw_greet(struct raw_client *raw, const struct test_daemon *daemon, const char *job);

void raw_close(struct raw_client *raw);

/* Sends bytes with descriptors (borrowed); false if the daemon has closed. */
bool raw_send_bytes(
    struct raw_client *raw, const void *bytes, size_t size, const int *fds, size_t num_fds);

/* Gives the request an id and sends it. */
bool raw_send(struct raw_client *raw, F8__Request *request, const int *fds, size_t num_fds);

/*
 * The next reply, to be freed with raw_free; NULL if the daemon closed. *ret_fd (may be NULL)
 * is the descriptor that came along, or -1.
 */
F8__Reply *raw_receive(struct raw_client *raw, int *ret_fd);
void raw_free(F8__Reply *reply);

/* Sends and takes the reply, which must have the request's id. */
F8__Reply *raw_ask(
    struct raw_client *raw, F8__Request *request, const int *fds, size_t num_fds, int *ret_fd);

/* The same, as an outcome; F8_ECONN if the daemon closed. */
struct outcome raw_try(
    struct raw_client *raw, F8__Request *request, const int *fds, size_t num_fds);

/* A sealed memfd of `size` bytes; the caller closes it. */
int raw_memfd(size_t size);

/* A raw client as the only rank of a group with one raw weight, sealed; gives the arena's fd. */
int raw_sealed(struct raw_client *raw, const struct test_daemon *daemon, uint32_t *ret_group);

/* ---- the daemon as it is seen from outside ---- */

/* Waits until nobody is connected and nothing is held, and counts the daemon's descriptors. */
int daemon_descriptors(const struct test_daemon *daemon);

/* Waits, bounded, for the same, and for that number of descriptors; fails the test otherwise. */
void daemon_await_empty(const struct test_daemon *daemon, int before);

/* Waits, bounded, until exactly these ranks (bit r: rank r) are missing in an open collective. */
void daemon_await_missing(const struct test_daemon *daemon, const char *kind, uint32_t ranks);

#endif
