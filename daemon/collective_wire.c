/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a host tells the others of a group's rounds: messages of hosts.proto, in the order in which
 * things happen here. Until the world has formed they wait. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

/* A message that waits for the world to form. */
struct told {
    struct told *next;
    size_t size;
    uint8_t data[];
};

void hosts_drop_told(struct hosts *hosts)
{
    while (hosts->told) {
        struct told *told = hosts->told;
        hosts->told = told->next;
        free(told);
    }
    hosts->told_end = &hosts->told;
}

void hosts_flush(struct hosts *hosts)
{
    for (const struct told *told = hosts->told; told; told = told->next)
        world_send(hosts->world, told->data, told->size);
    hosts_drop_told(hosts);
}

/* Without memory for it the others would wait in vain: then the group cannot go on at all. */
static int tell(struct hosts *hosts, F8__HostMessage *message)
{
    message->era = hosts->era;
    size_t size = f8__host_message__get_packed_size(message);
    struct told *told = size <= WORLD_MAX_MESSAGE ? malloc(sizeof(*told) + size) : NULL;
    if (!told)
        return size <= WORLD_MAX_MESSAGE ? F8_ENOMEM : F8_ELIMIT;
    *told = (struct told){.size = f8__host_message__pack(message, told->data)};
    if (hosts_formed(hosts)) {
        world_send(hosts->world, told->data, told->size);
        free(told);
        return F8_OK;
    }
    *hosts->told_end = told;
    hosts->told_end = &told->next;
    return F8_OK;
}

static void tell_or_break(struct hosts *hosts, F8__HostMessage *message)
{
    if (tell(hosts, message) == F8_OK || !hosts->collective)
        return;
    (void)reason_set(&hosts->over, F8_ENOMEM,
        "out of memory for what the other hosts of group %s are to be told",
        hosts->collective->group->name);
    hosts_break(hosts, F8_ENOMEM, &hosts->over);
}

void hosts_tell_entered(struct hosts *hosts, const struct member *member)
{
    F8__HostEntered entered = F8__HOST_ENTERED__INIT;
    F8__HostMessage message = F8__HOST_MESSAGE__INIT;
    entered.rank = member->rank;
    entered.pid = member->pid;
    message.body_case = F8__HOST_MESSAGE__BODY_ENTERED;
    message.entered = &entered;
    tell_or_break(hosts, &message);
}

void hosts_tell_asked(
    struct hosts *hosts, const struct member *member, const struct round_request *request)
{
    F8__HostSeal seal = F8__HOST_SEAL__INIT;
    F8__HostAsked asked = F8__HOST_ASKED__INIT;
    F8__HostMessage message = F8__HOST_MESSAGE__INIT;
    asked.rank = member->rank;
    asked.kind = request->kind;
    asked.bucket = request->bucket;
    asked.deadline_ms = request->deadline_ms;
    if (request->kind == ROUND_SEAL) {
        seal.slots = member->seal.slots;
        seal.poison = member->seal.poison;
        seal.state = member->seal.state;
        seal.syncs = member->seal.syncs;
        seal.import_size = member->seal.import_size;
        seal.import_crc = member->seal.import_crc;
        seal.device = member->device != NULL;
        seal.device_number = member->device ? (uint32_t)member->device->number : 0;
        asked.seal = &seal;
    }
    message.body_case = F8__HOST_MESSAGE__BODY_ASKED;
    message.asked = &asked;
    tell_or_break(hosts, &message);
}

void hosts_tell_changed(
    struct hosts *hosts, const struct member *member, uint32_t first, uint32_t count)
{
    F8__HostChanged changed = F8__HOST_CHANGED__INIT;
    F8__HostMessage message = F8__HOST_MESSAGE__INIT;
    changed.rank = member->rank;
    changed.first = first;
    changed.count = count;
    message.body_case = F8__HOST_MESSAGE__BODY_CHANGED;
    message.changed = &changed;
    tell_or_break(hosts, &message);
}

void hosts_tell_gone(struct hosts *hosts, const struct member *member, bool died)
{
    F8__HostGone gone = F8__HOST_GONE__INIT;
    F8__HostMessage message = F8__HOST_MESSAGE__INIT;
    gone.rank = member->rank;
    gone.died = died;
    message.body_case = F8__HOST_MESSAGE__BODY_GONE;
    message.gone = &gone;
    (void)tell(hosts, &message); /* without it, the break tells as much */
}

