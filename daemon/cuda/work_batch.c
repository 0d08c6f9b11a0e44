/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills tables where they will be copied from, so that a work costs the device thread one pass over
 * its tasks, one copy and a launch or two, whatever the number of its weights.
 */
#include "daemon/cuda/work_batch.h"

#include <assert.h>
#include <string.h>

#include "proto/status.h"

/* One launch takes no more blocks than fit a grid. */
#define MAX_PARTS INT32_MAX

/* Of what was not expected. */
#define MIN_PIECE 4096

static uint64_t entry_size(enum cuda_table kind)
{
    return kind == CUDA_TABLE_SCALE ? sizeof(struct f8cu_scale) : sizeof(struct f8cu_task);
}

uint64_t cuda_batch_size(uint64_t num_tasks, uint64_t num_scales)
{
    return num_tasks * sizeof(struct f8cu_task) + num_scales * sizeof(struct f8cu_scale);
}

static int launch(const struct cuda_batch *batch, const struct cuda_batch_table *table)
{
    const void *entries = batch->piece.device + table->offset;
    const char *what = "the kernel of amaxes";
    int r = F8_OK;
    switch (table->kind) {
    case CUDA_TABLE_AMAX:
        r = f8cu_amax(entries, table->entries, table->parts, batch->stream);
        break;
    case CUDA_TABLE_SCALE:
        what = "the kernel of scales";
        r = f8cu_set_scales(entries, table->entries, batch->stream);
        break;
    case CUDA_TABLE_WRITE:
        what = "the kernel of casts and copies";
        r = f8cu_write(entries, table->entries, table->parts, batch->stream);
        break;
    }
    if (r == F8_OK)
        return F8_OK;
    (void)cudaGetLastError(); /* is told here */
    return reason_set(batch->reason, r, "cannot launch %s over %u entries: %s", what,
        table->entries, r == F8_EIO ? f8cu_error() : "the table is not valid");
}

int cuda_batch_flush(struct cuda_batch *batch)
{
    if (batch->num_tables == 0)
        return F8_OK;
    int r = cuda_failed(cudaMemcpyAsync(batch->piece.device, batch->piece.host, batch->filled,
                            cudaMemcpyHostToDevice, batch->stream),
        batch->reason, "cannot send %lu bytes of tables", (unsigned long)batch->filled);
    for (uint32_t i = 0; i < batch->num_tables && r == F8_OK; i++)
        r = launch(batch, &batch->tables[i]);
    cuda_ring_give_back(batch->ring, batch->piece.size - batch->filled);
    batch->num_tables = 0;
    batch->filled = 0;
    batch->piece.size = 0;
    /* After a failure too: what was queued still reads the piece. */
    struct reason ignored;
    int closed = cuda_ring_close(batch->ring, batch->stream, r == F8_OK ? batch->reason : &ignored);
    return r == F8_OK ? closed : r;
}

static struct cuda_batch_table *last_table(struct cuda_batch *batch)
{
    return batch->num_tables > 0 ? &batch->tables[batch->num_tables - 1] : NULL;
}

static bool begins_table(struct cuda_batch *batch, enum cuda_table kind, uint32_t parts)
{
    const struct cuda_batch_table *last = last_table(batch);
    return !last || last->kind != kind || last->parts > MAX_PARTS - parts;
}

/* Room for one more entry, in a new piece if this one is full; its table is the last one then. */
static int add_entry(
    struct cuda_batch *batch, enum cuda_table kind, uint32_t parts, void **ret_entry)
{
    uint64_t size = entry_size(kind);
    bool is_full = batch->filled + size > batch->piece.size;
    bool begins = begins_table(batch, kind, parts);
    if (is_full || (begins && batch->num_tables == CUDA_BATCH_TABLES)) {
        int r = cuda_batch_flush(batch);
        if (r == F8_OK)
            r = cuda_ring_take(batch->cuda, batch->ring,
                batch->expected > MIN_PIECE ? batch->expected : MIN_PIECE, batch->deadline_ms,
                &batch->piece, batch->reason);
        if (r < 0)
            return r;
        begins = true;
    }
    if (begins)
        batch->tables[batch->num_tables++] =
            (struct cuda_batch_table){.kind = kind, .offset = batch->filled};
    *ret_entry = batch->piece.host + batch->filled;
    batch->filled += size;
    batch->expected -= batch->expected > size ? size : batch->expected;
    last_table(batch)->entries++;
    return F8_OK;
}

int cuda_batch_task(struct cuda_batch *batch, enum cuda_table kind, const struct f8cu_task *task)
{
    uint32_t parts = f8cu_parts(task->count);
    void *entry;
    if (parts == 0)
        return F8_OK;
    int r = add_entry(batch, kind, parts, &entry);
    if (r < 0)
        return r;
    struct f8cu_task copy = *task;
    struct cuda_batch_table *table = last_table(batch);
    copy.first_part = table->parts;
    table->parts += parts;
    memcpy(entry, &copy, sizeof(copy)); /* whole lines: the memory is write-combined */
    return F8_OK;
}

int cuda_batch_end_zeros(struct cuda_batch *batch)
{
    const struct f8cu_task fill = {
        .op = F8CU_FILL, .dst = batch->zeros, .count = batch->zeros_size};
    batch->zeros_size = 0;
    return cuda_batch_task(batch, CUDA_TABLE_WRITE, &fill);
}

int cuda_batch_zero(struct cuda_batch *batch, void *memory, uint64_t size)
{
    uint8_t *bytes = memory;
    uint8_t *end = batch->zeros + batch->zeros_size;
    if (batch->zeros_size > 0 && bytes >= batch->zeros && bytes + size <= end)
        return F8_OK; /* a second task on the same shard's amax */
    if (batch->zeros_size > 0 && bytes == end) {
        batch->zeros_size += size;
        return F8_OK;
    }
    int r = cuda_batch_end_zeros(batch);
    batch->zeros = bytes;
    batch->zeros_size = size;
    return r;
}

int cuda_batch_scale(struct cuda_batch *batch, const struct f8cu_scale *scale)
{
    void *entry;
    int r = add_entry(batch, CUDA_TABLE_SCALE, 0, &entry);
    if (r == F8_OK)
        memcpy(entry, scale, sizeof(*scale));
    return r;
}
