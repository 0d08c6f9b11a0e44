/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors reader: 8 bytes of header length, a JSON header, then the data. Every number of
 * the header is checked against the file and the others before it is used, since checkpoints come
 * from strangers. Called by main; single-threaded.
 */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The limit of the reference implementation. */
#define MAX_HEADER 100000000

static const struct {
    const char *name;
    uint32_t size;
} dtypes[] = {{"BOOL", 1}, {"U8", 1}, {"I8", 1}, {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2},
    {"U16", 2}, {"F16", 2}, {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4}, {"F64", 8}, {"I64", 8},
    {"U64", 8}};

/* One file while its header is read. */
struct reader {
    struct safetensors_file *file; /* borrowed: from safetensors_open */
    struct bench_error *error;     /* borrowed: from the caller */
    const uint8_t *data;           /* borrowed: from the mapping; behind the header */
    uint64_t data_size;
};

/* "FILE: tensor NAME: " before what is wrong. */
__attribute__((format(printf, 3, 4))) static int tensor_fail(
    struct reader *reader, const char *name, const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return bench_fail(reader->error, "%s: tensor %.255s: %s", reader->file->path, name, text);
}

static int read_dtype(
    struct reader *reader, const char *name, json_t *entry, uint32_t *ret_size, const char **ret)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));

    if (dtype == NULL) {
        return tensor_fail(reader, name, "dtype is missing or not a string");
    }
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        if (strcmp(dtypes[i].name, dtype) == 0) {
            *ret_size = dtypes[i].size;
            *ret = dtypes[i].name;
            return 0;
        }
    }
    return tensor_fail(reader, name, "dtype %.32s is not known", dtype);
}

/* Fills ndim and shape, and gives the number of bytes that they come to. */
static int read_shape(struct reader *reader, json_t *entry, uint32_t element_size,
    struct safetensors_tensor *tensor, uint64_t *ret_size)
{
    json_t *shape = json_object_get(entry, "shape");
    uint64_t size = element_size;

    if (!json_is_array(shape)) {
        return tensor_fail(reader, tensor->name, "shape is missing or not an array");
    }
    if (json_array_size(shape) > SAFETENSORS_MAX_DIMS) {
        return tensor_fail(reader, tensor->name, "shape has %zu dimensions, %d at most are known",
            json_array_size(shape), SAFETENSORS_MAX_DIMS);
    }
    tensor->ndim = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
            return tensor_fail(
                reader, tensor->name, "shape: dimension %" PRIu32 " is no natural number", i);
        }
        tensor->shape[i] = (uint64_t)json_integer_value(dim);
        if (__builtin_mul_overflow(size, tensor->shape[i], &size)) {
            return tensor_fail(reader, tensor->name, "shape is larger than any file");
        }
    }
    *ret_size = size;
    return 0;
}

static int read_offsets(
    struct reader *reader, json_t *entry, uint64_t size, struct safetensors_tensor *tensor)
{
    json_t *offsets = json_object_get(entry, "data_offsets");
    json_t *begin = json_array_get(offsets, 0);
    json_t *end = json_array_get(offsets, 1);
    json_int_t first = json_integer_value(begin);
    json_int_t last = json_integer_value(end);

    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end)) {
        return tensor_fail(reader, tensor->name, "data_offsets is missing or not two integers");
    }
    if (first < 0 || last < first) {
        return tensor_fail(reader, tensor->name, "data_offsets [%lld, %lld] are no range",
            (long long)first, (long long)last);
    }
    if ((uint64_t)last > reader->data_size) {
        return tensor_fail(reader, tensor->name,
            "data_offsets [%lld, %lld] go beyond the data, which has %" PRIu64 " bytes",
            (long long)first, (long long)last, reader->data_size);
    }
    if ((uint64_t)(last - first) != size) {
        return tensor_fail(reader, tensor->name,
            "data_offsets [%lld, %lld] hold %lld bytes, but dtype and shape come to %" PRIu64,
            (long long)first, (long long)last, (long long)(last - first), size);
    }
    tensor->begin = (uint64_t)first;
    tensor->size = size;
    tensor->data = reader->data + first;
    return 0;
}

static int read_tensor(
    struct reader *reader, const char *name, json_t *entry, struct safetensors_tensor *tensor)
{
    uint32_t element_size = 0;
    uint64_t size = 0;

    if (!json_is_object(entry)) {
        return tensor_fail(reader, name, "its entry is not an object");
    }
    tensor->name = strdup(name);
    if (tensor->name == NULL) {
        return bench_no_memory(reader->error);
    }
    if (read_dtype(reader, name, entry, &element_size, &tensor->dtype) != 0 ||
        read_shape(reader, entry, element_size, tensor, &size) != 0) {
        return -1;
    }
    return read_offsets(reader, entry, size, tensor);
}

