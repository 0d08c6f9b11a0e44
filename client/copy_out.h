/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8_copy_out on the host (copy_out.c) and on a CUDA device (copy_out_cuda.c) share: the sizes
 * of what is copied. Not for other rooms.
 */
#ifndef F8_CLIENT_COPY_OUT_H
#define F8_CLIENT_COPY_OUT_H

#include "client/group.h"

/* Bytes of a weight as gathered, without padding. */
static inline uint64_t copy_out_weight(const struct weight *w)
{
    return w->rows * w->cols * f8_proto_wire_size(w->wire);
}

/* Bytes of one rank's padded chunk. */
static inline uint64_t copy_out_chunk(const struct f8_group *group, const struct weight *w)
{
    return f8_proto_chunk_rows(w->rows, group->world_size) * w->cols * f8_proto_wire_size(w->wire);
}

/* Puts the copies of a held bucket to device memory at `dst` on the stream. No lock held. */
int copy_out_on_device(const struct f8_group *group, const struct bucket *bucket,
    enum f8_layout layout, void *dst, void *stream);

#endif
