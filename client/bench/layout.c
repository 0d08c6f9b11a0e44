/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of where ranks are and what they hold. Called by the parent before it forks, and
 * by each rank for itself; no state.
 */
#include "layout.h"

#include <stdio.h>
#include <string.h>

#include "proto/protocol.h"

/*
 * Names of weights that are cut along dimension 1: those that sum over heads or neurons, stored as
 * [out, in]; and GPT-2's others, which it stores as [in, out].
 */
static const char *const columns[] = {
    "wo.weight", "w2.weight", "o_proj.weight", "down_proj.weight", "c_attn.weight", "c_fc.weight"};

uint32_t layout_num_groups(const struct options *options)
{
    return options->tp * options->hsdp;
}

uint32_t layout_world_size(const struct options *options)
{
    return options->ranks / layout_num_groups(options);
}

struct place layout_place(const struct options *options, uint32_t rank)
{
    uint32_t world_size = layout_world_size(options);
    struct place place = {.rank = rank, .group = rank / world_size, .shard = rank % world_size};

    if (options->dp > 0) {
        place.group = rank % options->tp;
        place.shard = rank / options->tp;
    }
    return place;
}

void layout_group_name(const struct options *options, uint32_t group, char *name, size_t size)
{
    if (options->dp > 0) {
        snprintf(name, size, "dp@tp=%u", group);
    } else if (options->hsdp > 1) {
        snprintf(name, size, "shard@rep=%u", group);
    } else {
        snprintf(name, size, "dp");
    }
}

static bool cuts_columns(const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        size_t end = strlen(columns[i]);
        if (length >= end && strcmp(name + length - end, columns[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether `size` can be cut so that no part is empty. */
static bool has_parts(uint64_t size, uint32_t parts)
{
    return f8_proto_shard_rows(size, parts, parts - 1) > 0;
}

struct model_part layout_part(
    const struct options *options, const struct model_weight *weight, uint32_t group)
{
    struct model_part part = model_whole(weight);
    uint32_t tp = options->tp;
    bool by_rows = has_parts(part.num_rows, tp);
    bool by_columns = has_parts(part.num_cols, tp);

    if (tp == 1 || weight->ndim != 2) {
        return part;
    }
    if (by_columns && (cuts_columns(weight->name) || !by_rows)) {
        part.first_col = f8_proto_shard_begin(weight->shape[1], tp, group);
        part.num_cols = f8_proto_shard_rows(weight->shape[1], tp, group);
    } else if (by_rows) {
        part.first_row = f8_proto_shard_begin(weight->shape[0], tp, group);
        part.num_rows = f8_proto_shard_rows(weight->shape[0], tp, group);
    }
    return part;
}

struct model_part layout_shard(
    const struct options *options, const struct model_weight *weight, const struct place *place)
{
    struct model_part part = layout_part(options, weight, place->group);
    uint32_t world_size = layout_world_size(options);
    struct model_part shard = part;

    shard.first_row += f8_proto_shard_begin(part.num_rows, world_size, place->shard);
    shard.num_rows = f8_proto_shard_rows(part.num_rows, world_size, place->shard);
    return shard;
}

bool layout_writes(
    const struct options *options, const struct model_weight *weight, const struct place *place)
{
    struct model_part part = layout_part(options, weight, place->group);

    return place->group == 0 || model_part_size(&part) < model_elements(weight);
}

uint32_t layout_first_rank(const struct options *options, uint32_t host)
{
    return options->hosts > 0 ? (uint32_t)((uint64_t)host * options->ranks / options->hosts) : 0;
}

uint32_t layout_host(const struct options *options, uint32_t rank)
{
    uint32_t host = 0;

    while (host + 1 < options->hosts && layout_first_rank(options, host + 1) <= rank) {
        host++;
    }
    return host;
}

uint32_t layout_crew_first(const struct options *options)
{
    return options->addresses.count > 0 ? layout_first_rank(options, options->host) : 0;
}

uint32_t layout_crew_size(const struct options *options)
{
    return options->addresses.count > 0
               ? layout_first_rank(options, options->host + 1) - layout_crew_first(options)
               : options->ranks;
}

uint32_t layout_local_ranks(const struct options *options, uint32_t group, uint32_t host)
{
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < options->ranks; rank++) {
        count += layout_place(options, rank).group == group && layout_host(options, rank) == host;
    }
    return count;
}

uint32_t layout_local_index(const struct options *options, uint32_t rank)
{
    uint32_t group = layout_place(options, rank).group;
    uint32_t index = 0;

    for (uint32_t other = layout_first_rank(options, layout_host(options, rank)); other < rank;
         other++) {
        index += layout_place(options, other).group == group;
    }
    return index;
}

/* What a rank has to give of all weights, as it is gathered. */
static uint64_t gathered_bytes(
    const struct options *options, const struct model *model, const struct place *place)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < model->num_weights; i++) {
        struct model_part shard = layout_shard(options, &model->weights[i], place);
        bytes += model_part_size(&shard) * model_wire_size(&model->weights[i]);
    }
    return bytes;
}

uint64_t layout_exchanged(
    const struct options *options, const struct model *model, uint32_t from, uint32_t to)
{
    uint64_t bytes = 0;

    for (uint32_t rank = 0; from != to && rank < options->ranks; rank++) {
        struct place place = layout_place(options, rank);
        if (layout_host(options, rank) == from &&
            layout_local_ranks(options, place.group, to) > 0) {
            bytes += gathered_bytes(options, model, &place);
        }
    }
    return bytes;
}

struct layout_bytes layout_bytes(const struct options *options, const struct model *model)
{
    struct layout_bytes bytes = {0};

    for (uint32_t i = 0; i < model->num_weights; i++) {
        const struct model_weight *weight = &model->weights[i];
        for (uint32_t group = 0; group < layout_num_groups(options); group++) {
            struct model_part part = layout_part(options, weight, group);
            uint64_t source = model_part_size(&part) * model_source_size(weight);
            uint64_t gathered = model_part_size(&part) * model_wire_size(weight);
            bytes.source += source;
            bytes.dynamic += weight->flavour == F8_DYNAMIC ? source : 0;
            bytes.gathered += gathered;
            bytes.float8 += model_is_float8(weight) ? gathered : 0;
        }
    }
    return bytes;
}
