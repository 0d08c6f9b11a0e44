/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds that form in spite of hosts that cannot be right, and worlds that never fill: what is
 * refused, in which words, and that nobody else is disturbed.
 */
#include <arpa/inet.h>
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/patience.h"
#include "tests/lib/suite.h"
#include "tests/lib/world_peer.h"
#include "tests/lib/worlds.h"

/* The root with rank 0 of 2 is there; `late` is refused, `right` is not. */
static struct host root, late, right;
static uint8_t id[F8_PROTO_UNIQUE_ID_SIZE];

static void half_form(void)
{
    host_up(&root, "root", AF_INET);
    host_up(&late, "late", AF_INET);
    host_up(&right, "right", AF_INET);
    host_unique_id(&root, id);
    host_join_ok(&root, id, 2, 0, 1);
    worlds_await(root.worlds->roots->num_joined == 1);
}

static void fill(void)
{
    host_join_ok(&right, id, 2, 1, 1);
    worlds_await(root.formed && right.formed);
    ck_assert_uint_eq(root.ended + right.ended, 0);
    host_down(&late);
    host_down(&right);
    host_down(&root);
}

static void assert_refused(const struct host *host, int status, const char *text)
{
    ck_assert_int_eq(host->ended, 1);
    ck_assert_uint_eq(host->formed, 0);
    ck_assert_int_eq(host->status, status);
    ck_assert_msg(strstr(host->reason.text, text), "\"%s\" lacks \"%s\"", host->reason.text, text);
}

static const struct {
    const char *group;
    uint32_t world_size, first;
    int status;
    const char *text;
} misfits[] = {
    {"job/g", 2, 0, F8_EEXIST, "rank 0 of group job/g is at host root (127.0.0.1:"},
    {"job/g", 3, 0, F8_EMISMATCH, "it says that group job/g has 3 ranks, host root (127.0.0.1:"},
    {"job/g", 3, 2, F8_EMISMATCH, "it says that group job/g has 3 ranks, host root (127.0.0.1:"},
    {"job/h", 2, 1, F8_EMISMATCH, "it joins group job/h with the unique id that host root (127."},
    {"job/g", 2, 2, F8_EINVAL, "rank 2 is not below the world size 2"},
    {"job/g", 70000, 1, F8_ELIMIT, "its world size is 70000, allowed are 1 to 65536"},
};

START_TEST(misfits_are_refused)
{
    struct reason reason;
    half_form();
    ck_assert_int_eq(host_join(&late, id, misfits[_i].group, misfits[_i].world_size,
                         misfits[_i].first, 1, &reason),
        F8_OK);
    worlds_await(late.ended);
    assert_refused(&late, misfits[_i].status, misfits[_i].text);
    ck_assert_ptr_nonnull(strstr(late.reason.text, "host late"));
    fill();
}
END_TEST

/* Errors name hosts, and NCCL takes those of one name for one machine. */
START_TEST(a_name_is_of_one_host)
{
    half_form();
    (void)strcpy(late.config.host_name, "root");
    host_join_ok(&late, id, 2, 1, 1);
    worlds_await(late.ended);
    assert_refused(&late, F8_EEXIST, "refuses host root (127.0.0.1:");
    assert_refused(&late, F8_EEXIST, "another daemon of that name is at 127.0.0.1:");
    assert_refused(&late, F8_EEXIST, "--host-name");
    fill();
}
END_TEST

/* But one that ended comes again, under its name. */
START_TEST(a_name_may_come_again)
{
    struct host again;
    half_form();
    host_join_ok(&right, id, 2, 1, 1);
    worlds_await(root.formed && right.formed);
    host_down(&right);
    host_leave(&root);
    host_unique_id(&root, id);
    host_join_ok(&root, id, 3, 0, 1);
    host_join_ok(&late, id, 3, 1, 1);
    worlds_await(root.worlds->roots->num_joined == 2);
    host_down(&late);
    host_up(&again, "late", AF_INET);
    host_join_ok(&again, id, 3, 1, 2);
    worlds_await(root.formed == 2 && again.formed);
    host_down(&again);
    host_down(&root);
}
END_TEST

/* A rank that the world waits for comes with another world size, and so never will: nobody waits.
 */
