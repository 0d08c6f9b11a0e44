/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol's vocabulary: how rows are cut over ranks, how weights span their places, and that
 * every value has its name, every status its own code, name and text.
 */
#include <check.h>
#include <string.h>

#include "protocol.h"
#include "tests/lib/suite.h"

#define MAX_RANKS 256

/* torch.chunk's cuts, by hand. */
static const struct {
    uint64_t rows;
    uint32_t world_size;
    uint64_t shards[8]; /* of the first ranks; the others are empty */
} cuts[] = {
    {5, 4, {2, 2, 1, 0}},
    {4096, 3, {1366, 1366, 1364}},
    {1, MAX_RANKS, {1, 0, 0}},
    {0, 3, {0, 0, 0}},
    {8, 1, {8}},
    {8, 4, {2, 2, 2, 2}},
    {9, 4, {3, 3, 3, 0}},
    {7, 5, {2, 2, 2, 1, 0}},
    {UINT64_C(1) << 48, 3,
        {UINT64_C(93824992236886), UINT64_C(93824992236886), UINT64_C(93824992236884)}},
};

#define NUM_CUTS ((int)(sizeof(cuts) / sizeof(cuts[0])))

START_TEST(rows_are_cut_as_torch_chunk_does)
{
    for (uint32_t r = 0; r < cuts[_i].world_size; r++)
        ck_assert_uint_eq(f8_proto_shard_rows(cuts[_i].rows, cuts[_i].world_size, r),
            r < 8 ? cuts[_i].shards[r] : 0);
}
END_TEST

/* Shards follow one another without gap or overlap, none larger than the chunk. */
static void check_cover(uint64_t rows, uint32_t world_size)
{
    uint64_t next = 0, chunk = f8_proto_chunk_rows(rows, world_size);
    ck_assert_uint_ge(chunk * world_size, rows);
    for (uint32_t r = 0; r < world_size; r++) {
        ck_assert_uint_eq(f8_proto_shard_begin(rows, world_size, r), next);
        uint64_t count = f8_proto_shard_rows(rows, world_size, r);
        ck_assert_uint_le(count, chunk);
        next += count;
    }
    ck_assert_uint_eq(next, rows);
}

START_TEST(shards_cover_all_rows)
{
    for (uint64_t rows = 0; rows < 70; rows++)
        for (uint32_t world_size = 1; world_size < 40; world_size++)
            check_cover(rows, world_size);
    check_cover(F8_PROTO_MAX_ELEMENTS, MAX_RANKS);
    check_cover(F8_PROTO_MAX_ELEMENTS - 1, MAX_RANKS - 1);
}
END_TEST

START_TEST(alignment_rounds_up)
{
    ck_assert_uint_eq(f8_proto_align(0), 0);
    ck_assert_uint_eq(f8_proto_align(1), 4096);
    ck_assert_uint_eq(f8_proto_align(4096), 4096);
    ck_assert_uint_eq(f8_proto_align(4097), 8192);
}
END_TEST

START_TEST(spans_hold_padded_chunks)
{
    /* 5 rows over 4 ranks: 4 chunks of 2 rows, each of 1000 one-byte elements. */
    ck_assert_uint_eq(f8_proto_weight_span(5, 1000, 4, 1), 8192);
    ck_assert_uint_eq(f8_proto_weight_span(5, 1000, 4, 4), 32768);
    ck_assert_uint_eq(f8_proto_weight_span(1, 1, MAX_RANKS, 4), 4096);
    ck_assert_uint_eq(f8_proto_weight_span(1, 17, MAX_RANKS, 1), 8192);
    ck_assert_uint_eq(f8_proto_weight_span(0, 9, 2, 4), 0);
    ck_assert_uint_eq(f8_proto_weight_span(9, 0, 2, 4), 0);
    /* The largest weight over the most ranks that can be configured still fits in 64 bits. */
    ck_assert_uint_eq(f8_proto_weight_span(1, F8_PROTO_MAX_ELEMENTS, 4096, 4), UINT64_C(1) << 62);
    ck_assert_uint_eq(f8_proto_scales_span(1), 4096);
    ck_assert_uint_eq(f8_proto_scales_span(1024), 4096);
    ck_assert_uint_eq(f8_proto_scales_span(1025), 8192);
    ck_assert_uint_eq(f8_proto_scales_span(UINT32_MAX), UINT64_C(1) << 34);
}
END_TEST

