/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a group's scaling state comes from at the seal, and that it is stored before any rank is
 * told: at the seal, and after each sync and invalidate. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "daemon/log.h"
#include "daemon/state_saver.h"
#include "status.h"

#define WHAT_TEXT 300 /* "the stored state of group dp" */

static struct state_owner owner_of(const struct group *group)
{
    const struct job *job = group->job;
    return (struct state_owner){
        .uid = job->uid,
        .job = job->name,
        .group = group->name,
        .token = job->token,
        .token_size = job->token_size,
    };
}

/* "continues at sync 7", "continues". */
static char *wanted(uint64_t syncs, char *buffer, size_t size)
{
    if (syncs == F8_PROTO_ANY_SYNCS)
        (void)snprintf(buffer, size, "continues");
    else
        (void)snprintf(buffer, size, "continues at sync %" PRIu64, syncs);
    return buffer;
}

/* This host's own, if it has one. */
static int check_own(
    const struct group *group, const struct weight_list *list, struct reason *reason)
{
    char what[WHAT_TEXT];
    const struct job *job = group->job;
    const struct state *state = group->stored;
    if (!state)
        return F8_OK;
    if (!state_admits(state, job->token, job->token_size))
        return reason_set(reason, F8_EPERM,
            "the stored state of job %.120s, group %.120s is of a run with another token",
            job->name, group->name);
    (void)snprintf(what, sizeof(what), "the stored state of group %s", group->name);
    return state_head_compare(state_head(state), list, what, reason);
}

static int check_stored(struct collective *collective, const struct weight_list *list,
    const struct member_seal *seal, struct reason *reason)
{
    char asked[48];
    const struct group *group = collective->group;
    const struct job *job = group->job;
    int status = check_own(group, list, reason);
    if (status < 0)
        return status;
    const uint8_t *values = group->stored ? state_values(group->stored) : NULL;
    if (collective->hosts)
        status = hosts_newest_values(collective->hosts, list, values, &values, reason);
    if (status < 0)
        return status;
    collective->continues = values;
    if (!values) {
        if (seal->syncs == 0 || state_count(list) == 0)
            return F8_OK; /* as good as fresh */
        return reason_set(reason, F8_ENOENT,
            "nothing is stored for job %.120s, group %.120s, where the seal %s", job->name,
            group->name, wanted(seal->syncs, asked, sizeof(asked)));
    }
    uint64_t stored = state_values_syncs(values);
    if (seal->syncs != F8_PROTO_ANY_SYNCS && seal->syncs != stored)
        return reason_set(reason, F8_EMISMATCH,
            "the stored state of job %.120s, group %.120s has seen %" PRIu64
            " syncs, where the seal %s",
            job->name, group->name, stored, wanted(seal->syncs, asked, sizeof(asked)));
    return F8_OK;
}

static int check_import(const struct group *group, const struct weight_list *list,
    const struct member_seal *seal, struct reason *reason)
{
    char what[WHAT_TEXT];
    struct state_head head;
    (void)snprintf(what, sizeof(what), "the import of group %s", group->name);
    int status = state_import_check(seal->import, seal->import_size, what, &head, reason);
    return status < 0 ? status : state_head_compare(&head, list, what, reason);
}

void collective_find_state(struct collective *collective)
{
    struct group *group = collective->group;
    if (group->stored)
        return;
    group->stored =
        state_find(collective->context->states, group->job->uid, group->job->name, group->name);
    if (group->stored)
        state_hold(group->stored);
}

/* What the ranks gave to the seal, which is the same for all; of one that kept its import. */
static const struct member_seal *seal_of(const struct group *group)
{
    for (uint32_t r = 1; r < group->world_size; r++)
        if (group_member_of(group, r)->seal.import)
            return &group_member_of(group, r)->seal;
    return &group_member_of(group, 0)->seal;
}

int collective_check_state(struct collective *collective, const struct weight_list *list)
{
    const struct group *group = collective->group;
    const struct member_seal *seal = seal_of(group);
    collective_find_state(collective);
    collective->continues = NULL;
    if (seal->state == F8_PROTO_STATE_CONTINUE)
        return check_stored(collective, list, seal, &collective->refusal);
    if (seal->state == F8_PROTO_STATE_IMPORT)
        return check_import(group, list, seal, &collective->refusal);
    return F8_OK;
}

