/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other hosts have told of a group's rounds. Hosts are not at the same place at the same
 * time: what is told of a later era, of rounds after a seal that has not ended here, or of a bucket
 * whose last gather has not, is held until then, in each host's order. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "status.h"

void host_drop_reduction(struct host *host)
{
    free(host->amaxes);
    host->amaxes = NULL;
    host->reduction = 0;
}

void host_drop_amax_names(struct host *host)
{
    for (size_t w = 0; w < host->num_amax_names; w++)
        free(host->amax_names[w]);
    free(host->amax_names);
    host->amax_names = NULL;
    host->num_amax_names = 0;
}

void host_begin_era(struct host *host)
{
    host_drop_reduction(host);
    free(host->posted);
    host->posted = NULL;
    host->ready_for = 0;
    host->timed = 0;
    host_drop_amax_names(host);
    weights_unref(host->list);
    free(host->state);
    free(host->address);
    host->list = NULL;
    host->state = NULL;
    host->state_size = 0;
    host->address = NULL;
    host->address_size = 0;
    host->is_late = false;
    host->engine_asked = false;
    host->idle = false;
    host->completed = 0;
}

static void drop_first(struct host *host)
{
    struct held *held = host->held;
    host->held = held->next;
    f8__host_message__free_unpacked(held->message, NULL);
    free(held);
}

void hosts_drop_held(struct host *host)
{
    while (host->held)
        drop_first(host);
}

/* The world of a daemon that does not keep to the protocol is over: its peers are our equals. */
static void refuse(struct hosts *hosts, uint32_t host, const char *what)
{
    const struct world_host *far = world_host(hosts->world, host);
    struct reason reason;
    (void)reason_set(&reason, F8_EPROTO, "host %s (%s) sent %s", far->name, far->address, what);
    if (hosts->over.text[0] == '\0')
        hosts->over = reason;
    if (!hosts->collective)
        return;
    struct log_fields fields = collective_fields(hosts->collective->group);
    fields.host = far->name;
    log_of(
        &fields, LOG_LEVEL_WARNING, "job %s, group %s: %s", fields.job, fields.group, reason.text);
    hosts_fail(hosts, F8_EPROTO, &reason);
}

void hosts_hear(struct hosts *hosts, uint32_t host, const uint8_t *data, size_t size)
{
    F8__HostMessage *message = f8__host_message__unpack(NULL, size, data);
    struct held *held = message ? malloc(sizeof(*held)) : NULL;
    if (!held) {
        if (message)
            f8__host_message__free_unpacked(message, NULL);
        refuse(hosts, host, "what is no message between hosts");
        return;
    }
    *held = (struct held){.message = message};
    struct held **link = &hosts->all[host].held;
    while (*link)
        link = &(*link)->next;
    *link = held;
    if (!hosts->collective) /* it only waits for this */
        hosts_serve(hosts);
}

/* The far member that a message is about, or NULL: then the message is wrong. */
static struct member *far_member(const struct hosts *hosts, uint32_t host, uint32_t rank)
{
    const struct group *group = hosts->collective->group;
    struct member *member = rank < group->world_size ? group_member_of(group, rank) : NULL;
    return member && member->far && member->far_host == host ? member : NULL;
}

static bool has_rank(const struct hosts *hosts, uint32_t host, uint32_t rank)
{
    const struct world_host *far = world_host(hosts->world, host);
    for (uint32_t i = 0; i < far->num_ranks; i++)
        if (far->ranks[i].rank == rank)
            return true;
    return false;
}

/* What serving a message has come to. */
enum served { SERVED, HELD, WRONG };

static enum served serve_entered(struct hosts *hosts, uint32_t host, const F8__HostEntered *entered)
{
    struct collective *collective = hosts->collective;
    struct group *group = collective->group;
    if (!has_rank(hosts, host, entered->rank))
        return WRONG;
    struct member *member = group->members[entered->rank];
    if (!member)
        member = group_add_member(group, entered->rank, entered->pid, NULL);
    if (!member)
        return HELD; /* memory may be there later; the deadline of the seal holds */
    member->far = true;
    member->far_host = host;
    member->pid = entered->pid;
    member->generation = group->generation;
    member_forget_versions(member);
    round_enter(collective->rounds, entered->rank);
    return SERVED;
}

