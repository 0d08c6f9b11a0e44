/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of metrics over HTTP, for config.c: who may be served is a matter of two of them,
 * so that they are checked when all are read. Before the loop.
 */
#ifndef F8_DAEMON_CONFIG_METRICS_H
#define F8_DAEMON_CONFIG_METRICS_H

#include "daemon/config.h"

/* Each takes a setting's text, `from` a flag or variable. F8_EINVAL. */
int config_set_metrics(
    struct config *config, const char *from, const char *text, struct reason *reason);
int config_set_reach(
    struct config *config, const char *from, const char *text, struct reason *reason);

/* Whether the address may be served, if there is one; `origin`: where it came from. F8_EINVAL. */
int config_check_metrics(const struct config *config, const char *origin, struct reason *reason);

#endif
