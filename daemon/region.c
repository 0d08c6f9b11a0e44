/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks and mappings of clients' shared memory. What passes here can be read at any time
 * without a fault: the seal keeps the pages' range, tmpfs gives a page for every hole, and
 * hugetlbfs, which does not, is refused. Called by session and registry on the loop.
 */
#include "region.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "mapping.h"
#include "proto/status.h"

#define ADVICE "use a memfd sealed with F_SEAL_SHRINK"

static const char *kind_name(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return "directory";
    case S_IFIFO:
        return "pipe";
    case S_IFSOCK:
        return "socket";
    case S_IFCHR:
        return "character device";
    case S_IFBLK:
        return "block device";
    default:
        return "special file";
    }
}

static int check_filesystem(int fd, struct reason *reason)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0)
        return reason_set(reason, F8_EREGION, "cannot fstatfs memory descriptor %d: %s; " ADVICE,
            fd, strerror(errno));
    /* Reading a hole of a hugetlbfs file ends the reader with SIGBUS when the pool is empty. */
    if (fs.f_type == HUGETLBFS_MAGIC)
        return reason_set(reason, F8_EREGION,
            "the memory descriptor is on hugetlbfs, which a reader cannot trust; use a memfd "
            "without MFD_HUGETLB, sealed with F_SEAL_SHRINK");
    if (fs.f_type != TMPFS_MAGIC)
        return reason_set(reason, F8_EREGION,
            "the memory descriptor is a file on a filesystem of type 0x%lx, not tmpfs; " ADVICE,
            (unsigned long)fs.f_type);
    return F8_OK;
}

static int check_readable(int fd, struct reason *reason)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return reason_set(reason, F8_EREGION, "cannot read the flags of memory descriptor %d: %s",
            fd, strerror(errno));
    if ((flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY)
        return reason_set(reason, F8_EREGION,
            "the memory descriptor is opened %s, so it cannot be read; open it O_RDONLY or O_RDWR",
            (flags & O_PATH) ? "O_PATH" : "O_WRONLY");
    return F8_OK;
}

static int check_seals(int fd, struct reason *reason)
{
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0)
        return reason_set(reason, F8_EREGION,
            "cannot read the seals of the memory descriptor: %s; " ADVICE, strerror(errno));
    if (!(seals & F_SEAL_SHRINK))
        return reason_set(reason, F8_EREGION,
            "the memory descriptor may still shrink (its seals are 0x%x); seal it with "
            "F_SEAL_SHRINK (fcntl F_ADD_SEALS, on a memfd made with MFD_ALLOW_SEALING)",
            (unsigned)seals);
    return F8_OK;
}

/* All checks; *ret_st is what fstat said, for the size and the identity. */
static int check(int fd, struct stat *ret_st, struct reason *reason)
{
    struct stat st;
    int r;
    if (fstat(fd, &st) < 0)
        return reason_set(reason, F8_EREGION, "cannot fstat memory descriptor %d: %s; " ADVICE, fd,
            strerror(errno));
    if (!S_ISREG(st.st_mode))
        return reason_set(reason, F8_EREGION,
            "the memory descriptor is a %s, not shared memory; " ADVICE, kind_name(st.st_mode));
    if ((r = check_filesystem(fd, reason)) < 0 || (r = check_readable(fd, reason)) < 0 ||
        (r = check_seals(fd, reason)) < 0)
        return r;

    /* The size is looked at once it can no longer shrink. */
    if (fstat(fd, &st) < 0 || st.st_size <= 0)
        return reason_set(reason, F8_EREGION,
            "the memory descriptor is empty (0 bytes); give it its size with ftruncate");
    *ret_st = st;
    return F8_OK;
}

int region_check(int fd, uint64_t *ret_size, struct reason *reason)
{
    struct stat st;
    int r = check(fd, &st, reason);
    if (r < 0)
        return r;
    *ret_size = (uint64_t)st.st_size;
    return F8_OK;
}

int region_map(int fd, struct region **ret_region, struct reason *reason)
{
    struct stat st;
    int r = check(fd, &st, reason);
    if (r < 0)
        return r;

    struct region *region = malloc(sizeof(*region));
    if (!region)
        return reason_set(reason, F8_ENOMEM, "no memory for the record of a region");
    *region = (struct region){
        .size = (uint64_t)st.st_size, .refs = 1, .device = st.st_dev, .inode = st.st_ino};
    region->data = mapping_create(fd, region->size, PROT_READ);
    if (!region->data) {
        r = reason_set(reason, errno == ENOMEM ? F8_ENOMEM : F8_EREGION,
            "cannot map the %jd bytes of the memory descriptor for reading: %s",
            (intmax_t)st.st_size, strerror(errno));
        free(region);
        return r;
    }
    *ret_region = region;
    return F8_OK;
}

int region_of_device(
    struct backend *backend, const struct backend_map *map, struct region **ret_region)
{
    struct region *region = malloc(sizeof(*region));
    if (!region)
        return F8_ENOMEM;
    *region = (struct region){.data = map->data,
        .size = map->size,
        .refs = 1,
        .backend = backend,
        .mapping = map->mapping,
        .number = map->device};
    *ret_region = region;
    return F8_OK;
}

struct region *region_ref(struct region *region)
{
    assert(region->refs > 0);
    region->refs++;
    return region;
}

void region_unref(struct region *region)
{
    if (!region)
        return;
    assert(region->refs > 0);
    if (--region->refs > 0)
        return;
    if (region->backend)
        region->backend->ops->device->unmap(region->backend, region->mapping);
    else
        (void)munmap((void *)region->data, region->size);
    free(region);
}

bool region_contains(const struct region *region, uint64_t offset, uint64_t bytes)
{
    return offset <= region->size && bytes <= region->size - offset;
}
