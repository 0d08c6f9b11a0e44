/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seal: compares what the ranks registered, and makes the group ready for its collectives, once
 * the arena is reserved. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

/* "a fresh state", "the state of sync 7": in a buffer, which it returns. */
static char *describe_state(const struct member_seal *seal, char *buffer, size_t size)
{
    if (seal->state == F8_PROTO_STATE_FRESH)
        (void)snprintf(buffer, size, "a fresh state");
    else if (seal->state == F8_PROTO_STATE_IMPORT)
        (void)snprintf(buffer, size, "an import of %zu bytes, checksum 0x%08x", seal->import_size,
            seal->import_crc);
    else if (seal->syncs == F8_PROTO_ANY_SYNCS)
        (void)snprintf(buffer, size, "the stored state");
    else
        (void)snprintf(buffer, size, "the stored state of sync %" PRIu64, seal->syncs);
    return buffer;
}

static int compare_states(const struct member *a, const struct member *b, struct reason *reason)
{
    char of_a[80], of_b[80], who_a[COLLECTIVE_WHO], who_b[COLLECTIVE_WHO];
    describe_state(&a->seal, of_a, sizeof(of_a));
    describe_state(&b->seal, of_b, sizeof(of_b));
    if (strcmp(of_a, of_b) == 0)
        return F8_OK;
    return reason_set(reason, F8_EMISMATCH, "%s sealed with %s where %s did with %s",
        collective_who(b, who_b), of_b, collective_who(a, who_a), of_a);
}

static int compare_options(const struct member *a, const struct member *b, struct reason *reason)
{
    const struct member_seal *x = &a->seal, *y = &b->seal;
    char who_a[COLLECTIVE_WHO], who_b[COLLECTIVE_WHO];
    if (x->slots != y->slots)
        return reason_set(reason, F8_EMISMATCH, "%s sealed with %u slots where %s gave %u",
            collective_who(b, who_b), y->slots, collective_who(a, who_a), x->slots);
    if (x->poison != y->poison)
        return reason_set(reason, F8_EMISMATCH, "%s sealed %s poison where %s sealed %s",
            collective_who(b, who_b), y->poison ? "with" : "without", collective_who(a, who_a),
            x->poison ? "with" : "without");
    return compare_states(a, b, reason);
}

static struct weights_party party(const struct member *member)
{
    return (struct weights_party){.list = member->list,
        .rank = member->rank,
        .pid = member->pid,
        .host = member->far ? hosts_name_of(member->group->collective->hosts, member) : NULL};
}

static int compare_members(const struct group *group, struct reason *reason)
{
    const struct member *first = group_member_of(group, 0);
    struct weights_party a = party(first);
    int status = weights_check_complete(first->list, reason);
    for (uint32_t r = 1; r < group->world_size && status == F8_OK; r++) {
        const struct member *other = group_member_of(group, r);
        struct weights_party b = party(other);
        status = weights_compare(&a, &b, reason);
        if (status == F8_OK)
            status = compare_options(first, other, reason);
    }
    return status;
}

static int check_slots(const struct weight_list *list, uint32_t slots, struct reason *reason)
{
    for (uint32_t b = 0; b < list->num_buckets && slots == 0; b++)
        if (list->buckets[b].shared)
            return reason_set(reason, F8_EINVAL,
                "bucket %s is shared, but the group was sealed with 0 slots: give at least 1",
                list->buckets[b].name);
    return F8_OK;
}

/* A shard that is not empty must lie somewhere, and where its rank works. */
static int check_shards(const struct member *member, struct reason *reason)
{
    const struct weight_list *list = member->list;
    for (uint32_t w = 0; w < list->num_weights && !member->far; w++) {
        const struct region *region = member->shards[w].region;
        if (!region && weight_shard_count(&list->weights[w], list->world_size, member->rank) > 0)
            return reason_set(reason, F8_EINVAL,
                "rank %u (pid %u): the shard of weight %s has no region", member->rank, member->pid,
                list->weights[w].name);
        if (region && !region->backend && member->device)
            return reason_set(reason, F8_EREGION,
                "rank %u (pid %u): the shard of weight %s lies on the host, but its client works "
                "on device %d: it was registered before the device was added",
                member->rank, member->pid, list->weights[w].name, member->device->number);
    }
    return F8_OK;
}

/* The group takes the list, and keeps the state of weights that it knows. */
static int adopt_list(struct collective *collective, struct weight_list *list)
{
    struct group *group = collective->group;
    struct reason ignored;
    struct weights_party old = {.list = group->list}, new = {.list = list};
    bool known = group->list && weights_compare(&old, &new, &ignored) == F8_OK;
    struct scaling *scalings = known ? group->scalings : scaling_new(list);
    if (!scalings)
        return reason_set(
            &collective->refusal, F8_ENOMEM, "out of memory sealing group %s", group->name);
    for (uint32_t w = 0; w < list->num_weights && known; w++) {
        scaling_next_generation(&scalings[w], &list->weights[w]);
        if (list->weights[w].amax_group != 0) /* its state comes with the seal of that group */
            scaling_invalidate(&scalings[w], &list->weights[w]);
    }
    if (!known) {
        free(group->scalings);
        group->scalings = scalings;
        history_free(group->history);
        group->history = NULL;
        group->syncs = 0;
    }
    weights_ref(list);
    weights_unref(group->list);
    group->list = list;
    return F8_OK;
}

