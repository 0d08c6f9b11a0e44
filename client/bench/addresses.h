/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hosts of a run that are machines, each with an f8bench of its own: the list of their
 * addresses, and the interface of this one. Called by the parent, while it reads its command line.
 */
#ifndef F8BENCH_ADDRESSES_H
#define F8BENCH_ADDRESSES_H

#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "client/bench/error.h"
#include "client/bench/network.h"

/* Where the f8bench of host 0 listens, unless the list tells another port. */
#define ADDRESSES_PORT 29888

struct addresses {
    uint32_t count;
    struct sockaddr_storage hosts[NETWORK_MAX_HOSTS]; /* with port 0 but for host 0 */
};

/*
 * Reads "10.0.0.1:7000,10.0.0.2" or "[fd48::1]:7000,fd48::2": 2 to NETWORK_MAX_HOSTS numeric
 * addresses of one family, each once; only the first may have a port. -1 with what is wrong.
 */
int addresses_parse(const char *list, struct addresses *ret_addresses, struct bench_error *error);

/* The address of a host without its port, as text; room for INET6_ADDRSTRLEN bytes. */
void addresses_text(const struct addresses *addresses, uint32_t host, char *text, size_t size);

/* The interface of this machine that has a host's address. -1: none has it. */
int addresses_interface(const struct addresses *addresses, uint32_t host,
    char interface[IF_NAMESIZE], struct bench_error *error);

/* The port of an address, and another one for it; in the order of hosts' bytes. */
uint16_t addresses_port(const struct sockaddr_storage *address);
void addresses_set_port(struct sockaddr_storage *address, uint16_t port);

/* How much of it the kernel is to read. */
socklen_t addresses_size(const struct sockaddr_storage *address);

#endif
