/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the seal of a group over several hosts compares and takes from other hosts: what their ranks
 * registered, and the scaling state that they have stored. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/log.h"
#include "status.h"

/* Whether all ranks of this host but `last` have asked for the seal. */
static bool others_asked(const struct hosts *hosts, const struct member *last)
{
    const struct collective *collective = hosts->collective;
    const struct group *group = collective->group;
    uint32_t asked = 1;
    for (uint32_t r = 0; r < group->world_size; r++) {
        const struct member *member = group->members[r];
        asked += member && member != last && !member->far &&
                 member->generation == group->generation &&
                 round_asked(collective->rounds, r, ROUND_SEAL);
    }
    return asked == hosts->local_ranks;
}

int hosts_prepare_seal(struct hosts *hosts, const struct member *member, struct reason *reason)
{
    struct collective *collective = hosts->collective;
    struct group *group = collective->group;
    if (!others_asked(hosts, member))
        return F8_OK;
    bool continues = member->seal.state == F8_PROTO_STATE_CONTINUE;
    if (continues)
        collective_find_state(collective);
    if (!group->sources)
        return hosts_tell_list(hosts, group_first_here(group)->list, continues, reason);
    struct weight_list *list;
    int status = collective_compare_sources(collective, &list);
    if (status < 0) {
        *reason = collective->refusal;
        return status;
    }
    status = hosts_tell_list(hosts, list, continues, reason);
    weights_unref(list);
    return status;
}

/*
 * The amax groups that a host's weights name, as this host knows them: not before all ranks have
 * asked for the seal, as until then those of this host may still be about to join them.
 */
static int find_amax_groups(struct hosts *hosts, uint32_t host, struct reason *reason)
{
    const struct group *group = hosts->collective->group;
    struct host *far = &hosts->all[host];
    for (uint32_t w = 0; far->list && w < far->list->num_weights && w < far->num_amax_names; w++) {
        struct weight *weight = &far->list->weights[w];
        const char *name = far->amax_names[w];
        const struct group *found = name[0] ? registry_find_group(group->job, name) : NULL;
        if (name[0] && !found)
            return reason_set(reason, F8_EMISMATCH,
                "group %.80s: on host %.64s weight %.80s names amax group %.80s, which no rank of "
                "host %.64s has joined",
                group->name, world_host(hosts->world, host)->name, weight->name, name,
                world_host(hosts->world, hosts->here)->name);
        weight->amax_group = found ? found->id : 0;
    }
    host_drop_amax_names(far);
    return F8_OK;
}

int hosts_seat_lists(struct hosts *hosts, struct reason *reason)
{
    struct group *group = hosts->collective->group;
    for (uint32_t h = 0; h < hosts->num_hosts; h++) {
        int status = find_amax_groups(hosts, h, reason);
        if (status < 0)
            return status;
    }
    for (uint32_t r = 0; r < group->world_size; r++) {
        struct member *member = group_member_of(group, r);
        if (!member->far)
            continue;
        struct weight_list *list = hosts->all[member->far_host].list;
        if (!list)
            return reason_set(reason, F8_EPROTO,
                "host %s asked for the seal of group %s without telling what it registered",
                hosts_name_of(hosts, member), group->name);
        weights_unref(member->list);
        member->list = weights_ref(list);
    }
    return F8_OK;
}

int hosts_compare_lists(struct hosts *hosts, const struct weight_list *list, struct reason *reason)
{
    const struct group *group = hosts->collective->group;
    const struct member *here = group_first_here(group);
    int status = F8_OK;
    for (uint32_t r = 0; r < group->world_size && status == F8_OK; r++) {
        const struct member *far = group_member_of(group, r);
        if (!far->far)
            continue;
        struct weights_party a = {.list = list, .rank = here->rank, .pid = here->pid};
        struct weights_party b = {
            .list = far->list, .rank = r, .pid = far->pid, .host = hosts_name_of(hosts, far)};
        status = weights_compare_parts(&a, &b, reason);
    }
    return status;
}

