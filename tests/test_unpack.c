/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of protobuf's unpack: aligned pieces that do not overlap, what does not fit spills,
 * and a reset makes all of the block free again.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/unpack.h"
#include "f8gather.pb-c.h"
#include "status.h"
#include "tests/lib/suite.h"

#define PIECES 3000

static struct unpack unpack;

static void set_up(void)
{
    ck_assert_int_eq(unpack_init(&unpack), F8_OK);
}

static void tear_down(void)
{
    unpack_done(&unpack);
}

static char *grab(size_t size)
{
    char *memory = unpack.allocator.alloc(unpack.allocator.allocator_data, size);
    ck_assert_ptr_nonnull(memory);
    ck_assert_uint_eq((uintptr_t)memory % 16, 0);
    return memory;
}

START_TEST(pieces_are_aligned_and_apart)
{
    static char *pieces[PIECES];
    for (size_t i = 0; i < PIECES; i++) { /* more than the block: the last ones spill */
        pieces[i] = grab(i % 300);
        memset(pieces[i], (int)i, i % 300);
    }
    ck_assert_ptr_nonnull(unpack.spills);
    static char expected[300];
    for (size_t i = 0; i < PIECES; i++) {
        memset(expected, (int)i, i % 300);
        ck_assert_int_eq(memcmp(pieces[i], expected, i % 300), 0);
    }
}
END_TEST

START_TEST(reset_begins_anew)
{
    char *first = grab(100);
    (void)grab((size_t)1 << 20);
    ck_assert_ptr_nonnull(unpack.spills);
    unpack_reset(&unpack);
    ck_assert_ptr_null(unpack.spills);
    ck_assert_ptr_eq(grab(7), first);
    ck_assert_ptr_null(unpack.spills);
}
END_TEST

/* A piece that does not fit takes nothing from the block. */
START_TEST(small_pieces_follow_a_spill)
{
    char *first = grab(16);
    (void)grab((size_t)1 << 20);
    ck_assert_ptr_eq(grab(16), first + 16);
}
END_TEST

START_TEST(absurd_sizes_are_refused)
{
    ck_assert_ptr_null(unpack.allocator.alloc(unpack.allocator.allocator_data, SIZE_MAX));
    ck_assert_ptr_null(unpack.allocator.alloc(unpack.allocator.allocator_data, SIZE_MAX - 8));
}
END_TEST

/* A registration as large as packets get, many times in the same memory. */
START_TEST(messages_unpack_again_and_again)
{
    static F8__Weight weights[900];
    static F8__Weight *pointers[900];
    static uint8_t packet[1 << 16];
    F8__Register body = F8__REGISTER__INIT;
    F8__Request request = F8__REQUEST__INIT;
    for (size_t i = 0; i < 900; i++) {
        f8__weight__init(&weights[i]);
        weights[i].name = (char *)"layers.31.mlp.down_proj.weight";
        pointers[i] = &weights[i];
    }
    body.n_weights = 900;
    body.weights = pointers;
    request.body_case = F8__REQUEST__BODY_REGISTER;
    request.register_ = &body;
    size_t size = f8__request__pack(&request, packet);
    for (int i = 0; i < 20; i++) {
        F8__Request *again = f8__request__unpack(&unpack.allocator, size, packet);
        ck_assert_ptr_nonnull(again);
        ck_assert_uint_eq(again->register_->n_weights, 900);
        ck_assert_str_eq(again->register_->weights[899]->name, weights[899].name);
        unpack_reset(&unpack);
    }
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("unpack");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, pieces_are_aligned_and_apart);
    tcase_add_test(tcase, reset_begins_anew);
    tcase_add_test(tcase, small_pieces_follow_a_spill);
    tcase_add_test(tcase, absurd_sizes_are_refused);
    tcase_add_test(tcase, messages_unpack_again_and_again);
    return run_suite("unpack", tcase);
}
