/* SPDX-License-Identifier: Apache-2.0 */
/* Escaping: see html.h. */
#include "client/ctl/html.h"

#include <stdint.h>
#include <string.h>

/*
 * The length of the UTF-8 character at `text` and the character; 0 if there is none: cut short,
 * longer than need be, a surrogate, or beyond Unicode.
 */
static size_t character(const unsigned char *text, uint32_t *ret_point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = text[0] < 0x80 ? 1 : text[0] >> 5 == 6 ? 2 : text[0] >> 4 == 14 ? 3 : 4;
    uint32_t point = length == 1 ? text[0] : text[0] & (0x7fu >> length);

    if (length == 4 && text[0] >> 3 != 30) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if (text[i] >> 6 != 2) { /* also the end */
            return 0;
        }
        point = point << 6 | (text[i] & 0x3fu);
    }
    if (point < least[length] || (point >= 0xd800 && point < 0xe000) || point > 0x10ffff) {
        return 0;
    }
    *ret_point = point;
    return length;
}

/* Controls, and those that turn the direction of what follows, are no part of a name to look at. */
static int is_shown(uint32_t point)
{
    return point >= 0x20 && !(point >= 0x7f && point < 0xa0) &&
           !(point >= 0x200e && point <= 0x200f) && !(point >= 0x202a && point <= 0x202e) &&
           !(point >= 0x2066 && point <= 0x2069) && point != 0xfffe && point != 0xffff;
}

static const char *escape_of(uint32_t point)
{
    switch (point) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void html_text(FILE *to, const char *text)
{
    while (*text != '\0') {
        uint32_t point = 0;
        size_t length = character((const unsigned char *)text, &point);
        const char *escape = length > 0 ? escape_of(point) : NULL;

        if (escape != NULL) {
            fputs(escape, to);
        } else if (length == 0 || !is_shown(point)) {
            fputs("\xef\xbf\xbd", to);
        } else {
            fwrite(text, 1, length, to);
        }
        text += length > 0 ? length : 1;
    }
}