/* All members share the group's list from now on; what they registered is the same. */
static void share_list(struct group *group)
{
    for (uint32_t r = 0; r < group->world_size; r++) {
        struct member *member = group_member_of(group, r);
        struct weight_list *own = member->list;
        member->list = weights_ref(group->list);
        weights_unref(own);
    }
}

static void count_float8(struct group *group)
{
    group->float8_bytes = 0;
    for (uint32_t w = 0; w < group->list->num_weights; w++)
        if (weight_is_float8(&group->list->weights[w]))
            group->float8_bytes += weight_wire_bytes(&group->list->weights[w]);
}

/* Everything is compared and reserved: the group's new machine knows its buckets. */
static int make_machine(struct collective *collective)
{
    struct group *group = collective->group;
    bool *shared = calloc(group->list->num_buckets, sizeof(*shared));
    if (!shared)
        return F8_ENOMEM;
    for (uint32_t b = 0; b < group->list->num_buckets; b++)
        shared[b] = group->list->buckets[b].shared;
    struct rounds *rounds = round_new(
        &(struct round_shape){
            .ranks = group->world_size,
            .buckets = group->list->num_buckets,
            .slots = group->slots,
            .depth = collective->context->config->max_rounds,
            .shared = shared,
            .first = round_next(collective->rounds),
            .sealed = true,
        },
        &collective_round_ops, collective);
    free(shared);
    if (!rounds)
        return F8_ENOMEM;
    collective->sealed = rounds;
    return F8_OK;
}

/* All that the collectives of the generation need, before anyone is told that it is sealed. */
static int prepare(struct collective *collective)
{
    int status = make_machine(collective);
    if (status == F8_OK)
        status = collective_make_table(collective);
    if (status == F8_OK)
        status = collective_prepare_runs(collective);
    if (status == F8_OK)
        status = collective_prepare_earlies(collective);
    if (status == F8_OK)
        status = collective_prepare_told(collective);
    if (status == F8_OK)
        status = collective_prepare_device(collective);
    if (status == F8_OK && collective->hosts)
        status = hosts_reserve_versions(collective->hosts);
    if (status == F8_OK)
        return F8_OK;
    free(collective->sealed);
    collective->sealed = NULL;
    return reason_set(
        &collective->refusal, status, "out of memory sealing group %s", collective->group->name);
}

/* The forming machine hands over; ranks that died while the seal ran break the new one at once. */
static void hand_over(struct collective *collective)
{
    struct group *group = collective->group;
    struct rounds *forming = collective->rounds;
    collective->rounds = collective->sealed;
    collective->sealed = NULL;
    collective->was_sealed = true;
    for (uint32_t r = 0; r < group->world_size; r++)
        round_enter(collective->rounds, r);
    for (uint32_t r = 0; r < group->world_size; r++)
        if (!group->members[r])
            round_leave(collective->rounds, r, true);
    if (group->state == GROUP_BROKEN && !round_is_broken(collective->rounds))
        round_break(collective->rounds,
            collective_cause_status(collective)); /* by a linked group, while the seal ran */
    free(forming);
}

/* Checkpoints are large: they are not kept for longer than they are needed. */
static void drop_imports(struct group *group)
{
    for (uint32_t r = 0; r < group->world_size; r++) {
        struct member *member = group_member_of(group, r);
        free(member->seal.import);
        member->seal.import = NULL;
    }
}

/*
 * Registering left arrays that were to grow, and a list for each rank. Much of it is freed memory
 * amid what stays, which only trimming gives back: seals are rare, and lists can be long.
 */
static void trim(struct group *group)
{
    weights_trim(group->list);
    for (uint32_t r = 0; r < group->world_size; r++)
        if (group->members[r])
            member_trim(group->members[r]);
    (void)malloc_trim(0);
}

void collective_end_seal(struct collective *collective, int status)
{
    struct group *group = collective->group;
    if (status == F8_OK)
        status = prepare(collective);
    if (status == F8_OK)
        status = collective_take_state(collective);
    drop_imports(group);
    if (status == F8_OK && collective_settle_state(collective))
        collective_settle(collective);
    else
        collective_sealed(collective, status);
}

