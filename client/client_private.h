/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects behind the library's handles, for the sources of libf8client only. A client has one
 * channel, regions and groups; all are freed by f8_close. Locks: a client's is taken before a
 * group's, and no thread holds those of two groups.
 */
#ifndef F8_CLIENT_PRIVATE_H
#define F8_CLIENT_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "client/channel.h"
#include "client/f8client.h"

struct f8_client {
    struct channel *channel;   /* owned */
    pid_t pid;                 /* of the process that connected: a forked child has another */
    pthread_mutex_t lock;      /* of the two lists */
    struct f8_region *regions; /* owned: a list */
    struct f8_group *groups;   /* owned: a list; those that are being joined too */
    atomic_uint_fast64_t gathers;
};

struct f8_region {
    struct f8_client *client; /* borrowed: the client that owns this */
    struct f8_region *next;
    uint32_t id;   /* of the daemon */
    void *address; /* owned: the mapping of f8_region_alloc; NULL if shared */
    uint64_t size;
};

/* F8_EINVAL for a NULL client, F8_EFORKED in a child of the process that connected, else F8_OK. */
int client_enter(const struct f8_client *client);

/* F8_EINVAL, saying so, unless `name` has 1 to 255 bytes; `what` it names is for the text. */
int client_check_name(const char *what, const char *name);

/* F8_EINVAL if `call` was given a stream though the client works on no device. */
int client_check_stream(const struct f8_client *client, const char *call, const void *stream);

/* region.c: unmaps and frees a region that is in no list. NULL is allowed. */
void region_destroy(struct f8_region *region);

/* group.c; a forked child leaves the arena's address range alone, it is not mapped there. */
void group_free(struct f8_group *group, bool forked);

#endif
