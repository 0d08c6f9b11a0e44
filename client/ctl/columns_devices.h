/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cells about devices, for the lists of columns.c and for JSON. Each writes a whole cell of
 * TABLE_MAX_CELL bytes.
 */
#ifndef F8CTL_COLUMNS_DEVICES_H
#define F8CTL_COLUMNS_DEVICES_H

#include "f8gather.pb-c.h"

/* Of an F8__StatusInfo: versions, or why there is no CUDA. */
void status_cuda(const void *row, char *cell);

/* Of an F8__GroupInfo; "-" on the host. */
void group_devices(const void *row, char *cell);
void group_exchange(const void *row, char *cell);
void group_warm(const void *row, char *cell);

/* "GPU-00112233-4455-6677-8899-aabbccddeeff", as NVIDIA's tools print it; "-" if it is none. */
void device_uuid_text(char *cell, const F8__DeviceInfo *device);

#endif
