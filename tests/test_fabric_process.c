/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric's helper as a process of the host: where it is found, what it inherits, that it ends
 * with its daemon and not otherwise, and whom it listens to.
 */
#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/fabric_hosts.h"
#include "proto/status.h"

#define MIB ((uint64_t)1 << 20)

static struct fabric_hosts hosts;

static const struct fabric_span spans[] = {
    {.offset = 0, .size = MIB, .host = 0},
    {.offset = MIB, .size = MIB, .host = 1},
};

static void assert_reason(uint32_t host, const char *part)
{
    const char *text = hosts.host[host].reason.text;
    ck_assert_msg(strstr(text, part) != NULL, "host %u: \"%s\" has no \"%s\"", host, text, part);
}

/* ---- where it is found ---- */

/* What this program does when it is called with an argument: main(). */
static int open_and_tell(void)
{
    static const struct fabric_listener nobody = {NULL, NULL};
    struct fabric_shape shape = {
        .hosts = 1, .interface = "lo", .address = "127.0.0.1", .listener = &nobody};
    struct fabric *fabric;
    struct reason reason = {"opened"};
    uv_loop_t loop;
    (void)uv_loop_init(&loop);
    int r = fabric_open(&loop, &shape, PATIENCE_MS, &fabric, &reason);
    (void)printf("%d: %s\n", r, reason.text);
    if (r == F8_OK)
        fabric_close(fabric);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void tell_done(struct fabric *fabric, enum fabric_command command)
{
    (void)printf("%d is done\n", (int)command);
    fabric_close(fabric);
}

static void tell_failed(struct fabric *fabric, int status, const struct reason *reason)
{
    (void)printf("%d: %s\n", status, reason->text);
    fabric_close(fabric);
}

/* The same with another argument. */
static int meet_and_tell(void)
{
    static const struct fabric_listener listener = {tell_done, tell_failed};
    struct fabric_shape shape = {
        .hosts = 2, .interface = "lo", .address = "127.0.0.1", .listener = &listener};
    struct fabric *fabric;
    struct reason reason;
    uv_loop_t loop;
    (void)uv_loop_init(&loop);
    if (fabric_open(&loop, &shape, PATIENCE_MS, &fabric, &reason) != F8_OK)
        (void)printf("%s\n", reason.text);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* And as a helper of before there were versions: it answers with an address only. */
static int be_old_helper(void)
{
    static const char address[88];
    struct fabric_answer answer = {.command = FABRIC_OPEN, .payload = sizeof(address)};
    (void)!write(FABRIC_SOCKET, &answer, sizeof(answer));
    (void)!write(FABRIC_SOCKET, address, sizeof(address));
    (void)pause();
    return EXIT_FAILURE;
}

static void ask(const char *directory, const char *argument, const char *expected)
{
    char line[512] = "", program[128];
    (void)snprintf(program, sizeof(program), "%s/program %s", directory, argument);
    FILE *output = popen(program, "r");
    ck_assert_ptr_nonnull(output);
    (void)!fgets(line, sizeof(line), output);
    ck_assert_int_eq(pclose(output), 0);
    ck_assert_msg(strstr(line, expected) != NULL, "\"%s\" has no \"%s\"", line, expected);
}

START_TEST(it_lies_beside_the_program)
{
    char directory[] = "/tmp/f8-beside-XXXXXX", command[256], path[64];
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(
        command, sizeof(command), "cp /proc/%d/exe %s/program", (int)getpid(), directory);
    ck_assert_int_eq(system(command), 0);
    ask(directory, "open", "-8: no engine for groups over hosts: /tmp/f8-beside-");
    ask(directory, "open", "/f8gather-gloo is not there; it is built where libgloo is");

    (void)snprintf(path, sizeof(path), "%s/f8gather-gloo", directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    ck_assert_int_eq(chmod(path, 0), 0);
    ask(directory, "open", "-23: cannot start the engine of groups over hosts, ");
    (void)snprintf(command, sizeof(command), "rm -r %s", directory);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(one_of_another_version_is_told)
{
    char directory[] = "/tmp/f8-version-XXXXXX", command[256];
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(command, sizeof(command), "cd %s && cp /proc/%d/exe program && cp program %s",
        directory, (int)getpid(), FABRIC_HELPER);
    ck_assert_int_eq(system(command), 0);
    ask(directory, "meet", " is of another version than this daemon, which ");
    (void)snprintf(command, sizeof(command), "rm -r %s", directory);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* ---- what it has and lives with ---- */

START_TEST(it_inherits_nothing_but_its_socket)
{
    char path[64], target[PATH_MAX], file[] = "/tmp/f8-inherited-XXXXXX";
    int inherited = mkstemp(file); /* not CLOEXEC */
    fabric_hosts_start(&hosts, 1, MIB);
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)fabric_pid(hosts.host[0].fabric));
    DIR *directory = opendir(path);
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1);
        if (length < 0)
            continue;
        target[length] = '\0';
        ck_assert_msg(
            !strstr(target, "f8-inherited") && !strstr(target, "memfd"), "it has %s open", target);
    }
    (void)closedir(directory);
    (void)close(inherited);
    (void)unlink(file);
    fabric_hosts_close(&hosts);
}
END_TEST

START_TEST(signals_to_the_daemon_and_its_children_do_not_end_it)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};
    fabric_hosts_start(&hosts, 2, 2 * MIB);
    for (uint32_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        ck_assert_int_eq(kill(fabric_pid(hosts.host[0].fabric), numbers[i]), 0);
    fabric_hosts_fill(&hosts, spans, 2, 0);
    fabric_hosts_exchange(&hosts, spans, 2, PATIENCE_MS);
    fabric_hosts_await_done(&hosts);
    fabric_hosts_check(&hosts, spans, 2, 0);
    fabric_hosts_close(&hosts);
}
END_TEST

