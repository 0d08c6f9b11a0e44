/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cells about hosts, for the lists of columns.c. Each writes a whole cell of TABLE_MAX_CELL bytes;
 * "-" for a group that is on one host.
 */
#ifndef F8CTL_COLUMNS_HOSTS_H
#define F8CTL_COLUMNS_HOSTS_H

/* Of an F8__StatusInfo: where other hosts reach this one, or why they cannot. */
void status_hosts(const void *row, char *cell);
void status_kept(const void *row, char *cell);
void group_pids(const void *row, char *cell);

/* Of an F8__GroupInfo. */
void group_hosts(const void *row, char *cell);
void group_engine(const void *row, char *cell);
void group_waits(const void *row, char *cell);

#endif
