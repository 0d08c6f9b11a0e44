/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads test vectors: the lines of an index, their columns, the raw files they name; and compares
 * float8 codes. Called by main.c and the case files; one thread. Everything read is untrusted: a
 * damaged directory must give failures, not crashes.
 */
#include "tests/conformance/vectors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void row_pass(const struct row *row)
{
    row->tally->passed++;
}

void row_fail(const struct row *row, const char *format, ...)
{
    va_list args;
    row->tally->failed++;
    if (row->line)
        printf("FAIL %s/%s:%lu: ", row->dir, row->file, row->line);
    else
        printf("FAIL %s/%s: ", row->dir, row->file);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* The contents of dir/name and a NUL behind them, owned by the caller; NULL: counted. */
static uint8_t *read_file(const struct row *row, const char *name, size_t *ret_size)
{
    char path[4096];
    struct stat st;
    uint8_t *bytes = NULL;
    int length = snprintf(path, sizeof(path), "%s/%s", row->dir, name);
    FILE *file = length < (int)sizeof(path) ? fopen(path, "rb") : NULL;
    if (!file) {
        row_fail(row, "cannot open '%s': %s", name, strerror(errno));
        return NULL;
    }
    if (fstat(fileno(file), &st) != 0 || !S_ISREG(st.st_mode)) {
        row_fail(row, "'%s' is not a regular file", name);
    } else if (!(bytes = malloc((size_t)st.st_size + 1))) {
        row_fail(row, "no memory for the %lld bytes of '%s'", (long long)st.st_size, name);
    } else if (fread(bytes, 1, (size_t)st.st_size, file) != (size_t)st.st_size) {
        row_fail(row, "cannot read '%s': %s", name, strerror(errno));
        free(bytes);
        bytes = NULL;
    } else {
        bytes[st.st_size] = 0;
        *ret_size = (size_t)st.st_size;
    }
    fclose(file);
    return bytes;
}

/* Cuts a line at its tabs; false: counted. */
static bool split_columns(struct row *row, char *line, size_t columns)
{
    size_t count = 0;
    for (char *rest = line; rest;) {
        char *column = strsep(&rest, "\t");
        if (count < MAX_COLUMNS)
            row->column[count] = column;
        count++;
    }
    if (count != columns)
        row_fail(row, "the row has %zu columns, %zu are needed", count, columns);
    return count == columns;
}

/* The cases of one line. */
static void run_row(struct row *row, char *line, size_t columns, row_fn *const *runs)
{
    if (!split_columns(row, line, columns))
        return;
    for (size_t i = 0; runs[i] && runs[i](row);)
        i++;
}

void each_row(const struct row *index, size_t columns, row_fn *const *runs)
{
    struct row row = *index;
    size_t size = 0, rows = 0;
    char *text = (char *)read_file(&row, row.file, &size);
    if (!text)
        return;
    char *rest = text;
    if (strlen(text) != size) {
        row_fail(&row, "the index contains a NUL byte");
        free(text);
        return;
    }
    while (rest && *rest) {
        char *line = strsep(&rest, "\n");
        row.line++;
        if (*line == '#' || *line == '\0')
            continue;
        rows++;
        run_row(&row, line, columns, runs);
    }
    if (rows == 0) {
        row.line = 0;
        row_fail(&row, "the index has no rows");
    }
    free(text);
}

bool row_dtype(const struct row *row, size_t column, enum f8k_dtype *ret)
{
    static const struct {
        const char *name;
        enum f8k_dtype dtype;
    } dtypes[] = {{"f32", F8K_F32}, {"bf16", F8K_BF16}, {"f16", F8K_F16}};
    for (size_t i = 0; i < 3; i++)
        if (strcmp(row->column[column], dtypes[i].name) == 0) {
            *ret = dtypes[i].dtype;
            return true;
        }
    row_fail(row, "'%s' is no source type: f32, bf16 or f16", row->column[column]);
    return false;
}

static bool parse_format(const char *name, enum f8k_format *ret)
{
    bool e4m3fn = strcmp(name, "e4m3fn") == 0;
    if (!e4m3fn && strcmp(name, "e5m2") != 0)
        return false;
    *ret = e4m3fn ? F8K_E4M3FN : F8K_E5M2;
    return true;
}

bool row_format(const struct row *row, size_t column, enum f8k_format *ret)
{
    if (parse_format(row->column[column], ret))
        return true;
    row_fail(row, "'%s' is no float8 format: e4m3fn or e5m2", row->column[column]);
    return false;
}

bool row_bits(const struct row *row, size_t column, uint32_t *ret)
{
    const char *text = row->column[column];
    if (strlen(text) != 8 || strspn(text, "0123456789abcdefABCDEF") != 8) {
        row_fail(row, "'%s' is not 8 hexadecimal digits", text);
        return false;
    }
    *ret = (uint32_t)strtoul(text, NULL, 16);
    return true;
}

bool row_size(const struct row *row, size_t column, size_t limit, size_t *ret)
{
    const char *text = row->column[column];
    size_t digits = strspn(text, "0123456789");
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (digits == 0 || text[digits] != '\0' || errno != 0 || value > limit) {
        row_fail(row, "'%s' is not a number from 0 to %zu", text, limit);
        return false;
    }
    *ret = (size_t)value;
    return true;
}

uint8_t *row_file(const struct row *row, size_t column, size_t *ret_size)
{
    const char *name = row->column[column];
    if (*name == '\0' || strchr(name, '/')) {
        row_fail(row, "'%s' is not the name of a file in this directory", name);
        return NULL;
    }
    return read_file(row, name, ret_size);
}

uint8_t *row_file_of(const struct row *row, size_t column, size_t size)
{
    size_t found = 0;
    uint8_t *bytes = row_file(row, column, &found);
    if (bytes && found != size) {
        row_fail(row, "'%s' has %zu bytes, the row needs %zu", row->column[column], found, size);
        free(bytes);
        return NULL;
    }
    return bytes;
}

bool bits_equal(uint32_t a, uint32_t b)
{
    bool both_nan = (a & 0x7fffffff) > 0x7f800000 && (b & 0x7fffffff) > 0x7f800000;
    return a == b || both_nan;
}

static bool code_is_nan(enum f8k_format format, uint8_t code)
{
    return (code & 0x7f) > (format == F8K_E4M3FN ? 0x7e : 0x7c);
}

size_t first_difference(
    enum f8k_format format, const uint8_t *got, const uint8_t *want, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool both_nan = code_is_nan(format, got[i]) && code_is_nan(format, want[i]);
        if (got[i] != want[i] && !both_nan)
            return i;
    }
    return count;
}