/* Checked when the seal began; nobody changes a state that is held. */
static void load(struct collective *collective)
{
    struct group *group = collective->group;
    const struct member_seal *seal = seal_of(group);
    const uint8_t *values = collective->continues;
    struct state_head head;
    struct reason ignored;
    if (seal->state == F8_PROTO_STATE_IMPORT &&
        state_form_check(seal->import, seal->import_size, "", &head, &ignored) == F8_OK)
        values = seal->import + head.size;
    if (seal->state != F8_PROTO_STATE_CONTINUE) {
        /* Its syncs are another state's, even if their numbers go on. */
        history_free(group->history);
        group->history = NULL;
    }
    for (uint32_t w = 0; w < group->list->num_weights; w++)
        if (state_has(&group->list->weights[w]))
            scaling_reset(&group->scalings[w], &group->list->weights[w]);
    group->syncs = 0;
    if (!values)
        return;
    state_values_read(values, group->list, group->scalings);
    group->syncs = state_values_syncs(values);
}

/* Room in the uid's memory; its states that nobody uses make way. */
static int make_room(
    const struct collective *collective, const struct state_form *form, struct reason *reason)
{
    const struct job *job = collective->group->job;
    char what[WHAT_TEXT];
    (void)snprintf(what, sizeof(what), "the state of group %.80s", collective->group->name);
    int status;
    do
        status =
            registry_check_room(job->registry, job->uid, what, state_stored_size(form), reason);
    while (status < 0 && state_store_evict(collective->context->states, job->uid));
    return status;
}

/* The new file is whole before it takes the place of the old one. */
static int store(struct collective *collective)
{
    struct group *group = collective->group;
    struct reason *refusal = &collective->refusal;
    const struct state_owner owner = owner_of(group);
    struct state_form form;
    int status =
        state_form_make(&owner, group->list, group->scalings, group->syncs, &form, refusal);
    if (status < 0)
        return status;
    status = make_room(collective, &form, refusal);
    if (status == F8_OK)
        status = state_put(collective->context->states, &form, &group->stored, refusal);
    state_form_done(&form);
    if (status < 0)
        return status;
    state_hold(group->stored);
    if (seal_of(group)->state != F8_PROTO_STATE_CONTINUE)
        state_replaced(group->stored);
    return F8_OK;
}

int collective_take_state(struct collective *collective)
{
    struct group *group = collective->group;
    load(collective);
    collective->is_stateless = !group->stored && state_count(group->list) == 0;
    /* A source may be new, or have been without ranks, and know less than the others. */
    for (uint32_t w = 0; w < group->list->num_weights; w++)
        collective_push(collective, w);
    if (state_count(group->list) > 0)
        return store(collective);
    if (group->stored)
        state_drop(group->stored);
    group->stored = NULL;
    return F8_OK;
}

/* Training does not stop for a disk that fails. */
static void on_settled(struct state_waiter *waiter, const struct state_pass *pass)
{
    struct collective *collective =
        (struct collective *)((char *)waiter - offsetof(struct collective, settling));
    struct log_fields fields = collective_fields(collective->group);
    if (!pass->settled)
        log_of(&fields, LOG_LEVEL_ERROR,
            "job %s, group %s: is sealed, but a power cut may bring back an earlier state: %s",
            fields.job, fields.group, pass->reason.text);
    collective->is_settling = false;
    collective_sealed(collective, F8_OK);
}

bool collective_settle_state(struct collective *collective)
{
    if (collective->continues || collective->is_stateless)
        return false; /* what was stored, if anything, is what it goes on from */
    collective->settling.done = on_settled;
    collective->is_settling =
        state_store_settle(collective->context->states, &collective->settling);
    return collective->is_settling;
}

void collective_keep_state(struct group *group)
{
    if (group->stored)
        state_sync(group->stored, group->syncs, group->list, group->scalings);
}
