/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl's tables in terminals that are too narrow for them: no line wraps, what matters most stays,
 * and what is left out is said. Wide terminals, pipes and JSON have it all. Whole programs against
 * a fake daemon.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "lib/ctl_fake.h"
#include "lib/suite.h"
#include "protocol.h"

#define TEXT  16384
#define RANKS 8
#define PLAIN "NO_COLOR=1 LC_ALL=C.UTF-8"

static char text[TEXT], whole[TEXT];
static uint32_t pids[RANKS] = {40711, 40712, 40713, 40714, 40715, 40716, 40717, 40718};
static bool broken, is_kept, has_nan;
static const char *weight_name;

static bool answer_groups(int fd, const F8__Request *request)
{
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;
    F8__GroupInfo group = F8__GROUP_INFO__INIT;
    F8__GroupInfo *list[] = {&group};
    group.job = (char *)"llama-70b";
    group.name = (char *)"dp@tp=0";
    group.generation = 3;
    group.state = (char *)(broken ? "broken" : "sealed");
    group.world_size = RANKS;
    group.pids = pids;
    group.n_pids = RANKS;
    group.weights = 723;
    group.buckets = 82;
    group.slots = 2;
    group.arena_bytes = (uint64_t)68 << 30;
    group.float8_bytes = (uint64_t)64 << 30;
    group.gathers = 1234567;
    group.cause = (char *)(broken ? "rank 3 (pid 40714) died; group dp@tp=0 is broken from "
                                    "collective 17 on"
                                  : "");
    inspect.groups = list;
    inspect.n_groups = 1;
    return ctl_fake_inspected(fd, request, &inspect);
}

static bool answer_weights(int fd, const F8__Request *request)
{
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;
    F8__WeightInfo weight = F8__WEIGHT_INFO__INIT;
    F8__WeightInfo *list[] = {&weight};
    weight.job = (char *)"llama-70b";
    weight.group = (char *)"dp@tp=0";
    weight.name = (char *)(uintptr_t)weight_name;
    weight.flavour = F8_PROTO_DELAYED;
    weight.scale_known = weight.amax_known = true;
    weight.scale = 0x43e20c4a; /* 452.096 */
    weight.amax = 0x3f7d70a4;  /* 0.99 */
    weight.saturated = 12345;
    weight.kept = is_kept ? 3 : 0;
    weight.nan = has_nan ? 7 : 0;
    weight.syncs = 1000;
    inspect.weights = list;
    inspect.n_weights = 1;
    return ctl_fake_inspected(fd, request, &inspect);
}

static bool answer(int fd, const F8__Request *request, int memfd)
{
    (void)memfd;
    ck_assert_int_eq(request->body_case, F8__REQUEST__BODY_INSPECT);
    return request->inspect->view == F8__VIEW__GROUPS ? answer_groups(fd, request)
                                                      : answer_weights(fd, request);
}

static void on_terminal(const char *environment, const char *arguments, int columns)
{
    int status = ctl_fake_on_terminal(answer, environment, arguments, columns, text, sizeof(text));
    ck_assert_msg(status == 0, "%s: status %d: %s", arguments, status, text);
}

/* Characters of the longest line. */
static size_t widest(void)
{
    size_t widest = 0, length = 0;
    for (const char *at = text; *at; at++) {
        length = *at == '\n' ? 0 : length + (((unsigned char)*at & 0xc0) != 0x80);
        widest = length > widest ? length : widest;
    }
    return widest;
}

static void has(const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "no \"%s\" in:\n%s", part, text);
}

static void has_not(const char *part)
{
    ck_assert_msg(strstr(text, part) == NULL, "\"%s\" in:\n%s", part, text);
}

static void set_up(void)
{
    broken = is_kept = has_nan = false;
    weight_name = "layers.12.attention.wqkv.weight";
}

START_TEST(groups_fit_80_columns)
{
    on_terminal(PLAIN, "groups", 80);
    ck_assert_msg(widest() <= 80, "%s", text);
    has("llama-70b  dp@tp=0  sealed");
    has("RANKS");
    has("1234567");
    has("68.0 GiB");
    has_not("GENERATION");
    has_not("PIDS BY RANK"); /* they alone would take 47 */
    has("(no room for ");
    on_terminal(PLAIN, "groups", 120);
    ck_assert_msg(widest() <= 120, "%s", text);
    has("40711 40712");
}
END_TEST

