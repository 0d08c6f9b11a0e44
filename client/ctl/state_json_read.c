/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaling states from JSON that anybody may have made: all that is wrong is refused with the file
 * and the key, and nothing is guessed. See state_doc.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/state_doc.h"
#include "client/error.h"
#include "proto/protocol.h"
#include "proto/status.h"

/* An object that is read, and where it is: "state.json: weights[3]". */
struct place {
    const json_t *object; /* borrowed */
    const char *file;     /* borrowed */
    char path[32];        /* "weights[3].", "" at the top */
};

static int refuse(const struct place *place, const char *key, const char *what)
{
    return error_set(F8_EINVAL, "%s: %s%s: %s", place->file, place->path, key, what);
}

/* The value, which must be there. */
static const json_t *value_of(const struct place *place, const char *key, int *status)
{
    const json_t *value = json_object_get(place->object, key);

    if (value == NULL && *status == F8_OK) {
        *status = refuse(place, key, "it is missing");
    }
    return value;
}

static void read_text(const struct place *place, const char *key, char **ret_text, int *status)
{
    const json_t *value = value_of(place, key, status);
    size_t size = value != NULL ? json_string_length(value) : 0;

    if (*status != F8_OK) {
        return;
    }
    if (!json_is_string(value) || size < 1 || size > F8_PROTO_MAX_NAME ||
        strlen(json_string_value(value)) != size) {
        *status = refuse(place, key, "it must be a string of 1 to 255 bytes, none of them NUL");
        return;
    }
    *ret_text = strdup(json_string_value(value));
    if (*ret_text == NULL) {
        *status = error_set(F8_ENOMEM, "%s: no memory for its names", place->file);
    }
}

static void read_bool(const struct place *place, const char *key, bool *ret_bool, int *status)
{
    const json_t *value = value_of(place, key, status);

    if (*status == F8_OK && !json_is_boolean(value)) {
        *status = refuse(place, key, "it must be true or false");
    }
    *ret_bool = *status == F8_OK && json_is_true(value);
}

/* "0x" and exactly so many digits; false: it is no such string. */
static bool parse_hex(const json_t *value, int digits, uint64_t *ret_number)
{
    const char *text = json_string_value(value);

    if (text == NULL || json_string_length(value) != (size_t)digits + 2 || text[0] != '0' ||
        text[1] != 'x' || strspn(text + 2, "0123456789abcdefABCDEF") != (size_t)digits) {
        return false;
    }
    *ret_number = strtoull(text + 2, NULL, 16);
    return true;
}

static void read_count(
    const struct place *place, const char *key, uint64_t most, uint64_t *ret_count, int *status)
{
    const json_t *value = value_of(place, key, status);
    char text[96];
    uint64_t count = 0;
    bool sound;

    if (*status != F8_OK) {
        return;
    }
    if (json_is_integer(value)) {
        sound = json_integer_value(value) >= 0;
        count = sound ? (uint64_t)json_integer_value(value) : 0;
    } else {
        sound = parse_hex(value, 16, &count);
    }
    if (!sound || count > most) {
        snprintf(text, sizeof(text), "it must be a whole number from 0 to %" PRIu64, most);
        *status = refuse(place, key, text);
        return;
    }
    *ret_count = count;
}

/* One of the words that a function has for 0, 1, 2...: dtypes, formats, algorithms. */
static void read_word(const struct place *place, const char *key, const char *(*word)(uint32_t),
    uint32_t *ret_number, int *status)
{
    const json_t *value = value_of(place, key, status);
    char text[128] = "it must be one of";

    for (uint32_t i = 0; i < 8 && *status == F8_OK; i++) {
        if (word(i) == NULL) {
            continue;
        }
        if (json_is_string(value) && strcmp(json_string_value(value), word(i)) == 0) {
            *ret_number = i;
            return;
        }
        snprintf(text + strlen(text), sizeof(text) - strlen(text), " %s", word(i));
    }
    if (*status == F8_OK) {
        *status = refuse(place, key, text);
    }
}

