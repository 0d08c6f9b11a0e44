/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings: every flag by command line and by environment, which wins, and the sentence for every
 * value that is none. The default socket is looked for by a child without rights to the system's.
 */
#include <check.h>
#include <getopt.h>
#include <grp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/config.h"
#include "protocol.h"
#include "tests/lib/suite.h"

#define MAX_ARGUMENTS 6
#define NOBODY        65534

static struct config config;
static struct reason reason;
static enum config_action action;

#define AT(field) offsetof(struct config, field), sizeof(((struct config *)0)->field)

/* Settings that are numbers, with a good value and one that is out of range. */
static const struct {
    const char *flag, *variable, *good;
    uint64_t value;
    const char *low, *high; /* NULL: none */
    size_t offset, size;
} numbers[] = {
    {"--threads", "F8GATHERD_THREADS", "3", 3, "0", "1025", AT(threads)},
    {"--max-connections", "F8GATHERD_MAX_CONNECTIONS", "7", 7, "0", "1048577", AT(max_connections)},
    {"--max-jobs", "F8GATHERD_MAX_JOBS", "8", 8, "0", "1048577", AT(max_jobs)},
    {"--max-regions", "F8GATHERD_MAX_REGIONS", "9", 9, "0", "1048577", AT(max_regions)},
    {"--max-weights", "F8GATHERD_MAX_WEIGHTS", "10", 10, "0", "16777217", AT(max_weights)},
    {"--max-ranks", "F8GATHERD_MAX_RANKS", "11", 11, "0", "4097", AT(max_ranks)},
    {"--credit", "F8GATHERD_CREDIT", "12", 12, "0", "1048577", AT(credit)},
    {"--max-rounds", "F8GATHERD_MAX_ROUNDS", "13", 13, "0", "1048577", AT(max_rounds)},
    {"--memory-per-uid", "F8GATHERD_MEMORY_PER_UID", "2097152", 2 << 20, "1023K", "5000000T",
        AT(memory_per_uid)},
    {"--memory-per-uid", "F8GATHERD_MEMORY_PER_UID", "3g", UINT64_C(3) << 30, "0",
        "18446744073709551615", AT(memory_per_uid)},
    {"--memory-per-uid", "F8GATHERD_MEMORY_PER_UID", "2048K", 2 << 20, "1", "99999999999999999999",
        AT(memory_per_uid)},
    {"--memory-per-uid", "F8GATHERD_MEMORY_PER_UID", "5M", 5 << 20, "1K", "18014398509481984K",
        AT(memory_per_uid)},
    {"--memory-per-uid", "F8GATHERD_MEMORY_PER_UID", "1T", UINT64_C(1) << 40, "0T",
        "9223372036854775807T", AT(memory_per_uid)},
    {"--deadline", "F8GATHERD_DEADLINE", "14", 14000, "0", "1073741825", AT(deadline_ms)},
    {"--slow", "F8GATHERD_SLOW", "15", 15000, "0", "1073741825", AT(slow_ms)},
    {"--cuda-limit", "F8GATHERD_CUDA_LIMIT", "16", 16000, "0", "1073741825", AT(cuda_limit_ms)},
    {"--world-deadline", "F8GATHERD_WORLD_DEADLINE", "17", 17000, "0", "1073741825",
        AT(world_deadline_ms)},
    {"--heartbeat", "F8GATHERD_HEARTBEAT", "250", 250, "9", "60001", AT(heartbeat_ms)},
    {"--host-timeout", "F8GATHERD_HOST_TIMEOUT", "4500", 4500, "39", "1073741825",
        AT(host_timeout_ms)},
    {"--max-worlds", "F8GATHERD_MAX_WORLDS", "18", 18, "0", "65537", AT(max_worlds)},
    {"--snapshot-interval", "F8GATHERD_SNAPSHOT_INTERVAL", "0", 0, NULL, "1073741825",
        AT(snapshot_interval_ms)},
    {"--snapshot-keep", "F8GATHERD_SNAPSHOT_KEEP", "0", 0, NULL, "1073741825",
        AT(snapshot_keep_ms)},
};

#define NUM_NUMBERS ((int)(sizeof(numbers) / sizeof(numbers[0])))

/* Parses these arguments, NULL at the end of them; without --socket it would touch the system. */
static int parse(const char *first, const char *second)
{
    char *argv[MAX_ARGUMENTS] = {
        (char *)"f8gatherd", (char *)"--socket=/none/s", (char *)first, (char *)second, NULL};
    optind = 0; /* glibc's way to begin anew */
    reason.text[0] = '\0';
    action = CONFIG_RUN;
    memset(&config, 0x55, sizeof(config));
    return config_parse(first ? second ? 4 : 3 : 2, argv, &config, &action, &reason);
}

