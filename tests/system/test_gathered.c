/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gathered memory in a client process: no way to write it, and what becomes of it after its
 * release.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "lib/device_memory.h"
#include "lib/patience.h"
#include "lib/ranks.h"
#include "lib/raw_client.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

/* ---- ways to write; each returns 0 if it was refused ---- */

/* The arena as a client has it. */
struct gathered {
    int fd;        /* owned: came with the reply to the seal */
    uint8_t *data; /* owned: mapped read-only */
    size_t size;
};

static const uint8_t stain[16] = "written";

static int by_pwrite(const struct gathered *gathered)
{
    return pwrite(gathered->fd, stain, sizeof(stain), 0) >= 0;
}

static int by_shared_mapping(const struct gathered *gathered)
{
    return mmap(NULL, gathered->size, PROT_READ | PROT_WRITE, MAP_SHARED, gathered->fd, 0) !=
           MAP_FAILED;
}

static int by_mprotect(const struct gathered *gathered)
{
    return mprotect(gathered->data, gathered->size, PROT_READ | PROT_WRITE) == 0;
}

/* A descriptor of its own for the same file, with the right to write if that can be had. */
static int reopen(const struct gathered *gathered, int flags)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", gathered->fd);
    return open(path, flags | O_CLOEXEC);
}

static int by_reopening_and_pwrite(const struct gathered *gathered)
{
    int fd = reopen(gathered, O_RDWR);
    int written = fd >= 0 && pwrite(fd, stain, sizeof(stain), 0) >= 0;
    (void)close(fd);
    return written;
}

static int by_reopening_and_mapping(const struct gathered *gathered)
{
    int fd = reopen(gathered, O_RDWR);
    int mapped = fd >= 0 && mmap(NULL, gathered->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) !=
                                MAP_FAILED;
    (void)close(fd);
    return mapped;
}

static int by_truncation(const struct gathered *gathered)
{
    int fd = reopen(gathered, O_RDWR | O_TRUNC);
    struct stat stat;
    int shrunk = ftruncate(fd >= 0 ? fd : gathered->fd, 0) == 0;
    ck_assert_int_eq(fstat(gathered->fd, &stat), 0);
    (void)close(fd);
    return shrunk || (size_t)stat.st_size != gathered->size;
}

