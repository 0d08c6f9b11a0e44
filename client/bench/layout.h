/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ranks of a job stand to each other, and what of each weight a gather group and a rank
 * hold: plain data parallel, a mesh of data x tensor parallel ranks, or replicas (HSDP). Pure; by
 * any process.
 */
#ifndef F8BENCH_LAYOUT_H
#define F8BENCH_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/bench/model.h"
#include "client/bench/options.h"

/* Where a rank of a job is. */
struct place {
    uint32_t rank;  /* in the job, and so in the mesh: tensor parallel ranks are neighbours */
    uint32_t group; /* the number of its gather group: its tensor parallel part, or its replica */
    uint32_t shard; /* its rank in that group */
};

/* Gather groups of a job, and the ranks of each. */
uint32_t layout_num_groups(const struct options *options);
uint32_t layout_world_size(const struct options *options);

struct place layout_place(const struct options *options, uint32_t rank);

/* "dp", "dp@tp=1" or "shard@rep=1". */
void layout_group_name(const struct options *options, uint32_t group, char *name, size_t size);

/*
 * What a gather group gathers of a weight. On a mesh 2-D weights are cut as Megatron does, cut as
 * torch.chunk would: what feeds heads or neurons along its outputs, what sums over them along its
 * inputs. Where a part would be empty the other dimension is cut, or else, as all other weights,
 * none: each part holds it whole.
 */
struct model_part layout_part(
    const struct options *options, const struct model_weight *weight, uint32_t group);

/* What one rank of the group has of that; may be empty. */
struct model_part layout_shard(
    const struct options *options, const struct model_weight *weight, const struct place *place);

/* Whether this rank writes its shard into the full weights: one of those that have the same. */
bool layout_writes(
    const struct options *options, const struct model_weight *weight, const struct place *place);

/* The host of a rank: ranks are spread over the hosts in order, as evenly as it goes. */
uint32_t layout_host(const struct options *options, uint32_t rank);

/* The first of its ranks. */
uint32_t layout_first_rank(const struct options *options, uint32_t host);

/* The ranks of a job that share this machine's memory: all, but of hosts that are machines. */
uint32_t layout_crew_first(const struct options *options);
uint32_t layout_crew_size(const struct options *options);

/* How many ranks of a gather group are on a host. */
uint32_t layout_local_ranks(const struct options *options, uint32_t group, uint32_t host);

/* Which of those a rank is. */
uint32_t layout_local_index(const struct options *options, uint32_t rank);

/*
 * Bytes, without padding and scales, that one host must send another in a step: of each gather
 * group that has ranks on both, what its ranks here have to give.
 */
uint64_t layout_exchanged(
    const struct options *options, const struct model *model, uint32_t from, uint32_t to);

/* Bytes that all gather groups of a job move in a step, without padding. */
struct layout_bytes {
    uint64_t source;
    uint64_t dynamic; /* of the source, what dynamic weights have */
    uint64_t gathered;
    uint64_t float8; /* of the gathered */
};
struct layout_bytes layout_bytes(const struct options *options, const struct model *model);

#endif
