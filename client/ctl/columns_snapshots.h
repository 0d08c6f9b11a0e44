/* SPDX-License-Identifier: Apache-2.0 */
/* The cells about scaling states, of an F8__StatusInfo, for the list of columns.c. */
#ifndef F8CTL_COLUMNS_SNAPSHOTS_H
#define F8CTL_COLUMNS_SNAPSHOTS_H

#include <stdbool.h>

/* Writes a whole cell of TABLE_MAX_CELL bytes; "-": none are kept. */
void status_snapshots(const void *row, char *cell);

/* Whether the last try failed, or a file is not used. */
bool status_snapshots_alarm(const void *row);

/* The same of the files beside the socket, and for how long they are kept. */
void status_states(const void *row, char *cell);
bool status_states_alarm(const void *row);

#endif