static int by_a_hole(const struct gathered *gathered)
{
    return fallocate(gathered->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
}

static int by_proc_mem(const struct gathered *gathered)
{
    int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    int written =
        fd >= 0 && pwrite(fd, stain, sizeof(stain), (off_t)(uintptr_t)gathered->data) >= 0;
    (void)close(fd);
    return written;
}

static int by_process_vm_writev(const struct gathered *gathered)
{
    struct iovec from = {.iov_base = (void *)(uintptr_t)stain, .iov_len = sizeof(stain)};
    struct iovec to = {.iov_base = gathered->data, .iov_len = sizeof(stain)};
    return process_vm_writev(getpid(), &from, 1, &to, 1, 0) >= 0;
}

static int by_read(const struct gathered *gathered)
{
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    int written = read(fd, gathered->data, 16) >= 0;
    (void)close(fd);
    return written;
}

static int by_removal(const struct gathered *gathered)
{
    return madvise(gathered->data, 4096, MADV_REMOVE) == 0;
}

static int by_new_seals(const struct gathered *gathered)
{
    return fcntl(gathered->fd, F_ADD_SEALS, F_SEAL_WRITE) == 0;
}

static const struct {
    const char *name;
    int (*try)(const struct gathered *gathered);
} ways[] = {
    {"pwrite", by_pwrite},
    {"a shared mapping", by_shared_mapping},
    {"mprotect", by_mprotect},
    {"reopening and pwrite", by_reopening_and_pwrite},
    {"reopening and mapping", by_reopening_and_mapping},
    {"truncation", by_truncation},
    {"a hole", by_a_hole},
    {"/proc/self/mem", by_proc_mem},
    {"process_vm_writev", by_process_vm_writev},
    {"read", by_read},
    {"MADV_REMOVE", by_removal},
    {"new seals", by_new_seals},
};

START_TEST(cannot_be_written)
{
    struct test_daemon daemon;
    struct raw_client raw;
    struct gathered gathered;
    struct stat stat;
    uint32_t group;
    if (device_memory_used()) /* these are ways of the host */
        return;
    test_daemon_start(&daemon, NULL);
    gathered.fd = raw_sealed(&raw, &daemon, &group);
    ck_assert_int_eq(fstat(gathered.fd, &stat), 0);
    gathered.size = (size_t)stat.st_size;
    gathered.data = mmap(NULL, gathered.size, PROT_READ, MAP_SHARED, gathered.fd, 0);
    ck_assert_ptr_ne(gathered.data, MAP_FAILED);
    errno = 0;
    int done = ways[_i].try(&gathered);
    ck_assert_msg(!done, "written by %s", ways[_i].name);
    for (size_t i = 0; i < gathered.size; i++)
        ck_assert_msg(gathered.data[i] == 0, "byte %zu was changed by %s", i, ways[_i].name);
    (void)munmap(gathered.data, gathered.size);
    (void)close(gathered.fd);
    raw_close(&raw);
    test_daemon_stop(&daemon);
}
END_TEST

/* ---- after the release ---- */

static int seal_with_poison(struct rank *rank)
{
    return f8_seal(rank->group, &(struct f8_seal_options){.slots = RANK_SLOTS, .poison = 1});
}

static int gather_layer(struct rank *rank)
{
    return rank_gather(rank, LAYER_0, 0);
}

/* Whether all bytes of the view are NaN codes, of float8 and of fp32 alike. */
static bool is_poisoned(const struct rank *rank, const struct f8_view *view)
{
    struct f8_view seen;
    ck_assert_int_eq(device_memory_see(rank->device_memory, view, 0, &seen), F8_OK);
    const volatile uint8_t *bytes = seen.data; /* another process writes them */
    for (uint64_t i = 0; i < view->size; i++)
        if (bytes[i] != 0xFF)
            return false;
    return true;
}

/* Waits, bounded, for the poison: it comes some time after the last release. */
static void await_poison(const struct rank *rank, uint32_t bucket)
{
    struct timespec start, now;
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    for (uint32_t i = 0; i < BUCKET_WEIGHTS; i++)
        while (!is_poisoned(rank, &rank->views[bucket][i])) {
            (void)clock_gettime(CLOCK_MONOTONIC, &now);
            ck_assert_msg(now.tv_sec - start.tv_sec < PATIENCE_S, "weight %u has no poison", i);
            (void)poll(NULL, 0, 1);
        }
}

static void start_with(struct test_daemon *daemon, struct rank *ranks, int (*seal)(struct rank *))
{
    test_daemon_start(daemon, NULL);
    for (uint32_t r = 0; r < 2; r++) {
        rank_connect(&ranks[r], daemon->socket);
        rank_join(&ranks[r], r, 2);
        rank_register(&ranks[r]);
    }
    ranks_must(ranks, 2, seal);
    ranks_must(ranks, 2, gather_layer);
}

START_TEST(freed_places_are_nan)
{
    struct test_daemon daemon;
    struct rank ranks[2];
    start_with(&daemon, ranks, seal_with_poison);
    ck_assert_int_eq(f8_release(ranks[0].group, LAYER_0, ranks[0].stream), F8_OK);
    rank_settle(&ranks[0]);
    /* Rank 1 holds it still: nothing happens to it. */
    ck_assert_int_eq(rank_check(&ranks[1], LAYER_0), F8_OK);
    ck_assert_int_eq(f8_view_check(ranks[1].group, &ranks[1].views[LAYER_0][0]), F8_OK);
    ck_assert_int_eq(f8_view_check(ranks[0].group, &ranks[0].views[LAYER_0][0]), F8_ESTALE);
    ck_assert_int_eq(f8_release(ranks[1].group, LAYER_0, ranks[1].stream), F8_OK);
    await_poison(&ranks[0], LAYER_0);
    await_poison(&ranks[1], LAYER_0);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t i = 0; i < BUCKET_WEIGHTS; i++)
            ck_assert_int_eq(f8_view_check(ranks[r].group, &ranks[r].views[LAYER_0][i]), F8_ESTALE);
    for (int step = 0; step < 3; step++)
        ranks_must(ranks, 2, rank_step); /* the poison is gone from what is gathered */
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_stop(&daemon);
}
END_TEST

/* A place that a dead or leaving rank held is poisoned too, once the others let go. */
START_TEST(places_of_the_departed_are_nan)
{
    struct test_daemon daemon;
    struct rank ranks[2];
    start_with(&daemon, ranks, seal_with_poison);
    rank_close(&ranks[1]);
    ck_assert_int_eq(rank_check(&ranks[0], LAYER_0), F8_OK);
    ck_assert_int_eq(f8_release(ranks[0].group, LAYER_0, ranks[0].stream), F8_OK);
    await_poison(&ranks[0], LAYER_0);
    rank_close(&ranks[0]);
    test_daemon_stop(&daemon);
}
END_TEST

/* A view of an earlier use does not become valid by the next one. */
START_TEST(old_views_stay_stale)
{
    struct test_daemon daemon;
    struct rank ranks[2];
    start_with(&daemon, ranks, rank_seal);
    struct f8_view old = ranks[0].views[LAYER_0][0];
    for (uint32_t r = 0; r < 2; r++)
        ck_assert_int_eq(f8_release(ranks[r].group, LAYER_0, ranks[r].stream), F8_OK);
    ranks_must(ranks, 2, gather_layer);
    ck_assert_int_eq(f8_view_check(ranks[0].group, &ranks[0].views[LAYER_0][0]), F8_OK);
    ck_assert_int_eq(f8_view_check(ranks[0].group, &old), F8_ESTALE);
    ck_assert_ptr_nonnull(strstr(f8_error_text(), "weight 2 (bucket layers.0)"));
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("gathered");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, cannot_be_written, 0, sizeof(ways) / sizeof(ways[0]));
    tcase_add_test(tcase, freed_places_are_nan);
    tcase_add_test(tcase, places_of_the_departed_are_nan);
    tcase_add_test(tcase, old_views_stay_stale);
    return run_suite("gathered", tcase);
}
