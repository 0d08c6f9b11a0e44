/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl as an operator runs it, the whole program against a fake daemon: what it prints, what it
 * asks for, and its exit status when there is no daemon, no answer, or a refusal.
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ctl_run.h"
#include "lib/fake_daemon.h"
#include "lib/suite.h"

#define NUM_WEIGHTS 5
#define PAGE        2

static struct fake_daemon fake;

/* How the fake daemon behaves. */
enum manner {
    WILLING,
    REFUSES,
    SILENT,
    STUCK,   /* gives the same cursor again and again */
    HOSTILE, /* has names that no daemon of ours gives */
};
static enum manner manner;

/* What it was asked last. */
static char asked_job[256];
static char asked_name[256];

/* Weight i: the second has a NaN scale, the third none at all. */
static void make_weight(F8__WeightInfo *weight, uint64_t i, char *name, uint64_t *shape)
{
    f8__weight_info__init(weight);
    sprintf(
        name, manner == HOSTILE ? "--%d\x1b[2J\xe2\x80\xae\xc2\x9b\xff" : "layers.%d.w", (int)i);
    shape[0] = 4096;
    shape[1] = 1024 + i;
    weight->job = (char *)"run";
    weight->group = (char *)"dp";
    weight->bucket = (char *)"layers";
    weight->name = name;
    weight->shape = shape;
    weight->n_shape = 2;
    weight->dtype = F8_PROTO_BF16;
    weight->flavour = F8_PROTO_DYNAMIC;
    weight->format = F8_PROTO_E4M3FN;
    weight->wire = (char *)"e4m3fn";
    weight->scale = i == 1 ? 0x7fc00000 : 0x44600000;
    weight->amax = i == 1 ? 0x7fc00000 : 0x3f000000;
    weight->scale_known = i != 2;
    weight->amax_known = i != 2;
    weight->version = 7;
    weight->scale_version = 5;
    weight->gathers = 10 + i;
    weight->saturated = 3;
    weight->stale = 2;
    weight->bytes = 3 << 20;
}

static bool answer_weights(int fd, const F8__Request *request)
{
    F8__WeightInfo weights[PAGE];
    F8__WeightInfo *list[PAGE];
    char names[PAGE][32];
    uint64_t shapes[PAGE][2];
    F8__Reply reply = F8__REPLY__INIT;
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;
    uint64_t cursor = request->inspect->cursor;

    for (; inspect.n_weights < PAGE && cursor < NUM_WEIGHTS; cursor++) {
        size_t i = inspect.n_weights++;
        list[i] = &weights[i];
        make_weight(&weights[i], cursor, names[i], shapes[i]);
    }
    inspect.weights = list;
    inspect.cursor = manner == STUCK ? 2 : cursor < NUM_WEIGHTS ? cursor : 0;
    if (strcmp(asked_name, "none") == 0) {
        inspect.n_weights = 0;
        inspect.cursor = 0;
    }
    reply.id = request->id;
    reply.body_case = F8__REPLY__BODY_INSPECT;
    reply.inspect = &inspect;
    return fake_reply(fd, &reply, -1);
}

static bool answer(int fd, const F8__Request *request)
{
    F8__Reply reply = F8__REPLY__INIT;
    F8__PingReply ping = F8__PING_REPLY__INIT;

    if (manner == REFUSES) {
        return fake_reply_status(fd, request->id, F8_EPERM, "uid 7 may not look");
    }
    if (request->body_case == F8__REQUEST__BODY_INSPECT) {
        strcpy(asked_job, request->inspect->job);
        strcpy(asked_name, request->inspect->name);
        return answer_weights(fd, request);
    }
    ping.uptime_ms = 61000;
    reply.id = request->id;
    reply.body_case = F8__REPLY__BODY_PING;
    reply.ping = &ping;
    return fake_reply(fd, &reply, -1);
}

static void serve(struct fake_daemon *daemon, int fd)
{
    bool more = fake_hello(fd);

    (void)daemon;
    while (more) {
        F8__Request *request = fake_receive(fd, NULL);
        more = request != NULL;
        if (more && manner != SILENT) {
            more = answer(fd, request);
        }
        if (request != NULL) {
            fake_free(request);
        }
    }
}

/* Runs f8ctl against the fake daemon. */
static int ask(enum manner how, const char *arguments, char *text, size_t size)
{
    char all[512];
    int status;

    manner = how;
    fake_start(&fake, serve);
    snprintf(all, sizeof(all), "--socket %s %s", fake.socket, arguments);
    status = ctl_run(all, text, size);
    fake_stop(&fake);
    return status;
}

