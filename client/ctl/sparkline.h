/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An amax history in one cell of a table: one character for an amax, or for the largest of a few,
 * its height on a log scale. Block characters where the locale can show them, ASCII otherwise.
 */
#ifndef F8CTL_SPARKLINE_H
#define F8CTL_SPARKLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most characters of one. */
#define SPARKLINE_WIDTH 32

/*
 * Draws fp32 bits, newest first, so that the newest is on the right: zeros at the old end are not
 * there yet; other zeros are '_', infinities 'I', NaNs 'N'. "-" if there is nothing to draw.
 */
void sparkline_draw(char *text, size_t size, const uint32_t *bits, size_t count);

/* Whether an infinity or a NaN is among them. */
bool sparkline_has_special(const uint32_t *bits, size_t count);

/* Whether the locale can show block characters, and all else of UTF-8. */
bool sparkline_is_utf8(void);

#endif
