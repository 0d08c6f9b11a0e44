/* SPDX-License-Identifier: Apache-2.0 */
/* Commands, clients, memory and arenas of the backend without devices: see device_backend.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tests/lib/device_backend_private.h"

void fake_check(bool holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "backend without devices: %s\n", what);
    abort();
}

void *fake_allocate(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    fake_check(memory != NULL, "out of memory");
    return memory;
}

int fake_fails(struct device_backend *fake, enum device_fault fault, struct reason *reason)
{
    struct fake_fault planted = fake->faults[fault];
    fake->faults[fault] = (struct fake_fault){0};
    return planted.status < 0 ? reason_set(reason, planted.status, "%s", planted.text) : F8_OK;
}

static struct fake_command *push(struct device_backend *fake)
{
    struct fake_command *command = fake_allocate(1, sizeof(*command));
    struct fake_command **link = &fake->commands;
    while (*link)
        link = &(*link)->next;
    *link = command;
    fake_kick(fake);
    return command;
}

/* ---- clients ---- */

static void attach(struct backend *backend, struct backend_attach *asked)
{
    push(fake_of(backend))->attach = asked;
}

void device_backend_uuid(uint32_t device, uint8_t ret_uuid[BACKEND_UUID_SIZE])
{
    for (uint32_t i = 0; i < BACKEND_UUID_SIZE; i++)
        ret_uuid[i] = (uint8_t)(0x10 * (device + 1) + i);
}

static void detach(struct backend *backend, struct backend_client *client)
{
    fake_check(!client->gone, "a client is detached twice");
    client->gone = true;
    fake_kick(fake_of(backend));
}

void device_backend_set_event(
    struct backend *backend, uint32_t pid, uint32_t event, bool is_reached)
{
    struct backend_client *client = fake_of(backend)->clients;
    while (client && client->pid != pid)
        client = client->next;
    fake_check(client && event < client->num_ready, "no such event");
    client->unreached[event] = !is_reached;
    fake_kick(fake_of(backend));
}

/* ---- memory ---- */

static void map(struct backend *backend, struct backend_map *asked)
{
    push(fake_of(backend))->map = asked;
}

static void unmap(struct backend *backend, struct backend_mapping *mapping)
{
    fake_check(!mapping->gone, "memory is unmapped twice");
    mapping->gone = true;
    fake_kick(fake_of(backend));
}

/* ---- arenas ---- */

static void reserve(struct backend *backend, struct backend_reserve *asked)
{
    fake_check(asked->ranks > 0 && asked->slots > 0 && asked->name, "an arena without tables");
    asked->arena = NULL;
    push(fake_of(backend))->reserve = asked;
}

static void free_arena(struct backend *backend, struct device_arena *device)
{
    struct fake_arena *arena = fake_of(backend)->arenas;
    while (arena && &arena->device != device)
        arena = arena->next;
    fake_check(arena && !arena->gone, "an arena is freed twice, or was none");
    arena->gone = true;
    fake_kick(fake_of(backend));
}

/* ---- fences ---- */

static void fence(struct backend *backend, struct backend_fence *asked)
{
    struct device_backend *fake = fake_of(backend);
    struct fake_fence **link = &fake->fences;
    while (*link)
        link = &(*link)->next;
    *link = fake_allocate(1, sizeof(**link));
    (*link)->fence = asked;
    fake_kick(fake);
}

/* All that could be in the way has gone. */
static bool pass_fence(struct device_backend *fake)
{
    struct fake_fence *first = fake->fences;
    struct reason unheard;
    if (!first || fake->commands || fake->works)
        return false;
    struct backend_fence *passed = first->fence;
    fake->fences = first->next;
    free(first);
    passed->finished(passed, fake_fails(fake, DEVICE_FAULT_FENCE, &unheard));
    return true;
}

/* ---- turns ---- */

