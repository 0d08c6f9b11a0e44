/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `f8bench exchange`: what plain TCP does between hosts made of network namespaces, whose cables
 * may be shaped. Called by main.
 */
#ifndef F8BENCH_EXCHANGE_COMMAND_H
#define F8BENCH_EXCHANGE_COMMAND_H

/* Reads the arguments after `exchange`, measures and reports; the exit status of f8bench. */
int exchange_command(int argc, char **argv);

#endif
