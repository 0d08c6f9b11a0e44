/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comm*.c offer to works and landings, and share among themselves: the communicators of an
 * arena, one a device, and those that are kept for its next life. All on the device thread.
 *
 * Gates. NCCL cannot abort a communicator whose collective has not begun because its stream waits
 * for something before it. So an arena with communicators lets its works wait on a stream of its
 * own, the gate, and its main stream waits for the gate alone: an idle gate says that nothing
 * holds up the collectives that were issued, and that an abort ends.
 */
#ifndef F8_DAEMON_CUDA_COMM_H
#define F8_DAEMON_CUDA_COMM_H

#include "daemon/cuda/cuda_private.h"
#include "daemon/cuda/nccl_library.h"

/* Sets of communicators that are kept for later, at most. */
#define CUDA_MAX_KEPT 16

_Static_assert(sizeof(ncclUniqueId) == BACKEND_UNIQUE_SIZE, "hosts carry NCCL's unique id whole");

struct cuda_nccl {
    struct nccl_library library;
};

/* A set: one communicator on each device of an arena, which have ranks that follow one another. */
struct cuda_comms {
    struct cuda_comms *next;    /* borrowed: kept or doomed after this one */
    char *key;                  /* owned: what the set is kept under, with the devices */
    uint64_t expires_ms;        /* of cuda_now_ms: when a kept set ends */
    bool is_dropped;            /* under info_lock: a kept set that ends now, and is not given */
    bool is_held;               /* an arena has it */
    bool is_failed;             /* never used again: it is aborted as soon as that ends */
    bool is_ended;              /* it has been: what is left is to be freed */
    _Atomic bool *is_abandoned; /* borrowed: of the arena; set: other ranks are not waited for.
                                   NULL: there are none on other hosts, or no arena any more */
    uint32_t count;             /* here */
    struct cuda_comm {
        int32_t device;
        ncclComm_t comm;     /* owned; NULL: none, or none any more */
        bool is_revoked;     /* its collectives have been stopped */
        ncclWindow_t window; /* owned: of the arena's memory; NULL: none */
        cudaStream_t gate;   /* owned */
        cudaEvent_t opened;  /* owned: the gate has come to the end of a work's waits */
    } members[];
};

struct cuda_kept {
    struct cuda_comms *first;  /* owned: oldest first; under info_lock, as the loop looks at it */
    struct cuda_comms *doomed; /* owned: failed ones, also while an arena still has them */
    uint64_t next_look_ms;     /* of cuda_now_ms: when collectives are looked at again */
};

/* ---- for works: comm_exchange.c ---- */

/* The stream that a work's waits go to, on the d-th device of the arena. */
cudaStream_t cuda_comm_gate(const struct cuda_arena *arena, uint32_t d);

/* After the last of a work's waits on that device: the arena's stream waits for them. */
int cuda_comm_open_gate(const struct cuda_arena *arena, uint32_t d, struct reason *reason);

/* The largest `reduced` over all devices, of the slots [first, first + count), on each. */
int cuda_comm_reduce(struct cuda *cuda, struct cuda_arena *arena, uint32_t first, uint32_t count,
    struct reason *reason);

/* Gives every device all chunks of the spans, and adds to the command's figures. */
int cuda_comm_exchange(struct cuda *cuda, struct cuda_arena *arena,
    const struct backend_span *spans, uint32_t num_spans, struct cuda_command *command,
    struct reason *reason);

/* ---- for landings: comm.c ---- */

/* The arena's works have failed: aborts its communicators, now or as soon as that ends. */
void cuda_comm_abort(struct cuda *cuda, struct cuda_arena *arena);

/* Whether all waits on the d-th device have come to their end. */
bool cuda_comm_gate_is_open(const struct cuda_arena *arena, uint32_t d);

/* ---- among comm*.c ---- */

/* What forming a set takes besides its arena. */
struct cuda_forming {
    const ncclUniqueId *id;     /* borrowed: of the arena's world */
    uint64_t deadline_ms;       /* of cuda_now_ms */
    _Atomic bool *is_abandoned; /* borrowed: see struct cuda_comms */
};

/* Forms a set, or nothing. comm_form.c */
int cuda_comms_new(struct cuda *cuda, const struct cuda_arena *arena,
    const struct cuda_forming *forming, struct cuda_comms **ret_comms, struct reason *reason);

/* Registers the arena's memory. False if NCCL cannot, and then the set may be unusable. */
bool cuda_comms_add_window(struct cuda *cuda, const struct cuda_arena *arena,
    struct cuda_comms *comms, uint64_t deadline_ms);
void cuda_comms_remove_window(struct cuda *cuda, struct cuda_comms *comms);

/*
 * Waits until what a set's last group began has been done. Steady works come here: then it is the
 * time that NCCL's own thread takes for a launch. call: for sentences. F8_EDEADLINE, F8_EIO;
 * F8_ECANCELED: it was abandoned.
 */
int cuda_comms_settle(struct cuda *cuda, const struct cuda_comms *comms, const char *call,
    uint64_t deadline_ms, struct reason *reason);

/* Ends a group whose calls gave `result` so far. */
ncclResult_t cuda_comms_end_group(struct cuda *cuda, ncclResult_t result);

/* False if one of a set's communicators has failed. comm_form.c */
bool cuda_comms_are_well(struct cuda *cuda, const struct cuda_comms *comms, struct reason *reason);

/* Ends a set that no arena has, and frees it; no collective runs. comm_end.c */
void cuda_comms_free(struct cuda *cuda, struct cuda_comms *comms);

/* Takes a set as failed, and ends it now, or in a later comms_bury. comm_end.c */
void cuda_comms_doom(struct cuda *cuda, struct cuda_comms *comms);

/* Goes on with what cuda_comms_doom has begun. False if something is left to do. comm_end.c */
bool cuda_comms_bury(struct cuda *cuda);

#endif
