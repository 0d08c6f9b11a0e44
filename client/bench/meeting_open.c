/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a meeting and ends it, and the way there of all hosts but the first: they call host 0
 * again and again until it listens, say hello, and wait for the others. Called by run_far.c before
 * it forks.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/bench/meeting_private.h"
#include "client/bench/shared.h"

/* Host 0 has its deadline first, and can tell who is missing. */
#define GRACE_S 10

/* Between two calls of a host 0 that does not listen yet. */
#define AGAIN_MS 100

static int milliseconds_to(double deadline)
{
    double left = deadline - shared_now();

    return left > 0 ? (int)(left * 1000) + 1 : 0;
}

/* Waits until the descriptor is ready: 1; the time is up: 0; a signal comes: -1. */
static int await(int fd, short events, int signal_fd, double deadline, struct bench_error *error)
{
    struct pollfd fds[] = {{.fd = fd, .events = events}, {.fd = signal_fd, .events = POLLIN}};

    do {
        poll(fds, 2, milliseconds_to(deadline));
        if (fds[1].revents != 0) {
            return bench_fail(error, "interrupted");
        }
    } while (fds[0].revents == 0 && shared_now() < deadline);
    return fds[0].revents != 0;
}

/* A socket that is being connected, from this host's own address; -1: errno says why not. */
static int call(const struct meeting *meeting)
{
    const struct sockaddr_storage *from = &meeting->options->addresses.hosts[meeting->host];
    const struct sockaddr_storage *to = &meeting->options->addresses.hosts[0];
    int fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || bind(fd, (const struct sockaddr *)from, addresses_size(from)) != 0 ||
        (connect(fd, (const struct sockaddr *)to, addresses_size(to)) != 0 &&
            errno != EINPROGRESS)) {
        int why = errno;
        if (fd >= 0) {
            close(fd);
        }
        errno = why;
        return -1;
    }
    return fd;
}

/* Calls once. 1: connected; 0: not now, *ret_why says why; -1: interrupted. */
static int try_call(struct meeting *meeting, int signal_fd, double deadline, int *ret_why,
    struct bench_error *error)
{
    int fd = call(meeting);
    socklen_t size = sizeof(*ret_why);
    int ready;

    *ret_why = errno;
    if (fd < 0) {
        return 0;
    }
    ready = await(fd, POLLOUT, signal_fd, deadline, error);
    *ret_why = ETIMEDOUT;
    if (ready > 0) {
        getsockopt(fd, SOL_SOCKET, SO_ERROR, ret_why, &size);
    }
    if (ready <= 0 || *ret_why != 0) {
        close(fd);
        return ready < 0 ? -1 : 0;
    }
    link_open(&meeting->links[0], fd);
    return 1;
}

static int say_hello(struct meeting *meeting, const char *settings, struct bench_error *error)
{
    const struct link_hello hello = {.host = meeting->host};
    size_t length = strlen(settings);
    uint8_t *body = malloc(sizeof(hello) + length);
    int result;

    if (body == NULL) {
        return bench_no_memory(error);
    }
    memcpy(body, &hello, sizeof(hello));
    memcpy(body + sizeof(hello), settings, length);
    result = link_send(&meeting->links[0], LINK_HELLO, body, sizeof(hello) + length, error);
    free(body);
    return result;
}

/* The next message of host 0: 1; the time is up, or it is lost: 0, with why; -1: interrupted. */
static int read_answer(
    struct meeting *meeting, int signal_fd, double deadline, struct bench_error *error)
{
    struct link *link = &meeting->links[0];

    for (;;) {
        int result = link_read(link, MEETING_MAX_HELLO, error);
        if (result != 0) {
            return result > 0;
        }
        result = await(link->fd, POLLIN, signal_fd, deadline, error);
        if (result <= 0) {
            if (result == 0) {
                bench_fail(error, "it does not answer");
            }
            return result;
        }
    }
}

/* What host 0 says to a hello. 1: welcome; 0: nothing, so it is to be called again; -1. */
static int take_welcome(
    struct meeting *meeting, int signal_fd, double deadline, struct bench_error *error)
{
    const struct link_message *message = &meeting->links[0].message;
    char name[80];
    int result = read_answer(meeting, signal_fd, deadline, error);

    meeting_name(meeting->options, 0, name, sizeof(name));
    if (result <= 0) {
        return result;
    }
    if (message->type == LINK_WELCOME) {
        return 1;
    }
    if (message->type == LINK_REFUSED) {
        return bench_fail(error, "%s refuses this host: %.600s", name, (char *)message->body);
    }
    return bench_fail(error, "%s: it does not speak as this f8bench does", name);
}