/* The weights of the list, as this host's own registrations have them, but for their amax groups.
 */
static int add_weights(const struct hosts *hosts, const F8__HostList *list, struct weight_list *to)
{
    uint32_t limit = hosts->context->config->max_weights;
    struct reason ignored;
    int status = F8_OK;
    for (size_t w = 0; w < list->n_weights && status == F8_OK; w++) {
        struct weight weight;
        status = weight_from_message(list->weights[w], &weight, &ignored);
        if (status == F8_OK)
            status = weights_add(to, list->weights[w]->name, &weight, limit, &ignored);
    }
    for (size_t b = 0; b < list->n_buckets && status == F8_OK; b++)
        status = weights_add_bucket(to,
            &(struct bucket_info){.name = list->buckets[b]->name,
                .first = list->buckets[b]->first,
                .count = list->buckets[b]->count,
                .shared = list->buckets[b]->shared},
            &ignored);
    return status;
}

/* Bytes of the message become the caller's. */
static uint8_t *take_bytes(ProtobufCBinaryData *bytes)
{
    uint8_t *data = bytes->data;
    *bytes = (ProtobufCBinaryData){0};
    return data;
}

static enum served serve_list(struct hosts *hosts, uint32_t host, F8__HostList *message)
{
    struct host *far = &hosts->all[host];
    struct weight_list *list = weights_new(hosts->collective->group->world_size);
    if (!list)
        return HELD;
    if (add_weights(hosts, message, list) < 0) {
        weights_unref(list);
        return WRONG;
    }
    host_drop_amax_names(far);
    weights_unref(far->list);
    free(far->state);
    far->list = list;
    far->amax_names = message->amax_groups;
    far->num_amax_names = message->n_amax_groups;
    message->amax_groups = NULL;
    message->n_amax_groups = 0;
    far->state_size = message->state.len;
    far->state = far->state_size > 0 ? take_bytes(&message->state) : NULL;
    return SERVED;
}

static void take_seal(struct member *member, const F8__HostSeal *seal)
{
    if (!seal)
        return;
    member->seal.slots = seal->slots;
    member->seal.poison = seal->poison;
    member->seal.state = (uint8_t)seal->state;
    member->seal.syncs = seal->syncs;
    member->seal.import_size = seal->import_size;
    member->seal.import_crc = seal->import_crc;
    member->far_device = seal->device;
    member->far_number = (int32_t)seal->device_number;
}

static enum served serve_asked(struct hosts *hosts, uint32_t host, const F8__HostAsked *asked)
{
    struct collective *collective = hosts->collective;
    struct group *group = collective->group;
    struct member *member = far_member(hosts, host, asked->rank);
    bool seals = asked->kind == ROUND_SEAL;
    if (!member || asked->kind > ROUND_INVALIDATE)
        return WRONG;
    if (group->state == GROUP_BROKEN)
        return SERVED; /* its daemon will hear of it, or has told it */
    if (group->state == GROUP_FORMING && !seals)
        return HELD;
    if (seals &&
        (group->state == GROUP_SEALED || round_asked(collective->rounds, asked->rank, ROUND_SEAL)))
        return WRONG;
    if (asked->kind == ROUND_GATHER && asked->bucket >= group->list->num_buckets)
        return WRONG;
    if (seals)
        take_seal(member, asked->seal);
    int status = collective_ask_round(collective, asked->rank,
        &(struct round_request){.tag = 1,
            .kind = (enum round_kind)asked->kind,
            .bucket = asked->bucket,
            .deadline_ms = asked->deadline_ms});
    return status == F8_EBUSY || status == F8_ELIMIT ? HELD : SERVED;
}

