/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors reader: what it gives for a right file, and the text it gives for every way in
 * which a file may be wrong. Each test writes its files to a folder of its own.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/bench/safetensors.h"
#include "tests/lib/suite.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char folder[64];
static char path[96];

static void make_folder(void)
{
    strcpy(folder, "/tmp/f8-safetensors-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/x.safetensors", folder);
}

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

/* A file of that header, with its length before it (or another), and data_size bytes 0, 1, 2... */
static void write_file(const char *header, uint64_t length, int data_size)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 8; i++) {
        fputc((int)(length >> (8 * i) & 0xff), file);
    }
    fputs(header, file);
    for (int i = 0; i < data_size; i++) {
        fputc(i, file);
    }
    fclose(file);
}

START_TEST(test_right_file)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[4,12]},"
        "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
        "\"none\":{\"dtype\":\"F16\",\"shape\":[0,3],\"data_offsets\":[12,12]},"
        "\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[12,20]}}   ";
    struct safetensors_file file;
    struct bench_error error;

    write_file(header, strlen(header), 20);
    ck_assert_msg(safetensors_open(path, &file, &error) == 0, "%s", error.text);
    ck_assert_uint_eq(file.num_tensors, 4);
    ck_assert_str_eq(file.tensors[0].name, "a");
    ck_assert_str_eq(file.tensors[0].dtype, "BF16");
    ck_assert_uint_eq(file.tensors[0].ndim, 1);
    ck_assert_uint_eq(file.tensors[0].size, 4);
    ck_assert_uint_eq(file.tensors[0].data[0], 0);
    ck_assert_str_eq(file.tensors[1].name, "b.weight");
    ck_assert_uint_eq(file.tensors[1].ndim, 2);
    ck_assert_uint_eq(file.tensors[1].shape[0], 2);
    ck_assert_uint_eq(file.tensors[1].shape[1], 1);
    ck_assert_uint_eq(file.tensors[1].data[0], 4);
    ck_assert_str_eq(file.tensors[2].name, "none");
    ck_assert_uint_eq(file.tensors[2].size, 0);
    ck_assert_str_eq(file.tensors[3].name, "scalar");
    ck_assert_uint_eq(file.tensors[3].ndim, 0);
    safetensors_close(&file);
    safetensors_close(&file); /* a zeroed one is allowed */
}
END_TEST

START_TEST(test_empty_header)
{
    struct safetensors_file file;
    struct bench_error error;

    write_file("{}", 2, 0);
    ck_assert_int_eq(safetensors_open(path, &file, &error), 0);
    ck_assert_uint_eq(file.num_tensors, 0);
    safetensors_close(&file);
}
END_TEST

#define T(dtype, shape, offsets)                                                                   \
    "{\"t\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

