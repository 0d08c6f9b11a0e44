/* SPDX-License-Identifier: Apache-2.0 */
/* Reading /proc: see proc.h. */
#include "tests/lib/proc.h"

#include <check.h>
#include <dirent.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/patience.h"

/* NULL: it is gone. */
static FILE *try_file(pid_t pid, const char *name)
{
    char path[320];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    return fopen(path, "re");
}

static FILE *open_file(pid_t pid, const char *name)
{
    FILE *file = try_file(pid, name);
    ck_assert_msg(file != NULL, "cannot read /proc/%d/%s", (int)pid, name);
    return file;
}

struct proc_mapping proc_find_mapping(pid_t pid, const char *name)
{
    struct proc_mapping found = {0};
    FILE *file = open_file(pid, "smaps");
    char line[1024];
    bool inside = false;
    while (fgets(line, sizeof(line), file)) {
        uint64_t begin, end, inode, kb;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %" SCNu64, &begin, &end, &inode) ==
            3) {
            inside = strstr(line, name) != NULL;
            if (!inside)
                continue;
            ck_assert_msg(!found.inode || found.inode == inode, "two files are called %s", name);
            found.inode = inode;
            found.count++;
            found.size += end - begin;
        } else if (inside && sscanf(line, "Rss: %" SCNu64, &kb) == 1) {
            found.rss_kb += kb;
        } else if (inside && sscanf(line, "Pss: %" SCNu64, &kb) == 1) {
            found.pss_kb += kb;
        }
    }
    (void)fclose(file);
    return found;
}

static uint32_t count_entries(pid_t pid, const char *name)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    DIR *directory = opendir(path);
    ck_assert_msg(directory != NULL, "cannot read %s", path);
    uint32_t count = 0;
    while (readdir(directory))
        count++;
    (void)closedir(directory);
    return count - 2; /* . and .. */
}

/* The number behind `key` in a file of lines "key: number". */
static uint64_t find_field(FILE *file, const char *key)
{
    char line[1024];
    uint64_t value = 0;
    size_t length = strlen(key);
    rewind(file);
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, key, length) == 0)
            value = strtoull(line + length, NULL, 10);
    return value;
}

static uint64_t read_field(pid_t pid, const char *name, const char *key)
{
    FILE *file = open_file(pid, name);
    uint64_t value = find_field(file, key);
    (void)fclose(file);
    return value;
}

static uint32_t count_lines(pid_t pid, const char *name)
{
    FILE *file = open_file(pid, name);
    uint32_t lines = 0;
    int c;
    while ((c = fgetc(file)) != EOF)
        lines += c == '\n';
    (void)fclose(file);
    return lines;
}

struct proc_holdings proc_holdings(pid_t pid)
{
    return (struct proc_holdings){
        .descriptors = count_entries(pid, "fd"),
        .mappings = count_lines(pid, "maps"),
        .threads = count_entries(pid, "task"),
        .anon_kb = read_field(pid, "status", "RssAnon:"),
        .shmem_kb = read_field(pid, "status", "RssShmem:"),
    };
}

uint64_t proc_ticks(pid_t pid)
{
    FILE *file = open_file(pid, "stat");
    char line[1024];
    uint64_t user, system;
    ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
    (void)fclose(file);
    const char *after = strrchr(line, ')'); /* the name may have spaces */
    ck_assert_int_eq(
        sscanf(after, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64, &user,
            &system),
        2);
    return user + system;
}

/* Calls `visit` with the status file of each thread, and adds up what it returns. One may end
 * meanwhile. */
static uint64_t over_threads(pid_t pid, uint64_t (*visit)(FILE *status))
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *directory = opendir(path);
    ck_assert_ptr_nonnull(directory);
    uint64_t sum = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char status[sizeof(entry->d_name) + 16];
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(status, sizeof(status), "task/%s/status", entry->d_name);
        FILE *file = try_file(pid, status);
        if (!file)
            continue;
        sum += visit(file);
        (void)fclose(file);
    }
    (void)closedir(directory);
    return sum;
}

