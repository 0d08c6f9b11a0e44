/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The growing list of an index's tensors. Called by daemon_cases.c and main.c; one thread.
 */
#include "tests/conformance/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char *path_name(const struct tensor *tensor)
{
    if (tensor->flavour == F8_STATIC)
        return "static";
    return tensor->precompute ? "precompute" : "dynamic";
}

static void set_name(struct tensor *tensor)
{
    int length = snprintf(tensor->name, sizeof(tensor->name), "%.128s:%lu %s [%" PRIu64,
        tensor->row.file, tensor->row.line, path_name(tensor), tensor->rows);
    size_t used = (size_t)length;
    if (tensor->ndim == 2)
        used += (size_t)snprintf(
            tensor->name + used, sizeof(tensor->name) - used, ", %" PRIu64, tensor->cols);
    (void)snprintf(tensor->name + used, sizeof(tensor->name) - used, "]");
}

bool tensors_add(const struct row *row, struct tensor tensor)
{
    struct tensors *tensors = row->tensors;
    struct tensor *items = realloc(tensors->items, (tensors->count + 1) * sizeof(*items));
    if (items)
        tensors->items = items;
    if (!items || !tensor.source || !tensor.want) {
        row_fail(row, "no memory for a tensor of %" PRIu64 " rows", tensor.rows);
        free(tensor.source);
        free(tensor.want);
        return false;
    }
    tensor.row =
        (struct row){.dir = row->dir, .file = row->file, .line = row->line, .tally = row->tally};
    set_name(&tensor);
    items[tensors->count++] = tensor;
    return true;
}

void tensors_done(struct tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++) {
        free(tensors->items[i].source);
        free(tensors->items[i].want);
    }
    free(tensors->items);
    *tensors = (struct tensors){0};
}
