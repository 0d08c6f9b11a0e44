/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl completion: prints a shell's script, or the names that such a script asks for: one a line,
 * from a daemon if there is one. Called by main, which does not connect for it.
 */
#include "client/ctl/completion.h"

#include <stdlib.h>
#include <string.h>

#include "client/ctl/fetch.h"
#include "client/ctl/print_json.h"
#include "client/ctl/sort.h"
#include "client/error.h"

/* ---- what belongs where ---- */

const char *completion_word(enum completion_kind kind)
{
    static const char *const words[] = {
#define COMPLETION_ROW(kind, word) word,
        COMPLETION_KINDS(COMPLETION_ROW)
#undef COMPLETION_ROW
    };
    return words[kind];
}

/* By the word that stands for it in the help. */
static enum completion_kind kind_of(const char *word, size_t length)
{
    static const struct {
        const char *word;
        enum completion_kind kind;
    } kinds[] = {{"FILE", COMPLETION_FILES}, {"PATH", COMPLETION_FILES},
        {"COLUMN", COMPLETION_COLUMNS}, {"SHELL", COMPLETION_SHELL}, {"JOB", COMPLETION_JOBS},
        {"GROUP", COMPLETION_GROUPS}};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strlen(kinds[i].word) == length && strncmp(kinds[i].word, word, length) == 0) {
            return kinds[i].kind;
        }
    }
    return COMPLETION_NOTHING;
}

enum completion_kind completion_of_argument(const struct command *command, int n)
{
    const char *word = command->arguments != NULL ? command->arguments : "";
    size_t length;

    for (; n > 0; n--) {
        word += strcspn(word, " ");
        word += word[0] == ' ';
    }
    length = strcspn(word, " ");
    if (length == 4 && strncmp(word, "NAME", length) == 0) {
        return strcmp(command->name, "history") == 0 ? COMPLETION_DELAYED : COMPLETION_WEIGHTS;
    }
    if (strcmp(command->name, "evict") == 0) {
        return COMPLETION_EVICTABLE;
    }
    return kind_of(word, length);
}

enum completion_kind completion_of_value(const struct ctl_option *option)
{
    if (strcmp(option->flag, "job") == 0) {
        return COMPLETION_JOBS;
    }
    return kind_of(option->value, strlen(option->value));
}

int completion_num_arguments(const struct command *command)
{
    int count = command->arguments != NULL;

    for (const char *at = command->arguments; at != NULL && *at != '\0'; at++) {
        count += *at == ' ';
    }
    return count;
}

const char *completion_columns(const struct command *command)
{
    static char columns[1024];
    char titles[480];
    size_t used;

    if (command->sortable == NULL) {
        return "";
    }
    sort_titles(command->sortable, titles, sizeof(titles));
    used = (size_t)snprintf(columns, sizeof(columns), "%s", titles);
    for (char *title = strtok(titles, " "); title != NULL; title = strtok(NULL, " ")) {
        used += (size_t)snprintf(columns + used, sizeof(columns) - used, " -%s", title);
    }
    return columns;
}

/* ---- quotes ---- */

static void quote(FILE *to, const char *text, const char *quote_of_quote, bool backslashes)
{
    putc('\'', to);
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            fputs(quote_of_quote, to);
        } else if (*text == '\\' && backslashes) {
            fputs("\\\\", to);
        } else {
            putc(*text, to);
        }
    }
    putc('\'', to);
}

void completion_quote(FILE *to, const char *text)
{
    quote(to, text, "'\\''", false);
}

void completion_quote_fish(FILE *to, const char *text)
{
    quote(to, text, "\\'", true);
}

/* ---- the command ---- */

static const struct {
    const char *name;
    void (*print)(FILE *to);
} shells[] = {{"bash", completion_bash}, {"zsh", completion_zsh}, {"fish", completion_fish}};

static int print_script(struct ctl *ctl, const char *shell, void (*print)(FILE *to))
{
    char *script = NULL;
    size_t size = 0;
    FILE *to;
    int result;

    if (!ctl->json) {
        print(stdout);
        return CTL_OK;
    }
    to = open_memstream(&script, &size);
    if (to == NULL) {
        return ctl_failed(error_set(F8_ENOMEM, "no memory for a script"));
    }
    print(to);
    fclose(to);
    result =
        json_print(ctl, "completion", json_pack("{s:s, s:s}", "shell", shell, "script", script));
    free(script);
    return result;
}

/* The name in a row of that kind; NULL: it is not one of them. */
static const char *name_in(enum completion_kind kind, const void *row)
{
    const F8__WeightInfo *weight = row;
    const F8__JobInfo *job = row;

    switch (kind) {
    case COMPLETION_JOBS:
        return job->name;
    case COMPLETION_EVICTABLE:
        return job->clients == 0 ? job->name : NULL;
    case COMPLETION_GROUPS:
        return ((const F8__GroupInfo *)row)->name;
    case COMPLETION_DELAYED:
        return weight->flavour == F8_PROTO_DELAYED ? weight->name : NULL;
    default:
        return weight->name;
    }
}

static int print_names(struct ctl *ctl, enum completion_kind kind)
{
    static const F8__View views[] = {[COMPLETION_WEIGHTS] = F8__VIEW__WEIGHTS,
        [COMPLETION_DELAYED] = F8__VIEW__WEIGHTS,
        [COMPLETION_JOBS] = F8__VIEW__JOBS,
        [COMPLETION_EVICTABLE] = F8__VIEW__JOBS,
        [COMPLETION_GROUPS] = F8__VIEW__GROUPS};
    struct fetched fetched;
    json_t *array;
    int status = ctl_connect(ctl);

    if (status == F8_OK) {
        status = fetch(ctl, views[kind], NULL, &fetched);
    }
    if (status != F8_OK) {
        return ctl_failed(status);
    }
    array = ctl->json ? json_array() : NULL;
    for (size_t i = 0; i < fetched.num_rows; i++) {
        const char *name = name_in(kind, fetched.rows[i]);
        if (name != NULL && ctl->json) {
            json_array_append_new(array, json_string(name));
        } else if (name != NULL && name[0] != '-') { /* a shell would offer it as an option */
            printf("%s\n", name);
        }
    }
    fetch_done(&fetched);
    return ctl->json
               ? json_print(ctl, "completion", json_pack("{s:o}", completion_word(kind), array))
               : CTL_OK;
}

int command_completion(struct ctl *ctl)
{
    const char *what = ctl->arguments[0];

    for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++) {
        if (strcmp(what, shells[i].name) == 0) {
            return print_script(ctl, what, shells[i].print);
        }
    }
    for (int kind = COMPLETION_WEIGHTS; kind <= COMPLETION_GROUPS; kind++) {
        if (strcmp(what, completion_word((enum completion_kind)kind)) == 0) {
            return print_names(ctl, (enum completion_kind)kind);
        }
    }
    fprintf(stderr,
        "f8ctl: completion: no shell is called %s; there are bash, zsh and fish, and the names of "
        "weights, delayed, jobs, evictable jobs and groups for their scripts\n",
        what);
    return CTL_USAGE;
}
