/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A preloaded shim that makes the kernel look older than 5.14: madvise knows neither COLLAPSE nor
 * POPULATE_READ and POPULATE_WRITE. Any thread.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define POPULATE_READ  22
#define POPULATE_WRITE 23
#define COLLAPSE       25

int madvise(void *address, size_t size, int advice)
{
    if (advice == POPULATE_READ || advice == POPULATE_WRITE || advice == COLLAPSE) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, address, size, advice);
}
