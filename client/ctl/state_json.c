/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scaling state as JSON for people and programs: every float as a number, beside its bits, which
 * are what counts. See state_doc.h; docs/state.md lists the keys.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/print_json.h"
#include "client/ctl/state_doc.h"
#include "client/error.h"
#include "proto/protocol.h"

/* JSON's integers have 63 bits here; what is larger is written in hexadecimal. */
static json_t *json_of_count(uint64_t count)
{
    char text[24];

    if (count <= INT64_MAX) {
        return json_integer((json_int_t)count);
    }
    snprintf(text, sizeof(text), "0x%016" PRIx64, count);
    return json_string(text);
}

static json_t *json_of_history(const struct state_weight *weight, bool bits)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < weight->history_length; i++) {
        json_array_append_new(list,
            bits ? json_of_bits(weight->history[i], true) : json_of_real(weight->history[i], true));
    }
    return list;
}

static json_t *json_of_state_weight(const struct state_weight *w)
{
    return json_pack("{s:s, s:s, s:s, s:b, s:i, s:s, s:b, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, "
                     "s:o, s:o, s:o, s:o, s:o, s:o}",
        "name", w->name, "dtype", f8_proto_dtype_name(w->dtype), "format",
        f8_proto_format_name(w->format), "power_of_two", w->power_of_two, "history_length",
        (int)w->history_length, "history_algorithm", f8_proto_history_name(w->history_algorithm),
        "initialised", w->initialised, "scale_seen", w->scale_seen, "amax_seen", w->amax_seen,
        "scale", json_of_real(w->scale, true), "scale_bits", json_of_bits(w->scale, true), "amax",
        json_of_real(w->amax, true), "amax_bits", json_of_bits(w->amax, true), "history",
        json_of_history(w, false), "history_bits", json_of_history(w, true), "syncs",
        json_of_count(w->syncs), "kept", json_of_count(w->kept), "gathers",
        json_of_count(w->gathers), "saturated", json_of_count(w->saturated), "nan",
        json_of_count(w->nan), "stale", json_of_count(w->stale));
}

/* All but the weights, of which each gets a line of its own. */
static json_t *json_of_head(const struct state_doc *doc)
{
    return json_pack("{s:s, s:i, s:s, s:I, s:s, s:o}", "format", STATE_DOC_FORMAT, "version",
        STATE_DOC_VERSION, "job", doc->job, "uid", (json_int_t)doc->uid, "group", doc->group,
        "syncs", json_of_count(doc->syncs));
}

/* Writes an object and takes it; false: there is none, for its names are no UTF-8. */
static bool dump(FILE *file, json_t *object, size_t flags)
{
    bool written = object != NULL && json_dumpf(object, file, flags | JSON_REAL_PRECISION(9)) == 0;

    json_decref(object);
    return written;
}

static bool write_doc(FILE *file, const struct state_doc *doc)
{
    bool written;

    fputs("{", file);
    written = dump(file, json_of_head(doc), JSON_EMBED);
    fputs(", \"weights\": [", file);
    for (size_t w = 0; w < doc->num_weights && written; w++) {
        fputs(w > 0 ? ",\n  " : "\n  ", file);
        written = dump(file, json_of_state_weight(&doc->weights[w]), 0);
    }
    fputs("\n]}\n", file);
    return written;
}

int state_json_write(const struct state_doc *doc, char **ret_text, size_t *ret_size)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    bool written = file != NULL && write_doc(file, doc);

    if (file != NULL && fclose(file) != 0) {
        written = false;
    }
    if (!written) {
        free(text);
        return error_set(F8_EINVAL,
            "the state cannot be written as JSON: a name in it is not UTF-8, or there is no "
            "memory; take the binary form");
    }
    *ret_text = text;
    *ret_size = size;
    return F8_OK;
}
