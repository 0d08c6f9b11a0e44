/* SPDX-License-Identifier: Apache-2.0 */
/* Passes over the states, and the thread that writes: see state_saver.h. */
#include "daemon/state_saver.h"

#include <inttypes.h>
#include <stdlib.h>

#include "daemon/log.h"
#include "status.h"

struct state_saver {
    uv_loop_t *loop;             /* borrowed */
    const struct config *config; /* borrowed */
    struct state_store *store;   /* borrowed */
    uv_timer_t timer;
    uv_timer_t patience;          /* with the disk; does not keep the loop running */
    uv_async_t written;           /* the thread is done; keeps the loop running: see keep_loop */
    uv_thread_t thread;           /* while it writes */
    struct state_waiter *waiting; /* borrowed list: for the next pass */
    struct state_waiter *served;  /* borrowed list: for the one under way */
    struct state_pass pass, last;
    struct state_counts counts;
    struct state_copy copy; /* owned: what the thread writes; no bytes: it syncs */
    int status;             /* the thread's */
    bool synced;            /* the thread's */
    struct reason reason;   /* the thread's */
    uint64_t removals;      /* that the sync takes to the disk */
    uint64_t patience_ms;
    uint64_t number; /* of the pass */
    uint64_t begun_ns;
    bool running, again, finished;
    bool removed; /* at the beginning of the pass: nothing was left that is still to be removed */
    bool overdue; /* the disk lets the pass wait for too long, and that was told */
    bool counted; /* the pass, as one that failed, when that was told */
    void (*passed)(void *owner, const struct state_pass *pass); /* NULL: nobody listens */
    void *owner;                                                /* borrowed: outlives it */
    uint8_t handles;                                            /* not closed yet */
};

static void begin(struct state_saver *saver);
static void go_on(struct state_saver *saver);

static void note_failure(struct state_saver *saver, int status, const struct reason *reason)
{
    if (saver->pass.status < 0)
        return;
    saver->pass.status = status;
    saver->pass.reason = *reason;
}

static void note_held_up(struct state_saver *saver, uint64_t since)
{
    uint64_t ns = uv_hrtime() - since;
    if (ns > saver->pass.held_up_ns)
        saver->pass.held_up_ns = ns;
}

/* Of the last one, whoever ends the daemon tells that it failed. */
static void log_pass(const struct state_pass *pass, const struct state_pass *last, bool is_last)
{
    if (pass->status < 0 && !is_last)
        log_error(
            "snapshots: %s; the states are safe beside the socket until a reboot, and it is tried "
            "again",
            pass->reason.text);
    else if (pass->status < 0)
        log_debug("snapshots: the last pass failed");
    else if (last->status < 0)
        log_info("snapshots are written again");
    log_debug("snapshots: %u states, %" PRIu64 " bytes in %.3f s; the loop was held up for at "
              "most %.3f ms",
        pass->states, pass->bytes, (double)pass->ns / 1e9, (double)pass->held_up_ns / 1e6);
}

/* A pass, and whoever waits; but not for a disk that does not answer. */
static void keep_loop(struct state_saver *saver)
{
    uv_handle_t *handle = (uv_handle_t *)&saver->written;
    if ((saver->running && !saver->overdue) || saver->waiting || saver->served)
        uv_ref(handle);
    else
        uv_unref(handle);
}

/* What they do may add to the list anew. */
static void tell(struct state_waiter **list, const struct state_pass *pass)
{
    struct state_waiter *waiting = *list;
    *list = NULL;
    while (waiting) {
        struct state_waiter *waiter = waiting;
        waiting = waiter->next;
        waiter->done(waiter, pass);
    }
}

/* Told as if it had ended; what it comes to later takes the place of that. */
static void note_overdue(struct state_saver *saver)
{
    struct state_pass *last = &saver->last;
    uint64_t succeeded = last->succeeded;
    *last = saver->pass;
    last->succeeded = succeeded;
    last->ended = uv_now(saver->loop);
    last->ns = uv_hrtime() - saver->begun_ns;
    last->status = reason_set(&last->reason, F8_EIO, "the disk of %s has not answered for %g s",
        saver->config->state_dir, (double)saver->patience_ms / 1000);
    saver->overdue = true;
    saver->counts.failed += !saver->counted;
    saver->counted = true;
    log_error("snapshots: %s; the states are safe beside the socket until a reboot, and nobody "
              "waits for it any more",
        last->reason.text);
    if (saver->passed)
        saver->passed(saver->owner, last);
}

