/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank registered: weights and buckets, checked one by one as they come, compared between
 * ranks at seal, and laid out in places. After the seal all ranks of a group share one list.
 * Called by session on the loop.
 */
#ifndef F8_DAEMON_WEIGHTS_H
#define F8_DAEMON_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/names.h"
#include "daemon/reason.h"
#include "f8gather.pb-c.h"
#include "protocol.h"

#define WEIGHT_NO_BUCKET UINT32_MAX

/* A whole tensor, as every rank describes it. */
struct weight {
    const char *name; /* borrowed: from the list's names */
    uint64_t shape[F8_PROTO_MAX_DIMS];
    uint64_t rows, cols; /* shape[0], and the product of the rest */
    uint64_t offset;     /* in the place of its bucket; set by weights_layout */
    uint32_t ndim;
    uint32_t amax_group;                  /* id of a foreign one; 0: its own group */
    uint32_t bucket;                      /* WEIGHT_NO_BUCKET until it is in one */
    uint32_t static_bits;                 /* of the fp32 scale */
    uint16_t history_length;              /* delayed */
    uint8_t dtype, flavour, format, wire; /* f8_proto_... */
    uint8_t history_algorithm;            /* delayed: f8_proto_history */
    bool power_of_two;
};

struct bucket_info {
    const char *name; /* borrowed: from the list's names */
    uint64_t span;    /* bytes of its place; set by weights_layout */
    uint64_t scales;  /* offset of its scales in the place */
    uint64_t own;     /* offset of its own place after the slots, if it has one */
    uint32_t first, count;
    bool shared;
};

struct weight_list {
    struct weight *weights;      /* owned */
    struct bucket_info *buckets; /* owned */
    struct names weight_names, bucket_names;
    uint32_t num_weights, num_buckets;
    uint32_t weights_capacity, buckets_capacity;
    uint32_t world_size;
    uint32_t refs;
};

/* An empty list for a group of that size, with one reference. NULL if memory is short. */
struct weight_list *weights_new(uint32_t world_size);
struct weight_list *weights_ref(struct weight_list *list);
void weights_unref(struct weight_list *list);

/* Whether scale and amax mean anything for it. */
bool weight_is_float8(const struct weight *weight);

/* Rows, elements and bytes of a rank's shard. */
uint64_t weight_shard_rows(const struct weight *weight, uint32_t world_size, uint32_t rank);
uint64_t weight_shard_count(const struct weight *weight, uint32_t world_size, uint32_t rank);

/* Elements of a chunk: what each rank has room for in the gathered weight. */
uint64_t weight_chunk_count(const struct weight *weight, uint32_t world_size);

/* Bytes of the whole gathered weight without padding. */
uint64_t weight_wire_bytes(const struct weight *weight);

/* Whether the weight or bucket ("weight", "bucket") of that index may be called so: F8_EINVAL. */
int weights_check_name(const char *what, uint32_t index, const char *name, struct reason *reason);

/*
 * A weight of a message, with all but its name, bucket and amax group; F8_EINVAL. And back: the
 * message points into the weight.
 */
int weight_from_message(
    const F8__Weight *message, struct weight *ret_weight, struct reason *reason);
void weight_to_message(const struct weight *weight, F8__Weight *ret_message);

/*
 * Checks a weight and appends it; its name, rows, cols and wire are filled in here. `name` is
 * copied. F8_EINVAL, F8_EEXIST, F8_ENOMEM, F8_ELIMIT; nothing is appended then.
 */
int weights_add(struct weight_list *list, const char *name, const struct weight *weight,
    uint32_t limit, struct reason *reason);

/* The same for a bucket of weights [first, first + count), which must be in no bucket yet. */
int weights_add_bucket(
    struct weight_list *list, const struct bucket_info *bucket, struct reason *reason);

/* Drops all but the first `num_weights` weights and `num_buckets` buckets. */
void weights_truncate(struct weight_list *list, uint32_t num_weights, uint32_t num_buckets);

/* Gives back the room that no further weight or bucket will need. */
void weights_trim(struct weight_list *list);

/* Whether every weight is in a bucket and there is one at all. F8_EINVAL. */
int weights_check_complete(const struct weight_list *list, struct reason *reason);

/* Who says what, for the texts of a comparison. */
struct weights_party {
    const struct weight_list *list; /* borrowed */
    uint32_t rank;
    uint32_t pid;
    const char *host; /* borrowed; NULL: this one */
};

/* F8_OK if both lists are the same; else F8_EMISMATCH, and the reason names the first difference.
 */
int weights_compare(
    const struct weights_party *a, const struct weights_party *b, struct reason *reason);

/* The same of weights of which each side has a part: their shapes may differ. */
int weights_compare_parts(
    const struct weights_party *a, const struct weights_party *b, struct reason *reason);

/* Whether one scale can be that of both. */
bool weight_same_scaling(const struct weight *a, const struct weight *b);

/* How a group's arena is laid out: slots first, then the places of the buckets that own one. */
struct weights_layout {
    uint64_t slot_span;
    uint64_t size; /* of the arena */
};

/*
 * Fills in offsets and spans of the list, and the layout for that many slots. F8_ELIMIT if the
 * arena would be larger than any file: clients choose shapes and slots, and a size that wrapped
 * around would be one that is written past.
 */
int weights_lay_out(struct weight_list *list, uint32_t slots, struct weights_layout *ret_layout);

/* "[4096, 1024]" in a buffer of `size`; returns the buffer. */
char *weight_shape_text(const struct weight *weight, char *buffer, size_t size);

/* Whether any weight's scale follows from the group's own amaxes, or none has one at all. */
bool weights_have_own_scales(const struct weight_list *list);

#endif
