/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a stored state: its table, and how it compares with what a group registers. */
#include "daemon/state_table.h"

#include <string.h>

#include "daemon/state_bytes.h"
#include "status.h"

/* Offsets in an entry; its name and a NUL follow. */
enum {
    AT_DTYPE = 0,
    AT_FORMAT = 1,
    AT_FLAVOUR = 2,
    AT_POWER_OF_TWO = 3,
    AT_HISTORY_LENGTH = 4,
    AT_HISTORY_ALGORITHM = 6,
    AT_NAME_SIZE = 7,
    FIXED_SIZE = 8,
};

bool state_has(const struct weight *weight)
{
    return weight->flavour == F8_PROTO_DELAYED && weight->amax_group == 0;
}

uint32_t state_count(const struct weight_list *list)
{
    uint32_t count = 0;
    for (uint32_t w = 0; w < list->num_weights; w++)
        count += state_has(&list->weights[w]);
    return count;
}

size_t state_entry_size(const struct weight *weight)
{
    return FIXED_SIZE + strlen(weight->name) + 1;
}

size_t state_entry_write(uint8_t *at, const struct weight *weight)
{
    size_t length = strlen(weight->name);
    at[AT_DTYPE] = weight->dtype;
    at[AT_FORMAT] = weight->format;
    at[AT_FLAVOUR] = weight->flavour;
    at[AT_POWER_OF_TWO] = weight->power_of_two;
    put16(at + AT_HISTORY_LENGTH, weight->history_length);
    at[AT_HISTORY_ALGORITHM] = weight->history_algorithm;
    at[AT_NAME_SIZE] = (uint8_t)length;
    memcpy(at + FIXED_SIZE, weight->name, length + 1);
    return FIXED_SIZE + length + 1;
}

static bool is_sound(const struct state_entry *entry)
{
    return f8_proto_dtype_name(entry->dtype) && f8_proto_format_name(entry->format) &&
           entry->flavour == F8_PROTO_DELAYED && f8_proto_history_name(entry->history_algorithm) &&
           entry->history_length >= 1 && entry->history_length <= F8_PROTO_MAX_HISTORY_LENGTH;
}

bool state_entry_read(const uint8_t **at, const uint8_t *end, struct state_entry *ret_entry)
{
    const uint8_t *p = *at;
    if (end - p < FIXED_SIZE)
        return false;
    size_t length = p[AT_NAME_SIZE];
    const char *name = (const char *)p + FIXED_SIZE;
    if ((size_t)(end - p) < FIXED_SIZE + length + 1 || strnlen(name, length + 1) != length ||
        length == 0 || p[AT_POWER_OF_TWO] > 1)
        return false;
    struct state_entry entry = {
        .name = name,
        .history_length = get16(p + AT_HISTORY_LENGTH),
        .dtype = p[AT_DTYPE],
        .format = p[AT_FORMAT],
        .flavour = p[AT_FLAVOUR],
        .history_algorithm = p[AT_HISTORY_ALGORITHM],
        .power_of_two = p[AT_POWER_OF_TWO],
    };
    if (!is_sound(&entry))
        return false;
    *at = p + FIXED_SIZE + length + 1;
    *ret_entry = entry;
    return true;
}

/* "bfloat16 e4m3fn, history 16 max". */
static char *describe(const struct state_entry *entry, char *buffer, size_t size)
{
    (void)snprintf(buffer, size, "%s %s%s, history %u %s", f8_proto_dtype_name(entry->dtype),
        f8_proto_format_name(entry->format), entry->power_of_two ? " power-of-two" : "",
        entry->history_length, f8_proto_history_name(entry->history_algorithm));
    return buffer;
}

static struct state_entry entry_of(const struct weight *weight)
{
    return (struct state_entry){
        .name = weight->name,
        .history_length = weight->history_length,
        .dtype = weight->dtype,
        .format = weight->format,
        .flavour = weight->flavour,
        .history_algorithm = weight->history_algorithm,
        .power_of_two = weight->power_of_two,
    };
}

static int compare(const struct state_entry *stored, const struct state_entry *registered,
    uint32_t index, const char *what, struct reason *reason)
{
    if (strcmp(stored->name, registered->name) != 0)
        return reason_set(reason, F8_EMISMATCH,
            "%s has %.180s as delayed weight %u where the group registers %.180s", what,
            stored->name, index, registered->name);
    char of_stored[96], of_registered[96];
    if (strcmp(describe(stored, of_stored, sizeof(of_stored)),
            describe(registered, of_registered, sizeof(of_registered))) != 0)
        return reason_set(reason, F8_EMISMATCH, "%s has weight %s as %s; the group registers %s",
            what, stored->name, of_stored, of_registered);
    return F8_OK;
}

int state_head_compare(const struct state_head *head, const struct weight_list *list,
    const char *what, struct reason *reason)
{
    const uint8_t *at = head->table, *end = at + head->table_size;
    struct state_entry stored;
    uint32_t index = 0;
    int status = F8_OK;
    for (uint32_t w = 0; w < list->num_weights && status == F8_OK; w++) {
        if (!state_has(&list->weights[w]))
            continue;
        if (!state_entry_read(&at, end, &stored))
            return reason_set(reason, F8_EMISMATCH,
                "%s has %u delayed weights: it lacks %s, which the group registers", what,
                head->num_weights, list->weights[w].name);
        struct state_entry registered = entry_of(&list->weights[w]);
        status = compare(&stored, &registered, index++, what, reason);
    }
    if (status == F8_OK && state_entry_read(&at, end, &stored))
        return reason_set(reason, F8_EMISMATCH,
            "%s has weight %s, which the group does not register as a delayed weight", what,
            stored.name);
    return status;
}
