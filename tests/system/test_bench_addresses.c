/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8bench run over machines, with an f8bench each, as whole programs: at addresses of the loopback,
 * and (as root) in network namespaces. That their report is right and counts what passes the wire;
 * that one with other settings is refused by name, and who else comes to the port disturbs nobody.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/bench_machines.h"
#include "lib/test_daemon.h"

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "%s is no number", key);
    return json_number_value(value);
}

/* What hosts that share memory check of the same, which they must, too. */
static double checked_by_one_program(uint32_t count, const char *flags)
{
    struct program bench;
    machines_enter(0);
    program_start(&bench, F8_TEST_BENCH, machines_directory,
        "run --model tiny --hosts %u --ifname lo --json %s", count, flags);
    program_expect(&bench, 0);
    json_t *report = program_json(&bench);
    double bytes = number(report, "checked_bytes");
    json_decref(report);
    program_done(&bench);
    return bytes;
}

static const struct {
    const char *flags;
    uint32_t hosts;
} ways[] = {
    {"--steps 2 --ranks 4", 2},
    {"--steps 3 --ranks 4 --flavour delayed", 3},
    {"--steps 2 --ranks 4 --flavour static --slots 2 --pre-gather", 2},
    {"--steps 2 --mesh dp=2,tp=2 --no-precompute", 2},
    {"--steps 2 --mesh dp=2,tp=3 --flavour delayed", 3},
    {"--steps 2 --ranks 4 --hsdp 2", 2}, /* each replica on one host */
    {"--steps 2 --ranks 6 --hsdp 2 --check 2", 3},
};

#define NUM_WAYS (int)(sizeof(ways) / sizeof(ways[0]))

START_TEST(test_all_hosts_are_in_the_report)
{
    uint32_t count = ways[_i].hosts;
    for (uint32_t host = count; host-- > 0;)
        machines_start(host, count, "--json %s", ways[_i].flags);
    for (uint32_t host = 0; host < count; host++)
        machines_expect(host, 0);
    json_t *report = program_json(&machines[0]);
    ck_assert(json_is_true(json_object_get(report, "ok")));
    ck_assert_double_eq(number(report, "mismatches"), 0);
    ck_assert_double_eq(
        number(report, "checked_bytes"), checked_by_one_program(count, ways[_i].flags));
    json_t *by_host = json_object_get(json_object_get(report, "network"), "by_host");
    ck_assert_uint_eq(json_array_size(by_host), count);
    for (uint32_t host = 0; host < count; host++)
        ck_assert(json_is_true(json_object_get(json_array_get(by_host, host), "daemon_counters")));
    json_decref(report);
    json_t *other = program_json(&machines[1]);
    ck_assert(json_is_true(json_object_get(other, "ok")));
    ck_assert_double_eq(number(other, "host"), 1);
    json_decref(other);
    machines_done(count);
}
END_TEST

/* What passes the interfaces is what must, and little more; and so the daemons count. */
START_TEST(test_the_wire_is_counted)
{
    static const char flags[] = "--model gpt2-small --steps 3 --check 3 --ranks 4 --json";
    for (uint32_t host = 0; host < 3; host++)
        machines_start(host, 3, flags);
    for (uint32_t host = 0; host < 3; host++)
        machines_expect(host, 0);
    json_t *report = program_json(&machines[0]);
    const json_t *of = json_object_get(report, "network");
    double payload = number(of, "payload_ratio");
    double wire = number(of, "wire_ratio");
    ck_assert_str_eq(json_string_value(json_object_get(of, "interface")), NETWORK_INTERFACE);
    ck_assert_msg(payload >= 1 && payload < 1.05, "payload is %f of the least", payload);
    ck_assert_msg(wire > payload && wire < 1.15, "the wire has %f of the least", wire);
    ck_assert_double_gt(number(of, "raw_ratio"), 0);
    ck_assert_double_lt(number(of, "raw_s"), PATIENCE_S);
    size_t index;
    json_t *host;
    json_array_foreach(json_object_get(of, "by_host"), index, host)
    {
        double in = number(host, "least_in_bytes") * 3;
        ck_assert_double_ge(number(host, "engine_in_bytes"), in);
        ck_assert_double_lt(number(host, "engine_in_bytes"), in * 1.05);
    }
    json_decref(report);
    machines_done(3);
}
END_TEST

