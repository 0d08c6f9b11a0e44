/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl export --format json and import of it, against a fake daemon that gives a real state:
 * every bit comes back, and whatever else a file has is refused with the file and the key.
 */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/ctl_fake.h"
#include "lib/state_fixture.h"
#include "lib/suite.h"
#include "status.h"

#define TEXT 8192

static char directory[64], file[96], text[TEXT];
static struct state_form form; /* what the fake daemon exports */
static uint8_t imported[65536];
static ssize_t imported_size;

static bool answer(int fd, const F8__Request *request, int memfd)
{
    F8__Reply reply = F8__REPLY__INIT;
    F8__ExportReply export = F8__EXPORT_REPLY__INIT;
    if (request->body_case == F8__REQUEST__BODY_IMPORT) {
        imported_size = pread(memfd, imported, sizeof(imported), 0);
        return fake_reply_status(fd, request->id, F8_OK, "");
    }
    if (request->body_case != F8__REQUEST__BODY_EXPORT)
        return fake_reply_status(fd, request->id, F8_EINVAL, "no such request");
    int state = memfd_create("state", MFD_CLOEXEC);
    ck_assert_int_eq(write(state, form.bytes, form.size), (ssize_t)form.size);
    reply.id = request->id;
    reply.body_case = F8__REPLY__BODY_EXPORT;
    reply.export = &export;
    export.size = form.size;
    bool sent = fake_reply(fd, &reply, state);
    (void)close(state);
    return sent;
}

static void ask(const char *arguments, int status)
{
    char all[512];
    (void)snprintf(all, sizeof(all), "%s %s", arguments, file);
    int got = ctl_fake_run(answer, all, text, sizeof(text));
    ck_assert_msg(got == status, "%s: status %d: %s", arguments, got, text);
}

/* An export: no token, and scalings with all that a float and a counter can be. */
static void make_form(void)
{
    const struct state_owner owner = {
        .uid = 4000000000u, .job = "j\"o\\b", .group = "d\xc3\xa9p", .any_token = true};
    struct weight_list *list = state_fixture_model();
    struct scaling *scalings = state_fixture_scalings(list, 3);
    struct reason reason;
    scalings[0].scale = INFINITY;
    scalings[0].amax = 0x7fc00001; /* a NaN with something in it */
    scalings[0].gathers = UINT64_MAX;
    scalings[2].scale = 1e-45f;
    scalings[2].amax = 0x80000000; /* -0 */
    scalings[2].saturated = (uint64_t)INT64_MAX + 1;
    ck_assert_int_eq(state_form_make(&owner, list, scalings, 42, &form, &reason), F8_OK);
    free(scalings);
    weights_unref(list);
}