/* A daemon that is killed while one of its helpers waits for the other, and the other for it. */
static void be_daemon(int tell)
{
    fabric_hosts_start(&hosts, 2, 2 * MIB);
    fabric_host_exchange(&hosts, 0, spans, 2, PATIENCE_MS);
    for (uint32_t i = 0; i < 2; i++) {
        pid_t pid = fabric_pid(hosts.host[i].fabric);
        ck_assert_int_eq(write(tell, &pid, sizeof(pid)), sizeof(pid));
    }
    (void)pause();
}

START_TEST(it_ends_with_its_daemon)
{
    int ends[2], helpers[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t daemon = fork();
    ck_assert_int_ge(daemon, 0);
    if (daemon == 0) {
        be_daemon(ends[1]);
        _exit(1);
    }
    for (int i = 0; i < 2; i++) {
        pid_t pid;
        ck_assert_int_eq(read(ends[0], &pid, sizeof(pid)), sizeof(pid));
        helpers[i] = (int)syscall(SYS_pidfd_open, pid, 0);
        ck_assert_int_ge(helpers[i], 0);
    }
    ck_assert_int_eq(kill(daemon, SIGKILL), 0);
    ck_assert_int_eq(waitpid(daemon, NULL, 0), daemon);
    for (int i = 0; i < 2; i++) {
        struct pollfd end = {.fd = helpers[i], .events = POLLIN};
        ck_assert_int_eq(poll(&end, 1, PATIENCE_MS), 1);
        (void)close(helpers[i]);
    }
    (void)close(ends[0]);
    (void)close(ends[1]);
}
END_TEST

/* ---- where it listens, and to whom ---- */

START_TEST(addresses_that_are_none_of_this_host_are_refused)
{
    static const struct {
        const char *address;
        int status;
        const char *reason;
    } wrong[] = {
        {"somewhere", F8_EINVAL, "\"somewhere\" is no address"},
        {"", F8_EINVAL, "\"\" is no address"},
        {"192.0.2.77", F8_EIO, "192.0.2.77"},
    };
    fabric_hosts_ask_open(&hosts, 2, "lo", wrong[_i].address);
    fabric_hosts_await_failed(&hosts, wrong[_i].status);
    assert_reason(0, wrong[_i].reason);
    fabric_hosts_close(&hosts);
}
END_TEST

/* What connects to 127.0.0.2 comes from 127.0.0.1, which is lo's as well, but no other's. */
START_TEST(connections_must_be_the_interface_s)
{
    fabric_hosts_ask_open(&hosts, 2, "lo", "127.0.0.2");
    fabric_hosts_await_done(&hosts);
    fabric_hosts_connect(&hosts);
    fabric_hosts_close(&hosts);

    fabric_hosts_ask_open(&hosts, 2, "nowhere0", "127.0.0.2");
    fabric_hosts_await_done(&hosts);
    for (uint32_t i = 0; i < 2; i++)
        fabric_hosts_ask_connect(&hosts, i, PATIENCE_MS);
    fabric_hosts_await_lost(&hosts);
    bool first = strstr(hosts.host[0].reason.text, "leads over") != NULL;
    assert_reason(first ? 0 : 1, "which is no address of the interface nowhere0");
    fabric_hosts_close(&hosts);
}
END_TEST

/* ---- where there is no way for a while ---- */

static void run(const char *command)
{
    int status = system(command); /* NOLINT(cert-env33-c): constant commands */
    ck_assert_msg(status == 0, "%s: %d", command, status);
}

static int own_network = -1;

/* A network of this process alone, where what goes to this address has no way. */
static bool enter_network_without_way(void)
{
    own_network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (own_network < 0 || geteuid() != 0 || unshare(CLONE_NEWNET) < 0) {
        (void)printf("skipped: a network namespace needs root\n");
        return false;
    }
    run("ip link set lo up");
    run("ip rule add pref 10 lookup local");
    run("ip rule add pref 5 to 127.0.0.1 unreachable");
    run("ip rule del pref 0");
    return true;
}

static void leave_network(void)
{
    if (own_network >= 0)
        (void)setns(own_network, CLONE_NEWNET);
    (void)close(own_network);
    own_network = -1;
}

/* Two hosts, each with an address of its own. */
static void open_apart(void)
{
    fabric_hosts_begin(&hosts, 2);
    fabric_host_ask_open(&hosts, 0, "lo", "127.0.0.1");
    fabric_host_ask_open(&hosts, 1, "lo", "127.0.0.2");
    fabric_hosts_await_done(&hosts);
}

/* Connecting goes from the larger address to the smaller. */
START_TEST(a_host_without_a_way_is_tried_again)
{
    if (!enter_network_without_way())
        return;
    open_apart();
    for (uint32_t i = 0; i < 2; i++)
        fabric_hosts_ask_connect(&hosts, i, PATIENCE_MS);
    uint64_t end = uv_hrtime() + 300000000;
    while (uv_hrtime() < end) {
        (void)uv_run(&hosts.loop, UV_RUN_NOWAIT);
        ck_assert_msg(!hosts.host[1].answered, "%s", hosts.host[1].reason.text);
    }
    run("ip rule del pref 5");
    fabric_hosts_await_done(&hosts);
    fabric_hosts_close(&hosts);
}
END_TEST

/* It says what it met, and of whom, before its daemon ends it. */
START_TEST(a_host_without_a_way_is_named)
{
    if (!enter_network_without_way())
        return;
    open_apart();
    fabric_hosts_ask_connect(&hosts, 1, 2000);
    fabric_host_await(&hosts, 1);
    ck_assert_int_eq(hosts.host[1].status, F8_EIO);
    assert_reason(1, "the engine cannot connect to host alpha (127.0.0.1): ");
    assert_reason(1, ": connect: Network is unreachable");
    fabric_hosts_close(&hosts);
}
END_TEST

/* ---- who comes ---- */

/* Where `host` listens for the other: addresses begin with it, one after the other by host. */
static struct sockaddr_in door(uint32_t host, uint32_t other)
{
    struct sockaddr_in at;
    size_t size;
    const uint8_t *address = fabric_address(hosts.host[host].fabric, &size);
    memcpy(&at, address + other * size / hosts.num, sizeof(at));
    ck_assert_int_eq(at.sin_family, AF_INET);
    ck_assert_uint_eq(at.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    return at;
}

static int come_as_stranger(uint32_t host, uint32_t other)
{
    struct sockaddr_in at = door(host, other);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

/* Says what may be anything; 48 bytes are one message of Gloo's without bytes of its own. */
static void say(int fd, int kind)
{
    uint64_t words[4096];
    for (size_t i = 0; i < 4096; i++)
        words[i] = kind == 0 ? 0 : (i * UINT64_C(0x9e3779b97f4a7c15)) >> (kind == 1 ? 0 : 62);
    (void)!send(fd, words, sizeof(words), MSG_NOSIGNAL);
}

/* One at each door; where they keep the helper waiting, by silence too, the deadline ends it. */
START_TEST(strangers_fail_a_group_and_write_into_no_arena)
{
    int kind = _i, strangers[2];
    fabric_hosts_open(&hosts, 2);
    for (uint32_t i = 0; i < 2; i++) {
        strangers[i] = come_as_stranger(i, 1 - i);
        if (kind < 3)
            say(strangers[i], kind);
    }
    for (uint32_t i = 0; i < 2; i++)
        fabric_hosts_ask_connect(&hosts, i, 300);
    fabric_hosts_await_failed(&hosts, F8_OK);
    for (uint32_t i = 0; i < 2; i++)
        (void)close(strangers[i]);
    fabric_hosts_close(&hosts);
}
END_TEST

/* What is sent from one to the other is lost without a word. */
static void lose_packets(void)
{
    run("ip rule add pref 4 to 127.0.0.1 table 99");
    run("ip rule add pref 3 to 127.0.0.2 table 99");
    run("ip route add blackhole 127.0.0.0/8 table 99");
}

START_TEST(a_path_that_dies_is_found_without_a_deadline)
{
    uint64_t began = uv_hrtime();
    if (!enter_network_without_way())
        return;
    run("ip rule del pref 5");
    fabric_hosts_begin(&hosts, 2);
    hosts.silence_ms = 1200;
    fabric_host_ask_open(&hosts, 0, "lo", "127.0.0.1");
    fabric_host_ask_open(&hosts, 1, "lo", "127.0.0.2");
    fabric_hosts_await_done(&hosts);
    fabric_hosts_connect(&hosts);
    fabric_hosts_map(&hosts, 2 * MIB);
    lose_packets();
    fabric_hosts_exchange(&hosts, spans, 2, PATIENCE_MS);
    fabric_hosts_await_failed(&hosts, F8_EIO);
    assert_reason(0, "lost its connection to host beta (127.0.0.2), whose engine is pid ");
    assert_reason(1, "lost its connection to host alpha (127.0.0.1), whose engine is pid ");
    ck_assert_uint_lt((uv_hrtime() - began) / 1000000, PATIENCE_MS / 2);
    fabric_hosts_close(&hosts);
}
END_TEST

static Suite *process_suite(void)
{
    Suite *suite = suite_create("fabric, processes");
    TCase *process = tcase_create("process");
    tcase_add_test(process, it_lies_beside_the_program);
    tcase_add_test(process, one_of_another_version_is_told);
    tcase_add_test(process, it_inherits_nothing_but_its_socket);
    tcase_add_test(process, signals_to_the_daemon_and_its_children_do_not_end_it);
    tcase_add_test(process, it_ends_with_its_daemon);
    suite_add_tcase(suite, process);
    TCase *network = tcase_create("network");
    tcase_add_loop_test(network, addresses_that_are_none_of_this_host_are_refused, 0, 3);
    tcase_add_test(network, connections_must_be_the_interface_s);
    tcase_add_loop_test(network, strangers_fail_a_group_and_write_into_no_arena, 0, 4);
    suite_add_tcase(suite, network);
    TCase *without_way = tcase_create("without_way");
    tcase_add_checked_fixture(without_way, NULL, leave_network);
    tcase_add_test(without_way, a_host_without_a_way_is_tried_again);
    tcase_add_test(without_way, a_host_without_a_way_is_named);
    tcase_add_test(without_way, a_path_that_dies_is_found_without_a_deadline);
    suite_add_tcase(suite, without_way);
    return suite;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return strcmp(argv[1], "meet") == 0 ? meet_and_tell() : open_and_tell();
    if (strcmp(argv[0], FABRIC_HELPER) == 0)
        return be_old_helper();
    fabric_hosts_need();
    SRunner *runner = srunner_create(process_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
