/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Silence on the helper's connections. Their daemons hear of each other by way of a root, so where
 * only the path between two hosts is dead nobody but the two helpers can find it. Gloo owns the
 * sockets and sets no option for it; called by the mesh once all are connected.
 */
#ifndef F8_DAEMON_GLOO_SILENCE_H
#define F8_DAEMON_GLOO_SILENCE_H

#include <chrono>

/* The kernel breaks each TCP connection of this process whose other end it has not heard of for
 * this long, or up to a second more; of 0: none. Where it knows no such option nothing changes. */
void break_silent_connections(std::chrono::milliseconds limit);

#endif
