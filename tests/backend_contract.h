/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every backend owes to rounds, as tests that any implementation is put through, and the
 * means to write more of them. The loop is pumped by hand, on the test's own thread.
 */
#ifndef F8_TESTS_BACKEND_CONTRACT_H
#define F8_TESTS_BACKEND_CONTRACT_H

#include <check.h>
#include <stdbool.h>
#include <uv.h>

#include "daemon/backend.h"

/* The loop and the backend of the running test. */
extern uv_loop_t *test_loop;
extern struct backend *test_backend;

/* A work and what the test saw of it. */
struct run {
    struct backend_work work;
    int status;                 /* what finished() was called with */
    unsigned finished;          /* how often it was called */
    unsigned place;             /* the how many-th of all calls it was */
    void (*then)(struct run *); /* called at the end of finished(); may be NULL */
};

/* Makes a run of tasks (borrowed: from the test) that is not yet submitted. */
struct run run_of(struct backend_task *tasks, uint32_t num_tasks, uint32_t job);

/* These two fail the test if finished() is called inside them. */
void run_submit(struct run *run);
void run_cancel(struct run *run);

/* Pumps the loop until finished() has been called; fails if the loop has nothing left to do. */
void run_wait(struct run *run);

/* Pumps until nothing is left, which proves that nothing more comes. */
void run_out(void);

/* Fills `bytes` of data with value. */
struct backend_task fill_task(void *data, uint64_t bytes, uint8_t value);

/* Memory that takes pages only where it is touched, and faults at once when it is unmapped. */
uint8_t *map_zeros(size_t size);

/* Whether all of data is `byte`. */
bool is_filled(const uint8_t *data, size_t size, uint8_t byte);

/* Fixture of each test: opens the loop and the backend, and closes both to the end. */
void backend_fixture_open(int (*make)(uv_loop_t *loop, struct backend **ret_backend));
void backend_fixture_close(void);

/* The contract; setup is a fixture that calls backend_fixture_open with a constructor. */
TCase *backend_contract(void (*setup)(void));

/* Its parts that have files of their own; called by backend_contract. */
void backend_results(TCase *tcase);
void backend_cancels(TCase *tcase);

#endif
