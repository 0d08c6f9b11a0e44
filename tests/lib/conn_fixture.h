/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections for tests: both ends in one thread, over real sockets and a loop that the test
 * turns by hand, with limits small enough to be met.
 */
#ifndef F8_TESTS_CONN_FIXTURE_H
#define F8_TESTS_CONN_FIXTURE_H

#include "daemon/conn.h"

#define CREDIT 8

extern uv_loop_t loop;
extern struct session_context session;
extern struct conn_context conns;
extern int descriptors; /* open when the test began */

/* Of this process. */
int open_descriptors(void);

/* Before each test: rooms with small limits. */
void set_up(void);

/* After each: nothing may be left open. */
void tear_down(void);

/* A connection; gives the client's end. */
int connect_one(void);

/* All that can happen now does. */
void turn(void);

/* Turns the loop until that many connections are left. */
void await_connections(uint32_t count);

/* Sends bytes, with descriptors; what sendmsg returns. */
int send_packed(int fd, const void *bytes, size_t size, const int *fds, size_t num_fds);

/* Sends a request, with descriptors. */
int send_request(int fd, F8__Request *request, const int *fds, size_t num_fds);

/* Sends a ping. */
int send_ping(int fd, uint64_t id);

/* The next reply that is in the socket now, to be freed; NULL: none. */
F8__Reply *next_reply(int fd);

/* Takes the next reply, which must be this. */
void expect(int fd, uint64_t id, int status);

/* Says Hello. */
void send_hello(int fd, F8__Role role);

/* The same, and takes the answer. */
void hello(int fd, F8__Role role);

/* Asks without reading until the daemon reads no more; gives the number of pings that went out. */
uint64_t flood(int fd, uint64_t first);

#endif
