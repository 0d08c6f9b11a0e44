/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress bar on standard error; nothing where that is no terminal. Called by the parent.
 */
#ifndef F8BENCH_PROGRESS_H
#define F8BENCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Draws the bar at done of total steps; over itself. */
static inline void progress_draw(uint32_t done, uint32_t total)
{
    char bar[41] = "----------------------------------------";

    if (!isatty(STDERR_FILENO)) {
        return;
    }
    memset(bar, '#', (size_t)(40 * (uint64_t)done / total));
    fprintf(stderr, "\r[%s] step %u of %u", bar, done, total);
    fflush(stderr);
}

/* Takes the bar away. */
static inline void progress_clear(void)
{
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%72s\r", "");
        fflush(stderr);
    }
}

#endif
