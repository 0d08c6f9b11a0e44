/* SPDX-License-Identifier: Apache-2.0 */
/* The states that are stored, and for how long: see state.h; their directory is state_dir.c's. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/log.h"
#include "daemon/state_private.h"
#include "status.h"

static void on_timer(uv_timer_t *timer);

uint64_t state_keep_ms(const struct config *config)
{
    bool longer = config->state_dir[0] != '\0' && config->snapshot_keep_ms > config->linger_ms;
    return longer ? config->snapshot_keep_ms : config->linger_ms;
}

/* Sets the clock for what ends next. It does not keep the loop running. */
static void arm(struct state_store *store)
{
    uint64_t next = UINT64_MAX, now = uv_now(store->loop);
    for (const struct state *state = store->first; state; state = state->next)
        if (!state->held && state->expires < next)
            next = state->expires;
    if (next == UINT64_MAX)
        (void)uv_timer_stop(&store->timer);
    else
        (void)uv_timer_start(&store->timer, on_timer, next > now ? next - now : 0, 0);
}

static void state_free(struct state *state)
{
    state_file_close(&state->file);
    free(state);
}

void state_see_counter(struct state_store *store, uint32_t counter)
{
    if (counter >= store->counter)
        store->counter = (counter | 1) + 1;
}

/* Without setting the clock, for loops over the list. Its snapshots go with it. */
static void forget(struct state *state)
{
    state_forget_snapshots(state);
    struct state **link = &state->store->first;
    while (*link != state)
        link = &(*link)->next;
    *link = state->next;
    state_see_counter(state->store, state_file_counter(&state->file));
    state_dir_remove(&state->store->dir, state->number);
    state_free(state);
}

void state_drop(struct state *state)
{
    struct state_store *store = state->store;
    forget(state);
    arm(store);
}

static void log_drop(const struct state *state, const char *why)
{
    const struct state_owner *owner = &state->file.head.owner;
    const struct log_fields fields = {.job = owner->job, .group = owner->group};
    log_of(&fields, LOG_LEVEL_INFO,
        "the state of job %s, group %s of uid %u is dropped at sync %" PRIu64 ": %s", owner->job,
        owner->group, (unsigned)owner->uid, state_values_syncs(state_values(state)), why);
}

static void on_timer(uv_timer_t *timer)
{
    struct state_store *store = timer->data;
    uint64_t now = uv_now(store->loop);
    for (struct state *state = store->first, *next; state; state = next) {
        next = state->next;
        if (state->held || state->expires > now)
            continue;
        log_drop(state, store->config->state_dir[0] == '\0'
                            ? "nobody continued it in time (--linger)"
                            : "nobody continued it in time (--snapshot-keep, --linger)");
        forget(state);
    }
    arm(store);
}

static void linger(struct state *state)
{
    state->held = false;
    state->since = uv_now(state->store->loop);
    state->expires = state->since + state_keep_ms(state->store->config);
}

void state_store_reload(struct state_store *store)
{
    uint64_t keep = state_keep_ms(store->config);
    for (struct state *state = store->first; state; state = state->next)
        if (!state->held && state->since + keep > state->expires)
            state->expires = state->since + keep;
    arm(store);
}

/* Of all states the newest: over restarts too, by the clock, and never two at once. */
static void make_newest(struct state *state)
{
    struct state_store *store = state->store;
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    state->order = store->newest = ns > store->newest ? ns : store->newest + 1;
}

void state_see_written(struct state *state, uint64_t written_ns)
{
    struct state_store *store = state->store;
    state->order = written_ns;
    if (written_ns > store->newest)
        store->newest = written_ns;
}

static void insert(struct state *state)
{
    state->next = state->store->first;
    state->store->first = state;
}

