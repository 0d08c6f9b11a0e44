/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers of operations: where they are, and how a rank reads those of another. A peer's data is
 * read straight from the memfd that holds it, through /proc/PID/fd, so nothing is mapped and
 * nothing can be left mapped.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nccl_comm.h"

/* The bytes from `at` that are in one allocation, at most `most`; 0 if none are. */
static uint64_t bytes_there(const char *at, uint64_t most, struct cudasim_range *ret_range)
{
    if (!cudasim_find(at, ret_range))
        return 0;
    uint64_t rest = ret_range->base + ret_range->size - (uintptr_t)at;
    return rest < most ? rest : most;
}

void memory_check(const struct ncclComm *comm, const char *function, const char *name,
    const void *buffer, uint64_t bytes)
{
    struct cudasim_range range;
    const char *at = buffer;
    for (uint64_t rest = bytes; rest > 0;) {
        uint64_t there = bytes_there(at, rest, &range);
        if (there == 0 && rest == bytes)
            cudasim_fault("%s: rank %d of %s: %s %p is not device memory", function, comm->rank,
                comm_name(comm), name, buffer);
        if (there == 0)
            cudasim_fault("%s: rank %d of %s: %s %p leaves its allocation after %lu of %lu bytes",
                function, comm->rank, comm_name(comm), name, buffer, (unsigned long)(bytes - rest),
                (unsigned long)bytes);
        if (range.device != comm->device)
            cudasim_fault("%s: rank %d of %s is on device %d, and %s %p on device %d", function,
                comm->rank, comm_name(comm), comm->device, name, buffer, range.device);
        at += there;
        rest -= there;
    }
}

void memory_describe(const struct operation *operation, const char *name, const void *buffer,
    uint64_t bytes, struct segment_memory *ret_memory)
{
    const struct ncclComm *comm = operation->comm;
    const char *function = launch_function(operation->signature.kind);
    struct cudasim_range range;
    const char *at = buffer;
    ret_memory->pieces = 0;
    for (uint64_t rest = bytes; rest > 0;) {
        uint64_t there = bytes_there(at, rest, &range);
        if (there == 0)
            cudasim_fault("%s: rank %d of %s: %s %p was freed before the operation had run",
                function, comm->rank, comm_name(comm), name, buffer);
        if (ret_memory->pieces == SEGMENT_PIECES)
            cudasim_fault("%s: rank %d of %s: %s %p spans more than %d allocations, which is not "
                          "simulated",
                function, comm->rank, comm_name(comm), name, buffer, SEGMENT_PIECES);
        ret_memory->piece[ret_memory->pieces++] = (struct segment_piece){.pid = range.pid,
            .fd = range.fd,
            .inode = range.inode,
            .offset = range.offset,
            .bytes = there};
        at += there;
        rest -= there;
    }
}

/* -1 if the process is gone or no longer has the memfd. */
static int piece_open(const struct segment_piece *piece)
{
    struct stat status;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", piece->pid, piece->fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &status) != 0 || status.st_ino != piece->inode)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool piece_read(const struct segment_piece *piece, uint64_t offset, char *to, uint64_t bytes)
{
    int fd = piece_open(piece);
    if (fd < 0)
        return false;
    while (bytes > 0) {
        ssize_t got = pread(fd, to, bytes, (off_t)(piece->offset + offset));
        if (got < 0 && errno == EFAULT) { /* another operation has ended, and closed the range */
            cudasim_allow(to, bytes, true);
            continue;
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        to += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    close(fd);
    return bytes == 0;
}

bool memory_read(const struct ncclComm *comm, int peer, const struct segment_memory *memory,
    uint64_t offset, void *to, uint64_t bytes)
{
    char *at = to;
    for (uint32_t i = 0; i < memory->pieces && i < SEGMENT_PIECES && bytes > 0; i++) {
        const struct segment_piece *piece = &memory->piece[i];
        if (offset >= piece->bytes) {
            offset -= piece->bytes;
            continue;
        }
        uint64_t part = piece->bytes - offset < bytes ? piece->bytes - offset : bytes;
        if (!piece_read(piece, offset, at, part)) {
            const struct member *other = &comm->segment->member[peer];
            if (other->stopped || segment_dead(other))
                return false;
            cudasim_fault("rank %d of %s cannot read the buffer of rank %d, which was freed while "
                          "the operation ran",
                comm->rank, comm_name(comm), peer);
        }
        at += part;
        bytes -= part;
        offset = 0;
    }
    return bytes == 0;
}