static void submit(struct backend *backend, struct backend_work *work)
{
    fake_check(!work->submitted, "a work is submitted twice");
    fake_check_work(fake_of(backend), work);
    work->submitted = true;
    push(fake_of(backend))->work = work;
}

static void cancel(struct backend *backend, struct backend_work *work)
{
    (void)backend;
    fake_check(!work->submitted, "a work on devices is cancelled");
}

static bool serve_command(struct device_backend *fake)
{
    struct fake_command *command = fake->commands;
    if (!command)
        return false;
    struct fake_command served = *command;
    fake->commands = command->next;
    free(command);
    if (served.attach)
        served.attach->finished(served.attach, fake_serve_attach(fake, served.attach));
    else if (served.map)
        served.map->finished(served.map, fake_serve_map(fake, served.map));
    else if (served.reserve)
        served.reserve->finished(served.reserve, fake_serve_reserve(fake, served.reserve));
    else
        fake_queue(fake, served.work);
    return true;
}

static uint64_t draw(struct device_backend *fake)
{
    fake->seed = fake->seed * 6364136223846793005u + 1442695040888963407u;
    return fake->seed >> 33;
}

static bool turn_stage(struct device_backend *fake, enum device_stage stage)
{
    if (fake->held[stage])
        return false;
    switch (stage) {
    case DEVICE_COMMANDS:
        return serve_command(fake);
    case DEVICE_STREAMS:
        return fake_run_one(fake);
    case DEVICE_LANDINGS:
        return fake_land_one(fake);
    case DEVICE_STAGES:
        break;
    }
    return false;
}

bool device_backend_turn(struct backend *backend)
{
    struct device_backend *fake = fake_of(backend);
    uint32_t first = fake->seed ? (uint32_t)(draw(fake) % DEVICE_STAGES) : 0;
    bool any = false;
    for (uint32_t i = 0; i < DEVICE_STAGES && !any; i++)
        any = turn_stage(fake, (enum device_stage)((first + i) % DEVICE_STAGES));
    fake_reap(fake);
    return pass_fence(fake) || any;
}

static void on_idle(uv_idle_t *idle)
{
    if (!device_backend_turn(idle->data))
        (void)uv_idle_stop(idle);
}

void fake_kick(struct device_backend *fake)
{
    if (fake->loop)
        (void)uv_idle_start(&fake->idle, on_idle);
}

void device_backend_hold(struct backend *backend, enum device_stage stage, bool held)
{
    fake_of(backend)->held[stage] = held;
    fake_kick(fake_of(backend));
}

void device_backend_shuffle(struct backend *backend, uint64_t seed)
{
    fake_of(backend)->seed = seed;
}

void device_backend_fail(
    struct backend *backend, enum device_fault fault, int status, const char *text)
{
    fake_of(backend)->faults[fault] = (struct fake_fault){.status = status, .text = text};
}

/* ---- for people ---- */

static void fill_info(
    const struct device_backend *fake, struct backend_device_info *info, int32_t number)
{
    *info = (struct backend_device_info){
        .memory = (uint64_t)80 << 30, .memory_free = (uint64_t)79 << 30, .compute_capability = 90};
    device_backend_uuid((uint32_t)number, info->uuid);
    (void)snprintf(info->name, sizeof(info->name), "pretended GPU %d", number);
    (void)snprintf(info->pci, sizeof(info->pci), "0000:%02x:00.0", 0x17 + number);
    for (const struct backend_client *c = fake->clients; c; c = c->next)
        info->clients += !c->gone && c->device == number;
    for (const struct backend_mapping *m = fake->mappings; m; m = m->next)
        info->mapped_bytes += !m->gone && m->device == number ? m->size : 0;
    for (const struct fake_arena *a = fake->arenas; a; a = a->next)
        for (uint32_t d = 0; d < a->device.num_devices && !a->gone; d++)
            info->arena_bytes += a->devices[d].device == number ? a->base.size : 0;
}

