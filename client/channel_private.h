/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the three sources of the channel share: channel.c (its life), channel_send.c (the way out)
 * and channel_wait.c (the way back). Not for other rooms.
 */
#ifndef F8_CLIENT_CHANNEL_PRIVATE_H
#define F8_CLIENT_CHANNEL_PRIVATE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "client/channel.h"
#include "client/pending.h"
#include "client/wire.h"

/* No deadline. Deadlines are milliseconds of CLOCK_MONOTONIC. */
#define CHANNEL_NEVER INT64_MAX

/* A message without a reply that waits for room in the socket. A Release has at most 30 bytes. */
struct post {
    uint8_t length;
    uint8_t packet[47];
};

/* A thread that waits, on its own stack, in the channel's list. */
struct waiter {
    struct waiter *next; /* borrowed: from the other thread's stack, while in the list */
    uint64_t id;         /* of the request; 0: it waits for room in the socket */
    bool room;
    sem_t wake;
};

/* Locks: send_lock is taken before lock; nothing is called outward under either. */
struct channel {
    int fd;                /* owned */
    int poke;              /* owned: eventfd that makes the leader poll anew */
    char socket[128];      /* path */
    char *daemon_version;  /* owned */
    pid_t daemon_pid;      /* 0 until the Hello is answered */
    uint64_t capabilities; /* of the daemon: bits by enum f8_capability */
    int64_t limit;         /* deadline of channel_call */
    bool heeds_signals;    /* they end channel_ask; while the Hello is answered */

    pthread_mutex_t send_lock; /* numbering and sending, so that ids ascend on the socket */

    pthread_mutex_t lock; /* all below but the receiver */
    struct pending_table pending;
    struct waiter *waiters; /* borrowed: from the stacks of those who wait */
    bool led;               /* some thread polls and receives */
    bool want_room;         /* the leader is to poll for room too */
    int dead;               /* 0, or why the connection is of no use any more */
    char dead_text[512];
    struct post *posts; /* owned: a ring */
    uint32_t first_post, num_posts, max_posts;

    struct wire_receiver receiver; /* the leader's */

    atomic_uint_fast64_t sent, received, sent_bytes, received_bytes;
};

/* channel_wait.c */

/* Waits for room in the socket, reading replies meanwhile. F8_EINTR, or why the channel is dead. */
int channel_await_room(struct channel *channel);

/* Makes the leader look again at what it polls for; lock held. */
void channel_poke(struct channel *channel);

/* Reads the replies that are here, without waiting, unless a leader does so already; lock held. */
void channel_progress(struct channel *channel);

/* Ends the channel: all waits and all later calls fail; the first cause is kept; lock held. */
void channel_fail(struct channel *channel, int status, const char *text);

/* The error of a dead channel, set for this thread; lock held. */
int channel_dead_error(struct channel *channel);

/* channel_wait, and the whole message if it is wanted. */
int channel_wait_until(struct channel *channel, uint64_t id, int64_t deadline,
    struct channel_reply *ret_reply, F8__Reply **ret_message);

/* Now plus timeout_ms; CHANNEL_NEVER if negative. */
int64_t channel_deadline(int timeout_ms);

/* channel_send.c */

/* Sends the posts that wait as far as there is room, unless another thread is sending. */
void channel_send_posts(struct channel *channel);

/* Numbers and sends; `whole`: the reply is wanted as a message. */
int channel_send_with(struct channel *channel, F8__Request *request, const struct wire_fds *fds,
    bool whole, uint64_t *ret_id);

#endif
