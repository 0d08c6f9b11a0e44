/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions and weights of a client: see session.h. A registration may come in several packets and
 * counts as one: an error in any of them undoes all.
 */
#include "daemon/session_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

int session_reserve_region(struct session *session, uint32_t *ret_id, struct reason *reason)
{
    for (uint32_t i = 0; i < session->num_regions; i++)
        if (!session->regions[i]) {
            *ret_id = i + 1;
            return F8_OK;
        }
    if (session->num_regions >= registry_config(session->context->registry)->max_regions)
        return reason_set(reason, F8_ELIMIT,
            "this client has %u regions, the limit (--max-regions)", session->num_regions);
    uint32_t count = session->num_regions + 1;
    struct region **regions = realloc(session->regions, count * sizeof(struct region *));
    if (!regions)
        return reason_set(reason, F8_ENOMEM, "out of memory adding region %u", count);
    regions[count - 1] = NULL;
    session->regions = regions;
    session->num_regions = count;
    *ret_id = count;
    return F8_OK;
}

int session_lost_descriptors(struct reason *reason)
{
    return reason_set(reason, F8_ELIMIT,
        "the daemon is out of file descriptors and could not take the region's: raise its limit on "
        "open files (LimitNOFILE)");
}

void answer_region(struct answer *answer, uint32_t id, uint64_t size)
{
    F8__RegionReply *reply = &answer->body.region;
    f8__region_reply__init(reply);
    reply->region = id;
    reply->size = size;
    answer->reply.body_case = F8__REPLY__BODY_REGION;
    answer->reply.region = reply;
}

static int take_region(
    struct session *session, int fd, struct region **ret_region, struct reason *reason)
{
    uint64_t size;
    int status = region_check(fd, &size, reason);
    if (status == F8_OK)
        status = registry_charge_region(session->job, "the region", size, reason);
    if (status < 0)
        return status;
    struct region *region;
    status = region_map(fd, &region, reason);
    /* It cannot have shrunk, but what is charged must be what is given back. */
    if (status == F8_OK && region->size != size) {
        region_unref(region);
        status = reason_set(reason, F8_EREGION,
            "the memory descriptor grew from %" PRIu64 " bytes while it was added: add it again",
            size);
    }
    if (status < 0)
        registry_discharge_region(session->job, size);
    else
        *ret_region = region;
    return status;
}

int session_region_add(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    if (incoming->request->region_add->cuda)
        return session_region_cuda(session, incoming, answer);
    if (incoming->num_fds == SESSION_FDS_LOST)
        return session_lost_descriptors(&answer->reason);
    if (incoming->num_fds != 1)
        return reason_set(&answer->reason, F8_EREGION,
            "the region came with %u descriptors, it takes exactly one", incoming->num_fds);
    uint32_t id = 0;
    struct region *region = NULL;
    int status = session_reserve_region(session, &id, &answer->reason);
    if (status == F8_OK)
        status = take_region(session, incoming->fds[0], &region, &answer->reason);
    if (status < 0)
        return status;
    session->regions[id - 1] = region;
    answer_region(answer, id, region->size);
    return F8_OK;
}

static struct region *find_region(const struct session *session, uint32_t id)
{
    return id >= 1 && id <= session->num_regions ? session->regions[id - 1] : NULL;
}

static void drop_region(struct session *session, struct region **slot)
{
    registry_discharge_region(session->job, (*slot)->size);
    region_unref(*slot);
    *slot = NULL;
}

int session_region_drop(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    uint32_t id = incoming->request->region_drop->region;
    struct region *region = find_region(session, id);
    if (!region)
        return reason_set(&answer->reason, F8_ENOENT, "region %u: this client has none such", id);
    const char *weight = NULL;
    for (const struct member *m = session->members; m && !weight; m = m->sibling)
        weight = member_weight_in(m, region);
    if (weight)
        return reason_set(&answer->reason, F8_EBUSY,
            "region %u still has the shard of weight %s in it: move it first", id, weight);
    bool on_device = region->backend;
    drop_region(session, &session->regions[id - 1]);
    return on_device ? session_await_unmap(session, incoming, answer) : F8_OK;
}

void session_drop_regions(struct session *session)
{
    for (uint32_t i = 0; i < session->num_regions; i++)
        if (session->regions[i])
            drop_region(session, &session->regions[i]);
    free(session->regions);
    session->regions = NULL;
    session->num_regions = 0;
}

/* Checks where a shard lies; gives its region, NULL for an empty shard without one. */
static int locate_shard(const struct session *session, const struct member *member,
    const struct weight *weight, uint32_t id, uint64_t offset, struct region **ret_region,
    struct reason *reason)
{
    uint64_t size = f8_proto_dtype_size(weight->dtype);
    uint64_t bytes = weight_shard_count(weight, member->group->world_size, member->rank) * size;
    struct region *region = find_region(session, id);
    *ret_region = region;
    if (id == 0 && bytes == 0)
        return F8_OK;
    if (!region)
        return reason_set(
            reason, F8_ENOENT, "weight %s: this client has no region %u", weight->name, id);
    if (offset % size != 0)
        return reason_set(reason, F8_EINVAL,
            "weight %s: offset %" PRIu64 " is no multiple of the element size %" PRIu64,
            weight->name, offset, size);
    if (region->backend && (!session->device || region->number != session->device->number))
        return reason_set(
            reason, F8_EREGION, "weight %s: region %u lies on another device", weight->name, id);
    if (!region->backend && session->device)
        return reason_set(reason, F8_EREGION,
            "weight %s: region %u lies on the host, but this client works on device %d",
            weight->name, id, session->device->number);
    if (!region_contains(region, offset, bytes))
        return reason_set(reason, F8_EREGION,
            "weight %s: its shard of %" PRIu64 " bytes at offset %" PRIu64
            " does not fit in region %u of %" PRIu64 " bytes",
            weight->name, bytes, offset, id, region->size);
    return F8_OK;
}