/* All with 8 bytes of data. length 0: the header's own. */
static const struct {
    const char *header;
    uint64_t length;
    const char *text;
} malformed[] = {
    {"{}", 1000, "the header's length is 1000 bytes, but 10 follow"},
    {"{}", UINT64_MAX, "the header's length is 18446744073709551615 bytes, but 10 follow"},
    {"{\"t\":", 0, "the header is no valid JSON"},
    {"[]", 0, "the header is not a JSON object"},
    {"{\"t\":3}", 0, "tensor t: its entry is not an object"},
    {"{\"t\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 0, "tensor t: dtype is missing"},
    {"{\"t\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}}", 0,
        "tensor t: dtype is missing or not a string"},
    {T("F31", "[2]", "[0,8]"), 0, "tensor t: dtype F31 is not known"},
    {"{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 0, "tensor t: shape is missing"},
    {T("F32", "2", "[0,8]"), 0, "tensor t: shape is missing or not an array"},
    {T("F32", "[-2]", "[0,8]"), 0, "tensor t: shape: dimension 0 is no natural number"},
    {T("F32", "[1,2.5]", "[0,8]"), 0, "tensor t: shape: dimension 1 is no natural number"},
    {T("F32", "[\"2\"]", "[0,8]"), 0, "tensor t: shape: dimension 0 is no natural number"},
    {T("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), 0, "tensor t: shape has 9 dimensions, 8 at most"},
    {T("F32", "[4294967296,4294967296]", "[0,8]"), 0, "tensor t: shape is larger than any file"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2]}}", 0, "tensor t: data_offsets is missing"},
    {T("F32", "[2]", "[0]"), 0, "tensor t: data_offsets is missing or not two integers"},
    {T("F32", "[2]", "[0,8,9]"), 0, "tensor t: data_offsets is missing or not two integers"},
    {T("F32", "[2]", "[0,8.0]"), 0, "tensor t: data_offsets is missing or not two integers"},
    {T("F32", "[2]", "[8,0]"), 0, "tensor t: data_offsets [8, 0] are no range"},
    {T("F32", "[2]", "[-8,0]"), 0, "tensor t: data_offsets [-8, 0] are no range"},
    {T("F32", "[2]", "[4,12]"), 0,
        "tensor t: data_offsets [4, 12] go beyond the data, which has 8 bytes"},
    {T("F32", "[2]", "[0,4]"), 0,
        "tensor t: data_offsets [0, 4] hold 4 bytes, but dtype and shape come to 8"},
    {T("F32", "[1]", "[0,4]"), 0, "bytes 4 to 8 of the data belong to no tensor"},
    {T("F32", "[1]", "[4,8]"), 0, "bytes 0 to 4 of the data belong to no tensor"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"u\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}",
        0, "tensor u: data_offsets overlap those of tensor t"},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
     "\"t\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}",
        0, "duplicate object key near '\"t\"'"},
};

START_TEST(test_malformed)
{
    struct safetensors_file file;
    struct bench_error error = {""};
    uint64_t length = malformed[_i].length;

    write_file(malformed[_i].header, length > 0 ? length : strlen(malformed[_i].header), 8);
    ck_assert_int_eq(safetensors_open(path, &file, &error), -1);
    ck_assert_msg(strstr(error.text, malformed[_i].text) != NULL, "got: %s\nmust have: %s",
        error.text, malformed[_i].text);
    ck_assert_msg(strncmp(error.text, path, strlen(path)) == 0, "no file in: %s", error.text);
}
END_TEST

/* Each beginning of a right file is a wrong one. */
START_TEST(test_cut_short)
{
    static const char header[] = T("F32", "[2]", "[0,8]");
    struct safetensors_file file;
    struct bench_error error;
    off_t size = 8 + (off_t)strlen(header) + 8;

    write_file(header, strlen(header), 8);
    ck_assert_int_eq(safetensors_open(path, &file, &error), 0);
    safetensors_close(&file);
    while (size-- > 0) {
        ck_assert_int_eq(truncate(path, size), 0);
        ck_assert_int_eq(safetensors_open(path, &file, &error), -1);
    }
    ck_assert_ptr_nonnull(strstr(error.text, "0 bytes are too few for a safetensors file"));
}
END_TEST

START_TEST(test_no_file)
{
    struct safetensors_file file;
    struct bench_error error;

    ck_assert_int_eq(safetensors_open(path, &file, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "cannot be opened: No such file or directory"));
    ck_assert_int_eq(safetensors_open(folder, &file, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "is not a regular file"));
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* must not wait for a writer */
    ck_assert_int_eq(safetensors_open(path, &file, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "is not a regular file"));
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("reader");

    tcase_add_checked_fixture(cases, make_folder, remove_folder);
    tcase_add_test(cases, test_right_file);
    tcase_add_test(cases, test_empty_header);
    tcase_add_loop_test(cases, test_malformed, 0, COUNT(malformed));
    tcase_add_test(cases, test_cut_short);
    tcase_add_test(cases, test_no_file);
    return run_suite("safetensors", cases);
}
