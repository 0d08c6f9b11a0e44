/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of names: see names.h. The C library's balanced tree: no choice of names makes one of them
 * cost more than a few comparisons, which would hold up the loop for all other clients.
 */
#include "daemon/names.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

int names_add(struct names *names, const char *name, const char **ret_name)
{
    char *copy = strdup(name);
    if (!copy)
        return F8_ENOMEM;
    /* One way down the tree: it gives the name that was there, if it was. */
    char **node = tsearch(copy, &names->tree, compare);
    if (!node || *node != copy) {
        free(copy);
        return node ? F8_EEXIST : F8_ENOMEM;
    }
    names->count++;
    *ret_name = copy;
    return F8_OK;
}

void names_remove(struct names *names, const char *name)
{
    /* A node of the tree begins with the pointer that was put in. */
    char *copy = *(char **)tfind(name, &names->tree, compare);
    (void)tdelete(copy, &names->tree, compare);
    free(copy);
    names->count--;
}

void names_done(struct names *names)
{
    tdestroy(names->tree, free);
    *names = (struct names){0};
}
