/* SPDX-License-Identifier: Apache-2.0 */
/* Making and checking the form of a state: see state_form.h; values are in state_values.c. */
#include "daemon/state_form.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "daemon/state_bytes.h"
#include "daemon/state_table.h"
#include "status.h"

static const char magic[8] = {'f', '8', 'g', 's', 't', 'a', 't', 'e'};

/* Offsets in the header; docs/state.md has the table. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_CRC = 12,
    AT_SIZE = 16,
    AT_WEIGHTS = 20,
    AT_VALUES_SIZE = 24,
    AT_UID = 32,
    AT_FLAGS = 36,
    AT_JOB_SIZE = 40,
    AT_GROUP_SIZE = 42,
    AT_TOKEN_SIZE = 44,
    AT_ZERO = 46,
    FIXED_SIZE = 48,
};

#define FLAG_ANY_TOKEN 1u

/* Of the header with zeros in the checksum's place. */
static uint32_t head_checksum(const uint8_t *bytes, size_t size)
{
    static const uint8_t zeros[4];
    uLong crc = crc32_z(0, bytes, AT_CRC);
    crc = crc32_z(crc, zeros, sizeof(zeros));
    return (uint32_t)crc32_z(crc, bytes + AT_SIZE, size - AT_SIZE);
}

static size_t round_up(size_t size)
{
    return (size + 7) & ~(size_t)7;
}

/* A table in the making: where its entries come from. */
struct table {
    const struct weight_list *list; /* borrowed; NULL: `bytes` has it ready */
    const uint8_t *bytes;           /* borrowed */
    size_t size;
    size_t values_size;
    uint32_t count;
};

static struct table table_of_list(const struct weight_list *list)
{
    struct table table = {.list = list, .values_size = STATE_VALUES_FIXED};
    for (uint32_t w = 0; w < list->num_weights; w++) {
        if (!state_has(&list->weights[w]))
            continue;
        table.count++;
        table.size += state_entry_size(&list->weights[w]);
        table.values_size += state_value_size(list->weights[w].history_length);
    }
    table.values_size = round_up(table.values_size);
    return table;
}

static void write_table(uint8_t *at, const struct table *table)
{
    if (!table->list) {
        memcpy(at, table->bytes, table->size);
        return;
    }
    for (uint32_t w = 0; w < table->list->num_weights; w++)
        if (state_has(&table->list->weights[w]))
            at += state_entry_write(at, &table->list->weights[w]);
}

static size_t head_size(const struct state_owner *owner, const struct table *table)
{
    return round_up(FIXED_SIZE + strlen(owner->job) + 1 + strlen(owner->group) + 1 +
                    owner->token_size + table->size);
}

/* Writes the header into zeroed memory of head_size bytes. */
static void write_head(
    uint8_t *bytes, size_t size, const struct state_owner *owner, const struct table *table)
{
    size_t job = strlen(owner->job), group = strlen(owner->group);
    memcpy(bytes + AT_MAGIC, magic, sizeof(magic));
    put32(bytes + AT_VERSION, STATE_FORM_VERSION);
    put32(bytes + AT_SIZE, (uint32_t)size);
    put32(bytes + AT_WEIGHTS, table->count);
    put64(bytes + AT_VALUES_SIZE, table->values_size);
    put32(bytes + AT_UID, owner->uid);
    put32(bytes + AT_FLAGS, owner->any_token ? FLAG_ANY_TOKEN : 0);
    put16(bytes + AT_JOB_SIZE, (uint16_t)job);
    put16(bytes + AT_GROUP_SIZE, (uint16_t)group);
    put16(bytes + AT_TOKEN_SIZE, (uint16_t)owner->token_size);
    uint8_t *at = bytes + FIXED_SIZE;
    memcpy(at, owner->job, job + 1);
    at += job + 1;
    memcpy(at, owner->group, group + 1);
    at += group + 1;
    if (owner->token_size)
        memcpy(at, owner->token, owner->token_size);
    write_table(at + owner->token_size, table);
    put32(bytes + AT_CRC, head_checksum(bytes, size));
}

