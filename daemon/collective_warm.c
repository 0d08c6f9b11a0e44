/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines whose groups have ended well: kept connected for as long as the state of a group lingers,
 * so that a trainer that comes back to the same hosts need not connect them anew. Whether all hosts
 * still have theirs is asked in the seal. On the loop.
 */
#include "daemon/collective_hosts.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

/* Most that are kept; the oldest go first. */
#define MAX_WARM 64

struct warm {
    struct collective_context *context; /* borrowed: outlives it */
    struct warm *next;
    struct fabric *fabric; /* owned; NULL: it was taken */
    uint64_t mesh;
    uint32_t num_hosts, here;
    bool ready; /* it has let go of the arena that its group had */
    uv_timer_t timer;
    char name[sizeof(((struct hosts *)NULL)->name)];
};

static void free_closed(uv_handle_t *timer)
{
    free(timer->data);
}

static void drop(struct warm *warm)
{
    struct warm **link = &warm->context->warm;
    while (*link != warm)
        link = &(*link)->next;
    *link = warm->next;
    fabric_close(warm->fabric);
    uv_close((uv_handle_t *)&warm->timer, free_closed);
}

static void on_timer(uv_timer_t *timer)
{
    drop(timer->data);
}

static void done(struct fabric *fabric, enum fabric_command command)
{
    struct warm *warm = fabric_owner(fabric);
    (void)command;
    warm->ready = true;
}

static void failed(struct fabric *fabric, int status, const struct reason *reason)
{
    (void)status;
    (void)reason;
    drop(fabric_owner(fabric));
}

static const struct fabric_listener listener = {.done = done, .failed = failed};

/* Room for one more. */
static void drop_oldest(struct collective_context *context)
{
    uint32_t count = 0;
    struct warm *oldest = NULL;
    for (struct warm *warm = context->warm; warm; warm = warm->next, count++)
        oldest = warm;
    if (count >= MAX_WARM)
        drop(oldest);
}

void warm_keep(struct hosts *hosts)
{
    struct collective_context *context = hosts->context;
    struct engine *engine = &hosts->engine;
    uint64_t linger = context->config->linger_ms;
    if (!engine->fabric || !engine->connected || engine->step != ENGINE_AT_REST || linger == 0 ||
        context->closing)
        return;
    struct warm *warm = calloc(1, sizeof(*warm));
    if (!warm)
        return;
    drop_oldest(context);
    *warm = (struct warm){
        .context = context,
        .next = context->warm,
        .fabric = engine->fabric,
        .mesh = engine->mesh,
        .num_hosts = hosts->num_hosts,
        .here = hosts->here,
    };
    memcpy(warm->name, hosts->name, sizeof(warm->name));
    context->warm = warm;
    (void)uv_timer_init(context->loop, &warm->timer); /* cannot fail */
    warm->timer.data = warm;
    (void)uv_timer_start(&warm->timer, on_timer, linger, 0);
    engine->fabric = NULL;
    fabric_hand_over(warm->fabric, &listener, warm);
    fabric_map(warm->fabric, -1, 0, context->config->deadline_ms);
}

void warm_take(struct hosts *hosts)
{
    struct warm *warm = hosts->context->warm;
    while (warm && (!warm->ready || warm->num_hosts != hosts->num_hosts ||
                       warm->here != hosts->here || strcmp(warm->name, hosts->name) != 0))
        warm = warm->next;
    if (!warm)
        return;
    uint64_t sent, received;
    fabric_traffic(warm->fabric, &sent, &received);
    hosts->engine.fabric = warm->fabric;
    hosts->engine.sent -= sent; /* what it did for the group before is not this one's */
    hosts->engine.received -= received;
    hosts->engine.connected = true;
    hosts->engine.mesh = warm->mesh;
    fabric_hand_over(warm->fabric, &engine_listener, hosts);
    warm->fabric = NULL;
    drop(warm);
}

uint32_t collective_list_kept(
    const struct collective_context *context, struct collective_kept *ret_kept, uint32_t most)
{
    uint32_t count = 0;
    for (const struct warm *warm = context->warm; warm && count < most; warm = warm->next)
        ret_kept[count++] = (struct collective_kept){.group = warm->name,
            .pid = fabric_pid(warm->fabric),
            .hosts = warm->num_hosts,
            .left_ms = uv_timer_get_due_in(&warm->timer)};
    return count;
}

/* What the names of the job's engines and arenas begin with. */
#define PREFIX_SIZE sizeof(((struct hosts *)NULL)->name)
static int make_prefix(char prefix[PREFIX_SIZE], uid_t uid, const char *job)
{
    return snprintf(prefix, PREFIX_SIZE, "%u/%s/", (unsigned)uid, job);
}

uint32_t collective_drop_communicators(
    struct collective_context *context, uid_t uid, const char *job)
{
    char prefix[PREFIX_SIZE];
    if (!context->cuda)
        return 0;
    (void)make_prefix(prefix, uid, job);
    return context->cuda->ops->device->drop_kept(context->cuda, prefix);
}

uint32_t collective_drop_warm(struct collective_context *context, uid_t uid, const char *job)
{
    char prefix[PREFIX_SIZE];
    uint32_t count = 0;
    int length = make_prefix(prefix, uid, job);
    for (struct warm *warm = context->warm, *next; warm; warm = next) {
        next = warm->next;
        if (strncmp(warm->name, prefix, (size_t)length) != 0)
            continue;
        drop(warm);
        count++;
    }
    return count;
}

void collective_context_close(struct collective_context *context)
{
    context->closing = true;
    while (context->warm)
        drop(context->warm);
}