/* From state_dir: a sound file. */
static int take_file(void *context, uint64_t number, const struct state_file *file)
{
    struct state_store *store = context;
    const struct state_owner *owner = &file->head.owner;
    if (state_find(store, owner->uid, owner->job, owner->group))
        return F8_EEXIST;
    struct state *state = calloc(1, sizeof(*state));
    if (!state)
        return F8_ENOMEM;
    *state = (struct state){.store = store, .file = *file, .number = number};
    state_see_written(state, file->written_ns);
    state_see_counter(store, state_file_counter(file));
    insert(state);
    linger(state);
    const struct log_fields fields = {.job = owner->job, .group = owner->group};
    log_of(&fields, LOG_LEVEL_INFO,
        "the state of job %s, group %s of uid %u is there, at sync %" PRIu64, owner->job,
        owner->group, (unsigned)owner->uid, state_values_syncs(state_values(state)));
    return F8_OK;
}

static void on_closed(uv_handle_t *timer)
{
    free(timer->data);
}

int state_store_open(uv_loop_t *loop, const struct config *config, struct state_store **ret_store,
    struct reason *reason)
{
    struct state_store *store = calloc(1, sizeof(*store));
    if (!store)
        return reason_set(reason, F8_ENOMEM, "out of memory loading states");
    store->loop = loop;
    store->config = config;
    (void)uv_timer_init(loop, &store->timer); /* cannot fail */
    store->timer.data = store;
    uv_unref((uv_handle_t *)&store->timer);
    state_dir_init(&store->dir, config->socket);
    snapshot_dir_init(&store->snapshots);
    int status = state_dir_load(&store->dir, take_file, store, reason);
    store->last = store->dir.last;
    if (status == F8_OK)
        status = state_load_snapshots(store, reason);
    if (status < 0) {
        state_store_close(store);
        return status;
    }
    arm(store);
    *ret_store = store;
    return F8_OK;
}

void state_store_close(struct state_store *store)
{
    if (!store)
        return;
    while (store->first) {
        struct state *state = store->first;
        store->first = state->next;
        state_free(state);
    }
    state_dir_done(&store->dir);
    snapshot_dir_done(&store->snapshots);
    uv_close((uv_handle_t *)&store->timer, on_closed);
}

uint64_t state_store_held(const void *store, uid_t uid)
{
    const struct state_store *states = store;
    uint64_t bytes = 0;
    for (const struct state *state = states->first; state; state = state->next)
        if (state->file.head.owner.uid == uid)
            bytes += state->file.size;
    return bytes;
}

bool state_store_evict(struct state_store *store, uid_t uid)
{
    struct state *oldest = NULL;
    for (struct state *state = store->first; state; state = state->next)
        if (!state->held && state->file.head.owner.uid == uid &&
            (!oldest || state->order < oldest->order))
            oldest = state;
    if (!oldest)
        return false;
    log_drop(oldest, "its uid stores more, and it is the oldest");
    state_drop(oldest);
    return true;
}

uint32_t state_store_drop_job(
    struct state_store *store, uid_t uid, const char *job, uint64_t *ret_bytes)
{
    uint32_t count = 0;
    *ret_bytes = 0;
    for (struct state *state = store->first, *next; state; state = next) {
        const struct state_owner *owner = &state->file.head.owner;
        next = state->next;
        if (state->held || owner->uid != uid || strcmp(owner->job, job) != 0)
            continue;
        *ret_bytes += state->file.size;
        log_drop(state, "an operator evicts the job");
        forget(state);
        count++;
    }
    arm(store);
    return count;
}

static uint32_t count_of(const struct state_store *store, uid_t uid)
{
    uint32_t count = 0;
    for (const struct state *state = store->first; state; state = state->next)
        count += state->file.head.owner.uid == uid;
    return count;
}

static int make_room(
    struct state_store *store, const struct state_owner *owner, struct reason *reason)
{
    uint32_t limit = store->config->max_states;
    while (count_of(store, owner->uid) >= limit)
        if (!state_store_evict(store, owner->uid))
            return reason_set(reason, F8_ELIMIT,
                "the state of group %s is one more than the %u of uid %u, all in use "
                "(--max-states)",
                owner->group, limit, (unsigned)owner->uid);
    return F8_OK;
}

