/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scaling state out of the daemon, as f8ctl turns it from its binary form (docs/state.md) into
 * JSON and back; every bit of the one is in the other. state_doc.c has the binary form,
 * state_json.c and state_json_read.c have JSON. Called by transfer.c.
 */
#ifndef F8CTL_STATE_DOC_H
#define F8CTL_STATE_DOC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of both forms. */
#define STATE_DOC_VERSION 1

/* What "format" is in JSON, and the first key that a reader looks at. */
#define STATE_DOC_FORMAT "f8gather-state"

/* Files that are larger are no states that a daemon would take. */
#define STATE_DOC_MAX_SIZE ((size_t)256 << 20)

struct state_weight {
    char *name; /* owned */
    uint32_t dtype, format, history_length, history_algorithm;
    bool power_of_two;
    bool initialised, amax_seen, scale_seen;
    uint32_t scale, amax; /* bits */
    uint64_t gathers, saturated, nan, stale, kept, syncs;
    uint32_t *history; /* owned: bits, newest first */
};

struct state_doc {
    char *job, *group; /* owned */
    uint32_t uid;
    uint64_t syncs;
    struct state_weight *weights; /* owned */
    size_t num_weights;
};

/* Frees what it has; zeros are allowed. */
void state_doc_done(struct state_doc *doc);

/*
 * Reads the binary form as the daemon gives it. `what` begins the text: a file, "the export".
 * F8_EINVAL, F8_EVERSION, F8_ENOMEM.
 */
int state_doc_read(const uint8_t *bytes, size_t size, const char *what, struct state_doc *ret_doc);

/* Makes the binary form; *ret_bytes is the caller's to free. F8_ENOMEM, F8_ELIMIT. */
int state_doc_write(const struct state_doc *doc, uint8_t **ret_bytes, size_t *ret_size);

/* Makes JSON, ended by a newline; *ret_text is the caller's to free. F8_EINVAL: a name is not
 * UTF-8, which JSON needs; F8_ENOMEM. */
int state_json_write(const struct state_doc *doc, char **ret_text, size_t *ret_size);

/*
 * Reads JSON that anybody may have made. Refusals name the file, and the line or the key.
 * F8_EINVAL, F8_EVERSION, F8_ELIMIT, F8_ENOMEM.
 */
int state_json_read(const char *text, size_t size, const char *file, struct state_doc *ret_doc);

#endif
