/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters that preloaded shims keep of a process from outside its code, and how a test comes
 * under a shim and reads them. The table is a memfd that all processes below the test inherit:
 * each takes an entry of its own, so a forked rank and an executed daemon are told apart by pid.
 */
#ifndef F8_TESTS_SHIM_H
#define F8_TESTS_SHIM_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#define SHIM_TABLE_ENV "F8_SHIM_TABLE" /* the descriptor's number */
#define SHIM_ENTRIES   256

/* Messages of one direction. */
struct shim_way {
    _Atomic uint64_t calls; /* that carried a message */
    _Atomic uint64_t empty; /* that found none, or no room */
    _Atomic uint64_t bytes;
    _Atomic uint64_t largest; /* since the test last wrote 0 to it */
};

/* What one process has done so far. */
struct shim_entry {
    atomic_int pid;
    struct shim_way sent, received; /* by sendmsg and recvmsg */
    _Atomic uint64_t others;        /* any other call that moves bytes through a socket */
    _Atomic uint64_t waits;         /* poll, epoll_wait and the like */
    _Atomic uint64_t allocations;   /* malloc, calloc, realloc and the like */
    _Atomic uint64_t frees;
};

struct shim_table {
    atomic_uint used; /* entries; may pass SHIM_ENTRIES, which then hold no more */
    struct shim_entry entries[SHIM_ENTRIES];
};

/* ---- in a test ---- */

/*
 * Re-executes the test under the shim, unless it is there already: the first call of main. From
 * then on every process that the test starts counts. Returns 0, or -1 with a line on stderr.
 */
int shim_enter(char **argv, const char *shim);

/* Preloads a shim that keeps no counts into what the test executes from now on; and no more. */
void shim_preload(const char *shim);
void shim_unload(void);

/* The entry of a process below the test. Fails the test if it has none. */
struct shim_entry *shim_entry_of(pid_t pid);

/* A way's counters at one moment, and their growth. */
struct shim_count {
    uint64_t calls, bytes;
};
struct shim_count shim_count_since(const struct shim_way *way, struct shim_count before);

#endif
