/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a stored state: see state_form.h; docs/state.md has the bytes. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "daemon/state_bytes.h"
#include "daemon/state_table.h"
#include "status.h"

/* Offsets in the values, and in those of one weight, whose history follows. */
enum {
    AT_CRC = 0,
    AT_COUNTER = 4,
    AT_SYNCS = 8,
};
enum {
    OF_SCALE = 0,
    OF_AMAX = 4,
    OF_FLAGS = 8,
    OF_ZERO = 12,
    OF_GATHERS = 16,
    OF_SATURATED = 24,
    OF_NAN = 32,
    OF_STALE = 40,
    OF_KEPT = 48,
    OF_WEIGHT_SYNCS = 56,
    OF_HISTORY = 64,
};

#define FLAG_INITIALISED 1u
#define FLAG_AMAX_SEEN   2u
#define FLAG_SCALE_SEEN  4u
#define FLAGS_ALL        7u

/* Bits of fp32: infinity, at or above which nothing is finite and positive; and the sign. */
#define INFINITE 0x7f800000u
#define SIGN     0x80000000u

/* The scale that a NaN amax gives: f8k_scale knows no other NaN. */
#define NAN_SCALE 0x7fc00000u

size_t state_value_size(uint32_t history_length)
{
    return OF_HISTORY + (size_t)history_length * sizeof(uint32_t);
}

static uint32_t checksum(const uint8_t *values, size_t size)
{
    return (uint32_t)crc32_z(0, values + AT_COUNTER, size - AT_COUNTER);
}

uint32_t state_values_counter(const uint8_t *values)
{
    return get32(values + AT_COUNTER);
}

uint64_t state_values_syncs(const uint8_t *values)
{
    return get64(values + AT_SYNCS);
}

static void write_one(uint8_t *at, const struct weight *weight, const struct scaling *scaling)
{
    uint32_t scale;
    memcpy(&scale, &scaling->scale, sizeof(scale));
    put32(at + OF_SCALE, scale);
    put32(at + OF_AMAX, scaling->amax);
    put32(at + OF_FLAGS, (scaling->ready ? FLAG_INITIALISED : 0) |
                             (scaling->amax_seen ? FLAG_AMAX_SEEN : 0) |
                             (scaling->scale_seen ? FLAG_SCALE_SEEN : 0));
    put32(at + OF_ZERO, 0);
    put64(at + OF_GATHERS, scaling->gathers);
    put64(at + OF_SATURATED, scaling->saturated);
    put64(at + OF_NAN, scaling->nan);
    put64(at + OF_STALE, scaling->stale);
    put64(at + OF_KEPT, scaling->delayed.kept);
    put64(at + OF_WEIGHT_SYNCS, scaling->delayed.syncs);
    for (uint32_t i = 0; i < weight->history_length; i++)
        put32(at + OF_HISTORY + i * sizeof(uint32_t), scaling_history(scaling, weight, i));
}

void state_values_write(uint8_t *values, size_t size, uint32_t counter, uint64_t syncs,
    const struct weight_list *list, const struct scaling *scalings)
{
    uint8_t *at = values + STATE_VALUES_FIXED;
    put32(values + AT_COUNTER, counter);
    put64(values + AT_SYNCS, syncs);
    for (uint32_t w = 0; w < list->num_weights; w++) {
        if (!state_has(&list->weights[w]))
            continue;
        write_one(at, &list->weights[w], &scalings[w]);
        at += state_value_size(list->weights[w].history_length);
    }
    memset(at, 0, (size_t)(values + size - at));
    put32(values + AT_CRC, checksum(values, size));
}

void state_values_copy(uint8_t *values, const uint8_t *from, size_t size, uint32_t counter)
{
    memcpy(values, from, size);
    put32(values + AT_COUNTER, counter);
    put32(values + AT_CRC, checksum(values, size));
}

static void read_one(const uint8_t *at, const struct weight *weight, struct scaling *scaling)
{
    uint32_t scale = get32(at + OF_SCALE), flags = get32(at + OF_FLAGS);
    scaling_reset(scaling, weight);
    memcpy(&scaling->scale, &scale, sizeof(scale));
    scaling->amax = get32(at + OF_AMAX);
    scaling->ready = flags & FLAG_INITIALISED;
    scaling->amax_seen = flags & FLAG_AMAX_SEEN;
    scaling->scale_seen = flags & FLAG_SCALE_SEEN;
    scaling->gathers = get64(at + OF_GATHERS);
    scaling->saturated = get64(at + OF_SATURATED);
    scaling->nan = get64(at + OF_NAN);
    scaling->stale = get64(at + OF_STALE);
    scaling->delayed.kept = get64(at + OF_KEPT);
    scaling->delayed.syncs = get64(at + OF_WEIGHT_SYNCS);
    for (uint32_t i = 0; i < weight->history_length; i++)
        scaling->delayed.history[i] = get32(at + OF_HISTORY + i * sizeof(uint32_t));
}

static bool same_one(const struct weight *weight, const uint8_t *at, const uint8_t *other)
{
    return get32(at + OF_SCALE) == get32(other + OF_SCALE) &&
           ((get32(at + OF_FLAGS) ^ get32(other + OF_FLAGS)) & FLAG_INITIALISED) == 0 &&
           get64(at + OF_WEIGHT_SYNCS) == get64(other + OF_WEIGHT_SYNCS) &&
           memcmp(at + OF_HISTORY, other + OF_HISTORY, weight->history_length * sizeof(uint32_t)) ==
               0;
}