static void clear_environment(void)
{
    for (int i = 0; i < NUM_NUMBERS; i++)
        (void)unsetenv(numbers[i].variable);
    (void)unsetenv("F8GATHERD_SOCKET");
    (void)unsetenv("F8GATHERD_STATE_DIR");
    (void)unsetenv("STATE_DIRECTORY");
    (void)unsetenv("F8GATHERD_LOG_LEVEL");
    (void)unsetenv("F8GATHERD_ADMIN_GROUP");
    (void)unsetenv("F8GATHERD_CUDA");
    (void)unsetenv("F8GATHERD_SOCKET_IFNAME");
    (void)unsetenv("F8_SOCKET_IFNAME");
    (void)unsetenv("XDG_RUNTIME_DIR");
}

static void assert_has(const char *part)
{
    ck_assert_msg(strstr(reason.text, part), "\"%s\" lacks \"%s\"", reason.text, part);
}

static uint64_t field(int i)
{
    uint32_t narrow;
    uint64_t wide;
    const char *at = (const char *)&config + numbers[i].offset;
    memcpy(&narrow, at, sizeof(narrow));
    memcpy(&wide, at, numbers[i].size == sizeof(wide) ? sizeof(wide) : sizeof(narrow));
    return numbers[i].size == sizeof(narrow) ? narrow : wide;
}

static void assert_ok(int status)
{
    ck_assert_msg(status == F8_OK, "%s", reason.text);
}

START_TEST(defaults)
{
    assert_ok(parse(NULL, NULL));
    ck_assert_int_eq(action, CONFIG_RUN);
    ck_assert_str_eq(config.socket, "/none/s");
    ck_assert_int_eq(config.log_level, LOG_LEVEL_INFO);
    ck_assert_uint_ge(config.threads, 1);
    ck_assert_uint_eq(config.credit, 4096);
    ck_assert_uint_eq(config.deadline_ms, 600000);
    ck_assert_uint_eq(config.slow_ms, 30000);
    ck_assert_uint_ge(config.memory_per_uid, 1 << 20);
    ck_assert(!config.has_admin_gid);
}
END_TEST

START_TEST(numbers_by_flag)
{
    assert_ok(parse(numbers[_i].flag, numbers[_i].good));
    ck_assert_uint_eq(field(_i), numbers[_i].value);
}
END_TEST

START_TEST(numbers_by_environment)
{
    ck_assert_int_eq(setenv(numbers[_i].variable, numbers[_i].good, 1), 0);
    assert_ok(parse(NULL, NULL));
    ck_assert_uint_eq(field(_i), numbers[_i].value);
}
END_TEST

START_TEST(flags_win)
{
    ck_assert_int_eq(setenv(numbers[_i].variable, "1000000", 1), 0);
    int alone = parse(NULL, NULL);
    int status = parse(numbers[_i].flag, numbers[_i].good);
    if (alone == F8_OK) {
        assert_ok(status);
        ck_assert_uint_eq(field(_i), numbers[_i].value);
    } else { /* a bad value in the environment is told in any case */
        ck_assert_int_eq(status, F8_EINVAL);
        assert_has(numbers[_i].variable);
    }
}
END_TEST

static void refused(int i, const char *value)
{
    struct config untouched;
    if (!value)
        return;
    memset(&untouched, 0x55, sizeof(untouched));
    ck_assert_msg(parse(numbers[i].flag, value) == F8_EINVAL, "%s %s", numbers[i].flag, value);
    ck_assert_mem_eq(&config, &untouched, sizeof(config));
    assert_has(numbers[i].flag);
    assert_has(value);
    assert_has("is not a number from");
    ck_assert_int_eq(setenv(numbers[i].variable, value, 1), 0);
    ck_assert_int_eq(parse(NULL, NULL), F8_EINVAL);
    assert_has(numbers[i].variable);
    assert_has(value);
    (void)unsetenv(numbers[i].variable);
}

START_TEST(bad_numbers_are_named)
{
    static const char *const words[] = {"x", "-1", "+1", " 7", "7 ", "1.5", "0x10", "7X", "7KK"};
    refused(_i, numbers[_i].low);
    refused(_i, numbers[_i].high);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        refused(_i, words[i]);
}
END_TEST

START_TEST(units_are_for_bytes_only)
{
    ck_assert_int_eq(parse("--credit", "1K"), F8_EINVAL);
    assert_has("--credit: 1K is not a number from 1 to 1048576");
    ck_assert_int_eq(parse("--credit", ""), F8_EINVAL);
    ck_assert_int_eq(parse("--memory-per-uid", "K"), F8_EINVAL);
    assert_has("with K, M, G or T at its end");
}
END_TEST

