/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for protobuf's unpack: a block that is filled from its start for each message and thrown
 * away whole, so that a steady stream of requests allocates nothing. One for the loop, since a
 * message is served before the next is read.
 */
#ifndef F8_DAEMON_UNPACK_H
#define F8_DAEMON_UNPACK_H

#include <protobuf-c/protobuf-c.h>

struct unpack_spill;

struct unpack {
    ProtobufCAllocator allocator; /* points back at the struct: do not move it */
    char *block;                  /* owned */
    size_t used;
    struct unpack_spill *spills; /* owned list: what did not fit in the block */
};

/* F8_ENOMEM. */
int unpack_init(struct unpack *unpack);
void unpack_done(struct unpack *unpack);

/* All that was unpacked is gone. */
void unpack_reset(struct unpack *unpack);

#endif
