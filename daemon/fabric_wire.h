/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon and the helper of its fabric (f8gather-gloo) say to each other over a stream
 * socket: a fabric_ask and its payload, then a fabric_answer and its payload, one after the other.
 * Both are of one build and on one host, so these are plain structs. A helper that was replaced by
 * an upgrade under a daemon that runs tells its version. For C and C++; no state.
 */
#ifndef F8_DAEMON_FABRIC_WIRE_H
#define F8_DAEMON_FABRIC_WIRE_H

#include <stdint.h>

#define FABRIC_HELPER "f8gather-gloo"
#define FABRIC_SOCKET 3 /* the helper's descriptor of its end */

/* Another number with each change of what the two say, or of what helpers say to each other. No
 * bytes that the answer of a helper before it could have begun with. */
#define FABRIC_VERSION (UINT64_C(0xf8fab00000000000) + 2)

enum fabric_command {
    FABRIC_OPEN,
    FABRIC_CONNECT,
    FABRIC_MAP,
    FABRIC_REDUCE,
    FABRIC_EXCHANGE,
};

/* Bytes [offset, offset + size) of the arena, which host `host` has and the others want. */
struct fabric_span {
    uint64_t offset, size; /* size > 0 */
    uint32_t host;
};

struct fabric_ask {
    uint32_t command; /* enum fabric_command; the descriptor of MAP rides on the first byte */
    uint32_t count;   /* CONNECT: addresses; REDUCE: values; EXCHANGE: spans */
    uint64_t size;    /* MAP: of the arena; else the deadline in ms, which the daemon keeps, too */
    uint64_t tag;     /* REDUCE */
    uint64_t payload; /* bytes that follow, as below */
};

/* Payload of OPEN. */
struct fabric_open {
    uint32_t hosts, here;
    uint32_t silence_ms;             /* after which a connection is broken; 0: never */
    char interface[16], address[64]; /* NUL-terminated */
};

/*
 * Payload of CONNECT: of each host its name and its address, each after a uint32_t with its size.
 * Payload of REDUCE: the values, uint32_t; of EXCHANGE: the spans.
 */

struct fabric_answer {
    uint32_t command;        /* the one that was asked */
    int32_t status;          /* F8_... */
    uint64_t sent, received; /* bytes of exchanges and reductions so far */
    uint64_t payload;        /* bytes that follow: the sentence of a failure, without a NUL; of OPEN
                                the version and the address, of REDUCE the values */
};

#endif
