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

/* In place of a number of calls: f8_reconnect, or repair.c, has the client for itself. */
#define CLIENT_SEIZED   (-1)
#define CLIENT_REPAIRED (-2)

enum repair_state {
    REPAIR_NONE = 0,
    REPAIR_UNDER_WAY, /* by one thread; others wait for it before their calls begin */
    REPAIR_FAILED,    /* the next call that begins tries again */
};

/* A client that is to connect again by itself (repair.c). */
struct repair {
    int patience_ms;      /* f8_connect_options.reconnect_ms; 0: it is not to */
    atomic_int state;     /* enum repair_state */
    pthread_mutex_t lock; /* all below */
    pthread_cond_t over;  /* an attempt is over */
    uint64_t attempts;    /* that are over */
    int status;           /* of the last one */
    char text[512];       /* why it failed */
    /* Changed by the thread that has the client for itself, so that counted calls may read them. */
    uint64_t connection; /* how often the channel was replaced: which end a call has met */
    char replaced[256];  /* which daemon ended last, and which is in its place */
};

struct f8_client {
    struct channel *channel;         /* owned */
    char *job, *token;               /* owned: to connect again; the token may be NULL */
    pid_t ended;                     /* the last daemon that told all; of reconnect.c */
    pid_t pid;                       /* of the process that connected: a forked child has another */
    pthread_mutex_t lock;            /* of the two lists */
    struct f8_region *regions;       /* owned: a list */
    struct f8_group *groups;         /* owned: a list; those that are being joined too */
    pthread_mutex_t region_lock;     /* held while a device or a region is told to the daemon: a
                                        region may take several packets, and nothing comes between */
    _Atomic(struct device *) device; /* owned; NULL: the host. Set once, under region_lock, and by
                                        f8_reconnect */
    atomic_uint_fast64_t gathers;
    atomic_int calls; /* under way; CLIENT_SEIZED, CLIENT_REPAIRED: one thread alone, which changes
                         what all others read */
    struct repair repair;
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
 * process that connected, F8_EBUSY while f8_reconnect has the client for itself. It is counted
 * until client_end, and no call is begun inside another. A client that connects again by itself
 * does so here if it could not before: F8_ENODAEMON, or whatever it failed with.
 */
int client_begin(struct f8_client *client);

/* client_begin of what needs no daemon: it waits while one is looked for, but does not look. */
int client_begin_local(struct f8_client *client);

/*
 * The call ends with `status`, which is given back. If the daemon has ended (F8_ECONN), a client
 * that connects again by itself does that first: F8_EBROKEN then, or why it failed.
 */
int client_end(struct f8_client *client, int status);

/* Makes the caller the only one who is inside, until client_release. F8_EBUSY, and as above. */
int client_seize(struct f8_client *client);
void client_release(struct f8_client *client);

/*
 * What every public function but f8_connect, f8_close and f8_reconnect consists of, or GROUP_CALL:
 * `call`, an expression with a status, counted from its begin to its end; it is not evaluated if
 * the call must not be. Returns from the function.
 */
#define CLIENT_CALL(client, call)                                                                  \
    do {                                                                                           \
        struct f8_client *called_client = (client);                                                \
        int begun_call = client_begin(called_client);                                              \
        return begun_call == F8_OK ? client_end(called_client, (call)) : begun_call;               \
    } while (0)

/* CLIENT_CALL of what needs no daemon. */
#define CLIENT_CALL_LOCAL(client, call)                                                            \
    do {                                                                                           \
        struct f8_client *called_client = (client);                                                \
        int begun_call = client_begin_local(called_client);                                        \
        return begun_call == F8_OK ? client_end(called_client, (call)) : begun_call;               \
    } while (0)

/* ---- repair.c: a client that connects again by itself ---- */

/* 0: it is not to. */
void repair_init(struct repair *repair, int patience_ms);
void repair_done(struct repair *repair);

/* Waits for the thread that repairs; if an earlier attempt failed, and `again`, tries once more. */
int repair_before(struct f8_client *client, bool again);

/* A call, not counted any more, met the end of that connection: client_end's status. */
int repair_after(struct f8_client *client, uint64_t connection);

/* The channel was replaced, and the daemon at its end knows all that `ended` did; seized. */
void repair_note(struct f8_client *client, pid_t ended);

/*
 * reconnect.c: what f8_reconnect does, on a client that is seized, until `deadline` (milliseconds
 * of reconnect_now_ms). Groups that were lost then are F8_EBROKEN until f8_group_rejoin.
 */
int reconnect_by_itself(struct f8_client *client, int64_t deadline);
int64_t reconnect_now_ms(void);

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