void hosts_tell_broke(struct hosts *hosts, int status, const struct reason *cause)
{
    F8__HostBroke broke = F8__HOST_BROKE__INIT;
    F8__HostMessage message = F8__HOST_MESSAGE__INIT;
    broke.status = status;
    broke.text = (char *)(uintptr_t)cause->text;
    message.body_case = F8__HOST_MESSAGE__BODY_BROKE;
    message.broke = &broke;
    (void)tell(hosts, &message); /* without it, this host's becoming idle ends the others' rounds */
}

void hosts_tell_idle(struct hosts *hosts, uint64_t completed)
{
    F8__HostIdle idle = F8__HOST_IDLE__INIT;
    F8__HostMessage message = F8__HOST_MESSAGE__INIT;
    idle.completed = completed;
    message.body_case = F8__HOST_MESSAGE__BODY_IDLE;
    message.idle = &idle;
    hosts->told_idle = true;
    tell_or_break(hosts, &message);
}

void hosts_tell_engine(struct hosts *hosts, uint64_t mesh, const uint8_t *address, size_t size)
{
    F8__HostEngine engine = F8__HOST_ENGINE__INIT;
    F8__HostMessage message = F8__HOST_MESSAGE__INIT;
    engine.warm = mesh != 0;
    engine.mesh = mesh;
    engine.address = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)address, .len = size};
    message.body_case = F8__HOST_MESSAGE__BODY_ENGINE;
    message.engine = &engine;
    tell_or_break(hosts, &message);
}

void hosts_tell_amax(struct hosts *hosts, uint32_t bucket, const uint32_t *amaxes, uint32_t count)
{
    F8__HostAmax amax = F8__HOST_AMAX__INIT;
    F8__HostMessage message = F8__HOST_MESSAGE__INIT;
    amax.bucket = bucket;
    amax.amaxes = (uint32_t *)(uintptr_t)amaxes;
    amax.n_amaxes = count;
    message.body_case = F8__HOST_MESSAGE__BODY_AMAX;
    message.amax = &amax;
    tell_or_break(hosts, &message);
}

void hosts_tell_crossing(struct hosts *hosts, uint32_t host, uint32_t told, uint32_t awaited,
    const struct group *waiting)
{
    F8__HostCrossing crossing = F8__HOST_CROSSING__INIT;
    F8__HostMessage message = F8__HOST_MESSAGE__INIT;
    crossing.host = host;
    crossing.told = told;
    crossing.awaited = awaited;
    crossing.group = waiting->name;
    message.body_case = F8__HOST_MESSAGE__BODY_CROSSING;
    message.crossing = &crossing;
    (void)tell(hosts, &message); /* without it the deadline ends what waits */
}

void hosts_tell_late(struct hosts *hosts, uint64_t done)
{
    F8__HostLate late = F8__HOST_LATE__INIT;
    F8__HostMessage message = F8__HOST_MESSAGE__INIT;
    late.done = done;
    message.body_case = F8__HOST_MESSAGE__BODY_LATE;
    message.late = &late;
    (void)tell(hosts, &message); /* without it, hosts that wait for this one may be quicker */
}

void hosts_tell_turn(struct hosts *hosts, uint64_t number, uint64_t time)
{
    F8__HostTurn turn = F8__HOST_TURN__INIT;
    F8__HostMessage message = F8__HOST_MESSAGE__INIT;
    turn.number = number;
    turn.time = time;
    message.body_case = F8__HOST_MESSAGE__BODY_TURN;
    message.turn = &turn;
    tell_or_break(hosts, &message);
}

void hosts_tell_reduction(
    struct hosts *hosts, uint64_t number, const uint32_t *amaxes, uint32_t count)
{
    F8__HostReduction reduction = F8__HOST_REDUCTION__INIT;
    F8__HostMessage message = F8__HOST_MESSAGE__INIT;
    reduction.number = number;
    reduction.amaxes = (uint32_t *)(uintptr_t)amaxes;
    reduction.n_amaxes = count;
    message.body_case = F8__HOST_MESSAGE__BODY_REDUCTION;
    message.reduction = &reduction;
    tell_or_break(hosts, &message);
}

/* ---- the list ---- */

/* The messages of a list, which point into it. */
struct list_messages {
    F8__HostList list;
    F8__Weight *weights, **weight_pointers;
    F8__Bucket *buckets, **bucket_pointers;
    char **amax_groups;
};