START_TEST(sizes_that_differ_are_told_to_all)
{
    struct host next;
    uint32_t size = _i == 0 ? 5 : 3;
    host_up(&root, "root", AF_INET);
    host_up(&late, "late", AF_INET);
    host_up(&right, "right", AF_INET);
    host_up(&next, "next", AF_INET);
    host_unique_id(&root, id);
    host_join_ok(&root, id, 4, 0, 1);
    host_join_ok(&right, id, 4, 3, 1);
    worlds_await(root.worlds->roots->num_joined == 2);
    host_join_ok(&late, id, size, 1, 2);
    worlds_await(late.ended && root.ended && right.ended);
    const struct host *told[] = {&late, &root, &right};
    for (int h = 0; h < 3; h++) {
        assert_refused(told[h], F8_EMISMATCH, "world of group job/g cannot form: host late (127.");
        assert_refused(told[h], F8_EMISMATCH,
            _i == 0 ? ": ranks 1, 2) says that it has 5 ranks" : " says that it has 3 ranks");
        assert_refused(told[h], F8_EMISMATCH, ", others say 4: host root (127.0.0.1:");
        assert_refused(told[h], F8_EMISMATCH, ": rank 0), host right (127.0.0.1:");
    }
    /* One that comes later has not to wait either. */
    host_join_ok(&next, id, 4, 2, 1);
    worlds_await(next.ended);
    assert_refused(&next, F8_EMISMATCH, "world of group job/g cannot form: host late (127.");
    host_down(&next);
    host_down(&late);
    host_down(&right);
    host_down(&root);
}
END_TEST

/* A root with nothing to form does not stand in the way of others. */
START_TEST(a_root_in_vain_goes_soon)
{
    host_up(&root, "root", AF_INET);
    host_up(&late, "late", AF_INET);
    root.config.host_timeout_ms = 100;
    host_unique_id(&root, id);
    host_join_ok(&root, id, 2, 0, 1);
    worlds_await(root.worlds->roots->num_joined == 1);
    host_join_ok(&late, id, 3, 1, 1);
    worlds_await(late.ended && root.ended);
    ck_assert_uint_eq(root.worlds->num_forming, 1);
    worlds_await(root.worlds->num_forming == 0);
    host_down(&late);
    host_down(&root);
}
END_TEST

/* Who waited until the deadline learns who came and was refused. */
START_TEST(the_deadline_names_who_was_refused)
{
    host_up(&root, "root", AF_INET);
    host_up(&late, "late", AF_INET);
    host_unique_id(&root, id);
    host_join_within(&root, id, 2, 0, 1, 1000);
    worlds_await(root.worlds->roots->num_joined == 1);
    host_join_ok(&late, id, 2, 0, 1);
    worlds_await(late.ended && root.ended);
    assert_refused(&root, F8_EDEADLINE, "1 of 2 ranks missing");
    assert_refused(&root, F8_EDEADLINE, "; refused was host late (127.0.0.1:");
    assert_refused(&root, F8_EDEADLINE, "rank 0 of group job/g is at host root (127.0.0.1:");
    host_down(&late);
    host_down(&root);
}
END_TEST

/* One that was there and left, or died, makes room for the next. */
START_TEST(a_host_may_come_again)
{
    struct peer peer;
    host_up(&root, "root", AF_INET);
    host_up(&right, "right", AF_INET);
    host_up(&late, "late", AF_INET);
    host_unique_id(&root, id);
    const struct world_root *forming = root.worlds->roots;
    /* The first says a world size that is wrong, and dies: no harm is done. */
    peer_open(&peer, id);
    peer_prove(&peer);
    peer_join(&peer, 9, 3);
    worlds_await(forming->num_joined == 1);
    peer_close(&peer);
    worlds_await(forming->num_joined == 0);
    host_join_ok(&late, id, 2, 1, 1);
    worlds_await(forming->num_joined == 1);
    host_leave(&late);
    worlds_await(forming->num_joined == 0);
    host_join_ok(&root, id, 2, 0, 1);
    fill();
}
END_TEST

