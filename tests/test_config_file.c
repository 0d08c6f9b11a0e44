/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration files: their order and what wins over them, every way to be wrong with its file
 * and line, what --print-config says of where values came from, and what a second reading changes.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config.h"
#include "protocol.h"
#include "status.h"
#include "tests/lib/private_run.h"
#include "tests/lib/suite.h"

static char directory[64], path[96];
static struct config config;
static struct reason reason;
static enum config_action action;

static void set_up(void)
{
    char sub[160];
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(directory, sizeof(directory), "%.40s/f8-config-XXXXXX", tmp ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/f.conf", directory);
    (void)snprintf(sub, sizeof(sub), "%s.d", path);
    ck_assert_int_eq(mkdir(sub, 0700), 0);
    (void)unsetenv("F8GATHERD_THREADS");
    (void)unsetenv("F8GATHERD_CONFIG");
    log_set_level(LOG_LEVEL_ERROR);
}

static void tear_down(void)
{
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", directory);
    ck_assert_int_eq(system(command), 0);
    (void)unsetenv("F8GATHERD_THREADS");
    (void)unsetenv("F8GATHERD_CONFIG");
}

/* Writes f.conf, or with a name f.conf.d/NAME. */
static void write_file(const char *name, const char *text)
{
    char file[160];
    (void)snprintf(file, sizeof(file), name ? "%s.d/%s" : "%s", path, name);
    FILE *stream = fopen(file, "we");
    ck_assert_ptr_nonnull(stream);
    ck_assert_int_ge(fputs(text, stream), 0);
    ck_assert_int_eq(fclose(stream), 0);
}

#define MAX_ARGUMENTS 8

/* The command line with the file and these arguments, NULL at the end of them. */
static int command_line(char *argv[MAX_ARGUMENTS], const char *first, const char *second)
{
    int argc = 0;
    argv[argc++] = (char *)"f8gatherd";
    argv[argc++] = (char *)"--socket=/none/s";
    argv[argc++] = (char *)"--config";
    argv[argc++] = path;
    if (first)
        argv[argc++] = (char *)first;
    if (second)
        argv[argc++] = (char *)second;
    argv[argc] = NULL;
    return argc;
}

static int parse(const char *first, const char *second)
{
    char *argv[MAX_ARGUMENTS];
    int argc = command_line(argv, first, second);
    reason.text[0] = '\0';
    return config_parse(argc, argv, &config, &action, &reason);
}

static int reload(struct config *told, struct config *live)
{
    char *argv[MAX_ARGUMENTS];
    int argc = command_line(argv, NULL, NULL);
    reason.text[0] = '\0';
    return config_reload(argc, argv, told, live, &reason);
}

static void assert_ok(int status)
{
    ck_assert_msg(status == F8_OK, "%s", reason.text);
}

/* The reason begins with the file, its line, and has the words. */
static void refused_at(const char *name, int line, const char *words)
{
    char place[320];
    ck_assert_int_eq(parse(NULL, NULL), F8_EINVAL);
    if (name)
        (void)snprintf(place, sizeof(place), "%s.d/%s:%d: ", path, name, line);
    else
        (void)snprintf(place, sizeof(place), "%s:%d: ", path, line);
    ck_assert_msg(strncmp(reason.text, place, strlen(place)) == 0, "\"%s\" is not at \"%s\"",
        reason.text, place);
    ck_assert_msg(strstr(reason.text, words), "\"%s\" lacks \"%s\"", reason.text, words);
}

START_TEST(a_file_is_read)
{
    write_file(NULL, "# of this host\n; also of it\n\nthreads = 3\n  log-level : debug ; loud\n"
                     "[f8gatherd]\nmemory-per-uid=2G\nhost-name = a=b\n");
    assert_ok(parse(NULL, NULL));
    ck_assert_uint_eq(config.threads, 3);
    ck_assert_int_eq(config.log_level, LOG_LEVEL_DEBUG);
    ck_assert_uint_eq(config.memory_per_uid, UINT64_C(2) << 30);
    ck_assert_str_eq(config.host_name, "a=b");
    ck_assert_uint_eq(config.slow_ms, 30000);
}
END_TEST

START_TEST(a_file_may_end_anywhere)
{
    write_file(NULL, "");
    assert_ok(parse(NULL, NULL));
    write_file(NULL, "threads = 5"); /* without the newline */
    assert_ok(parse(NULL, NULL));
    ck_assert_uint_eq(config.threads, 5);
    write_file(NULL, "\xef\xbb\xbfthreads = 6\r\n"); /* of another system's editor */
    assert_ok(parse(NULL, NULL));
    ck_assert_uint_eq(config.threads, 6);
}
END_TEST

START_TEST(directory_is_read_in_order_of_names)
{
    write_file(NULL, "threads = 1\nslow = 1\nlinger = 1\n");
    write_file("20-b.conf", "slow = 20\n");
    write_file("10-a.conf", "slow = 10\nlinger = 10\n");
    write_file("30-c.conf.bak", "slow = 30\n");
    write_file(".40-d.conf", "slow = 40\n");
    write_file("README", "this is none\n");
    assert_ok(parse(NULL, NULL));
    ck_assert_uint_eq(config.threads, 1);
    ck_assert_uint_eq(config.slow_ms, 20000);
    ck_assert_uint_eq(config.linger_ms, 10000);
    write_file("90-z.conf", "slow = soon\n");
    refused_at("90-z.conf", 1, "slow: soon is not a number from 1 to 1073741824");
}
END_TEST

START_TEST(environment_wins_over_files_and_flags_over_both)
{
    write_file(NULL, "threads = 3\n");
    write_file("a.conf", "threads = 4\n");
    ck_assert_int_eq(setenv("F8GATHERD_THREADS", "5", 1), 0);
    assert_ok(parse(NULL, NULL));
    ck_assert_uint_eq(config.threads, 5);
    assert_ok(parse("--threads", "6"));
    ck_assert_uint_eq(config.threads, 6);
    write_file("a.conf", "threads = none\n"); /* is told though it would not count */
    ck_assert_int_eq(parse("--threads", "6"), F8_EINVAL);
}
END_TEST

START_TEST(the_environment_names_a_file)
{
    char *argv[] = {(char *)"f8gatherd", (char *)"--socket=/none/s", NULL};
    write_file(NULL, "threads = 7\n");
    ck_assert_int_eq(setenv("F8GATHERD_CONFIG", path, 1), 0);
    assert_ok(config_parse(2, argv, &config, &action, &reason));
    ck_assert_uint_eq(config.threads, 7);
    ck_assert_int_eq(setenv("F8GATHERD_CONFIG", "/none/there", 1), 0);
    ck_assert_int_eq(config_parse(2, argv, &config, &action, &reason), F8_EINVAL);
    ck_assert_ptr_nonnull(strstr(reason.text, "cannot open the configuration /none/there: "));
    assert_ok(parse(NULL, NULL)); /* the flag wins */
}
END_TEST

START_TEST(what_is_wrong_has_its_line)
{
    char line[400] = "threads = 1\nhost-name = ";
    write_file(NULL, "slow = 3\nthraeds = 4\n");
    refused_at(NULL, 2, "thraeds is no setting of f8gatherd");
    write_file(NULL, "slow = 3\n\n# x\nthreads = 0\n");
    refused_at(NULL, 4, "threads: 0 is not a number from 1 to 1024");
    write_file(NULL, "threads =\n");
    refused_at(NULL, 1, "threads:  is not a number");
    write_file(NULL, "threads = 1\nlog-level = loud\nslow = never\n");
    refused_at(NULL, 2, "log-level: loud is not error, warning, info or debug"); /* the first */
    write_file(NULL, "threads = 1\nstray words\nslow = never\n");
    refused_at(NULL, 2, "this is neither KEY = VALUE nor [f8gatherd] nor a comment");
    write_file(NULL, "slow = never\nstray words\n");
    refused_at(NULL, 1, "slow: never is not");
    write_file(NULL, "[f8gatherd\nthreads = 1\n");
    refused_at(NULL, 1, "this is neither");
    write_file(NULL, "[other]\nthreads = 1\n");
    refused_at(NULL, 1, "[other] is no section of f8gatherd: there is only [f8gatherd]");
    write_file(NULL, "threads = 1\n [other] ; has no keys\n");
    refused_at(NULL, 2, "[other] is no section of f8gatherd");
    write_file(NULL, "threads = 1\nmetrics = 0.0.0.0:9000\n");
    refused_at(NULL, 2, "metrics 0.0.0.0:9000 is an address of the network");
    write_file(NULL, "threads = 1\nslow = 1\nthreads = 2\n");
    refused_at(NULL, 3, "threads is set by line 1 already");
    write_file(NULL, "host-name = a\n  b\n"); /* values have one line */
    refused_at(NULL, 2, "this is neither");
    memset(line + strlen(line), 'n', 300);
    write_file(NULL, line);
    refused_at(NULL, 2, "the line has more than");
    write_file(NULL, "threads = 1\nconfig = /etc/other\n");
    refused_at(NULL, 2, "config is no setting");
}
END_TEST

START_TEST(a_zero_byte_is_refused)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, "slow = 1\nthreads = 1\0junk\n", 26), 26);
    ck_assert_int_eq(close(fd), 0);
    refused_at(NULL, 2, "or a zero byte");
}
END_TEST

