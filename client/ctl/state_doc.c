/* SPDX-License-Identifier: Apache-2.0 */
/* The binary form of a scaling state, version 1, by docs/state.md: see state_doc.h. */
#include "client/ctl/state_doc.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "client/error.h"
#include "proto/protocol.h"
#include "proto/status.h"

static const char magic[8] = {'f', '8', 'g', 's', 't', 'a', 't', 'e'};

/* Bytes of the parts that have a fixed size. */
#define HEAD_SIZE   48
#define ENTRY_SIZE  8
#define VALUES_SIZE 16
#define VALUE_SIZE  64

#define FLAVOUR_DELAYED 2

/* Flags of a value. */
#define INITIALISED 1u
#define AMAX_SEEN   2u
#define SCALE_SEEN  4u

void state_doc_done(struct state_doc *doc)
{
    for (size_t w = 0; w < doc->num_weights; w++) {
        free(doc->weights[w].name);
        free(doc->weights[w].history);
    }
    free(doc->weights);
    free(doc->job);
    free(doc->group);
    *doc = (struct state_doc){0};
}

/* Takes or puts numbers at a place that moves on; `end` is not passed, and `short` says so. */
struct cursor {
    uint8_t *at, *end;
    bool is_short;
};

static uint64_t take(struct cursor *cursor, size_t size)
{
    uint64_t value = 0;

    if ((size_t)(cursor->end - cursor->at) < size) {
        cursor->is_short = true;
        return 0;
    }
    memcpy(&value, cursor->at, size);
    cursor->at += size;
    return le64toh(value);
}

static void put(struct cursor *cursor, uint64_t value, size_t size)
{
    value = htole64(value);
    memcpy(cursor->at, &value, size);
    cursor->at += size;
}

/* A string of that length and its NUL; NULL: there is none such, or no memory. */
static char *take_text(struct cursor *cursor, size_t length)
{
    char *text = NULL;

    if ((size_t)(cursor->end - cursor->at) > length && memchr(cursor->at, 0, length) == NULL &&
        cursor->at[length] == 0 && length > 0) {
        text = strdup((const char *)cursor->at);
        cursor->at += length + 1;
    }
    cursor->is_short = cursor->is_short || text == NULL;
    return text;
}

static void put_text(struct cursor *cursor, const char *text)
{
    size_t size = strlen(text) + 1;

    memcpy(cursor->at, text, size);
    cursor->at += size;
}

static size_t round_up(size_t size)
{
    return (size + 7) & ~(size_t)7;
}

/* The order of fields is that of the entry. */
static void take_entry(struct cursor *cursor, struct state_weight *weight)
{
    weight->dtype = (uint32_t)take(cursor, 1);
    weight->format = (uint32_t)take(cursor, 1);
    bool delayed = take(cursor, 1) == FLAVOUR_DELAYED;
    weight->power_of_two = take(cursor, 1) != 0;
    weight->history_length = (uint32_t)take(cursor, 2);
    weight->history_algorithm = (uint32_t)take(cursor, 1);
    weight->name = take_text(cursor, (size_t)take(cursor, 1));
    cursor->is_short = cursor->is_short || !delayed || f8_proto_dtype_name(weight->dtype) == NULL ||
                       f8_proto_format_name(weight->format) == NULL ||
                       f8_proto_history_name(weight->history_algorithm) == NULL ||
                       weight->history_length == 0 ||
                       weight->history_length > F8_PROTO_MAX_HISTORY_LENGTH;
}

static void take_value(struct cursor *cursor, struct state_weight *weight)
{
    uint64_t *const counters[] = {&weight->gathers, &weight->saturated, &weight->nan,
        &weight->stale, &weight->kept, &weight->syncs};

    weight->scale = (uint32_t)take(cursor, 4);
    weight->amax = (uint32_t)take(cursor, 4);
    uint64_t flags = take(cursor, 4);
    weight->initialised = flags & INITIALISED;
    weight->amax_seen = flags & AMAX_SEEN;
    weight->scale_seen = flags & SCALE_SEEN;
    (void)take(cursor, 4);
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        *counters[i] = take(cursor, 8);
    }
    weight->history = calloc(weight->history_length + 1u, sizeof(*weight->history));
    cursor->is_short = cursor->is_short || weight->history == NULL;
    for (uint32_t i = 0; i < weight->history_length && !cursor->is_short; i++) {
        weight->history[i] = (uint32_t)take(cursor, 4);
    }
}

/* Names, table and values, of a form whose fixed part was looked at. */
static bool take_form(
    struct cursor *head, struct cursor *values, size_t num_weights, struct state_doc *doc)
{
    size_t job, group, token;

    head->at += 32;
    doc->uid = (uint32_t)take(head, 4);
    (void)take(head, 4); /* flags: any token may continue it, once it is imported */
    job = (size_t)take(head, 2);
    group = (size_t)take(head, 2);
    token = (size_t)take(head, 2);
    (void)take(head, 2);
    doc->job = take_text(head, job);
    doc->group = take_text(head, group);
    if (head->is_short || token > 0) {
        return false; /* an export has no token */
    }
    values->at += 8;
    doc->syncs = take(values, 8);
    doc->weights = calloc(num_weights + 1, sizeof(*doc->weights));
    while (doc->weights != NULL && doc->num_weights < num_weights && !head->is_short &&
           !values->is_short) {
        struct state_weight *weight = &doc->weights[doc->num_weights++];
        take_entry(head, weight);
        if (!head->is_short) {
            take_value(values, weight);
        }
    }
    return doc->weights != NULL && !head->is_short && !values->is_short;
}