START_TEST(a_world_that_never_fills_names_who_is_missing)
{
    struct host other;
    host_up(&root, "alpha", AF_INET);
    host_up(&other, "beta", AF_INET);
    root.config.world_deadline_ms = 400;
    host_unique_id(&root, id);
    host_join_ok(&root, id, 9, 0, 2);
    host_join_ok(&other, id, 9, 3, 1);
    worlds_await(root.ended && other.ended);
    assert_refused(&root, F8_EDEADLINE, "world of group job/g: 6 of 9 ranks missing after ");
    ck_assert_ptr_nonnull(strstr(root.reason.text, " s: ranks 2, 4-8; there are host "));
    assert_refused(&other, F8_EDEADLINE, "host alpha (127.0.0.1:");
    ck_assert_ptr_nonnull(strstr(other.reason.text, ": ranks 0, 1)"));
    ck_assert_ptr_nonnull(strstr(other.reason.text, "host beta (127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(other.reason.text, ": rank 3)"));
    host_leave(&other);
    /* The port is closed. */
    host_join_ok(&other, id, 9, 3, 1);
    worlds_await(other.ended == 2);
    ck_assert_int_eq(other.status, F8_ECONN);
    ck_assert_ptr_nonnull(strstr(other.reason.text, "nobody listens there any more"));
    host_down(&root);
    host_down(&other);
}
END_TEST

/* The earliest deadline of those who are there counts, for all. */
START_TEST(a_hosts_deadline_counts)
{
    struct host other;
    host_up(&root, "alpha", AF_INET);
    host_up(&other, "beta", AF_INET);
    host_unique_id(&root, id);
    host_join_ok(&root, id, 3, 0, 1);
    host_join_within(&other, id, 3, 1, 1, 300);
    worlds_await(root.ended && other.ended);
    ck_assert_int_eq(other.status, F8_EDEADLINE);
    ck_assert_int_eq(root.status, F8_EDEADLINE);
    host_down(&root);
    host_down(&other);
}
END_TEST

START_TEST(many_missing_are_cut)
{
    host_up(&root, "alpha", AF_INET);
    root.config.world_deadline_ms = 100;
    host_unique_id(&root, id);
    host_join_every(&root, id, 60000, 0, 2, 60);
    worlds_await(root.ended);
    assert_refused(&root, F8_EDEADLINE, "59940 of 60000 ranks missing");
    ck_assert_ptr_nonnull(strstr(root.reason.text, "..."));
    host_down(&root);
}
END_TEST

/* A port that was somebody's, and is nobody's now. */
static void make_dead_id(uint16_t *ret_port)
{
    struct world_id dead;
    struct sockaddr_in *in = (struct sockaddr_in *)&dead.address;
    socklen_t size = sizeof(*in);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(&dead, 0, sizeof(dead));
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)in, size), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)in, &size), 0);
    (void)close(fd);
    *ret_port = ntohs(in->sin_port);
    world_id_pack(&dead, id);
}

START_TEST(a_root_that_is_not_there)
{
    uint16_t port;
    char text[64];
    host_up(&right, "right", AF_INET);
    make_dead_id(&port);
    (void)snprintf(text, sizeof(text), "its root at 127.0.0.1:%u cannot be joined", port);
    host_join_ok(&right, id, 2, 1, 1);
    ck_assert_uint_eq(right.ended, 0); /* never from within the call */
    worlds_await(right.ended);
    assert_refused(&right, F8_ECONN, text);
    /* As where the root is on another host, and said an address that every host has. */
    assert_refused(&right, F8_ECONN, "nobody listens there");
    assert_refused(&right, F8_ECONN, "127.0.0.1 is an address of this host itself, of lo:");
    assert_refused(&right, F8_ECONN, "--socket-ifname");
    host_down(&right);
}
END_TEST

/* The kernel accepts for a root that is stopped. */
START_TEST(a_root_that_does_not_answer)
{
    host_up_on(&root, "root", AF_INET, &worlds_other_loop);
    host_up(&right, "right", AF_INET);
    right.config.host_timeout_ms = 100;
    right.config.heartbeat_ms = 20;
    host_unique_id(&root, id);
    worlds_other_stopped = true;
    host_join_within(&right, id, 2, 1, 1, 500);
    worlds_await(right.ended);
    assert_refused(&right, F8_EDEADLINE, "was not reached in ");
    host_down(&right);
    host_down(&root);
}
END_TEST

START_TEST(ids_that_are_none)
{
    struct reason reason;
    uint8_t wrong[F8_PROTO_UNIQUE_ID_SIZE];
    host_up(&root, "root", AF_INET);
    host_unique_id(&root, id);
    for (size_t i = 0; i < sizeof(id); i++) {
        memcpy(wrong, id, sizeof(id));
        wrong[i] ^= 0x10;
        ck_assert_int_eq(host_join(&root, wrong, "job/g", 1, 0, 1, &reason), F8_EINVAL);
        ck_assert_ptr_nonnull(strstr(reason.text, "unique id"));
    }
    host_down(&root);
}
END_TEST

START_TEST(roots_are_limited)
{
    struct reason reason;
    host_up(&root, "root", AF_INET);
    for (uint32_t i = 0; i < root.config.max_worlds; i++)
        host_unique_id(&root, id);
    ck_assert_int_eq(world_unique_id(root.worlds, id, &reason), F8_ELIMIT);
    ck_assert_ptr_nonnull(strstr(reason.text, "--max-worlds 4"));
    host_join_ok(&root, id, 1, 0, 1);
    worlds_await(root.formed);
    host_unique_id(&root, id); /* one that has formed does not count */
    host_down(&root);
}
END_TEST

