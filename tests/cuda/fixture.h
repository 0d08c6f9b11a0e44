/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend as the daemon has it, from its module beside the test's program, with a loop
 * that is turned until an answer comes. Failures of the fixture itself fail the test.
 */
#ifndef F8_TESTS_CUDA_FIXTURE_H
#define F8_TESTS_CUDA_FIXTURE_H

#include <uv.h>

#include "daemon/backend_device.h"
#include "exporter.h"

#define CHUNK ((uint64_t)2 << 20) /* the granularity of memory that is exported as descriptors */

extern uv_loop_t cuda_loop;
extern struct backend *cuda_backend;

/* For tcase_add_checked_fixture. */
void cuda_fixture_open(void);
void cuda_fixture_close(void);

/* Before it is opened: all limits of the module, in milliseconds. */
void cuda_fixture_limits(uint64_t limit_ms);

/* Turns the loop for this long: time in which something must not happen. */
void cuda_pause(uint64_t ms);

struct backend_info cuda_info(void);

/* Asks, waits, and returns the status of finished(). The request has the result. */
int cuda_attach(struct backend_attach *attach);
int cuda_map(struct backend_map *map);
int cuda_reserve(struct backend_reserve *reserve);
int cuda_fence(uint32_t pid);

/* The same without waiting: *ret_done is set when it comes. */
void cuda_fence_later(struct backend_fence *fence, uint32_t pid, bool *ret_done);
void cuda_turn_until(const bool *done);

/* An exporter, attached with this many events. */
struct cuda_client {
    struct exporter exporter;
    struct backend_attach attach;
};
void cuda_client_start(struct cuda_client *client, int ordinal, uint32_t num_events);

/* Fills in a legacy region of new memory of `memory` bytes, or one of VMM allocations. */
struct backend_map cuda_legacy(
    struct cuda_client *client, uint64_t memory, uint64_t offset, uint64_t size);
struct backend_map cuda_chunks(struct cuda_client *client, const uint64_t *chunks, uint32_t count,
    uint64_t offset, uint64_t size);

/* The client's memory `index`: fills it, and waits until that is done. */
void cuda_fill(
    struct cuda_client *client, uint32_t index, uint64_t offset, uint64_t size, uint8_t byte);

/* Frees an arena as the daemon does. */
void cuda_free_arena(struct arena *arena);

/* Bytes of device memory as this process sees them. */
void cuda_read(const void *device_address, void *ret_bytes, size_t size);

#endif
