/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The form of a stored state: what goes in comes out, bit for bit; whatever else comes in is
 * refused with a reason; differences to what a group registers are named.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "lib/state_fixture.h"
#include "lib/suite.h"
#include "status.h"

static struct weight_list *list;
static struct scaling *scalings;
static struct state_form form;
static struct state_head head;
static struct reason reason;

static void set_up(void)
{
    list = state_fixture_model();
    scalings = state_fixture_scalings(list, 7);
    form = state_fixture_form(list, scalings, 41);
}

static void tear_down(void)
{
    state_form_done(&form);
    free(scalings);
    weights_unref(list);
}

static int check(const uint8_t *bytes, size_t size)
{
    return state_form_check(bytes, size, "the import", &head, &reason);
}

/* Makes the header's checksum right again. */
static void sign_head(uint8_t *bytes)
{
    uint32_t size;
    memcpy(&size, bytes + 16, sizeof(size));
    memset(bytes + 12, 0, 4);
    uint32_t crc = (uint32_t)crc32(0, bytes, size);
    memcpy(bytes + 12, &crc, sizeof(crc));
}

START_TEST(comes_out_as_it_went_in)
{
    struct scaling *read = state_fixture_scalings(list, 0);
    ck_assert_int_eq(check(form.bytes, form.size), F8_OK);
    state_values_read(form.bytes + head.size, list, read);
    ck_assert(state_fixture_same(list, scalings, read));
    ck_assert_uint_eq(state_values_syncs(form.bytes + head.size), 41);
    ck_assert_uint_eq(head.num_weights, 2);
    ck_assert_uint_eq(head.owner.uid, 1000);
    ck_assert_str_eq(head.owner.job, "../job");
    ck_assert_str_eq(head.owner.group, "dp/../x");
    ck_assert_uint_eq(head.owner.token_size, 6);
    ck_assert_mem_eq(head.owner.token, "secret", 6);
    ck_assert_int_eq(state_head_compare(&head, list, "the import", &reason), F8_OK);
    free(read);
}
END_TEST

/* The bytes of docs/state.md, written by hand. */
START_TEST(bytes_are_as_documented)
{
    static const uint8_t fixed[] = {'f', '8', 'g', 's', 't', 'a', 't', 'e', 1, 0, 0, 0};
    static const uint8_t entry[] = {2, 1, 2, 0, 16, 0, 0, 11, 'l', 'a', 'y', 'e', 'r', 's', '.',
        '0', '.', 'w', 'q', 0, 1, 2, 2, 1, 3, 0, 1, 11, 'l'};
    const uint8_t *values = form.bytes + form.head.size;
    ck_assert_mem_eq(form.bytes, fixed, sizeof(fixed));
    ck_assert_mem_eq(form.bytes + 48, "../job\0dp/../x\0secret", 21);
    ck_assert_mem_eq(form.bytes + 48 + 21, entry, sizeof(entry));
    ck_assert_uint_eq(form.head.size, 112); /* 48 + 21 + 2 * 20, rounded up to 8 */
    ck_assert_uint_eq(form.head.values_size, 16 + 64 + 16 * 4 + 64 + 3 * 4 + 4);
    ck_assert_uint_eq(form.size, form.head.size + form.head.values_size);
    uint32_t crc = (uint32_t)crc32(0, values + 4, (uInt)form.head.values_size - 4);
    ck_assert_mem_eq(values, &crc, 4);
    ck_assert_mem_eq(values + 16, &scalings[0].scale, 4);
    uint32_t newest = scaling_history(&scalings[0], &list->weights[0], 0);
    ck_assert_mem_eq(values + 16 + 64, &newest, 4);
    ck_assert_mem_eq(values + 16 + 64 + 64 + 56, &scalings[2].delayed.syncs, 8);
}
END_TEST

