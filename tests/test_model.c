/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lists of weights that f8bench gathers: the built-in models have the published shapes, and
 * tensors of files are put into buckets by their layer.
 */
#include <check.h>
#include <string.h>

#include "client/bench/model.h"
#include "tests/lib/suite.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct model_options options = {.dtype = F8_BF16, .flavour = F8_DYNAMIC};

/* What must hold of every model: buckets cover the weights in order, and names are unique. */
static void check_whole(const struct model *model)
{
    uint32_t next = 0;

    for (uint32_t b = 0; b < model->num_buckets; b++) {
        ck_assert_uint_eq(model->buckets[b].first, next);
        ck_assert_uint_ge(model->buckets[b].count, 1);
        next += model->buckets[b].count;
        for (uint32_t c = 0; c < b; c++) {
            ck_assert_str_ne(model->buckets[b].name, model->buckets[c].name);
        }
    }
    ck_assert_uint_eq(next, model->num_weights);
    for (uint32_t i = 0; i < model->num_weights; i++) {
        ck_assert_uint_ge(model_elements(&model->weights[i]), 1);
        for (uint32_t j = 0; j < i; j++) {
            ck_assert_str_ne(model->weights[i].name, model->weights[j].name);
        }
    }
}

static uint64_t parameters(const struct model *model)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < model->num_weights; i++) {
        sum += model_elements(&model->weights[i]);
    }
    return sum;
}

/* The sizes that their makers publish, by block. */
START_TEST(test_builtin_sizes)
{
    static const struct {
        const char *name;
        uint64_t parameters;
        uint32_t weights, buckets;
    } rows[] = {
        {"llama3-8b-block", 218112000, 9, 2},
        {"llama3-70b-block", 855654400, 9, 2},
        {"gpt2-small", 124439808, 148, 14},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct model model;
        struct bench_error error;
        ck_assert_int_eq(model_builtin(rows[i].name, &options, &model, &error), 0);
        ck_assert_uint_eq(parameters(&model), rows[i].parameters);
        ck_assert_uint_eq(model.num_weights, rows[i].weights);
        ck_assert_uint_eq(model.num_buckets, rows[i].buckets);
        check_whole(&model);
        model_done(&model);
    }
}
END_TEST

START_TEST(test_every_builtin_is_whole)
{
    uint32_t count = 0;

    for (; model_builtin_name(count) != NULL; count++) {
        struct model model;
        struct bench_error error;
        ck_assert_int_eq(model_builtin(model_builtin_name(count), &options, &model, &error), 0);
        check_whole(&model);
        model_done(&model);
    }
    ck_assert_uint_eq(count, 4);
}
END_TEST

START_TEST(test_llama_names_flavours_and_blocks)
{
    struct model_options two = {.dtype = F8_F32, .flavour = F8_STATIC, .blocks = 2};
    struct model model;
    struct bench_error error;

    ck_assert_int_eq(model_builtin("llama3-8b-block", &two, &model, &error), 0);
    ck_assert_uint_eq(model.num_buckets, 4);
    ck_assert_str_eq(model.buckets[0].name, "layers.0.attention");
    ck_assert_str_eq(model.buckets[3].name, "layers.1.feed_forward");
    ck_assert_str_eq(model.weights[0].name, "layers.0.attention_norm.weight");
    ck_assert_int_eq(model.weights[0].flavour, F8_RAW);
    ck_assert_uint_eq(model.weights[0].ndim, 1);
    ck_assert_str_eq(model.weights[2].name, "layers.0.attention.wk.weight");
    ck_assert_int_eq(model.weights[2].flavour, F8_STATIC);
    ck_assert_uint_eq(model.weights[2].shape[0], 1024);
    ck_assert_uint_eq(model_cols(&model.weights[2]), 4096);
    ck_assert_uint_eq(model_source_size(&model.weights[2]), 4);
    ck_assert_uint_eq(model_wire_size(&model.weights[2]), 1);
    ck_assert_uint_eq(model_wire_size(&model.weights[0]), 4);
    model_done(&model);
}
END_TEST

START_TEST(test_unknown_model_lists_the_known)
{
    struct model model;
    struct bench_error error;

    ck_assert_int_eq(model_builtin("llama9", &options, &model, &error), -1);
    ck_assert_str_eq(error.text,
        "no model is called llama9; there are llama3-8b-block, llama3-70b-block, gpt2-small, tiny");
}
END_TEST

static struct safetensors_tensor tensor(const char *name, const char *dtype, uint32_t ndim)
{
    struct safetensors_tensor made = {.name = (char *)name,
        .dtype = dtype,
        .ndim = ndim,
        .shape = {4, 3, 2},
        .data = (const uint8_t *)name,
        .size = 1};

