/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON for programs: the daemon's rows as objects, whose keys never change their meaning within a
 * schema version. Called by the commands in views.c.
 */
#ifndef F8CTL_PRINT_JSON_H
#define F8CTL_PRINT_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "client/ctl/ctl.h"

/* A new object of a row; the argument is the F8__...Info of the protocol. */
json_t *json_of_status(const void *row);
json_t *json_of_job(const void *row);
json_t *json_of_group(const void *row);
json_t *json_of_weight(const void *row);
json_t *json_of_amax(const void *row); /* a weight with its amax history */
json_t *json_of_bucket(const void *row);
json_t *json_of_round(const void *row);
json_t *json_of_host(const void *row);

/* A float by its bits, null if it is not known or no number; and the bits. */
json_t *json_of_real(uint32_t bits, bool known);
json_t *json_of_bits(uint32_t bits, bool known);

/* Prints {"schema":..., "socket":..., KEY: value} and takes the value. An exit status. */
int json_print(struct ctl *ctl, const char *key, json_t *value);

/* The same with a list of rows. */
int json_print_rows(struct ctl *ctl, const char *key, json_t *(*object_of)(const void *row),
    const void *const *rows, size_t num_rows);

#endif
