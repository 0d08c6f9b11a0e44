/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA kernels between a reduction and the casts: the maximum over rows of amaxes, and
 * f8k_scale on the device, bit for bit. Runs on a GPU, or on the simulator, and skips where there
 * is neither.
 */
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/fp8.h"
#include "proto/status.h"
#include "tests/kernel_support.h"
#include "tests/lib/cuda_device.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdlib.h>

#define CANARY UINT32_C(0xa5a5a5a5)
#define KINDS  24 /* dtypes x formats x paths x power of two or not */

/* Arrays of PATTERNS words on the host, and on the device between two canary words. */
static uint32_t host[PATTERNS + 2];
static uint32_t *amaxes, *scales, *copies;
static struct f8cu_scale *table;

static void open_arrays(void)
{
    amaxes = device_alloc(sizeof(host));
    scales = device_alloc(sizeof(host));
    copies = device_alloc(sizeof(host));
    table = device_alloc(PATTERNS * sizeof(*table));
}

static void close_arrays(void)
{
    device_free(amaxes);
    device_free(scales);
    device_free(copies);
    device_free(table);
}

static void fill_canaries(uint32_t *device)
{
    for (size_t i = 0; i < PATTERNS + 2; i++)
        host[i] = CANARY;
    device_upload(device, host, sizeof(host));
}

/* One of the KINDS, without pointers. */
static struct f8cu_scale kind_of(size_t i)
{
    return (struct f8cu_scale){
        .dtype = (uint8_t)all_dtypes[i % 3],
        .format = (uint8_t)all_formats[i / 3 % 2],
        .path = i / 6 % 2 ? F8K_SCALE_PRECOMPUTE : F8K_SCALE_DIRECT,
        .power_of_two = i / 12 % 2,
    };
}

static uint32_t expected(const struct f8cu_scale *kind, uint32_t amax)
{
    return f8k_bits_of(f8k_scale(amax, (enum f8k_dtype)kind->dtype, (enum f8k_format)kind->format,
        (enum f8k_scale_path)kind->path, kind->power_of_two != 0));
}

/*
 * The scales of `count` amaxes in kinds that begin with `kind` and go round. Every fifth is kept
 * but not handed out, every seventh handed out but not kept.
 */
static void check_scales(const uint32_t *amax, uint32_t count, size_t kind)
{
    static struct f8cu_scale entries[PATTERNS];
    device_upload(amaxes, amax, count * sizeof(*amax));
    fill_canaries(scales);
    fill_canaries(copies);
    for (uint32_t i = 0; i < count; i++) {
        entries[i] = kind_of(kind + i);
        entries[i].amax = amaxes + i;
        entries[i].scale = i % 7 == 3 ? NULL : (float *)scales + 1 + i;
        entries[i].copy = i % 5 == 3 ? NULL : (float *)copies + 1 + i;
    }
    device_upload(table, entries, count * sizeof(*entries));
    ck_assert_int_eq(f8cu_set_scales(table, count, device_stream()), F8_OK);
    for (int is_copy = 0; is_copy < 2; is_copy++) {
        device_download(host, is_copy ? copies : scales, sizeof(host));
        ck_assert_uint_eq(host[0], CANARY);
        ck_assert_uint_eq(host[count + 1], CANARY);
        for (uint32_t i = 0; i < count; i++) {
            bool is_left_out = is_copy ? !entries[i].copy : !entries[i].scale;
            uint32_t want = is_left_out ? CANARY : expected(&entries[i], amax[i]);
            if (host[1 + i] != want)
                ck_abort_msg("scale of amax %08x in %s, %s, path %d, power of two %d: %08x, want "
                             "%08x",
                    amax[i], f8k_dtype_name((enum f8k_dtype)entries[i].dtype),
                    f8k_format_name((enum f8k_format)entries[i].format), entries[i].path,
                    entries[i].power_of_two, host[1 + i], want);
        }
    }
}

/* Amaxes over every exponent, in each kind (the kinds' number and that of the mantissas differ). */
START_TEST(scales_of_patterns)
{
    static uint32_t amax[PATTERNS];
    fill_patterns(F8K_F32, amax);
    for (size_t i = 0; i < PATTERNS; i++)
        amax[i] &= 0x7fffffff;
    check_scales(amax, PATTERNS, (size_t)_i);
}
END_TEST

/* Around the floor and its roundings, around where the scale passes a power of two or fp16's cap.
 */
START_TEST(scales_at_the_edges)
{
    static const uint32_t centres[] = {0, 1, 0x00800000, 0x2b8cbccc, 0x2b8d0000, 0x33e00000,
        0x3be00000, 0x3f600000, 0x3f600e00, 0x43e00000, 0x47600000, 0x5f000000, 0x7f7fffff,
        0x7f800000, 0x7fc00000};
    uint32_t amax[sizeof(centres) / sizeof(centres[0]) * 9];
    uint32_t count = 0;
    for (size_t c = 0; c < sizeof(centres) / sizeof(centres[0]); c++)
        for (uint32_t near = 0; near < 9; near++)
            amax[count++] = (centres[c] + near - (centres[c] < 4 ? 0 : 4)) & 0x7fffffff;
    for (size_t kind = 0; kind < KINDS; kind++)
        check_scales(amax, count, kind);
}
END_TEST

