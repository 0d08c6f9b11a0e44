/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: every kind of descriptor that must be refused, each with its own sentence, and the
 * mapping of the good ones for as long as it is referenced.
 */
#include <check.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/region.h"
#include "proto/status.h"
#include "tests/lib/suite.h"

#define MEMFD_NAME "f8-region-test"
#define SIZE       10000 /* no multiple of a page */
#define HUGE_PAGE  (2 << 20)
/* What an opener returns where this system cannot make such a descriptor. */
#define CANNOT (-2)

static int make_memfd(off_t size, int seals, unsigned flags)
{
    int fd = memfd_create(MEMFD_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (fd < 0)
        return CANNOT;
    ck_assert_int_eq(ftruncate(fd, size), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* The same file through another open file description. Closes fd. */
static int reopen(int fd, int flags)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, flags | O_CLOEXEC);
    ck_assert_int_ge(again, 0);
    (void)close(fd);
    return again;
}

/* ---- Bad descriptors ---- */

static int open_pipe(void)
{
    int fds[2];
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    (void)close(fds[1]);
    return fds[0];
}

static int open_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int open_directory(void)
{
    return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int open_device(void)
{
    return open("/dev/zero", O_RDWR | O_CLOEXEC);
}

static int open_closed(void)
{
    return -1;
}

static int open_proc_file(void)
{
    return open("/proc/self/status", O_RDONLY | O_CLOEXEC);
}

/* This program's own file, wherever the build is, unless that is a tmpfs. */
static int open_disk_file(void)
{
    struct statfs fs;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(fstatfs(fd, &fs), 0);
    if (fs.f_type != TMPFS_MAGIC)
        return fd;
    (void)close(fd);
    return CANNOT;
}

static int open_tmpfs_file(void)
{
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return CANNOT;
    ck_assert_int_eq(ftruncate(fd, SIZE), 0);
    return fd;
}

static int open_hugetlb(void)
{
    return make_memfd(HUGE_PAGE, F_SEAL_SHRINK, MFD_HUGETLB);
}

static int open_unsealed(void)
{
    return make_memfd(SIZE, 0, 0);
}

static int open_other_seal(void)
{
    return make_memfd(SIZE, F_SEAL_GROW, 0);
}

static int open_empty(void)
{
    return make_memfd(0, F_SEAL_SHRINK, 0);
}

static int open_write_only(void)
{
    return reopen(make_memfd(SIZE, F_SEAL_SHRINK, 0), O_WRONLY);
}

static int open_path(void)
{
    return reopen(make_memfd(SIZE, F_SEAL_SHRINK, 0), O_PATH);
}

static const struct {
    const char *name;
    int (*open)(void);
    const char *why, *advice; /* parts of the reason */
} bad[] = {
    {"pipe", open_pipe, "is a pipe", "F_SEAL_SHRINK"},
    {"socket", open_socket, "is a socket", "F_SEAL_SHRINK"},
    {"directory", open_directory, "is a directory", "F_SEAL_SHRINK"},
    {"device", open_device, "is a character device", "F_SEAL_SHRINK"},
    {"closed", open_closed, "Bad file descriptor", "F_SEAL_SHRINK"},
    {"proc file", open_proc_file, "not tmpfs", "F_SEAL_SHRINK"},
    {"file on disk", open_disk_file, "not tmpfs", "F_SEAL_SHRINK"},
    {"tmpfs file", open_tmpfs_file, "may still shrink", "seal it with F_SEAL_SHRINK"},
    {"hugetlb", open_hugetlb, "hugetlbfs", "without MFD_HUGETLB"},
    {"unsealed", open_unsealed, "may still shrink", "seal it with F_SEAL_SHRINK"},
    {"other seal", open_other_seal, "seals are 0x4", "seal it with F_SEAL_SHRINK"},
    {"empty", open_empty, "empty", "ftruncate"},
    {"write only", open_write_only, "O_WRONLY", "O_RDONLY or O_RDWR"},
    {"path", open_path, "O_PATH", "O_RDONLY or O_RDWR"},
};

#define NUM_BAD ((int)(sizeof(bad) / sizeof(bad[0])))

static void check_reason(const struct reason *reason, int i)
{
    ck_assert_msg(strstr(reason->text, bad[i].why) && strstr(reason->text, bad[i].advice),
        "%s: the reason is \"%s\"", bad[i].name, reason->text);
}

START_TEST(bad_descriptors_are_refused_by_name)
{
    uint64_t size = 77;
    struct region *region = (struct region *)&size;
    struct reason reason = {""};
    int fd = bad[_i].open();
    if (fd == CANNOT) {
        fprintf(stderr, "skipped: this system cannot make a descriptor of kind %s\n", bad[_i].name);
        return;
    }

    ck_assert_int_eq(region_check(fd, &size, &reason), F8_EREGION);
    check_reason(&reason, _i);
    ck_assert_uint_eq(size, 77);

    reason.text[0] = '\0';
    ck_assert_int_eq(region_map(fd, &region, &reason), F8_EREGION);
    check_reason(&reason, _i);
    ck_assert_ptr_eq(region, &size);
    if (fd >= 0)
        (void)close(fd);
}
END_TEST

/* ---- Good ones ---- */

/* How many mappings of our memfd this process has, and whether one is read-only at `data`. */
static int count_mappings(const void *data, bool *ret_read_only)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], rights[8];
    uintptr_t start, end;
    int count = 0;
    ck_assert_ptr_nonnull(maps);
    *ret_read_only = false;
    while (fgets(line, sizeof(line), maps)) {
        if (!strstr(line, "memfd:" MEMFD_NAME))
            continue;
        count++;
        ck_assert_int_eq(sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &start, &end, rights), 3);
        if (start == (uintptr_t)data)
            *ret_read_only = strcmp(rights, "r--s") == 0;
    }
    (void)fclose(maps);
    return count;
}