START_TEST(levels)
{
    assert_ok(parse("--log-level", "debug"));
    ck_assert_int_eq(config.log_level, LOG_LEVEL_DEBUG);
    ck_assert_int_eq(setenv("F8GATHERD_LOG_LEVEL", "error", 1), 0);
    assert_ok(parse(NULL, NULL));
    ck_assert_int_eq(config.log_level, LOG_LEVEL_ERROR);
    assert_ok(parse("--log-level=warning", NULL));
    ck_assert_int_eq(config.log_level, LOG_LEVEL_WARNING);
    ck_assert_int_eq(parse("--log-level", "loud"), F8_EINVAL);
    assert_has("--log-level: loud is not error, warning, info or debug");
}
END_TEST

START_TEST(cuda)
{
    assert_ok(parse(NULL, NULL));
    ck_assert_int_eq(config.cuda, CONFIG_CUDA_AUTO);
    ck_assert_uint_eq(config.cuda_limit_ms, 120000);
    assert_ok(parse("--cuda", "off"));
    ck_assert_int_eq(config.cuda, CONFIG_CUDA_OFF);
    assert_ok(parse("--cuda", "require"));
    ck_assert_int_eq(config.cuda, CONFIG_CUDA_REQUIRE);
    ck_assert_int_eq(setenv("F8GATHERD_CUDA", "require", 1), 0);
    assert_ok(parse("--cuda", "auto"));
    ck_assert_int_eq(config.cuda, CONFIG_CUDA_AUTO);
    ck_assert_int_eq(parse("--cuda", "yes"), F8_EINVAL);
    assert_has("--cuda: yes is not auto, off or require");
}
END_TEST

START_TEST(other_hosts)
{
    char name[66];
    assert_ok(parse(NULL, NULL));
    ck_assert_str_eq(config.socket_ifname, "");
    ck_assert_str_eq(config.host_name, "");
    ck_assert_int_eq(config.socket_family, CONFIG_FAMILY_ANY);
    ck_assert_uint_eq(config.world_deadline_ms, 300000);
    assert_ok(parse("--socket-family", "ipv6"));
    ck_assert_int_eq(config.socket_family, CONFIG_FAMILY_IPV6);
    ck_assert_int_eq(parse("--socket-family", "ipv5"), F8_EINVAL);
    assert_has("--socket-family: ipv5 is not ipv4, ipv6 or any");
    assert_ok(parse("--host-name", "node-7"));
    ck_assert_str_eq(config.host_name, "node-7");
    ck_assert_int_eq(parse("--host-name", "a\nb"), F8_EINVAL);
    memset(name, 'n', sizeof(name));
    name[65] = '\0';
    ck_assert_int_eq(parse("--host-name", name), F8_EINVAL);
    assert_has("has 65 bytes, allowed are 1 to 64");
    ck_assert_int_eq(parse("--host-timeout", "3999"), F8_EINVAL);
    assert_has("--host-timeout 3999 is less than four heartbeats of 1000 ms");
}
END_TEST

/* The variable of all tools, then our own, then the flag. */
START_TEST(interfaces)
{
    ck_assert_int_eq(setenv("F8_SOCKET_IFNAME", "^docker,lo", 1), 0);
    assert_ok(parse(NULL, NULL));
    ck_assert_str_eq(config.socket_ifname, "^docker,lo");
    ck_assert_int_eq(setenv("F8GATHERD_SOCKET_IFNAME", "ib", 1), 0);
    assert_ok(parse(NULL, NULL));
    ck_assert_str_eq(config.socket_ifname, "ib");
    assert_ok(parse("--socket-ifname", "=eth1"));
    ck_assert_str_eq(config.socket_ifname, "=eth1");
    ck_assert_int_eq(setenv("F8_SOCKET_IFNAME", "a\033b", 1), 0);
    ck_assert_int_eq(parse(NULL, NULL), F8_EINVAL);
    assert_has("F8_SOCKET_IFNAME: the name ");
    ck_assert_int_eq(setenv("F8_SOCKET_IFNAME", "^docker,^lo", 1), 0);
    ck_assert_int_eq(parse(NULL, NULL), F8_EINVAL);
    assert_has(
        "F8_SOCKET_IFNAME: in ^docker,^lo the ^ stands once, before all of the names: ^NAME");
    ck_assert_int_eq(setenv("F8_SOCKET_IFNAME", "^=docker,lo", 1), 0);
    assert_ok(parse("--socket-ifname", "eth,ib"));
    ck_assert_int_eq(parse("--socket-ifname", "=eth0,=eth1"), F8_EINVAL);
    assert_has("--socket-ifname: in =eth0,=eth1 the = stands once");
    ck_assert_int_eq(parse("--socket-ifname", "=^lo"), F8_EINVAL);
    assert_has("--socket-ifname: in =^lo the ^ stands once");
}
END_TEST

