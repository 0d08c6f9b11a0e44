/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening socket and its path: what may be in the way and yields, what must not be touched,
 * who may connect, and that nothing is left behind.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/owner.h"
#include "status.h"
#include "tests/lib/loop_turn.h"
#include "tests/lib/suite.h"

static char directory[64], path[96];
static uv_loop_t loop;
static struct listener listener;
static struct reason reason;
static int accepted[8], num_accepted;

static void take(void *owner, int fd)
{
    ck_assert_ptr_eq(owner, &num_accepted);
    accepted[num_accepted++] = fd;
}

static void set_up(void)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(directory, sizeof(directory), "%.40s/f8-listener-XXXXXX", tmp ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/socket", directory);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    listener = (struct listener){.fd = -1, .accepted = take, .owner = &num_accepted};
    num_accepted = 0;
    log_set_level(LOG_LEVEL_ERROR);
}

/* Closes all; the path must be gone, or else be the test's own file. */
static void tear_down(void)
{
    listener_close(&listener);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    for (int i = 0; i < num_accepted; i++)
        (void)close(accepted[i]);
    ck_assert_msg(rmdir(directory) == 0, "%s: %s", directory, strerror(errno));
}

static int open_listener(void)
{
    reason.text[0] = '\0';
    return listener_open(&listener, &loop, path, &reason);
}

static struct sockaddr_un address_of(const char *at)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", at);
    return address;
}

/* A socket bound to the path, as another program leaves or keeps it. */
static int bound_socket(int type, bool listens)
{
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    if (listens)
        ck_assert_int_eq(listen(fd, 1), 0);
    return fd;
}

