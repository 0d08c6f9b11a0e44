/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A preloaded shim that counts messages and waits of a process: each sendmsg and recvmsg with its
 * bytes, each poll, and, so that nothing goes past it, every other call that moves bytes through
 * a socket. It changes nothing that it passes on. Any thread.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/system/shim_entry.h"

/* The function that this one stands before. */
#define NEXT(name) __extension__((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

static void count_message(struct shim_way *way, ssize_t n)
{
    if (n < 0) {
        shim_add(&way->empty, 1);
        return;
    }
    shim_add(&way->calls, 1);
    shim_add(&way->bytes, (uint64_t)n);
    uint64_t largest = atomic_load_explicit(&way->largest, memory_order_relaxed);
    while ((uint64_t)n > largest &&
           !atomic_compare_exchange_weak(&way->largest, &largest, (uint64_t)n))
        continue;
}

static void count_other(int fd)
{
    struct stat status;
    int error = errno;
    if (shim_self && fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode))
        shim_add(&shim_self->others, 1);
    errno = error;
}

static void count_wait(void)
{
    if (shim_self)
        shim_add(&shim_self->waits, 1);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t n = NEXT(sendmsg)(fd, message, flags);
    int error = errno;
    if (shim_self)
        count_message(&shim_self->sent, n);
    errno = error;
    return n;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t n = NEXT(recvmsg)(fd, message, flags);
    int error = errno;
    if (shim_self)
        count_message(&shim_self->received, n);
    errno = error;
    return n;
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
    count_other(fd);
    return NEXT(send)(fd, data, size, flags);
}

ssize_t recv(int fd, void *data, size_t size, int flags)
{
    count_other(fd);
    return NEXT(recv)(fd, data, size, flags);
}

ssize_t sendto(
    int fd, const void *data, size_t size, int flags, __CONST_SOCKADDR_ARG to, socklen_t length)
{
    count_other(fd);
    return NEXT(sendto)(fd, data, size, flags, to, length);
}

ssize_t recvfrom(int fd, void *restrict data, size_t size, int flags, __SOCKADDR_ARG from,
    socklen_t *restrict length)
{
    count_other(fd);
    return NEXT(recvfrom)(fd, data, size, flags, from, length);
}

int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags)
{
    count_other(fd);
    return NEXT(sendmmsg)(fd, messages, count, flags);
}

int recvmmsg(
    int fd, struct mmsghdr *messages, unsigned int count, int flags, struct timespec *timeout)
{
    count_other(fd);
    return NEXT(recvmmsg)(fd, messages, count, flags, timeout);
}

ssize_t write(int fd, const void *data, size_t size)
{
    count_other(fd);
    return NEXT(write)(fd, data, size);
}

ssize_t read(int fd, void *data, size_t size)
{
    count_other(fd);
    return NEXT(read)(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *iov, int count)
{
    count_other(fd);
    return NEXT(writev)(fd, iov, count);
}

ssize_t readv(int fd, const struct iovec *iov, int count)
{
    count_other(fd);
    return NEXT(readv)(fd, iov, count);
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    count_wait();
    return NEXT(poll)(fds, count, timeout);
}

int epoll_wait(int fd, struct epoll_event *events, int max, int timeout)
{
    count_wait();
    return NEXT(epoll_wait)(fd, events, max, timeout);
}

int epoll_pwait(int fd, struct epoll_event *events, int max, int timeout, const sigset_t *mask)
{
    count_wait();
    return NEXT(epoll_pwait)(fd, events, max, timeout, mask);
}
