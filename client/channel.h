/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to the daemon, shared by any number of threads: numbers and sends requests, and
 * routes the replies to those who wait for them. Needs nothing of f8client.h, so that f8ctl can
 * stand on it too. Failures are told by error_set (client/error.h).
 *
 * There is no thread of the library's own. Of the threads that wait, one leads: it polls, receives
 * and wakes the others whose replies came; when it has its own, another one takes over.
 */
#ifndef F8_CLIENT_CHANNEL_H
#define F8_CLIENT_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "f8gather.pb-c.h"
#include "proto/protocol.h"

struct channel;

struct channel_options {
    const char *socket; /* path; NULL: where socket_connect looks */
    const char *job;    /* NULL for ADMIN */
    const char *token;  /* may be NULL */
    F8__Role role;
    int timeout_ms; /* for the daemon to accept and to answer the Hello; 0: SOCKET_PATIENCE_MS */
    bool heeds_signals; /* one ends the wait for that answer: F8_EINTR */
};

/* Messages both ways since channel_open. */
struct channel_traffic {
    uint64_t sent, received;
    uint64_t sent_bytes, received_bytes;
};

/* How a request ended. */
struct channel_reply {
    int status; /* of the daemon; F8_ECONN or F8_EPROTO if the connection was lost */
    F8__Reply__BodyCase body;
    uint64_t first;  /* region; group; arena_size; offset; uptime_ms; size: by the body */
    uint64_t second; /* size; generation; syncs; use; -; syncs */
    uint32_t done;   /* of a gather or precompute on devices; 0: none */
    int fd;          /* owned by whoever takes the reply; -1: none */
};

/*
 * Connects and says Hello. F8_ENODAEMON: nobody answers; F8_EVERSION: another major version, the
 * text names both; F8_EPERM: wrong token, or no right to be ADMIN.
 */
int channel_open(const struct channel_options *options, struct channel **ret_channel);

/* Ends the connection and frees it. No other thread may use it any more. NULL is allowed. */
void channel_close(struct channel *channel);

/* Whether it was lost, F8_ECONN: all that is asked for says so now. */
bool channel_is_lost(struct channel *channel);

/* Ends the connection; what is left is to be closed, and meanwhile says F8_ECONN to everyone. */
void channel_hang_up(struct channel *channel);

/* channel_close for a forked child: frees, but leaves the parent's connection alone. */
void channel_close_child(struct channel *channel);

/*
 * Numbers the request and sends it with `memfd` on it (-1: none); fills request->id. *ret_id is to
 * be given to channel_wait or channel_abandon. Blocks only while the socket is full, and reads
 * replies meanwhile. F8_EINTR: a signal came first, and nothing was sent.
 */
int channel_send(struct channel *channel, F8__Request *request, int memfd, uint64_t *ret_id);

/* channel_send of a request whose reply is to be taken by channel_wait_whole. */
int channel_send_whole(struct channel *channel, F8__Request *request, int memfd, uint64_t *ret_id);

/*
 * Sends a request that has no reply, without ever blocking: while the socket is full, or another
 * thread is sending, it is kept and goes out before the next request. channel_reserve_posts must
 * have made room for it. On a lost connection it is dropped.
 */
void channel_post(struct channel *channel, F8__Request *request);

/* Room for `count` posts that wait at once. */
int channel_reserve_posts(struct channel *channel, uint32_t count);

/*
 * Waits for the reply, at most timeout_ms (negative: no limit). F8_OK: the request has ended, its
 * id is used up, and *ret_reply says how (if its status is not F8_OK, error_text says why).
 * F8_EDEADLINE, F8_EINTR: it is still open. F8_ENOENT: there is no such open request.
 */
int channel_wait(
    struct channel *channel, uint64_t id, int timeout_ms, struct channel_reply *ret_reply);

/*
 * channel_wait for what channel_send_whole sent, which gives the whole message too, to be freed
 * with f8__reply__free_unpacked(, NULL); NULL if the request failed or there is no memory for it.
 */
int channel_wait_whole(struct channel *channel, uint64_t id, int timeout_ms,
    struct channel_reply *ret_reply, F8__Reply **ret_message);

/* Whether channel_wait would return at once; reads what has come, waits for nothing. */
bool channel_test(struct channel *channel, uint64_t id);

/* Whether the reply is here already, without looking at the socket. */
bool channel_has_reply(struct channel *channel, uint64_t id);

/* Nobody will wait for this request: its reply is dropped when it comes. 0 is allowed. */
void channel_abandon(struct channel *channel, uint64_t id);

/*
 * Sends and waits without limit, not ended by signals: for requests that the daemon answers at
 * once. Returns the reply's status. ret_reply may be NULL if no descriptor comes.
 */
int channel_call(
    struct channel *channel, F8__Request *request, int memfd, struct channel_reply *ret_reply);

/*
 * Until another call of this, channel_call waits at most timeout_ms from now in all (negative: no
 * limit, as at first), and then is F8_EDEADLINE. No other thread may use the channel meanwhile.
 */
void channel_limit(struct channel *channel, int timeout_ms);

/* channel_call with `count` descriptors on the packet, at most F8_PROTO_MAX_FDS. */
int channel_call_with(struct channel *channel, F8__Request *request, const int *fds, uint32_t count,
    struct channel_reply *ret_reply);

/*
 * As channel_call, but gives the whole reply, to be freed with f8__reply__free_unpacked(, NULL),
 * and waits at most timeout_ms. Returns the reply's status; *ret_reply is set only on F8_OK.
 */
int channel_ask(
    struct channel *channel, F8__Request *request, int timeout_ms, F8__Reply **ret_reply);

/* Of the daemon at the other end. The strings live as long as the channel. */
const char *channel_socket(const struct channel *channel);
const char *channel_daemon_version(const struct channel *channel);
pid_t channel_daemon_pid(const struct channel *channel);

/* Whether the daemon named this capability. */
bool channel_can(const struct channel *channel, enum f8_capability capability);

void channel_traffic(struct channel *channel, struct channel_traffic *ret_traffic);

#endif
