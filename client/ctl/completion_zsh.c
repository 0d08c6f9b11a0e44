/* SPDX-License-Identifier: Apache-2.0 */
/* The script for zsh: as that for bash, with a description of each command and flag. */
#include "client/ctl/completion.h"

static const char head[] =
    "#compdef f8ctl\n"
    "# zsh completion of f8ctl, made by f8ctl completion zsh. To use it in this shell:\n"
    "#     source <(f8ctl completion zsh)\n"
    "# and in all: f8ctl completion zsh > /usr/share/zsh/site-functions/_f8ctl\n"
    "\n"
    "# Offers names that a daemon knows, if one answers.\n"
    "_f8ctl_names() {\n"
    "  compadd -- ${(f)\"$($words[1] $where --timeout 1 completion $1 2>/dev/null)\"}\n"
    "}\n"
    "\n"
    "_f8ctl() {\n"
    "  local word=$words[CURRENT] flag='' command=''\n"
    "  local -a where=() offered\n"
    "  local -i argument=0 i=2\n"
    "  for ((; i < CURRENT; i++)); do\n"
    "    flag=''\n"
    "    case $words[i] in\n"
    "    --*=*) ;;\n";

static const char middle[] =
    "      flag=$words[i]\n"
    "      i+=1\n"
    "      if ((i < CURRENT)) && [[ $flag == --socket || $flag == --job ]]; then\n"
    "        where+=($flag ${(Q)words[i]})\n"
    "      fi\n"
    "      ;;\n"
    "    -*) ;;\n"
    "    *)\n"
    "      if [[ -z $command ]]; then\n"
    "        command=$words[i]\n"
    "      else\n"
    "        argument+=1\n"
    "      fi\n"
    "      ;;\n"
    "    esac\n"
    "  done\n"
    "  if ((i == CURRENT)); then\n"
    "    flag=''\n"
    "  fi\n"
    "  if [[ -z $flag && $word == --*=* ]]; then\n"
    "    flag=${word%%=*}\n"
    "    compset -P '*='\n"
    "  fi\n";

static void print_kind(FILE *to, enum completion_kind kind, const struct command *command)
{
    switch (kind) {
    case COMPLETION_NOTHING:
        fprintf(to, ":");
        break;
    case COMPLETION_FILES:
        fprintf(to, "_files");
        break;
    case COMPLETION_COLUMNS:
        fprintf(to, "compadd -- %s", completion_columns(command));
        break;
    case COMPLETION_SHELL:
        fprintf(to, "compadd -- " COMPLETION_SHELLS);
        break;
    default:
        fprintf(to, "_f8ctl_names %s", completion_word(kind));
    }
}

static void print_valued_flags(FILE *to)
{
    fprintf(to, "    ");
    for (size_t i = 0, count = 0; i < ctl_num_options; i++) {
        if (ctl_options[i].value != NULL) {
            fprintf(to, "%s--%s", count++ > 0 ? "|" : "", ctl_options[i].flag);
        }
    }
    fprintf(to, ")\n");
}

static void print_values(FILE *to)
{
    fprintf(to, "  case \"$flag $command\" in\n");
    for (size_t i = 0; i < ctl_num_options; i++) {
        const struct ctl_option *option = &ctl_options[i];
        enum completion_kind kind =
            option->value != NULL ? completion_of_value(option) : COMPLETION_NOTHING;
        for (size_t c = 0; kind == COMPLETION_COLUMNS && c < ctl_num_commands; c++) {
            if (ctl_commands[c].sortable != NULL) {
                fprintf(to, "  '--%s %s') ", option->flag, ctl_commands[c].name);
                print_kind(to, kind, &ctl_commands[c]);
                fprintf(to, " ;;\n");
            }
        }
        if (kind != COMPLETION_NOTHING && kind != COMPLETION_COLUMNS) {
            fprintf(to, "  '--%s '*) ", option->flag);
            print_kind(to, kind, NULL);
            fprintf(to, " ;;\n");
        }
    }
    fprintf(to, "  esac\n  if [[ -n $flag ]]; then\n    return\n  fi\n");
}

/* 'name:what it does': in quotes, an array's element of _describe. */
static void print_described(FILE *to, const char *dashes, const char *name, const char *help)
{
    char text[512];

    snprintf(text, sizeof(text), "%s%s:%s", dashes, name, help);
    fprintf(to, "      ");
    completion_quote(to, text);
    fprintf(to, "\n");
}

static void print_flags(FILE *to)
{
    fprintf(to, "  if [[ $word == -* ]]; then\n    case $command in\n");
    for (size_t c = 0; c <= ctl_num_commands; c++) { /* the last: there is no command yet */
        const struct command *command = c < ctl_num_commands ? &ctl_commands[c] : NULL;
        fprintf(to, "    %s) offered=(\n", command != NULL ? command->name : "*");
        for (size_t i = 0; i < ctl_num_options; i++) {
            if (command == NULL || options_take(command, &ctl_options[i])) {
                print_described(to, "--", ctl_options[i].flag, ctl_options[i].help);
            }
        }
        fprintf(to, "    ) ;;\n");
    }
    fprintf(to, "    esac\n    _describe -o flag offered\n    return\n  fi\n");
}

static void print_arguments(FILE *to)
{
    fprintf(to, "  case \"$command $argument\" in\n  ' '*)\n    offered=(\n");
    for (size_t c = 0; c < ctl_num_commands; c++) {
        print_described(to, "", ctl_commands[c].name, ctl_commands[c].help);
    }
    fprintf(to, "    )\n    _describe command offered\n    ;;\n");
    for (size_t c = 0; c < ctl_num_commands; c++) {
        for (int n = 0; n < completion_num_arguments(&ctl_commands[c]); n++) {
            fprintf(to, "  '%s %d') ", ctl_commands[c].name, n);
            print_kind(to, completion_of_argument(&ctl_commands[c], n), NULL);
            fprintf(to, " ;;\n");
        }
    }
    fprintf(to, "  esac\n");
}

void completion_zsh(FILE *to)
{
    fprintf(to, "%s", head);
    print_valued_flags(to);
    fprintf(to, "%s", middle);
    print_values(to);
    print_flags(to);
    print_arguments(to);
    fprintf(to, "}\n\n"
                "if [[ $funcstack[1] == _f8ctl ]]; then\n  _f8ctl \"$@\"\nelse\n"
                "  compdef _f8ctl f8ctl\nfi\n");
}
