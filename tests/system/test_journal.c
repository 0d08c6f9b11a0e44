/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines that reach journald with their fields: single ones, and those of a daemon whose ranks die
 * or gather with stale scales. The test is journald, in a /run of its own; it stops reading, too,
 * and goes away.
 */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/log.h"
#include "lib/patience.h"
#include "lib/private_run.h"
#include "lib/ranks.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

static int journal, stderr_pipe[2], real_stderr;
static char entry[8192];

/* ---- journald ---- */

/* The next entry, of which each line ends with a newline, as does what is put before the first. */
static const char *receive(void)
{
    struct pollfd poll_fd = {.fd = journal, .events = POLLIN};
    ck_assert_msg(poll(&poll_fd, 1, PATIENCE_MS) == 1, "nothing comes to the journal");
    ssize_t n = recv(journal, entry + 1, sizeof(entry) - 2, 0);
    ck_assert_int_gt(n, 0);
    entry[0] = '\n';
    entry[1 + n] = '\0';
    return entry;
}

static bool has(const char *field)
{
    char line[512];
    (void)snprintf(line, sizeof(line), "\n%s\n", field);
    return strstr(entry, line) != NULL;
}

static void expect(const char *field)
{
    ck_assert_msg(has(field), "%s is not in:%s", field, entry);
}

/* The first entry from here on with these words in its message. */
static void await(const char *words)
{
    do
        (void)receive();
    while (!strstr(entry, words));
}

/* That this descriptor is what systemd has given as standard error. */
static void name_stream(int fd)
{
    struct stat st;
    char stream[64];
    ck_assert_int_eq(fstat(fd, &st), 0);
    (void)snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    ck_assert_int_eq(setenv("JOURNAL_STREAM", stream, 1), 0);
}

static void set_up(void)
{
    journal = private_run_journal();
    ck_assert_int_eq(pipe2(stderr_pipe, O_CLOEXEC | O_NONBLOCK), 0);
    real_stderr = dup(STDERR_FILENO);
    name_stream(stderr_pipe[1]);
    log_set_level(LOG_LEVEL_INFO);
}

static void turn_stderr(void)
{
    ck_assert_int_eq(dup2(stderr_pipe[1], STDERR_FILENO), STDERR_FILENO);
}

static void tear_down(void)
{
    (void)dup2(real_stderr, STDERR_FILENO);
    (void)close(real_stderr);
    (void)close(stderr_pipe[0]);
    (void)close(stderr_pipe[1]);
    (void)close(journal);
    (void)unsetenv("JOURNAL_STREAM");
}

