/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ranks of one communicator share: a memfd that the unique id names through
 * /proc/PID/fd, so that ranks in any process and network namespace of the machine find it and
 * nothing is left behind by a kill. Each rank writes only its own member and its own mailboxes;
 * every change ends in segment_wake.
 */
#ifndef CUDASIM_NCCL_SEGMENT_H
#define CUDASIM_NCCL_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <nccl.h>

enum {
    SEGMENT_RANKS = 64,
    SEGMENT_LAUNCHES =
        1024,            /* how far a rank may run ahead and still be compared when it launches */
    SEGMENT_ORDERS = 16, /* other communicators of a device that a launch is compared with */
    SEGMENT_PIECES = 8,  /* allocations that one buffer may span */
    SEGMENT_WINDOWS = 64,
};

/* Part of a buffer: bytes at an offset of a memfd that a process holds as fd. */
struct segment_piece {
    int32_t pid, fd;
    uint64_t inode, offset, bytes;
};

struct segment_memory {
    uint32_t pieces, padding;
    struct segment_piece piece[SEGMENT_PIECES];
};

enum operation_kind { ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE, REDUCE_SCATTER, MESSAGE };

/* What must be equal on all ranks of a collective, or on both sides of a send. */
struct signature {
    uint32_t kind, type, reduction, root;
    uint64_t count;
    uint64_t window_offset; /* copy engines write at the sender's offset in the receiver's window */
    uint32_t copy_engine;   /* 1: by copy engines, 0: by a kernel */
    uint32_t padding;
};

/* How many collectives of another communicator were launched on the device before this one. */
struct launch_order {
    uint64_t clique, launches;
};

struct launch_record {
    _Atomic uint64_t number; /* from 1; the rest is valid while it says so */
    struct signature signature;
    uint32_t orders, padding;
    struct launch_order order[SEGMENT_ORDERS];
};

/* A running operation's meeting point: published when the data may be read, taken when the reader
 * has all that it needs from the others. Both count operations from 1. */
struct meeting {
    _Atomic uint64_t published, taken;
    struct signature signature;
    struct segment_memory memory;
};

struct window_record {
    _Atomic uint64_t number;
    uint64_t size, offset, flags;
};

enum member_state { MEMBER_ABSENT, MEMBER_JOINED, MEMBER_READY, MEMBER_LEFT, MEMBER_ABORTED };

struct member {
    _Atomic uint32_t claimed; /* a second process that asks for the rank is refused */
    _Atomic uint32_t state;
    _Atomic bool stopped; /* aborted or revoked: its buffers may be freed */
    int32_t pid, device;
    uint64_t start_time; /* of pid, in clock ticks since boot: tells it from a later process */
    uint64_t host;       /* of NCCL_HOSTID */
    struct meeting meeting;
    struct window_record window[SEGMENT_WINDOWS];
    struct launch_record launch[SEGMENT_LAUNCHES];
};

struct segment {
    uint64_t clique; /* random: names the communicator on all its ranks */
    _Atomic uint32_t generation;
    _Atomic uint32_t ranks, joined;
    struct member member[SEGMENT_RANKS];
    struct meeting mailbox[SEGMENT_RANKS][SEGMENT_RANKS]; /* [from][to] */
};

/* A new segment and its name. The memfd stays open here until all ranks have joined. */
ncclResult_t segment_create(ncclUniqueId *ret_id);

enum segment_opened { SEGMENT_OPENED, SEGMENT_NO_ID, SEGMENT_CREATOR_GONE };

/* Maps the segment that id names. */
enum segment_opened segment_open(const ncclUniqueId *id, struct segment **ret_segment);
void segment_close(struct segment *segment);

/* Closes the memfds of segments that all ranks have mapped. */
void segment_sweep(void);

/* Waits until the segment is woken after generation was read, or for some milliseconds. */
void segment_wait(struct segment *segment, uint32_t generation);
void segment_wake(struct segment *segment);

/* Fills pid, start_time and host of a member of this process. */
void segment_identify(struct member *member);
bool segment_dead(const struct member *member);

/* The number of hosts that the ranks are on, as NCCL tells them apart. */
int segment_hosts(const struct segment *segment);

#endif
