/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The script for bash: a function that looks at the words before the cursor, with the tables as
 * case statements. It needs bash 4.4, and no package of completions.
 */
#include "client/ctl/completion.h"

static const char head[] =
    "# bash completion of f8ctl, made by f8ctl completion bash. To use it in this shell:\n"
    "#     source <(f8ctl completion bash)\n"
    "# and in all: f8ctl completion bash > /etc/bash_completion.d/f8ctl\n"
    "\n"
    "# Offers those lines of standard input that begin as the word does.\n"
    "_f8ctl_offer() {\n"
    "    local line quoted\n"
    "    while IFS= read -r line; do\n"
    "        printf -v quoted %q \"$line\"\n"
    "        if [[ $line == \"$word\"* || $quoted == \"$word\"* ]]; then\n"
    "            COMPREPLY+=(\"$quoted\")\n"
    "        fi\n"
    "    done\n"
    "}\n"
    "\n"
    "# Offers the words of one argument.\n"
    "_f8ctl_words() {\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$word\")\n"
    "}\n"
    "\n"
    "# Offers names that a daemon knows, if one answers.\n"
    "_f8ctl_names() {\n"
    "    _f8ctl_offer < <(\"$program\" \"${where[@]}\" --timeout 1 completion \"$1\" 2>/dev/null)\n"
    "}\n"
    "\n"
    "_f8ctl_files() {\n"
    "    compopt -o filenames\n"
    "    mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
    "}\n";

/* The words before the cursor: flags with their values, the command, and its arguments. */
static const char begin[] =
    "\n"
    "_f8ctl() {\n"
    "    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} flag='' command=''\n"
    "    local -a where=()\n"
    "    local -i argument=0 i=1\n"
    "    COMPREPLY=()\n"
    "    for ((; i < COMP_CWORD; i++)); do\n"
    "        flag=''\n"
    "        case ${COMP_WORDS[i]} in\n";

static const char middle[] =
    "            flag=${COMP_WORDS[i]}\n"
    "            if [[ ${COMP_WORDS[i + 1]} == '=' ]]; then\n"
    "                i+=1\n"
    "            fi\n"
    "            i+=1\n"
    "            if ((i < COMP_CWORD)) && [[ $flag == --socket || $flag == --job ]]; then\n"
    "                where+=(\"$flag\" \"${COMP_WORDS[i]}\")\n"
    "            fi\n"
    "            ;;\n"
    "        -*) ;;\n"
    "        *)\n"
    "            if [[ -z $command ]]; then\n"
    "                command=${COMP_WORDS[i]}\n"
    "            else\n"
    "                argument+=1\n"
    "            fi\n"
    "            ;;\n"
    "        esac\n"
    "    done\n"
    "    if ((i == COMP_CWORD)); then\n"
    "        flag=''\n"
    "    elif [[ $word == '=' ]]; then\n"
    "        word=''\n"
    "    fi\n";

/* What offers a kind: "_f8ctl_names weights". */
static void print_kind(FILE *to, enum completion_kind kind, const struct command *command)
{
    switch (kind) {
    case COMPLETION_NOTHING:
        fprintf(to, ":");
        break;
    case COMPLETION_FILES:
        fprintf(to, "_f8ctl_files");
        break;
    case COMPLETION_COLUMNS:
        fprintf(to, "_f8ctl_words ");
        completion_quote(to, completion_columns(command));
        break;
    case COMPLETION_SHELL:
        fprintf(to, "_f8ctl_words '" COMPLETION_SHELLS "'");
        break;
    default:
        fprintf(to, "_f8ctl_names %s", completion_word(kind));
    }
}

static void print_valued_flags(FILE *to)
{
    fprintf(to, "        ");
    for (size_t i = 0, count = 0; i < ctl_num_options; i++) {
        if (ctl_options[i].value != NULL) {
            fprintf(to, "%s--%s", count++ > 0 ? " | " : "", ctl_options[i].flag);
        }
    }
    fprintf(to, ")\n");
}

/* The value of a flag; that of --sort depends on the command. */
static void print_values(FILE *to)
{
    fprintf(to, "    case \"$flag $command\" in\n");
    for (size_t i = 0; i < ctl_num_options; i++) {
        const struct ctl_option *option = &ctl_options[i];
        enum completion_kind kind =
            option->value != NULL ? completion_of_value(option) : COMPLETION_NOTHING;
        for (size_t c = 0; kind == COMPLETION_COLUMNS && c < ctl_num_commands; c++) {
            if (ctl_commands[c].sortable != NULL) {
                fprintf(to, "    '--%s %s') ", option->flag, ctl_commands[c].name);
                print_kind(to, kind, &ctl_commands[c]);
                fprintf(to, " ;;\n");
            }
        }
        if (kind != COMPLETION_NOTHING && kind != COMPLETION_COLUMNS) {
            fprintf(to, "    '--%s '*) ", option->flag);
            print_kind(to, kind, NULL);
            fprintf(to, " ;;\n");
        }
    }
    fprintf(to, "    esac\n    if [[ -n $flag ]]; then\n        return\n    fi\n");
}

static void print_flags(FILE *to)
{
    fprintf(to, "    if [[ $word == -* ]]; then\n        case $command in\n");
    for (size_t c = 0; c <= ctl_num_commands; c++) { /* the last: there is no command yet */
        const struct command *command = c < ctl_num_commands ? &ctl_commands[c] : NULL;
        fprintf(to, "        %s) _f8ctl_words '", command != NULL ? command->name : "*");
        for (size_t i = 0, count = 0; i < ctl_num_options; i++) {
            if (command == NULL || options_take(command, &ctl_options[i])) {
                fprintf(to, "%s--%s", count++ > 0 ? " " : "", ctl_options[i].flag);
            }
        }
        fprintf(to, "' ;;\n");
    }
    fprintf(to, "        esac\n        return\n    fi\n");
}

static void print_arguments(FILE *to)
{
    fprintf(to, "    case \"$command $argument\" in\n    ' '*) _f8ctl_words '");
    for (size_t c = 0; c < ctl_num_commands; c++) {
        fprintf(to, "%s%s", c > 0 ? " " : "", ctl_commands[c].name);
    }
    fprintf(to, "' ;;\n");
    for (size_t c = 0; c < ctl_num_commands; c++) {
        for (int n = 0; n < completion_num_arguments(&ctl_commands[c]); n++) {
            fprintf(to, "    '%s %d') ", ctl_commands[c].name, n);
            print_kind(to, completion_of_argument(&ctl_commands[c], n), NULL);
            fprintf(to, " ;;\n");
        }
    }
    fprintf(to, "    esac\n");
}

void completion_bash(FILE *to)
{
    fprintf(to, "%s%s", head, begin);
    print_valued_flags(to);
    fprintf(to, "%s", middle);
    print_values(to);
    print_flags(to);
    print_arguments(to);
    fprintf(to, "}\n\ncomplete -F _f8ctl f8ctl\n");
}
