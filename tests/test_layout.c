/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where f8bench puts ranks, and what they hold: over meshes and replicas, that every element of a
 * weight is written by one rank and gathered by the groups that must, and how models are cut. And
 * the percentiles of its gather times.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/histogram.h"
#include "client/bench/layout.h"
#include "tests/lib/suite.h"

/* dp 0: no mesh. */
static const struct {
    uint32_t ranks, dp, tp, hsdp;
} arrangements[] = {{1, 0, 1, 1}, {4, 0, 1, 1}, {4, 2, 2, 1}, {4, 1, 4, 1}, {6, 2, 3, 1},
    {3, 3, 1, 1}, {8, 2, 4, 1}, {4, 0, 1, 2}, {6, 0, 1, 3}, {3, 0, 1, 3}};

#define NUM_ARRANGEMENTS (int)(sizeof(arrangements) / sizeof(arrangements[0]))

static struct options arranged(int i)
{
    return (struct options){.ranks = arrangements[i].ranks,
        .dp = arrangements[i].dp,
        .tp = arrangements[i].tp,
        .hsdp = arrangements[i].hsdp,
        .jobs = 1};
}

static void load(const char *name, struct model *model)
{
    const struct model_options options = {.dtype = F8_BF16, .flavour = F8_DYNAMIC, .blocks = 1};
    struct bench_error error;
    ck_assert_int_eq(model_builtin(name, &options, model, &error), 0);
}

static void count(const struct model_part *part, uint64_t cols, unsigned *counts)
{
    for (uint64_t row = part->first_row; row < part->first_row + part->num_rows; row++)
        for (uint64_t col = part->first_col; col < part->first_col + part->num_cols; col++)
            counts[row * cols + col]++;
}

/* How often an element of a weight is written, and gathered, by all ranks. */
static void check_weight(const struct options *options, const struct model_weight *weight)
{
    uint64_t elements = model_elements(weight);
    uint64_t cols = model_cols(weight);
    unsigned *written = calloc(elements, sizeof(*written));
    unsigned *held = calloc(elements, sizeof(*held));
    ck_assert(written && held);
    for (uint32_t rank = 0; rank < options->ranks; rank++) {
        struct place place = layout_place(options, rank);
        struct model_part shard = layout_shard(options, weight, &place);
        ck_assert_uint_lt(place.group, layout_num_groups(options));
        ck_assert_uint_lt(place.shard, layout_world_size(options));
        count(&shard, cols, held);
        if (layout_writes(options, weight, &place))
            count(&shard, cols, written);
    }
    struct model_part part = layout_part(options, weight, 0);
    bool whole = model_part_size(&part) == elements;
    for (uint64_t i = 0; i < elements; i++) {
        ck_assert_uint_eq(written[i], 1);
        ck_assert_uint_eq(held[i], whole ? layout_num_groups(options) : 1);
    }
    free(written);
    free(held);
}

START_TEST(each_element_has_one_writer)
{
    struct options options = arranged(_i);
    struct model model = {0};
    load("tiny", &model);
    for (uint32_t w = 0; w < model.num_weights; w++) {
        check_weight(&options, &model.weights[w]);
        for (uint32_t group = 0; group < layout_num_groups(&options); group++) {
            struct model_part part = layout_part(&options, &model.weights[w], group);
            ck_assert_uint_gt(model_part_size(&part), 0);
        }
    }
    model_done(&model);
}
END_TEST

/* Tensor parallel ranks are neighbours, those of a replica too. */
START_TEST(ranks_have_their_places)
{
    const struct options mesh = {.ranks = 6, .dp = 3, .tp = 2, .hsdp = 1};
    const struct options replicas = {.ranks = 6, .tp = 1, .hsdp = 2};
    char name[32];
    for (uint32_t rank = 0; rank < 6; rank++) {
        struct place place = layout_place(&mesh, rank);
        ck_assert_uint_eq(place.rank, rank);
        ck_assert_uint_eq(place.shard * 2 + place.group, rank);
        place = layout_place(&replicas, rank);
        ck_assert_uint_eq(place.group * 3 + place.shard, rank);
    }
    layout_group_name(&mesh, 1, name, sizeof(name));
    ck_assert_str_eq(name, "dp@tp=1");
    layout_group_name(&replicas, 1, name, sizeof(name));
    ck_assert_str_eq(name, "shard@rep=1");
}
END_TEST

/* Which dimension tp=2 halves; -1: none. */
static const struct {
    const char *model, *weight;
    int halved;
} cuts[] = {
    {"llama3-8b-block", "layers.0.attention_norm.weight", -1},
    {"llama3-8b-block", "layers.0.attention.wq.weight", 0},
    {"llama3-8b-block", "layers.0.attention.wk.weight", 0},
    {"llama3-8b-block", "layers.0.attention.wv.weight", 0},
    {"llama3-8b-block", "layers.0.attention.wo.weight", 1},
    {"llama3-8b-block", "layers.0.feed_forward.w1.weight", 0},
    {"llama3-8b-block", "layers.0.feed_forward.w2.weight", 1},
    {"llama3-8b-block", "layers.0.feed_forward.w3.weight", 0},
    {"gpt2-small", "wpe.weight", 0},
    {"gpt2-small", "h.0.attn.c_attn.weight", 1},
    {"gpt2-small", "h.0.attn.c_proj.weight", 0},
    {"gpt2-small", "h.0.mlp.c_fc.weight", 1},
    {"gpt2-small", "h.0.mlp.c_proj.weight", 0},
};

