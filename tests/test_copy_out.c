/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8_copy_out in both orders, over shards that are uneven, empty, and of several element sizes: the
 * expected bytes are built from the definition of the layouts, element by element.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/one_rank.h"
#include "tests/lib/suite.h"

/* Weights of one bucket: rows, bytes of a row. */
struct piece {
    uint64_t rows, row_size;
};

/* LAYER_1: 4 x 2 in e5m2 and 4 in fp32, after 4096 bytes of whatever. EMBED: 5 x 3 in e4m3fn. */
static const struct piece layer[] = {{4, 2}, {4, 4}};
static const struct piece embed[] = {{5, 3}};
#define PLACE 8192

/* The byte that stands for byte `at` of row `row` of weight `weight`; padding is 0. */
static unsigned char byte_of(uint32_t weight, uint64_t row, uint64_t at)
{
    return (unsigned char)(1 + weight * 100 + row * 16 + at);
}

static uint64_t chunk_of(uint64_t rows, uint32_t world_size)
{
    return (rows + world_size - 1) / world_size;
}

/* Lays the weights out in the arena as the daemon would. */
static void fill_place(
    unsigned char *place, const struct piece *pieces, uint32_t count, uint32_t world_size)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t row = 0; row < pieces[i].rows; row++)
            for (uint64_t k = 0; k < pieces[i].row_size; k++)
                place[at + row * pieces[i].row_size + k] = byte_of(i, row, k);
        uint64_t size = chunk_of(pieces[i].rows, world_size) * world_size * pieces[i].row_size;
        at += (size + 4095) / 4096 * 4096;
    }
}

static uint64_t expect_weight_major(unsigned char *out, const struct piece *pieces, uint32_t count)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t row = 0; row < pieces[i].rows; row++)
            for (uint64_t k = 0; k < pieces[i].row_size; k++)
                out[n++] = byte_of(i, row, k);
    return n;
}

static uint64_t expect_rank_major(
    unsigned char *out, const struct piece *pieces, uint32_t count, uint32_t world_size)
{
    uint64_t n = 0;
    for (uint32_t rank = 0; rank < world_size; rank++)
        for (uint32_t i = 0; i < count; i++) {
            uint64_t chunk = chunk_of(pieces[i].rows, world_size);
            for (uint64_t row = rank * chunk; row < (rank + 1) * chunk; row++)
                for (uint64_t k = 0; k < pieces[i].row_size; k++)
                    out[n++] = row < pieces[i].rows ? byte_of(i, row, k) : 0;
        }
    return n;
}

/* Copies out and compares; the byte after the end must stay. */
static void check_copy(struct one_rank *rank, uint32_t bucket, enum f8_layout layout,
    const unsigned char *expected, uint64_t expected_size)
{
    unsigned char out[512];
    uint64_t size = 0;
    ck_assert_int_eq(f8_copy_size(rank->group, bucket, layout, &size), F8_OK);
    ck_assert_uint_eq(size, expected_size);
    memset(out, 0xee, sizeof(out));
    ck_assert_int_eq(f8_copy_out(rank->group, bucket, layout, out, size, NULL), F8_OK);
    ck_assert_mem_eq(out, expected, size);
    ck_assert_int_eq(out[size], 0xee);
    assert_fails(
        f8_copy_out(rank->group, bucket, layout, out, size - 1, NULL), F8_EINVAL, "it needs");
}

static void check_bucket(
    uint32_t world_size, uint32_t bucket, const struct piece *pieces, uint32_t count)
{
    struct one_rank rank;
    unsigned char expected[512];
    one_rank_seal(&rank, world_size);
    fill_place(rank.arena + PLACE, pieces, count, world_size);
    rank.daemon.offset = PLACE;
    one_rank_hold(&rank, bucket);
    uint64_t size = expect_weight_major(expected, pieces, count);
    check_copy(&rank, bucket, F8_WEIGHT_MAJOR, expected, size);
    size = expect_rank_major(expected, pieces, count, world_size);
    check_copy(&rank, bucket, F8_RANK_MAJOR, expected, size);
    one_rank_stop(&rank);
}

/* 1: whole; 2, 3: uneven; 4: 5 rows are 2, 2, 1, 0; 7: empty ranks. */
START_TEST(layouts)
{
    static const uint32_t world_sizes[] = {1, 2, 3, 4, 7};
    check_bucket(world_sizes[_i], EMBED, embed, 1);
    check_bucket(world_sizes[_i], LAYER_1, layer, 2);
}
END_TEST

START_TEST(refusals)
{
    struct one_rank rank;
    char out[512];
    uint64_t size = 42;
    one_rank_seal(&rank, 2);
    assert_fails(f8_copy_out(rank.group, EMBED, F8_WEIGHT_MAJOR, out, sizeof(out), NULL), F8_EORDER,
        "bucket embed, which this rank does not hold");
    assert_fails(f8_copy_size(rank.group, EMBED, (enum f8_layout)3, &size), F8_EINVAL, "layout 3");
    assert_fails(f8_copy_size(rank.group, 9, F8_RANK_MAJOR, &size), F8_EINVAL, "no bucket 9");
    ck_assert_uint_eq(size, 42);
    one_rank_stop(&rank);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("copy_out");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, layouts, 0, 5);
    tcase_add_test(tcase, refusals);
    return run_suite("copy_out", tcase);
}