START_TEST(test_addresses_of_ipv6)
{
    machines_ipv6 = true;
    for (uint32_t host = 0; host < 2; host++)
        machines_start(host, 2, "--ranks 3 --steps 2");
    for (uint32_t host = 0; host < 2; host++)
        machines_expect(host, 0);
    machines_done(2);
    machines_ipv6 = false;
}
END_TEST

START_TEST(test_a_planted_difference_fails_all)
{
    for (uint32_t host = 0; host < 2; host++)
        machines_start(host, 2, "--ranks 3 --plant %s", _i == 0 ? "byte" : "scale");
    for (uint32_t host = 0; host < 2; host++) {
        machines_expect(host, 1);
        ck_assert_ptr_nonnull(strstr(machines[host].out, "a difference was planted, and found"));
    }
    machines_done(2);
}
END_TEST

/* One that differs is refused, and told; when it comes again as it should, all is well. */
START_TEST(test_settings_that_differ_are_named)
{
    static const struct {
        const char *flags, *said;
    } others[] = {
        {"--steps 2 --ranks 4 --flavour static",
            "--flavour is static, and on host 0 it is dynamic"},
        {"--steps 3 --ranks 4", "--steps is 3, and on host 0 it is 2"},
        {"--steps 2 --ranks 6", "--ranks is 6, and on host 0 it is 4"},
        {"--steps 2 --ranks 4 --dtype float32", "--dtype is float32, and on host 0 it is bfloat16"},
        {"--steps 2 --ranks 4 --blocks 1", "weights: "},
    };
    machines_start(0, 2, "--steps 2 --ranks 4");
    machines_start(1, 2, "%s", others[_i].flags);
    machines_expect(1, 1);
    ck_assert_msg(strstr(machines[1].out, others[_i].said) != NULL, "%s", machines[1].out);
    machines_expect_named(machines[1].out, 0, " refuses this host: ");
    program_done(&machines[1]);
    machines_start(1, 2, "--steps 2 --ranks 4");
    machines_expect(1, 0);
    machines_expect(0, 0);
    ck_assert_msg(strstr(machines[0].err, others[_i].said) != NULL, "%s", machines[0].err);
    machines_done(2);
}
END_TEST

/* A connection to host 0, as soon as it listens, from an address of the loopback. */
static int call(const char *from)
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(machines_port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(inet_pton(AF_INET, from, &own.sin_addr), 1);
    for (int ms = 0; ms < PATIENCE_MS; ms += 5) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
            return fd;
        close(fd);
        poll(NULL, 0, 5);
    }
    ck_abort_msg("host 0 does not listen");
}

/* A message as f8bench sends it. */
static void say(int fd, uint32_t type, uint64_t size, const void *body, size_t body_size)
{
    uint8_t message[600] = "F8BN";
    memcpy(message + 4, &type, sizeof(type));
    memcpy(message + 8, &size, sizeof(size));
    memcpy(message + 16, body, body_size);
    ck_assert_int_eq(send(fd, message, 16 + body_size, MSG_NOSIGNAL), (ssize_t)(16 + body_size));
}

/* Waits until host 0 has closed the connection. */
static void await_end(int fd)
{
    struct pollfd end = {.fd = fd, .events = POLLIN};
    char bytes[1024];
    ssize_t got;
    do {
        ck_assert_msg(poll(&end, 1, PATIENCE_MS) > 0, "host 0 does not hang up");
        got = recv(fd, bytes, sizeof(bytes), 0);
    } while (got > 0);
    close(fd);
}

START_TEST(test_strangers_disturb_nobody)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: f8bench\r\n\r\n";
    static const char old[] = "\1\0\0\0f8bench 0.0.0\n--ranks 4\n";
    int fds[50];
    machines_start(0, 2, "--ranks 4");
    int silent = call("127.0.0.1");
    int half = call("127.0.0.2");
    ck_assert_int_eq(send(half, "F8B", 3, MSG_NOSIGNAL), 3);
    int fd = call("127.0.0.1");
    ck_assert_int_gt(send(fd, http, sizeof(http) - 1, MSG_NOSIGNAL), 0);
    await_end(fd);
    fd = call("127.0.0.2");
    say(fd, 0, UINT64_MAX, "", 0); /* a hello that never ends */
    await_end(fd);
    fd = call("127.0.0.2");
    say(fd, 6, 16, "0123456789abcdef", 16); /* a report of nobody */
    await_end(fd);
    fd = call("127.0.0.2");
    say(fd, 0, sizeof(old) - 1, old, sizeof(old) - 1);
    await_end(fd);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        fds[i] = call("127.0.0.3");
    machines_start(1, 2, "--ranks 4");
    machines_expect(1, 0);
    machines_expect(0, 0);
    ck_assert_ptr_nonnull(
        strstr(machines[0].err, "refused 127.0.0.1: it does not speak as f8bench"));
    ck_assert_ptr_nonnull(strstr(machines[0].err, "refused 127.0.0.2: it says no hello"));
    ck_assert_ptr_nonnull(strstr(machines[0].err, "refused 127.0.0.2: f8bench 0.0.0; on host 0: "));
    close(silent);
    close(half);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        close(fds[i]);
    machines_done(2);
}
END_TEST