START_TEST(what_cannot_be_read_is_named)
{
    char sub[160];
    ck_assert_int_eq(parse(NULL, NULL), F8_EINVAL); /* it was asked for, so it must be there */
    ck_assert_ptr_nonnull(strstr(reason.text, path));
    ck_assert_ptr_nonnull(strstr(reason.text, "No such file or directory"));
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(parse(NULL, NULL), F8_EINVAL);
    ck_assert_ptr_nonnull(strstr(reason.text, "Is a directory"));
    ck_assert_int_eq(rmdir(path), 0);
    write_file(NULL, "threads = 2\n");
    (void)snprintf(sub, sizeof(sub), "%s.d/x.conf", path);
    ck_assert_int_eq(symlink("/none/there", sub), 0);
    ck_assert_int_eq(parse(NULL, NULL), F8_EINVAL);
    ck_assert_ptr_nonnull(strstr(reason.text, sub));
    ck_assert_int_eq(unlink(sub), 0);
    (void)snprintf(sub, sizeof(sub), "%s.d", path);
    ck_assert_int_eq(rmdir(sub), 0); /* without a directory is fine */
    assert_ok(parse(NULL, NULL));
    ck_assert_uint_eq(config.threads, 2);
}
END_TEST

START_TEST(values_that_do_not_go_together_are_named_with_their_origins)
{
    char place[320];
    write_file(NULL, "heartbeat = 500\n");
    write_file("a.conf", "\nhost-timeout = 1999\n");
    ck_assert_int_eq(parse(NULL, NULL), F8_EINVAL);
    (void)snprintf(
        place, sizeof(place), "host-timeout: %s.d/a.conf:2; heartbeat: %s:1", path, path);
    ck_assert_msg(strstr(reason.text, place), "\"%s\" lacks \"%s\"", reason.text, place);
}
END_TEST