static enum served serve_changed(struct hosts *hosts, uint32_t host, const F8__HostChanged *changed)
{
    const struct group *group = hosts->collective->group;
    struct member *member = far_member(hosts, host, changed->rank);
    if (!member)
        return WRONG;
    if (group->state != GROUP_SEALED)
        return group->state == GROUP_BROKEN ? SERVED : HELD;
    uint32_t num_weights = group->list->num_weights;
    if (changed->first > num_weights || changed->count > num_weights - changed->first)
        return WRONG;
    for (uint32_t w = changed->first; w < changed->first + changed->count; w++)
        member->versions[w]++;
    return SERVED;
}

static enum served serve_gone(struct hosts *hosts, uint32_t host, const F8__HostGone *gone)
{
    struct collective *collective = hosts->collective;
    struct member *member = far_member(hosts, host, gone->rank);
    if (!member)
        return WRONG;
    hosts->broken_afar = gone->died || collective->was_sealed; /* else they may not know it */
    round_leave(collective->rounds, gone->rank, gone->died);
    hosts->broken_afar = false;
    if (collective->group->members[gone->rank] == member)
        group_remove_member(member);
    return SERVED;
}

static enum served serve_broke(struct hosts *hosts, uint32_t host, const F8__HostBroke *broke)
{
    struct reason reason;
    if (broke->status >= 0)
        return WRONG;
    (void)reason_set(&reason, broke->status, "host %s: %.440s",
        world_host(hosts->world, host)->name, broke->text);
    hosts_break(hosts, broke->status, &reason); /* of several causes the first is kept */
    return SERVED;
}

/* A host where nothing of the era is in flight any more does not end what is in flight here, unless
 * it has ended it already. */
static enum served serve_idle(struct hosts *hosts, uint32_t host, const F8__HostIdle *idle)
{
    struct collective *collective = hosts->collective;
    struct host *far = &hosts->all[host];
    struct reason left;
    far->idle = true;
    far->completed = idle->completed;
    if (!collective)
        return SERVED;
    (void)reason_set(&left, F8_ERANKDEAD, "all ranks of host %s have left",
        world_host(hosts->world, host)->name);
    hosts_break(hosts, F8_ERANKDEAD, &left); /* if they left before they were missed here */
    if (far->completed > hosts_completed(collective))
        return SERVED; /* it has ended, there, what runs here */
    collective->refusal = collective->group->cause;
    /* On devices, what was queued here and has not ended needs the other's part, unless both have
     * queued the same. */
    bool less = far->completed < hosts_completed(collective);
    if (less || hosts->engine.step == ENGINE_QUEUES)
        comm_break(hosts, collective_cause_status(collective));
    engine_abort(hosts, collective_cause_status(collective));
    return SERVED;
}

static enum served serve_engine(struct hosts *hosts, uint32_t host, F8__HostEngine *engine)
{
    struct host *far = &hosts->all[host];
    if (!far->engine_asked) {
        far->engine_asked = true;
        far->engine_warm = engine->warm;
        far->engine_mesh = engine->mesh;
        return SERVED;
    }
    if (far->address || engine->address.len == 0)
        return WRONG;
    far->address_size = engine->address.len;
    far->address = take_bytes(&engine->address);
    return SERVED;
}

static enum served serve_amax(struct hosts *hosts, uint32_t host, const F8__HostAmax *amax)
{
    struct collective *collective = hosts->collective;
    const struct group *group = collective->group;
    if (group->state != GROUP_SEALED)
        return group->state == GROUP_BROKEN ? SERVED : HELD;
    if (collective->table.num_sources == 0 || amax->bucket >= group->list->num_buckets ||
        amax->n_amaxes != group->list->buckets[amax->bucket].count)
        return WRONG;
    return collective_post_far(collective, host, amax->bucket, amax->amaxes) ? SERVED : HELD;
}

static enum served serve_crossing(
    struct hosts *hosts, uint32_t host, const F8__HostCrossing *crossing)
{
    struct collective *collective = hosts->collective;
    const struct group *group = collective->group;
    if (group->state != GROUP_SEALED)
        return group->state == GROUP_BROKEN ? SERVED : HELD;
    uint32_t num_buckets = group->list->num_buckets;
    if (collective->table.num_sources == 0 || crossing->told >= num_buckets ||
        crossing->awaited >= num_buckets)
        return WRONG;
    if (crossing->host == hosts->here)
        collective_cross_far(collective, world_host(hosts->world, host)->name, crossing->group,
            crossing->told, crossing->awaited);
    return SERVED;
}