START_TEST(a_cause_is_there_as_far_as_there_is_room)
{
    broken = true;
    on_terminal(PLAIN, "groups", 80);
    ck_assert_msg(widest() <= 80, "%s", text);
    has("broken");
    has("  rank 3 (pid 40714)");
    has("\xe2\x80\xa6");
    has(" collective 17 on\n");
    on_terminal("NO_COLOR=1 LC_ALL=C", "groups", 80);
    ck_assert_msg(widest() <= 80, "%s", text);
    has("...");
    on_terminal("", "groups", 80); /* colours take no room */
    has("\033[31mbroken\033[0m");
    has("collective 17 on");
}
END_TEST

START_TEST(scales_fit_80_columns)
{
    on_terminal(PLAIN, "scales", 80);
    ck_assert_msg(widest() <= 80, "%s", text);
    has("layers.12.attention.wqkv.weight");
    has("12345");
    has_not("SCALED AT");
    weight_name = "layers.12.attention.wqkv.w";
    on_terminal(PLAIN, "scales", 80);
    has("  SATURATED  NAN\n");
    is_kept = true; /* what is red goes before the rest */
    on_terminal(PLAIN, "scales", 80);
    has("  SATURATED  KEPT\n");
    weight_name = "module.encoder.blocks.117.self_attention.query_key_value.parametrized.weight";
    on_terminal(PLAIN, "scales", 80);
    ck_assert_msg(widest() <= 80, "%s", text);
    has("  SATURATED  KEPT\n");
    has("module.encoder");
    has(".weight ");
    has("\xe2\x80\xa6");
    on_terminal(PLAIN, "scales --sort kept", 20); /* cannot be helped */
    has("SCALE");
}
END_TEST

/* Names pay for what is red, and for nothing else. */
START_TEST(an_alarm_is_there_beside_a_long_name)
{
    weight_name = "encoder.blocks.117.self_attention.query_key_value.wt";
    has_nan = true;
    on_terminal(PLAIN, "scales", 80);
    ck_assert_msg(widest() <= 80, "%s", text);
    has("  NAN\n");
    has("  7\n");
    has("\xe2\x80\xa6");
    has_not("BITS");
}
END_TEST

START_TEST(amaxes_fit_80_columns)
{
    on_terminal(PLAIN, "amax", 80);
    ck_assert_msg(widest() <= 80, "%s", text);
    has("layers.12.attention.wqkv.weight");
}
END_TEST

/* Where there is room, and where nobody looks. */
START_TEST(elsewhere_all_of_it_is_there)
{
    static const char *const commands[] = {"groups", "scales", "amax", "weights", "groups --json"};
    broken = true;
    for (size_t c = 0; c < sizeof(commands) / sizeof(commands[0]); c++) {
        ctl_fake_must(answer, commands[c], whole, sizeof(whole));
        on_terminal(PLAIN, commands[c], 400);
        if (!strstr(commands[c], "--json")) /* which names the socket */
            ck_assert_str_eq(text, whole);
        has_not("no room");
    }
    ctl_fake_must(answer, "groups", text, sizeof(text));
    has("GENERATION");
    has("40718  rank 3 (pid 40714) died; group dp@tp=0 is broken from collective 17 on");
    on_terminal(PLAIN, "groups --json", 80);
    has("\"cause\":\"rank 3 (pid 40714) died; group dp@tp=0 is broken from collective 17 on\"");
    has_not("no room");
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("ctl_width");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, set_up, NULL);
    tcase_add_test(cases, groups_fit_80_columns);
    tcase_add_test(cases, a_cause_is_there_as_far_as_there_is_room);
    tcase_add_test(cases, scales_fit_80_columns);
    tcase_add_test(cases, an_alarm_is_there_beside_a_long_name);
    tcase_add_test(cases, amaxes_fit_80_columns);
    tcase_add_test(cases, elsewhere_all_of_it_is_there);
    return run_suite("ctl_width", cases);
}
