/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA module in a test, without a daemon: opened with dlopen, its backend's operations called
 * on the test's own thread, which collects what has ended. The test and the module share one CUDA
 * runtime, so shards are plain device memory of the test.
 */
#ifndef F8_TESTS_CUDA_MODULE_FIXTURE_H
#define F8_TESTS_CUDA_MODULE_FIXTURE_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/backend_device.h"
#include "tests/cuda/trainer.h"

/* More than any test takes: a test that waits for longer has failed. */
#define MODULE_PATIENCE_MS 60000

/* The backend of the running test. */
extern struct backend *module_backend;

/* Opens it; communicators are kept for linger_ms. */
void module_open(uint64_t linger_ms);

/* Ends it, when the test has freed its arenas. */
void module_close(void);

/* Whether a line with these words has been logged since module_open. */
bool module_has_logged(const char *words);

/* Collects until the flag is set; fails the test if that takes too long. */
void module_wait(const bool *flag);

/* Collects what has ended within so many milliseconds. */
void module_pause(unsigned milliseconds);

/* ---- arenas ---- */

/* By rank the device. The status; the arena or the reason in the result. */
int module_reserve(const char *name, const int32_t *devices, uint32_t ranks, uint32_t slots,
    uint64_t size, struct backend_reserve *ret_reserve);

/* The same, and must be given. */
struct arena *module_arena(
    const char *name, const int32_t *devices, uint32_t ranks, uint32_t slots, uint64_t size);

/* Frees it and waits until it has gone. */
void module_free_arena(struct arena *arena);

/* ---- clients ---- */

/* A trainer as the backend knows it: attached, and its shard mapped. */
struct module_client {
    struct backend_client *client;
    struct backend_mapping *mapping;
    int32_t device;
    const uint8_t *shard; /* the daemon's address of it */
};

struct module_client module_attach(const struct trainer *trainer, uint64_t shard_size);

/* Lets go of both and waits until that has happened. */
void module_detach(struct module_client *client);

/* ---- works ---- */

/* A work with its steps and its landing, and what came of it. */
struct module_run {
    struct backend_work work;
    struct backend_steps steps;
    struct backend_landing landing;
    uint32_t *amaxes;          /* owned: of the landing */
    struct f8k_counts *counts; /* owned */
    int status, landed_status;
    bool has_finished, has_landed;
};

/* A work of an arena, not yet submitted; without a landing. tasks: borrowed. */
struct module_run module_run_of(
    struct arena *arena, struct backend_task *tasks, uint32_t num_tasks);

/* Gives it a landing of these slots, with landed(). */
void module_add_landing(struct module_run *run, uint32_t first, uint32_t count);

void module_submit(struct module_run *run);

/* Submits it, waits for all its ends, and they must be F8_OK. */
void module_do(struct module_run *run);

void module_run_done(struct module_run *run);

/* ---- device memory of the test ---- */

/* Lives until module_close. Not while collectives are queued. */
void *module_shard(int32_t device, const void *bytes, uint64_t size);

/* Bytes of an arena on a device, once all works so far have run. */
void module_download(
    const struct arena *arena, int32_t device, uint64_t offset, void *ret_bytes, uint64_t size);

#endif
