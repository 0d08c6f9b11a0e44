/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of cases for the CUDA kernels against the reference; see cuda_cases.h.
 */
#include "tests/lib/cuda_cases.h"

#include "proto/status.h"
#include "tests/lib/cuda_device.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANARY 0xa5
#define GUARD  64 /* bytes between any two things, and what offsets are counted from */

static void *grown(void *memory, size_t bytes)
{
    memory = realloc(memory, bytes);
    if (!memory) {
        fprintf(stderr, "cuda_cases: no memory for %zu bytes\n", bytes);
        exit(EXIT_FAILURE);
    }
    return memory;
}

/* Bytes of the image, `offset` past a multiple of GUARD, with at least GUARD canaries in front. */
static size_t take(struct cuda_cases *cases, size_t bytes, size_t offset)
{
    size_t at = (cases->size + 2 * GUARD - 1) / GUARD * GUARD + offset;
    size_t end = at + bytes;
    if (end + GUARD > cases->capacity) {
        cases->capacity = 2 * (end + GUARD);
        cases->image = grown(cases->image, cases->capacity);
    }
    memset(cases->image + cases->size, CANARY, end + GUARD - cases->size);
    cases->size = end + GUARD;
    return at;
}

void cases_init(struct cuda_cases *cases, uint32_t num_slots, uint32_t amax)
{
    *cases = (struct cuda_cases){.num_slots = num_slots};
    cases->slots_at = take(cases, num_slots * sizeof(struct cuda_slot), 0);
    for (uint32_t i = 0; i < num_slots; i++) {
        struct cuda_slot slot = {.counts = {.saturated = 7, .nan = UINT32_MAX}, .amax = amax};
        memcpy(cases->image + cases->slots_at + i * sizeof(slot), &slot, sizeof(slot));
    }
}

void cases_done(struct cuda_cases *cases)
{
    free(cases->image);
    free(cases->list);
    *cases = (struct cuda_cases){0};
}

static size_t source_bytes(const struct cuda_case *one)
{
    switch (one->op) {
    case F8CU_AMAX:
    case F8CU_CAST:
        return one->count * f8k_dtype_size(one->dtype);
    case F8CU_TO_BF16:
        return one->count * sizeof(float);
    case F8CU_FILL:
        return 0;
    default:
        return one->count;
    }
}

static size_t result_bytes(const struct cuda_case *one)
{
    switch (one->op) {
    case F8CU_AMAX:
        return 0;
    case F8CU_TO_BF16:
        return one->count * sizeof(uint16_t);
    case CASE_DEQUANTISE:
        return one->count * f8k_dtype_size(one->dtype);
    default:
        return one->count;
    }
}

void *cases_add(struct cuda_cases *cases, const struct cuda_case *added)
{
    if (cases->count == cases->list_capacity) {
        cases->list_capacity = 2 * cases->list_capacity + 16;
        cases->list = grown(cases->list, cases->list_capacity * sizeof(*cases->list));
    }
    struct cuda_case *one = &cases->list[cases->count++];
    *one = *added;
    one->scale_at = take(cases, sizeof(one->scale), 0);
    memcpy(cases->image + one->scale_at, &one->scale, sizeof(one->scale));
    one->dst = take(cases, result_bytes(one), one->dst_offset);
    one->src = take(cases, source_bytes(one), one->src_offset);
    return one->op == F8CU_FILL ? NULL : cases->image + one->src;
}

void cases_add_random(struct cuda_cases *cases, const struct cuda_case *added, struct rng *rng)
{
    uint8_t *src = cases_add(cases, added);
    if (added->op == F8CU_FILL)
        return;
    bool has_bytes = added->op == F8CU_COPY || added->op == CASE_DEQUANTISE;
    for (size_t i = 0; i < added->count; i++) {
        if (has_bytes)
            src[i] = (uint8_t)rng_next(rng);
        else
            set_element(added->dtype, src, i, random_element(rng, added->dtype));
    }
}

static struct cuda_slot *slot_of(const struct cuda_cases *cases, uint8_t *image, uint32_t slot)
{
    return (struct cuda_slot *)(void *)(image + cases->slots_at) + slot;
}

/* What a case is to do, on the image of the reference. */
static void run_reference(
    const struct cuda_cases *cases, const struct cuda_case *one, uint8_t *image)
{
    const struct f8k_ops *ref = f8k_variant(0);
    struct f8k_counts uncounted = {0};
    void *src = image + one->src, *dst = image + one->dst;
    uint32_t *amax =
        one->amax_slot == NO_SLOT ? NULL : &slot_of(cases, image, one->amax_slot)->amax;
    struct f8k_counts *counts =
        one->counts_slot == NO_SLOT ? &uncounted : &slot_of(cases, image, one->counts_slot)->counts;
    if (one->op == F8CU_AMAX) {
        uint32_t value = ref->amax(one->dtype, src, one->count);
        *amax = value > *amax ? value : *amax;
    } else if (one->op == F8CU_CAST) {
        struct f8k_cast cast = {.src = src,
            .dst = dst,
            .count = one->count,
            .scale = one->scale,
            .dtype = one->dtype,
            .format = one->format,
            .amax = amax};
        ref->cast(&cast, counts);
    } else if (one->op == F8CU_COPY) {
        memcpy(dst, src, one->count);
    } else if (one->op == F8CU_TO_BF16) {
        ref->to_bf16(src, dst, one->count);
    } else if (one->op == F8CU_FILL) {
        memset(dst, one->byte, one->count);
    } else {
        ref->dequantise(one->format, src, one->dtype, dst, one->count, one->scale);
    }
}