/* A form with its header written, its values zero. */
static int new_form(const struct state_owner *owner, const struct table *table,
    struct state_form *ret_form, struct reason *reason)
{
    size_t head = head_size(owner, table), size = head + table->values_size;
    if (size > STATE_FORM_MAX_SIZE)
        return reason_set(reason, F8_ELIMIT,
            "the state of group %s takes %zu bytes, the limit is %" PRIu64
            ": register fewer delayed weights or shorter histories",
            owner->group, size, (uint64_t)STATE_FORM_MAX_SIZE);
    uint8_t *bytes = calloc(1, size);
    if (!bytes)
        return reason_set(
            reason, F8_ENOMEM, "out of memory for the state of group %s", owner->group);
    write_head(bytes, head, owner, table);
    *ret_form = (struct state_form){.bytes = bytes, .size = size};
    int status = state_head_check(bytes, size, "the state just made", &ret_form->head, reason);
    if (status < 0)
        state_form_done(ret_form);
    return status;
}

int state_form_make(const struct state_owner *owner, const struct weight_list *list,
    const struct scaling *scalings, uint64_t syncs, struct state_form *ret_form,
    struct reason *reason)
{
    struct table table = table_of_list(list);
    struct state_form form;
    int status = new_form(owner, &table, &form, reason);
    if (status < 0)
        return status;
    state_values_write(
        form.bytes + form.head.size, form.head.values_size, 0, syncs, list, scalings);
    *ret_form = form;
    return F8_OK;
}

int state_form_copy(const struct state_owner *owner, const struct state_head *head,
    const uint8_t *values, struct state_form *ret_form, struct reason *reason)
{
    struct table table = {.bytes = head->table,
        .size = head->table_size,
        .values_size = head->values_size,
        .count = head->num_weights};
    struct state_form form;
    int status = new_form(owner, &table, &form, reason);
    if (status < 0)
        return status;
    state_values_copy(form.bytes + form.head.size, values, head->values_size, 0);
    *ret_form = form;
    return F8_OK;
}

void state_form_done(struct state_form *form)
{
    free(form->bytes);
    *form = (struct state_form){0};
}

static int check_version(const uint8_t *bytes, const char *what, struct reason *reason)
{
    uint32_t version = get32(bytes + AT_VERSION);
    if (version == STATE_FORM_VERSION)
        return F8_OK;
    return reason_set(reason, version > STATE_FORM_VERSION ? F8_EVERSION : F8_EINVAL,
        "%s has format version %u, this daemon (f8gatherd %s) reads version %d: use the one that "
        "wrote it, or a newer one",
        what, version, F8_VERSION, STATE_FORM_VERSION);
}

/*
 * What the fixed part says, before the rest is looked at. Magic, version, checksum and size are at
 * their places in all versions, so that a damaged file is not taken for one of a newer form.
 */
static int check_fixed(const uint8_t *bytes, size_t size, const char *what, struct reason *reason)
{
    if (size < FIXED_SIZE || memcmp(bytes, magic, sizeof(magic)) != 0)
        return reason_set(reason, F8_EINVAL,
            "%s is no scaling state: it does not begin with a header of f8gstate", what);
    uint32_t head = get32(bytes + AT_SIZE);
    if (head < FIXED_SIZE || head % 8 != 0 || head > size)
        return reason_set(reason, F8_EINVAL,
            "%s is cut or damaged: its header is to have %u bytes, of %zu that there are", what,
            head, size);
    uint32_t told = get32(bytes + AT_CRC), found = head_checksum(bytes, head);
    if (told != found)
        return reason_set(reason, F8_EINVAL,
            "%s is damaged: the checksum of its header is 0x%08x, its bytes give 0x%08x", what,
            told, found);
    return check_version(bytes, what, reason);
}