/* What is printed to that descriptor meanwhile. */
static void capture_from(int fd, const char *first, const char *second, char *text, size_t size)
{
    int ends[2], out = dup(fd);
    ck_assert_int_eq(pipe(ends), 0);
    (void)fflush(stdout);
    (void)dup2(ends[1], fd);
    int status = parse(first, second);
    (void)fflush(stdout);
    (void)dup2(out, fd);
    (void)close(out);
    (void)close(ends[1]);
    ssize_t length = read(ends[0], text, size - 1);
    (void)close(ends[0]);
    text[length > 0 ? length : 0] = '\0';
    assert_ok(status);
    ck_assert_int_eq(action, CONFIG_EXIT);
}

static void capture(const char *first, const char *second, char *text, size_t size)
{
    capture_from(STDOUT_FILENO, first, second, text, size);
}

/* The line of a setting says its value and where that came from. */
static void line_says(const char *text, const char *setting, const char *origin)
{
    char line[400];
    const char *at = strstr(text, setting);
    ck_assert_msg(at && (at == text || at[-1] == '\n'), "no \"%s\" in %s", setting, text);
    (void)snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
    const char *comment = strstr(line, " ; ");
    ck_assert_msg(
        comment && strcmp(comment + 3, origin) == 0, "\"%s\": not from \"%s\"", line, origin);
}

