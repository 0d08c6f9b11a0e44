/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the network gives without f8gather: hosts that send one another bytes over plain TCP, all
 * at once, to set gathers over several hosts against. One process of each host has an exchange; it
 * is not thread-safe. What a host sends bears its mark, so that it can be checked.
 */
#ifndef F8BENCH_EXCHANGE_H
#define F8BENCH_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "client/bench/error.h"
#include "client/bench/network.h"

struct exchange;

/*
 * Listens at the first address of an interface, IPv4 before IPv6, at a port of the kernel's choice.
 * The descriptor, owned by the caller, and the address for the other hosts; or -1.
 */
int exchange_listen(
    const char *interface, struct sockaddr_storage *ret_address, struct bench_error *error);

/* The same at this address, which has no port yet and gets the one that was chosen. */
int exchange_listen_at(struct sockaddr_storage *address, struct bench_error *error);

/* Which host this is, and the addresses where all listen by now. */
struct exchange_place {
    uint32_t host;
    uint32_t num_hosts;                       /* at most NETWORK_MAX_HOSTS */
    const struct sockaddr_storage *addresses; /* borrowed for the call */
    int listener;                             /* borrowed for the call */
    uint32_t patience_s;                      /* how long hosts wait for one another; 0: a minute */
};

/* The bytes that this host sends each host and gets from it; 0 for itself. */
struct exchange_sizes {
    uint64_t out[NETWORK_MAX_HOSTS];
    uint64_t in[NETWORK_MAX_HOSTS];
};

/*
 * Connects to all other hosts, which must do the same, with memory for exchanges of up to these
 * sizes, touched before. -1 with the reason: one could not be reached or did not come.
 */
int exchange_open(const struct exchange_place *place, const struct exchange_sizes *most,
    struct exchange **ret_exchange, struct bench_error *error);

/* NULL is fine. */
void exchange_close(struct exchange *exchange);

/*
 * Sends and receives so much, with all hosts at once; the others must want the same. -1 with the
 * host that was lost, or with which nothing moved for so long.
 */
int exchange_direct(
    struct exchange *exchange, const struct exchange_sizes *sizes, struct bench_error *error);

/*
 * The same parts along a ring, in num_hosts - 1 turns: in each a host sends its next neighbour the
 * part that it had from the one before. `parts`: the size of each host's part, which fits what it
 * was opened for.
 */
int exchange_ring(struct exchange *exchange, const uint64_t *parts, struct bench_error *error);

/* Whether all that came in the last exchange bears its sender's mark; -1: what does not. */
int exchange_check(
    const struct exchange *exchange, const struct exchange_sizes *sizes, struct bench_error *error);

#endif