/* What set it is told where none is there. */
START_TEST(the_setter_of_interfaces_is_kept)
{
    ck_assert_int_eq(setenv("F8_SOCKET_IFNAME", "eth9", 1), 0);
    ck_assert_int_eq(unsetenv("F8GATHERD_SOCKET_IFNAME"), 0);
    assert_ok(parse(NULL, NULL));
    ck_assert_str_eq(config.socket_ifname_from, "F8_SOCKET_IFNAME");
    assert_ok(parse("--socket-ifname", "=eth1"));
    ck_assert_str_eq(config.socket_ifname_from, "--socket-ifname");
}
END_TEST

START_TEST(admin_group)
{
    const struct group *group = getgrgid(0);
    ck_assert_ptr_nonnull(group);
    assert_ok(parse("--admin-group", group->gr_name));
    ck_assert(config.has_admin_gid);
    ck_assert_uint_eq(config.admin_gid, 0);
    ck_assert_int_eq(parse("--admin-group", "no-such-group-here"), F8_EINVAL);
    assert_has("--admin-group: there is no group no-such-group-here on this host");
}
END_TEST

START_TEST(socket_paths)
{
    char path[120];
    ck_assert_int_eq(setenv("F8GATHERD_SOCKET", "/none/env", 1), 0);
    assert_ok(parse(NULL, NULL));
    ck_assert_str_eq(config.socket, "/none/s"); /* the flag wins */
    memset(path, 'p', sizeof(path));
    path[107] = '\0';
    assert_ok(parse("--socket", path));
    ck_assert_str_eq(config.socket, path);
    path[107] = 'p';
    path[108] = '\0';
    ck_assert_int_eq(parse("--socket", path), F8_EINVAL);
    assert_has(path);
    assert_has("has 108 bytes, allowed are 1 to 107");
    ck_assert_int_eq(parse("--socket", ""), F8_EINVAL);
    assert_has("--socket: the path  has 0 bytes");
}
END_TEST

START_TEST(unknown_flags_are_named)
{
    ck_assert_int_eq(parse("--thraeds", "4"), F8_EINVAL);
    assert_has("--thraeds is no option of f8gatherd: see --help");
    ck_assert_int_eq(parse("--thraeds=4", NULL), F8_EINVAL);
    assert_has("--thraeds=4 is no option");
    ck_assert_int_eq(parse("--max", "4"), F8_EINVAL); /* of several the beginning */
    assert_has("--max is no option");
    ck_assert_int_eq(parse("-x", NULL), F8_EINVAL);
    assert_has("-x is no option");
    ck_assert_int_eq(parse("-xy", NULL), F8_EINVAL);
    assert_has("-x");
    ck_assert_int_eq(parse("--threads", NULL), F8_EINVAL);
    assert_has("--threads wants a value");
    ck_assert_int_eq(parse("stray", NULL), F8_EINVAL);
    assert_has("stray: f8gatherd takes no arguments");
}
END_TEST

/* What is printed to stdout meanwhile. */
static void capture(const char *flag, char *text, size_t size)
{
    int ends[2], out = dup(STDOUT_FILENO);
    ck_assert_int_eq(pipe(ends), 0);
    (void)fflush(stdout);
    (void)dup2(ends[1], STDOUT_FILENO);
    int status = parse(flag, NULL);
    (void)fflush(stdout);
    (void)dup2(out, STDOUT_FILENO);
    (void)close(out);
    (void)close(ends[1]);
    ssize_t length = read(ends[0], text, size - 1);
    (void)close(ends[0]);
    text[length > 0 ? length : 0] = '\0';
    assert_ok(status);
    ck_assert_int_eq(action, CONFIG_EXIT);
}

START_TEST(help_has_every_flag)
{
    char text[8192];
    capture("--help", text, sizeof(text));
    for (int i = 0; i < NUM_NUMBERS; i++)
        ck_assert_msg(strstr(text, numbers[i].flag), "no %s in --help", numbers[i].flag);
    static const char *const others[] = {
        "--socket", "--log-level", "--admin-group", "--help", "--version", F8_PROTO_SOCKET};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        ck_assert_msg(strstr(text, others[i]), "no %s in --help", others[i]);
    capture("--version", text, sizeof(text));
    ck_assert_str_eq(text, "f8gatherd " F8_VERSION "\n");
}
END_TEST