/*
 * Whose ranks' amaxes give the weight its scale: its own group's, unless it names another one that
 * this client has joined. All of a group's weights that name another name the same.
 */
static int name_amax_group(const struct session *session, struct member *member,
    const F8__Weight *message, struct weight *weight, struct reason *reason)
{
    bool scaled = weight->flavour == F8_PROTO_DYNAMIC || weight->flavour == F8_PROTO_DELAYED;
    if (!scaled || message->amax_group == 0 || message->amax_group == member->group->id)
        return F8_OK;
    struct member *other;
    int status = session_member(session, message->amax_group, &other, reason);
    if (status < 0)
        return reason_set(reason, status, "weight %s: this client has not joined its amax group %u",
            message->name, message->amax_group);
    if (member->names && member->names != other->group)
        return reason_set(reason, F8_EINVAL,
            "weight %s names amax group %s, but another of group %s names %s: it may be one",
            message->name, other->group->name, member->group->name, member->names->name);
    member->names = other->group;
    weight->amax_group = other->group->id;
    return F8_OK;
}

static int add_weight(const struct session *session, struct member *member,
    const F8__Weight *message, struct reason *reason)
{
    struct weight_list *list = member->list;
    struct weight weight;
    uint32_t limit = registry_config(session->context->registry)->max_weights;
    /* First of all, because the texts of other errors repeat the name. */
    int status = weights_check_name("weight", list->num_weights, message->name, reason);
    if (status == F8_OK)
        status = weight_from_message(message, &weight, reason);
    if (status == F8_OK && member_reserve(member, list->num_weights + 1) < 0)
        status = reason_set(reason, F8_ENOMEM, "out of memory registering %s", message->name);
    if (status == F8_OK)
        status = name_amax_group(session, member, message, &weight, reason);
    if (status == F8_OK)
        status = weights_add(list, message->name, &weight, limit, reason);
    if (status < 0)
        return status;
    uint32_t index = list->num_weights - 1;
    struct region *region;
    status = locate_shard(
        session, member, &list->weights[index], message->region, message->offset, &region, reason);
    if (status == F8_OK)
        member_set_shard(member, index, region, message->offset);
    return status;
}

static int add_all(const struct session *session, struct member *member,
    const F8__Register *message, struct reason *reason)
{
    int status = F8_OK;
    for (size_t i = 0; i < message->n_weights && status == F8_OK; i++)
        status = add_weight(session, member, message->weights[i], reason);
    for (size_t i = 0; i < message->n_buckets && status == F8_OK; i++)
        status = weights_add_bucket(member->list,
            &(struct bucket_info){.name = message->buckets[i]->name,
                .first = message->buckets[i]->first,
                .count = message->buckets[i]->count,
                .shared = message->buckets[i]->shared},
            reason);
    return status;
}

/* Takes back all that came since the registration began. */
static void undo(struct member *member)
{
    for (uint32_t w = member->committed_weights; w < member->list->num_weights; w++)
        member_set_shard(member, w, NULL, 0);
    weights_truncate(member->list, member->committed_weights, member->committed_buckets);
    bool named = false;
    for (uint32_t w = 0; w < member->committed_weights; w++)
        named = named || member->list->weights[w].amax_group != 0;
    if (!named)
        member->names = NULL;
}

bool session_asked_for_seal(const struct member *member)
{
    struct round_head head;
    return collective_head(member->group, &head) &&
           !collective_missing(member->group, head.run.number, member->rank);
}

static int check_open(const struct member *member, struct reason *reason)
{
    const struct group *group = member->group;
    if (member->list == group->list)
        return reason_set(reason, F8_EORDER,
            "group %s was sealed: no weights can be added to what rank %u registered", group->name,
            member->rank);
    if (session_asked_for_seal(member))
        return reason_set(reason, F8_EORDER, "rank %u has asked for the seal of group %s already",
            member->rank, group->name);
    return F8_OK;
}

int session_register(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__Register *message = incoming->request->register_;
    struct member *member;
    int status = session_member(session, message->group, &member, &answer->reason);
    if (status == F8_OK)
        status = check_open(member, &answer->reason);
    if (status < 0)
        return status;
    if (!member->registering) {
        member->committed_weights = member->list->num_weights;
        member->committed_buckets = member->list->num_buckets;
    }
    status = add_all(session, member, message, &answer->reason);
    if (status < 0)
        undo(member);
    member->registering = status == F8_OK && message->more;
    return status;
}

int session_weight_move(
    struct session *session, const struct incoming *incoming, struct answer *answer)
{
    const F8__WeightMove *move = incoming->request->weight_move;
    struct member *member;
    int status =
        session_generation(session, move->group, move->generation, &member, &answer->reason);
    if (status == F8_OK)
        status = collective_check_move(member, move->weight, &answer->reason);
    if (status < 0)
        return status;
    struct region *region;
    status = locate_shard(session, member, &member->list->weights[move->weight], move->region,
        move->offset, &region, &answer->reason);
    if (status == F8_OK)
        member_set_shard(member, move->weight, region, move->offset);
    return status;
}
