/* SPDX-License-Identifier: Apache-2.0 */
/* What was counted, as JSON: f8ctl stats and the report print it. */
#ifndef F8CTL_STATS_COMMAND_H
#define F8CTL_STATS_COMMAND_H

#include <jansson.h>

#include "client/ctl/stats.h"

/* A new object. */
json_t *json_of_stats(const struct stats_span *span);

#endif
