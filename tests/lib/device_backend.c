/* SPDX-License-Identifier: Apache-2.0 */
/* Commands, clients, memory and arenas of the backend without devices: see device_backend.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

static int32_t device_of(const struct device_backend *fake, const uint8_t *wanted)
{
    for (uint32_t d = 0; d < fake->num_devices; d++) {
        uint8_t uuid[BACKEND_UUID_SIZE];
        device_backend_uuid(d, uuid);
        if (memcmp(uuid, wanted, sizeof(uuid)) == 0)
            return (int32_t)d;
    }
    return -1;
}

static int serve_attach(struct device_backend *fake, struct backend_attach *asked)
{
    int status = fake_fails(fake, DEVICE_FAULT_ATTACH, &asked->reason);
    int32_t device = device_of(fake, asked->uuid);
    if (status < 0)
        return status;
    if (device < 0)
        return reason_set(&asked->reason, F8_ENOENT, "no device has this UUID");
    fake_check(asked->num_ready >= 1 && asked->num_ready <= MAX_READY, "a client without events");
    struct backend_client *client = fake_allocate(1, sizeof(*client));
    client->pid = asked->pid;
    client->num_ready = asked->num_ready;
    client->device = device;
    client->next = fake->clients;
    fake->clients = client;
    asked->client = client;
    asked->device = device;
    return F8_OK;
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

static uint64_t length_of(const struct backend_map *asked)
{
    uint64_t length = 0;
    for (uint32_t c = 0; c < asked->num_chunks; c++)
        length += asked->chunks[c];
    return length;
}

/* Descriptors of plain memory, one after the other in one range; a handle has no memory here. */
static uint8_t *map_chunks(const struct backend_map *asked, uint64_t length)
{
    uint8_t *base = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fake_check(base != MAP_FAILED, "no addresses");
    uint64_t at = 0;
    for (uint32_t c = 0; c < asked->num_chunks; at += asked->chunks[c++]) {
        void *chunk =
            mmap(base + at, asked->chunks[c], PROT_READ, MAP_SHARED | MAP_FIXED, asked->fds[c], 0);
        if (chunk != MAP_FAILED)
            continue;
        (void)munmap(base, length);
        return NULL;
    }
    return base;
}

