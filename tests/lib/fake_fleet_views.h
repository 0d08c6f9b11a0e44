/* SPDX-License-Identifier: Apache-2.0 */
/* The views of the fake fleet that are no weights: for fake_fleet.c alone. */
#ifndef F8_TESTS_FAKE_FLEET_VIEWS_H
#define F8_TESTS_FAKE_FLEET_VIEWS_H

#include <stdint.h>

#include "f8gather.pb-c.h"

/* Fills the reply from static memory: status, jobs, groups, rounds, hosts. */
void fleet_view(F8__InspectReply *reply, const F8__Inspect *ask, uint64_t num_weights);

/* Counts `times` as large as at the first time. */
void fleet_stats(F8__InspectReply *reply, const F8__Inspect *ask, uint32_t times);

#endif
