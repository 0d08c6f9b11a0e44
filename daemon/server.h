/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon as a whole: the loop, the listening socket, signals, and the order in which all is
 * set up and taken down. Called by main.
 */
#ifndef F8_DAEMON_SERVER_H
#define F8_DAEMON_SERVER_H

#include "daemon/config.h"
#include "daemon/reason.h"

/*
 * Serves until SIGTERM or SIGINT; a second one ends the process at once. At SIGHUP it reads the
 * settings again, from the same arguments. F8_OK after an orderly end, else the reason why it could
 * not begin, or could not save the last snapshots.
 */
int server_run(const struct config *config, int argc, char **argv, struct reason *reason);

#endif