START_TEST(mapping_stands_while_it_is_referenced)
{
    struct region *region = NULL;
    struct reason reason;
    bool read_only;
    int fd = make_memfd(SIZE, F_SEAL_SHRINK, 0);
    ck_assert_int_eq(region_map(fd, &region, &reason), F8_OK);
    ck_assert_int_eq(count_mappings(region->data, &read_only), 1);
    ck_assert(read_only);

    ck_assert_ptr_eq(region_ref(region), region);
    ck_assert_uint_eq(region->refs, 2);
    region_unref(region);
    (void)close(fd);
    ck_assert_int_eq(count_mappings(region->data, &read_only), 1);
    ck_assert_uint_eq(region->data[SIZE - 1], 0);

    region_unref(region);
    ck_assert_int_eq(count_mappings(NULL, &read_only), 0);
    region_unref(NULL);
}
END_TEST

START_TEST(mapping_shows_what_the_client_writes)
{
    struct region *region = NULL;
    struct reason reason;
    struct stat st;
    uint64_t size = 0;
    int fd = make_memfd(SIZE, F_SEAL_SHRINK, 0);
    ck_assert_int_eq(region_check(fd, &size, &reason), F8_OK);
    ck_assert_uint_eq(size, SIZE);
    ck_assert_int_eq(region_map(fd, &region, &reason), F8_OK);
    ck_assert_uint_eq(region->size, SIZE);
    ck_assert_uint_eq((uintptr_t)region->data % HUGE_PAGE, 0);

    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_uint_eq(region->device, st.st_dev);
    ck_assert_uint_eq(region->inode, st.st_ino);

    ck_assert_int_eq(pwrite(fd, "late", 4, SIZE - 4), 4);
    ck_assert_mem_eq(region->data + SIZE - 4, "late", 4);
    region_unref(region);
    (void)close(fd);
}
END_TEST

static long address_space_pages(void)
{
    char text[128] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
    (void)close(fd);
    return strtol(text, NULL, 10);
}

static void map_many_times(int fd)
{
    struct region *region = NULL;
    struct reason reason;
    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(region_map(fd, &region, &reason), F8_OK);
        region_unref(region);
    }
}

/* The addresses that the alignment cost are given back: 2 MiB a time, were they not. */
START_TEST(unmapping_leaves_no_addresses_taken)
{
    int fd = make_memfd(SIZE, F_SEAL_SHRINK, 0);
    map_many_times(fd);
    long before = address_space_pages();
    map_many_times(fd);
    ck_assert_int_lt(address_space_pages() - before, HUGE_PAGE / 2 / 4096);
    (void)close(fd);
}
END_TEST

START_TEST(read_only_descriptors_are_enough)
{
    struct region *region = NULL;
    struct reason reason;
    int fd = reopen(make_memfd(SIZE, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, 0), O_RDONLY);
    ck_assert_int_eq(region_map(fd, &region, &reason), F8_OK);
    region_unref(region);
    (void)close(fd);
}
END_TEST

START_TEST(contains_cannot_overflow)
{
    struct region region = {.size = 4096};
    ck_assert(region_contains(&region, 0, 0));
    ck_assert(region_contains(&region, 0, 4096));
    ck_assert(region_contains(&region, 4095, 1));
    ck_assert(region_contains(&region, 4096, 0));
    ck_assert(!region_contains(&region, 0, 4097));
    ck_assert(!region_contains(&region, 4096, 1));
    ck_assert(!region_contains(&region, 4097, 0));
    ck_assert(!region_contains(&region, 1, UINT64_MAX));
    ck_assert(!region_contains(&region, UINT64_MAX, 1));
    ck_assert(!region_contains(&region, UINT64_MAX, UINT64_MAX));
    ck_assert(!region_contains(&region, UINT64_MAX - 10, 20));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("region");
    tcase_add_loop_test(tcase, bad_descriptors_are_refused_by_name, 0, NUM_BAD);
    tcase_add_test(tcase, mapping_stands_while_it_is_referenced);
    tcase_add_test(tcase, mapping_shows_what_the_client_writes);
    tcase_add_test(tcase, unmapping_leaves_no_addresses_taken);
    tcase_add_test(tcase, read_only_descriptors_are_enough);
    tcase_add_test(tcase, contains_cannot_overflow);
    return run_suite("region", tcase);
}