START_TEST(test_table_of_all_pages)
{
    static const char expected[] = "JOB  GROUP  BUCKET  NAME            SHAPE  SOURCE    FLAVOUR  "
                                   "GATHERED AS    BYTES  GATHERS\n"
                                   "run  dp     layers  layers.0.w  4096x1024  bfloat16  dynamic  "
                                   "e4m3fn       3.0 MiB       10\n"
                                   "run  dp     layers  layers.1.w  4096x1025  bfloat16  dynamic  "
                                   "e4m3fn       3.0 MiB       11\n"
                                   "run  dp     layers  layers.2.w  4096x1026  bfloat16  dynamic  "
                                   "e4m3fn       3.0 MiB       12\n"
                                   "run  dp     layers  layers.3.w  4096x1027  bfloat16  dynamic  "
                                   "e4m3fn       3.0 MiB       13\n"
                                   "run  dp     layers  layers.4.w  4096x1028  bfloat16  dynamic  "
                                   "e4m3fn       3.0 MiB       14\n";
    char text[4096];

    ck_assert_int_eq(ask(WILLING, "--job 'r*' --name 'l*' weights", text, sizeof(text)), 0);
    ck_assert_str_eq(text, expected);
    ck_assert_str_eq(asked_job, "r*");
    ck_assert_str_eq(asked_name, "l*");
}
END_TEST

START_TEST(test_scales)
{
    char text[4096];

    ck_assert_int_eq(ask(WILLING, "scales", text, sizeof(text)), 0);
    ck_assert_ptr_nonnull(
        strstr(text, "layers.0.w    896  0x44600000   0.5        7          5    2"
                     "      2          3    0           -     -\n"));
    ck_assert_ptr_nonnull(strstr(text, "layers.1.w    nan  0x7fc00000   nan"));
    ck_assert_ptr_nonnull(strstr(text, "layers.2.w      -  -              -"));
}
END_TEST

START_TEST(test_json)
{
    char text[8192];
    json_t *object, *rows, *row;

    ck_assert_int_eq(ask(WILLING, "scales --json", text, sizeof(text)), 0);
    object = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(object);
    ck_assert_str_eq(json_string_value(json_object_get(object, "schema")), "f8ctl/1");
    ck_assert_str_eq(json_string_value(json_object_get(object, "socket")), fake.socket);
    rows = json_object_get(object, "scales");
    ck_assert_uint_eq(json_array_size(rows), NUM_WEIGHTS);
    row = json_array_get(rows, 0);
    ck_assert_double_eq(json_real_value(json_object_get(row, "scale")), 896);
    ck_assert_str_eq(json_string_value(json_object_get(row, "scale_bits")), "0x44600000");
    ck_assert_int_eq(json_integer_value(json_object_get(row, "age")), 2);
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(row, "shape"), 1)), 1024);
    row = json_array_get(rows, 1); /* JSON has no NaN */
    ck_assert(json_is_null(json_object_get(row, "scale")));
    ck_assert_str_eq(json_string_value(json_object_get(row, "scale_bits")), "0x7fc00000");
    row = json_array_get(rows, 2);
    ck_assert(json_is_null(json_object_get(row, "scale_bits")));
    json_decref(object);
}
END_TEST

START_TEST(test_show)
{
    char text[8192];

    ck_assert_int_eq(ask(WILLING, "show 'w[0]*'", text, sizeof(text)), 0);
    ck_assert_str_eq(asked_name, "w\\[0\\]\\*"); /* a name, not a pattern */
    ck_assert_ptr_nonnull(strstr(text, "name            layers.0.w\n"));
    ck_assert_ptr_nonnull(strstr(text, "scale bits      0x44600000\n"));
    ck_assert_int_eq(ask(WILLING, "show none", text, sizeof(text)), 1);
    ck_assert_ptr_nonnull(strstr(text, "f8ctl: no weight is called none at "));
}
END_TEST

START_TEST(test_ping_and_version)
{
    char text[1024];

    ck_assert_int_eq(ask(WILLING, "ping", text, sizeof(text)), 0);
    ck_assert_ptr_nonnull(strstr(text, "f8gatherd (pid 4711) at "));
    ck_assert_ptr_nonnull(strstr(text, "up for 1 min 1 s\n"));
    ck_assert_int_eq(ask(WILLING, "version", text, sizeof(text)), 0);
    ck_assert_ptr_nonnull(strstr(text, "f8ctl " F8_VERSION ", protocol 1.0\nf8gatherd 0.0.0-fake"));
}
END_TEST

START_TEST(test_refused)
{
    char text[1024];

    ck_assert_int_eq(ask(REFUSES, "weights", text, sizeof(text)), 1);
    ck_assert_str_eq(text, "f8ctl: uid 7 may not look\n");
}
END_TEST

/* A terminal must not take a name for a command, nor a shell for an option. */
START_TEST(test_hostile_names)
{
    char text[4096];

    ck_assert_int_eq(ask(HOSTILE, "weights", text, sizeof(text)), 0);
    ck_assert_msg(strstr(text, "--0?[2J??? "), "%s", text);
    ck_assert_ptr_null(strpbrk(text, "\x1b\x80\x9b\xff"));
    ck_assert_int_eq(ask(HOSTILE, "completion weights", text, sizeof(text)), 0);
    ck_assert_str_eq(text, "");
    ck_assert_int_eq(ask(WILLING, "completion weights", text, sizeof(text)), 0);
    ck_assert_ptr_eq(strstr(text, "layers.0.w\n"), text);
}
END_TEST

