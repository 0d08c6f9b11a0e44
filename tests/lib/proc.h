/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel says of a process, read from /proc by someone other than the process itself.
 * Fails the test if the process is gone.
 */
#ifndef F8_TESTS_PROC_H
#define F8_TESTS_PROC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The mappings of one file, all together. */
struct proc_mapping {
    uint64_t inode; /* 0: there is none */
    uint32_t count;
    uint64_t size, rss_kb, pss_kb;
};

/* The mappings whose file's name has `name` in it; the test fails if they are of two files. */
struct proc_mapping proc_find_mapping(pid_t pid, const char *name);

/* What a process holds. */
struct proc_holdings {
    uint32_t descriptors, mappings, threads;
    uint64_t anon_kb, shmem_kb; /* of its resident memory */
};
struct proc_holdings proc_holdings(pid_t pid);

/* Clock ticks of user and system time so far. */
uint64_t proc_ticks(pid_t pid);

/* Context switches, voluntary and not, of all its threads so far. */
uint64_t proc_switches(pid_t pid);

/* Waits until all threads of the process sleep. */
void proc_await_sleep(pid_t pid);

/* Processes that have the file open or mapped, as far as this user may look. */
uint32_t proc_count_holders(const char *name, uint64_t inode);

/* Whether the process runs the program of that path. */
bool proc_runs(pid_t pid, const char *program);

/* Writes the pids of the children of a process, at most `max`; their number. */
uint32_t proc_children(pid_t pid, pid_t *children, uint32_t max);

#endif