static uint64_t switches_of(FILE *status)
{
    return find_field(status, "voluntary_ctxt_switches:") +
           find_field(status, "nonvoluntary_ctxt_switches:");
}

uint64_t proc_switches(pid_t pid)
{
    return over_threads(pid, switches_of);
}

static uint64_t is_awake(FILE *status)
{
    char line[1024], state = '?';
    while (fgets(line, sizeof(line), status))
        (void)sscanf(line, "State: %c", &state);
    return state != 'S';
}

void proc_await_sleep(pid_t pid)
{
    for (int i = 0; i < PATIENCE_MS; i++) {
        /* One that was seen asleep may have been woken by the next: then it has switched. */
        uint64_t switches = proc_switches(pid);
        if (over_threads(pid, is_awake) == 0 && proc_switches(pid) == switches)
            return;
        (void)poll(NULL, 0, 1);
    }
    ck_abort_msg("process %d does not come to rest", (int)pid);
}

/* Whether a link is to the file of `inode` called `name`. */
static bool links_to(const char *path, const char *name, uint64_t inode)
{
    char target[256];
    struct stat status;
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    target[length > 0 ? length : 0] = '\0';
    return strstr(target, name) && stat(path, &status) == 0 && status.st_ino == inode;
}

/* Whether a process has the file open. */
static bool has_open(const char *process, const char *name, uint64_t inode)
{
    char path[320];
    (void)snprintf(path, sizeof(path), "/proc/%s/fd", process);
    DIR *directory = opendir(path);
    bool found = false;
    for (struct dirent *entry; directory && !found && (entry = readdir(directory));) {
        char link[sizeof(path) + sizeof(entry->d_name)];
        (void)snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
        found = links_to(link, name, inode);
    }
    if (directory)
        (void)closedir(directory);
    return found;
}

/* Whether a process has the file mapped: by maps, since map_files is for root alone. */
static bool has_mapped(const char *process, const char *name, uint64_t inode)
{
    char path[320], line[1024];
    (void)snprintf(path, sizeof(path), "/proc/%s/maps", process);
    FILE *file = fopen(path, "re");
    bool found = false;
    uint64_t number;
    while (file && !found && fgets(line, sizeof(line), file))
        found = sscanf(line, "%*s %*s %*s %*s %" SCNu64, &number) == 1 && number == inode &&
                strstr(line, name);
    if (file)
        (void)fclose(file);
    return found;
}

uint32_t proc_count_holders(const char *name, uint64_t inode)
{
    DIR *directory = opendir("/proc");
    ck_assert_ptr_nonnull(directory);
    uint32_t holders = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (strtol(entry->d_name, NULL, 10) > 0)
            holders +=
                has_open(entry->d_name, name, inode) || has_mapped(entry->d_name, name, inode);
    (void)closedir(directory);
    return holders;
}

bool proc_runs(pid_t pid, const char *program)
{
    char path[64], target[512];
    (void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    target[length > 0 ? length : 0] = '\0';
    return strcmp(target, program) == 0;
}

uint32_t proc_children(pid_t pid, pid_t *children, uint32_t max)
{
    DIR *directory = opendir("/proc");
    ck_assert_ptr_nonnull(directory);
    uint32_t count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) && count < max;) {
        char path[sizeof(entry->d_name) + 16], line[512];
        int parent = 0;
        (void)snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
        FILE *file = strtol(entry->d_name, NULL, 10) > 0 ? fopen(path, "re") : NULL;
        if (!file)
            continue; /* no process, or one that has ended meanwhile */
        const char *after = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
        if (after && sscanf(after, ") %*c %d", &parent) == 1 && parent == pid)
            children[count++] = (pid_t)strtol(entry->d_name, NULL, 10);
        (void)fclose(file);
    }
    (void)closedir(directory);
    return count;
}