START_TEST(scales_of_any_count)
{
    uint32_t amax[300];
    struct rng rng = {.state = 1};
    for (uint32_t count = 0; count < 300; count += 1 + (uint32_t)rng_below(&rng, 9)) {
        for (uint32_t i = 0; i < count; i++)
            amax[i] = (uint32_t)rng_next(&rng) & 0x7fffffff;
        check_scales(amax, count, count);
    }
}
END_TEST

/* Without an amax the scale is the value, whatever its bits. */
START_TEST(scales_that_are_given)
{
    static const uint32_t bits[] = {0x3f800000, 0, 0x80000000, 0x7f800000, 0x7fc00000, 0x00000001};
    struct f8cu_scale entries[6];
    fill_canaries(scales);
    for (size_t i = 0; i < 6; i++) {
        entries[i] = kind_of(i + 10);
        entries[i].value = f8k_from_bits(bits[i]);
        entries[i].scale = (float *)scales + i;
    }
    device_upload(table, entries, sizeof(entries));
    ck_assert_int_eq(f8cu_set_scales(table, 6, device_stream()), F8_OK);
    device_download(host, scales, sizeof(host));
    for (size_t i = 0; i < 6; i++)
        ck_assert_uint_eq(host[i], bits[i]);
    ck_assert_uint_eq(host[6], CANARY);
}
END_TEST

/* ---- rows ---- */

static uint32_t rows[16 * 300];

/* The maximum of num_rows rows, into row 0 or apart from them. */
static void check_rows(uint32_t num_rows, uint32_t count, uint32_t stride, bool is_in_place)
{
    struct rng rng = {.state = num_rows * 1000 + count};
    size_t bytes = (size_t)num_rows * stride * sizeof(*rows);
    uint32_t *out = is_in_place ? amaxes : scales + 1;
    for (size_t i = 0; i < (size_t)num_rows * stride; i++)
        rows[i] = (uint32_t)rng_next(&rng) >> rng_below(&rng, 2);
    device_upload(amaxes, rows, bytes);
    fill_canaries(scales);
    ck_assert_int_eq(f8cu_max_rows(amaxes, num_rows, stride, out, count, device_stream()), F8_OK);
    device_download(host, scales, sizeof(host));
    ck_assert_uint_eq(host[0], CANARY);
    ck_assert_uint_eq(host[is_in_place ? 1 : count + 1], CANARY);
    if (is_in_place)
        device_download(host + 1, amaxes, bytes);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t want = 0;
        for (uint32_t row = 0; row < num_rows; row++)
            f8k_raise(&want, rows[row * stride + i]);
        if (host[1 + i] != want)
            ck_abort_msg("column %u of %u over %u rows: %08x, want %08x", i, count, num_rows,
                host[1 + i], want);
    }
    for (uint32_t i = count; is_in_place && i < num_rows * stride; i++)
        if (host[1 + i] != rows[i])
            ck_abort_msg(
                "word %u behind row 0 of %u: %08x, was %08x", i, count, host[1 + i], rows[i]);
}

START_TEST(maximum_over_rows)
{
    for (uint32_t num_rows = 1; num_rows <= 16; num_rows += 1 + num_rows / 4)
        for (uint32_t count = 0; count < 290; count += 1 + count / 3)
            check_rows(num_rows, count, count + num_rows % 3 * 5, _i != 0);
}
END_TEST

START_TEST(launchers_refuse_what_is_no_table)
{
    void *stream = device_stream();
    ck_assert_int_eq(f8cu_set_scales(NULL, 0, stream), F8_OK);
    ck_assert_int_eq(f8cu_set_scales(NULL, 1, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_max_rows(NULL, 0, 0, NULL, 0, stream), F8_OK);
    ck_assert_int_eq(f8cu_max_rows(NULL, 1, 1, scales, 1, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_max_rows(amaxes, 1, 1, NULL, 1, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_max_rows(amaxes, 0, 1, scales, 1, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_max_rows(amaxes, 2, 3, scales, 4, stream), F8_EINVAL);
    ck_assert_int_eq(f8cu_max_rows(amaxes, 1, 0, scales, 4, stream), F8_OK);
    ck_assert_str_eq(f8cu_error(), "no error");
    device_wait();
}
END_TEST

static Suite *cuda_scales_suite(void)
{
    Suite *suite = suite_create("cuda_scales");
    TCase *tcase = tcase_create("against f8k_scale");
    tcase_set_timeout(tcase, 600);
    tcase_add_checked_fixture(tcase, open_arrays, close_arrays);
    tcase_add_loop_test(tcase, scales_of_patterns, 0, KINDS);
    tcase_add_test(tcase, scales_at_the_edges);
    tcase_add_test(tcase, scales_of_any_count);
    tcase_add_test(tcase, scales_that_are_given);
    tcase_add_loop_test(tcase, maximum_over_rows, 0, 2);
    tcase_add_test(tcase, launchers_refuse_what_is_no_table);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    if (!device_open())
        return 77;
    int status =
        run_cases_unforked(cuda_scales_suite()); /* an open device does not survive a fork */
    device_close();
    return status;
}
