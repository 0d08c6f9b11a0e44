/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fabrics of several hosts in one process, on the loopback interface, each with its helper and an
 * arena of its own. Functions turn the loop until all have answered, and fail the test if one does
 * not, or otherwise than it should. On one thread.
 */
#ifndef F8_TESTS_FABRIC_HOSTS_H
#define F8_TESTS_FABRIC_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "daemon/arena.h"
#include "daemon/fabric.h"
#include "patience.h"

#define MAX_FABRIC_HOSTS 4

struct fabric_host {
    struct fabric *fabric; /* owned */
    struct arena *arena;   /* owned */
    bool answered;         /* since the last command */
    enum fabric_command command;
    int status; /* F8_OK: done */
    struct reason reason;
};

struct fabric_hosts {
    uv_loop_t loop;
    uint32_t num;
    uint32_t silence_ms; /* of those that are opened from now on; 0: never */
    struct fabric_host host[MAX_FABRIC_HOSTS];
};

/* Ends the program as a skip if the helper was not built. */
void fabric_hosts_need(void);

/* A loop; one host's helper is asked to start, in the network of the calling thread. */
void fabric_hosts_begin(struct fabric_hosts *hosts, uint32_t num);
void fabric_host_ask_open(
    struct fabric_hosts *hosts, uint32_t host, const char *interface, const char *address);

/* Helpers that were asked to start; that have started; that are connected; with an arena of `size`
 * bytes mapped. */
void fabric_hosts_ask_open(
    struct fabric_hosts *hosts, uint32_t num, const char *interface, const char *address);
void fabric_hosts_open(struct fabric_hosts *hosts, uint32_t num);
void fabric_hosts_connect(struct fabric_hosts *hosts);
void fabric_hosts_map(struct fabric_hosts *hosts, uint64_t size);
void fabric_hosts_start(struct fabric_hosts *hosts, uint32_t num, uint64_t size);

/* Without waiting. */
void fabric_hosts_exchange(struct fabric_hosts *hosts, const struct fabric_span *spans,
    uint32_t num, uint64_t deadline_ms);
void fabric_host_exchange(struct fabric_hosts *hosts, uint32_t host,
    const struct fabric_span *spans, uint32_t num, uint64_t deadline_ms);
void fabric_hosts_ask_connect(struct fabric_hosts *hosts, uint32_t host, uint64_t deadline_ms);

/* Until the host, or each, has answered. */
void fabric_host_await(struct fabric_hosts *hosts, uint32_t host);
void fabric_hosts_await(struct fabric_hosts *hosts);
void fabric_hosts_await_done(struct fabric_hosts *hosts);

/* Each host has failed, with this status, or any if it is F8_OK. */
void fabric_hosts_await_failed(struct fabric_hosts *hosts, int status);
/* The same, because helpers died, or lost those that did. */
void fabric_hosts_await_lost(struct fabric_hosts *hosts);

/* Closes all, lets the loop run out, and looks that no helper is left. */
void fabric_hosts_close(struct fabric_hosts *hosts);

/* What host `host` has at `offset` in round `round`: no two hosts and rounds have the same. */
uint8_t fabric_byte(uint32_t host, uint32_t round, uint64_t offset);

/* Writes what each host has to its spans, something else to those of others. */
void fabric_hosts_fill(
    struct fabric_hosts *hosts, const struct fabric_span *spans, uint32_t num, uint32_t round);

/* Every host has all spans as they are to be. */
void fabric_hosts_check(
    struct fabric_hosts *hosts, const struct fabric_span *spans, uint32_t num, uint32_t round);

#endif
