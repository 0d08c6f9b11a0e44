/* SPDX-License-Identifier: Apache-2.0 */
/* Sparklines: see sparkline.h. The locale is asked once; single-threaded. */
#include "client/ctl/sparkline.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define INFINITE 0x7f800000u
#define LEVELS   8

static const char *const blocks[LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const ascii[LEVELS] = {".", ":", "-", "=", "+", "*", "#", "@"};

bool sparkline_is_utf8(void)
{
    static enum { UNKNOWN, NO, YES } known;

    if (known == UNKNOWN) {
        setlocale(LC_CTYPE, "");
        known = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? YES : NO;
    }
    return known == YES;
}

static const char *const *levels(void)
{
    return sparkline_is_utf8() ? blocks : ascii;
}

/* The log of a positive finite amax. */
static double height(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return log2((double)value);
}

static bool is_drawn(uint32_t bits)
{
    return bits > 0 && bits < INFINITE;
}

/* The lowest and the highest that is finite; false if there is none. */
static bool range_of(const uint32_t *bits, size_t count, double *ret_low, double *ret_high)
{
    uint32_t low = INFINITE, high = 0;

    for (size_t i = 0; i < count; i++) {
        if (is_drawn(bits[i])) {
            low = bits[i] < low ? bits[i] : low;
            high = bits[i] > high ? bits[i] : high;
        }
    }
    if (high == 0) {
        return false;
    }
    *ret_low = height(low);
    *ret_high = height(high);
    return true;
}

static const char *mark(uint32_t bits, double low, double high)
{
    if (bits > INFINITE) {
        return "N";
    }
    if (bits == INFINITE) {
        return "I";
    }
    if (bits == 0) {
        return "_";
    }
    if (high <= low) {
        return levels()[LEVELS / 2 - 1];
    }
    return levels()[lround((height(bits) - low) / (high - low) * (LEVELS - 1))];
}

/* The bits of amaxes are in the order of the amaxes, NaN above infinity: the largest says most. */
static uint32_t largest(const uint32_t *bits, size_t begin, size_t end)
{
    uint32_t most = 0;

    for (size_t i = begin; i < end; i++) {
        most = bits[i] > most ? bits[i] : most;
    }
    return most;
}

void sparkline_draw(char *text, size_t size, const uint32_t *bits, size_t count)
{
    double low = 0, high = 0;
    size_t width, used = 0;

    while (count > 0 && bits[count - 1] == 0) {
        count--;
    }
    if (count == 0) {
        snprintf(text, size, "-");
        return;
    }
    range_of(bits, count, &low, &high);
    width = count < SPARKLINE_WIDTH ? count : SPARKLINE_WIDTH;
    for (size_t i = width; i-- > 0 && used < size;) {
        uint32_t amax = largest(bits, i * count / width, (i + 1) * count / width);
        used += (size_t)snprintf(text + used, size - used, "%s", mark(amax, low, high));
    }
}

bool sparkline_has_special(const uint32_t *bits, size_t count)
{
    return largest(bits, 0, count) >= INFINITE;
}
