/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading of a directory of test vectors: TSV indexes and raw little-endian files. Whatever is
 * wrong with a row is reported with its file and line and counted; nothing here ends the program.
 * Used by main.c and by the files with cases; one thread.
 */
#ifndef F8_TESTS_CONFORMANCE_VECTORS_H
#define F8_TESTS_CONFORMANCE_VECTORS_H

#include "kernels/kernels.h"

#define MAX_COLUMNS 16

/* What came out so far. */
struct tally {
    unsigned long passed, failed;
};

/* One line of an index. A column is a NUL-terminated string, never NULL. */
struct row {
    const char *dir;           /* borrowed: from the command line */
    const char *file;          /* borrowed: from the caller of each_row() */
    uint32_t hosts;            /* over which what goes through a daemon is spread; 0: one daemon */
    unsigned long line;        /* from 1; 0: the index as a whole */
    char *column[MAX_COLUMNS]; /* borrowed: from each_row(), while its callback runs */
    struct tally *tally;       /* borrowed: from main */
    struct tensors *tensors;   /* borrowed: from main: what the rows want of the daemon */
    struct steps *steps;       /* borrowed: from main: those of delayed.tsv */
};

/* A case; false: the row cannot be read, which is counted, and the cases after it are pointless. */
typedef bool row_fn(const struct row *row);

/*
 * Calls each `run` (an array that ends with NULL) for every row of `index` (dir, file, tally,
 * tensors and steps are set); rows must have `columns` columns.
 */
void each_row(const struct row *index, size_t columns, row_fn *const *runs);

/* One more case that passed; one more that failed, with the reason, on stdout. */
void row_pass(const struct row *row);
void row_fail(const struct row *row, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Parse a column. On false the failure is already counted. `*ret` is then untouched. */
bool row_dtype(const struct row *row, size_t column, enum f8k_dtype *ret);
bool row_format(const struct row *row, size_t column, enum f8k_format *ret);
bool row_bits(const struct row *row, size_t column, uint32_t *ret);
bool row_size(const struct row *row, size_t column, size_t limit, size_t *ret);

/* The whole file that a column names, owned by the caller (free); NULL: counted. */
uint8_t *row_file(const struct row *row, size_t column, size_t *ret_size);

/* The same for a file that must have `size` bytes. */
uint8_t *row_file_of(const struct row *row, size_t column, size_t size);

/* fp32 bits compare as bits, but any NaN equals any NaN. */
bool bits_equal(uint32_t a, uint32_t b);

/* Index of the first code that differs, NaN codes being equal; `count` if none does. */
size_t first_difference(
    enum f8k_format format, const uint8_t *got, const uint8_t *want, size_t count);

/* A row of fsdp_*.tsv with its files. */
struct fsdp_case {
    size_t world, rows, cols;
    enum f8k_scale_path path;
    enum f8k_dtype dtype;
    enum f8k_format format;
    uint32_t scale_bits;
    uint8_t *full;        /* owned: rows * cols elements */
    uint8_t *gathered;    /* owned: gathered_size codes */
    size_t gathered_size; /* rows * cols, or chunk_rows * world * cols with the padding */
    size_t chunk_rows;    /* rows of a rank's place: ceil(rows / world) */
};

/* False: counted, and there is nothing to be done with the case. */
bool fsdp_case_read(const struct row *row, struct fsdp_case *ret);
void fsdp_case_done(struct fsdp_case *fsdp);

/* How many rows rank has, as torch.chunk cuts them; *ret_first is the first of them. */
size_t fsdp_shard(const struct fsdp_case *fsdp, size_t rank, size_t *ret_first);

/*
 * Counts one pass or fail: a scale and chunk_rows * world * cols gathered codes (padding
 * included) that `who` made.
 */
void fsdp_check(const struct row *row, const struct fsdp_case *fsdp, const char *who,
    uint32_t scale_bits, const uint8_t *gathered);

#endif
