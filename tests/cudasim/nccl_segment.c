/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates, names, opens and wakes the segment that the ranks of a communicator share. Called by
 * every thread of the NCCL double; the list of segments that this process created has a lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "nccl_segment.h"

#define ID_MAGIC "cudasim nccl id"

struct id_content {
    char magic[sizeof(ID_MAGIC)];
    int32_t pid, fd;
    uint64_t inode, clique;
};

_Static_assert(sizeof(struct id_content) <= NCCL_UNIQUE_ID_BYTES, "the name fits into an id");

struct created {
    int fd; /* owned */
    struct created *next;
};

static pthread_mutex_t created_lock = PTHREAD_MUTEX_INITIALIZER;
static struct created *created_segments;

static ncclResult_t remember(int fd)
{
    struct created *created = malloc(sizeof(*created));
    if (created == NULL)
        return ncclSystemError;
    created->fd = fd;
    pthread_mutex_lock(&created_lock);
    created->next = created_segments;
    created_segments = created;
    pthread_mutex_unlock(&created_lock);
    return ncclSuccess;
}

ncclResult_t segment_create(ncclUniqueId *ret_id)
{
    struct id_content content = {.magic = ID_MAGIC, .pid = getpid()};
    struct stat status;
    segment_sweep();
    int fd = memfd_create("cudasim-nccl", MFD_CLOEXEC);
    if (fd < 0)
        return ncclSystemError;
    if (ftruncate(fd, sizeof(struct segment)) != 0 || fstat(fd, &status) != 0 ||
        getrandom(&content.clique, sizeof(content.clique), 0) != sizeof(content.clique) ||
        pwrite(fd, &content.clique, sizeof(content.clique), offsetof(struct segment, clique)) !=
            sizeof(content.clique) ||
        remember(fd) != ncclSuccess) {
        close(fd);
        return ncclSystemError;
    }
    content.fd = fd;
    content.inode = status.st_ino;
    memset(ret_id, 0, sizeof(*ret_id));
    memcpy(ret_id->internal, &content, sizeof(content));
    return ncclSuccess;
}

static bool all_joined(int fd)
{
    uint32_t ranks = 0, joined = 0;
    if (pread(fd, &ranks, sizeof(ranks), offsetof(struct segment, ranks)) != sizeof(ranks) ||
        pread(fd, &joined, sizeof(joined), offsetof(struct segment, joined)) != sizeof(joined))
        return false;
    return ranks > 0 && joined == ranks;
}

void segment_sweep(void)
{
    pthread_mutex_lock(&created_lock);
    for (struct created **link = &created_segments; *link != NULL;) {
        struct created *created = *link;
        if (!all_joined(created->fd)) {
            link = &created->next;
            continue;
        }
        *link = created->next;
        close(created->fd);
        free(created);
    }
    pthread_mutex_unlock(&created_lock);
}

enum segment_opened segment_open(const ncclUniqueId *id, struct segment **ret_segment)
{
    struct id_content content;
    struct stat status;
    char path[64];
    memcpy(&content, id->internal, sizeof(content));
    if (memcmp(content.magic, ID_MAGIC, sizeof(ID_MAGIC)) != 0)
        return SEGMENT_NO_ID;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", content.pid, content.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return SEGMENT_CREATOR_GONE;
    struct segment *segment = MAP_FAILED;
    /* The pid and the number may mean something else by now. */
    if (fstat(fd, &status) == 0 && status.st_ino == content.inode &&
        status.st_size == (off_t)sizeof(*segment))
        segment = mmap(NULL, sizeof(*segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (segment == MAP_FAILED)
        return SEGMENT_CREATOR_GONE;
    if (segment->clique != content.clique) {
        segment_close(segment);
        return SEGMENT_CREATOR_GONE;
    }
    *ret_segment = segment;
    return SEGMENT_OPENED;
}

void segment_close(struct segment *segment)
{
    if (segment != NULL)
        munmap(segment, sizeof(*segment));
}

void segment_wait(struct segment *segment, uint32_t generation)
{
    /* Bounded, because nobody wakes those who wait for a process that dies. */
    struct timespec limit = {.tv_nsec = 10 * 1000 * 1000};
    syscall(SYS_futex, &segment->generation, FUTEX_WAIT, generation, &limit, NULL, 0);
}

void segment_wake(struct segment *segment)
{
    atomic_fetch_add(&segment->generation, 1);
    syscall(SYS_futex, &segment->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The state and the start time of a process, from /proc/PID/stat; false if there is none. */
static bool process_stat(int32_t pid, char *ret_state, uint64_t *ret_start)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (size <= 0)
        return false;
    text[size] = '\0';
    const char *field = strrchr(text, ')'); /* the name before it may contain anything */
    if (field == NULL || field[1] == '\0')
        return false;
    *ret_state = field[2];
    for (int space = 0; field != NULL && space < 20; space++)
        field = strchr(field + 1, ' ');
    if (field == NULL)
        return false;
    *ret_start = strtoull(field + 1, NULL, 10);
    return true;
}

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

void segment_identify(struct member *member)
{
    const char *host = getenv("NCCL_HOSTID");
    char state;
    member->pid = getpid();
    member->host = host == NULL ? 0 : hash_of(host);
    if (!process_stat(member->pid, &state, &member->start_time))
        member->start_time = 0;
}

bool segment_dead(const struct member *member)
{
    char state;
    uint64_t start_time;
    if (!process_stat(member->pid, &state, &start_time))
        return true;
    return state == 'Z' || state == 'X' || start_time != member->start_time;
}

int segment_hosts(const struct segment *segment)
{
    int hosts = 0;
    for (uint32_t rank = 0; rank < segment->ranks; rank++) {
        uint32_t other = 0;
        while (other < rank && segment->member[other].host != segment->member[rank].host)
            other++;
        hosts += other == rank;
    }
    return hosts;
}