START_TEST(every_flipped_bit_is_found)
{
    for (size_t i = 0; i < form.size * 8; i++) {
        form.bytes[i / 8] ^= (uint8_t)(1u << i % 8);
        reason.text[0] = '\0';
        ck_assert_msg(check(form.bytes, form.size) < 0, "bit %zu", i);
        ck_assert_ptr_eq(strstr(reason.text, "the import "), reason.text);
        form.bytes[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    ck_assert_int_eq(check(form.bytes, form.size), F8_OK);
}
END_TEST

/* The cut is in memory of its own, so that a sanitizer sees a read past its end. */
START_TEST(every_cut_is_found)
{
    for (size_t size = 0; size < form.size; size++) {
        uint8_t *cut = malloc(size ? size : 1);
        ck_assert_ptr_nonnull(cut);
        memcpy(cut, form.bytes, size);
        ck_assert_int_eq(check(cut, size), F8_EINVAL);
        free(cut);
    }
}
END_TEST

START_TEST(a_byte_too_many_is_found)
{
    uint8_t *longer = calloc(1, form.size + 1);
    ck_assert_ptr_nonnull(longer);
    memcpy(longer, form.bytes, form.size);
    ck_assert_int_eq(check(longer, form.size + 1), F8_EINVAL);
    free(longer);
}
END_TEST

START_TEST(newer_version_is_named)
{
    form.bytes[8] = 2;
    sign_head(form.bytes);
    ck_assert_int_eq(check(form.bytes, form.size), F8_EVERSION);
    ck_assert_ptr_nonnull(strstr(reason.text, "format version 2"));
    ck_assert_ptr_nonnull(strstr(reason.text, "reads version 1"));
}
END_TEST

/* Every byte of a header is set to values that a checksum does not find: nothing may crash. */
START_TEST(forged_headers_do_no_harm)
{
    static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff};
    struct scaling *read = state_fixture_scalings(list, 0);
    for (size_t i = 0; i < form.head.size; i++)
        for (size_t v = 0; v < sizeof(values); v++) {
            uint32_t told;
            uint8_t old[4];
            uint8_t *copy = malloc(form.size);
            ck_assert_ptr_nonnull(copy);
            memcpy(copy, form.bytes, form.size);
            memcpy(old, copy + 16, sizeof(old));
            copy[i] = values[v];
            memcpy(&told, copy + 16, sizeof(told));
            if (told <= form.size)
                sign_head(copy);
            if (check(copy, form.size) == F8_OK &&
                state_head_compare(&head, list, "the import", &reason) == F8_OK)
                state_values_read(copy + head.size, list, read);
            free(copy);
        }
    free(read);
}
END_TEST

/* Makes the checksum of the values right again. */
static void sign_values(void)
{
    uint8_t *values = form.bytes + form.head.size;
    uint32_t crc = (uint32_t)crc32(0, values + 4, (uInt)form.head.values_size - 4);
    memcpy(values, &crc, sizeof(crc));
}

/* A name that is no UTF-8, or that a terminal would take for a command. */
START_TEST(names_are_those_of_the_protocol)
{
    static const char *const bad[] = {"\x1b", "\x9b", "\x7f", "\xff"};
    static const size_t places[] = {48, 48 + 7, 48 + 21 + 8}; /* the job, the group, a weight */
    for (size_t p = 0; p < 3; p++)
        for (size_t b = 0; b < sizeof(bad) / sizeof(bad[0]); b++) {
            uint8_t old = form.bytes[places[p]];
            form.bytes[places[p]] = (uint8_t)bad[b][0];
            sign_head(form.bytes);
            ck_assert_int_eq(check(form.bytes, form.size), F8_EINVAL);
            ck_assert_ptr_nonnull(strstr(reason.text, "not its names"));
            form.bytes[places[p]] = old;
        }
    sign_head(form.bytes);
    ck_assert_int_eq(check(form.bytes, form.size), F8_OK);
}
END_TEST

static int check_import(void)
{
    return state_import_check(form.bytes, form.size, "the import", &head, &reason);
}

/* Puts bits at an offset of the first weight's values; the daemon's own files may have them. */
static void refuses_number(size_t offset, uint32_t bits, const char *text)
{
    uint8_t *at = form.bytes + form.head.size + 16 + offset;
    uint32_t old;
    memcpy(&old, at, sizeof(old));
    memcpy(at, &bits, sizeof(bits));
    sign_values();
    ck_assert_int_eq(check(form.bytes, form.size), F8_OK);
    ck_assert_int_eq(check_import(), F8_EINVAL);
    ck_assert_msg(strstr(reason.text, text), "%s", reason.text);
    memcpy(at, &old, sizeof(old));
    sign_values();
}

START_TEST(imports_have_numbers_that_casts_can_use)
{
    static const uint32_t scales[] = {
        0, 0x80000000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000};
    ck_assert_int_eq(check_import(), F8_OK);
    for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]); s++)
        refuses_number(0, scales[s], "the import has weight layers.0.wq with scale ");
    refuses_number(0, 0xbf800000, "scale -1 (bits 0xbf800000)");
    refuses_number(4, 0xc0000000, "layers.0.wq with amax -2 (bits 0xc0000000)");
    refuses_number(64 + 12, 0xff800000, "layers.0.wq with history[3] -inf (bits 0xff800000)");
    uint32_t nan = 0x7fc00000;
    memcpy(form.bytes + form.head.size + 16 + 4, &nan, sizeof(nan)); /* what a gather met */
    sign_values();
    ck_assert_int_eq(check_import(), F8_OK);
}
END_TEST

