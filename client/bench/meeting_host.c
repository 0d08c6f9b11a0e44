/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host 0's way to a meeting: it listens, and takes those whose hello is right as the other hosts.
 * Who connects is a guest until then, of whom nothing is believed and who has little time; none
 * keeps another waiting. Called by meeting_open.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/bench/meeting_private.h"
#include "client/bench/settings.h"
#include "client/bench/shared.h"

/* At once; of more the oldest goes. */
#define MAX_GUESTS 32

struct guest {
    struct link link;
    double since;
    struct sockaddr_storage from;
};

/* Host 0 while it waits. */
struct door {
    struct meeting *meeting; /* borrowed: from meeting_open */
    const char *settings;    /* borrowed: from its caller */
    int listener;            /* owned */
    uint32_t here;           /* of the other hosts */
    uint32_t num_guests;
    struct guest guests[MAX_GUESTS]; /* the oldest first */
    char refused[400];               /* who was last, and why */
};

static int listen_at(const struct options *options, struct bench_error *error)
{
    const struct sockaddr_storage *at = &options->addresses.hosts[0];
    const int yes = 1;
    int fd = socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    char name[80];

    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
        if (bind(fd, (const struct sockaddr *)at, addresses_size(at)) == 0 &&
            listen(fd, SOMAXCONN) == 0) {
            return fd;
        }
    }
    meeting_name(options, 0, name, sizeof(name));
    bench_fail(error, "%s cannot listen at port %u: %s (choose one with --hosts ADDRESS:PORT,...)",
        name, addresses_port(at), strerror(errno));
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

static void remove_guest(struct door *door, uint32_t index)
{
    door->num_guests--;
    memmove(&door->guests[index], &door->guests[index + 1],
        (door->num_guests - index) * sizeof(door->guests[0]));
}

/* Names who connected by address; what it sent is told only as far as it is printable. */
static void note_refused(struct door *door, const struct sockaddr_storage *from, const char *why)
{
    const struct addresses one = {.count = 1, .hosts = {*from}};
    char address[INET6_ADDRSTRLEN];

    addresses_text(&one, 0, address, sizeof(address));
    snprintf(door->refused, sizeof(door->refused), "%s: %.300s", address, why);
    for (char *c = door->refused; *c != '\0'; c++) {
        *c = *c < ' ' || *c > '~' ? '?' : *c;
    }
    fprintf(stderr, "f8bench: refused %s\n", door->refused);
}

static void refuse(struct door *door, uint32_t index, const char *why)
{
    struct guest *guest = &door->guests[index];
    struct bench_error error;

    note_refused(door, &guest->from, why);
    (void)link_send(&guest->link, LINK_REFUSED, why, strlen(why), &error);
    link_close(&guest->link);
    remove_guest(door, index);
}

static void accept_guest(struct door *door)
{
    struct sockaddr_storage from = {0};
    socklen_t size = sizeof(from);
    int fd = accept4(door->listener, (struct sockaddr *)&from, &size, SOCK_CLOEXEC);
    struct guest *guest;

    if (fd < 0) {
        return;
    }
    if (door->num_guests == MAX_GUESTS) {
        note_refused(door, &door->guests[0].from, "others came while it said nothing");
        link_close(&door->guests[0].link);
        remove_guest(door, 0);
    }
    guest = &door->guests[door->num_guests++];
    *guest = (struct guest){.since = shared_now(), .from = from};
    link_open(&guest->link, fd);
}

/* Whether a hello is a host's that is waited for. */
static int check_hello(const struct door *door, const struct guest *guest, uint32_t *ret_host,
    struct bench_error *error)
{
    const struct link_message *message = &guest->link.message;
    struct addresses both = {.count = 2, .hosts = {guest->from}};
    struct link_hello hello;
    char from[INET6_ADDRSTRLEN];
    char listed[INET6_ADDRSTRLEN];

    if (message->type != LINK_HELLO || message->size < sizeof(hello)) {
        return bench_fail(error, "it says no hello");
    }
    memcpy(&hello, message->body, sizeof(hello));
    if (settings_compare((char *)message->body + sizeof(hello), door->settings, error) != 0) {
        return -1;
    }
    if (hello.host == 0 || hello.host >= door->meeting->num_hosts) {
        return bench_fail(error, "--host is %" PRIu32 ", and must be 1 to %" PRIu32, hello.host,
            door->meeting->num_hosts - 1);
    }
    both.hosts[1] = door->meeting->options->addresses.hosts[hello.host];
    addresses_text(&both, 0, from, sizeof(from));
    addresses_text(&both, 1, listed, sizeof(listed));
    if (strcmp(from, listed) != 0) {
        return bench_fail(
            error, "host %" PRIu32 " comes from %s, not %s", hello.host, from, listed);
    }
    if (door->meeting->links[hello.host].fd >= 0) {
        return bench_fail(error, "host %" PRIu32 " is here already", hello.host);
    }
    *ret_host = hello.host;
    return 0;
}

