/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the rows of delayed.tsv into steps, which must follow each other. Called by each_row(); one
 * thread.
 */
#include "tests/conformance/steps.h"

#include <stdlib.h>
#include <string.h>

#define MAX_HISTORY 1024

static bool read_bits(const struct row *row, char *text, uint32_t *ret)
{
    struct row part = *row;
    part.column[0] = text;
    return row_bits(&part, 0, ret);
}

/* "41dd0241,00000000,...", newest first. */
static bool read_history(const struct row *row, size_t column, struct step *step)
{
    step->history = calloc(MAX_HISTORY, sizeof(*step->history));
    if (!step->history) {
        row_fail(row, "no memory for a history");
        return false;
    }
    for (char *rest = row->column[column]; rest; step->history_length++) {
        char *entry = strsep(&rest, ",");
        if (step->history_length == MAX_HISTORY) {
            row_fail(row, "a history of more than %d", MAX_HISTORY);
            return false;
        }
        if (!read_bits(row, entry, &step->history[step->history_length]))
            return false;
    }
    return true;
}

static bool read_format(const struct row *row, size_t column, struct step *step)
{
    struct row part = *row;
    const char *suffix = strrchr(row->column[column], '.');
    part.column[0] = suffix ? (char *)suffix + 1 : row->column[column];
    return row_format(&part, 0, &step->format);
}

/* src_dtype step rows cols input output scale_used amax scale_after history */
static bool read_step(const struct row *row, struct step *step)
{
    const size_t limit = (size_t)1 << 20; /* so that no product below overflows */
    if (!row_dtype(row, 0, &step->dtype) || !row_size(row, 1, limit, &step->number) ||
        !row_size(row, 2, limit, &step->rows) || !row_size(row, 3, limit, &step->cols) ||
        !read_format(row, 5, step) || !row_bits(row, 6, &step->scale_used) ||
        !row_bits(row, 7, &step->amax) || !row_bits(row, 8, &step->scale_after) ||
        !read_history(row, 9, step))
        return false;
    size_t count = step->rows * step->cols;
    step->input = row_file_of(row, 4, count * f8k_dtype_size(step->dtype));
    step->output = step->input ? row_file_of(row, 5, count) : NULL;
    return step->output;
}

/* Whether a step goes on where the last one was, or begins a run. */
static bool follows(const struct row *row, const struct steps *steps, struct step *step)
{
    const struct step *last = steps->count > 0 ? &steps->items[steps->count - 1] : NULL;
    if (step->number == 0) {
        step->run = steps->runs;
        return true;
    }
    if (!last || last->number + 1 != step->number || last->dtype != step->dtype) {
        row_fail(row, "step %zu of %s does not follow a step %zu of it", step->number,
            row->column[0], step->number - 1);
        return false;
    }
    if (last->rows != step->rows || last->cols != step->cols || last->format != step->format ||
        last->history_length != step->history_length) {
        row_fail(row, "step %zu is of another weight than the step before", step->number);
        return false;
    }
    step->run = last->run;
    return true;
}

static void step_done(struct step *step)
{
    free(step->history);
    free(step->input);
    free(step->output);
}

static bool append(const struct row *row, const struct step *step)
{
    struct steps *steps = row->steps;
    struct step *items = realloc(steps->items, (steps->count + 1) * sizeof(*items));
    if (!items) {
        row_fail(row, "no memory for a step");
        return false;
    }
    steps->items = items;
    items[steps->count++] = *step;
    steps->runs = step->run + 1;
    return true;
}

bool step_row(const struct row *row)
{
    struct step step = {
        .row = {.dir = row->dir, .file = row->file, .line = row->line, .tally = row->tally}};
    bool appended = read_step(row, &step) && follows(row, row->steps, &step) && append(row, &step);
    if (!appended)
        step_done(&step);
    return appended;
}

size_t steps_of_run(const struct steps *steps, size_t first)
{
    size_t count = 0;
    while (
        first + count < steps->count && steps->items[first + count].run == steps->items[first].run)
        count++;
    return count;
}

size_t steps_first(const struct steps *steps, size_t run)
{
    size_t first = 0;
    while (steps->items[first].run != run)
        first++;
    return first;
}

void steps_done(struct steps *steps)
{
    for (size_t i = 0; i < steps->count; i++)
        step_done(&steps->items[i]);
    free(steps->items);
    *steps = (struct steps){0};
}
