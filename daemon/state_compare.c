/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the weights of a stored state compare with those that a group registers: all that differ are
 * named, in the sentence as far as it has room, and in the log. See state_form.h; on the loop.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/log.h"
#include "daemon/state_table.h"
#include "status.h"

/* Names that a list in a sentence has; the others are counted. */
#define MAX_LISTED 4

/* Names of one list that the log has, and bytes of them in one line. */
#define MAX_LOGGED  100
#define LOGGED_LINE 640

/* Both sides, each sorted by name. */
struct sides {
    struct state_entry *stored, *registered; /* owned */
    uint32_t num_stored, num_registered;
};

/* One list of a sentence. */
struct listed {
    char text[200];
    uint32_t count, named;
};

/* The same list, whole, in lines of the log. */
struct logged {
    const char *what, *before; /* borrowed: what each line begins with */
    const struct log_fields *fields;
    char line[LOGGED_LINE];
    uint32_t count;
};

/* Takes the names of the three lists one after the other; of each list in order. */
struct walk {
    void (*take)(void *list, const char *name);
    void *lacks, *has, *differ;       /* borrowed: the lists */
    const struct state_entry *stored; /* borrowed: the first that is of another kind; NULL: none */
    const struct state_entry *registered; /* borrowed: what it is here */
};

/* "bfloat16 e4m3fn, history 16 max". */
static char *describe(const struct state_entry *entry, char *buffer, size_t size)
{
    (void)snprintf(buffer, size, "%s %s%s, history %u %s", f8_proto_dtype_name(entry->dtype),
        f8_proto_format_name(entry->format), entry->power_of_two ? " power-of-two" : "",
        entry->history_length, f8_proto_history_name(entry->history_algorithm));
    return buffer;
}

static struct state_entry entry_of(const struct weight *weight)
{
    return (struct state_entry){
        .name = weight->name,
        .history_length = weight->history_length,
        .dtype = weight->dtype,
        .format = weight->format,
        .flavour = weight->flavour,
        .history_algorithm = weight->history_algorithm,
        .power_of_two = weight->power_of_two,
    };
}

static bool same_kind(const struct state_entry *a, const struct state_entry *b)
{
    return a->dtype == b->dtype && a->format == b->format && a->power_of_two == b->power_of_two &&
           a->history_length == b->history_length && a->history_algorithm == b->history_algorithm;
}

/* The first place where the two are not the same; false: there is none. */
static bool find_difference(const struct sides *sides, uint32_t *ret_index)
{
    uint32_t i = 0;
    while (i < sides->num_stored && i < sides->num_registered &&
           strcmp(sides->stored[i].name, sides->registered[i].name) == 0 &&
           same_kind(&sides->stored[i], &sides->registered[i]))
        i++;
    *ret_index = i;
    return i < sides->num_stored || i < sides->num_registered;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct state_entry *)a)->name, ((const struct state_entry *)b)->name);
}

int state_names_check(const struct state_head *head, const char *what, struct reason *reason)
{
    const uint8_t *at = head->table, *end = at + head->table_size;
    struct state_entry *entries = calloc((size_t)head->num_weights + 1, sizeof(*entries));
    uint32_t count = 0;
    int status = F8_OK;
    if (!entries)
        return reason_set(reason, F8_ENOMEM, "out of memory checking the weights of %s", what);
    while (count < head->num_weights && state_entry_read(&at, end, &entries[count]))
        count++;
    qsort(entries, count, sizeof(*entries), by_name);
    for (uint32_t w = 1; w < count && status == F8_OK; w++)
        if (by_name(&entries[w - 1], &entries[w]) == 0)
            status =
                reason_set(reason, F8_EINVAL, "%s has weight %.200s twice", what, entries[w].name);
    free(entries);
    return status;
}

static void list(void *list, const char *name)
{
    struct listed *listed = list;
    size_t used = strlen(listed->text), room = sizeof(listed->text) - used;
    bool fits = listed->named == 0 || strlen(name) + 2 < room;
    if (listed->count++ >= MAX_LISTED || !fits)
        return;
    (void)snprintf(listed->text + used, room, "%s%.190s", listed->named++ > 0 ? ", " : "", name);
}

static void say(struct reason *reason, const char *before, const struct listed *listed,
    const char *after, const char **separator)
{
    if (listed->count == 0)
        return;
    reason_append(reason, "%s%s%s", *separator, before, listed->text);
    if (listed->named < listed->count)
        reason_append(reason, " and %u more", listed->count - listed->named);
    reason_append(reason, "%s", after);
    *separator = "; ";
}

static void flush_names(struct logged *logged)
{
    if (logged->line[0] != '\0')
        log_of(logged->fields, LOG_LEVEL_WARNING, "%s: %s%s", logged->what, logged->before,
            logged->line);
    logged->line[0] = '\0';
}

static void note_name(void *list, const char *name)
{
    struct logged *logged = list;
    if (logged->count++ >= MAX_LOGGED)
        return;
    if (strlen(logged->line) + strlen(name) + 2 >= sizeof(logged->line))
        flush_names(logged);
    size_t used = strlen(logged->line);
    (void)snprintf(
        logged->line + used, sizeof(logged->line) - used, "%s%s", used > 0 ? ", " : "", name);
}