/* Puts bits at an offset of the first weight's values, for good. */
static void put_number(size_t offset, uint32_t bits)
{
    memcpy(form.bytes + form.head.size + 16 + offset, &bits, sizeof(bits));
    sign_values();
}

#define ZERO 0u
#define INF  0x7f800000u
#define NONE 0x7fc00000u

/* What weights with a NaN or an infinity leave, however many syncs ago they seeded the weight. */
START_TEST(imports_have_scales_of_unsound_seeds)
{
    static const uint32_t amaxes[] = {ZERO, INF, NONE, 0x7f800001, 0x7fffffff};
    for (size_t i = 0; i < 16; i++)
        put_number(64 + 4 * i, amaxes[i % 5]);
    put_number(0, NONE);
    ck_assert_msg(check_import() == F8_OK, "%s", reason.text);
    put_number(0, ZERO);
    ck_assert_msg(check_import() == F8_OK, "%s", reason.text);
    refuses_number(0, INF, "with scale inf (bits 0x7f800000): a scale must be above 0");
    refuses_number(0, 0x80000000, "with scale -0 (bits 0x80000000)");
    refuses_number(0, 0x7fc00001, "with scale nan (bits 0x7fc00001)");
    refuses_number(0, 0xffc00000, "(bits 0xffc00000)");
    refuses_number(64 + 60, 1, "with scale 0 (bits 0x00000000)"); /* a sound amax has set another */
    refuses_number(8, 2 | 4, "with scale 0 (bits 0x00000000)");   /* it was never seeded */
    refuses_number(8, 1 | 2, "with scale 0 (bits 0x00000000)");
}
END_TEST

START_TEST(imports_have_no_history_without_a_seed)
{
    put_number(8, 0);
    ck_assert_int_eq(check_import(), F8_EINVAL);
    ck_assert_ptr_nonnull(strstr(reason.text, "it is not initialised, so its history must be"));
    for (size_t i = 0; i < 16; i++)
        put_number(64 + 4 * i, ZERO);
    ck_assert_msg(check_import() == F8_OK, "%s", reason.text);
    refuses_number(64, NONE, "layers.0.wq with history[0] nan (bits 0x7fc00000)");
}
END_TEST

START_TEST(imports_have_a_weight_once)
{
    form.bytes[48 + 21 + 20 + 8 + 10] = 'q'; /* wk is a second wq */
    sign_head(form.bytes);
    ck_assert_int_eq(check_import(), F8_EINVAL);
    ck_assert_str_eq(reason.text, "the import has weight layers.0.wq twice");
}
END_TEST

