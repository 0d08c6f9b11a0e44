/* SPDX-License-Identifier: Apache-2.0 */
/* The cell about snapshots, of an F8__StatusInfo, for the list of columns.c; in snapshot.c. */
#ifndef F8CTL_COLUMNS_SNAPSHOTS_H
#define F8CTL_COLUMNS_SNAPSHOTS_H

#include <stdbool.h>

/* Writes a whole cell of TABLE_MAX_CELL bytes; "-": none are kept. */
void status_snapshots(const void *row, char *cell);

/* Whether the last try failed, or something was damaged. */
bool status_snapshots_alarm(const void *row);

#endif