START_TEST(state_directory)
{
    assert_ok(parse(NULL, NULL));
    ck_assert_str_eq(config.state_dir, ""); /* another socket than the system's */
    ck_assert_uint_eq(config.snapshot_interval_ms, 60000);
    ck_assert_uint_eq(config.snapshot_keep_ms, (uint64_t)7 * 24 * 3600 * 1000);
    (void)setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two", 1);
    assert_ok(parse(NULL, NULL));
    ck_assert_str_eq(config.state_dir, "/var/lib/one");
    assert_ok(parse("--state-dir", "none"));
    ck_assert_str_eq(config.state_dir, "");
    (void)setenv("F8GATHERD_STATE_DIR", "/var/lib/three", 1);
    assert_ok(parse(NULL, NULL));
    ck_assert_str_eq(config.state_dir, "/var/lib/three");
    assert_ok(parse("--state-dir", "/var/lib/four"));
    ck_assert_str_eq(config.state_dir, "/var/lib/four");
    ck_assert_int_eq(parse("--state-dir", "four"), F8_EINVAL);
    assert_has("--state-dir: four is neither an absolute path");
    (void)setenv("F8GATHERD_STATE_DIR", "", 1);
    ck_assert_int_eq(parse(NULL, NULL), F8_EINVAL);
}
END_TEST

/* Runs without --socket, as someone who may not make the system's directory. */
static bool default_is(const char *runtime, int status, const char *text)
{
    char *argv[] = {(char *)"f8gatherd", NULL};
    if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) < 0)
        return false;
    if (runtime)
        (void)setenv("XDG_RUNTIME_DIR", runtime, 1);
    optind = 0;
    if (config_parse(1, argv, &config, &action, &reason) != status)
        return false;
    return strstr(status == F8_OK ? config.socket : reason.text, text) != NULL;
}

static void check_default(const char *runtime, int status, const char *text)
{
    int end;
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(default_is(runtime, status, text) ? 0 : 1);
    ck_assert_int_eq(waitpid(pid, &end, 0), pid);
    ck_assert_msg(end == 0, "XDG_RUNTIME_DIR=%s: not \"%s\"", runtime ? runtime : "(unset)", text);
}

START_TEST(default_socket_of_a_user)
{
    char path[120];
    memset(path, 'p', sizeof(path) - 1);
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    check_default("/none/run", F8_OK, "/none/run/f8gatherd.sock");
    check_default(NULL, F8_EINVAL, "XDG_RUNTIME_DIR is not set: give --socket");
    check_default("", F8_EINVAL, "XDG_RUNTIME_DIR is not set: give --socket");
    check_default(path, F8_EINVAL, "XDG_RUNTIME_DIR");
}
END_TEST

START_TEST(environment_gives_the_socket)
{
    char *argv[] = {(char *)"f8gatherd", NULL};
    ck_assert_int_eq(setenv("F8GATHERD_SOCKET", "/none/env", 1), 0);
    optind = 0;
    assert_ok(config_parse(1, argv, &config, &action, &reason));
    ck_assert_str_eq(config.socket, "/none/env");
}
END_TEST

static void add_all(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, clear_environment, clear_environment);
    tcase_add_test(tcase, defaults);
    tcase_add_loop_test(tcase, numbers_by_flag, 0, NUM_NUMBERS);
    tcase_add_loop_test(tcase, numbers_by_environment, 0, NUM_NUMBERS);
    tcase_add_loop_test(tcase, flags_win, 0, NUM_NUMBERS);
    tcase_add_loop_test(tcase, bad_numbers_are_named, 0, NUM_NUMBERS);
    tcase_add_test(tcase, units_are_for_bytes_only);
    tcase_add_test(tcase, levels);
    tcase_add_test(tcase, cuda);
    tcase_add_test(tcase, other_hosts);
    tcase_add_test(tcase, interfaces);
    tcase_add_test(tcase, the_setter_of_interfaces_is_kept);
    tcase_add_test(tcase, admin_group);
    tcase_add_test(tcase, socket_paths);
    tcase_add_test(tcase, unknown_flags_are_named);
    tcase_add_test(tcase, help_has_every_flag);
    tcase_add_test(tcase, default_socket_of_a_user);
    tcase_add_test(tcase, state_directory);
    tcase_add_test(tcase, environment_gives_the_socket);
}

int main(void)
{
    TCase *tcase = tcase_create("config");
    add_all(tcase);
    return run_suite("config", tcase);
}