static int compare_begin(const void *left, const void *right)
{
    const struct safetensors_tensor *a = left;
    const struct safetensors_tensor *b = right;

    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    return a->size < b->size ? -1 : a->size > b->size; /* empty ones come first */
}

/* The tensors must cover the data without overlap and without holes. */
static int check_cover(struct reader *reader)
{
    struct safetensors_file *file = reader->file;
    uint64_t covered = 0;

    qsort(file->tensors, file->num_tensors, sizeof(*file->tensors), compare_begin);
    for (uint32_t i = 0; i < file->num_tensors; i++) {
        struct safetensors_tensor *tensor = &file->tensors[i];
        if (tensor->begin < covered) {
            return tensor_fail(reader, tensor->name, "data_offsets overlap those of tensor %.128s",
                file->tensors[i - 1].name);
        }
        if (tensor->begin > covered) {
            return bench_fail(reader->error,
                "%s: bytes %" PRIu64 " to %" PRIu64 " of the data belong to no tensor", file->path,
                covered, tensor->begin);
        }
        covered = tensor->begin + tensor->size;
    }
    if (covered < reader->data_size) {
        return bench_fail(reader->error,
            "%s: bytes %" PRIu64 " to %" PRIu64 " of the data belong to no tensor", file->path,
            covered, reader->data_size);
    }
    return 0;
}

static int read_tensors(struct reader *reader, json_t *header)
{
    struct safetensors_file *file = reader->file;
    const char *name;
    json_t *entry;

    file->tensors = calloc(json_object_size(header) + 1, sizeof(*file->tensors));
    if (file->tensors == NULL) {
        return bench_no_memory(reader->error);
    }
    json_object_foreach(header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            continue; /* texts for people */
        }
        if (read_tensor(reader, name, entry, &file->tensors[file->num_tensors++]) != 0) {
            return -1;
        }
    }
    return check_cover(reader);
}

static int read_header(struct reader *reader)
{
    struct safetensors_file *file = reader->file;
    const uint8_t *bytes = file->map;
    json_error_t json_error;
    uint64_t length = 0;
    json_t *header;
    int result;

    for (int i = 7; i >= 0; i--) {
        length = length << 8 | bytes[i];
    }
    if (length > file->size - 8 || length > MAX_HEADER) {
        return bench_fail(reader->error,
            "%s: the header's length is %" PRIu64 " bytes, but %zu follow (and %d are the limit)",
            file->path, length, file->size - 8, MAX_HEADER);
    }
    header = json_loadb((const char *)bytes + 8, length, JSON_REJECT_DUPLICATES, &json_error);
    if (header == NULL) {
        return bench_fail(reader->error, "%s: the header is no valid JSON: %s (line %d, column %d)",
            file->path, json_error.text, json_error.line, json_error.column);
    }
    reader->data = bytes + 8 + length;
    reader->data_size = file->size - 8 - length;
    if (json_is_object(header)) {
        result = read_tensors(reader, header);
    } else {
        result = bench_fail(reader->error, "%s: the header is not a JSON object", file->path);
    }
    json_decref(header);
    return result;
}

static int map_file(struct safetensors_file *file, int fd, struct bench_error *error)
{
    struct stat status;

    if (fd < 0 || fstat(fd, &status) != 0) {
        return bench_fail(error, "%s: cannot be opened: %s", file->path, strerror(errno));
    }
    if (!S_ISREG(status.st_mode)) {
        return bench_fail(error, "%s: is not a regular file", file->path);
    }
    if (status.st_size < 8) {
        return bench_fail(error, "%s: %lld bytes are too few for a safetensors file", file->path,
            (long long)status.st_size);
    }
    file->map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file->map == MAP_FAILED) {
        file->map = NULL;
        return bench_fail(error, "%s: cannot be mapped: %s", file->path, strerror(errno));
    }
    file->size = (size_t)status.st_size;
    return 0;
}

int safetensors_open(const char *path, struct safetensors_file *ret_file, struct bench_error *error)
{
    struct safetensors_file file = {.path = strdup(path)};
    struct reader reader = {.file = &file, .error = error};
    int result;
    int fd;

    if (file.path == NULL) {
        return bench_no_memory(error);
    }
    fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    result = map_file(&file, fd, error);
    if (fd >= 0) {
        close(fd);
    }
    if (result == 0) {
        result = read_header(&reader);
    }
    if (result != 0) {
        safetensors_close(&file);
        return -1;
    }
    *ret_file = file;
    return 0;
}

void safetensors_close(struct safetensors_file *file)
{
    for (uint32_t i = 0; i < file->num_tensors; i++) {
        free(file->tensors[i].name);
    }
    free(file->tensors);
    if (file->map != NULL) {
        munmap(file->map, file->size);
    }
    free(file->path);
    *file = (struct safetensors_file){0};
}