static int serve_map(struct device_backend *fake, struct backend_map *asked)
{
    int status = fake_fails(fake, DEVICE_FAULT_MAP, &asked->reason);
    if (status < 0)
        return status;
    fake_check(asked->size > 0, "an empty region");
    bool legacy = asked->kind == BACKEND_MEMORY_LEGACY;
    fake_check(legacy == !asked->num_chunks, "memory of two kinds");
    uint64_t length = legacy ? asked->offset + asked->size : length_of(asked);
    if (asked->offset > length || asked->size > length - asked->offset)
        return reason_set(&asked->reason, F8_EREGION, "the region does not lie in its memory");
    uint8_t *base = legacy ? mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                           : map_chunks(asked, length);
    if (!base || base == MAP_FAILED)
        return reason_set(&asked->reason, F8_EREGION, "a descriptor cannot be mapped");
    struct backend_mapping *mapping = fake_allocate(1, sizeof(*mapping));
    *mapping = (struct backend_mapping){.next = fake->mappings,
        .base = base,
        .length = length,
        .data = base + asked->offset,
        .size = asked->size,
        .device = asked->device};
    fake->mappings = mapping;
    asked->mapping = mapping;
    asked->data = mapping->data;
    return F8_OK;
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

static void add_device(struct fake_arena *arena, int32_t number)
{
    for (uint32_t d = 0; d < arena->device.num_devices; d++)
        if (arena->devices[d].device == number)
            return;
    uint32_t d = arena->device.num_devices++;
    struct arena_device *device = &arena->devices[d];
    struct fake_tables *tables = &arena->tables[d];
    *device = (struct arena_device){.device = number, .fd = -1};
    if (arena->base.size > 0) {
        device->fd = memfd_create("f8gather-arena", MFD_CLOEXEC);
        fake_check(device->fd >= 0 && ftruncate(device->fd, (off_t)arena->base.size) == 0, "memfd");
        device->base =
            mmap(NULL, arena->base.size, PROT_READ | PROT_WRITE, MAP_SHARED, device->fd, 0);
        fake_check(device->base != MAP_FAILED, "no memory for an arena");
    }
    for (uint32_t i = 0; i < BACKEND_NUM_DONE; i++)
        memset(device->done[i], (int)i + 1, BACKEND_HANDLE_SIZE);
    size_t cells = (size_t)arena->ranks * arena->slots;
    tables->amaxes = fake_allocate(cells, sizeof(*tables->amaxes));
    tables->counts = fake_allocate(cells, sizeof(*tables->counts));
    tables->reduced = fake_allocate(arena->slots, sizeof(*tables->reduced));
    tables->scales = fake_allocate(arena->slots, sizeof(*tables->scales));
}

static bool is_warm(const struct device_backend *fake, const char *name)
{
    for (uint32_t i = 0; i < fake->num_warm; i++)
        if (strcmp(fake->warm[i], name) == 0)
            return true;
    return false;
}

static int serve_reserve(struct device_backend *fake, struct backend_reserve *asked)
{
    int status = fake_fails(fake, DEVICE_FAULT_RESERVE, &asked->reason);
    if (status < 0)
        return status;
    struct fake_arena *arena = fake_allocate(1, sizeof(*arena));
    arena->base = (struct arena){.size = asked->size, .fd = -1, .device = &arena->device};
    arena->device.backend = &fake->base;
    arena->device.devices = arena->devices;
    arena->ranks = asked->ranks;
    arena->slots = asked->slots;
    arena->rank_devices = fake_allocate(asked->ranks, sizeof(*arena->rank_devices));
    (void)snprintf(arena->name, sizeof(arena->name), "%s", asked->name);
    for (uint32_t r = 0; r < asked->ranks; r++) {
        fake_check(asked->devices[r] >= 0 && asked->devices[r] < (int32_t)fake->num_devices,
            "a rank is on no device");
        arena->rank_devices[r] = asked->devices[r];
        add_device(arena, asked->devices[r]);
    }
    bool several = arena->device.num_devices > 1, each = arena->device.num_devices == arena->ranks;
    arena->device.path = !several ? BACKEND_PATH_NONE
                         : each   ? BACKEND_PATH_ALLGATHER
                                  : BACKEND_PATH_BROADCAST;
    arena->device.window = several && each;
    arena->device.warm = is_warm(fake, arena->name);
    arena->next = fake->arenas;
    fake->arenas = arena;
    asked->arena = &arena->base;
    return F8_OK;
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

/* ---- what has gone ---- */

static void reap_clients(struct device_backend *fake)
{
    for (struct backend_client **link = &fake->clients; *link;) {
        struct backend_client *client = *link;
        if (!client->gone) {
            link = &client->next;
            continue;
        }
        *link = client->next;
        free(client);
    }
}

static void reap_mappings(struct device_backend *fake)
{
    for (struct backend_mapping **link = &fake->mappings; *link;) {
        struct backend_mapping *mapping = *link;
        if (!mapping->gone) {
            link = &mapping->next;
            continue;
        }
        *link = mapping->next;
        (void)munmap(mapping->base, mapping->length);
        free(mapping);
    }
}

static void destroy_arena(struct device_backend *fake, struct fake_arena *arena)
{
    for (uint32_t d = 0; d < arena->device.num_devices; d++) {
        if (arena->devices[d].base)
            (void)munmap(arena->devices[d].base, arena->base.size);
        if (arena->devices[d].fd >= 0)
            (void)close(arena->devices[d].fd);
        free(arena->tables[d].amaxes);
        free(arena->tables[d].counts);
        free(arena->tables[d].reduced);
        free(arena->tables[d].scales);
    }
    if (fake->num_warm < 8 && !is_warm(fake, arena->name))
        (void)strcpy(fake->warm[fake->num_warm++], arena->name);
    free(arena->rank_devices);
    free(arena);
}

static void reap_arenas(struct device_backend *fake)
{
    for (struct fake_arena **link = &fake->arenas; *link;) {
        struct fake_arena *arena = *link;
        if (!arena->gone) {
            link = &arena->next;
            continue;
        }
        *link = arena->next;
        destroy_arena(fake, arena);
    }
}

/* Once nothing is queued nothing can need it any more. */
static void reap(struct device_backend *fake)
{
    if (fake->commands || fake->works)
        return;
    reap_clients(fake);
    reap_mappings(fake);
    reap_arenas(fake);
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
        served.attach->finished(served.attach, serve_attach(fake, served.attach));
    else if (served.map)
        served.map->finished(served.map, serve_map(fake, served.map));
    else if (served.reserve)
        served.reserve->finished(served.reserve, serve_reserve(fake, served.reserve));
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
    reap(fake);
    return any;
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

static void free_closed(uv_handle_t *idle)
{
    free(idle->data);
}

static void free_fake(struct backend *backend)
{
    struct device_backend *fake = fake_of(backend);
    reap(fake);
    fake_check(!fake->commands && !fake->works, "it is freed with something in flight");
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
    .collect = collect,
    .info = get_info,
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
