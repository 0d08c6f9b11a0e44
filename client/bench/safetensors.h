/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader of safetensors files (https://huggingface.co/docs/safetensors): the header is checked
 * in full before any of it is believed, and the tensors are read where the file is mapped. Called
 * by main before any process is forked.
 */
#ifndef F8BENCH_SAFETENSORS_H
#define F8BENCH_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "client/bench/error.h"

#define SAFETENSORS_MAX_DIMS 8

struct safetensors_tensor {
    char *name;        /* owned */
    const char *dtype; /* "BF16": a literal */
    uint32_t ndim;     /* 0: a scalar */
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    const uint8_t *data; /* borrowed: from the file's mapping; not aligned */
    uint64_t begin;      /* of the data, from the end of the header */
    uint64_t size;       /* in bytes */
};

struct safetensors_file {
    char *path;                         /* owned */
    void *map;                          /* owned: the mapped file */
    size_t size;                        /* of the mapping */
    struct safetensors_tensor *tensors; /* owned; in order of their data */
    uint32_t num_tensors;
};

/* Opens and checks a file. The error names the file, and the tensor and field that are wrong. */
int safetensors_open(
    const char *path, struct safetensors_file *ret_file, struct bench_error *error);

/* Unmaps and frees; zeroed ones are allowed. */
void safetensors_close(struct safetensors_file *file);

#endif
