/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The peer by the kernel's word: of a socketpair made here, and of children that connect and die.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/peer.h"
#include "status.h"
#include "tests/lib/suite.h"

/* A peer that is another process: credentials are those of who called connect. */
struct child {
    pid_t pid;
    int socket;   /* our end */
    int go[2];    /* we write, it ends */
    int clean_up; /* the listener */
};

static void connect_and_wait(const struct sockaddr_un *address, socklen_t size, int go)
{
    char byte;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(fd, (const struct sockaddr *)address, size) < 0)
        _exit(1);
    ssize_t n = read(go, &byte, 1);
    _exit(n == 1 ? 0 : 2);
}

/* In the abstract namespace, by an address that the kernel chooses: no path, no clash. */
static struct child start_child(void)
{
    struct child child;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof(address);
    child.clean_up = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(
        bind(child.clean_up, (struct sockaddr *)&address, sizeof(address.sun_family)), 0);
    ck_assert_int_eq(getsockname(child.clean_up, (struct sockaddr *)&address, &size), 0);
    ck_assert_int_eq(listen(child.clean_up, 1), 0);
    ck_assert_int_eq(pipe(child.go), 0);
    child.pid = fork();
    if (child.pid == 0)
        connect_and_wait(&address, size, child.go[0]);
    child.socket = accept(child.clean_up, NULL, NULL);
    ck_assert_int_ge(child.socket, 0);
    return child;
}

static void close_child(struct child *child)
{
    (void)close(child->socket);
    (void)close(child->clean_up);
    (void)close(child->go[0]);
    (void)close(child->go[1]);
}

START_TEST(own_process)
{
    struct peer peer;
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    ck_assert_int_eq(peer_identify(&peer, ends[0]), F8_OK);
    ck_assert_uint_eq(peer.uid, geteuid());
    ck_assert_uint_eq(peer.gid, getegid());
    ck_assert_uint_eq(peer.pid, (uint32_t)getpid());
    ck_assert_int_ge(peer.pidfd, 0);
    ck_assert(!peer_is_dying(&peer));
    (void)close(ends[1]);
    ck_assert(!peer_is_dying(&peer)); /* a closed socket is a farewell */
    peer_done(&peer);
    ck_assert_int_eq(peer.pidfd, -1);
    peer_done(&peer);
    ck_assert(!peer_is_dying(&peer)); /* nothing is known */
    (void)close(ends[0]);
}
END_TEST

START_TEST(no_socket_has_no_peer)
{
    struct peer peer;
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(peer_identify(&peer, ends[0]), F8_ECONN);
    ck_assert_int_eq(peer.pidfd, -1);
    (void)close(ends[0]);
    (void)close(ends[1]);
}
END_TEST

START_TEST(child_dies_before_our_eyes)
{
    struct child child = start_child();
    struct peer peer;
    ck_assert_int_eq(peer_identify(&peer, child.socket), F8_OK);
    ck_assert_uint_eq(peer.pid, (uint32_t)child.pid);
    ck_assert(!peer_is_dying(&peer));
    ck_assert_int_eq(kill(child.pid, SIGKILL), 0);
    struct pollfd poll_fd = {.fd = peer.pidfd, .events = POLLIN};
    ck_assert_int_eq(poll(&poll_fd, 1, -1), 1);
    ck_assert(peer_is_dying(&peer)); /* a zombie yet */
    ck_assert_int_eq(waitpid(child.pid, NULL, 0), child.pid);
    ck_assert(peer_is_dying(&peer));
    peer_done(&peer);
    close_child(&child);
}
END_TEST

/* The kernel closes the socket first: that moment must not look like a farewell. */
START_TEST(closed_socket_of_a_dying_child_is_death)
{
    for (int i = 0; i < 50; i++) {
        struct child child = start_child();
        struct peer peer;
        ck_assert_int_eq(peer_identify(&peer, child.socket), F8_OK);
        if (i % 2)
            ck_assert_int_eq(kill(child.pid, SIGKILL), 0);
        else
            ck_assert_int_eq(write(child.go[1], "g", 1), 1);
        struct pollfd poll_fd = {.fd = child.socket, .events = POLLIN};
        ck_assert_int_eq(poll(&poll_fd, 1, -1), 1);
        ck_assert(peer_is_dying(&peer));
        ck_assert_int_eq(waitpid(child.pid, NULL, 0), child.pid);
        peer_done(&peer);
        close_child(&child);
    }
}
END_TEST

