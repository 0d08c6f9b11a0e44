/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store of states with snapshots, on a loop of its own, for the tests of daemon/state_s*: the
 * runtime directory and the one of snapshots lie in a new one, and a reboot is an empty former.
 */
#ifndef F8_SNAPSHOT_FIXTURE_H
#define F8_SNAPSHOT_FIXTURE_H

#include "daemon/state_saver.h"
#include "lib/state_fixture.h"

#define SNAPSHOT_UID 1000

struct snapshot_fixture {
    uv_loop_t loop;
    struct config config;
    struct state_store *store;
    struct state_saver *saver;
    struct weight_list *list;
    struct scaling *before, *after; /* two sets of values */
    struct scaling *read;           /* what was read last */
    struct reason reason;
    uint64_t patience_ms; /* with the disk */
    char directory[64], states[160], snapshots[160];
};

void snapshot_set_up(struct snapshot_fixture *fixture);
void snapshot_tear_down(struct snapshot_fixture *fixture);

/* Fails the test if the store does not open; its status. */
void snapshot_open(struct snapshot_fixture *fixture);
void snapshot_close(struct snapshot_fixture *fixture);

/* Closes, empties the runtime directory, and opens. */
void snapshot_reboot(struct snapshot_fixture *fixture);

/* Stores `before` as sync 1 of a group of job "job". */
struct state *snapshot_put(struct snapshot_fixture *fixture, const char *group);

/* The group's state, or NULL. */
struct state *snapshot_find(const struct snapshot_fixture *fixture, const char *group);

/* Whether there is one with that many syncs and those values. */
bool snapshot_has(const struct snapshot_fixture *fixture, const char *group, uint64_t syncs,
    const struct scaling *scalings);

/* Asks for a pass and turns the loop until it has ended. */
struct state_pass snapshot_pass(struct snapshot_fixture *fixture);

/* "DIRECTORY/0000000000000001.snapshot"; in a static buffer. */
const char *snapshot_path(
    const struct snapshot_fixture *fixture, uint64_t number, const char *suffix);

/* Of the file: its bytes and how many; in a static buffer of 64 KiB. */
const uint8_t *snapshot_read(const char *path, size_t *ret_size);
void snapshot_overwrite(const char *path, const uint8_t *bytes, size_t size);

#endif