/* A float by its bits; the number beside them must be the same, or null if it is none. */
static int check_float(const struct place *place, const char *key, const json_t *number,
    const json_t *bits, uint32_t *ret_bits)
{
    uint64_t found = 0;
    float value;
    uint32_t narrow;

    if (!parse_hex(bits, 8, &found)) {
        return refuse(place, key, "its bits must be a string of 0x and 8 digits");
    }
    narrow = (uint32_t)found;
    memcpy(&value, &narrow, sizeof(value));
    if (number == NULL ||
        (isfinite(value) ? !json_is_number(number) || (float)json_number_value(number) != value
                         : !json_is_null(number))) {
        return refuse(place, key,
            "it is not the number that its bits are: change both, or neither (null if they are no "
            "finite number)");
    }
    *ret_bits = narrow;
    return F8_OK;
}

static void read_float(const struct place *place, const char *key, const char *bits_key,
    uint32_t *ret_bits, int *status)
{
    const json_t *number = value_of(place, key, status);
    const json_t *bits = value_of(place, bits_key, status);

    if (*status == F8_OK) {
        *status = check_float(place, key, number, bits, ret_bits);
    }
}

static void read_history(const struct place *place, struct state_weight *weight, int *status)
{
    const json_t *numbers = value_of(place, "history", status);
    const json_t *bits = value_of(place, "history_bits", status);
    char key[32];

    if (*status != F8_OK) {
        return;
    }
    if (!json_is_array(numbers) || !json_is_array(bits) ||
        json_array_size(numbers) != weight->history_length ||
        json_array_size(bits) != weight->history_length) {
        *status = refuse(place, "history",
            "it and history_bits must be lists with as many numbers as history_length says");
        return;
    }
    weight->history = calloc(weight->history_length, sizeof(*weight->history));
    if (weight->history == NULL) {
        *status = error_set(F8_ENOMEM, "%s: no memory for its histories", place->file);
    }
    for (uint32_t i = 0; i < weight->history_length && *status == F8_OK; i++) {
        snprintf(key, sizeof(key), "history[%" PRIu32 "]", i);
        *status = check_float(
            place, key, json_array_get(numbers, i), json_array_get(bits, i), &weight->history[i]);
    }
}

/* What is not read is not passed over: it may be a misspelt key, or mean something later. */
static int check_keys(const struct place *place, const char *const *known)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)place->object, key, value)
    {
        size_t k = 0;

        (void)value;
        while (known[k] != NULL && strcmp(known[k], key) != 0) {
            k++;
        }
        if (known[k] == NULL) {
            char name[81];
            snprintf(name, sizeof(name), "%s", key);
            f8_proto_make_printable(name); /* it goes to a terminal */
            return error_set(F8_EINVAL, "%s: %s%s: there is no such key in version %d", place->file,
                place->path, name, STATE_DOC_VERSION);
        }
    }
    return F8_OK;
}

static int read_weight(const struct place *place, struct state_weight *w)
{
    static const char *const keys[] = {"name", "dtype", "format", "power_of_two", "history_length",
        "history_algorithm", "initialised", "scale_seen", "amax_seen", "scale", "scale_bits",
        "amax", "amax_bits", "history", "history_bits", "syncs", "kept", "gathers", "saturated",
        "nan", "stale", NULL};
    uint64_t length = 0;
    int status = check_keys(place, keys);

    read_text(place, "name", &w->name, &status);
    read_word(place, "dtype", f8_proto_dtype_name, &w->dtype, &status);
    read_word(place, "format", f8_proto_format_name, &w->format, &status);
    read_bool(place, "power_of_two", &w->power_of_two, &status);
    read_count(place, "history_length", F8_PROTO_MAX_HISTORY_LENGTH, &length, &status);
    if (status == F8_OK && length == 0) {
        status = refuse(place, "history_length", "it must be at least 1");
    }
    w->history_length = (uint32_t)length;
    read_word(place, "history_algorithm", f8_proto_history_name, &w->history_algorithm, &status);
    read_bool(place, "initialised", &w->initialised, &status);
    read_bool(place, "scale_seen", &w->scale_seen, &status);
    read_bool(place, "amax_seen", &w->amax_seen, &status);
    read_float(place, "scale", "scale_bits", &w->scale, &status);
    read_float(place, "amax", "amax_bits", &w->amax, &status);
    read_history(place, w, &status);
    read_count(place, "syncs", UINT64_MAX, &w->syncs, &status);
    read_count(place, "kept", UINT64_MAX, &w->kept, &status);
    read_count(place, "gathers", UINT64_MAX, &w->gathers, &status);
    read_count(place, "saturated", UINT64_MAX, &w->saturated, &status);
    read_count(place, "nan", UINT64_MAX, &w->nan, &status);
    read_count(place, "stale", UINT64_MAX, &w->stale, &status);
    return status;
}

