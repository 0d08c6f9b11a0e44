/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: memory for shards that this process and the daemon both see. Allocates a sealed memfd
 * or takes the caller's, registers it, and unmaps it at the end; region_cuda.c has those of
 * devices. Any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <linux/magic.h>

#include "client/client_private.h"
#include "client/error.h"
#include "client/map.h"

void region_destroy(struct f8_region *region)
{
    if (!region)
        return;
    map_release(region->address, region->size);
    if (region->memfd >= 0)
        close(region->memfd);
    free(region);
}

int region_add(struct f8_client *client, F8__CudaMemory *cuda, const int *fds, uint32_t count,
    struct f8_region *region)
{
    F8__RegionAdd add = F8__REGION_ADD__INIT;
    add.cuda = cuda;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_REGION_ADD;
    request.region_add = &add;
    struct channel_reply reply;
    int status = channel_call_with(client->channel, &request, fds, count, &reply);
    if (status != F8_OK)
        return status;
    if (reply.fd >= 0)
        close(reply.fd);
    if (cuda && cuda->more)
        return F8_OK;
    if (reply.body != F8__REPLY__BODY_REGION)
        return error_set(F8_EPROTO, "the daemon took a region but gave it no number");
    region->id = (uint32_t)reply.first;
    if (region->listed)
        return F8_OK;
    region->client = client; /* and never again: calls read it before they are counted */
    pthread_mutex_lock(&client->lock);
    region->next = client->regions;
    client->regions = region;
    region->listed = true;
    pthread_mutex_unlock(&client->lock);
    return F8_OK;
}

int region_add_again(struct f8_region *region)
{
    return region->pointer ? region_cuda_add_again(region)
                           : region_add(region->client, NULL, &region->memfd, 1, region);
}

static int add_memfd(struct f8_client *client, struct f8_region *region)
{
    pthread_mutex_lock(&client->region_lock);
    int status = region_add(client, NULL, &region->memfd, 1, region);
    pthread_mutex_unlock(&client->region_lock);
    return status;
}

/* Maps the memfd, seals its size and registers it. */
static int region_fill(struct f8_client *client, struct f8_region *region)
{
    int status = map_shared(region->memfd, region->size, PROT_READ | PROT_WRITE, &region->address);
    if (status != F8_OK)
        return status;
    map_collapse(region->address, region->size);
    if (fcntl(region->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
        return error_set(F8_EREGION, "a region's size cannot be sealed: %s", strerror(errno));
    return add_memfd(client, region);
}

static int alloc_region(
    struct f8_client *client, size_t size, struct f8_region **ret_region, void **ret_address)
{
    if (size == 0 || size > INT64_MAX)
        return error_set(F8_EINVAL, "a region of %zu bytes: give a size above 0", size);
    int memfd = -1;
    int status = map_create("region", size, &memfd);
    if (status != F8_OK)
        return status;
    struct f8_region *region = calloc(1, sizeof(*region));
    if (region) {
        region->size = size;
        region->memfd = memfd;
        status = region_fill(client, region);
    } else {
        status = error_set(F8_ENOMEM, "no memory for a region");
        close(memfd);
    }
    if (status != F8_OK) {
        region_destroy(region);
        return status;
    }
    *ret_region = region;
    *ret_address = region->address;
    return F8_OK;
}

int f8_region_alloc(
    struct f8_client *client, size_t size, struct f8_region **ret_region, void **ret_address)
{
    CLIENT_CALL(client, alloc_region(client, size, ret_region, ret_address));
}

/* What the daemon would refuse, with the remedy, before it is asked. */
static int check_memfd(int memfd, uint64_t *ret_size)
{
    struct stat stat;
    struct statfs filesystem;
    if (fstat(memfd, &stat) != 0 || fstatfs(memfd, &filesystem) != 0)
        return error_set(
            F8_EREGION, "descriptor %d cannot be a region: %s", memfd, strerror(errno));
    if (filesystem.f_type == HUGETLBFS_MAGIC)
        return error_set(F8_EREGION,
            "descriptor %d is hugetlb memory, which may be missing when it is read; use a plain "
            "memfd",
            memfd);
    int seals = fcntl(memfd, F_GET_SEALS);
    if (seals < 0)
        return error_set(F8_EREGION, "descriptor %d is not a memfd", memfd);
    if (!(seals & F_SEAL_SHRINK))
        return error_set(F8_EREGION,
            "memfd %d is not sealed against shrinking: create it with MFD_ALLOW_SEALING and call "
            "fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)",
            memfd);
    if ((fcntl(memfd, F_GETFL) & O_ACCMODE) == O_WRONLY)
        return error_set(
            F8_EREGION, "memfd %d is open for writing only, it must be readable", memfd);
    if (stat.st_size == 0)
        return error_set(F8_EREGION, "memfd %d is empty: give it its size with ftruncate", memfd);
    *ret_size = (uint64_t)stat.st_size;
    return F8_OK;
}

static int share_region(struct f8_client *client, int memfd, struct f8_region **ret_region)
{
    uint64_t size = 0;
    int status = check_memfd(memfd, &size);
    if (status != F8_OK)
        return status;
    struct f8_region *region = calloc(1, sizeof(*region));
    if (!region)
        return error_set(F8_ENOMEM, "no memory for a region");
    region->size = size;
    region->memfd = fcntl(memfd, F_DUPFD_CLOEXEC, 0);
    status = region->memfd >= 0
                 ? add_memfd(client, region)
                 : error_set(F8_ELIMIT, "no descriptor for a region: %s", strerror(errno));
    if (status != F8_OK) {
        region_destroy(region);
        return status;
    }
    *ret_region = region;
    return F8_OK;
}

int f8_region_share(struct f8_client *client, int memfd, struct f8_region **ret_region)
{
    CLIENT_CALL(client, share_region(client, memfd, ret_region));
}

static int free_region(struct f8_region *region)
{
    struct f8_client *client = region->client;
    F8__RegionDrop drop = F8__REGION_DROP__INIT;
    drop.region = region->id;
    F8__Request request = F8__REQUEST__INIT;
    request.body_case = F8__REQUEST__BODY_REGION_DROP;
    request.region_drop = &drop;
    int status = channel_call(client->channel, &request, -1, NULL);
    if (status != F8_OK)
        return status;
    pthread_mutex_lock(&client->lock);
    struct f8_region **link = &client->regions;
    while (*link != region)
        link = &(*link)->next;
    *link = region->next;
    pthread_mutex_unlock(&client->lock);
    region_destroy(region);
    return F8_OK;
}

int f8_region_free(struct f8_region *region)
{
    CLIENT_CALL(region ? region->client : NULL, free_region(region));
}
