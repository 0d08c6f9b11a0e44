/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The syntax of OpenMetrics 1.0: families with type, unit and help, samples, labels. See
 * metrics_private.h. On the loop.
 */
#include "daemon/metrics_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX     "f8gather_"
#define FIRST_SIZE ((size_t)16 << 10)

struct family {
    const char *name, *type, *unit, *help;
};

static const struct family families[] = {
#define FAMILY_ROW(id, name, type, unit, help) {PREFIX name, type, unit, help},
    METRICS_LIST(FAMILY_ROW)
#undef FAMILY_ROW
};

/* Room for `more` bytes and an end. */
static bool reserve(struct metrics_text *text, size_t more)
{
    size_t capacity = text->capacity ? text->capacity : FIRST_SIZE;
    while (capacity < text->size + more + 1)
        capacity *= 2;
    if (capacity == text->capacity)
        return true;
    char *bytes = realloc(text->bytes, capacity);
    if (!bytes) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

static void append(struct metrics_text *text, const char *bytes, size_t size)
{
    if (text->failed || !reserve(text, size))
        return;
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    text->bytes[text->size] = '\0';
}

static void append_text(struct metrics_text *text, const char *words)
{
    append(text, words, strlen(words));
}

void metrics_family(struct metrics_text *text, enum metrics_family family)
{
    const struct family *f = &families[family];
    const char *const lines[][2] = {
        {"# TYPE ", f->type}, {"# UNIT ", f->unit}, {"# HELP ", f->help}};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (lines[i][1][0] == '\0')
            continue;
        append_text(text, lines[i][0]);
        append_text(text, f->name);
        append_text(text, " ");
        append_text(text, lines[i][1]);
        append_text(text, "\n");
    }
}

static void put(struct metrics_labels *labels, char c)
{
    if (labels->size + 1 < sizeof(labels->text))
        labels->text[labels->size++] = c;
    labels->text[labels->size] = '\0';
}

static void put_words(struct metrics_labels *labels, const char *words)
{
    for (; *words; words++)
        put(labels, *words);
}

void metrics_label(struct metrics_labels *labels, const char *name, const char *value)
{
    if (labels->size > 0)
        put(labels, ',');
    put_words(labels, name);
    put_words(labels, "=\"");
    for (; *value; value++) {
        if (*value == '\\' || *value == '"' || *value == '\n')
            put(labels, '\\');
        put(labels, *value == '\n' ? 'n' : *value);
    }
    put(labels, '"');
}

static const char *suffix_of(const struct family *family)
{
    if (strcmp(family->type, "counter") == 0)
        return "_total";
    return strcmp(family->type, "info") == 0 ? "_info" : "";
}

static void sample(struct metrics_text *text, enum metrics_family family, const char *suffix,
    const struct metrics_labels *labels, const char *value)
{
    append_text(text, families[family].name);
    append_text(text, suffix);
    if (labels && labels->size > 0) {
        append_text(text, "{");
        append(text, labels->text, labels->size);
        append_text(text, "}");
    }
    append_text(text, " ");
    append_text(text, value);
    append_text(text, "\n");
}

void metrics_count(struct metrics_text *text, enum metrics_family family,
    const struct metrics_labels *labels, uint64_t value)
{
    char digits[24];
    (void)snprintf(digits, sizeof(digits), "%" PRIu64, value);
    sample(text, family, suffix_of(&families[family]), labels, digits);
}

/* As few digits as say the same number again, of those that a float has. */
static const char *number_text(double value, char buffer[32])
{
    if (isnan(value))
        return "NaN";
    if (isinf(value))
        return value > 0 ? "+Inf" : "-Inf";
    (void)snprintf(buffer, 32, "%.9g", value);
    return buffer;
}

void metrics_value(struct metrics_text *text, enum metrics_family family,
    const struct metrics_labels *labels, double value)
{
    char buffer[32];
    sample(text, family, suffix_of(&families[family]), labels, number_text(value, buffer));
}

static void bucket(
    struct metrics_text *text, enum metrics_family family, const char *bound, uint64_t below)
{
    struct metrics_labels labels = {.size = 0};
    char digits[24];
    metrics_label(&labels, "le", bound);
    (void)snprintf(digits, sizeof(digits), "%" PRIu64, below);
    sample(text, family, "_bucket", &labels, digits);
}

void metrics_histogram(
    struct metrics_text *text, enum metrics_family family, const struct histogram *histogram)
{
    char buffer[40];
    uint64_t below = 0;
    metrics_family(text, family);
    for (uint32_t b = 0; b < COUNTERS_BOUNDS; b++) {
        double bound = (double)counters_bounds[b] * 1e-9;
        below += histogram->buckets[b];
        /* "1.0", as the specification writes it, and as its parsers want it. */
        bool whole = counters_bounds[b] % 1000000000 == 0;
        (void)snprintf(buffer, sizeof(buffer), whole ? "%.1f" : "%.9g", bound);
        bucket(text, family, buffer, below);
    }
    below += histogram->buckets[COUNTERS_BOUNDS];
    bucket(text, family, "+Inf", below);
    (void)snprintf(buffer, sizeof(buffer), "%" PRIu64, below);
    sample(text, family, "_count", NULL, buffer);
    (void)snprintf(buffer, sizeof(buffer), "%" PRIu64 ".%09" PRIu64, histogram->sum_ns / 1000000000,
        histogram->sum_ns % 1000000000);
    sample(text, family, "_sum", NULL, buffer);
}

void metrics_end(struct metrics_text *text)
{
    append_text(text, "# EOF\n");
}