START_TEST(another_owner_has_the_same_values)
{
    const struct state_owner other = {.uid = 5, .job = "b", .group = "g", .any_token = true};
    struct state_form copy;
    state_values_write(form.bytes + form.head.size, form.head.values_size, 99, 41, list, scalings);
    ck_assert_int_eq(
        state_form_copy(&other, &form.head, form.bytes + form.head.size, &copy, &reason), F8_OK);
    ck_assert_int_eq(check(copy.bytes, copy.size), F8_OK);
    ck_assert_uint_eq(head.owner.token_size, 0);
    ck_assert(head.owner.any_token);
    ck_assert_str_eq(head.owner.job, "b");
    ck_assert_uint_eq(state_values_counter(copy.bytes + head.size), 0);
    ck_assert_mem_eq(
        copy.bytes + head.size + 8, form.bytes + form.head.size + 8, form.head.values_size - 8);
    /* The token is nowhere in what goes out. */
    for (size_t i = 0; i + 6 <= copy.size; i++)
        ck_assert_mem_ne(copy.bytes + i, "secret", 6);
    state_form_done(&copy);
}
END_TEST

/* What is logged while `other`, which it frees, is compared. */
static void log_of_difference(struct weight_list *other, char *text, size_t size)
{
    int ends[2], out = dup(STDERR_FILENO);
    ck_assert_int_eq(pipe(ends), 0);
    (void)dup2(ends[1], STDERR_FILENO);
    int status = state_head_compare(&form.head, other, "stored state of group dp", &reason);
    (void)dup2(out, STDERR_FILENO);
    (void)close(out);
    (void)close(ends[1]);
    size_t used = 0;
    for (ssize_t n; (n = read(ends[0], text + used, size - 1 - used)) > 0;)
        used += (size_t)n;
    text[used] = '\0';
    (void)close(ends[0]);
    weights_unref(other);
    ck_assert_int_eq(status, F8_EMISMATCH);
}

static struct weight_list *list_of(const char *format, int count)
{
    struct weight_list *other = state_fixture_model();
    const struct weight weight = state_fixture_weight();
    for (int i = 0; i < count; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), format, i);
        state_fixture_add(other, name, &weight);
    }
    return other;
}

/* The sentence has but a few; who looks for the cause needs all, and a log has an end. */
START_TEST(all_differences_are_logged)
{
    static char text[32768];
    log_of_difference(list_of("embed.%03d", 4), text, sizeof(text));
    ck_assert_str_eq(text, "");
    log_of_difference(list_of("embed.%03d", 90), text, sizeof(text));
    for (int i = 0; i < 90; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "embed.%03d", i);
        ck_assert_msg(strstr(text, name), "%s is not in %s", name, text);
    }
    ck_assert_ptr_nonnull(strstr(text, "stored state of group dp: it lacks embed.000, embed.001"));
    ck_assert_ptr_null(strstr(text, "another"));
    log_of_difference(list_of("a.name.of.forty.bytes.or.a.few.more.%05d", 112), text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, ".more.00099"));
    ck_assert_ptr_null(strstr(text, ".more.00100"));
    ck_assert_ptr_nonnull(strstr(text, "stored state of group dp: it lacks another 12\n"));
}
END_TEST

/* Compares the model's state with another list, which it frees. */
static const char *difference(struct weight_list *other)
{
    ck_assert_int_eq(
        state_head_compare(&form.head, other, "stored state of group dp", &reason), F8_EMISMATCH);
    weights_unref(other);
    return reason.text;
}

