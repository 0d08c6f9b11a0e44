/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of a group over hosts of CPUs: a helper process (f8gather-gloo) that moves bytes
 * between the arenas of the hosts and reduces amaxes, because its library blocks and ends its
 * process where it is at odds with a peer. One helper a group and host; each command is answered
 * by one call of `done`; the death of a helper, or a deadline, by one of `failed`. Called by
 * collective on the loop; answers on the loop, never from inside the call.
 */
#ifndef F8_DAEMON_FABRIC_H
#define F8_DAEMON_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <uv.h>

#include "daemon/fabric_wire.h"
#include "daemon/reason.h"

struct fabric;

struct fabric_listener {
    /* The one command that was open has been done. */
    void (*done)(struct fabric *fabric, enum fabric_command command);
    /*
     * The helper is gone and reaped, whatever was open was not done, and nothing else is called.
     * F8_EIO: it died, or heard nothing of a peer; F8_ECONN: it lost a peer, which may have ended
     * for another's sake; F8_EDEADLINE: it names the hosts that it waits for, if it still can;
     * F8_EMISMATCH: the hosts gave reductions that differ, or it is of another build; F8_EINVAL: an
     * interface or address that is not there; F8_ENOMEM, F8_ELIMIT; F8_EPERM: a peer without its
     * token; F8_EINTERNAL: spans outside the arena.
     */
    void (*failed)(struct fabric *fabric, int status, const struct reason *reason);
};

struct fabric_shape {
    uint32_t hosts, here;  /* how many, which is this one */
    const char *interface; /* borrowed for the call: what the helper binds to; its address there */
    const char *address;
    uint32_t silence_ms; /* a host of which its connection hears nothing for so long is lost; 0:
                            never */
    const struct fabric_listener *listener;
    void *owner; /* borrowed: the caller's own */
};

/*
 * Spawns the helper, which lies beside this program. FABRIC_OPEN is open then: when it is done,
 * fabric_address gives what the others need to connect. F8_ENOENT names the helper that is not
 * there, F8_EIO, F8_ENOMEM.
 */
int fabric_open(uv_loop_t *loop, const struct fabric_shape *shape, uint64_t deadline_ms,
    struct fabric **ret_fabric, struct reason *reason);

void *fabric_owner(const struct fabric *fabric);

/* Whom it answers from now on. */
void fabric_hand_over(struct fabric *fabric, const struct fabric_listener *listener, void *owner);
pid_t fabric_pid(const struct fabric *fabric);

/* Whether a command is open. */
bool fabric_is_busy(const struct fabric *fabric);

/* Opaque bytes; borrowed: from the fabric. */
const uint8_t *fabric_address(const struct fabric *fabric, size_t *ret_size);

/* A host as the helper finds it, and names it. */
struct fabric_peer {
    const char *name; /* borrowed for the call, as the rest: "gpu-07" */
    const uint8_t *address;
    size_t address_size;
};

/*
 * The commands: one at a time, first CONNECT, then MAP (EXCHANGE needs it), none after `failed`.
 * Each must be given on all hosts, in the same order and with the same arguments but for `fd` and
 * `values`; an exchange whose spans differ ends helpers. Deadlines are from now on, in ms.
 */
/* Connects all with all; `peers` by host, its own included. A host that cannot be reached is tried
 * again until shortly before the deadline, one that refuses the connection is not. */
void fabric_connect(struct fabric *fabric, const struct fabric_peer *peers, uint64_t deadline_ms);

/*
 * Maps an arena, which is not sealed yet, writable, in place of the one before. `fd` is borrowed
 * for the call. Of size 0: only lets go of the one before, and fd is -1; no group uses the
 * connections then, which must all be there, and may be silent until the next is mapped.
 */
void fabric_map(struct fabric *fabric, int fd, uint64_t size, uint64_t deadline_ms);

/*
 * The maximum over the hosts, by value; `values` (borrowed until done or failed, or closed) get the
 * result. Hosts that give another tag or count fail with both.
 */
void fabric_reduce(
    struct fabric *fabric, uint64_t tag, uint32_t *values, uint32_t count, uint64_t deadline_ms);

/*
 * Each host sends its spans to all others, straight from its arena into theirs. Copied. A span that
 * touches the one before it, of the same host, costs nothing more. Done: this host's arena is
 * complete and its own spans have gone out; others may not be there yet, or fail.
 */
void fabric_exchange(struct fabric *fabric, const struct fabric_span *spans, uint32_t num_spans,
    uint64_t deadline_ms);

/* Bytes that the helper has sent and received in exchanges and reductions so far. */
void fabric_traffic(const struct fabric *fabric, uint64_t *ret_sent, uint64_t *ret_received);

/*
 * Ends the helper at once, whatever it does, and frees the fabric when it is reaped; no listener is
 * called any more. Until then the helper may still write into the arena, which no other can map.
 * NULL allowed.
 */
void fabric_close(struct fabric *fabric);

#endif