START_TEST(models_are_cut_as_megatron_does)
{
    const struct options options = {.ranks = 4, .dp = 2, .tp = 2, .hsdp = 1};
    struct model model = {0};
    load(cuts[_i].model, &model);
    uint32_t w = 0;
    while (strcmp(model.weights[w].name, cuts[_i].weight) != 0)
        ck_assert_uint_lt(++w, model.num_weights);
    struct model_part part = layout_part(&options, &model.weights[w], 1);
    uint64_t rows = model.weights[w].shape[0] / (cuts[_i].halved == 0 ? 2 : 1);
    uint64_t cols = model_cols(&model.weights[w]) / (cuts[_i].halved == 1 ? 2 : 1);
    ck_assert_uint_eq(part.num_rows, rows);
    ck_assert_uint_eq(part.num_cols, cols);
    ck_assert_uint_eq(part.first_row, cuts[_i].halved == 0 ? rows : 0);
    ck_assert_uint_eq(part.first_col, cuts[_i].halved == 1 ? cols : 0);
    model_done(&model);
}
END_TEST

START_TEST(percentiles_are_right_to_a_hundredth)
{
    struct histogram first = {0}, second = {0};
    ck_assert_double_eq(histogram_percentile(&first, 0.5), 0);
    for (int i = 1; i <= 1000; i++)
        histogram_add(i % 2 ? &first : &second, i * 1e-5);
    histogram_merge(&first, &second);
    ck_assert_uint_eq(first.count, 1000);
    ck_assert_double_eq_tol(histogram_percentile(&first, 0.5), 500e-5, 6e-5);
    ck_assert_double_eq_tol(histogram_percentile(&first, 0.99), 990e-5, 11e-5);
    histogram_add(&second, 0); /* shorter and longer than it can tell */
    histogram_add(&second, 1e9);
    ck_assert_double_lt(histogram_percentile(&second, 0), 2e-6);
    ck_assert_double_gt(histogram_percentile(&second, 1), 3600);
}
END_TEST

/* Every rank is on one host, in order; what hosts exchange is what leaves out only what is there.
 */
START_TEST(hosts_exchange_what_they_do_not_have)
{
    struct options options = arranged(_i);
    struct model model;
    load("gpt2-small", &model);
    for (options.hosts = 2; options.hosts <= options.ranks; options.hosts++) {
        ck_assert_uint_eq(layout_first_rank(&options, options.hosts), options.ranks);
        for (uint32_t rank = 0; rank < options.ranks; rank++) {
            uint32_t host = layout_host(&options, rank);
            ck_assert_uint_le(layout_first_rank(&options, host), rank);
            ck_assert_uint_gt(layout_first_rank(&options, host + 1), rank);
            uint32_t group = layout_place(&options, rank).group;
            ck_assert_uint_lt(
                layout_local_index(&options, rank), layout_local_ranks(&options, group, host));
        }
        for (uint32_t host = 0; host < options.hosts; host++) {
            uint32_t ranks = 0;
            for (uint32_t group = 0; group < layout_num_groups(&options); group++)
                ranks += layout_local_ranks(&options, group, host);
            ck_assert_uint_ge(ranks, 1);
            ck_assert_uint_eq(
                ranks, layout_first_rank(&options, host + 1) - layout_first_rank(&options, host));
            ck_assert_uint_eq(layout_exchanged(&options, &model, host, host), 0);
        }
    }
    model_done(&model);
}
END_TEST

/* Of one group over all, each host gets all but its own; with one host there is nothing. */
START_TEST(one_group_is_exchanged_whole)
{
    struct options options = {.ranks = 7, .tp = 1, .hsdp = 1, .jobs = 1, .hosts = 3};
    struct model model;
    load("gpt2-small", &model);
    uint64_t gathered = layout_bytes(&options, &model).gathered;
    uint64_t sent = 0;
    for (uint32_t host = 0; host < options.hosts; host++) {
        uint32_t next = (host + 1) % options.hosts;
        uint64_t own = layout_exchanged(&options, &model, host, next);
        uint64_t got = 0;
        for (uint32_t other = 0; other < options.hosts; other++)
            got += layout_exchanged(&options, &model, other, host);
        ck_assert_uint_eq(own + got, gathered);
        sent += own;
    }
    ck_assert_uint_eq(sent, gathered);
    model_done(&model);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("layout");
    tcase_add_loop_test(cases, each_element_has_one_writer, 0, NUM_ARRANGEMENTS);
    tcase_add_test(cases, ranks_have_their_places);
    tcase_add_loop_test(
        cases, models_are_cut_as_megatron_does, 0, (int)(sizeof(cuts) / sizeof(cuts[0])));
    tcase_add_loop_test(cases, hosts_exchange_what_they_do_not_have, 0, NUM_ARRANGEMENTS);
    tcase_add_test(cases, one_group_is_exchanged_whole);
    tcase_add_test(cases, percentiles_are_right_to_a_hundredth);
    return run_suite("layout", cases);
}
