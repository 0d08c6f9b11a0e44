/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the rooms of f8bench fail: they fill a text and return -1; who asked decides whether it is
 * printed, put in the JSON report, or handed on. Any thread; the text belongs to the caller.
 */
#ifndef F8BENCH_ERROR_H
#define F8BENCH_ERROR_H

#include <stdarg.h>
#include <stdio.h>

struct bench_error {
    char text[768];
};

/* Writes the text; always -1, so that a caller can return it. */
__attribute__((format(printf, 2, 3))) static inline int bench_fail(
    struct bench_error *error, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    return -1;
}

/* The failure of an allocation, alike everywhere. */
static inline int bench_no_memory(struct bench_error *error)
{
    return bench_fail(error, "out of memory");
}

#endif