/* Takes a guest's hello; it is a host then, or gone. Whether it is still a guest. */
static bool hear_guest(struct door *door, uint32_t index)
{
    struct guest *guest = &door->guests[index];
    struct bench_error error;
    uint32_t host = 0;
    int result = link_read(&guest->link, MEETING_MAX_HELLO, &error);

    if (result == 0 && shared_now() < guest->since + MEETING_HELLO_S) {
        return true;
    }
    if (result <= 0) {
        refuse(door, index, result == 0 ? "it says no hello" : error.text);
        return false;
    }
    if (check_hello(door, guest, &host, &error) != 0) {
        refuse(door, index, error.text);
        return false;
    }
    if (link_send(&guest->link, LINK_WELCOME, NULL, 0, &error) == 0) {
        door->meeting->links[host] = guest->link;
        door->here++;
    } else {
        link_close(&guest->link);
    }
    remove_guest(door, index);
    return false;
}

/* A host that has come says nothing now; it may go again, and come again. */
static void hear_host(struct door *door, uint32_t host)
{
    struct link *link = &door->meeting->links[host];
    struct bench_error error;

    if (link->fd >= 0 && link_read(link, MEETING_MAX_HELLO, &error) != 0) {
        link_close(link);
        door->here--;
    }
}

/* Sleeps until something comes, or a second has passed. -1: interrupted. */
static int await(const struct door *door, int signal_fd, struct bench_error *error)
{
    struct pollfd fds[2 + NETWORK_MAX_HOSTS + MAX_GUESTS];
    nfds_t count = 0;

    fds[count++] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
    fds[count++] = (struct pollfd){.fd = door->listener, .events = POLLIN};
    for (uint32_t host = 1; host < door->meeting->num_hosts; host++) {
        fds[count++] = (struct pollfd){.fd = door->meeting->links[host].fd, .events = POLLIN};
    }
    for (uint32_t i = 0; i < door->num_guests; i++) {
        fds[count++] = (struct pollfd){.fd = door->guests[i].link.fd, .events = POLLIN};
    }
    poll(fds, count, 1000);
    return fds[0].revents != 0 ? bench_fail(error, "interrupted") : 0;
}

/* Names those that have not come. */
static int too_late(const struct door *door, struct bench_error *error)
{
    const struct options *options = door->meeting->options;
    char names[400] = "";
    uint32_t missing = 0;

    for (uint32_t host = 1; host < options->hosts; host++) {
        size_t length = strlen(names);
        char name[80];
        if (door->meeting->links[host].fd < 0) {
            meeting_name(options, host, name, sizeof(name));
            snprintf(names + length, sizeof(names) - length, "%s%s", missing > 0 ? ", " : "", name);
            missing++;
        }
    }
    bench_fail(error, "%s %s not come within %" PRIu32 " s%s%s%s", names,
        missing > 1 ? "have" : "has", options->deadline_s,
        door->refused[0] != '\0' ? " (refused: " : "", door->refused,
        door->refused[0] != '\0' ? ")" : "");
    return -1;
}

static int await_all(struct door *door, int signal_fd, struct bench_error *error)
{
    double deadline = shared_now() + door->meeting->options->deadline_s;

    while (door->here + 1 < door->meeting->num_hosts) {
        if (shared_now() > deadline) {
            return too_late(door, error);
        }
        if (await(door, signal_fd, error) != 0) {
            return -1;
        }
        accept_guest(door);
        for (uint32_t i = 0; i < door->num_guests;) {
            i += hear_guest(door, i);
        }
        for (uint32_t host = 1; host < door->meeting->num_hosts; host++) {
            hear_host(door, host);
        }
    }
    return 0;
}

/* All are here: the name of the job begins it. */
static int start(struct meeting *meeting, struct bench_error *error)
{
    struct bench_error why;
    char name[80];

    snprintf(meeting->job, sizeof(meeting->job), "f8bench-%d", (int)getpid());
    for (uint32_t host = 1; host < meeting->num_hosts; host++) {
        if (link_send(
                &meeting->links[host], LINK_START, meeting->job, strlen(meeting->job), &why) != 0) {
            meeting_name(meeting->options, host, name, sizeof(name));
            return bench_fail(error, "%s was lost: %.600s", name, why.text);
        }
    }
    return 0;
}

int meeting_await_others(
    struct meeting *meeting, const char *settings, int signal_fd, struct bench_error *error)
{
    struct door *door = calloc(1, sizeof(*door));
    int result = -1;

    if (door == NULL) {
        return bench_no_memory(error);
    }
    *door = (struct door){.meeting = meeting, .settings = settings};
    door->listener = listen_at(meeting->options, error);
    if (door->listener >= 0) {
        result = await_all(door, signal_fd, error);
        close(door->listener);
    }
    for (uint32_t i = 0; i < door->num_guests; i++) {
        link_close(&door->guests[i].link);
    }
    free(door);
    if (result == 0) {
        result = start(meeting, error);
    }
    if (result != 0) {
        struct failure failure = {.nearness = NEAR_DEATH, .foreign = true, .error = *error};
        meeting_fail(meeting, &failure);
    }
    return result;
}
