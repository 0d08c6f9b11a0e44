/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper's end of the socket to its daemon, see daemon/fabric_wire.h: commands come in whole,
 * answers go out whole, both blocking. On the main thread.
 */
#ifndef F8_DAEMON_GLOO_DAEMON_SOCKET_H
#define F8_DAEMON_GLOO_DAEMON_SOCKET_H

#include <string>
#include <vector>

extern "C" {
#include "daemon/fabric_wire.h"
}

struct Command {
    fabric_ask ask;
    std::vector<char> payload;
    int fd; /* owned by whoever takes the command; -1: none came */
};

/* False: the daemon has closed it. */
bool receive_command(Command &ret_command);

/* False: the daemon has closed it. `answer.payload` is set here. */
bool send_answer(fabric_answer answer, const char *payload, size_t size);

#endif