/* Calls, says hello and is welcomed; 0: not now, with why in *error; 1; or -1. */
static int try_welcome(struct meeting *meeting, const char *settings, int signal_fd,
    double deadline, struct bench_error *error)
{
    double answer = shared_now() + MEETING_HELLO_S;
    int why = 0;
    int result = try_call(meeting, signal_fd, deadline, &why, error);

    if (result == 0) {
        bench_fail(error, "%s", strerror(why));
    }
    if (result > 0 && say_hello(meeting, settings, error) != 0) {
        result = 0;
    }
    if (result > 0) {
        result = take_welcome(meeting, signal_fd, answer < deadline ? answer : deadline, error);
    }
    if (result <= 0) {
        link_close(&meeting->links[0]);
    }
    return result;
}

/* Until host 0 says that all are there. */
static int await_start(struct meeting *meeting, int signal_fd, struct bench_error *error)
{
    double deadline = shared_now() + meeting->options->deadline_s + GRACE_S;
    const struct link_message *message = &meeting->links[0].message;
    struct bench_error why;
    char name[80];
    int result = read_answer(meeting, signal_fd, deadline, &why);

    meeting_name(meeting->options, 0, name, sizeof(name));
    if (result < 0) {
        *error = why;
        return -1;
    }
    if (result == 0) {
        return bench_fail(error, "%s was lost: %.600s", name, why.text);
    }
    if (message->type == LINK_FAILED && message->size == sizeof(struct link_failed)) {
        return bench_fail(
            error, "%.700s", (char *)message->body + offsetof(struct link_failed, text));
    }
    if (message->type != LINK_START || message->size >= MEETING_JOB_SIZE) {
        return bench_fail(error, "%s: it does not speak as this f8bench does", name);
    }
    snprintf(meeting->job, sizeof(meeting->job), "%s", (char *)message->body);
    return 0;
}

int meeting_join_others(
    struct meeting *meeting, const char *settings, int signal_fd, struct bench_error *error)
{
    double deadline = shared_now() + meeting->options->deadline_s;
    struct bench_error why;
    char name[80];
    int result;

    while ((result = try_welcome(meeting, settings, signal_fd, deadline, &why)) == 0 &&
           shared_now() + AGAIN_MS * 1e-3 < deadline) {
        if (await(-1, 0, signal_fd, shared_now() + AGAIN_MS * 1e-3, error) < 0) {
            return -1;
        }
    }
    if (result < 0) {
        *error = why;
        return -1;
    }
    if (result == 0) {
        meeting_name(meeting->options, 0, name, sizeof(name));
        return bench_fail(error, "%s, port %u, has not come within %" PRIu32 " s: %.500s", name,
            addresses_port(&meeting->options->addresses.hosts[0]), meeting->options->deadline_s,
            why.text);
    }
    return await_start(meeting, signal_fd, error);
}

static struct meeting *new_meeting(const struct options *options)
{
    struct meeting *meeting = calloc(1, sizeof(*meeting));
    int ends[2];

    if (meeting == NULL) {
        return NULL;
    }
    *meeting = (struct meeting){.options = options,
        .host = options->host,
        .num_hosts = options->hosts,
        .fd = -1,
        .ranks_fd = -1};
    for (uint32_t i = 0; i < NETWORK_MAX_HOSTS; i++) {
        meeting->links[i].fd = -1;
    }
    meeting->joined = malloc(MEETING_MAX_JOINED);
    if (meeting->joined == NULL ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        meeting_close(meeting);
        return NULL;
    }
    meeting->fd = ends[0];
    meeting->ranks_fd = ends[1];
    return meeting;
}

int meeting_open(const struct options *options, const char *settings, int signal_fd,
    struct meeting **ret_meeting, struct bench_error *error)
{
    struct meeting *meeting = new_meeting(options);
    int result;

    if (meeting == NULL) {
        return bench_no_memory(error);
    }
    result = options->host == 0 ? meeting_await_others(meeting, settings, signal_fd, error)
                                : meeting_join_others(meeting, settings, signal_fd, error);
    if (result != 0) {
        meeting_close(meeting);
        return -1;
    }
    *ret_meeting = meeting;
    return 0;
}

void meeting_close(struct meeting *meeting)
{
    if (meeting == NULL) {
        return;
    }
    for (uint32_t i = 0; i < NETWORK_MAX_HOSTS; i++) {
        link_close(&meeting->links[i]);
    }
    if (meeting->fd >= 0) {
        close(meeting->fd);
    }
    if (meeting->ranks_fd >= 0) {
        close(meeting->ranks_fd);
    }
    free(meeting->joined);
    free(meeting);
}