/* Meanwhile ranks may have died, and linked groups or other hosts have broken this one. */
void collective_sealed(struct collective *collective, int status)
{
    struct group *group = collective->group;
    if (status < 0) {
        free(collective->sealed);
        collective->sealed = NULL;
    }
    if (status == F8_OK && group->state == GROUP_FORMING)
        group->state = GROUP_SEALED;
    round_finished(collective->rounds, status);
    if (status == F8_OK) {
        trim(group);
        if (group->state == GROUP_SEALED)
            collective_tell_sealed(group);
        hand_over(collective);
    }
    collective_settle(collective);
}

static bool any_shared(const struct weight_list *list)
{
    for (uint32_t b = 0; b < list->num_buckets; b++)
        if (list->buckets[b].shared)
            return true;
    return false;
}

/*
 * The amax group that the weights name must be there, in all ranks, and still be open. From here on
 * it knows of this one: its own seal, which may come before ours has ended, must not leave it out.
 */
static int link_names(struct collective *collective, struct group *names)
{
    struct group *group = collective->group;
    struct reason *reason = &collective->refusal;
    if (!names)
        return F8_OK;
    /* A seal that runs has compared what was linked before it began. */
    struct round_head head;
    bool seals = round_head(names->collective->rounds, &head) && head.running;
    if (names->state == GROUP_SEALED || seals)
        return reason_set(reason, F8_EORDER,
            "amax group %s is %s already: seal group %s, whose weights name it, first", names->name,
            seals ? "being sealed" : "sealed", group->name);
    for (uint32_t r = 0; r < group->world_size; r++) {
        const struct member *member = group_member_of(group, r);
        if (member->session && !group_member_for(names, member->session))
            return reason_set(reason, F8_EINVAL,
                "rank %u (pid %u) of group %s has not joined its amax group %s", r, member->pid,
                group->name, names->name);
    }
    group_link(group, names);
    return F8_OK;
}

/* Last of what is checked: the memory, after an engine between the hosts if there are several. */
static int reserve(struct collective *collective)
{
    if (!collective->hosts)
        return collective_reserve(collective);
    engine_prepare(collective->hosts);
    return F8_OK;
}

/* An amax group of others: its list follows from theirs, and it has no arena. */
static int start_amax_seal(struct collective *collective)
{
    struct group *group = collective->group;
    if (group_present(group) < group->world_size)
        return reason_set(
            &collective->refusal, F8_ERANKDEAD, "a rank of group %s died or left", group->name);
    struct weight_list *list;
    int status = collective_choose_backend(collective);
    if (status == F8_OK && collective->hosts)
        status = hosts_seat_lists(collective->hosts, &collective->refusal);
    for (uint32_t r = 1; r < group->world_size && status == F8_OK; r++)
        status = compare_options(group->members[0], group->members[r], &collective->refusal);
    if (status == F8_OK)
        status = collective_compare_sources(collective, &list);
    if (status < 0)
        return status;
    if (collective->hosts)
        status = hosts_compare_lists(collective->hosts, list, &collective->refusal);
    struct weight_list *common =
        collective->hosts ? hosts_common_list(collective->hosts, list) : list;
    if (status == F8_OK)
        status = collective_check_state(collective, common);
    if (status == F8_OK)
        status = adopt_list(collective, common);
    weights_unref(list);
    if (status < 0)
        return status;
    collective->layout = (struct weights_layout){0};
    return reserve(collective);
}

/* The amax group that this host's ranks name: those of others name their own of that name. */
static struct group *names_here(const struct group *group)
{
    uint32_t r = 0;
    while (group_member_of(group, r)->far)
        r++;
    return group_member_of(group, r)->names;
}

int collective_start_seal(struct collective *collective)
{
    struct group *group = collective->group;
    struct reason *refusal = &collective->refusal;
    const struct member *first = group_member_of(group, 0);
    group->slots = first->seal.slots;
    group->poison = first->seal.poison;
    if (group->sources)
        return start_amax_seal(collective);
    int status = F8_OK;
    if (collective->hosts)
        status = hosts_seat_lists(collective->hosts, refusal);
    if (status == F8_OK)
        status = compare_members(group, refusal);
    if (status == F8_OK)
        status = collective_choose_backend(collective);
    if (status == F8_OK)
        status = check_slots(first->list, first->seal.slots, refusal);
    for (uint32_t r = 0; r < group->world_size && status == F8_OK; r++)
        status = check_shards(group_member_of(group, r), refusal);
    if (status == F8_OK)
        status = link_names(collective, names_here(group));
    if (status == F8_OK)
        status = collective_check_state(collective, first->list);
    if (status == F8_OK)
        status = adopt_list(collective, first->list);
    if (status < 0)
        return status;
    share_list(group);
    count_float8(group);
    if (weights_lay_out(group->list, group->slots, &collective->layout) < 0)
        return reason_set(refusal, F8_ELIMIT,
            "the arena of group %s with %u slots would be larger than any file: register smaller "
            "weights or give fewer slots",
            group->name, group->slots);
    collective->dirty = group->poison || any_shared(group->list);
    return reserve(collective);
}