    return made;
}

START_TEST(test_files_are_grouped_by_layer)
{
    struct safetensors_tensor tensors[] = {
        tensor("encoder.layer.10.output.weight", "BF16", 2),
        tensor("encoder.layer.2.output.weight", "F32", 2),
        tensor("encoder.layer.2.output.bias", "F16", 1),
        tensor("embeddings.word.weight", "F32", 2),
        tensor("embeddings.position_ids", "I64", 2),
        tensor("conv.7", "F32", 3),
        tensor("temperature", "F32", 0),
    };
    struct safetensors_file file = {
        .path = (char *)"dir/m.safetensors", .tensors = tensors, .num_tensors = COUNT(tensors)};
    struct model model;
    struct bench_error error;

    ck_assert_int_eq(model_from_files(&file, 1, &options, &model, &error), 0);
    check_whole(&model);
    ck_assert_str_eq(model.name, "m.safetensors");
    ck_assert_uint_eq(model.num_weights, 6);
    ck_assert_uint_eq(model.num_buckets, 4);
    ck_assert_str_eq(model.buckets[0].name, "conv.7");
    ck_assert_str_eq(model.buckets[1].name, "encoder.layer.2");
    ck_assert_uint_eq(model.buckets[1].count, 2);
    ck_assert_str_eq(model.buckets[2].name, "encoder.layer.10");
    ck_assert_str_eq(model.buckets[3].name, "other");
    ck_assert_int_eq(model.weights[0].flavour, F8_RAW); /* three-dimensional */
    ck_assert_str_eq(model.weights[2].name, "encoder.layer.2.output.weight");
    ck_assert_int_eq(model.weights[2].flavour, F8_DYNAMIC);
    ck_assert_int_eq(model.weights[1].flavour, F8_RAW);
    ck_assert_int_eq(model.weights[1].dtype, F8_F16);
    ck_assert_str_eq(model.weights[5].name, "temperature"); /* a scalar: one row */
    ck_assert_uint_eq(model.weights[5].ndim, 1);
    ck_assert_uint_eq(model.weights[5].shape[0], 1);
    ck_assert_uint_eq(model.num_skipped, 1);
    ck_assert_str_eq(model.skipped[0], "embeddings.position_ids (I64)");
    model_done(&model);
}
END_TEST

START_TEST(test_same_name_in_two_files)
{
    struct safetensors_tensor tensors[] = {tensor("w.1", "F32", 2)};
    struct safetensors_file files[] = {
        {.path = (char *)"one", .tensors = tensors, .num_tensors = 1},
        {.path = (char *)"two", .tensors = tensors, .num_tensors = 1}};
    struct model model;
    struct bench_error error;

    ck_assert_int_eq(model_from_files(files, 2, &options, &model, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "tensor w.1 is in both "));
    ck_assert_ptr_nonnull(strstr(error.text, "one"));
    ck_assert_ptr_nonnull(strstr(error.text, "two"));
}
END_TEST

START_TEST(test_files_without_a_float)
{
    struct safetensors_tensor tensors[] = {tensor("ids", "I64", 1)};
    struct safetensors_file file = {.path = (char *)"m", .tensors = tensors, .num_tensors = 1};
    struct model model;
    struct bench_error error;

    ck_assert_int_eq(model_from_files(&file, 1, &options, &model, &error), -1);
    ck_assert_str_eq(error.text, "m: no tensor of F32, BF16 or F16 in it");
}
END_TEST

START_TEST(test_names_have_a_limit)
{
    char name[300] = "";
    struct safetensors_tensor tensors[] = {tensor(name, "F32", 1)};
    struct safetensors_file file = {.path = (char *)"m", .tensors = tensors, .num_tensors = 1};
    struct model model;
    struct bench_error error;

    memset(name, 'n', sizeof(name));
    name[256] = '\0';
    ck_assert_int_eq(model_from_files(&file, 1, &options, &model, &error), -1);
    ck_assert_ptr_nonnull(strstr(error.text, "names have 1 to 255 bytes"));
    name[255] = '\0';
    ck_assert_int_eq(model_from_files(&file, 1, &options, &model, &error), 0);
    model_done(&model);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("model");

    tcase_add_test(cases, test_builtin_sizes);
    tcase_add_test(cases, test_every_builtin_is_whole);
    tcase_add_test(cases, test_llama_names_flavours_and_blocks);
    tcase_add_test(cases, test_unknown_model_lists_the_known);
    tcase_add_test(cases, test_files_are_grouped_by_layer);
    tcase_add_test(cases, test_same_name_in_two_files);
    tcase_add_test(cases, test_files_without_a_float);
    tcase_add_test(cases, test_names_have_a_limit);
    return run_suite("model", cases);
}
