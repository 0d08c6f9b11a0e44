/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake daemon on a CUDA device, for the client's tests: a process of its own, since a process
 * cannot open its own IPC handles. It takes one client, copies raw weights of a group of one rank
 * into an arena, and orders all by events as the protocol says. The test tells it what to do wrong,
 * and sees what came, in shared memory. fake_gpu.c is the test's side, fake_gpu_*.c the daemon's.
 */
#ifndef F8_TESTS_FAKE_GPU_H
#define F8_TESTS_FAKE_GPU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FAKE_GPU_DONE    8 /* done events: used in turn */
#define FAKE_GPU_LOG     1024
#define FAKE_GPU_BUCKETS 256

/* What is wrong with a SealReply. */
enum fake_gpu_seal {
    FAKE_GPU_SEAL_WELL,
    FAKE_GPU_SEAL_NO_EVENTS,
    FAKE_GPU_SEAL_SHORT_HANDLE,
    FAKE_GPU_SEAL_NO_MEMORY,    /* no descriptor */
    FAKE_GPU_SEAL_OTHER_MEMORY, /* a descriptor that is none of CUDA's */
};

/* A request as it came. */
struct fake_gpu_request {
    uint32_t body;
    uint32_t bucket;
    uint32_t ready;   /* the number that it names */
    bool is_complete; /* all that the event stands for had run when the request was received */
};

struct fake_gpu_shared {
    /* Set by the test. */
    atomic_int fail_body;        /* body case that is refused ... */
    atomic_int fail_status;      /* ... with this status and "refused by the test" */
    atomic_int seal;             /* enum fake_gpu_seal */
    atomic_uint done;            /* number in GatherReply and DoneReply; 0: the right one */
    atomic_int withhold;         /* replies of this body case wait for a Ping */
    atomic_bool by_release_only; /* gathers wait for the place's last Release, not for `ready` */
    atomic_int hangs_up;         /* at a request of this body case it closes the connection, ... */
    atomic_int lingers_ms; /* ... lives on for so long, lets go of all that it has, and ends */
    atomic_bool stays;     /* when its client has left it awaits another one */
    _Atomic uint64_t places[FAKE_GPU_BUCKETS]; /* of shared buckets: offset in the arena */

    /* Seen by the daemon. */
    atomic_uint num_ready;        /* handles in DeviceAdd */
    atomic_int uuid_matches;      /* the client's device is the daemon's too: device 0 */
    atomic_uint packets, fds;     /* RegionAdds, and descriptors on them */
    _Atomic uint64_t region_size; /* of the last region */
    atomic_uint scratch;          /* first word that the last precompute read, as of a Ping */
    atomic_uint drops;            /* RegionDrops and DeviceDrops */
    atomic_uint num_requests;
    struct fake_gpu_request requests[FAKE_GPU_LOG]; /* those that name an event or a bucket */
};

struct fake_gpu {
    char directory[64];
    char socket[96];
    pid_t pid;
    struct fake_gpu_shared *shared; /* owned: a mapping */
};

/* Starts the daemon: this program anew, whose main must call fake_gpu_main first. */
void fake_gpu_start(struct fake_gpu *gpu);

/* Waits for its end, which the client's close brings; it must end well unless it was killed. */
void fake_gpu_stop(struct fake_gpu *gpu);
void fake_gpu_kill(struct fake_gpu *gpu);

/* Kills it, and starts another at the same socket, to which nothing is set yet. */
void fake_gpu_replace(struct fake_gpu *gpu);

/* Number `index` of the requests that named body `body`; fails the test if there is none. */
const struct fake_gpu_request *fake_gpu_request(
    const struct fake_gpu *gpu, uint32_t body, uint32_t index);

/* Becomes the daemon if the program was started as one, and then does not return. */
void fake_gpu_main(int argc, char **argv);

#endif