static void on_patience_ends(uv_timer_t *timer)
{
    struct state_saver *saver = timer->data;
    if (!saver->overdue)
        note_overdue(saver);
    const struct state_pass told = saver->last;
    tell(&saver->served, &told);
    tell(&saver->waiting, &told);
    keep_loop(saver);
}

static void end(struct state_saver *saver)
{
    struct state_pass *pass = &saver->pass;
    (void)uv_timer_stop(&saver->patience);
    pass->ns = uv_hrtime() - saver->begun_ns;
    pass->ended = uv_now(saver->loop);
    log_pass(pass, &saver->last, saver->finished && !saver->again && !saver->waiting);
    pass->succeeded = pass->status == F8_OK ? pass->ended : saver->last.succeeded;
    saver->last = *pass;
    saver->counts.failed += pass->status < 0 && !saver->counted;
    saver->running = false;
    if (saver->passed && (pass->status < 0 || pass->states > 0))
        saver->passed(saver->owner, &saver->last);
    tell(&saver->served, &saver->last);
    if (saver->waiting || saver->again)
        begin(saver);
    keep_loop(saver);
}

/* On the thread: the store is the loop's, but for what state.h says. */
static void write_one(void *context)
{
    struct state_saver *saver = context;
    saver->status = saver->copy.bytes
                        ? state_copy_write(&saver->copy, &saver->reason)
                        : state_store_sync(saver->store, &saver->synced, &saver->reason);
    (void)uv_async_send(&saver->written);
}

static void start_thread(struct state_saver *saver)
{
    saver->synced = false;
    saver->removals = state_store_removals(saver->store);
    (void)uv_timer_start(&saver->patience, on_patience_ends, saver->patience_ms, 0);
    if (uv_thread_create(&saver->thread, write_one, saver) == 0)
        return;
    struct reason reason;
    note_failure(saver, reason_set(&reason, F8_ENOMEM, "no thread can be made"), &reason);
    state_copy_done(&saver->copy);
    end(saver);
}

/* Whoever comes from now on waits for what comes next, and that has patience of its own. */
static void note_answer(struct state_saver *saver)
{
    (void)uv_timer_stop(&saver->patience);
    saver->overdue = false;
    keep_loop(saver);
}

static void on_written(uv_async_t *async)
{
    struct state_saver *saver = async->data;
    bool synced = saver->copy.bytes == NULL;
    (void)uv_thread_join(&saver->thread);
    note_answer(saver);
    uint64_t before = uv_hrtime();
    if (saver->status == F8_OK && !synced)
        saver->status = state_copy_commit(&saver->copy, &saver->reason);
    note_held_up(saver, before);
    if (saver->status == F8_ENOENT) {
        saver->status = F8_OK; /* its state went meanwhile: nothing is saved, nothing is wrong */
    } else if (saver->status < 0) {
        note_failure(saver, saver->status, &saver->reason);
    } else if (!synced) {
        saver->pass.states++;
        saver->pass.bytes += saver->copy.size;
        saver->counts.bytes += saver->copy.size;
    }
    state_copy_done(&saver->copy);
    if (saver->synced)
        state_store_settled(saver->store, saver->removals);
    saver->pass.settled = saver->synced && saver->removed;
    if (synced)
        end(saver);
    else
        go_on(saver);
}

/* The next state, or the end: a sync. */
static void go_on(struct state_saver *saver)
{
    struct reason reason;
    uint64_t before = uv_hrtime();
    int status = state_copy_due(saver->store, saver->number, &saver->copy, &reason);
    note_held_up(saver, before);
    if (status < 0 && status != F8_ENOENT)
        note_failure(saver, status, &reason);
    start_thread(saver);
}

static void begin(struct state_saver *saver)
{
    struct reason reason;
    saver->running = true;
    saver->again = saver->counted = false;
    saver->served = saver->waiting;
    saver->waiting = NULL;
    saver->number++;
    saver->begun_ns = uv_hrtime();
    saver->pass = (struct state_pass){.begun = uv_now(saver->loop)};
    keep_loop(saver);
    int status = state_store_retry(saver->store, &reason);
    saver->removed = status == F8_OK;
    if (status < 0)
        note_failure(saver, status, &reason);
    go_on(saver);
}