/* The columns but for the files; false: counted. */
static bool parse_fsdp(const struct row *row, struct fsdp_case *fsdp)
{
    const size_t limit = (size_t)1 << 30; /* so that no product below overflows */
    if (!row_size(row, 0, 65536, &fsdp->world) || !row_size(row, 2, limit, &fsdp->rows) ||
        !row_size(row, 3, limit, &fsdp->cols) || !row_dtype(row, 4, &fsdp->dtype) ||
        !row_bits(row, 5, &fsdp->scale_bits))
        return false;
    if (fsdp->world == 0) {
        row_fail(row, "a world of 0 ranks");
        return false;
    }
    bool precompute = strcmp(row->column[1], "precompute") == 0;
    if (!precompute && strcmp(row->column[1], "dynamic") != 0) {
        row_fail(row, "'%s' is no path: precompute or dynamic", row->column[1]);
        return false;
    }
    fsdp->path = precompute ? F8K_SCALE_PRECOMPUTE : F8K_SCALE_DIRECT;
    fsdp->chunk_rows = (fsdp->rows + fsdp->world - 1) / fsdp->world;
    const char *suffix = strrchr(row->column[7], '.');
    if (!suffix || !parse_format(suffix + 1, &fsdp->format)) {
        row_fail(row, "'%s' does not end in .e4m3fn or .e5m2", row->column[7]);
        return false;
    }
    return true;
}

bool fsdp_case_read(const struct row *row, struct fsdp_case *ret)
{
    struct fsdp_case fsdp = {0};
    if (!parse_fsdp(row, &fsdp))
        return false;
    size_t elements = fsdp.rows * fsdp.cols;
    size_t padded = fsdp.chunk_rows * fsdp.world * fsdp.cols;
    fsdp.full = row_file_of(row, 6, elements * f8k_dtype_size(fsdp.dtype));
    if (!fsdp.full)
        return false;
    fsdp.gathered = row_file(row, 7, &fsdp.gathered_size);
    if (fsdp.gathered && fsdp.gathered_size != elements && fsdp.gathered_size != padded) {
        row_fail(row, "'%s' has %zu bytes, the row needs %zu (or %zu with the padding)",
            row->column[7], fsdp.gathered_size, elements, padded);
        free(fsdp.gathered);
        fsdp.gathered = NULL;
    }
    if (!fsdp.gathered) {
        fsdp_case_done(&fsdp);
        return false;
    }
    *ret = fsdp;
    return true;
}

void fsdp_case_done(struct fsdp_case *fsdp)
{
    free(fsdp->full);
    free(fsdp->gathered);
    *fsdp = (struct fsdp_case){0};
}

size_t fsdp_shard(const struct fsdp_case *fsdp, size_t rank, size_t *ret_first)
{
    size_t first = rank * fsdp->chunk_rows, end = first + fsdp->chunk_rows;
    first = first < fsdp->rows ? first : fsdp->rows;
    end = end < fsdp->rows ? end : fsdp->rows;
    *ret_first = first;
    return end - first;
}

void fsdp_check(const struct row *row, const struct fsdp_case *fsdp, const char *who,
    uint32_t scale_bits, const uint8_t *gathered)
{
    size_t elements = fsdp->rows * fsdp->cols;
    size_t padded = fsdp->chunk_rows * fsdp->world * fsdp->cols;
    size_t at = first_difference(fsdp->format, gathered, fsdp->gathered, fsdp->gathered_size);
    size_t pad = elements;
    while (pad < padded && gathered[pad] == 0)
        pad++;
    if (!bits_equal(scale_bits, fsdp->scale_bits))
        row_fail(row, "%s: scale %08x, want %08x", who, scale_bits, fsdp->scale_bits);
    else if (at < fsdp->gathered_size)
        row_fail(row, "%s: byte %zu of '%s' is %02x, want %02x", who, at, row->column[7],
            gathered[at], fsdp->gathered[at]);
    else if (pad < padded)
        row_fail(row, "%s: padding byte %zu is %02x, want 00", who, pad, gathered[pad]);
    else
        row_pass(row);
}