/* What stderr has got since the last time. */
static const char *on_stderr(void)
{
    static char text[4096];
    ssize_t n = read(stderr_pipe[0], text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* ---- single lines ---- */

START_TEST(fields_are_sent)
{
    turn_stderr();
    log_of(&(struct log_fields){.job = "run",
               .group = "dp@tp=0",
               .bucket = "layers.4",
               .weight = "layers.4.wq",
               .host = "b",
               .rank = LOG_RANK(0),
               .pid = 4711},
        LOG_LEVEL_WARNING, "rank %d waits", 0);
    (void)receive();
    ck_assert_str_eq(entry,
        "\nMESSAGE=rank 0 waits\nPRIORITY=4\nSYSLOG_IDENTIFIER=f8gatherd\nJOB=run\nGROUP=dp@tp=0\n"
        "BUCKET=layers.4\nWEIGHT=layers.4.wq\nHOST=b\nRANK=0\nPID=4711\n");
    log_error("plain");
    (void)receive();
    ck_assert_str_eq(entry, "\nMESSAGE=plain\nPRIORITY=3\nSYSLOG_IDENTIFIER=f8gatherd\n");
    ck_assert_str_eq(on_stderr(), "");
}
END_TEST

/* A newline would begin a field of the peer's choice. */
START_TEST(peers_cannot_forge_fields)
{
    char name[3000];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    turn_stderr();
    log_of(&(struct log_fields){.job = "a\nPRIORITY=0", .group = name, .weight = name, .pid = 1},
        LOG_LEVEL_INFO, "b\n_UID=0");
    (void)receive();
    expect("MESSAGE=b?_UID=0");
    expect("JOB=a?PRIORITY=0");
    expect("PRIORITY=6");
    expect("PID=1"); /* after what was too long */
    ck_assert(!has("PRIORITY=0") && !has("_UID=0"));
}
END_TEST

START_TEST(journal_that_is_full_stops_nobody)
{
    turn_stderr();
    for (int i = 0; i < 2000; i++)
        log_info("line %d", i);
    char last[64] = "";
    struct pollfd more = {.fd = journal, .events = POLLIN};
    while (poll(&more, 1, 0) == 1)
        (void)snprintf(last, sizeof(last), "%.40s", receive());
    ck_assert_ptr_null(strstr(last, "line 1999"));
    log_info("read again");
    ck_assert_ptr_nonnull(strstr(receive(), " lines are missing here: nobody read them\n"));
    expect("PRIORITY=4");
    (void)receive();
    expect("MESSAGE=read again");
    ck_assert_str_eq(on_stderr(), "");
}
END_TEST

START_TEST(stderr_does_without_journald)
{
    turn_stderr();
    ck_assert_int_eq(unlink(PRIVATE_RUN_JOURNAL), 0);
    log_info("here");
    ck_assert_str_eq(on_stderr(), "<6>here\n");
    (void)close(journal);
    journal = private_run_journal(); /* it is started again */
    log_info("there");
    (void)receive();
    expect("MESSAGE=there");
    ck_assert_int_eq(setenv("JOURNAL_STREAM", "1:2", 1), 0); /* of another program */
    log_info("elsewhere");
    ck_assert_str_eq(on_stderr(), "f8gatherd: info: elsewhere\n");
}
END_TEST

/* ---- a daemon ---- */

/* In a child: becomes a daemon whose standard error is the pipe. */
static int run_daemon(void *argument)
{
    const struct test_daemon *daemon = argument;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(stderr_pipe[1], STDERR_FILENO) < 0)
        return EXIT_FAILURE;
    (void)execl(test_daemon_program(), "f8gatherd", "--socket", daemon->socket, "--cuda", "off",
        "--log-level", "debug", (char *)NULL);
    return 127;
}

static void start_daemon(struct test_daemon *daemon)
{
    *daemon = (struct test_daemon){0};
    (void)strcpy(daemon->directory, "/tmp/f8test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(daemon->directory));
    (void)snprintf(daemon->socket, sizeof(daemon->socket), "%s/s", daemon->directory);
    (void)snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->directory);
    daemon->pid = test_fork(run_daemon, daemon);
    await(" listens at ");
}

/* Connects, joins, and is killed where the other has asked for the gather. */
static int be_killed(void *argument)
{
    struct rank rank;
    rank_connect(&rank, ((const struct test_daemon *)argument)->socket);
    rank_join(&rank, 1, 2);
    rank_register(&rank);
    (void)rank_seal(&rank);
    (void)raise(SIGKILL);
    return EXIT_SUCCESS;
}

START_TEST(death_of_a_rank_is_found_by_its_fields)
{
    struct test_daemon daemon;
    struct rank rank;
    char field[64];
    start_daemon(&daemon);
    pid_t pid = test_fork(be_killed, &daemon);
    rank_connect(&rank, daemon.socket);
    rank_join(&rank, 0, 2);
    rank_register(&rank);
    ck_assert_int_eq(rank_seal(&rank), F8_OK);
    ck_assert_int_eq(test_wait(pid), -SIGKILL);
    await(" died; group dp is broken");
    (void)snprintf(field, sizeof(field), "PID=%d", (int)pid);
    expect(field);
    expect("JOB=run");
    expect("GROUP=dp");
    expect("RANK=1");
    expect("PRIORITY=4");
    rank_close(&rank);
    await(" of job run disconnected");
    expect("PRIORITY=7");
    test_daemon_stop(&daemon);
}
END_TEST

static int gather_stale(struct rank *rank)
{
    int status = f8_changed(rank->group, 0, RANK_WEIGHTS);
    return status == F8_OK ? rank_gather(rank, LAYER_0, F8_DEFAULT_DEADLINE) : status;
}

static int ask_other(struct rank *rank)
{
    return rank_gather(rank, rank->number == 0 ? LAYER_1 : LAYER_2, F8_DEFAULT_DEADLINE);
}

START_TEST(weights_and_buckets_are_fields)
{
    struct test_daemon daemon;
    struct rank ranks[2];
    struct f8_weight_desc weights[RANK_WEIGHTS];
    char field[64];
    start_daemon(&daemon);
    ranks_start(ranks, 2, daemon.socket);
    ranks_must(ranks, 2, rank_step);
    ranks_must(ranks, 2, gather_stale);
    await("was gathered with a scale from before its values changed");
    rank_weights(&ranks[0], weights);
    (void)snprintf(field, sizeof(field), "WEIGHT=%s", weights[LAYER_0 * BUCKET_WEIGHTS].name);
    expect(field);
    expect("JOB=run");
    ranks_all(ranks, 2, ask_other);
    await(" asked for gather of ");
    ck_assert(has("RANK=0") || has("RANK=1"));
    ck_assert_ptr_nonnull(strstr(entry, "\nBUCKET="));
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("journal");
    if (!private_run_enter()) {
        (void)printf("skipped: this user may not mount a /run of its own (root may)\n");
        return 77;
    }
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, fields_are_sent);
    tcase_add_test(tcase, peers_cannot_forge_fields);
    tcase_add_test(tcase, journal_that_is_full_stops_nobody);
    tcase_add_test(tcase, stderr_does_without_journald);
    tcase_add_test(tcase, death_of_a_rank_is_found_by_its_fields);
    tcase_add_test(tcase, weights_and_buckets_are_fields);
    return run_suite("journal", tcase);
}
