/* SPDX-License-Identifier: Apache-2.0 */
/* The help of f8ctl: see help.h. */
#include "client/ctl/help.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/colour.h"
#include "client/ctl/sort.h"

/* What scripts may rely on; docs/operating.md has the same table. */
static const struct {
    int status;
    const char *meaning;
} statuses[] = {
    {CTL_OK, "all is well"},
    {CTL_REFUSED, "the daemon refused, what was asked for is not there, FILE cannot be read or"},
    {-1, "written, or the doctor found a fault"},
    {CTL_USAGE, "wrong usage: nothing was asked or changed"},
    {CTL_NO_DAEMON, "no daemon answers; the sockets that were tried are named"},
};

static void print_heading(const char *text)
{
    printf("\n%s%s%s\n", colour_begin(stdout, COLOUR_HEADING), text,
        colour_end(stdout, COLOUR_HEADING));
}

static void print_row(const char *name, const char *argument, const char *help)
{
    char text[64];

    snprintf(text, sizeof(text), "%s%s%s", name, argument != NULL ? " " : "",
        argument != NULL ? argument : "");
    printf("  %-22s %s\n", text, help);
}

static void print_option(const struct ctl_option *option)
{
    char flag[32];

    snprintf(flag, sizeof(flag), "--%s", option->flag);
    print_row(flag, option->value, option->help);
}

static void print_statuses(void)
{
    print_heading("Exit status:");
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        if (statuses[i].status >= 0) {
            printf("  %d  %s\n", statuses[i].status, statuses[i].meaning);
        } else {
            printf("     %s\n", statuses[i].meaning);
        }
    }
}

void help_print(void)
{
    printf("usage: f8ctl [OPTION]... COMMAND\n\n"
           "Shows what f8gatherd is doing. f8ctl COMMAND --help says more of a command.\n");
    print_heading("Commands:");
    for (size_t i = 0; i < ctl_num_commands; i++) {
        print_row(ctl_commands[i].name, ctl_commands[i].arguments, ctl_commands[i].help);
    }
    print_heading("Options:");
    for (size_t i = 0; i < ctl_num_options; i++) {
        print_option(&ctl_options[i]);
    }
    printf("\nColumns are named as in the list's heading, in any case, with '-' for spaces.\n"
           "Colours are for terminals, and not where NO_COLOR is set or TERM is dumb.\n");
    print_statuses();
    printf("\nf8ctl never starts a daemon.\n");
}

/* Those that every command takes, or those of this one; false if there are none. */
static bool print_options(const struct command *command, bool special)
{
    bool any = false;

    for (size_t i = 0; i < ctl_num_options; i++) {
        const struct ctl_option *option = &ctl_options[i];
        if ((option->special != 0) == special && options_take(command, option)) {
            if (!any) {
                print_heading(special ? "Flags of this command:" : "Flags of every command:");
            }
            print_option(option);
            any = true;
        }
    }
    return any;
}

void help_print_command(const struct command *command)
{
    char titles[512];

    printf("usage: f8ctl %s%s%s [OPTION]...\n\n%c%s.\n", command->name,
        command->arguments != NULL ? " " : "", command->arguments != NULL ? command->arguments : "",
        toupper((unsigned char)command->help[0]), command->help + 1);
    print_options(command, true);
    if (command->sortable != NULL) {
        print_heading("Columns of --sort:");
        printf("  %s\n", sort_titles(command->sortable, titles, sizeof(titles)));
    }
    print_options(command, false);
    print_statuses();
}

/* ---- what was meant ---- */

#define LONGEST 32

static unsigned int least(unsigned int a, unsigned int b)
{
    return a < b ? a : b;
}

/*
 * Letters to change, to leave out, to put in or to swap with their neighbours, to make `to` of the
 * first `length` of `word`: the "optimal string alignment" distance, by rows.
 */
static unsigned int distance(const char *word, size_t length, const char *to)
{
    unsigned int rows[3][LONGEST + 1] = {{0}};
    size_t to_length = strlen(to);

    for (size_t j = 0; j <= to_length; j++) {
        rows[0][j] = (unsigned int)j;
    }
    for (size_t i = 1; i <= length; i++) {
        unsigned int *row = rows[i % 3], *above = rows[(i + 2) % 3], *higher = rows[(i + 1) % 3];
        row[0] = (unsigned int)i;
        for (size_t j = 1; j <= to_length; j++) {
            row[j] =
                least(least(above[j], row[j - 1]) + 1, above[j - 1] + (word[i - 1] != to[j - 1]));
            if (i > 1 && j > 1 && word[i - 1] == to[j - 2] && word[i - 2] == to[j - 1]) {
                row[j] = least(row[j], higher[j - 2] + 1);
            }
        }
    }
    return rows[length % 3][to_length];
}

/* Takes the candidate if it is nearer than what was found: one letter in three may be wrong. */
static void consider(const char *word, size_t length, const char *candidate, unsigned int *nearest,
    const char **ret_found)
{
    unsigned int far;

    if (length == 0 || length > LONGEST || strlen(candidate) > LONGEST) {
        return;
    }
    far = length >= 3 && strncmp(word, candidate, length) == 0 ? 1
                                                               : distance(word, length, candidate);
    if (far < *nearest && far <= (length + 2) / 3) {
        *nearest = far;
        *ret_found = candidate;
    }
}

const char *help_suggest_command(const char *word)
{
    unsigned int nearest = LONGEST;
    const char *found = NULL;

    for (size_t i = 0; i < ctl_num_commands; i++) {
        consider(word, strlen(word), ctl_commands[i].name, &nearest, &found);
    }
    return found;
}

const char *help_suggest_flag(const char *word)
{
    unsigned int nearest = LONGEST;
    const char *found = NULL;

    word += strspn(word, "-");
    for (size_t i = 0; i < ctl_num_options; i++) {
        consider(word, strcspn(word, "="), ctl_options[i].flag, &nearest, &found);
    }
    return found;
}