START_TEST(print_says_where_values_came_from)
{
    char text[8192], again[8192], place[320];
    write_file(NULL, "slow = 3\nmemory-per-uid = 1M\ndeadline = 9\n");
    write_file("a.conf", "\ndeadline = 10\n");
    ck_assert_int_eq(setenv("F8GATHERD_THREADS", "5", 1), 0);
    capture("--linger=1", "--print-config", text, sizeof(text));
    (void)snprintf(place, sizeof(place), "%s:1", path);
    line_says(text, "slow = 3 ", place);
    (void)snprintf(place, sizeof(place), "%s:2", path);
    line_says(text, "memory-per-uid = 1048576 ", place);
    (void)snprintf(place, sizeof(place), "%s.d/a.conf:2", path);
    line_says(text, "deadline = 10 ", place);
    line_says(text, "threads = 5 ", "environment F8GATHERD_THREADS");
    line_says(text, "linger = 1 ", "flag --linger");
    line_says(text, "drain = 10 ", "default");
    line_says(text, "snapshot-keep = 604800 ", "default");
    line_says(text, "# host-name = ", "default");

    /* It is a file itself, which gives the same settings. */
    struct config before = config;
    (void)unsetenv("F8GATHERD_THREADS");
    write_file("a.conf", "");
    write_file(NULL, text);
    capture("--print-config", NULL, again, sizeof(again));
    ck_assert_uint_eq(config.slow_ms, before.slow_ms);
    ck_assert_uint_eq(config.memory_per_uid, before.memory_per_uid);
    ck_assert_uint_eq(config.deadline_ms, before.deadline_ms);
    ck_assert_uint_eq(config.threads, before.threads);
    ck_assert_uint_eq(config.linger_ms, before.linger_ms);
    ck_assert_str_eq(config.socket, before.socket);
}
END_TEST

START_TEST(check_only_reads)
{
    char text[256];
    write_file(NULL, "threads = 3\n");
    capture("--check-config", NULL, text, sizeof(text));
    ck_assert_str_eq(text, "");
    write_file(NULL, "threads = none\n");
    ck_assert_int_eq(parse("--check-config", NULL), F8_EINVAL);
}
END_TEST

/* What a path lacks is told where settings are checked, with where it was set; it is no error. */
START_TEST(check_warns_of_paths_that_cannot_work)
{
    static const struct {
        const char *socket, *states, *warning;
    } tries[] = {
        {"--socket=/tmp/s", "none", ""},
        {"--socket=/tmp/s", "/tmp", ""},
        {"--socket=/nonexistent/dir/s", "none",
            "socket = /nonexistent/dir/s (flag --socket) cannot work for uid "},
        {"--socket=/dev/null/s", "none", "/dev/null: is no directory"},
        {"--socket=/tmp/s", "/proc/x", "/proc: is of the kernel's own"},
        {"--socket=/tmp/s", "/nonexistent/dir/x", "/nonexistent/dir: No such file or directory"},
        {"--socket=/tmp/s", "/dev/null", "/dev/null: is no directory"},
    };
    char text[1024], settings[256], place[320];
    log_set_level(LOG_LEVEL_WARNING);
    (void)snprintf(place, sizeof(place), "(%s:1)", path);
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        (void)snprintf(settings, sizeof(settings), "state-dir = %s\n", tries[i].states);
        write_file(NULL, settings);
        capture_from(STDERR_FILENO, "--check-config", tries[i].socket, text, sizeof(text));
        if (tries[i].warning[0] == '\0')
            ck_assert_str_eq(text, "");
        ck_assert_msg(strstr(text, tries[i].warning), "%s: %s", tries[i].warning, text);
        if (strstr(text, "state-dir = "))
            ck_assert_msg(strstr(text, place), "%s: %s", place, text);
    }
}
END_TEST