static bool is_off(const struct state_saver *saver)
{
    return saver->config->state_dir[0] == '\0';
}

static void on_timer(uv_timer_t *timer)
{
    struct state_saver *saver = timer->data;
    if (!saver->running)
        begin(saver);
}

/* When whoever calls this is done with what it does. */
static void begin_soon(struct state_saver *saver)
{
    if (saver->running)
        saver->again = true;
    else if (!saver->finished || saver->waiting)
        (void)uv_timer_start(&saver->timer, on_timer, 0, uv_timer_get_repeat(&saver->timer));
}

static void add_waiter(struct state_saver *saver, struct state_waiter *waiter)
{
    waiter->next = saver->waiting;
    saver->waiting = waiter;
    keep_loop(saver);
    if (saver->overdue)
        (void)uv_timer_start(&saver->patience, on_patience_ends, 0, 0);
    else
        begin_soon(saver);
}

static void on_removed(void *context, struct state_waiter *waiter)
{
    if (waiter)
        add_waiter(context, waiter);
    else
        begin_soon(context);
}

void state_saver_listen(struct state_saver *saver,
    void (*passed)(void *owner, const struct state_pass *pass), void *owner)
{
    saver->passed = passed;
    saver->owner = owner;
}

void state_saver_reload(struct state_saver *saver)
{
    uint64_t interval = saver->config->snapshot_interval_ms;
    if (is_off(saver) || interval == uv_timer_get_repeat(&saver->timer))
        return;
    if (interval == 0)
        (void)uv_timer_stop(&saver->timer);
    else
        (void)uv_timer_start(&saver->timer, on_timer, interval, interval);
    uv_timer_set_repeat(&saver->timer, interval);
}

static void on_closed(uv_handle_t *handle)
{
    struct state_saver *saver = handle->data;
    if (--saver->handles == 0)
        free(saver);
}

int state_saver_new(uv_loop_t *loop, const struct config *config, struct state_store *store,
    uint64_t patience_ms, struct state_saver **ret_saver, struct reason *reason)
{
    struct state_saver *saver = calloc(1, sizeof(*saver));
    if (!saver || uv_async_init(loop, &saver->written, on_written) < 0) {
        free(saver);
        return reason_set(reason, F8_ENOMEM, "out of memory for snapshots");
    }
    saver->loop = loop;
    saver->config = config;
    saver->store = store;
    saver->patience_ms = patience_ms;
    (void)uv_timer_init(loop, &saver->timer); /* neither can fail */
    (void)uv_timer_init(loop, &saver->patience);
    saver->written.data = saver->timer.data = saver->patience.data = saver;
    saver->handles = 3;
    uv_unref((uv_handle_t *)&saver->written);
    uv_unref((uv_handle_t *)&saver->timer);
    uv_unref((uv_handle_t *)&saver->patience);
    state_store_watch_removals(store, on_removed, saver);
    state_saver_reload(saver);
    *ret_saver = saver;
    return F8_OK;
}

int state_saver_ask(struct state_saver *saver, struct state_waiter *waiter, struct reason *reason)
{
    if (is_off(saver))
        return reason_set(reason, F8_ENOENT,
            "this daemon keeps no snapshots: it was started without --state-dir");
    add_waiter(saver, waiter);
    return F8_OK;
}

const struct state_pass *state_saver_last(const struct state_saver *saver)
{
    return &saver->last;
}

struct state_counts state_saver_counts(const struct state_saver *saver)
{
    return saver->counts;
}

void state_saver_finish(struct state_saver *saver)
{
    saver->finished = true;
    (void)uv_timer_stop(&saver->timer);
    saver->again = true;
    if (!is_off(saver) && !saver->running)
        begin(saver);
}

bool state_saver_is_stuck(const struct state_saver *saver)
{
    return saver && saver->running;
}

void state_saver_close(struct state_saver *saver)
{
    if (!saver)
        return;
    state_store_watch_removals(saver->store, NULL, NULL);
    uv_close((uv_handle_t *)&saver->written, on_closed);
    uv_close((uv_handle_t *)&saver->timer, on_closed);
    uv_close((uv_handle_t *)&saver->patience, on_closed);
}