START_TEST(test_a_given_daemon_is_used)
{
    const char *const arguments[] = {"--socket-ifname", "lo", "--host-name", "given", NULL};
    struct test_daemon daemon;
    test_daemon_start(&daemon, arguments);
    machines_start(0, 2, "--ranks 4 --steps 2");
    machines_start(1, 2, "--ranks 4 --steps 2 --socket %s", daemon.socket);
    machines_expect(0, 0);
    machines_expect(1, 0);
    test_daemon_drop_states(&daemon);
    test_daemon_stop(&daemon);
    machines_done(2);
}
END_TEST

START_TEST(test_wrong_flags_are_named)
{
    static const struct {
        const char *flags, *said;
    } wrong[] = {
        {"--hosts 127.0.0.1,127.0.0.2", "--host: which of the --hosts is this machine?"},
        {"--hosts 127.0.0.1,127.0.0.2 --host 2", "0 to 1"},
        {"--hosts 127.0.0.1,127.0.0.2 --host 1 --ifname lo", "--ifname: cannot go with a list"},
        {"--hosts 127.0.0.1,127.0.0.1 --host 1", "127.0.0.1 is there twice"},
        {"--hosts 127.0.0.1,127.0.0.2:80 --host 1", "only the first has a port"},
        {"--hosts 127.0.0.1:0,127.0.0.2 --host 1", "must be 1 to 65535"},
        {"--hosts 127.0.0.1:x,127.0.0.2 --host 1", "must be 1 to 65535"},
        {"--hosts 127.0.0.1,::1 --host 1", "not both IPv4 or both IPv6"},
        {"--hosts 127.0.0.1 --host 0", "one host is none"},
        {"--hosts here,127.0.0.2 --host 0", "here is no numeric address"},
        {"--hosts 127.0.0.1,,127.0.0.2 --host 0", "no numeric address"},
        {"--hosts 127.0.0.1,192.0.2.1 --host 1", "192.0.2.1, an address that no interface"},
        {"--hosts 127.0.0.1,127.0.0.2 --host 1 --ranks 1", "each needs a rank"},
        {"--hosts 127.0.0.1,127.0.0.2 --host 1 --socket a,b", "this machine has one daemon"},
        {"--hosts 2 --host 1", "--host: goes with --hosts ADDRESS,ADDRESS,... only"},
        {"--deadline 5", "--deadline: goes with --hosts ADDRESS,ADDRESS,... only"},
        {"--hosts 1", "must be a number from 2 to 64, or addresses"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct program bench;
        program_start(&bench, F8_TEST_BENCH, machines_directory, "run %s", wrong[i].flags);
        program_expect(&bench, 2);
        ck_assert_msg(
            strstr(bench.err, wrong[i].said) != NULL, "%s: %s", wrong[i].flags, bench.err);
        program_done(&bench);
    }
}
END_TEST

static void add(TCase *cases)
{
    tcase_add_loop_test(cases, test_all_hosts_are_in_the_report, 0, NUM_WAYS);
    tcase_add_loop_test(cases, test_a_planted_difference_fails_all, 0, 2);
}

static void add_more(TCase *cases)
{
    tcase_add_loop_test(cases, test_settings_that_differ_are_named, 0, 5);
    tcase_add_test(cases, test_strangers_disturb_nobody);
    tcase_add_test(cases, test_a_given_daemon_is_used);
    tcase_add_test(cases, test_wrong_flags_are_named);
}

static void add_wired(TCase *cases)
{
    tcase_add_test(cases, test_addresses_of_ipv6);
    tcase_add_test(cases, test_the_wire_is_counted);
}

int main(void)
{
    return machines_run("bench at addresses", add, add_more, add_wired);
}