/* One that was gone before it was accepted is either refused or seen as dying. */
START_TEST(peer_that_is_gone_already)
{
    struct child child = start_child();
    struct peer peer;
    ck_assert_int_eq(write(child.go[1], "g", 1), 1);
    ck_assert_int_eq(waitpid(child.pid, NULL, 0), child.pid);
    int status = peer_identify(&peer, child.socket);
    ck_assert(status == F8_ECONN || (status == F8_OK && peer_is_dying(&peer)));
    peer_done(&peer);
    close_child(&child);
}
END_TEST

/* Takes all free descriptors away, by the limit; gives the limit to go back to. */
static struct rlimit leave_no_descriptor(void)
{
    struct rlimit limit, small;
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)close(next);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    small = limit;
    small.rlim_cur = (rlim_t)next;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &small), 0);
    return limit;
}

/* A peer that could not be watched would be missed when it dies. */
START_TEST(no_descriptor_to_watch_it)
{
    struct peer peer;
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    struct rlimit limit = leave_no_descriptor();
    int status = peer_identify(&peer, ends[0]);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_int_eq(status, F8_ELIMIT);
    ck_assert_int_eq(peer_identify(&peer, ends[0]), F8_OK);
    limit = leave_no_descriptor();
    bool dying = peer_is_dying(&peer);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert(!dying); /* what cannot be looked at is not known to be so */
    peer_done(&peer);
    (void)close(ends[0]);
    (void)close(ends[1]);
}
END_TEST

START_TEST(who_may_inspect)
{
    struct config config = {.has_admin_gid = false};
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    struct peer peer = {.uid = geteuid(), .gid = getegid(), .pidfd = -1};
    ck_assert(peer_is_admin(&peer, ends[0], &config)); /* the daemon's own uid */
    peer.uid = 0;
    ck_assert(peer_is_admin(&peer, ends[0], &config));
    peer.uid = geteuid() + 12345;
    ck_assert(!peer_is_admin(&peer, ends[0], &config));
    config.admin_gid = getegid();
    ck_assert(!peer_is_admin(&peer, ends[0], &config)); /* no group is configured */
    config.has_admin_gid = true;
    ck_assert(peer_is_admin(&peer, ends[0], &config));
    config.admin_gid = 4000000000u; /* of none of ours */
    ck_assert(!peer_is_admin(&peer, ends[0], &config));
    (void)close(ends[0]);
    (void)close(ends[1]);
}
END_TEST

/* A supplementary group counts as well, by what the kernel says of the socket's peer. */
START_TEST(supplementary_groups_may_inspect)
{
    gid_t groups[64];
    int count = getgroups(64, groups), ends[2];
    ck_assert_int_ge(count, 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    struct peer peer = {.uid = geteuid() + 12345, .gid = 4000000000u, .pidfd = -1};
    for (int i = 0; i < count; i++) {
        struct config config = {.has_admin_gid = true, .admin_gid = groups[i]};
        ck_assert(peer_is_admin(&peer, ends[0], &config));
    }
    (void)close(ends[0]);
    (void)close(ends[1]);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("peer");
    tcase_add_test(tcase, own_process);
    tcase_add_test(tcase, no_socket_has_no_peer);
    tcase_add_test(tcase, child_dies_before_our_eyes);
    tcase_add_test(tcase, closed_socket_of_a_dying_child_is_death);
    tcase_add_test(tcase, peer_that_is_gone_already);
    tcase_add_test(tcase, no_descriptor_to_watch_it);
    tcase_add_test(tcase, who_may_inspect);
    tcase_add_test(tcase, supplementary_groups_may_inspect);
    return run_suite("peer", tcase);
}