START_TEST(test_no_answer)
{
    char text[1024];

    ck_assert_int_eq(ask(SILENT, "--timeout 0.05 weights", text, sizeof(text)), 3);
    ck_assert_ptr_nonnull(strstr(text, "did not answer within 50 ms"));
}
END_TEST

START_TEST(test_list_without_end)
{
    char text[1024];

    ck_assert_int_eq(ask(STUCK, "weights", text, sizeof(text)), 1);
    ck_assert_ptr_nonnull(strstr(text, "list does not go on at cursor 2"));
}
END_TEST

START_TEST(test_no_daemon_names_every_socket)
{
    char text[1024];
    int status;

    setenv("XDG_RUNTIME_DIR", "/nowhere/runtime", 1);
    status = ctl_run("status", text, sizeof(text));
    unsetenv("XDG_RUNTIME_DIR");
    if (status != 3) {
        return; /* a daemon of the system's own answers before it */
    }
    ck_assert_ptr_nonnull(strstr(text, "/run/f8gatherd/f8gatherd.sock"));
    ck_assert_ptr_nonnull(strstr(text, "/nowhere/runtime/f8gatherd.sock"));
}
END_TEST

/* Wrong usage names what is wrong, and needs no daemon. */
static const struct {
    const char *arguments;
    const char *text;
} wrong[] = {
    {"", "a command is missing"},
    {"frobnicate", "no command is called frobnicate"},
    {"show", "show: a NAME is missing"},
    {"jobs more", "jobs: takes no argument more"},
    {"--frob jobs", "--frob: no such flag"},
    {"--json=3 jobs", "--json=3: no such flag, or it takes no value"},
    {"jobs --socket", "--socket: a value is missing"},
    {"jobs --sort frob", "--sort frob: jobs has no column frob; its columns are: job uid clients"},
    {"--sort -since-synd amax", "amax has no column since-synd; its columns are: job group name"},
    {"--sort name status", "status: takes no --sort"},
    {"--top 3 ping", "ping: takes no --top"},
    {"--top 0 scales", "--top 0: must be a number from 1 to 4294967295"},
    {"--top -1 scales", "--top -1: must be a number from 1 to 4294967295"},
    {"--top 3x scales", "--top 3x: must be a number"},
    {"--top 4294967296 scales", "--top 4294967296: must be a number"},
    {"--last 3 scales", "scales: takes no --last"},
    {"drain --yes --job run", "drain: takes no --job"},
    {"evict run --yes --job run", "evict: takes no --job"},
    {"reset-amax w --yes --name w", "reset-amax: takes no --name"},
    {"log-level debug --job run", "log-level: takes no --job"},
    {"snapshot --job run", "snapshot: takes no --job"},
    {"export job group file --name w", "export: takes no --name"},
    {"metrics --job run", "metrics: takes no --job"},
    {"jobs --name w", "jobs: takes no --name"},
    {"monitor --name w", "monitor: takes no --name"},
    {"--job run status", "status: takes no --job"},
    {"history", "history: a NAME is missing"},
    {"export job", "export: a GROUP is missing"},
    {"export job group", "export: a FILE is missing"},
    {"import job group file more", "import: takes no argument more"},
    {"--force import job group file", "import: takes no --force"},
    {"--uid 0 jobs", "jobs: takes no --uid"},
    {"--uid me export job group file", "--uid me: must be a number from 0 to 4294967295"},
    {"--timeout 0 jobs", "--timeout 0: must be seconds"},
    {"--timeout 5x jobs", "--timeout 5x: must be seconds"},
    {"--timeout nan jobs", "--timeout nan: must be seconds"},
};

START_TEST(test_wrong_usage)
{
    char text[1024];

    ck_assert_int_eq(ctl_run(wrong[_i].arguments, text, sizeof(text)), 2);
    ck_assert_msg(
        strstr(text, wrong[_i].text) != NULL, "got: %s\nmust have: %s", text, wrong[_i].text);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("f8ctl");

    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, test_table_of_all_pages);
    tcase_add_test(cases, test_scales);
    tcase_add_test(cases, test_json);
    tcase_add_test(cases, test_show);
    tcase_add_test(cases, test_ping_and_version);
    tcase_add_test(cases, test_refused);
    tcase_add_test(cases, test_hostile_names);
    tcase_add_test(cases, test_no_answer);
    tcase_add_test(cases, test_list_without_end);
    tcase_add_test(cases, test_no_daemon_names_every_socket);
    tcase_add_loop_test(cases, test_wrong_usage, 0, sizeof(wrong) / sizeof(wrong[0]));
    return run_suite("ctl", cases);
}