bool state_values_same(const struct weight_list *list, const uint8_t *values, const uint8_t *others)
{
    size_t offset = STATE_VALUES_FIXED;
    for (uint32_t w = 0; w < list->num_weights; w++) {
        const struct weight *weight = &list->weights[w];
        if (!state_has(weight))
            continue;
        if (!same_one(weight, values + offset, others + offset))
            return false;
        offset += state_value_size(weight->history_length);
    }
    return true;
}

void state_values_read(
    const uint8_t *values, const struct weight_list *list, struct scaling *scalings)
{
    const uint8_t *at = values + STATE_VALUES_FIXED;
    for (uint32_t w = 0; w < list->num_weights; w++) {
        if (!state_has(&list->weights[w]))
            continue;
        read_one(at, &list->weights[w], &scalings[w]);
        at += state_value_size(list->weights[w].history_length);
    }
}

/* Fields that must have one of few values: no later version has written more into them. */
static bool are_sound(const struct state_head *head, const uint8_t *values)
{
    const uint8_t *entries = head->table, *end = head->table + head->table_size;
    const uint8_t *at = values + STATE_VALUES_FIXED;
    struct state_entry entry;
    while (state_entry_read(&entries, end, &entry)) {
        if (get32(at + OF_FLAGS) > FLAGS_ALL || get32(at + OF_ZERO) != 0)
            return false;
        at += state_value_size(entry.history_length);
    }
    return true;
}

int state_values_check(
    const struct state_head *head, const uint8_t *values, const char *what, struct reason *reason)
{
    uint32_t told = get32(values + AT_CRC), found = checksum(values, head->values_size);
    if (told != found)
        return reason_set(reason, F8_EINVAL,
            "%s is damaged: the checksum of its values is 0x%08x, its bytes give 0x%08x", what,
            told, found);
    if (!are_sound(head, values))
        return reason_set(reason, F8_EINVAL,
            "%s is malformed: its checksum is right, but a weight has flags that are unknown",
            what);
    return F8_OK;
}

static int refuse_number(const struct state_entry *entry, const char *what, const char *key,
    uint32_t bits, const char *rule, struct reason *reason)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return reason_set(reason, F8_EINVAL, "%s has weight %.200s with %s %g (bits 0x%08x): %s", what,
        entry->name, key, (double)value, bits, rule);
}

static bool is_sound(uint32_t bits)
{
    return bits > 0 && bits < INFINITE;
}

/*
 * Whether a scale is what an infinity (0) or a NaN in the weights' first gather made of it: it
 * stays until a sync meets a sound amax, which then is in the history.
 */
static bool is_unsound_seed(const uint8_t *at, const struct state_entry *entry)
{
    uint32_t scale = get32(at + OF_SCALE), seeded = FLAG_INITIALISED | FLAG_SCALE_SEEN;
    if ((scale != 0 && scale != NAN_SCALE) || (get32(at + OF_FLAGS) & seeded) != seeded)
        return false;
    for (uint32_t i = 0; i < entry->history_length; i++)
        if (is_sound(get32(at + OF_HISTORY + i * sizeof(uint32_t))))
            return false;
    return true;
}

/* The amaxes of a weight's history: of one that no gather has seeded they are zeros. */
static int check_history(
    const uint8_t *at, const struct state_entry *entry, const char *what, struct reason *reason)
{
    bool seeded = get32(at + OF_FLAGS) & FLAG_INITIALISED;
    char key[32];
    for (uint32_t i = 0; i < entry->history_length; i++) {
        uint32_t amax = get32(at + OF_HISTORY + i * sizeof(uint32_t));
        if (!(amax & SIGN) && (seeded || amax == 0))
            continue;
        (void)snprintf(key, sizeof(key), "history[%u]", i);
        return refuse_number(entry, what, key, amax,
            amax & SIGN ? "an amax must not be negative"
                        : "it is not initialised, so its history must be zeros",
            reason);
    }
    return F8_OK;
}

static int check_numbers(
    const uint8_t *at, const struct state_entry *entry, const char *what, struct reason *reason)
{
    uint32_t scale = get32(at + OF_SCALE), amax = get32(at + OF_AMAX);
    if (!is_sound(scale) && !is_unsound_seed(at, entry))
        return refuse_number(entry, what, "scale", scale,
            "a scale must be above 0 and finite, but for 0 and NaN while its history has no amax "
            "that is so",
            reason);
    if (amax & SIGN)
        return refuse_number(entry, what, "amax", amax, "an amax must not be negative", reason);
    return check_history(at, entry, what, reason);
}

int state_values_usable(
    const struct state_head *head, const uint8_t *values, const char *what, struct reason *reason)
{
    const uint8_t *entries = head->table, *end = head->table + head->table_size;
    const uint8_t *at = values + STATE_VALUES_FIXED;
    struct state_entry entry;
    int status = F8_OK;
    while (status == F8_OK && state_entry_read(&entries, end, &entry)) {
        status = check_numbers(at, &entry, what, reason);
        at += state_value_size(entry.history_length);
    }
    return status;
}
