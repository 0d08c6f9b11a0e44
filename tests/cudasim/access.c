/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may touch device memory when. Its pages are closed; an operation that touches them faults,
 * and the handler here, on the worker's thread, opens the range until the operation ends. Anyone
 * else who faults there is told what it touched. Other faults go to the handlers that were there.
 */
#include "core.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>

static __thread struct operation *current;

static pthread_mutex_t handlers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction former[NSIG]; /* of SIGSEGV and SIGBUS */

const struct operation *access_operation(void)
{
    return current;
}

/* ---- opening ---- */

/* Copies and collectives go over all of a process's memory, kernels only where their device may. */
static bool may_use(const struct range *range, bool is_written)
{
    uint32_t devices = is_written ? range->writers : range->readers;
    if (current->kind == OPERATION_KERNEL &&
        (range->kind == RANGE_MAPPING || range->kind == RANGE_IMPORT))
        return devices >> current->device & 1;
    if (current->kind == OPERATION_KERNEL && !cudasim_has_peer(current->device, range->device))
        return false;
    return devices != 0;
}

static bool is_gone_at_exporter(const struct range *range)
{
    struct stat status;
    return range->kind == RANGE_IMPORT && fstat(range->fd, &status) == 0 && status.st_size == 0;
}

static void range_open(struct range *range)
{
    if (range->is_open || range_is_for_host(range))
        return;
    int protection = PROT_READ | (range->writers ? PROT_WRITE : 0);
    if (mprotect((void *)range->base, round_up(range->size, 4096), protection))
        cudasim_fault("mprotect of %zu bytes: %s", range->size, strerror(errno));
    range->is_open = true;
    range->next_open = current->open;
    current->open = range;
}

static void range_close(struct range *range)
{
    if (!range->end && mprotect((void *)range->base, round_up(range->size, 4096), PROT_NONE))
        cudasim_fault("mprotect of %zu bytes: %s", range->size, strerror(errno));
    range->is_open = false;
}

/* Opens what an operation touches, or says why it may not. Locked. */
static void admit(struct range *range, uintptr_t address, bool is_written)
{
    char text[160];
    memory_describe(range, text, sizeof text);
    const char *verb = is_written ? "writes" : "reads";
    size_t offset = address - range->base;
    if (range->end)
        cudasim_fault("use after free: \"%s\" on device %d %s byte %zu of %s", current->what,
            current->device, verb, offset, text);
    if (is_gone_at_exporter(range))
        cudasim_fault("use after free: \"%s\" on device %d %s byte %zu of %s, which process %ld "
                      "exported and has freed since",
            current->what, current->device, verb, offset, text, (long)range->exporter);
    if (!may_use(range, is_written))
        cudasim_fault("no access: \"%s\" on device %d %s byte %zu of %s without the right to",
            current->what, current->device, verb, offset, text);
    range_open(range);
}

void cudasim_allow(const void *base, size_t size, bool is_written)
{
    if (!current || current->kind == OPERATION_HOST)
        cudasim_fault("cudasim_allow is not called by an operation");
    if (!size)
        return;
    uintptr_t address = (uintptr_t)base, end = address + size;
    memory_lock();
    while (address < end) {
        struct range *range = memory_at(address);
        if (range) {
            admit(range, address, is_written);
            address = range->base + range->size;
        } else if (memory_is_reserved(address)) {
            cudasim_fault("out of bounds: \"%s\" on device %d touches %zu bytes, of which the last "
                          "%zu are no memory",
                current->what, current->device, size, (size_t)(end - address));
        } else {
            break; /* host memory */
        }
    }
    memory_unlock();
}

/* ---- faults of the processor ---- */

static bool is_write_fault(const void *context)
{
#if defined(__x86_64__)
    return ((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2;
#else
    (void)context;
    return false;
#endif
}

static void accuse_stray(uintptr_t address, const char *verb)
{
    const struct range *before = memory_before(address);
    char text[160] = "any allocation";
    if (before)
        memory_describe(before, text, sizeof text);
    cudasim_fault("out of bounds: \"%s\" on device %d %s %p, %zu bytes behind the end of %s",
        current->what, current->device, verb, (void *)address,
        before ? (size_t)(address - before->base - before->size) : 0, text);
}

static void accuse_host(const struct range *range, uintptr_t address, const char *verb)
{
    char text[160] = "reserved addresses without memory";
    if (range)
        memory_describe(range, text, sizeof text);
    cudasim_fault("host access: %s %s %p, byte %zu of %s: only copies and kernels may",
        current ? current->what : "the host", verb, (void *)address,
        range ? (size_t)(address - range->base) : 0, text);
}

/* True if the address is the simulator's: the access may be tried again then. */
static bool resolve(uintptr_t address, bool is_written)
{
    const char *verb = is_written ? "writes" : "reads";
    memory_lock();
    struct range *range = memory_at(address);
    bool is_ours = range || memory_is_reserved(address);
    if (is_ours) {
        if (!current || current->kind == OPERATION_HOST)
            accuse_host(range, address, verb);
        if (!range)
            accuse_stray(address, verb);
        bool was_open = range->is_open;
        admit(range, address, is_written);
        if (was_open && is_written && !range->writers)
            cudasim_fault("no access: \"%s\" writes to read-only memory", current->what);
    }
    memory_unlock();
    return is_ours;
}

static void handle(int signal_number, siginfo_t *info, void *context)
{
    if (info->si_code == SI_KERNEL && current && current->kind == OPERATION_KERNEL)
        cudasim_fault("misaligned access: \"%s\" on device %d takes 16 bytes or more at an address "
                      "that is no multiple of their size",
            current->what, current->device);
    if (info->si_code > 0 && resolve((uintptr_t)info->si_addr, is_write_fault(context)))
        return;
    const struct sigaction *old = &former[signal_number];
    if (old->sa_flags & SA_SIGINFO)
        old->sa_sigaction(signal_number, info, context);
    else if (old->sa_handler == SIG_DFL || old->sa_handler == SIG_IGN)
        signal(signal_number, SIG_DFL); /* the access faults again, and ends the process */
    else
        old->sa_handler(signal_number);
}

/* Also after the program has put in a handler of its own, which then gets all that is not ours. */
static void install(int signal_number)
{
    struct sigaction action;
    sigaction(signal_number, NULL, &action);
    if ((action.sa_flags & SA_SIGINFO) && action.sa_sigaction == handle)
        return;
    former[signal_number] = action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, NULL);
}

void access_install(void)
{
    pthread_mutex_lock(&handlers_lock);
    install(SIGSEGV);
    install(SIGBUS);
    pthread_mutex_unlock(&handlers_lock);
}

void access_begin(struct operation *operation)
{
    access_install();
    current = operation;
}

void access_end(struct operation *operation)
{
    memory_lock();
    for (struct range *range = operation->open, *next; range; range = next) {
        next = range->next_open;
        range->next_open = NULL;
        range_close(range);
    }
    memory_unlock();
    current = NULL;
}