static void end_names(struct logged *logged)
{
    flush_names(logged);
    if (logged->count > MAX_LOGGED)
        log_of(logged->fields, LOG_LEVEL_WARNING, "%s: %sanother %u", logged->what, logged->before,
            logged->count - MAX_LOGGED);
}

static void walk(const struct sides *sides, struct walk *walk)
{
    uint32_t s = 0, r = 0;
    while (s < sides->num_stored || r < sides->num_registered) {
        const struct state_entry *stored = &sides->stored[s], *registered = &sides->registered[r];
        int order = s == sides->num_stored       ? 1
                    : r == sides->num_registered ? -1
                                                 : strcmp(stored->name, registered->name);
        if (order > 0) {
            walk->take(walk->lacks, registered->name);
        } else if (order < 0) {
            walk->take(walk->has, stored->name);
        } else if (!same_kind(stored, registered)) {
            if (!walk->stored) {
                walk->stored = stored;
                walk->registered = registered;
            }
            walk->take(walk->differ, stored->name);
        }
        r += order >= 0;
        s += order <= 0;
    }
}

/* For who has to find the cause: the sentence has but a few names. A peer can cause it at will. */
static void log_all(const struct sides *sides, const struct state_owner *owner, const char *what)
{
    static struct log_limit limit;
    const struct log_fields fields = {.job = owner->job, .group = owner->group};
    struct logged lacks = {.what = what, .before = "it lacks ", .fields = &fields};
    struct logged has = {.what = what, .before = "it has, and the group not, ", .fields = &fields};
    struct logged differ = {.what = what, .before = "of another kind: ", .fields = &fields};
    struct walk names = {.take = note_name, .lacks = &lacks, .has = &has, .differ = &differ};
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (!log_allows(&limit, (uint64_t)now.tv_sec * 1000))
        return;
    walk(sides, &names);
    end_names(&lacks);
    end_names(&has);
    end_names(&differ);
}

static int refuse_order(
    const struct sides *sides, uint32_t first, const char *what, struct reason *reason)
{
    return reason_set(reason, F8_EMISMATCH,
        "%s has %.120s as delayed weight %u where the group registers %.120s", what,
        sides->stored[first].name, first, sides->registered[first].name);
}

/* The sentence for sides that differ. */
static int refuse(struct sides *sides, uint32_t first, const struct state_owner *owner,
    const char *what, struct reason *reason)
{
    struct listed lacks = {0}, has = {0}, differ = {0};
    struct walk names = {.take = list, .lacks = &lacks, .has = &has, .differ = &differ};
    const char *separator = " ";
    char stored[96], registered[96];
    if (first < sides->num_stored && first < sides->num_registered) /* if but the order differs */
        (void)refuse_order(sides, first, what, reason);
    qsort(sides->stored, sides->num_stored, sizeof(*sides->stored), by_name);
    qsort(sides->registered, sides->num_registered, sizeof(*sides->registered), by_name);
    walk(sides, &names);
    if (lacks.count + has.count + differ.count == 0)
        return F8_EMISMATCH;
    if (lacks.count + has.count == 0 && differ.count == 1)
        return reason_set(reason, F8_EMISMATCH, "%s has weight %s as %s; the group registers %s",
            what, names.stored->name, describe(names.stored, stored, sizeof(stored)),
            describe(names.registered, registered, sizeof(registered)));
    (void)reason_set(reason, F8_EMISMATCH, "%s does not fit what the group registers:", what);
    say(reason, "it lacks ", &lacks, "", &separator);
    say(reason, "it has ", &has, ", no delayed weights here", &separator);
    say(reason, "of another kind: ", &differ, "", &separator);
    if (differ.count > 0)
        reason_append(reason, " (the first is %s there, %s here)",
            describe(names.stored, stored, sizeof(stored)),
            describe(names.registered, registered, sizeof(registered)));
    if (lacks.named < lacks.count || has.named < has.count || differ.named < differ.count)
        log_all(sides, owner, what);
    return F8_EMISMATCH;
}

static void fill(
    struct sides *sides, const struct state_head *head, const struct weight_list *weights)
{
    const uint8_t *at = head->table, *end = at + head->table_size;
    while (sides->num_stored < head->num_weights &&
           state_entry_read(&at, end, &sides->stored[sides->num_stored]))
        sides->num_stored++;
    for (uint32_t w = 0; w < weights->num_weights; w++)
        if (state_has(&weights->weights[w]))
            sides->registered[sides->num_registered++] = entry_of(&weights->weights[w]);
}

int state_head_compare(const struct state_head *head, const struct weight_list *weights,
    const char *what, struct reason *reason)
{
    struct sides sides = {
        .stored = calloc((size_t)head->num_weights + 1, sizeof(*sides.stored)),
        .registered = calloc((size_t)weights->num_weights + 1, sizeof(*sides.registered)),
    };
    uint32_t first;
    int status = F8_OK;
    if (!sides.stored || !sides.registered) {
        status = reason_set(reason, F8_ENOMEM, "out of memory comparing the weights of %s", what);
    } else {
        fill(&sides, head, weights);
        if (find_difference(&sides, &first))
            status = refuse(&sides, first, &head->owner, what, reason);
    }
    free(sides.stored);
    free(sides.registered);
    return status;
}
