/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a gathered bucket gets to the other hosts: in pieces, each some whole weights, which go out
 * in order while the next ones are still cast. All hosts cut alike, by the list alone, so that
 * their engines are told the same. Called by the run, which casts, and by the engine, which
 * answers. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <stdlib.h>

#include "status.h"

/* ---- pieces ---- */

static uint32_t end_of_bucket(const struct hosts *hosts)
{
    const struct run *run = &hosts->collective->run;
    return run->first + run->count;
}

/* The weight after the piece that begins with `from`. */
static uint32_t end_of_piece(const struct hosts *hosts, uint32_t from)
{
    const struct group *group = hosts->collective->group;
    uint32_t end = end_of_bucket(hosts), w = from;
    uint64_t bytes = 0;
    while (w < end && (w == from || bytes < hosts->context->piece_bytes)) {
        const struct weight *weight = &group->list->weights[w++];
        bytes += weight_chunk_count(weight, group->world_size) * group->world_size *
                 f8_proto_wire_size(weight->wire);
    }
    return w;
}

void spread_begin(struct hosts *hosts)
{
    uint32_t first = hosts->collective->run.first;
    hosts->spread = (struct spread){.casting = first, .cast = first, .sent = first};
}

uint32_t spread_next_piece(struct hosts *hosts)
{
    hosts->spread.casting = end_of_piece(hosts, hosts->spread.casting);
    return hosts->spread.casting;
}

/* ---- spans ---- */

/* Puts a span at the end; one that goes on from the last becomes part of it. */
static int add_span(struct engine *engine, uint32_t *count, const struct fabric_span *span)
{
    struct fabric_span *last = *count > 0 ? &engine->spans[*count - 1] : NULL;
    if (span->size == 0)
        return F8_OK;
    if (last && last->host == span->host && last->offset + last->size == span->offset) {
        last->size += span->size;
        return F8_OK;
    }
    if (*count == engine->spans_capacity) {
        uint32_t capacity = 2 * engine->spans_capacity + 64;
        struct fabric_span *spans = realloc(engine->spans, capacity * sizeof(*spans));
        if (!spans)
            return F8_ENOMEM;
        engine->spans = spans;
        engine->spans_capacity = capacity;
    }
    engine->spans[(*count)++] = *span;
    return F8_OK;
}

/* The part of a weight that a rank has: without the padding after a short shard. */
static struct fabric_span span_of(
    const struct hosts *hosts, uint64_t place, uint32_t index, uint32_t rank)
{
    const struct group *group = hosts->collective->group;
    const struct weight *weight = &group->list->weights[index];
    const struct member *member = hosts->collective->run.members[rank];
    uint64_t size = f8_proto_wire_size(weight->wire);
    uint64_t chunk = weight_chunk_count(weight, group->world_size);
    return (struct fabric_span){
        .offset = place + weight->offset + chunk * rank * size,
        .size = weight_shard_count(weight, group->world_size, rank) * size,
        .host = member->far ? member->far_host : hosts->here,
    };
}

/* What the ranks have of the weights [first, end). */
static int add_weights(struct hosts *hosts, uint32_t first, uint32_t end, uint32_t *ret_count)
{
    const struct collective *collective = hosts->collective;
    uint64_t place = collective_place_offset(collective->group, collective->run.round.place);
    *ret_count = 0;
    for (uint32_t w = first; w < end; w++)
        for (uint32_t r = 0; r < collective->group->world_size; r++) {
            struct fabric_span span = span_of(hosts, place, w, r);
            int status = add_span(&hosts->engine, ret_count, &span);
            if (status < 0)
                return status;
        }
    return F8_OK;
}

/* ---- the exchange ---- */

static void exchange(struct hosts *hosts, uint32_t first, uint32_t end)
{
    struct engine *engine = &hosts->engine;
    uint32_t count;
    engine->step = ENGINE_EXCHANGES;
    if (!engine_can_run(hosts))
        return;
    if (add_weights(hosts, first, end, &count) < 0)
        engine_no_memory(hosts);
    else
        fabric_exchange(engine->fabric, engine->spans, count, helper_patience(hosts));
}

void spread_cast(struct hosts *hosts, uint32_t end)
{
    struct spread *spread = &hosts->spread;
    uint32_t first = spread->sent, next = end_of_piece(hosts, first);
    spread->cast = end;
    if (hosts->engine.step != ENGINE_AT_REST || next == first || next > end)
        return; /* the engine is at work, all has gone out, or the piece is not cast yet */
    spread->sent = next;
    exchange(hosts, first, next);
}

void spread_go_on(struct hosts *hosts)
{
    struct collective *collective = hosts->collective;
    if (hosts->spread.sent == end_of_bucket(hosts)) {
        collective_end_run(collective);
        return;
    }
    spread_cast(hosts, hosts->spread.cast);
    collective_settle(collective);
}
