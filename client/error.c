/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error texts of the client, one a thread, and the names of the status codes as the public header
 * gives them out. Called by all rooms of the client on any thread.
 */
#include "client/error.h"

#include <stdarg.h>
#include <stdio.h>

#include "client/f8client.h"
#include "proto/protocol.h"

/* The daemon's longest texts name two ranks, two weights and their group. */
#define ERROR_TEXT_SIZE 2048

static _Thread_local char last_error[ERROR_TEXT_SIZE];

int error_set(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof(last_error), format, arguments);
    va_end(arguments);
    return status;
}

const char *error_text(void)
{
    return last_error;
}

const char *f8_error_text(void)
{
    return error_text();
}

const char *f8_status_text(int status)
{
    return f8_proto_status_text(status);
}

const char *f8_status_name(int status)
{
    return f8_proto_status_name(status);
}

const char *f8_version(void)
{
    return F8_VERSION;
}
