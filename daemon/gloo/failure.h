/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a command of the helper was not done, as the daemon is to be told. Thrown by all files of
 * this room, caught in main.cc, as are the exceptions of Gloo itself.
 */
#ifndef F8_DAEMON_GLOO_FAILURE_H
#define F8_DAEMON_GLOO_FAILURE_H

#include <stdexcept>
#include <string>

#include "proto/status.h"

struct Failure : std::runtime_error {
    Failure(f8_status code, const std::string &text) : std::runtime_error(text), status(code)
    {
    }

    f8_status status;
};

/* What Gloo says, without the place in its sources that it begins with: "[file:line] ". */
inline std::string sentence(const std::exception &error)
{
    std::string text = error.what();
    size_t end = text.find("] ");
    if (text.compare(0, 1, "[") == 0 && end != std::string::npos)
        text.erase(0, end + 2);
    return text;
}

#endif