START_TEST(sources_have_sizes_and_wires)
{
    ck_assert_uint_eq(f8_proto_dtype_size(F8_PROTO_F32), 4);
    ck_assert_uint_eq(f8_proto_dtype_size(F8_PROTO_BF16), 2);
    ck_assert_uint_eq(f8_proto_dtype_size(F8_PROTO_F16), 2);
    ck_assert_uint_eq(f8_proto_dtype_size(0), 0);
    ck_assert_uint_eq(f8_proto_dtype_size(4), 0);
    ck_assert_uint_eq(f8_proto_wire_of(F8_PROTO_RAW, F8_PROTO_F16, 0), F8_PROTO_WIRE_F16);
    ck_assert_uint_eq(f8_proto_wire_of(F8_PROTO_RAW_BF16, F8_PROTO_F32, 0), F8_PROTO_WIRE_BF16);
    ck_assert_uint_eq(
        f8_proto_wire_of(F8_PROTO_STATIC, F8_PROTO_F32, F8_PROTO_E5M2), F8_PROTO_WIRE_E5M2);
    ck_assert_uint_eq(
        f8_proto_wire_of(F8_PROTO_DYNAMIC, F8_PROTO_F16, F8_PROTO_E4M3FN), F8_PROTO_WIRE_E4M3FN);
    ck_assert_uint_eq(f8_proto_wire_size(F8_PROTO_WIRE_E4M3FN), 1);
    ck_assert_uint_eq(f8_proto_wire_size(F8_PROTO_WIRE_E5M2), 1);
    ck_assert_uint_eq(f8_proto_wire_size(F8_PROTO_WIRE_BF16), 2);
    ck_assert_uint_eq(f8_proto_wire_size(F8_PROTO_WIRE_F32), 4);
}
END_TEST

typedef const char *name_of(uint32_t value);

static const struct {
    name_of *name_of;
    uint32_t value;
    const char *name; /* NULL: no such value */
} names[] = {
    {f8_proto_dtype_name, F8_PROTO_F32, "float32"},
    {f8_proto_dtype_name, F8_PROTO_BF16, "bfloat16"},
    {f8_proto_dtype_name, F8_PROTO_F16, "float16"},
    {f8_proto_dtype_name, 0, NULL},
    {f8_proto_dtype_name, 4, NULL},
    {f8_proto_dtype_name, UINT32_MAX, NULL},
    {f8_proto_format_name, F8_PROTO_E4M3FN, "e4m3fn"},
    {f8_proto_format_name, F8_PROTO_E5M2, "e5m2"},
    {f8_proto_format_name, 0, NULL},
    {f8_proto_format_name, 3, NULL},
    {f8_proto_flavour_name, F8_PROTO_DYNAMIC, "dynamic"},
    {f8_proto_flavour_name, F8_PROTO_STATIC, "static"},
    {f8_proto_flavour_name, F8_PROTO_RAW, "raw"},
    {f8_proto_flavour_name, F8_PROTO_RAW_BF16, "raw-bf16"},
    {f8_proto_flavour_name, 0, NULL},
    {f8_proto_flavour_name, F8_PROTO_DELAYED, "delayed"},
    {f8_proto_flavour_name, 6, NULL},
    {f8_proto_history_name, F8_PROTO_HISTORY_MAX, "max"},
    {f8_proto_history_name, F8_PROTO_HISTORY_MOST_RECENT, "most-recent"},
    {f8_proto_history_name, 2, NULL},
    {f8_proto_wire_name, F8_PROTO_WIRE_F32, "float32"},
    {f8_proto_wire_name, F8_PROTO_WIRE_BF16, "bfloat16"},
    {f8_proto_wire_name, F8_PROTO_WIRE_F16, "float16"},
    {f8_proto_wire_name, F8_PROTO_WIRE_E4M3FN, "e4m3fn"},
    {f8_proto_wire_name, F8_PROTO_WIRE_E5M2, "e5m2"},
    {f8_proto_wire_name, 16, NULL},
};

START_TEST(values_have_names)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *name = names[i].name_of(names[i].value);
        if (names[i].name)
            ck_assert_str_eq(name, names[i].name);
        else
            ck_assert_ptr_null(name);
    }
}
END_TEST

