/* SPDX-License-Identifier: Apache-2.0 */
/* A journald of the test's own: see journal.h. */
#include "tests/lib/journal.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/patience.h"
#include "tests/lib/private_run.h"

static int journal, stderr_pipe[2], real_stderr;
static char entry[8192];

void journal_begin(void)
{
    struct stat st;
    char stream[64];
    journal = private_run_journal();
    ck_assert_int_eq(pipe2(stderr_pipe, O_CLOEXEC | O_NONBLOCK), 0);
    real_stderr = dup(STDERR_FILENO);
    ck_assert_int_eq(fstat(stderr_pipe[1], &st), 0);
    (void)snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    ck_assert_int_eq(setenv("JOURNAL_STREAM", stream, 1), 0);
}

void journal_end(void)
{
    (void)dup2(real_stderr, STDERR_FILENO);
    (void)close(real_stderr);
    (void)close(stderr_pipe[0]);
    (void)close(stderr_pipe[1]);
    (void)close(journal);
    (void)unsetenv("JOURNAL_STREAM");
}

void journal_take_stderr(void)
{
    ck_assert_int_eq(dup2(stderr_pipe[1], STDERR_FILENO), STDERR_FILENO);
}

const char *journal_stderr(void)
{
    static char text[4096];
    ssize_t n = read(stderr_pipe[0], text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

void journal_go(void)
{
    ck_assert_int_eq(unlink(PRIVATE_RUN_JOURNAL), 0);
    journal_die();
}

void journal_die(void)
{
    (void)close(journal);
}

void journal_return(void)
{
    journal = private_run_journal();
}

bool journal_try(int wait_ms)
{
    struct pollfd poll_fd = {.fd = journal, .events = POLLIN};
    if (poll(&poll_fd, 1, wait_ms) != 1)
        return false;
    ssize_t n = recv(journal, entry + 1, sizeof(entry) - 2, 0);
    ck_assert_int_gt(n, 0);
    entry[0] = '\n';
    entry[1 + n] = '\0';
    return true;
}

const char *journal_receive(void)
{
    ck_assert_msg(journal_try(PATIENCE_MS), "nothing comes to the journal");
    return entry;
}

const char *journal_entry(void)
{
    return entry;
}

bool journal_has(const char *field)
{
    char line[512];
    (void)snprintf(line, sizeof(line), "\n%s\n", field);
    return strstr(entry, line) != NULL;
}

void journal_expect(const char *field)
{
    ck_assert_msg(journal_has(field), "%s is not in:%s", field, entry);
}

void journal_await(const char *words)
{
    do
        (void)journal_receive();
    while (!strstr(entry, words));
}