/* The directory of the default socket is the daemon's to make, but not what is in its way. */
START_TEST(check_knows_what_a_first_start_makes)
{
    char text[1024];
    if (!private_run_enter()) {
        (void)printf("left out: this user may not mount a /run of its own (root may)\n");
        return;
    }
    log_set_level(LOG_LEVEL_WARNING);
    write_file(NULL, "state-dir = none\n");
    capture_from(STDERR_FILENO, "--check-config", "--socket=" F8_PROTO_SOCKET, text, sizeof(text));
    ck_assert_str_eq(text, "");
    int fd = creat("/run/f8gatherd", 0600);
    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    capture_from(STDERR_FILENO, "--check-config", "--socket=" F8_PROTO_SOCKET, text, sizeof(text));
    ck_assert_msg(strstr(text, "/run/f8gatherd: is no directory"), "%s", text);
}
END_TEST

START_TEST(reload_takes_what_can_change)
{
    write_file(NULL, "slow = 3\nthreads = 2\nheartbeat = 500\nadmin-group = root\n");
    assert_ok(parse(NULL, NULL));
    struct config told = config, live = config;
    (void)strcpy(live.socket, "/was/passed"); /* of no setting */
    write_file(NULL, "slow = 4\nthreads = 3\nheartbeat = 600\nlog-level = error\nmax-jobs = 7\n");
    assert_ok(reload(&told, &live));
    ck_assert_uint_eq(live.slow_ms, 4000);
    ck_assert_uint_eq(live.max_jobs, 7);
    ck_assert_int_eq(live.log_level, LOG_LEVEL_ERROR);
    ck_assert(!live.has_admin_gid); /* back to the default */
    ck_assert_uint_eq(live.threads, 2);
    ck_assert_uint_eq(live.heartbeat_ms, 500);
    ck_assert_str_eq(live.socket, "/was/passed");
    ck_assert_uint_eq(told.slow_ms, 4000);
    ck_assert_uint_eq(told.threads, 2);
}
END_TEST

START_TEST(a_bad_file_changes_nothing)
{
    write_file(NULL, "slow = 3\n");
    assert_ok(parse(NULL, NULL));
    struct config told, live, before;
    memcpy(&told, &config, sizeof(config));
    memcpy(&live, &config, sizeof(config));
    memcpy(&before, &config, sizeof(config));
    write_file(NULL, "slow = 4\nmax-jobs = none\n");
    ck_assert_int_eq(reload(&told, &live), F8_EINVAL);
    ck_assert_ptr_nonnull(strstr(reason.text, ":2: max-jobs: none is not"));
    ck_assert_mem_eq(&told, &before, sizeof(told));
    ck_assert_mem_eq(&live, &before, sizeof(live));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(reload(&told, &live), F8_EINVAL);
    ck_assert_mem_eq(&live, &before, sizeof(live));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("config_file");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_file_is_read);
    tcase_add_test(tcase, a_file_may_end_anywhere);
    tcase_add_test(tcase, directory_is_read_in_order_of_names);
    tcase_add_test(tcase, environment_wins_over_files_and_flags_over_both);
    tcase_add_test(tcase, the_environment_names_a_file);
    tcase_add_test(tcase, what_is_wrong_has_its_line);
    tcase_add_test(tcase, a_zero_byte_is_refused);
    tcase_add_test(tcase, what_cannot_be_read_is_named);
    tcase_add_test(tcase, values_that_do_not_go_together_are_named_with_their_origins);
    tcase_add_test(tcase, print_says_where_values_came_from);
    tcase_add_test(tcase, check_only_reads);
    tcase_add_test(tcase, check_warns_of_paths_that_cannot_work);
    tcase_add_test(tcase, check_knows_what_a_first_start_makes);
    tcase_add_test(tcase, reload_takes_what_can_change);
    tcase_add_test(tcase, a_bad_file_changes_nothing);
    return run_suite("config_file", tcase);
}
