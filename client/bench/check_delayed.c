/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checker's delayed scaling, written down from what Transformer Engine documents: the window of
 * the last amaxes, moved by one in each sync, gives the scale until the next. An amax that is zero
 * or not finite enters the window, but the scale stays as it is. Shares no line with daemon/. Pure;
 * any thread.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

struct check_delayed *check_delayed_new(enum f8_dtype dtype, enum f8_format format,
    bool power_of_two, enum f8_history algorithm, uint32_t length)
{
    struct check_delayed *delayed = calloc(1, sizeof(*delayed) + length * sizeof(float));

    if (delayed != NULL) {
        delayed->scale = 1;
        delayed->dtype = dtype;
        delayed->format = format;
        delayed->power_of_two = power_of_two;
        delayed->algorithm = algorithm;
        delayed->length = length;
    }
    return delayed;
}

static float scale_of(const struct check_delayed *delayed, float amax)
{
    return check_scale(amax, delayed->dtype, delayed->format, false, delayed->power_of_two);
}

void check_delayed_gather(struct check_delayed *delayed, float amax)
{
    delayed->amax = amax;
    if (!delayed->seeded) {
        delayed->seeded = true;
        delayed->history[0] = amax;
        delayed->scale = scale_of(delayed, amax);
    }
}

/* The largest finite amax of the window. */
static float largest(const struct check_delayed *delayed)
{
    float most = 0;

    for (uint32_t i = 0; i < delayed->length; i++) {
        if (isfinite(delayed->history[i]) && delayed->history[i] > most) {
            most = delayed->history[i];
        }
    }
    return most;
}

void check_delayed_sync(struct check_delayed *delayed)
{
    if (!delayed->seeded) {
        return;
    }
    memmove(&delayed->history[1], &delayed->history[0], (delayed->length - 1) * sizeof(float));
    delayed->history[0] = delayed->amax;
    if (!isfinite(delayed->amax) || delayed->amax == 0) {
        return;
    }
    delayed->scale = scale_of(
        delayed, delayed->algorithm == F8_HISTORY_MOST_RECENT ? delayed->amax : largest(delayed));
}
