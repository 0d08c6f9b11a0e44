/* SPDX-License-Identifier: Apache-2.0 */
/* The test's side of preloaded shims: see shim.h. */
#include "tests/lib/shim.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The address sanitizer wants to be first among the libraries; a shim may be before it. */
#define ASAN_SETTING "verify_asan_link_order=0"

static void allow_under_asan(void)
{
    const char *old = getenv("ASAN_OPTIONS");
    char options[1024];
    if (old && strstr(old, ASAN_SETTING))
        return;
    (void)snprintf(options, sizeof(options), "%s%s" ASAN_SETTING, old ? old : "", old ? ":" : "");
    (void)setenv("ASAN_OPTIONS", options, 1);
}

int shim_enter(char **argv, const char *shim)
{
    char number[16];
    if (getenv(SHIM_TABLE_ENV))
        return 0;
    int fd = memfd_create("f8-shim-table", 0);
    if (fd < 0 || ftruncate(fd, sizeof(struct shim_table)) < 0) {
        perror("the shim's table");
        return -1;
    }
    (void)snprintf(number, sizeof(number), "%d", fd);
    (void)setenv(SHIM_TABLE_ENV, number, 1);
    (void)setenv("LD_PRELOAD", shim, 1);
    allow_under_asan();
    (void)execv("/proc/self/exe", argv);
    perror(argv[0]);
    return -1;
}

void shim_preload(const char *shim)
{
    ck_assert_int_eq(setenv("LD_PRELOAD", shim, 1), 0);
    allow_under_asan();
}

void shim_unload(void)
{
    ck_assert_int_eq(unsetenv("LD_PRELOAD"), 0);
}

static struct shim_table *table(void)
{
    static struct shim_table *mapped; /* owned: for the life of the test */
    const char *number = getenv(SHIM_TABLE_ENV);
    if (!mapped) {
        ck_assert_ptr_nonnull(number);
        mapped = mmap(NULL, sizeof(*mapped), PROT_READ | PROT_WRITE, MAP_SHARED,
            (int)strtol(number, NULL, 10), 0);
        ck_assert_ptr_ne(mapped, MAP_FAILED);
    }
    return mapped;
}

struct shim_entry *shim_entry_of(pid_t pid)
{
    struct shim_table *shims = table();
    ck_assert_uint_le(atomic_load(&shims->used), SHIM_ENTRIES);
    for (uint32_t i = atomic_load(&shims->used); i-- > 0;) /* the last: an exec keeps the pid */
        if (atomic_load(&shims->entries[i].pid) == pid)
            return &shims->entries[i];
    ck_abort_msg("process %d is not under the shim", (int)pid);
    return NULL;
}

struct shim_count shim_count_since(const struct shim_way *way, struct shim_count before)
{
    return (struct shim_count){
        .calls = atomic_load(&way->calls) - before.calls,
        .bytes = atomic_load(&way->bytes) - before.bytes,
    };
}