/* Takes a name of `length` bytes and its NUL from [*at, end); NULL if there is none such. */
static const char *take_string(const uint8_t **at, const uint8_t *end, size_t length)
{
    const char *text = (const char *)*at;
    char fault[F8_PROTO_FAULT_SIZE];
    if (length == 0 || length > F8_PROTO_MAX_NAME || (size_t)(end - *at) < length + 1 ||
        strnlen(text, length + 1) != length || f8_proto_name_fault(text, fault))
        return NULL;
    *at += length + 1;
    return text;
}

static bool take_owner(
    const uint8_t *bytes, const uint8_t **at, const uint8_t *end, struct state_owner *ret_owner)
{
    size_t token_size = get16(bytes + AT_TOKEN_SIZE);
    uint32_t flags = get32(bytes + AT_FLAGS);
    struct state_owner owner = {.uid = get32(bytes + AT_UID),
        .token_size = token_size,
        .any_token = flags & FLAG_ANY_TOKEN};
    owner.job = take_string(at, end, get16(bytes + AT_JOB_SIZE));
    owner.group = owner.job ? take_string(at, end, get16(bytes + AT_GROUP_SIZE)) : NULL;
    if (!owner.group || (size_t)(end - *at) < token_size || flags > FLAG_ANY_TOKEN)
        return false;
    owner.token = token_size ? *at : NULL;
    *at += token_size;
    *ret_owner = owner;
    return true;
}

/* Walks the table: the number of values must be what it says. */
static bool take_table(const uint8_t *bytes, const uint8_t *at, struct state_head *head)
{
    const uint8_t *end = bytes + head->size;
    size_t values = STATE_VALUES_FIXED;
    head->table = at;
    head->num_weights = get32(bytes + AT_WEIGHTS);
    for (uint32_t w = 0; w < head->num_weights; w++) {
        struct state_entry entry;
        if (!state_entry_read(&at, end, &entry))
            return false;
        values += state_value_size(entry.history_length);
    }
    head->table_size = (size_t)(at - head->table);
    head->values_size = round_up(values);
    return get64(bytes + AT_VALUES_SIZE) == head->values_size && end - at < 8;
}

int state_head_check(const uint8_t *bytes, size_t size, const char *what,
    struct state_head *ret_head, struct reason *reason)
{
    int status = check_fixed(bytes, size, what, reason);
    if (status < 0)
        return status;
    struct state_head head = {.size = get32(bytes + AT_SIZE)};
    const uint8_t *at = bytes + FIXED_SIZE;
    if (!take_owner(bytes, &at, bytes + head.size, &head.owner) || !take_table(bytes, at, &head))
        return reason_set(reason, F8_EINVAL,
            "%s is malformed: its checksum is right, but not its names (UTF-8 without control "
            "characters) or its table",
            what);
    *ret_head = head;
    return F8_OK;
}

int state_form_check(const uint8_t *bytes, size_t size, const char *what,
    struct state_head *ret_head, struct reason *reason)
{
    struct state_head head;
    int status = state_head_check(bytes, size, what, &head, reason);
    if (status < 0)
        return status;
    if (size != head.size + head.values_size)
        return reason_set(reason, F8_EINVAL, "%s is cut or too long: %zu bytes where %zu are due",
            what, size, head.size + head.values_size);
    status = state_values_check(&head, bytes + head.size, what, reason);
    if (status == F8_OK)
        *ret_head = head;
    return status;
}

int state_import_check(const uint8_t *bytes, size_t size, const char *what,
    struct state_head *ret_head, struct reason *reason)
{
    struct state_head head;
    int status = state_form_check(bytes, size, what, &head, reason);
    if (status == F8_OK)
        status = state_names_check(&head, what, reason);
    if (status == F8_OK)
        status = state_values_usable(&head, bytes + head.size, what, reason);
    if (status == F8_OK)
        *ret_head = head;
    return status;
}
