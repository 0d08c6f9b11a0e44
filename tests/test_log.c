/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines as they leave the process: stderr is a pipe here, and $JOURNAL_STREAM names it or not.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/log.h"
#include "tests/lib/patience.h"
#include "tests/lib/private_run.h"
#include "tests/lib/suite.h"

static int pipe_fds[2], real_stderr;
static char text[4096];

static void open_pipe(void)
{
    ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
    real_stderr = dup(STDERR_FILENO);
    ck_assert_int_eq(dup2(pipe_fds[1], STDERR_FILENO), STDERR_FILENO);
    (void)unsetenv("JOURNAL_STREAM");
    log_set_level(LOG_LEVEL_INFO);
}

static void close_pipe(void)
{
    (void)dup2(real_stderr, STDERR_FILENO);
    (void)close(real_stderr);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
}

/* What has been logged since the last call. */
static const char *logged(void)
{
    ssize_t length = read(pipe_fds[0], text, sizeof(text) - 1);
    text[length > 0 ? length : 0] = '\0';
    return text;
}

START_TEST(words_where_stderr_is_no_journal)
{
    log_warning("rank %d waits", 3);
    ck_assert_str_eq(logged(), "f8gatherd: warning: rank 3 waits\n");
    ck_assert_int_eq(setenv("JOURNAL_STREAM", "1:2", 1), 0);
    log_error("no");
    ck_assert_str_eq(logged(), "f8gatherd: error: no\n");
}
END_TEST

START_TEST(priorities_where_it_is)
{
    struct stat st;
    char stream[64];
    ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
    (void)snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    ck_assert_int_eq(setenv("JOURNAL_STREAM", stream, 1), 0);
    log_error("gone");
    log_info("here");
    log_close(PATIENCE_MS);
    ck_assert_str_eq(logged(), "<3>gone\n<6>here\n");
}
END_TEST

START_TEST(levels_drop_lines)
{
    log_debug("hidden");
    ck_assert_str_eq(logged(), "");
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("shown");
    ck_assert_str_eq(logged(), "f8gatherd: debug: shown\n");
    log_set_level(LOG_LEVEL_ERROR);
    log_warning("hidden");
    ck_assert_str_eq(logged(), "");
    ck_assert_int_eq(log_level_parse("warning"), LOG_LEVEL_WARNING);
    ck_assert_int_eq(log_level_parse("warn"), -1);
}
END_TEST

START_TEST(peers_cannot_forge_lines)
{
    char name[3000];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    log_info("job %s", "a\n<0>b\x1b[2J");
    ck_assert_str_eq(logged(), "f8gatherd: info: job a?<0>b?[2J\n");
    log_info("C1 %s", "a\xc2\x9b\x32J\x9b"
                      "b\xc3(\xe2\x80\xae"
                      "c\xc3\xa9");
    ck_assert_str_eq(logged(), "f8gatherd: info: C1 a?2J?b?(?c\xc3\xa9\n");
    log_info("%s", name);
    ck_assert_uint_le(strlen(logged()), 1100);
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
}
END_TEST

/* More than the pipe takes, which would block. */
static void log_too_much(void)
{
    char body[1000];
    memset(body, 'x', sizeof(body) - 1);
    body[sizeof(body) - 1] = '\0';
    ck_assert_int_ge(fcntl(pipe_fds[1], F_SETPIPE_SZ, 4096), 4096);
    ck_assert_int_eq(fcntl(pipe_fds[1], F_SETFL, 0), 0);
    for (int i = 0; i < 100; i++)
        log_info("%s", body);
}

/* A reader that has stopped must not stop the writer; later it is told what it missed. */
START_TEST(unread_lines_are_dropped)
{
    log_too_much();
    while (*logged())
        ck_assert_ptr_null(strstr(text, "missing"));
    log_info("read again");
    logged();
    ck_assert_ptr_nonnull(strstr(text, " lines are missing here: they came faster"));
    ck_assert_ptr_nonnull(strstr(text, "f8gatherd: info: read again\n"));
    log_info("and again");
    ck_assert_str_eq(logged(), "f8gatherd: info: and again\n");
}
END_TEST

/* Without another line that could tell it, the end does; not where it cannot be told. */
START_TEST(end_tells_what_is_missing)
{
    char line[128];
    unsigned taken = 0;
    log_too_much();
    log_close(PATIENCE_MS);
    while (*logged())
        for (const char *c = text; *c; c++)
            taken += *c == '\n';
    log_close(PATIENCE_MS);
    (void)snprintf(line, sizeof(line),
        "f8gatherd: warning: %u lines are missing here: they came faster than they were taken\n",
        100 - taken);
    ck_assert_str_eq(logged(), line);
    log_close(PATIENCE_MS);
    ck_assert_str_eq(logged(), "");
}
END_TEST

START_TEST(floods_are_counted)
{
    struct log_limit limit = {0};
    unsigned allowed = 0;
    for (int i = 0; i < 1000; i++)
        allowed += log_allows(&limit, 50000);
    ck_assert_uint_eq(allowed, 10);
    ck_assert(!log_allows(&limit, 50000 + 9999));
    ck_assert_str_eq(logged(), "");
    ck_assert(log_allows(&limit, 50000 + 10000));
    ck_assert_str_eq(
        logged(), "f8gatherd: warning: 991 lines such as the next one were left out\n");
    ck_assert(log_allows(&limit, 70000)); /* nothing was left out in between */
    ck_assert_str_eq(logged(), "");
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("log");
    tcase_add_checked_fixture(tcase, open_pipe, close_pipe);
    tcase_add_test(tcase, words_where_stderr_is_no_journal);
    /* With a journal at its place the lines would go there: test_log_journal has one of its own. */
    if (private_run_enter() || access(PRIVATE_RUN_JOURNAL, F_OK) < 0)
        tcase_add_test(tcase, priorities_where_it_is);
    tcase_add_test(tcase, levels_drop_lines);
    tcase_add_test(tcase, peers_cannot_forge_lines);
    tcase_add_test(tcase, unread_lines_are_dropped);
    tcase_add_test(tcase, end_tells_what_is_missing);
    tcase_add_test(tcase, floods_are_counted);
    return run_suite("log", tcase);
}
