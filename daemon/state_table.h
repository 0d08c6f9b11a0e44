/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the form share: state_form.c (the header), state_table.c (its entries, one a
 * weight, and their comparison) and state_values.c (the values). On the loop.
 */
#ifndef F8_DAEMON_STATE_TABLE_H
#define F8_DAEMON_STATE_TABLE_H

#include "daemon/state_form.h"

/* Bytes of values before the first weight's. */
#define STATE_VALUES_FIXED 16

/* An entry of the table, checked. */
struct state_entry {
    const char *name; /* borrowed: from the bytes */
    uint16_t history_length;
    uint8_t dtype, format, flavour, history_algorithm;
    bool power_of_two;
};

size_t state_entry_size(const struct weight *weight);

/* Returns its size. */
size_t state_entry_write(uint8_t *at, const struct weight *weight);

/* Takes the entry at *at and moves on; false if there is no sound one before `end`. */
bool state_entry_read(const uint8_t **at, const uint8_t *end, struct state_entry *ret_entry);

/* Bytes of the values of one weight. */
size_t state_value_size(uint32_t history_length);

/* Copies values, under another counter. */
void state_values_copy(uint8_t *values, const uint8_t *from, size_t size, uint32_t counter);

/* That no weight is in the table twice. F8_EINVAL, F8_ENOMEM. */
int state_names_check(const struct state_head *head, const char *what, struct reason *reason);

/* Of checked values: that a daemon can have them; see state_import_check. F8_EINVAL. */
int state_values_usable(
    const struct state_head *head, const uint8_t *values, const char *what, struct reason *reason);

#endif
