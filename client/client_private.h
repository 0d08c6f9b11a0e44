/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects behind the library's handles, for the sources of libf8client only. A client has one
 * channel, regions and groups; all are freed by f8_close. Locks, in the order of taking:
 * region_lock, a client's, a group's, its device's; no thread holds those of two groups.
 */
#ifndef F8_CLIENT_PRIVATE_H
#define F8_CLIENT_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "client/channel.h"
#include "client/device.h"
#include "client/f8client.h"

/* In place of a number of calls. */
#define CLIENT_SEIZED (-1)

struct f8_client {
    struct channel *channel;         /* owned */
    char *job, *token;               /* owned: to connect again; the token may be NULL */
    pid_t pid;                       /* of the process that connected: a forked child has another */
    pthread_mutex_t lock;            /* of the two lists */
    struct f8_region *regions;       /* owned: a list */
    struct f8_group *groups;         /* owned: a list; those that are being joined too */
    pthread_mutex_t region_lock;     /* held while a device or a region is told to the daemon: a
                                        region may take several packets, and nothing comes between */
    _Atomic(struct device *) device; /* owned; NULL: the host. Set once, under region_lock, and by
                                        f8_reconnect */
    atomic_uint_fast64_t gathers;
    atomic_int
        calls; /* under way; CLIENT_SEIZED: f8_reconnect, which changes what all others read */
};

struct f8_region {
    struct f8_client *client; /* borrowed: the client that owns this */
    struct f8_region *next;
    uint32_t id;   /* of the daemon */
    void *address; /* owned: the mapping of f8_region_alloc; NULL if shared */
    uint64_t size;
    int memfd;           /* owned: to tell another daemon of it; -1: it is device memory */
    const void *pointer; /* borrowed: the caller's device memory; NULL: it is a memfd */
    bool listed;         /* in the client's list */
};

/*
 * The call of a public function begins: F8_EINVAL for a NULL client, F8_EFORKED in a child of the
 * process that connected, F8_EBUSY while f8_reconnect has the client for itself. It is in
 * *ret_counted until client_end. Calls inside calls are counted too.
 */
int client_begin(struct f8_client *client, struct f8_client **ret_counted);
void client_end(struct f8_client *const *counted);

/* Makes the caller the only one who is inside, until client_release. F8_EBUSY, and as above. */
int client_seize(struct f8_client *client);
void client_release(struct f8_client *client);

/*
 * The first line of every public function but f8_connect, f8_close and f8_reconnect: it returns at
 * once if the call must not be, and else counts it until the function ends, whichever way.
 */
#define CLIENT_CALL(client)                                                                        \
    __attribute__((cleanup(client_end))) struct f8_client *counted_call = NULL;                    \
    do {                                                                                           \
        int refused_call = client_begin((client), &counted_call);                                  \
        if (refused_call != F8_OK)                                                                 \
            return refused_call;                                                                   \
    } while (0)

/* F8_EINVAL, saying so, unless `name` has 1 to 255 bytes; `what` it names is for the text. */
int client_check_name(const char *what, const char *name);

/* The device that the client works on; NULL: the host. */
static inline struct device *client_device(struct f8_client *client)
{
    return atomic_load_explicit(&client->device, memory_order_acquire);
}

/* f8_set_device with region_lock held. */
int client_set_device(struct f8_client *client, int device);

/* F8_EINVAL if `call` was given a stream though the client works on no device. */
int client_check_stream(struct f8_client *client, const char *call, const void *stream);

/*
 * region.c: tells the daemon of a region, with `count` descriptors, and puts it into the client's
 * list if it is not there; region_lock held. With `cuda.more` set, the first of several: neither is
 * done yet.
 */
int region_add(struct f8_client *client, F8__CudaMemory *cuda, const int *fds, uint32_t count,
    struct f8_region *region);

/* Tells the daemon, which is another one, of a region that is in the list; region_lock held. */
int region_add_again(struct f8_region *region);
int region_cuda_add_again(struct f8_region *region);

/* region.c: unmaps and frees a region that is in no list. NULL is allowed. */
void region_destroy(struct f8_region *region);

/* group.c; a forked child leaves the arena's address range alone, it is not mapped there. */
void group_free(struct f8_group *group, bool forked);

#endif