START_TEST(differences_are_named)
{
    struct weight_list *other = state_fixture_list();
    struct weight weight = state_fixture_weight();
    state_fixture_add(other, "layers.0.wq", &weight);
    ck_assert_str_eq(difference(other),
        "stored state of group dp does not fit what the group registers: it has layers.0.wk, no "
        "delayed weights here; of another kind: layers.0.wq (the first is bfloat16 e4m3fn, history "
        "16 max there, float32 e4m3fn, history 16 max here)");
    other = state_fixture_list();
    for (int i = 0; i < 9; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "embed.%d", i);
        state_fixture_add(other, name, &weight);
    }
    ck_assert_str_eq(difference(other),
        "stored state of group dp does not fit what the group registers: it lacks embed.0, "
        "embed.1, embed.2, embed.3 and 5 more; it has layers.0.wk, layers.0.wq, no delayed "
        "weights here");
    other = state_fixture_model();
    state_fixture_add(other, "layers.1.wq", &weight);
    ck_assert_str_eq(difference(other),
        "stored state of group dp does not fit what the group registers: it lacks layers.1.wq");
}
END_TEST

/* The same weights in another order are other values. */
START_TEST(another_order_is_named)
{
    struct weight_list *model = state_fixture_model(), *other = state_fixture_list();
    for (uint32_t w = model->num_weights; w-- > 0;)
        state_fixture_add(other, model->weights[w].name, &model->weights[w]);
    weights_unref(model);
    ck_assert_str_eq(difference(other),
        "stored state of group dp has layers.0.wq as delayed weight 0 where the group registers "
        "layers.0.wk");
}
END_TEST

/* Sentences have an end, names need not be short. */
START_TEST(long_names_are_cut)
{
    char name[256];
    struct weight weight = state_fixture_weight();
    struct weight_list *other = state_fixture_list();
    memset(name, 'n', sizeof(name) - 1);
    name[255] = '\0';
    for (int i = 0; i < 3; i++) {
        name[0] = (char)('a' + i);
        state_fixture_add(other, name, &weight);
    }
    ck_assert_ptr_nonnull(strstr(difference(other), "n and 2 more; it has layers.0.wk"));
}
END_TEST

START_TEST(too_large_a_state_is_refused)
{
    struct weight_list *huge = state_fixture_list();
    struct weight weight = state_fixture_weight();
    struct state_form none;
    char name[32];
    weight.history_length = F8_PROTO_MAX_HISTORY_LENGTH;
    for (int i = 0; i < 65000; i++) {
        (void)snprintf(name, sizeof(name), "w%d", i);
        state_fixture_add(huge, name, &weight);
    }
    const struct state_owner owner = {.uid = 1, .job = "j", .group = "dp"};
    ck_assert_int_eq(state_form_make(&owner, huge, NULL, 0, &none, &reason), F8_ELIMIT);
    ck_assert_ptr_nonnull(strstr(reason.text, "the state of group dp takes"));
    weights_unref(huge);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("forms");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, comes_out_as_it_went_in);
    tcase_add_test(tcase, bytes_are_as_documented);
    tcase_add_test(tcase, every_flipped_bit_is_found);
    tcase_add_test(tcase, every_cut_is_found);
    tcase_add_test(tcase, a_byte_too_many_is_found);
    tcase_add_test(tcase, newer_version_is_named);
    tcase_add_test(tcase, forged_headers_do_no_harm);
    tcase_add_test(tcase, names_are_those_of_the_protocol);
    tcase_add_test(tcase, imports_have_numbers_that_casts_can_use);
    tcase_add_test(tcase, imports_have_scales_of_unsound_seeds);
    tcase_add_test(tcase, imports_have_no_history_without_a_seed);
    tcase_add_test(tcase, imports_have_a_weight_once);
    tcase_add_test(tcase, another_owner_has_the_same_values);
    tcase_add_test(tcase, differences_are_named);
    tcase_add_test(tcase, all_differences_are_logged);
    tcase_add_test(tcase, another_order_is_named);
    tcase_add_test(tcase, long_names_are_cut);
    tcase_add_test(tcase, too_large_a_state_is_refused);
    return run_suite("state_form", tcase);
}
