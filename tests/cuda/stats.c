/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of other processes: see stats.h. */
#include "tests/cuda/stats.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static char directory[32];

void stats_begin(void)
{
    char prefix[64];
    (void)snprintf(directory, sizeof(directory), "/tmp/f8stats-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(prefix, sizeof(prefix), "%s/s", directory);
    ck_assert_int_eq(setenv("CUDASIM_STATS", prefix, 1), 0);
}

void stats_read(pid_t pid, struct cudasim_stats *ret_stats)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/s.%d", directory, (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "no counters of process %d", (int)pid);
    struct cudasim_stats *stats = mmap(NULL, sizeof(*stats), PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(stats, MAP_FAILED);
    ck_assert_uint_eq(stats->magic, CUDASIM_STATS_MAGIC);
    for (int i = 0; i < CUDASIM_NUM_COUNTERS; i++)
        ret_stats->counters[i] = __atomic_load_n(&stats->counters[i], __ATOMIC_RELAXED);
    (void)munmap(stats, sizeof(*stats));
    (void)close(fd);
}

void stats_end(void)
{
    DIR *entries = opendir(directory);
    ck_assert_ptr_nonnull(entries);
    for (const struct dirent *entry; (entry = readdir(entries));)
        if (entry->d_name[0] != '.')
            (void)unlinkat(dirfd(entries), entry->d_name, 0);
    (void)closedir(entries);
    ck_assert_int_eq(rmdir(directory), 0);
    (void)unsetenv("CUDASIM_STATS");
}