int state_doc_read(const uint8_t *bytes, size_t size, const char *what, struct state_doc *ret_doc)
{
    struct cursor fixed = {.at = (uint8_t *)bytes, .end = (uint8_t *)bytes + size};
    struct state_doc doc = {0};
    uint64_t version, head_size, num_weights;

    if (size < HEAD_SIZE + VALUES_SIZE || memcmp(bytes, magic, sizeof(magic)) != 0) {
        return error_set(F8_EINVAL, "%s is no scaling state", what);
    }
    fixed.at += sizeof(magic);
    version = take(&fixed, 4);
    if (version != STATE_DOC_VERSION) {
        return error_set(F8_EVERSION,
            "%s has format version %llu, this f8ctl (%s) reads version %d: use a newer one", what,
            (unsigned long long)version, F8_VERSION, STATE_DOC_VERSION);
    }
    (void)take(&fixed, 4);
    head_size = take(&fixed, 4);
    num_weights = take(&fixed, 4);
    if (head_size < HEAD_SIZE || head_size > size - VALUES_SIZE ||
        num_weights > head_size / ENTRY_SIZE) {
        return error_set(F8_EINVAL, "%s is cut or damaged", what);
    }
    struct cursor head = {.at = (uint8_t *)bytes, .end = (uint8_t *)bytes + head_size};
    struct cursor values = {.at = (uint8_t *)bytes + head_size, .end = (uint8_t *)bytes + size};
    if (!take_form(&head, &values, (size_t)num_weights, &doc)) {
        state_doc_done(&doc);
        return error_set(F8_EINVAL, "%s is malformed, or there is no memory for it", what);
    }
    *ret_doc = doc;
    return F8_OK;
}

static void put_weight(struct cursor *values, const struct state_weight *weight)
{
    const uint64_t counters[] = {weight->gathers, weight->saturated, weight->nan, weight->stale,
        weight->kept, weight->syncs};

    put(values, weight->scale, 4);
    put(values, weight->amax, 4);
    put(values,
        (weight->initialised ? INITIALISED : 0) | (weight->amax_seen ? AMAX_SEEN : 0) |
            (weight->scale_seen ? SCALE_SEEN : 0),
        4);
    put(values, 0, 4);
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        put(values, counters[i], 8);
    }
    for (uint32_t i = 0; i < weight->history_length; i++) {
        put(values, weight->history[i], 4);
    }
}

static void put_entry(struct cursor *head, const struct state_weight *weight)
{
    put(head, weight->dtype, 1);
    put(head, weight->format, 1);
    put(head, FLAVOUR_DELAYED, 1);
    put(head, weight->power_of_two, 1);
    put(head, weight->history_length, 2);
    put(head, weight->history_algorithm, 1);
    put(head, strlen(weight->name), 1);
    put_text(head, weight->name);
}

/* The header's checksum is taken with zeros in its place, where they are now. */
static void put_head(
    struct cursor head, const struct state_doc *doc, size_t head_size, size_t values_size)
{
    uint8_t *begin = head.at;

    memcpy(head.at, magic, sizeof(magic));
    head.at += sizeof(magic);
    put(&head, STATE_DOC_VERSION, 4);
    put(&head, 0, 4);
    put(&head, head_size, 4);
    put(&head, doc->num_weights, 4);
    put(&head, values_size, 8);
    put(&head, doc->uid, 4);
    put(&head, 1, 4); /* any token may continue it: it has none */
    put(&head, strlen(doc->job), 2);
    put(&head, strlen(doc->group), 2);
    put(&head, 0, 4);
    put_text(&head, doc->job);
    put_text(&head, doc->group);
    for (size_t w = 0; w < doc->num_weights; w++) {
        put_entry(&head, &doc->weights[w]);
    }
    head.at = begin + 12;
    put(&head, (uint64_t)crc32_z(0, begin, head_size), 4);
}

int state_doc_write(const struct state_doc *doc, uint8_t **ret_bytes, size_t *ret_size)
{
    size_t head_size = HEAD_SIZE + strlen(doc->job) + strlen(doc->group) + 2;
    size_t values_size = VALUES_SIZE;
    uint8_t *bytes;

    for (size_t w = 0; w < doc->num_weights; w++) {
        head_size += ENTRY_SIZE + strlen(doc->weights[w].name) + 1;
        values_size += VALUE_SIZE + 4 * (size_t)doc->weights[w].history_length;
    }
    head_size = round_up(head_size);
    values_size = round_up(values_size);
    bytes = calloc(1, head_size + values_size);
    if (bytes == NULL) {
        return error_set(F8_ENOMEM, "no memory for a state of %zu weights", doc->num_weights);
    }
    put_head((struct cursor){.at = bytes}, doc, head_size, values_size);
    struct cursor values = {.at = bytes + head_size + 8};
    put(&values, doc->syncs, 8);
    for (size_t w = 0; w < doc->num_weights; w++) {
        put_weight(&values, &doc->weights[w]);
    }
    values.at = bytes + head_size;
    put(&values, (uint64_t)crc32_z(0, bytes + head_size + 4, values_size - 4), 4);
    *ret_bytes = bytes;
    *ret_size = head_size + values_size;
    return F8_OK;
}
