/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states' snapshots: which of a state's two files is newer at the start, which states are to
 * be saved, and what becomes of a snapshot when its state goes. On the loop; see state.h.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/state_private.h"
#include "status.h"

/* Counters go up by one with each sync and each seal, and may wrap. */
static bool is_newer(uint32_t counter, uint32_t than)
{
    return (int32_t)(counter - than) > 0;
}

/* A snapshot of a state whose file beside the socket outlived this daemon's predecessor too. */
static int take_newer(
    struct state *state, const struct state_form *form, uint32_t counter, struct reason *reason)
{
    const struct state_owner *owner = &form->head.owner;
    if (!is_newer(counter, state_file_counter(&state->file)))
        return F8_OK;
    log_of(&(struct log_fields){.job = owner->job, .group = owner->group}, LOG_LEVEL_WARNING,
        "the state of job %s, group %s of uid %u: the snapshot is newer than the file "
        "beside the socket, and is used, at sync %" PRIu64 " where the file has %" PRIu64,
        owner->job, owner->group, (unsigned)owner->uid,
        state_values_syncs(form->bytes + form->head.size), state_values_syncs(state_values(state)));
    return state_overwrite(state, form, counter, reason);
}

static int add_saved(struct state_store *store, const struct state_form *form, uint32_t counter,
    struct state **ret_state, struct reason *reason)
{
    const struct state_owner *owner = &form->head.owner;
    int status = state_add(store, form, counter, ret_state, reason);
    bool older = store->dir.lacks; /* whose file that was cannot always be told */
    if (status == F8_OK)
        log_of(&(struct log_fields){.job = owner->job, .group = owner->group},
            older ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
            "the state of job %s, group %s of uid %u is there by its snapshot, at sync %" PRIu64
            "%s",
            owner->job, owner->group, (unsigned)owner->uid,
            state_values_syncs(state_values(*ret_state)),
            older ? ": it may be older than a file beside the socket that is not used" : "");
    return status;
}

/* From state_snapshot_load: a sound one. */
static int take_snapshot(void *context, uint64_t number, const struct state_form *form,
    uint64_t written_ns, struct reason *reason)
{
    struct state_store *store = context;
    const struct state_owner *owner = &form->head.owner;
    uint32_t counter = state_values_counter(form->bytes + form->head.size);
    struct state *state = state_find(store, owner->uid, owner->job, owner->group);
    state_see_counter(store, counter);
    if (state && state->saved)
        return F8_EEXIST;
    int status = state ? take_newer(state, form, counter, reason)
                       : add_saved(store, form, counter, &state, reason);
    if (status < 0)
        return status;
    if (state_file_counter(&state->file) == counter) /* else the file has been written since */
        state_see_written(state, written_ns);
    state->saved_as = number;
    state->saved_counter = counter;
    state->saved = true;
    return F8_OK;
}

int state_load_snapshots(struct state_store *store, struct reason *reason)
{
    if (store->config->state_dir[0] == '\0')
        return F8_OK;
    return snapshot_dir_open(
        &store->snapshots, store->config->state_dir, take_snapshot, store, reason);
}

void state_forget_snapshots(struct state *state)
{
    struct state_store *store = state->store;
    if (!state->saved)
        return;
    state->saved = false;
    if (!snapshot_remove(&store->snapshots, state->saved_as))
        state->saved_as = 0; /* a later try removes that number, whatever it is by then */
    store->removals++;
    if (store->removed)
        store->removed(store->removed_context, NULL);
}

void state_replaced(struct state *state)
{
    state->line = ++state->store->last; /* what is being saved now is not its past either */
    state_forget_snapshots(state);
}

static bool is_due(const struct state *state, uint64_t pass)
{
    return state->tried < pass &&
           !(state->saved && state->saved_counter == state_file_counter(&state->file));
}

int state_copy_due(
    struct state_store *store, uint64_t pass, struct state_copy *ret_copy, struct reason *reason)
{
    struct state *state = store->first;
    while (state && !is_due(state, pass))
        state = state->next;
    if (!state)
        return F8_ENOENT;
    state->tried = pass;
    const struct state_head *head = &state->file.head;
    size_t size = head->size + head->values_size;
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return reason_set(reason, F8_ENOMEM,
            "out of memory for the snapshot of group %.120s of job %.120s", head->owner.group,
            head->owner.job);
    memcpy(bytes, state->file.data, head->size);
    memcpy(bytes + head->size, state_file_values(&state->file), head->values_size);
    if (state->saved_as == 0)
        state->saved_as = ++store->snapshots.last;
    *ret_copy = (struct state_copy){.store = store,
        .bytes = bytes,
        .size = size,
        .number = state->saved_as,
        .line = state->line,
        .counter = state_file_counter(&state->file)};
    return F8_OK;
}

int state_copy_write(const struct state_copy *copy, struct reason *reason)
{
    return snapshot_write(&copy->store->snapshots, copy->number, copy->bytes, copy->size, reason);
}

/* The state may be gone meanwhile, or be another one by the same names. */
int state_copy_commit(const struct state_copy *copy, struct reason *reason)
{
    struct state_store *store = copy->store;
    struct state *state = store->first;
    while (state && !(state->saved_as == copy->number && state->line == copy->line))
        state = state->next;
    if (!state) {
        snapshot_cancel(&store->snapshots, copy->number);
        return F8_ENOENT;
    }
    int status = snapshot_commit(&store->snapshots, copy->number, reason);
    if (status < 0)
        return status;
    state->saved = true;
    state->saved_counter = copy->counter;
    return F8_OK;
}

void state_copy_done(struct state_copy *copy)
{
    free(copy->bytes);
    *copy = (struct state_copy){0};
}

void state_store_watch_removals(struct state_store *store,
    void (*removed)(void *context, struct state_waiter *waiter), void *context)
{
    store->removed = removed;
    store->removed_context = context;
}

bool state_store_settle(struct state_store *store, struct state_waiter *waiter)
{
    if (store->settled == store->removals || !store->removed)
        return false;
    store->removed(store->removed_context, waiter);
    return true;
}

/* What could not be removed yet is not known by its count. */
uint64_t state_store_removals(const struct state_store *store)
{
    return store->snapshots.doomed ? store->settled : store->removals;
}

void state_store_settled(struct state_store *store, uint64_t removals)
{
    store->settled = removals;
}

int state_store_sync(const struct state_store *store, bool *ret_synced, struct reason *reason)
{
    return snapshot_sync(&store->snapshots, ret_synced, reason);
}

int state_store_retry(struct state_store *store, struct reason *reason)
{
    return snapshot_retry(&store->snapshots, reason);
}

void state_store_saved(const struct state_store *store, struct state_saved *ret_saved)
{
    struct state_saved saved = {.path = store->snapshots.path,
        .damaged = &store->snapshots.damaged,
        .newer = &store->snapshots.newer,
        .live_damaged = &store->dir.damaged,
        .live_newer = &store->dir.newer};
    for (const struct state *state = store->first; state; state = state->next) {
        if (!state->saved)
            continue;
        saved.states++;
        saved.bytes += state->file.head.size + state->file.head.values_size;
    }
    *ret_saved = saved;
}
