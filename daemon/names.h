/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of names that owns its strings: keeps the names of a list's weights or buckets unique
 * without comparing each with each. Called by weights on the loop.
 */
#ifndef F8_DAEMON_NAMES_H
#define F8_DAEMON_NAMES_H

#include <stdint.h>

struct names {
    void *tree; /* owned, as its strings are: tsearch's; NULL is empty */
    uint32_t count;
};

/*
 * Adds a copy of the name and gives it in *ret_name, valid until it is removed. F8_EEXIST if it is
 * there already, F8_ENOMEM.
 */
int names_add(struct names *names, const char *name, const char **ret_name);

/* Takes a name out and frees it; it must be in the set. */
void names_remove(struct names *names, const char *name);

/* Frees all; the struct may be used anew. */
void names_done(struct names *names);

#endif