static void get_info(struct backend *backend, struct backend_info *ret_info)
{
    struct device_backend *fake = fake_of(backend);
    *ret_info = (struct backend_info){.devices = fake->infos,
        .num_devices = fake->num_devices,
        .driver_version = 13010,
        .runtime_version = 13000,
        .nccl_version = fake->num_devices > 1 ? 22809 : 0,
        .simulated = true};
    if (ret_info->nccl_version == 0)
        (void)snprintf(
            ret_info->nccl_reason, sizeof(ret_info->nccl_reason), "libnccl.so.2 is not there");
    for (uint32_t d = 0; d < fake->num_devices; d++)
        fill_info(fake, &fake->infos[d], (int32_t)d);
    for (const struct fake_arena *a = fake->arenas; a; a = a->next)
        ret_info->communicators += !a->gone && a->device.num_devices > 1;
    ret_info->warm_communicators = fake->num_warm;
}

/* In order: whatever else is kept. */
static uint32_t drop_kept(struct backend *backend, const char *prefix)
{
    struct device_backend *fake = fake_of(backend);
    uint32_t left = 0, before = fake->num_warm;
    for (uint32_t i = 0; i < before; i++)
        if (strncmp(fake->warm[i], prefix, strlen(prefix)) != 0)
            memmove(fake->warm[left++], fake->warm[i], sizeof(fake->warm[i]));
    fake->num_warm = left;
    return before - left;
}

struct device_backend_totals device_backend_totals(const struct backend *backend)
{
    const struct device_backend *fake = (const struct device_backend *)backend;
    struct device_backend_totals totals = {.works = fake->works_run};
    for (const struct backend_client *c = fake->clients; c; c = c->next)
        totals.clients++;
    for (const struct backend_mapping *m = fake->mappings; m; m = m->next)
        totals.mappings++;
    for (const struct fake_arena *a = fake->arenas; a; a = a->next)
        totals.arenas++;
    for (const struct fake_work *w = fake->works; w; w = w->next)
        totals.landings += w->landing != NULL;
    return totals;
}

/* ---- beginning and end ---- */

static void collect(struct backend *backend)
{
    (void)backend; /* nothing ends on another thread */
}

static uint64_t busy_ms(struct backend *backend, const char **ret_call)
{
    (void)backend; /* nothing hangs */
    *ret_call = NULL;
    return 0;
}

static void free_closed(uv_handle_t *idle)
{
    free(idle->data);
}

static void free_fake(struct backend *backend)
{
    struct device_backend *fake = fake_of(backend);
    fake_reap(fake);
    fake_check(
        !fake->commands && !fake->works && !fake->fences, "it is freed with something in flight");
    fake_check(
        !fake->clients && !fake->mappings && !fake->arenas, "it is freed with something left");
    if (fake->loop)
        uv_close((uv_handle_t *)&fake->idle, free_closed);
    else
        free(fake);
}

static const struct backend_device_ops device_ops = {
    .attach = attach,
    .detach = detach,
    .map = map,
    .unmap = unmap,
    .free_arena = free_arena,
    .drop_kept = drop_kept,
    .fence = fence,
    .collect = collect,
    .info = get_info,
    .busy_ms = busy_ms,
};

static const struct backend_ops ops = {
    .name = "cuda",
    .submit = submit,
    .cancel = cancel,
    .reserve = reserve,
    .free = free_fake,
    .device = &device_ops,
};

struct backend *device_backend_new(uv_loop_t *loop, uint32_t num_devices)
{
    struct device_backend *fake = calloc(1, sizeof(*fake));
    if (!fake)
        return NULL;
    fake_check(num_devices <= DEVICE_BACKEND_MAX, "too many devices");
    fake->base.ops = &ops;
    fake->loop = loop;
    fake->num_devices = num_devices;
    fake->idle.data = fake;
    if (loop)
        (void)uv_idle_init(loop, &fake->idle); /* cannot fail */
    return &fake->base;
}
