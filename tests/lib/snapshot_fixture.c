/* SPDX-License-Identifier: Apache-2.0 */
/* Stores with snapshots: see snapshot_fixture.h. */
#include "lib/snapshot_fixture.h"

#include <check.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/loop_turn.h"
#include "status.h"

/*
 * Check notes each of its assertions in a file of its own. A process that is killed in the midst of
 * that leaves half a note, so what such processes call notes nothing unless it fails.
 */
#define EXPECT(condition, text)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg("%s", text);                                                              \
    } while (0)

void snapshot_open(struct snapshot_fixture *fixture)
{
    EXPECT(uv_loop_init(&fixture->loop) == 0, "uv_loop_init");
    int status =
        state_store_open(&fixture->loop, &fixture->config, &fixture->store, &fixture->reason);
    EXPECT(status == F8_OK, fixture->reason.text);
    status = state_saver_new(&fixture->loop, &fixture->config, fixture->store, fixture->patience_ms,
        &fixture->saver, &fixture->reason);
    EXPECT(status == F8_OK, fixture->reason.text);
}

void snapshot_close(struct snapshot_fixture *fixture)
{
    state_saver_close(fixture->saver);
    state_store_close(fixture->store);
    EXPECT(uv_run(&fixture->loop, UV_RUN_DEFAULT) == 0, "uv_run");
    EXPECT(uv_loop_close(&fixture->loop) == 0, "uv_loop_close");
}

void snapshot_set_up(struct snapshot_fixture *fixture)
{
    *fixture = (struct snapshot_fixture){
        .config = {.max_states = 8, .linger_ms = 3600000, .snapshot_interval_ms = 3600000},
        .patience_ms = STATE_SAVER_PATIENCE_MS};
    (void)strcpy(fixture->directory, "/tmp/f8snap-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(fixture->directory));
    (void)snprintf(
        fixture->config.socket, sizeof(fixture->config.socket), "%s/s", fixture->directory);
    (void)snprintf(fixture->states, sizeof(fixture->states), "%s.state", fixture->config.socket);
    (void)snprintf(
        fixture->snapshots, sizeof(fixture->snapshots), "%s/snapshots", fixture->directory);
    (void)strcpy(fixture->config.state_dir, fixture->snapshots);
    fixture->list = state_fixture_model();
    fixture->before = state_fixture_scalings(fixture->list, 3);
    fixture->after = state_fixture_scalings(fixture->list, 5);
    fixture->read = state_fixture_scalings(fixture->list, 0);
    log_set_level((enum log_level)(LOG_LEVEL_ERROR - 1)); /* damage is logged */
    snapshot_open(fixture);
}

void snapshot_tear_down(struct snapshot_fixture *fixture)
{
    snapshot_close(fixture);
    state_fixture_remove_files(fixture->states);
    state_fixture_remove_files(fixture->snapshots);
    (void)rmdir(fixture->states);
    (void)rmdir(fixture->snapshots);
    ck_assert_int_eq(rmdir(fixture->directory), 0);
    free(fixture->before);
    free(fixture->after);
    free(fixture->read);
    weights_unref(fixture->list);
}

void snapshot_reboot(struct snapshot_fixture *fixture)
{
    snapshot_close(fixture);
    state_fixture_remove_files(fixture->states);
    (void)rmdir(fixture->states);
    snapshot_open(fixture);
}

struct state *snapshot_put(struct snapshot_fixture *fixture, const char *group)
{
    const struct state_owner owner = {.uid = SNAPSHOT_UID,
        .job = "job",
        .group = group,
        .token = (const uint8_t *)"secret",
        .token_size = 6};
    struct state_form form;
    struct state *state = NULL;
    int status =
        state_form_make(&owner, fixture->list, fixture->before, 1, &form, &fixture->reason);
    if (status == F8_OK)
        status = state_put(fixture->store, &form, &state, &fixture->reason);
    EXPECT(status == F8_OK, fixture->reason.text);
    state_form_done(&form);
    return state;
}

struct state *snapshot_find(const struct snapshot_fixture *fixture, const char *group)
{
    return state_find(fixture->store, SNAPSHOT_UID, "job", group);
}

bool snapshot_has(const struct snapshot_fixture *fixture, const char *group, uint64_t syncs,
    const struct scaling *scalings)
{
    const struct state *state = snapshot_find(fixture, group);
    if (!state || state_values_syncs(state_values(state)) != syncs)
        return false;
    state_values_read(state_values(state), fixture->list, fixture->read);
    return state_fixture_same(fixture->list, scalings, fixture->read);
}

struct asked {
    struct state_waiter waiter; /* first: it is cast */
    struct state_pass pass;
    bool done;
};

static void on_done(struct state_waiter *waiter, const struct state_pass *pass)
{
    struct asked *asked = (struct asked *)waiter;
    asked->pass = *pass;
    asked->done = true;
}

static void never(uv_timer_t *timer)
{
    (void)timer;
    ck_abort_msg("the pass does not end");
}

struct state_pass snapshot_pass(struct snapshot_fixture *fixture)
{
    struct asked asked = {.waiter = {.done = on_done}};
    uv_timer_t patience; /* the saver's own clock does not keep the loop running */
    (void)uv_timer_init(&fixture->loop, &patience);
    (void)uv_timer_start(&patience, never, 60000, 0);
    int status = state_saver_ask(fixture->saver, &asked.waiter, &fixture->reason);
    EXPECT(status == F8_OK, fixture->reason.text);
    while (!asked.done)
        (void)loop_turn(&fixture->loop);
    uv_close((uv_handle_t *)&patience, NULL);
    (void)uv_run(&fixture->loop, UV_RUN_DEFAULT);
    return asked.pass;
}

const char *snapshot_path(
    const struct snapshot_fixture *fixture, uint64_t number, const char *suffix)
{
    static char path[256];
    (void)snprintf(path, sizeof(path), "%s/%016" PRIx64 ".%s", fixture->snapshots, number, suffix);
    return path;
}

const uint8_t *snapshot_read(const char *path, size_t *ret_size)
{
    static uint8_t bytes[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = read(fd, bytes, sizeof(bytes));
    ck_assert_msg(size > 0 && size < (ssize_t)sizeof(bytes), "%s", path);
    (void)close(fd);
    *ret_size = (size_t)size;
    return bytes;
}

void snapshot_overwrite(const char *path, const uint8_t *bytes, size_t size)
{
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
    (void)close(fd);
}
