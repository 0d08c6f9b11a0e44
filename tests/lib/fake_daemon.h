/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon for the client's tests: listens in a directory of its own, takes one connection on a
 * thread, and answers it by a script. `fake_serve` is the script of a willing daemon with one
 * rank, in any of up to FAKE_GROUPS groups, which are numbered from FAKE_GROUP on in the order of
 * joining; tests change it by its settings, or write a script of their own from the same pieces.
 */
#ifndef F8_TESTS_FAKE_DAEMON_H
#define F8_TESTS_FAKE_DAEMON_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "f8gather.pb-c.h"
#include "proto/protocol.h"

#define FAKE_PID        4711
#define FAKE_CREDIT     64
#define FAKE_GROUP      7
#define FAKE_GENERATION 3
#define FAKE_WITHHELD   64
#define FAKE_GROUPS     8
#define FAKE_WEIGHTS    8

struct fake_daemon;
typedef void fake_script(struct fake_daemon *daemon, int fd);

/* A group that was joined; the script's own. */
struct fake_group {
    char name[32];
    uint32_t buckets; /* a group without any is sealed without an arena */
};

struct fake_daemon {
    char directory[64];
    char socket[96];
    int listener;
    int go;     /* eventfd: the test lets the script go on */
    int loaded; /* eventfd: the script tells the test that it is where it should be */
    pthread_t thread;
    fake_script *script;
    bool spoils; /* the script damages replies: requests may name groups that there are not */
    /* Settings of fake_serve; set before it runs, or atomically. */
    atomic_int arena;        /* memfd that SealReply brings; -1: none */
    atomic_uint done;        /* event that GatherReply names */
    _Atomic uint64_t offset; /* of every gathered bucket in the arena */
    atomic_int withhold;     /* body case of requests whose replies wait for fake_go; 0: none */
    atomic_int fail_body;    /* body case that is refused ... */
    atomic_int fail_status;  /* ... with this status and "refused by the test" */
    _Atomic(const char *) capability;      /* the only one that it names; NULL: it names none */
    atomic_int counts[32];                 /* requests seen, by body case */
    atomic_int more;                       /* Register packets with more set */
    atomic_int weights;                    /* in all Register packets */
    atomic_int generation;                 /* that the next Join gives */
    _Atomic uint64_t use;                  /* counts gathers */
    atomic_uint group;                     /* of the last request that names one */
    atomic_uint amax_groups[FAKE_WEIGHTS]; /* of the last Register's weights */
    struct fake_group groups[FAKE_GROUPS];
    atomic_uint seal_state; /* of the last Seal */
    _Atomic uint64_t seal_syncs;
    atomic_int seal_memfd;       /* owned; -1: none came */
    _Atomic uint64_t syncs;      /* that SealReply brings */
    atomic_int export_memfd;     /* that ExportReply brings; -1: none */
    _Atomic int64_t export_size; /* that ExportReply tells; -1: as it is */
};

/* Starts listening, with `script` to run on the connection. Aborts the test if it cannot. */
void fake_start(struct fake_daemon *daemon, fake_script *script);

/* Ends the thread, which must have, or soon see, a closed connection; removes the directory. */
void fake_stop(struct fake_daemon *daemon);

/* Lets a script that waits in fake_await_go, or withheld replies, go on. */
void fake_go(struct fake_daemon *daemon);
void fake_await_go(struct fake_daemon *daemon);

/* The other way round: the test waits until the script has said that it is ready. */
void fake_loaded(struct fake_daemon *daemon);
void fake_await_loaded(struct fake_daemon *daemon);

/* The next request, to be freed with fake_free; NULL at a goodbye or the connection's end. */
F8__Request *fake_receive(int fd, int *ret_memfd);
void fake_free(F8__Request *request);

/* The same with all descriptors that came, the caller's to close, and with goodbyes. */
F8__Request *fake_receive_fds(int fd, int fds[F8_PROTO_MAX_FDS], uint32_t *ret_count);

/* Sends a reply; blocks while the client does not read. False: the client is gone. */
bool fake_reply(int fd, const F8__Reply *reply, int memfd);
bool fake_reply_status(int fd, uint64_t id, int status, const char *text);
bool fake_send_bytes(int fd, const void *bytes, size_t size);
bool fake_send_packet(int fd, const void *bytes, size_t size, int memfd);

/*
 * Keeps what tests and later answers ask for of a request. `memfd` came with it and is taken; -1:
 * none. fake_serve does so for each.
 */
void fake_note(struct fake_daemon *daemon, const F8__Request *request, int memfd);

/* The willing daemon's reply to a request, for scripts that spoil it; gives its size. */
size_t fake_pack_answer(
    struct fake_daemon *daemon, const F8__Request *request, uint8_t *packet, int *ret_memfd);

/* Takes the Hello and answers it. */
bool fake_hello(int fd);

/* Script: a willing daemon, until the client closes. */
void fake_serve(struct fake_daemon *daemon, int fd);

#endif