static void set_up(void)
{
    make_form();
    imported_size = -1;
    (void)strcpy(directory, "/tmp/f8-ctl-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(file, sizeof(file), "%s/state", directory);
}

static void tear_down(void)
{
    state_form_done(&form);
    (void)unlink(file);
    ck_assert_int_eq(rmdir(directory), 0);
}

static void write_text(const char *bytes, size_t size)
{
    FILE *stream = fopen(file, "w");
    ck_assert_uint_eq(fwrite(bytes, 1, size, stream), size);
    ck_assert_int_eq(fclose(stream), 0);
}

static json_t *exported(void)
{
    ask("--force --format json export run dp", 0);
    json_t *object = json_load_file(file, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(object);
    return object;
}

/* Takes the object, imports it, and expects a refusal that ends with `expected`. */
static void refused(json_t *object, const char *expected)
{
    char whole[TEXT];
    char *dumped = json_dumps(object, 0);
    write_text(dumped, strlen(dumped));
    free(dumped);
    json_decref(object);
    ask("import run dp --yes", 1);
    (void)snprintf(whole, sizeof(whole), "f8ctl: %s: %s", file, expected);
    ck_assert_msg(
        strncmp(text, whole, strlen(whole)) == 0, "%s\nwhere it should be\n%s", text, whole);
    ck_assert_int_eq(imported_size, -1);
}

START_TEST(every_bit_comes_back)
{
    json_decref(exported());
    ask("import run dp --yes", 0);
    ck_assert_int_eq(imported_size, (ssize_t)form.size);
    ck_assert_mem_eq(imported, form.bytes, form.size);
}
END_TEST

START_TEST(people_can_read_it)
{
    json_t *object = exported();
    json_t *weight = json_array_get(json_object_get(object, "weights"), 1);
    ck_assert_str_eq(json_string_value(json_object_get(object, "format")), "f8gather-state");
    ck_assert_int_eq(json_integer_value(json_object_get(object, "version")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(object, "syncs")), 42);
    ck_assert_int_eq(json_integer_value(json_object_get(object, "uid")), 4000000000);
    ck_assert_str_eq(json_string_value(json_object_get(object, "group")), "d\xc3\xa9p");
    ck_assert_str_eq(json_string_value(json_object_get(weight, "name")), "layers.0.wk");
    ck_assert_str_eq(json_string_value(json_object_get(weight, "format")), "e5m2");
    ck_assert_str_eq(json_string_value(json_object_get(weight, "scale_bits")), "0x00000001");
    ck_assert_str_eq(json_string_value(json_object_get(weight, "saturated")), "0x8000000000000000");
    ck_assert_uint_eq(json_array_size(json_object_get(weight, "history")), 3);
    weight = json_array_get(json_object_get(object, "weights"), 0);
    ck_assert(json_is_null(json_object_get(weight, "amax"))); /* no number */
    json_decref(object);
}
END_TEST

START_TEST(binary_is_what_it_was)
{
    ask("export run dp", 0);
    ask("import run dp --yes", 0);
    ck_assert_mem_eq(imported, form.bytes, form.size);
    ask("--force --format binary export run dp", 0);
    ask("--force --format xml export run dp", 2);
    ck_assert_str_eq(text, "f8ctl: --format xml: must be binary or json\n");
    ask("--format json import run dp --yes", 2);
}
END_TEST

/* What an import says of the file that is there now. */
static json_int_t syncs_of_import(void)
{
    ask("--json import run dp --yes", 0);
    json_t *object = json_loads(text, 0, NULL);
    const json_t *syncs = json_object_get(json_object_get(object, "import"), "syncs");
    ck_assert_msg(json_is_integer(syncs), "%s", text);
    json_int_t value = json_integer_value(syncs);
    json_decref(object);
    return value;
}

START_TEST(import_says_the_syncs_of_either_form)
{
    ask("export run dp", 0);
    ck_assert_int_eq(syncs_of_import(), 42);
    ask("import run dp --yes", 0);
    ck_assert_ptr_nonnull(strstr(text, ", as of sync 42"));
    json_decref(exported());
    ck_assert_int_eq(syncs_of_import(), 42);
}
END_TEST

START_TEST(a_newer_version_is_refused_by_name)
{
    json_t *object = exported();
    json_object_set_new(object, "version", json_integer(2));
    json_object_set_new(object, "novel", json_true());
    refused(object, "version: it is version 2 of f8gather-state, this f8ctl (" F8_VERSION
                    ") reads version 1: use a newer one");
    form.bytes[8] = 3;
    ask("--force --format json export run dp", 1);
    ck_assert_ptr_nonnull(strstr(text, "the export has format version 3, this f8ctl"));
}
END_TEST

static json_t *with(const char *key, json_t *value)
{
    json_t *object = exported();
    json_object_set_new(object, key, value);
    return object;
}

/* The same in weight 1. */
static json_t *weight_with(const char *key, json_t *value)
{
    json_t *object = exported();
    json_object_set_new(json_array_get(json_object_get(object, "weights"), 1), key, value);
    return object;
}

static json_t *weight_without(const char *key)
{
    json_t *object = exported();
    json_object_del(json_array_get(json_object_get(object, "weights"), 1), key);
    return object;
}

START_TEST(wrong_values_are_refused_by_key)
{
    char name[258];
    memset(name, 'n', 256);
    name[256] = '\0';
    refused(with("format", json_string("f8gather-stat")), "format: it is not \"f8gather-state\"");
    refused(with("version", json_string("1")), "version: it must be a whole number from 1 on");
    refused(with("job", json_integer(1)), "job: it must be a string of 1 to 255 bytes");
    refused(with("job", json_string("")), "job: it must be a string of 1 to 255 bytes");
    refused(with("group", json_array()), "group: it must be a string of 1 to 255");
    refused(with("uid", json_integer(4294967296)),
        "uid: it must be a whole number from 0 to 4294967295");
    refused(with("syncs", json_real(1)), "syncs: it must be a whole number from 0 to ");
    refused(with("syncs", json_integer(-1)), "syncs: it must be a whole number from 0 to ");
    refused(with("syncs", json_string("0x1")), "syncs: it must be a whole number from 0 to ");
    refused(with("weights", json_object()), "weights: it must be a list");
    refused(with("weights", json_pack("[n]")), "weights[0].: it must be an object");
    refused(with("wieghts", json_array()), "wieghts: there is no such key in version 1");
    refused(with("\x1b[31m", json_null()), "?[31m: there is no such key in version 1");
    refused(weight_with("name", json_string(name)), "weights[1].name: it must be a string of 1");
    refused(weight_with("dtype", json_string("float8")),
        "weights[1].dtype: it must be one of float32 bfloat16 float16");
    refused(
        weight_with("format", json_integer(1)), "weights[1].format: it must be one of e4m3fn e5m2");
    refused(weight_with("power_of_two", json_integer(1)),
        "weights[1].power_of_two: it must be true or false");
    refused(weight_with("history_algorithm", json_null()),
        "weights[1].history_algorithm: it must be one of max ");
    refused(weight_with("history_length", json_integer(0)),
        "weights[1].history_length: it must be at least 1");
    refused(weight_with("history_length", json_integer(1025)),
        "weights[1].history_length: it must be a whole number from 0 to 1024");
    refused(weight_with("history_length", json_integer(4)), "weights[1].history: it and history_");
    refused(weight_with("flavour", json_string("delayed")), "weights[1].flavour: there is no such");
    refused(weight_without("stale"), "weights[1].stale: it is missing");
    refused(weight_without("history_bits"), "weights[1].history_bits: it is missing");
}
END_TEST

START_TEST(floats_and_bits_must_agree)
{
    refused(weight_with("scale", json_real(2)), "weights[1].scale: it is not the number that its");
    refused(weight_with("scale", json_null()), "weights[1].scale: it is not the number that its");
    refused(weight_with("scale_bits", json_string("0x7f800000")), "weights[1].scale: it is not");
    refused(weight_with("scale_bits", json_string("0x7f80000")), "weights[1].scale: its bits must");
    refused(weight_with("scale_bits", json_string("1f800000")), "weights[1].scale: its bits must");
    refused(weight_with("scale_bits", json_integer(1)), "weights[1].scale: its bits must be a");
    refused(weight_with("history", json_pack("[f,f,n]", 1.0, 1.0)), "weights[1].history[");
}
END_TEST

/* A text that is no JSON, or none that ends. */
static void refused_text(const char *bytes, size_t size, const char *expected)
{
    write_text(bytes, size);
    ask("import run dp --yes", 1);
    ck_assert_msg(strstr(text, expected) != NULL, "it says: %s", text);
    ck_assert_ptr_nonnull(strstr(text, file));
    ck_assert_int_eq(imported_size, -1);
}

START_TEST(hostile_texts_are_refused)
{
    static char deep[200000];
    static const char nan[] = "{\"format\": NaN}", twice[] = "{\"format\": 1, \"format\": 2}",
                      large[] = "{\"format\": 1e999}", cut[] = "{\"format\": \"f8gather-state\",",
                      more[] = "{} {}", list[] = "[]", utf8[] = "{\"a\": \"\xff\"}",
                      nul[] = "{\"a\": \"b\\u0000\"}", escapes[] = "{\"a\": \x1b[31m}";
    memset(deep, '[', sizeof(deep));
    refused_text(nan, strlen(nan), "line 1, column ");
    refused_text(twice, strlen(twice), "duplicate object key");
    refused_text(large, strlen(large), "real number overflow");
    refused_text(cut, strlen(cut), "line 1, column ");
    refused_text(more, strlen(more), "end of file expected");
    refused_text(list, strlen(list), "it is no JSON object");
    refused_text(utf8, strlen(utf8), "unable to decode byte 0xff");
    refused_text(nul, strlen(nul), "\\u0000 is not allowed");
    refused_text(escapes, strlen(escapes), "line 1, column ");
    ck_assert_ptr_null(strchr(text, '\x1b'));
    refused_text(deep, sizeof(deep), "maximum parsing depth reached");
}
END_TEST

/* A file with a hole: it is as large as it says, and is not read. */
START_TEST(a_huge_file_is_refused)
{
    write_text("{", 1);
    ck_assert_int_eq(truncate(file, (off_t)1 << 40), 0);
    ask("import run dp --yes", 1);
    ck_assert_ptr_nonnull(strstr(text, "has 1099511627776 bytes, a state has at most 268435456"));
}
END_TEST

/* Every cut of the text, in steps. */
START_TEST(a_cut_text_is_refused)
{
    json_decref(exported());
    static char whole[65536];
    FILE *stream = fopen(file, "r");
    size_t size = fread(whole, 1, sizeof(whole), stream);
    (void)fclose(stream);
    for (size_t at = 1; at < size - 1; at += 61)
        refused_text(whole, at, "line ");
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("forms");
    tcase_set_timeout(tcase, 240);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, every_bit_comes_back);
    tcase_add_test(tcase, people_can_read_it);
    tcase_add_test(tcase, binary_is_what_it_was);
    tcase_add_test(tcase, import_says_the_syncs_of_either_form);
    tcase_add_test(tcase, a_newer_version_is_refused_by_name);
    tcase_add_test(tcase, wrong_values_are_refused_by_key);
    tcase_add_test(tcase, floats_and_bits_must_agree);
    tcase_add_test(tcase, hostile_texts_are_refused);
    tcase_add_test(tcase, a_huge_file_is_refused);
    tcase_add_test(tcase, a_cut_text_is_refused);
    return run_suite("ctl_state_json", tcase);
}