struct state *state_find(
    const struct state_store *store, uid_t uid, const char *job, const char *group)
{
    struct state *state = store->first;
    for (; state; state = state->next) {
        const struct state_owner *owner = &state->file.head.owner;
        if (owner->uid == uid && strcmp(owner->job, job) == 0 && strcmp(owner->group, group) == 0)
            break;
    }
    return state;
}

void state_hold(struct state *state)
{
    state->held = true;
    arm(state->store);
}

void state_release(struct state *state)
{
    struct state_store *store = state->store;
    make_newest(state);
    linger(state);
    if (state_keep_ms(store->config) == 0)
        forget(state);
    arm(store);
}

bool state_is_held(const struct state *state)
{
    return state->held;
}

uint64_t state_left_ms(const struct state *state)
{
    uint64_t now = uv_now(state->store->loop);
    return !state->held && state->expires > now ? state->expires - now : 0;
}

int state_add(struct state_store *store, const struct state_form *form, uint32_t counter,
    struct state **ret_state, struct reason *reason)
{
    const struct state_owner *owner = &form->head.owner;
    struct state *state = calloc(1, sizeof(*state));
    if (!state)
        return reason_set(
            reason, F8_ENOMEM, "out of memory for the state of group %s", owner->group);
    state->store = store;
    state->number = ++store->last;
    int status = state_dir_write(&store->dir, state->number, form, counter, &state->file, reason);
    if (status < 0) {
        free(state);
        return status;
    }
    insert(state);
    linger(state);
    arm(store);
    *ret_state = state;
    return F8_OK;
}

int state_overwrite(
    struct state *state, const struct state_form *form, uint32_t counter, struct reason *reason)
{
    struct state_file file;
    int status = state_dir_write(&state->store->dir, state->number, form, counter, &file, reason);
    if (status < 0)
        return status;
    state_file_close(&state->file);
    state->file = file;
    return F8_OK;
}

uint64_t state_stored_size(const struct state_form *form)
{
    return state_file_size(&form->head);
}

int state_put(struct state_store *store, const struct state_form *form, struct state **ret_state,
    struct reason *reason)
{
    const struct state_owner *owner = &form->head.owner;
    struct state *state = state_find(store, owner->uid, owner->job, owner->group);
    int status;
    if (state) {
        status = state_overwrite(state, form, state_file_counter(&state->file) + 1, reason);
    } else {
        status = make_room(store, owner, reason);
        if (status == F8_OK)
            status = state_add(store, form, store->counter, &state, reason);
    }
    if (status < 0)
        return status;
    if (!state->held) {
        make_newest(state);
        linger(state);
        arm(store);
    }
    *ret_state = state;
    return F8_OK;
}

/* In time that does not depend on where they differ. */
bool state_admits(const struct state *state, const uint8_t *token, size_t token_size)
{
    const struct state_owner *owner = &state->file.head.owner;
    if (owner->any_token)
        return true;
    if (owner->token_size != token_size)
        return false;
    uint8_t difference = 0;
    for (size_t i = 0; i < token_size; i++)
        difference |= owner->token[i] ^ token[i];
    return difference == 0;
}

const struct state_head *state_head(const struct state *state)
{
    return &state->file.head;
}

const uint8_t *state_values(const struct state *state)
{
    return state_file_values(&state->file);
}

void state_sync(struct state *state, uint64_t syncs, const struct weight_list *list,
    const struct scaling *scalings)
{
    state_file_write(&state->file, syncs, list, scalings);
    state_file_flip(&state->file);
}

void state_store_count(const struct state_store *store, struct state_totals *ret_totals)
{
    struct state_totals totals = {0};
    for (const struct state *state = store->first; state; state = state->next) {
        totals.held += state->held;
        totals.lingering += !state->held;
        totals.bytes += state->file.size;
    }
    *ret_totals = totals;
}
