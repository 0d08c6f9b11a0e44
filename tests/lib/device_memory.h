/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a test's rank keeps its shards, so that one suite runs on the host and on CUDA devices. The
 * environment says which, F8_TEST_DEVICE: unset or "host", shared memory; "legacy", memory of
 * cudaMalloc; "vmm", several allocations in a row, the first and the second in the midst of the
 * shards. Rank r works on device r modulo their number, with a stream of its own.
 *
 * A rank writes its shards in host memory and puts them in place; on the host that is the region
 * itself, and there is nothing to put. What was gathered it sees in host memory, too. One thread at
 * a time; results are F8_..., with f8_error_text().
 */
#ifndef F8_TESTS_DEVICE_MEMORY_H
#define F8_TESTS_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/f8client.h"

struct device_memory;

/* Whether ranks are on devices. */
bool device_memory_used(void);

/* How many devices this process sees; uses CUDA, which a fork after that does not inherit. */
int device_memory_devices(void);

/* The client works as that rank, from before its first group on. *ret_memory is NULL on the host,
 * which all functions below take. */
int device_memory_open(struct f8_client *client, uint32_t rank, struct device_memory **ret_memory);

/* Ends the stream and frees the memory; after f8_close, or f8_region_free of all regions. */
void device_memory_close(struct device_memory *memory);

/* Zeroed shards of `size` bytes as a region: *ret_shards is where the rank writes them. */
int device_memory_alloc(struct device_memory *memory, struct f8_client *client, size_t size,
    struct f8_region **ret_region, void **ret_shards);

/* Puts what was written at `shards`, which may be a part of them, in place in the stream's order.
 */
int device_memory_put(struct device_memory *memory, const void *shards, size_t size);

/* What all requests name; NULL on the host. */
void *device_memory_stream(const struct device_memory *memory);

/*
 * The view as host memory shows it, `size` bytes of it and its scale (the view's own size: 0), once
 * the stream has come so far. Valid until the views of other weights were seen, or the end.
 */
int device_memory_see(struct device_memory *memory, const struct f8_view *view, uint64_t size,
    struct f8_view *ret_seen);

/* device_memory_see in place of each of the views. */
int device_memory_see_all(struct device_memory *memory, struct f8_view *views, uint32_t count);

/* Waits for the stream. */
int device_memory_await(struct device_memory *memory);

#endif