static const struct {
    const char *name;
    const char *fault; /* NULL: a good name */
} peer_names[] = {
    {"layers.0.attention.wq.weight", NULL},
    {" ~", NULL},
    {"\"quoted\\\" %s%n", NULL},
    {"\xc2\xa0\xdf\xbf", NULL},                     /* U+00A0, U+07FF */
    {"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80", NULL}, /* U+0800, U+D7FF, U+E000 */
    {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", NULL},     /* U+10000, U+10FFFF */
    {"", "is empty"},
    {"\x01", "has the control character U+0001 at byte 0"},
    {"w\n", "has the control character U+000A at byte 1"},
    {"w\x1b[2J", "has the control character U+001B at byte 1"},
    {"w\x1f", "has the control character U+001F at byte 1"},
    {"w\x7f", "has the control character U+007F at byte 1"},
    {"\xc2\x80", "has the control character U+0080 at byte 0"},
    {"ab\xc2\x9b", "has the control character U+009B at byte 2"},
    {"\x80", "is not UTF-8 at byte 0"},
    {"w\xff", "is not UTF-8 at byte 1"},
    {"\xc1\xbf", "is not UTF-8 at byte 0"}, /* overlong */
    {"\xe0\x9f\xbf", "is not UTF-8 at byte 0"},
    {"\xf0\x8f\xbf\xbf", "is not UTF-8 at byte 0"},
    {"\xed\xa0\x80", "is not UTF-8 at byte 0"}, /* a surrogate */
    {"\xf4\x90\x80\x80", "is not UTF-8 at byte 0"},
    {"\xf5\x80\x80\x80", "is not UTF-8 at byte 0"},
    {"w\xc3", "is not UTF-8 at byte 1"}, /* cut */
    {"\xe2\x82", "is not UTF-8 at byte 0"},
    {"\xf0\x9f\x98", "is not UTF-8 at byte 0"},
    {"\xe2\x28\xa1", "is not UTF-8 at byte 0"},
};

START_TEST(names_of_peers_are_checked)
{
    char buffer[F8_PROTO_FAULT_SIZE], name[F8_PROTO_MAX_NAME + 2];
    for (size_t i = 0; i < sizeof(peer_names) / sizeof(peer_names[0]); i++) {
        const char *fault = f8_proto_name_fault(peer_names[i].name, buffer);
        if (peer_names[i].fault)
            ck_assert_str_eq(fault, peer_names[i].fault);
        else
            ck_assert_ptr_null(fault);
    }
    memset(name, 'n', sizeof(name));
    name[F8_PROTO_MAX_NAME + 1] = '\0';
    ck_assert_str_eq(f8_proto_name_fault(name, buffer), "has 256 bytes, the limit is 255");
    name[F8_PROTO_MAX_NAME] = '\0';
    ck_assert_ptr_null(f8_proto_name_fault(name, buffer));
}
END_TEST

static const struct {
    int code;
    const char *name, *text;
} statuses[] = {
#define STATUS_ROW(code, name, text) {code, "F8_" #name, text},
    F8_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

#define NUM_STATUSES (sizeof(statuses) / sizeof(statuses[0]))

START_TEST(statuses_are_unique_and_have_texts)
{
    for (size_t i = 0; i < NUM_STATUSES; i++) {
        ck_assert_str_eq(f8_proto_status_name(statuses[i].code), statuses[i].name);
        ck_assert_str_eq(f8_proto_status_text(statuses[i].code), statuses[i].text);
        ck_assert_int_le(statuses[i].code, 0);
        for (size_t j = 0; j < i; j++) {
            ck_assert_int_ne(statuses[i].code, statuses[j].code);
            ck_assert_str_ne(statuses[i].name, statuses[j].name);
            ck_assert_str_ne(statuses[i].text, statuses[j].text);
        }
    }
    ck_assert_str_eq(f8_proto_status_name(1), "F8_UNKNOWN_STATUS");
    ck_assert_str_eq(f8_proto_status_text(-1000), "unknown status");
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("protocol");
    tcase_add_loop_test(tcase, rows_are_cut_as_torch_chunk_does, 0, NUM_CUTS);
    tcase_add_test(tcase, shards_cover_all_rows);
    tcase_add_test(tcase, alignment_rounds_up);
    tcase_add_test(tcase, spans_hold_padded_chunks);
    tcase_add_test(tcase, sources_have_sizes_and_wires);
    tcase_add_test(tcase, values_have_names);
    tcase_add_test(tcase, names_of_peers_are_checked);
    tcase_add_test(tcase, statuses_are_unique_and_have_texts);
    return run_suite("protocol", tcase);
}
