/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a stored state, as its table has them: see state_table.h. */
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
    char fault[F8_PROTO_FAULT_SIZE];
    return !f8_proto_name_fault(entry->name, fault) && f8_proto_dtype_name(entry->dtype) &&
           f8_proto_format_name(entry->format) && entry->flavour == F8_PROTO_DELAYED &&
           f8_proto_history_name(entry->history_algorithm) && entry->history_length >= 1 &&
           entry->history_length <= F8_PROTO_MAX_HISTORY_LENGTH;
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
