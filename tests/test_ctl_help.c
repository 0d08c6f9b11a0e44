/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What f8ctl says of itself: the help of all and of each command, what it takes a mistyped word
 * for, and that colours are a terminal's alone. There is no daemon.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/ctl_run.h"
#include "lib/ctl_terminal.h"
#include "lib/suite.h"

#define TEXT 16384

static char text[TEXT];

static void ask(const char *arguments, int status)
{
    int got = ctl_run(arguments, text, sizeof(text));
    ck_assert_msg(got == status, "%s: status %d: %s", arguments, got, text);
}

static void has(const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "no \"%s\" in: %s", part, text);
}

static void has_not(const char *part)
{
    ck_assert_msg(strstr(text, part) == NULL, "\"%s\" in: %s", part, text);
}

START_TEST(help_names_the_statuses)
{
    ask("--help", 0);
    has("Exit status:\n  0  all is well\n  1  the daemon refused");
    has("\n  2  wrong usage");
    has("\n  3  no daemon answers");
    has("\n  history NAME ");
    has("\n  --sort COLUMN ");
    has_not("\033");
}
END_TEST

/* Each command that the help of all lists has a help of its own, which asks no daemon. */
START_TEST(each_command_has_help)
{
    static char all[TEXT];
    int count = 0;
    ask("--help", 0);
    (void)snprintf(all, sizeof(all), "%s", text);
    char *line = strstr(all, "Commands:\n");
    ck_assert_ptr_nonnull(line);
    for (line = strchr(line, '\n') + 1; strncmp(line, "  ", 2) == 0;
         line = strchr(line, '\n') + 1) {
        char name[32], arguments[64], usage[64];
        ck_assert_int_eq(sscanf(line, " %31s", name), 1);
        (void)snprintf(arguments, sizeof(arguments), "%s --help --socket /nowhere", name);
        (void)snprintf(usage, sizeof(usage), "usage: f8ctl %s", name);
        ask(arguments, 0);
        ck_assert_msg(strncmp(text, usage, strlen(usage)) == 0, "%s: %s", name, text);
        has("Flags of every command:\n");
        has("Exit status:\n");
        count++;
    }
    ck_assert_int_ge(count, 18);
}
END_TEST

START_TEST(help_of_a_command_has_its_flags)
{
    ask("history --help", 0);
    has("usage: f8ctl history NAME [OPTION]...\n");
    has("Flags of this command:\n");
    has("\n  --last N ");
    has_not("--sort");
    ask("-h scales", 0);
    has("Columns of --sort:\n  job name scale bits");
    has("\n  --top N ");
    has_not("--last");
    has("\n  --job GLOB ");
    has("\n  --name GLOB ");
    ask("monitor --help", 0);
    has("\n  --job GLOB ");
    has_not("--name");
    ask("drain --help", 0);
    has_not("--job");
    ask("ping --help", 0);
    has_not("Flags of this command:");
    ask("frob --help", 2);
    has("no command is called frob");
}
END_TEST

START_TEST(mistyped_words_get_a_suggestion)
{
    static const struct {
        const char *typed, *meant;
    } words[] = {{"wieghts", "did you mean weights?"}, {"histroy", "did you mean history?"},
        {"hist", "did you mean history?"}, {"Scales", "did you mean scales?"},
        {"uniqueid", "did you mean unique-id?"}, {"--jsno jobs", "did you mean --json?"},
        {"--tiemout=3 jobs", "did you mean --timeout?"},
        {"wieghts --help", "did you mean weights?"}};
    static const char *const others[] = {"frobnicate", "x", "''", "--frobnicate jobs", "-- -x",
        "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        ask(words[i].typed, 2);
        has(words[i].meant);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        ask(others[i], 2);
        has_not("did you mean");
    }
}
END_TEST

START_TEST(colours_are_a_terminals)
{
    ck_assert_int_eq(ctl_run_on_terminal("", "--help", 80, text, sizeof(text)), 0);
    has("\033[1mCommands:\033[0m\n");
    ck_assert_int_eq(ctl_run_on_terminal("NO_COLOR=", "--help", 80, text, sizeof(text)), 0);
    has("\033[1m"); /* empty is not set: no-color.org */
    ck_assert_int_eq(ctl_run_on_terminal("NO_COLOR=1", "--help", 80, text, sizeof(text)), 0);
    has("Commands:\n");
    has_not("\033");
    ck_assert_int_eq(ctl_run_on_terminal("TERM=dumb", "--help", 80, text, sizeof(text)), 0);
    has_not("\033");
    ck_assert_int_eq(ctl_run_on_terminal("", "--help | cat", 80, text, sizeof(text)), 0);
    has_not("\033");
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("ctl_help");
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, help_names_the_statuses);
    tcase_add_test(cases, each_command_has_help);
    tcase_add_test(cases, help_of_a_command_has_its_flags);
    tcase_add_test(cases, mistyped_words_get_a_suggestion);
    tcase_add_test(cases, colours_are_a_terminals);
    return run_suite("ctl_help", cases);
}