static struct f8cu_task task_of(
    const struct cuda_cases *cases, const struct cuda_case *one, uint8_t *device)
{
    struct f8cu_task task = {
        .src = device + one->src,
        .dst = device + one->dst,
        .count = one->count,
        .scale = (float *)(void *)(device + one->scale_at),
        .op = (uint8_t)one->op,
        .dtype = (uint8_t)one->dtype,
        .format = (uint8_t)one->format,
        .byte = one->byte,
    };
    if (one->amax_slot != NO_SLOT)
        task.amax = &slot_of(cases, device, one->amax_slot)->amax;
    if (one->counts_slot != NO_SLOT)
        task.counts = &slot_of(cases, device, one->counts_slot)->counts;
    return task;
}

/* Launches the cases that f8cu_amax takes, or all the other ones of tables; `table_at` has room. */
static void launch_table(
    const struct cuda_cases *cases, bool is_amax, uint8_t *device, uint8_t *image, size_t table_at)
{
    struct f8cu_task *table = (struct f8cu_task *)(void *)(image + table_at);
    const struct f8cu_task *device_table = (const struct f8cu_task *)(void *)(device + table_at);
    uint32_t num_tasks = 0, num_parts = 0;
    for (size_t i = 0; i < cases->count; i++) {
        const struct cuda_case *one = &cases->list[i];
        if (one->op == CASE_DEQUANTISE || (one->op == F8CU_AMAX) != is_amax)
            continue;
        table[num_tasks] = task_of(cases, one, device);
        table[num_tasks++].first_part = num_parts;
        num_parts += f8cu_parts(one->count);
    }
    if (num_tasks == 0)
        return;
    size_t bytes = num_tasks * sizeof(*table);
    device_upload(device + table_at, table, bytes);
    int status =
        (is_amax ? f8cu_amax : f8cu_write)(device_table, num_tasks, num_parts, device_stream());
    ck_assert_msg(status == F8_OK, "launch of %u tasks: %d, %s", num_tasks, status, f8cu_error());
}

static void launch_dequantise(const struct cuda_case *one, uint8_t *device)
{
    const float *scale = (const float *)(void *)(device + one->scale_at);
    int status = f8cu_dequantise(one->format, device + one->src, one->dtype, device + one->dst,
        one->count, scale, device_stream());
    ck_assert_msg(status == F8_OK, "f8cu_dequantise: %d, %s", status, f8cu_error());
}

/* Fails with the first byte that differs and the case that it belongs to. */
static void fail_at(const struct cuda_cases *cases, const uint8_t *want, const uint8_t *got)
{
    static const char *const names[] = {"amax", "cast", "copy", "to_bf16", "fill"};
    size_t at = 0, of = 0;
    while (want[at] == got[at])
        at++;
    while (of + 1 < cases->count && cases->list[of + 1].scale_at <= at)
        of++;
    if (cases->count == 0 || at < cases->list[of].scale_at)
        ck_abort_msg("slot %zu, byte %zu: %02x, the reference has %02x",
            (at - cases->slots_at) / sizeof(struct cuda_slot),
            (at - cases->slots_at) % sizeof(struct cuda_slot), got[at], want[at]);
    const struct cuda_case *one = &cases->list[of];
    ck_abort_msg("%s of %zu elements of %s, %s, scale %a, src + %zu, dst + %zu: byte %td of dst is "
                 "%02x, the reference has %02x",
        one->op == CASE_DEQUANTISE ? "dequantise" : names[one->op], one->count,
        f8k_dtype_name(one->dtype), f8k_format_name(one->format), (double)one->scale,
        one->src_offset, one->dst_offset, (ptrdiff_t)at - (ptrdiff_t)one->dst, got[at], want[at]);
}

void cases_run(struct cuda_cases *cases)
{
    size_t bytes = cases->size;
    size_t amax_table = take(cases, cases->count * sizeof(struct f8cu_task), 0);
    size_t write_table = take(cases, cases->count * sizeof(struct f8cu_task), 0);
    uint8_t *device = device_alloc(cases->size);
    uint8_t *want = grown(NULL, bytes), *got = grown(NULL, bytes);
    memcpy(want, cases->image, bytes);
    device_upload(device, cases->image, bytes);
    launch_table(cases, true, device, cases->image, amax_table);
    launch_table(cases, false, device, cases->image, write_table);
    for (size_t i = 0; i < cases->count; i++) {
        if (cases->list[i].op == CASE_DEQUANTISE)
            launch_dequantise(&cases->list[i], device);
        run_reference(cases, &cases->list[i], want);
    }
    device_download(got, device, bytes);
    if (memcmp(want, got, bytes) != 0)
        fail_at(cases, want, got);
    device_free(device);
    free(want);
    free(got);
    cases->count = 0;
    cases->size = cases->slots_at + cases->num_slots * sizeof(struct cuda_slot) + GUARD;
}
