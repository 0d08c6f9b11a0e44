/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unique ids of a real daemon, by the library and by f8ctl: what they look like, where the daemon
 * then listens, what it refuses, and that it ends in order though a world forms.
 */
#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "f8client.h"
#include "lib/program.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

static struct test_daemon server;
static struct f8_client *client;

static void start(const char *const *arguments)
{
    struct f8_connect_options options = {.socket = server.socket, .job = "job"};
    test_daemon_start(&server, arguments);
    ck_assert_int_eq(f8_connect(&options, &client), F8_OK);
}

static void stop(void)
{
    f8_close(client);
    test_daemon_stop(&server);
}

static const char *const loopback[] = {"--socket-ifname", "=lo", "--max-worlds", "3", NULL};

/* The daemon's log, to be freed. */
static char *log_text(void)
{
    char *text = calloc(1, 65536);
    FILE *file = fopen(server.log, "re");
    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_gt(fread(text, 1, 65535, file), 0);
    (void)fclose(file);
    return text;
}

/* Of the last world that the log tells of. */
static int connect_to_root(void)
{
    static const char words[] = "a world forms at 127.0.0.1:";
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = 0};
    char *text = log_text();
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        in.sin_port = htons((uint16_t)atoi(at + strlen(words)));
    free(text);
    ck_assert_uint_ne(in.sin_port, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&in, sizeof(in)), 0);
    return fd;
}

START_TEST(a_trainers_id)
{
    uint8_t first[F8_UNIQUE_ID_SIZE], second[F8_UNIQUE_ID_SIZE];
    char secret[65];
    start(loopback);
    ck_assert_int_eq(f8_unique_id(client, first), F8_OK);
    ck_assert_int_eq(f8_unique_id(client, second), F8_OK);
    ck_assert_int_ne(memcmp(first, second, sizeof(first)), 0);
    for (int i = 0; i < 32; i++)
        (void)snprintf(secret + 2 * i, 3, "%02x", first[16 + i]);
    char *text = log_text();
    ck_assert_ptr_null(strstr(text, secret));
    free(text);
    stop();
}
END_TEST

START_TEST(ids_are_limited)
{
    uint8_t id[F8_UNIQUE_ID_SIZE];
    start(loopback);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(f8_unique_id(client, id), F8_OK);
    ck_assert_int_eq(f8_unique_id(client, id), F8_ELIMIT);
    ck_assert_ptr_nonnull(strstr(f8_error_text(), "--max-worlds 3"));
    stop();
}
END_TEST

START_TEST(an_interface_that_is_not_there)
{
    static const char *const nowhere[] = {"--socket-ifname", "=nosuch0", NULL};
    uint8_t id[F8_UNIQUE_ID_SIZE];
    start(nowhere);
    ck_assert_int_eq(f8_unique_id(client, id), F8_EINVAL);
    ck_assert_ptr_nonnull(strstr(f8_error_text(), "--socket-ifname =nosuch0"));
    stop();
}
END_TEST

START_TEST(f8ctl_prints_one)
{
    struct program ctl;
    start(loopback);
    program_start(&ctl, F8_TEST_CTL, NULL, "--socket %s unique-id", server.socket);
    program_expect(&ctl, 0);
    ck_assert_uint_eq(strlen(ctl.out), 2 * F8_UNIQUE_ID_SIZE + 1);
    ck_assert_uint_eq(strspn(ctl.out, "0123456789abcdef"), 2 * F8_UNIQUE_ID_SIZE);
    ck_assert_ptr_eq(strstr(ctl.out, "4638574f524c44"), ctl.out); /* F8WORLD */
    program_done(&ctl);
    json_t *id = program_ask_ctl(server.socket, "unique-id", "unique_id");
    ck_assert_uint_eq(json_string_length(id), 2 * F8_UNIQUE_ID_SIZE);
    json_decref(id);
    program_start(&ctl, F8_TEST_CTL, NULL, "--socket %s unique-id more", server.socket);
    program_expect(&ctl, 2);
    ck_assert_ptr_nonnull(strstr(ctl.err, "unique-id: takes no argument more"));
    program_done(&ctl);
    stop();
}
END_TEST

/* A stranger at the port is told nothing but a nonce, and is logged; trainers notice nothing. */
START_TEST(strangers_are_logged)
{
    uint8_t id[F8_UNIQUE_ID_SIZE], bytes[256];
    size_t heard = 0;
    start(loopback);
    ck_assert_int_eq(f8_unique_id(client, id), F8_OK);
    int fd = connect_to_root();
    memset(bytes, 'x', sizeof(bytes));
    ck_assert_int_eq(send(fd, bytes, 64, MSG_NOSIGNAL), 64);
    for (ssize_t got; (got = recv(fd, bytes, sizeof(bytes), 0)) > 0;)
        heard += (size_t)got;
    ck_assert_uint_eq(heard, 40 + 33);
    test_daemon_await_log(&server, "it does not hold the unique id of this world");
    (void)close(fd);
    ck_assert_int_eq(f8_unique_id(client, id), F8_OK);
    stop();
}
END_TEST

/* SIGTERM with a world that forms, and somebody at its port: the daemon ends, with status 0. */
START_TEST(a_forming_world_does_not_hold_the_daemon)
{
    uint8_t id[F8_UNIQUE_ID_SIZE];
    start(loopback);
    ck_assert_int_eq(f8_unique_id(client, id), F8_OK);
    int fd = connect_to_root();
    stop();
    (void)close(fd);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("unique_id");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, a_trainers_id);
    tcase_add_test(tcase, ids_are_limited);
    tcase_add_test(tcase, an_interface_that_is_not_there);
    tcase_add_test(tcase, f8ctl_prints_one);
    tcase_add_test(tcase, strangers_are_logged);
    tcase_add_test(tcase, a_forming_world_does_not_hold_the_daemon);
    return run_suite("unique_id", tcase);
}
