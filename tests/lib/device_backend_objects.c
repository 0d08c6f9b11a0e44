/* SPDX-License-Identifier: Apache-2.0 */
/* Clients, memory and arenas of the backend without devices: see device_backend.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "status.h"
#include "tests/lib/device_backend_private.h"

/* ---- clients ---- */

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

int fake_serve_attach(struct device_backend *fake, struct backend_attach *asked)
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

/* ---- memory ---- */

/* Of all chunks together; 0 if that is no size, or if a chunk is not all there. */
static uint64_t length_of(const struct backend_map *asked)
{
    uint64_t length = 0;
    for (uint32_t c = 0; c < asked->num_chunks; c++) {
        struct stat file;
        bool fits = fstat(asked->fds[c], &file) == 0 && S_ISREG(file.st_mode) &&
                    asked->chunks[c] <= (uint64_t)file.st_size;
        if (!fits || asked->chunks[c] == 0)
            return 0;
        length += asked->chunks[c];
    }
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

int fake_serve_map(struct device_backend *fake, struct backend_map *asked)
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

/* ---- arenas ---- */

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

int fake_serve_reserve(struct device_backend *fake, struct backend_reserve *asked)
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
void fake_reap(struct device_backend *fake)
{
    if (fake->commands || fake->works)
        return;
    reap_clients(fake);
    reap_mappings(fake);
    reap_arenas(fake);
}