static enum served serve_turn(struct hosts *hosts, uint32_t host, const F8__HostTurn *turn)
{
    if (turn->number == 0)
        return WRONG;
    turn_hear(hosts, host, turn->number, turn->time);
    return SERVED;
}

static enum served serve_reduction(
    struct hosts *hosts, uint32_t host, const F8__HostReduction *reduction)
{
    /* After a death what was complete goes on here as well as there. */
    if (round_drained(hosts->collective->rounds) && hosts->collective->group->state == GROUP_BROKEN)
        return SERVED;
    if (reduction->number == 0)
        return WRONG;
    size_t size = reduction->n_amaxes * sizeof(uint32_t);
    uint32_t *amaxes = malloc(size + 1);
    if (!amaxes)
        return HELD;
    if (size > 0)
        memcpy(amaxes, reduction->amaxes, size);
    if (comm_hear_reduction(hosts, host, reduction->number, amaxes, (uint32_t)reduction->n_amaxes))
        return SERVED;
    free(amaxes);
    return HELD;
}

static enum served serve_message(struct hosts *hosts, uint32_t host, F8__HostMessage *message)
{
    switch (message->body_case) {
    case F8__HOST_MESSAGE__BODY_ENTERED:
        return serve_entered(hosts, host, message->entered);
    case F8__HOST_MESSAGE__BODY_LIST:
        return serve_list(hosts, host, message->list);
    case F8__HOST_MESSAGE__BODY_ASKED:
        return serve_asked(hosts, host, message->asked);
    case F8__HOST_MESSAGE__BODY_CHANGED:
        return serve_changed(hosts, host, message->changed);
    case F8__HOST_MESSAGE__BODY_GONE:
        return serve_gone(hosts, host, message->gone);
    case F8__HOST_MESSAGE__BODY_BROKE:
        return serve_broke(hosts, host, message->broke);
    case F8__HOST_MESSAGE__BODY_IDLE:
        return serve_idle(hosts, host, message->idle);
    case F8__HOST_MESSAGE__BODY_ENGINE:
        return serve_engine(hosts, host, message->engine);
    case F8__HOST_MESSAGE__BODY_AMAX:
        return serve_amax(hosts, host, message->amax);
    case F8__HOST_MESSAGE__BODY_CROSSING:
        return serve_crossing(hosts, host, message->crossing);
    case F8__HOST_MESSAGE__BODY_TURN:
        return serve_turn(hosts, host, message->turn);
    case F8__HOST_MESSAGE__BODY_LATE:
        engine_hear_late(hosts, host, message->late->done);
        return SERVED;
    case F8__HOST_MESSAGE__BODY_REDUCTION:
        return serve_reduction(hosts, host, message->reduction);
    default:
        return SERVED; /* of a later version */
    }
}

/* The first message of a host, if it is time for it; whether it was taken. */
static bool serve_first(struct hosts *hosts, uint32_t host)
{
    F8__HostMessage *message = hosts->all[host].held->message;
    enum served served = SERVED;
    if (message->era > hosts->era)
        return false;
    bool counts = hosts->collective || message->body_case == F8__HOST_MESSAGE__BODY_IDLE;
    if (message->era == hosts->era && counts)
        served = serve_message(hosts, host, message);
    if (served == HELD)
        return false;
    if (served == WRONG)
        refuse(hosts, host, "a message that does not fit what it told before");
    drop_first(&hosts->all[host]);
    return true;
}

void hosts_serve(struct hosts *hosts)
{
    if (hosts->serving || !hosts_formed(hosts))
        return;
    hosts->serving = true;
    bool again = true;
    while (again) {
        again = false;
        for (uint32_t h = 0; h < hosts->num_hosts; h++)
            while (hosts->all[h].held && serve_first(hosts, h))
                again = true;
    }
    hosts->serving = false;
    if (hosts->collective)
        engine_poke(hosts);
}
