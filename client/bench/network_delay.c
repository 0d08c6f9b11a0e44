/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A delay by packet sockets: each packet, joined segments and unfinished checksums as they are
 * (PACKET_VNET_HDR), waits in a queue until it is due. All packets wait alike, so the queue is in
 * order. The process has one thread; network.c starts and kills it.
 */
#include "network_delay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The longest joined segment, with its headers. */
#define MAX_PACKET (66 << 10)

/* Bytes that the sockets and the queue may hold; what comes when it is full is lost. */
#define SOCKET_BYTES (64 << 20)
#define QUEUE_BYTES  (256 << 20)

struct packet {
    struct packet *next; /* owned */
    int64_t due_ns;
    size_t size;
    uint8_t bytes[]; /* as the socket gave it */
};

struct queue {
    struct packet *first; /* owned; NULL: it is empty */
    struct packet *last;  /* borrowed: from the queue */
    size_t bytes;
};

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* All that comes in by an interface, and a way out by it. -1: errno says why. */
static int open_interface(const char *name)
{
    const int one = 1;
    const int size = SOCKET_BYTES;
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    address.sll_ifindex = (int)if_nametoindex(name);
    if (fd >= 0 && address.sll_ifindex > 0 &&
        setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) == 0 &&
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) == 0 &&
        bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0) {
        return fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

/* As on a cable, nobody learns of what is lost. */
static void put(int fd, const uint8_t *bytes, size_t size)
{
    (void)!write(fd, bytes, size);
}

static void enqueue(struct queue *queue, const uint8_t *bytes, size_t size, int64_t due_ns)
{
    struct packet *packet =
        queue->bytes + size <= QUEUE_BYTES ? malloc(sizeof(*packet) + size) : NULL;

    if (packet == NULL) {
        return;
    }
    *packet = (struct packet){.due_ns = due_ns, .size = size};
    memcpy(packet->bytes, bytes, size);
    if (queue->first == NULL) {
        queue->first = packet;
    } else {
        queue->last->next = packet;
    }
    queue->last = packet;
    queue->bytes += size;
}

/* Sends what is due. */
static void drain(struct queue *queue, int to, int64_t now)
{
    while (queue->first != NULL && queue->first->due_ns <= now) {
        struct packet *packet = queue->first;
        queue->first = packet->next;
        queue->bytes -= packet->size;
        put(to, packet->bytes, packet->size);
        free(packet);
    }
}

/* The time until the first packet is due; NULL: there is none. */
static const struct timespec *until_due(const struct queue *queue, struct timespec *left)
{
    int64_t ns = queue->first != NULL ? queue->first->due_ns - now_ns() : 0;

    if (queue->first == NULL) {
        return NULL;
    }
    ns = ns > 0 ? ns : 0;
    *left = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return left;
}

/* For ever. */
__attribute__((noreturn)) static void carry(int slow, int fast, int64_t delay_ns)
{
    static uint8_t bytes[MAX_PACKET];
    struct queue queue = {0};
    struct timespec left;

    for (;;) {
        struct pollfd fds[] = {{.fd = slow, .events = POLLIN}, {.fd = fast, .events = POLLIN}};
        ssize_t got;
        ppoll(fds, 2, until_due(&queue, &left), NULL);
        while ((got = read(slow, bytes, sizeof(bytes))) > 0) {
            enqueue(&queue, bytes, (size_t)got, now_ns() + delay_ns);
        }
        drain(&queue, fast, now_ns());
        while ((got = read(fast, bytes, sizeof(bytes))) > 0) {
            put(slow, bytes, (size_t)got);
            drain(&queue, fast, now_ns());
        }
    }
}

pid_t network_delay_start(int ns_fd, const char *slow_from, const char *fast_from,
    uint32_t delay_us, struct bench_error *error)
{
    int ready[2];
    char byte;
    pid_t parent;
    pid_t pid;
    bool is_ready;

    if (pipe2(ready, O_CLOEXEC) != 0) {
        return bench_fail(error, "no pipe for a delay: %s", strerror(errno));
    }
    parent = getpid();
    pid = fork();
    if (pid == 0) {
        int slow;
        int fast;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_TIMERSLACK, 1);
        if (getppid() != parent || setns(ns_fd, CLONE_NEWNET) != 0 ||
            (slow = open_interface(slow_from)) < 0 || (fast = open_interface(fast_from)) < 0 ||
            write(ready[1], "", 1) != 1) {
            _exit(1);
        }
        close(ready[1]);
        carry(slow, fast, (int64_t)delay_us * 1000);
    }
    close(ready[1]);
    is_ready = pid > 0 && read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    if (!is_ready) {
        if (pid > 0) {
            waitpid(pid, NULL, 0);
        }
        return bench_fail(error, "cannot carry packets from %s to %s", slow_from, fast_from);
    }
    return pid;
}