static int read_weights(const struct place *top, struct state_doc *doc)
{
    int status = F8_OK;
    const json_t *list = value_of(top, "weights", &status);
    struct place place = {.file = top->file};

    if (status == F8_OK && !json_is_array(list)) {
        status = refuse(top, "weights", "it must be a list");
    }
    if (status != F8_OK) {
        return status;
    }
    doc->weights = calloc(json_array_size(list) + 1, sizeof(*doc->weights));
    if (doc->weights == NULL) {
        return error_set(F8_ENOMEM, "%s: no memory for its weights", top->file);
    }
    for (size_t w = 0; w < json_array_size(list) && status == F8_OK; w++) {
        place.object = json_array_get(list, w);
        snprintf(place.path, sizeof(place.path), "weights[%zu].", w);
        doc->num_weights++;
        status = json_is_object(place.object) ? read_weight(&place, &doc->weights[w])
                                              : refuse(&place, "", "it must be an object");
    }
    return status;
}

/* What it is, and its version, before all else: a newer one may have other keys. */
static int check_version(const struct place *top)
{
    const json_t *format = json_object_get(top->object, "format");
    const json_t *version = json_object_get(top->object, "version");

    if (!json_is_string(format) || strcmp(json_string_value(format), STATE_DOC_FORMAT) != 0) {
        return refuse(
            top, "format", "it is not \"" STATE_DOC_FORMAT "\": this is no scaling state");
    }
    if (!json_is_integer(version) || json_integer_value(version) < 1) {
        return refuse(top, "version", "it must be a whole number from 1 on");
    }
    if (json_integer_value(version) > STATE_DOC_VERSION) {
        return error_set(F8_EVERSION,
            "%s: version: it is version %lld of " STATE_DOC_FORMAT
            ", this f8ctl (%s) reads version %d: use a newer one",
            top->file, (long long)json_integer_value(version), F8_VERSION, STATE_DOC_VERSION);
    }
    return F8_OK;
}

static int read_top(const struct place *top, struct state_doc *doc)
{
    static const char *const keys[] = {
        "format", "version", "job", "uid", "group", "syncs", "weights", NULL};
    uint64_t uid = 0;
    int status = json_is_object(top->object)
                     ? check_version(top)
                     : error_set(F8_EINVAL, "%s: it is no JSON object", top->file);

    if (status == F8_OK) {
        status = check_keys(top, keys);
    }
    if (status != F8_OK) {
        return status;
    }
    read_text(top, "job", &doc->job, &status);
    read_text(top, "group", &doc->group, &status);
    read_count(top, "uid", UINT32_MAX, &uid, &status);
    read_count(top, "syncs", UINT64_MAX, &doc->syncs, &status);
    doc->uid = (uint32_t)uid;
    return status == F8_OK ? read_weights(top, doc) : status;
}

int state_json_read(const char *text, size_t size, const char *file, struct state_doc *ret_doc)
{
    json_error_t error;
    struct place top = {.file = file};
    struct state_doc doc = {0};
    json_t *object;
    int status;

    if (size > STATE_DOC_MAX_SIZE) {
        return error_set(F8_ELIMIT,
            "%s has %zu bytes; JSON is read up to %zu: take the binary form", file, size,
            STATE_DOC_MAX_SIZE);
    }
    object = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (object == NULL) {
        f8_proto_make_printable(error.text);
        return error_set(
            F8_EINVAL, "%s: line %d, column %d: %s", file, error.line, error.column, error.text);
    }
    top.object = object;
    status = read_top(&top, &doc);
    json_decref(object);
    if (status != F8_OK) {
        state_doc_done(&doc);
        return status;
    }
    *ret_doc = doc;
    return F8_OK;
}
