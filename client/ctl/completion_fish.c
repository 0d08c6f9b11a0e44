/* SPDX-License-Identifier: Apache-2.0 */
/* The script for fish: a line for each command, and for each flag of a command. */
#include "client/ctl/completion.h"

static const char head[] =
    "# fish completion of f8ctl, made by f8ctl completion fish. To use it:\n"
    "#     f8ctl completion fish > ~/.config/fish/completions/f8ctl.fish\n"
    "\n"
    "# The words before the cursor that are no flags, nor their values.\n"
    "function __f8ctl_words\n"
    "    set -l tokens (commandline -opc)\n"
    "    set -l skip 1 # the program\n"
    "    for token in $tokens\n"
    "        if test $skip -eq 1\n"
    "            set skip 0\n"
    "        else if contains -- $token $__f8ctl_valued\n"
    "            set skip 1\n"
    "        else if not string match -q -- '-*' $token\n"
    "            echo -- $token\n"
    "        end\n"
    "    end\n"
    "end\n"
    "\n"
    "# Whether that command is being completed, and so many of its arguments are there.\n"
    "function __f8ctl_at\n"
    "    set -l words (__f8ctl_words)\n"
    "    test \"$words[1]\" = \"$argv[1]\"; or return 1\n"
    "    test (count $argv) -lt 2; or test (count $words) -eq (math 1 + $argv[2])\n"
    "end\n"
    "\n"
    "# Names that a daemon knows, if one answers.\n"
    "function __f8ctl_names\n"
    "    set -l tokens (commandline -opc)\n"
    "    set -l where\n"
    "    for i in (seq 2 (count $tokens))\n"
    "        if contains -- $tokens[$i] --socket --job; and set -q tokens[(math $i + 1)]\n"
    "            set -a where $tokens[$i] $tokens[(math $i + 1)]\n"
    "        end\n"
    "    end\n"
    "    $tokens[1] $where --timeout 1 completion $argv[1] 2>/dev/null\n"
    "end\n"
    "\n";

/* What a place takes: " -F", " -a '...'", or nothing. */
static void print_kind(FILE *to, enum completion_kind kind, const struct command *command)
{
    switch (kind) {
    case COMPLETION_NOTHING:
        break;
    case COMPLETION_FILES:
        fprintf(to, " -F");
        break;
    case COMPLETION_COLUMNS:
        if (command != NULL) {
            fprintf(to, " -a '%s'", completion_columns(command));
        }
        break;
    case COMPLETION_SHELL:
        fprintf(to, " -a '" COMPLETION_SHELLS "'");
        break;
    default:
        fprintf(to, " -a '(__f8ctl_names %s)'", completion_word(kind));
    }
}

#define NO_COMMAND_YET "test (count (__f8ctl_words)) -eq 0"

/* A flag of one command; or (NULL) of every command, or one that may stand before its command. */
static void print_option(FILE *to, const struct ctl_option *option, const struct command *command)
{
    fprintf(to, "complete -c f8ctl");
    if (command != NULL) {
        fprintf(to, " -n '__f8ctl_at %s'", command->name);
    } else if (option->special != 0) {
        fprintf(to, " -n '" NO_COMMAND_YET "'");
    }
    fprintf(to, " -l %s%s", option->flag,
        option->value == NULL                             ? ""
        : completion_of_value(option) == COMPLETION_FILES ? " -r"
                                                          : " -x");
    if (option->value != NULL) {
        print_kind(to, completion_of_value(option), command);
    }
    fprintf(to, " -d ");
    completion_quote_fish(to, option->help);
    fprintf(to, "\n");
}

static void print_command(FILE *to, const struct command *command)
{
    fprintf(to, "complete -c f8ctl -n '" NO_COMMAND_YET "' -a %s -d ", command->name);
    completion_quote_fish(to, command->help);
    fprintf(to, "\n");
    for (int n = 0; n < completion_num_arguments(command); n++) {
        enum completion_kind kind = completion_of_argument(command, n);
        if (kind != COMPLETION_NOTHING) {
            fprintf(to, "complete -c f8ctl -n '__f8ctl_at %s %d'", command->name, n);
            print_kind(to, kind, command);
            fprintf(to, "\n");
        }
    }
    for (size_t i = 0; i < ctl_num_options; i++) {
        if (ctl_options[i].special != 0 && options_take(command, &ctl_options[i])) {
            print_option(to, &ctl_options[i], command);
        }
    }
}

void completion_fish(FILE *to)
{
    fprintf(to, "%sset -g __f8ctl_valued", head);
    for (size_t i = 0; i < ctl_num_options; i++) {
        if (ctl_options[i].value != NULL) {
            fprintf(to, " --%s", ctl_options[i].flag);
        }
    }
    fprintf(to, "\ncomplete -c f8ctl -f\n");
    for (size_t i = 0; i < ctl_num_options; i++) {
        print_option(to, &ctl_options[i], NULL);
    }
    for (size_t c = 0; c < ctl_num_commands; c++) {
        print_command(to, &ctl_commands[c]);
    }
}
