/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conformance [--hosts N] DIR: runs every index (*.tsv) of a directory of test vectors and ends
 * with "N passed, N failed" alone on a line; exit 0 only if something passed and nothing failed.
 * With
 * --hosts what goes through a daemon is spread over N of them, each in a network namespace: exit 77
 * says that none can be made here. This file knows which cases belong to which index; the cases are
 * in *_cases.c.
 */
#include "tests/conformance/cases.h"
#include "tests/conformance/daemon_run.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RUNS 3

/* As ctest knows it. */
#define SKIP 77

/* An index by name: its number of columns and the cases of each row. */
struct kind {
    const char *pattern;
    size_t columns;
    row_fn *runs[MAX_RUNS]; /* ends with NULL */
};

static const struct kind kinds[] = {
    {"cast.tsv", 9, {kernel_cast_row, daemon_cast_row}},
    {"pattern.tsv", 4, {kernel_pattern_row, daemon_pattern_row}},
    {"fsdp_*.tsv", 8, {kernel_fsdp_row, daemon_fsdp_row}},
    {"delayed.tsv", 10, {step_row}},
};

/* All rows of an index, each alone; then the steps that they made, and what they want of a daemon,
 * together. */
static void run_rows(const struct row *index, const struct kind *kind)
{
    struct tally before = *index->tally;
    struct tensors tensors = {0};
    struct steps steps = {0};
    struct row row = *index;
    row.tensors = &tensors;
    row.steps = &steps;
    each_row(&row, kind->columns, kind->runs);
    delayed_kernels(&row);
    daemon_run(&row);
    tensors_done(&tensors);
    steps_done(&steps);
    printf("%s: %lu passed, %lu failed\n", row.file, row.tally->passed - before.passed,
        row.tally->failed - before.failed);
}

static void run_index(const char *dir, uint32_t hosts, const char *file, struct tally *tally)
{
    struct row index = {.dir = dir, .hosts = hosts, .file = file, .tally = tally};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (fnmatch(kinds[i].pattern, file, 0) != 0)
            continue;
        run_rows(&index, &kinds[i]);
        return;
    }
    row_fail(
        &index, "no cases are known for an index of this name; rename it or update conformance");
}

static int is_index(const struct dirent *entry)
{
    return fnmatch("*.tsv", entry->d_name, 0) == 0;
}

static void run_directory(const char *dir, uint32_t hosts, struct tally *tally)
{
    struct dirent **entries = NULL;
    int count = scandir(dir, &entries, is_index, alphasort);
    if (count < 0) {
        printf("FAIL %s: cannot read the directory: %s\n", dir, strerror(errno));
        tally->failed++;
        return;
    }
    if (count == 0)
        printf("%s: no *.tsv in it, so nothing was run\n", dir);
    for (int i = 0; i < count; i++) {
        run_index(dir, hosts, entries[i]->d_name, tally);
        free(entries[i]);
    }
    free(entries);
}

/* Gives the directory; NULL with usage on stderr if the arguments are no good. */
static const char *read_arguments(int argc, char **argv, uint32_t *ret_hosts)
{
    bool over_hosts = argc == 4 && strcmp(argv[1], "--hosts") == 0;
    unsigned long hosts = over_hosts ? strtoul(argv[2], NULL, 10) : 0;
    if ((!over_hosts && argc != 2) || (over_hosts && (hosts < 2 || hosts > DAEMONS_MAX))) {
        fprintf(stderr,
            "usage: %s [--hosts N] DIR\nDIR holds test vectors: *.tsv and what they name; N is 2 "
            "to "
            "%d\n",
            argv[0], DAEMONS_MAX);
        return NULL;
    }
    *ret_hosts = (uint32_t)hosts;
    return argv[argc - 1];
}

int main(int argc, char **argv)
{
    struct tally tally = {0};
    struct bench_error error;
    uint32_t hosts;
    const char *dir = read_arguments(argc, argv, &hosts);
    if (!dir)
        return 2;
    if (hosts > 0 && daemons_check(&error) != 0) {
        printf("skipped: %s\n", error.text);
        return SKIP;
    }
    printf("kernel variants:");
    for (size_t i = 0; f8k_variant(i); i++)
        printf(" %s", f8k_variant(i)->name);
    putchar('\n');
    run_directory(dir, hosts, &tally);
    printf("%lu passed, %lu failed\n", tally.passed, tally.failed);
    return tally.failed == 0 && tally.passed > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