START_TEST(interfaces_that_are_not_there)
{
    struct reason reason;
    host_up(&root, "root", AF_INET);
    (void)strcpy(root.config.socket_ifname, "=nosuch0");
    ck_assert_int_eq(world_unique_id(root.worlds, id, &reason), F8_EINVAL);
    ck_assert_ptr_nonnull(strstr(reason.text, "--socket-ifname =nosuch0 means is up"));
    (void)strcpy(root.config.socket_ifname_from, "/etc/f8.conf:3: socket-ifname");
    ck_assert_int_eq(world_unique_id(root.worlds, id, &reason), F8_EINVAL);
    ck_assert_ptr_nonnull(strstr(reason.text, "that /etc/f8.conf:3: socket-ifname =nosuch0 means"));
    ck_assert_msg(strstr(reason.text, "IPv4 address; there is lo"), "%s", reason.text);
    host_down(&root);
}
END_TEST

/* Of one family, as the root chose it; whoever was told another says so. */
START_TEST(a_family_that_the_root_has_not)
{
    struct reason reason;
    half_form();
    late.config.socket_family = CONFIG_FAMILY_IPV6;
    ck_assert_int_eq(host_join(&late, id, "job/g", 2, 1, 1, &reason), F8_EINVAL);
    ck_assert_msg(strstr(reason.text, "is at 127.0.0.1:"), "%s", reason.text);
    ck_assert_msg(strstr(reason.text, "--socket-family ipv6"), "%s", reason.text);
    fill();
}
END_TEST

/* The id is the same on hosts of any kind. */
START_TEST(ids_keep_what_they_say)
{
    static const char *const addresses[] = {"10.1.2.3", "fe80::1", "2001:db8::77"};
    struct world_id made, read;
    struct reason reason;
    char text[WORLD_ADDRESS_SIZE];
    for (size_t i = 0; i < 3; i++) {
        memset(&made, 0, sizeof(made));
        made.number = 0x0123456789abcdef;
        memset(made.token, 7, sizeof(made.token));
        struct sockaddr_in *in = (struct sockaddr_in *)&made.address;
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&made.address;
        made.address.ss_family = i == 0 ? AF_INET : AF_INET6;
        in->sin_port = htons(4711); /* at the same place in both */
        void *at = i == 0 ? (void *)&in->sin_addr : (void *)&in6->sin6_addr;
        ck_assert_int_eq(inet_pton(made.address.ss_family, addresses[i], at), 1);
        world_id_pack(&made, id);
        ck_assert_int_eq(world_id_unpack(id, &read, &reason), F8_OK);
        ck_assert_mem_eq(&made.address, &read.address, sizeof(made.address));
        ck_assert_mem_eq(made.token, read.token, sizeof(made.token));
        ck_assert_uint_eq(made.number, read.number);
        world_address_text(&read.address, false, text);
        ck_assert_str_eq(text, addresses[i]);
    }
    ck_assert_str_eq(text, "2001:db8::77");
    ck_assert_mem_eq(id + 8, "\xef\xcd\xab\x89\x67\x45\x23\x01", 8);
}
END_TEST

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

int main(void)
{
    TCase *tcase = tcase_create("world_form");
    tcase_set_timeout(tcase, 4 * PATIENCE_S);
    tcase_add_checked_fixture(tcase, worlds_set_up, worlds_tear_down);
    tcase_add_loop_test(tcase, misfits_are_refused, 0, COUNT(misfits));
    tcase_add_test(tcase, a_name_is_of_one_host);
    tcase_add_test(tcase, a_name_may_come_again);
    tcase_add_loop_test(tcase, sizes_that_differ_are_told_to_all, 0, 2);
    tcase_add_test(tcase, a_root_in_vain_goes_soon);
    tcase_add_test(tcase, the_deadline_names_who_was_refused);
    tcase_add_test(tcase, a_host_may_come_again);
    tcase_add_test(tcase, a_world_that_never_fills_names_who_is_missing);
    tcase_add_test(tcase, a_hosts_deadline_counts);
    tcase_add_test(tcase, many_missing_are_cut);
    tcase_add_test(tcase, a_root_that_is_not_there);
    tcase_add_test(tcase, a_root_that_does_not_answer);
    tcase_add_test(tcase, a_family_that_the_root_has_not);
    tcase_add_test(tcase, ids_that_are_none);
    tcase_add_test(tcase, roots_are_limited);
    tcase_add_test(tcase, interfaces_that_are_not_there);
    tcase_add_test(tcase, ids_keep_what_they_say);
    return run_suite("world_form", tcase);
}
