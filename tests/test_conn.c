/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections over real sockets and a real loop: packets that are none, descriptors that must not
 * stay open, the credit's stop and go. test_conn_end.c has how connections end.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol.h"
#include "tests/lib/conn_fixture.h"
#include "tests/lib/suite.h"

START_TEST(requests_are_answered)
{
    int fd = connect_one();
    hello(fd, F8__ROLE__TRAINER);
    for (uint64_t id = 2; id < 40; id++) { /* more than one burst */
        ck_assert_int_gt(send_ping(fd, id), 0);
        turn();
        expect(fd, id, F8_OK);
    }
    (void)close(fd);
    await_connections(0);
}
END_TEST

/* ---- Packets that are none ---- */

static const uint8_t garbage[] = {0xff, 0xff, 0xff, 0xff};

START_TEST(garbage_ends_only_its_connection)
{
    int bad = connect_one(), good = connect_one();
    hello(good, F8__ROLE__TRAINER);
    ck_assert_int_gt(send_packed(bad, garbage, sizeof(garbage), NULL, 0), 0);
    await_connections(1);
    ck_assert_int_eq(recv(bad, (char[1]){0}, 1, 0), 0);
    ck_assert_int_gt(send_ping(good, 2), 0);
    turn();
    expect(good, 2, F8_OK);
    (void)close(bad);
    (void)close(good);
}
END_TEST

/* Every way for descriptors to come along with something that is not served. */
static const struct {
    const uint8_t *bytes;
    size_t size, num_fds;
} strays[] = {
    {garbage, sizeof(garbage), 4},
    {garbage, 0, 1}, /* a packet of no bytes looks like the end */
    {garbage, 0, 4},
    {garbage, sizeof(garbage), 5}, /* more than there is room for */
    {NULL, F8_PROTO_MAX_PACKET + 1, 0},
    {NULL, F8_PROTO_MAX_PACKET + 1, 2},
};

#define NUM_STRAYS ((int)(sizeof(strays) / sizeof(strays[0])))

START_TEST(stray_descriptors_are_closed)
{
    static uint8_t large[F8_PROTO_MAX_PACKET + 1];
    int fds[5], fd = connect_one();
    for (int i = 0; i < 5; i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const uint8_t *bytes = strays[_i].bytes ? strays[_i].bytes : large;
    ck_assert_int_ge(send_packed(fd, bytes, strays[_i].size, fds, strays[_i].num_fds), 0);
    await_connections(0);
    for (int i = 0; i < 5; i++)
        (void)close(fds[i]);
    (void)close(fd);
    ck_assert_int_eq(open_descriptors(), descriptors);
}
END_TEST

START_TEST(served_descriptors_are_closed)
{
    F8__RegionAdd body = F8__REGION_ADD__INIT;
    F8__Request request = F8__REQUEST__INIT;
    int fd = connect_one(), fds[2];
    hello(fd, F8__ROLE__TRAINER);
    int before = open_descriptors();
    request.body_case = F8__REQUEST__BODY_REGION_ADD;
    request.region_add = &body;
    fds[0] = fds[1] = memfd_create("f8-conn-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fds[0], 4096), 0);
    ck_assert_int_eq(fcntl(fds[0], F_ADD_SEALS, F_SEAL_SHRINK), 0);
    request.id = 2;
    ck_assert_int_gt(send_request(fd, &request, fds, 2), 0);
    request.id = 3;
    ck_assert_int_gt(send_request(fd, &request, fds, 1), 0);
    request.id = 4;
    ck_assert_int_gt(send_request(fd, &request, NULL, 0), 0);
    (void)close(fds[0]);
    turn();
    expect(fd, 2, F8_EREGION);
    expect(fd, 3, F8_OK);
    expect(fd, 4, F8_EREGION);
    ck_assert_int_eq(open_descriptors(), before);
    (void)close(fd);
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

/* The daemon's shortage is not the client's fault: it is told, and goes on. */
START_TEST(descriptor_without_room_is_told)
{
    F8__RegionAdd body = F8__REGION_ADD__INIT;
    F8__Request request = F8__REQUEST__INIT;
    int fd = connect_one(), null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    hello(fd, F8__ROLE__TRAINER);
    request.id = 2;
    request.body_case = F8__REQUEST__BODY_REGION_ADD;
    request.region_add = &body;
    ck_assert_int_gt(send_request(fd, &request, &null, 1), 0);
    struct rlimit limit = leave_no_descriptor();
    turn();
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    F8__Reply *reply = next_reply(fd);
    ck_assert_ptr_nonnull(reply);
    ck_assert_int_eq(reply->status, F8_ELIMIT);
    ck_assert_ptr_nonnull(strstr(reply->text, "out of file descriptors"));
    f8__reply__free_unpacked(reply, NULL);
    ck_assert_int_gt(send_ping(fd, 3), 0);
    turn();
    expect(fd, 3, F8_OK);
    (void)close(null);
    (void)close(fd);
}
END_TEST

/* ---- Credit ---- */

START_TEST(credit_stops_and_resumes)
{
    int fd = connect_one(), other = connect_one();
    int small = 4096;
    hello(fd, F8__ROLE__TRAINER);
    hello(other, F8__ROLE__TRAINER);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    uint64_t sent = flood(fd, 2);
    ck_assert_uint_gt(sent, CREDIT);
    /* Whoever does not read stops itself, and no one else. */
    ck_assert_int_gt(send_ping(other, 2), 0);
    turn();
    expect(other, 2, F8_OK);
    for (uint64_t id = 2; id < 2 + sent; id++) {
        turn();
        expect(fd, id, F8_OK);
    }
    turn();
    ck_assert_ptr_null(next_reply(fd));
    ck_assert_int_gt(send_ping(fd, 9999), 0);
    turn();
    expect(fd, 9999, F8_OK);
    (void)close(fd);
    (void)close(other);
}
END_TEST

static void add_all(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, requests_are_answered);
    tcase_add_test(tcase, garbage_ends_only_its_connection);
    tcase_add_test(tcase, descriptor_without_room_is_told);
    tcase_add_loop_test(tcase, stray_descriptors_are_closed, 0, NUM_STRAYS);
    tcase_add_test(tcase, served_descriptors_are_closed);
    tcase_add_test(tcase, credit_stops_and_resumes);
}

int main(void)
{
    TCase *tcase = tcase_create("conn");
    add_all(tcase);
    return run_suite("conn", tcase);
}