static void free_messages(struct list_messages *messages)
{
    free(messages->weights);
    free(messages->weight_pointers);
    free(messages->buckets);
    free(messages->bucket_pointers);
    free(messages->amax_groups);
}

/* The name of a group by its id here; "" for none. */
static char *name_of_group(const struct job *job, uint32_t id)
{
    for (const struct group *group = job->groups; group && id != 0; group = group->next)
        if (group->id == id)
            return group->name;
    return (char *)(uintptr_t) "";
}

static int make_messages(
    const struct hosts *hosts, const struct weight_list *list, struct list_messages *messages)
{
    *messages = (struct list_messages){.list = F8__HOST_LIST__INIT};
    size_t num_weights = list->num_weights, num_buckets = list->num_buckets;
    messages->weights = calloc(num_weights + 1, sizeof(*messages->weights));
    messages->weight_pointers = calloc(num_weights + 1, sizeof(*messages->weight_pointers));
    messages->buckets = calloc(num_buckets + 1, sizeof(*messages->buckets));
    messages->bucket_pointers = calloc(num_buckets + 1, sizeof(*messages->bucket_pointers));
    messages->amax_groups = calloc(num_weights + 1, sizeof(*messages->amax_groups));
    if (!messages->weights || !messages->weight_pointers || !messages->buckets ||
        !messages->bucket_pointers || !messages->amax_groups)
        return F8_ENOMEM;
    for (size_t w = 0; w < num_weights; w++) {
        weight_to_message(&list->weights[w], &messages->weights[w]);
        messages->weight_pointers[w] = &messages->weights[w];
        messages->amax_groups[w] =
            name_of_group(hosts->collective->group->job, list->weights[w].amax_group);
    }
    for (size_t b = 0; b < num_buckets; b++) {
        f8__bucket__init(&messages->buckets[b]);
        messages->buckets[b].name = (char *)(uintptr_t)list->buckets[b].name;
        messages->buckets[b].first = list->buckets[b].first;
        messages->buckets[b].count = list->buckets[b].count;
        messages->buckets[b].shared = list->buckets[b].shared;
        messages->bucket_pointers[b] = &messages->buckets[b];
    }
    messages->list.weights = messages->weight_pointers;
    messages->list.n_weights = num_weights;
    messages->list.buckets = messages->bucket_pointers;
    messages->list.n_buckets = num_buckets;
    messages->list.amax_groups = messages->amax_groups;
    messages->list.n_amax_groups = num_weights;
    return F8_OK;
}

/* What is stored here, without the token, which is nobody else's to know. */
static int copy_state(const struct group *group, struct state_form *ret_form, struct reason *reason)
{
    const struct state_head *head = state_head(group->stored);
    struct state_owner owner = head->owner;
    owner.token = NULL;
    owner.token_size = 0;
    return state_form_copy(&owner, head, state_values(group->stored), ret_form, reason);
}

static int tell_list(struct hosts *hosts, F8__HostList *list, bool continues)
{
    const struct group *group = hosts->collective->group;
    F8__HostMessage message = F8__HOST_MESSAGE__INIT;
    struct state_form form = {0};
    struct reason ignored;
    int status = continues && group->stored ? copy_state(group, &form, &ignored) : F8_OK;
    if (status < 0)
        return status;
    list->state = (ProtobufCBinaryData){.data = form.bytes, .len = form.size};
    message.body_case = F8__HOST_MESSAGE__BODY_LIST;
    message.list = list;
    status = tell(hosts, &message);
    state_form_done(&form);
    return status;
}

int hosts_tell_list(
    struct hosts *hosts, const struct weight_list *list, bool continues, struct reason *reason)
{
    const struct group *group = hosts->collective->group;
    struct list_messages messages;
    int status = make_messages(hosts, list, &messages);
    if (status == F8_OK)
        status = tell_list(hosts, &messages.list, continues);
    free_messages(&messages);
    if (status == F8_ELIMIT)
        return reason_set(reason, status,
            "what the ranks of group %s registered, with its stored state, has more bytes than "
            "hosts can tell one another, %zu",
            group->name, WORLD_MAX_MESSAGE);
    if (status < 0)
        return reason_set(reason, status,
            "out of memory telling the other hosts of group %s what was registered", group->name);
    return F8_OK;
}
