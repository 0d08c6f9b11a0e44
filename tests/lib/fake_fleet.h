/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Script of a fake daemon that has all there is to show: two jobs, groups sound and broken, hosts,
 * devices, rounds that wait, counts, and as many weights as are wanted, the first of them with
 * names and values that nobody should have. For tests of what f8ctl draws and reports.
 */
#ifndef F8_TESTS_FAKE_FLEET_H
#define F8_TESTS_FAKE_FLEET_H

#include <stdint.h>

#include "tests/lib/fake_daemon.h"

/* Weights with hostile names, which come first; all of these are delayed. */
#define FLEET_HOSTILE 6
extern const char *const fleet_hostile[FLEET_HOSTILE];

/* How many weights the next connection is shown, the hostile ones among them. */
void fleet_set_weights(uint64_t count);

/* How often the last connection asked for the STATS view, whose counts grow each time. */
uint32_t fleet_stats_asked(void);

void fleet_serve(struct fake_daemon *daemon, int fd);

#endif