struct weight_list *hosts_common_list(const struct hosts *hosts, struct weight_list *list)
{
    return hosts->here == 0 ? list : hosts->all[0].list;
}

int hosts_reserve_versions(struct hosts *hosts)
{
    struct group *group = hosts->collective->group;
    int status = F8_OK;
    for (uint32_t r = 0; r < group->world_size && status == F8_OK; r++) {
        struct member *member = group_member_of(group, r);
        if (member->far)
            status = member_reserve(member, group->list->num_weights);
    }
    return status;
}

/* ---- the stored state ---- */

/* A host's state that was told, once it is checked; NULL if it has none. */
static int check_told(const struct hosts *hosts, uint32_t host, const struct weight_list *list,
    const uint8_t **ret_values, struct reason *reason)
{
    const struct host *far = &hosts->all[host];
    struct state_head head;
    char what[160];
    *ret_values = NULL;
    if (!far->state)
        return F8_OK;
    (void)snprintf(what, sizeof(what), "the state that host %.60s stored of group %.60s",
        world_host(hosts->world, host)->name, hosts->collective->group->name);
    int status = state_form_check(far->state, far->state_size, what, &head, reason);
    if (status == F8_OK)
        status = state_head_compare(&head, list, what, reason);
    if (status == F8_OK)
        *ret_values = far->state + head.size;
    return status;
}

static const char *host_name(const struct hosts *hosts, uint32_t host)
{
    return world_host(hosts->world, host)->name;
}

/* One host's state against the newest: it may be one sync behind, when it missed the last. */
static int compare_values(const struct hosts *hosts, const struct weight_list *list,
    const uint8_t *newest, uint32_t newest_host, const uint8_t *other, uint32_t host,
    struct reason *reason)
{
    uint64_t syncs = state_values_syncs(other), most = state_values_syncs(newest);
    const char *group = hosts->collective->group->name;
    if (most - syncs > 1)
        return reason_set(reason, F8_EMISMATCH,
            "the stored states of group %.100s are apart: host %.64s has seen %" PRIu64
            " syncs where host %.64s has seen %" PRIu64 "; import one, or start afresh",
            group, host_name(hosts, host), syncs, host_name(hosts, newest_host), most);
    if (syncs == most && !state_values_same(list, newest, other))
        return reason_set(reason, F8_EMISMATCH,
            "the stored states of group %.100s at sync %" PRIu64
            " differ between hosts %.64s and %.64s; import one, or start afresh",
            group, syncs, host_name(hosts, newest_host), host_name(hosts, host));
    if (syncs == most)
        return F8_OK;
    struct log_fields fields = collective_fields(hosts->collective->group);
    fields.host = host_name(hosts, host);
    log_of(&fields, LOG_LEVEL_INFO,
        "job %s, group %s: host %s continues at sync %" PRIu64 " as host %s has it", fields.job,
        group, fields.host, most, host_name(hosts, newest_host));
    return F8_OK;
}

int hosts_newest_values(struct hosts *hosts, const struct weight_list *list, const uint8_t *own,
    const uint8_t **ret_values, struct reason *reason)
{
    const uint8_t *newest = own;
    uint32_t newest_host = hosts->here;
    int status = F8_OK;
    for (uint32_t h = 0; h < hosts->num_hosts && status == F8_OK; h++) {
        const uint8_t *values = NULL;
        status = check_told(hosts, h, list, &values, reason);
        if (values && (!newest || state_values_syncs(values) > state_values_syncs(newest))) {
            newest = values;
            newest_host = h;
        }
    }
    for (uint32_t h = 0; h < hosts->num_hosts && status == F8_OK && newest; h++) {
        const uint8_t *values = own;
        if (h != hosts->here)
            status = check_told(hosts, h, list, &values, reason);
        if (status == F8_OK && values)
            status = compare_values(hosts, list, newest, newest_host, values, h, reason);
    }
    if (status == F8_OK)
        *ret_values = newest;
    return status;
}