static int connect_to_it(void)
{
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void assert_has(const char *part)
{
    ck_assert_msg(strstr(reason.text, part), "\"%s\" lacks \"%s\"", reason.text, part);
}

START_TEST(connections_are_handed_out)
{
    ck_assert_msg(open_listener() == F8_OK, "%s", reason.text);
    int a = connect_to_it(), b = connect_to_it();
    while (num_accepted < 2)
        ck_assert_int_ne(loop_turn(&loop), 0);
    for (int i = 0; i < 2; i++) {
        ck_assert(fcntl(accepted[i], F_GETFD) & FD_CLOEXEC);
        ck_assert(fcntl(accepted[i], F_GETFL) & O_NONBLOCK);
    }
    (void)close(a);
    (void)close(b);
}
END_TEST

START_TEST(socket_is_for_owner_and_group)
{
    struct stat st;
    mode_t mask = umask(0077);
    ck_assert_int_eq(open_listener(), F8_OK);
    ck_assert_uint_eq(umask(mask), 0077); /* as it was */
    ck_assert_int_eq(lstat(path, &st), 0);
    ck_assert(S_ISSOCK(st.st_mode));
    ck_assert_uint_eq(st.st_mode & 07777, 0660);
}
END_TEST

START_TEST(path_goes_with_the_listener)
{
    struct stat st;
    ck_assert_int_eq(open_listener(), F8_OK);
    listener_close(&listener);
    ck_assert_int_lt(lstat(path, &st), 0);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(listener.fd, -1);
    listener_close(&listener); /* a second time does nothing */
    ck_assert_int_eq(open_listener(), F8_OK);
}
END_TEST

/* Whoever removed our socket may have started another daemon there: that path is not ours. */
START_TEST(socket_of_a_successor_stays)
{
    struct stat before, after;
    ck_assert_int_eq(open_listener(), F8_OK);
    ck_assert_int_eq(unlink(path), 0);
    int other = bound_socket(SOCK_SEQPACKET, true);
    ck_assert_int_eq(lstat(path, &before), 0);
    listener_close(&listener);
    ck_assert_int_eq(lstat(path, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    (void)close(connect_to_it());
    (void)close(other);
    (void)unlink(path);
}
END_TEST

START_TEST(leftover_is_replaced)
{
    (void)close(bound_socket(SOCK_SEQPACKET, true));
    ck_assert_msg(open_listener() == F8_OK, "%s", reason.text);
    (void)close(connect_to_it());
}
END_TEST

START_TEST(live_daemon_is_left_alone)
{
    struct stat before, after;
    int other = bound_socket(SOCK_SEQPACKET, true);
    ck_assert_int_eq(lstat(path, &before), 0);
    ck_assert_int_eq(open_listener(), F8_EEXIST);
    assert_has("another daemon answers at ");
    assert_has(path);
    ck_assert_int_eq(lstat(path, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    ck_assert_int_eq(listener.fd, -1);
    (void)close(other);
    (void)unlink(path);
}
END_TEST

/* One that has bound and does not listen yet refuses connections as a dead one does, but lives. */
START_TEST(bound_socket_is_left_alone)
{
    static const int types[] = {SOCK_SEQPACKET, SOCK_STREAM, SOCK_DGRAM};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct stat before, after;
        int other = bound_socket(types[i], false);
        ck_assert_int_eq(lstat(path, &before), 0);
        ck_assert_int_lt(open_listener(), 0);
        ck_assert_int_eq(lstat(path, &after), 0);
        ck_assert_uint_eq(before.st_ino, after.st_ino);
        if (types[i] == SOCK_SEQPACKET) {
            assert_has(path);
            assert_has("belongs to a process that lives and does not listen there");
        }
        (void)close(other);
        (void)unlink(path);
    }
}
END_TEST

/* By its file, not by its name: whoever lives with that name elsewhere does not count. */
START_TEST(leftover_of_a_name_in_use_is_replaced)
{
    char aside[112];
    (void)snprintf(aside, sizeof(aside), "%s.aside", path);
    int other = bound_socket(SOCK_SEQPACKET, true);
    ck_assert_int_eq(rename(path, aside), 0);
    (void)close(bound_socket(SOCK_SEQPACKET, true));
    ck_assert_msg(open_listener() == F8_OK, "%s", reason.text);
    (void)close(other);
    (void)unlink(aside);
}
END_TEST

/* The directory becomes a tmpfs that only this process sees; false: this user may not mount. */
static bool mount_own(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("f8test", directory, "tmpfs", 0, NULL) == 0;
}

/* In a child, as in another container: has a socket at the path until the other end closes. */
__attribute__((noreturn)) static void live_elsewhere(int pair[2])
{
    char c = 0;
    (void)close(pair[0]);
    bool lives = mount_own() && bound_socket(SOCK_SEQPACKET, true) >= 0 &&
                 write(pair[1], &c, 1) == 1 && read(pair[1], &c, 1) == 0;
    _exit(lives ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* Every tmpfs counts its files from the same number on: two containers' are alike but for it. */
START_TEST(leftover_of_a_name_and_number_in_use_elsewhere_is_replaced)
{
    int pair[2], status;
    char c;
    if (!mount_own()) {
        (void)printf("left out: this user may not mount a tmpfs of its own (root may)\n");
        return;
    }
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    pid_t pid = fork();
    if (pid == 0)
        live_elsewhere(pair);
    (void)close(pair[1]);
    ck_assert_int_eq(read(pair[0], &c, 1), 1);
    (void)close(bound_socket(SOCK_SEQPACKET, true));
    ck_assert_msg(open_listener() == F8_OK, "%s", reason.text);
    ck_assert(owner_lives(path));
    (void)close(pair[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    listener_close(&listener);
    ck_assert_int_eq(umount2(directory, MNT_DETACH), 0);
}
END_TEST

/* And whatever it was called when it was bound. */
START_TEST(bound_socket_is_known_by_another_name)
{
    char aside[112];
    (void)snprintf(aside, sizeof(aside), "%s.aside", path);
    int other = bound_socket(SOCK_SEQPACKET, false);
    ck_assert_int_eq(rename(path, aside), 0);
    ck_assert(owner_lives(aside) && !owner_lives(path));
    (void)close(other);
    ck_assert(!owner_lives(aside));
    (void)unlink(aside);
}
END_TEST

/* One whose queue of connections is full does not answer, but lives. */
START_TEST(busy_daemon_is_left_alone)
{
    int other = bound_socket(SOCK_SEQPACKET, true), clients[4], num_clients = 0;
    struct sockaddr_un address = address_of(path);
    for (; num_clients < 4; num_clients++) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        clients[num_clients] = fd;
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
            break;
    }
    ck_assert_int_lt(num_clients, 4);
    ck_assert_int_eq(open_listener(), F8_EEXIST);
    for (int i = 0; i <= num_clients; i++)
        (void)close(clients[i]);
    (void)close(other);
    (void)unlink(path);
}
END_TEST

START_TEST(other_kind_of_socket_is_left_alone)
{
    struct stat st;
    int other = bound_socket(SOCK_STREAM, true);
    ck_assert_int_eq(open_listener(), F8_EIO);
    assert_has("is in the way");
    ck_assert_int_eq(lstat(path, &st), 0);
    (void)close(other);
    (void)unlink(path);
}
END_TEST

/* connect() gives the same error for a file as for a dead daemon's socket. */
START_TEST(file_in_the_way_is_left_alone)
{
    struct stat st;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, "precious", 8), 8);
    (void)close(fd);
    ck_assert_int_eq(open_listener(), F8_EIO);
    assert_has(path);
    assert_has("is in the way");
    ck_assert_int_eq(lstat(path, &st), 0);
    ck_assert_int_eq(st.st_size, 8);
    (void)unlink(path);
}
END_TEST

START_TEST(directory_in_the_way_is_left_alone)
{
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(open_listener(), F8_EIO);
    assert_has("is in the way");
    ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

START_TEST(missing_directory_is_named)
{
    (void)snprintf(path, sizeof(path), "%s/none/socket", directory);
    ck_assert_int_eq(open_listener(), F8_EIO);
    assert_has(path);
    assert_has("No such file or directory");
}
END_TEST

static void add_all(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, connections_are_handed_out);
    tcase_add_test(tcase, socket_is_for_owner_and_group);
    tcase_add_test(tcase, path_goes_with_the_listener);
    tcase_add_test(tcase, socket_of_a_successor_stays);
    tcase_add_test(tcase, leftover_is_replaced);
    tcase_add_test(tcase, live_daemon_is_left_alone);
    tcase_add_test(tcase, bound_socket_is_left_alone);
    tcase_add_test(tcase, leftover_of_a_name_in_use_is_replaced);
    tcase_add_test(tcase, leftover_of_a_name_and_number_in_use_elsewhere_is_replaced);
    tcase_add_test(tcase, bound_socket_is_known_by_another_name);
    tcase_add_test(tcase, busy_daemon_is_left_alone);
    tcase_add_test(tcase, other_kind_of_socket_is_left_alone);
    tcase_add_test(tcase, file_in_the_way_is_left_alone);
    tcase_add_test(tcase, directory_in_the_way_is_left_alone);
    tcase_add_test(tcase, missing_directory_is_named);
}

int main(void)
{
    TCase *tcase = tcase_create("listener");
    add_all(tcase);
    return run_suite("listener", tcase);
}
