/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of names in the world of the links' explorer: a list, on the heap that the explorer saves
 * and goes back to. The daemon's own keeps the nodes of its tree where libc puts them.
 */
#include "daemon/names.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

struct node {
    struct node *next; /* owned */
    char name[];
};

int names_add(struct names *names, const char *name, const char **ret_name)
{
    for (const struct node *node = names->tree; node; node = node->next)
        if (strcmp(node->name, name) == 0)
            return F8_EEXIST;
    size_t size = strlen(name) + 1;
    struct node *added = malloc(sizeof(*added) + size);
    if (!added)
        return F8_ENOMEM;
    memcpy(added->name, name, size);
    added->next = names->tree;
    names->tree = added;
    *ret_name = added->name;
    return F8_OK;
}

void names_remove(struct names *names, const char *name)
{
    struct node **link = (struct node **)&names->tree;
    while (strcmp((*link)->name, name) != 0)
        link = &(*link)->next;
    struct node *node = *link;
    *link = node->next;
    free(node);
}

void names_done(struct names *names)
{
    while (names->tree) {
        struct node *node = names->tree;
        names->tree = node->next;
        free(node);
    }
}
