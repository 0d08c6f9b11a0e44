/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl top against a real daemon: frames in a pipe as text and as JSON while f8bench runs; and on
 * a terminal, which is a pty here: what is drawn and how wide, another size, keys, q and signals,
 * after which the terminal is as it was, and a daemon that goes and comes back.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include "lib/patience.h"
#include "lib/program.h"
#include "lib/ranks.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define FRAME "\033[H"
#define LEAVE "\033[?1049l"

static struct test_daemon server;
static struct rank ranks[2];

/* A terminal with f8ctl top on it. */
struct terminal {
    pid_t pid;
    int master, slave; /* owned; the slave is kept open, so that it can be looked at to the end */
    struct termios before;
    size_t size;
    char shown[1 << 20]; /* all that was written, NUL-terminated */
};

static struct terminal terminal;

static void setup(void)
{
    test_daemon_start(&server, (const char *[]){"--cuda", "off", NULL});
    ranks_start(ranks, 2, server.socket);
}

static void teardown(void)
{
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_stop(&server);
}

static void set_size(unsigned short lines, unsigned short columns)
{
    struct winsize size = {.ws_row = lines, .ws_col = columns};
    ck_assert_int_eq(ioctl(terminal.master, TIOCSWINSZ, &size), 0);
}

static void start(const char *interval, bool colours)
{
    struct winsize size = {.ws_row = 30, .ws_col = 200};
    terminal.size = 0;
    terminal.shown[0] = '\0';
    ck_assert_int_eq(openpty(&terminal.master, &terminal.slave, NULL, NULL, &size), 0);
    (void)fcntl(terminal.master, F_SETFD, FD_CLOEXEC);
    ck_assert_int_eq(tcgetattr(terminal.slave, &terminal.before), 0);
    terminal.pid = fork();
    ck_assert_int_ge(terminal.pid, 0);
    if (terminal.pid > 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)login_tty(terminal.slave);
    (void)setenv("TERM", "xterm", 1);
    (void)(colours ? unsetenv("NO_COLOR") : setenv("NO_COLOR", "1", 1));
    (void)execl(F8_TEST_CTL, "f8ctl", "--socket", server.socket, "top", "--interval", interval,
        (char *)NULL);
    _exit(127);
}

/* What has come, after at most so long. */
static void take(int milliseconds)
{
    struct pollfd output = {.fd = terminal.master, .events = POLLIN};
    if (poll(&output, 1, milliseconds) <= 0)
        return;
    if (terminal.size > sizeof(terminal.shown) / 2) { /* the newer half is enough */
        size_t half = terminal.size / 2;
        memmove(terminal.shown, terminal.shown + half, terminal.size - half + 1);
        terminal.size -= half;
    }
    ssize_t n = read(terminal.master, terminal.shown + terminal.size,
        sizeof(terminal.shown) - terminal.size - 1);
    ck_assert_int_gt(n, 0);
    terminal.size += (size_t)n;
    terminal.shown[terminal.size] = '\0';
}

/* Waits, bounded, for a text in what is written from now on; all until its end is forgotten. */
static void await(const char *text)
{
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        char *found = strstr(terminal.shown, text);
        if (found) {
            size_t end = (size_t)(found - terminal.shown) + strlen(text);
            memmove(terminal.shown, terminal.shown + end, terminal.size - end + 1);
            terminal.size -= end;
            return;
        }
        take(10);
    }
    ck_abort_msg("never shown: %s: %.2000s", text, terminal.shown);
}

static void forget(void)
{
    terminal.size = 0;
    terminal.shown[0] = '\0';
}

/* The next whole frame, without its sequences; good until the next call. */
static const char *frame(void)
{
    static char text[1 << 16];
    char *to = text;
    await(FRAME);
    while (!strstr(terminal.shown, FRAME))
        take(PATIENCE_MS);
    const char *end = strstr(terminal.shown, FRAME);
    for (const char *from = terminal.shown; from < end;) {
        if (*from == '\033') {
            while (!strchr("HJKmhl", *from))
                from++;
            from++;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
    return text;
}

/* How many lines a frame has, and that none is wider than the terminal. The tty adds returns. */
static unsigned count_lines(const char *text, size_t columns)
{
    unsigned lines = 1;
    for (;; lines++) {
        size_t size = strcspn(text, "\r");
        ck_assert_msg(size <= columns, "%zu columns: %.*s", size, (int)size, text);
        text += size + strspn(text + size, "\r");
        if (*text == '\0')
            return lines;
        ck_assert_msg(*text == '\n', "a line feed is missing");
        text++;
    }
}

static void type(const char *key)
{
    ck_assert_int_eq(write(terminal.master, key, 1), 1);
}

static bool same_terminal(void)
{
    struct termios now;
    ck_assert_int_eq(tcgetattr(terminal.slave, &now), 0);
    return now.c_lflag == terminal.before.c_lflag && now.c_iflag == terminal.before.c_iflag &&
           now.c_oflag == terminal.before.c_oflag;
}

/* It ends with that status, or by the signal, and leaves no trace on the terminal. */
static void expect_end(int status)
{
    await(LEAVE);
    ck_assert_int_eq(test_wait(terminal.pid), status);
    ck_assert(same_terminal());
    (void)close(terminal.master);
    (void)close(terminal.slave);
}

START_TEST(draws_and_quits)
{
    start("0.1", true);
    await("\033[?1049h");
    const char *text = frame();
    ck_assert(!same_terminal()); /* keys come at once, and are not echoed */
    ck_assert_ptr_nonnull(strstr(text, "q quit"));
    ck_assert_ptr_nonnull(strstr(text, "f8gatherd " F8_VERSION " (pid "));
    ck_assert_ptr_nonnull(strstr(text, "layers.1.weight"));
    ck_assert_ptr_nonnull(strstr(text, "weights by SATURATED/S, the highest first"));
    ck_assert_uint_le(count_lines(text, 200), 30);
    await("\033[1m"); /* headings are bold */
    type("q");
    expect_end(0);
}
END_TEST

START_TEST(fits_any_size)
{
    static const unsigned short sizes[][2] = {{30, 60}, {12, 40}, {5, 20}, {1, 1}, {50, 250}};
    start("0.1", false);
    (void)frame();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        set_size(sizes[i][0], sizes[i][1]);
        forget();
        (void)frame(); /* this one may have begun before */
        (void)frame();
        ck_assert_uint_le(count_lines(frame(), sizes[i][1]), sizes[i][0]);
    }
    ck_assert_ptr_nonnull(strstr(frame(), "layers.2.weight"));
    ck_assert_ptr_null(strstr(terminal.shown, "\033[1m"));
    type("q");
    expect_end(0);
}
END_TEST

/* What one looks for is before the edge of a narrow terminal. */
START_TEST(narrow_has_what_matters)
{
    start("0.1", true);
    set_size(24, 80);
    forget();
    (void)frame(); /* this one may have begun before */
    (void)frame();
    const char *text = frame();
    static const char *const there[] = {"WAITS", "layers.1.weight", "SATURATED/S", "STALE/S"};
    for (size_t i = 0; i < sizeof(there) / sizeof(there[0]); i++)
        ck_assert_msg(strstr(text, there[i]) != NULL, "%s is cut off: %s", there[i], text);
    type("q");
    expect_end(0);
}
END_TEST

/* Redrawn at once, though the next look is an hour off. */
START_TEST(resizes_at_once)
{
    start("3600", true);
    await("NAN");
    set_size(20, 50);
    await(FRAME);
    set_size(22, 70);
    await(FRAME);
    type("q");
    expect_end(0);
}
END_TEST

START_TEST(keys_sort)
{
    start("3600", true);
    await("weights by SATURATED/S");
    type("n");
    await("weights by NAME");
    type(">");
    await("weights by SATURATED/S\033"); /* still from the lowest on */
    type("<");
    type("<");
    await("weights by JOB"); /* which is the last */
    type("t");
    await("weights by STALE/S, the highest first");
    type("r");
    await("weights by STALE/S\033");
    type("g");
    await("weights by GATHERS/S, the highest first");
    type("a");
    await("weights by AMAX, the highest first");
    type("x"); /* means nothing */
    type("s");
    await("weights by SATURATED/S");
    type("q");
    expect_end(0);
}
END_TEST

static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

START_TEST(signals_restore_the_terminal)
{
    start("3600", true);
    await("weights by");
    ck_assert(!same_terminal());
    ck_assert_int_eq(kill(terminal.pid, ends[_i]), 0);
    expect_end(-ends[_i]);
}
END_TEST

/* Also while it waits for a daemon that does not answer. */
START_TEST(a_signal_while_the_daemon_hangs)
{
    start("0.1", true);
    await("weights by");
    ck_assert_int_eq(kill(server.pid, SIGSTOP), 0);
    await("did not answer within 2000 ms");
    ck_assert_int_eq(kill(terminal.pid, SIGTERM), 0);
    expect_end(-SIGTERM);
    ck_assert_int_eq(kill(server.pid, SIGCONT), 0);
}
END_TEST

START_TEST(ctrl_c_and_ctrl_z)
{
    start("3600", true);
    await("weights by");
    type("\032"); /* it stops only after it has given the terminal back */
    await(LEAVE);
    while (!same_terminal())
        (void)poll(NULL, 0, 1);
    ck_assert_int_eq(kill(terminal.pid, SIGCONT), 0);
    await("\033[?1049h");
    await("weights by");
    type("\003");
    expect_end(-SIGINT);
}
END_TEST

/* Counters begin anew with the daemon, so there are no rates in its first frame. */
START_TEST(the_daemon_goes_and_comes_back)
{
    start("0.1", true);
    await("weights by");
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    test_daemon_kill(&server);
    await(" is lost");
    test_daemon_restart(&server, NULL);
    await("f8gatherd was restarted: pid ");
    await("weights by");
    type("q");
    expect_end(0);
}
END_TEST

/* ---- no terminal ---- */

START_TEST(frames_as_text)
{
    struct program ctl;
    program_start(&ctl, F8_TEST_CTL, NULL,
        "--socket %s top --count 2 --interval 0.1 --sort name --top 3", server.socket);
    program_expect(&ctl, 0);
    const char *second = strstr(ctl.out + 1, "f8gatherd ");
    ck_assert_ptr_null(strchr(ctl.out, '\033'));
    ck_assert_int_eq(strncmp(ctl.out, "f8gatherd ", 10), 0);
    ck_assert_ptr_nonnull(second);
    ck_assert_ptr_nonnull(strstr(second, "weights by NAME\n"));
    ck_assert_ptr_nonnull(strstr(second, "embed.norm"));
    ck_assert_ptr_nonnull(strstr(second, "and 5 more"));
    ck_assert_ptr_null(strstr(second, "layers.1.weight"));
    ck_assert_str_eq(ctl.err, "");
    program_done(&ctl);
}
END_TEST

START_TEST(waiting_rounds)
{
    struct program ctl;
    char waits[128];
    ck_assert_int_eq(f8_gather(ranks[0].group, EMBED, F8_DEFAULT_DEADLINE, ranks[0].stream), F8_OK);
    rank_settle(&ranks[0]);
    program_start(
        &ctl, F8_TEST_CTL, NULL, "--socket %s top --count 1 --interval 0.1", server.socket);
    program_expect(&ctl, 0);
    ck_assert_ptr_nonnull(strstr(ctl.out, "1 waiting round"));
    (void)snprintf(waits, sizeof(waits), "s, for rank 1 (pid %d)  ", (int)getpid());
    ck_assert_ptr_nonnull(strstr(ctl.out, "gather embed, "));
    ck_assert_ptr_nonnull(strstr(ctl.out, waits));
    program_done(&ctl);
}
END_TEST

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "%s is no number", key);
    return json_number_value(value);
}

START_TEST(rates_of_a_run)
{
    struct program bench, ctl;
    pid_t pids[2];
    program_start(&bench, F8_TEST_BENCH, NULL,
        "run --model tiny --ranks 2 --steps 1000000 --check 100000 --socket %s", server.socket);
    (void)program_await_gathers(server.socket, 2, pids);
    program_start(&ctl, F8_TEST_CTL, NULL,
        "--socket %s --job f8bench-* --json top --count 3 --interval 0.5 --top 4", server.socket);
    program_expect(&ctl, 0);
    const char *line = ctl.out;
    for (int i = 0; i < 3; i++) {
        json_t *object = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        const json_t *top = json_object_get(object, "top"), *status, *group, *weights;
        ck_assert_str_eq(json_string_value(json_object_get(object, "schema")), "f8ctl/1");
        status = json_object_get(top, "status");
        group = json_object_get(top, "groups");
        weights = json_object_get(top, "weights");
        ck_assert(json_is_true(json_object_get(top, "connected")));
        ck_assert_int_eq(json_integer_value(json_object_get(status, "pid")), server.pid);
        ck_assert_uint_eq(json_array_size(group), 1); /* of that job only */
        ck_assert_uint_eq(json_array_size(weights), 4);
        group = json_array_get(group, 0);
        ck_assert(real(group, "gathers_per_second") > 0);
        ck_assert(real(group, "bytes_per_second") > real(group, "gathers_per_second"));
        ck_assert(real(top, "gathers_per_second") == real(group, "gathers_per_second"));
        ck_assert(json_object_get(json_array_get(weights, 3), "saturated_per_second"));
        json_decref(object);
        line += strcspn(line, "\n") + 1;
    }
    ck_assert_int_eq(*line, '\0');
    program_done(&ctl);
    ck_assert_int_eq(kill(bench.pid, SIGINT), 0);
    program_expect(&bench, 130);
    program_done(&bench);
}
END_TEST

static const struct {
    const char *arguments;
    int status;
    const char *says;
} refused[] = {
    {"top", 2, "standard output is no terminal: give --count N or --json"},
    {"top --count 1 --interval 0.05", 2, "--interval 0.05: must be seconds, from 0.1 to 3600"},
    {"top --count 1 --interval nan", 2, "must be seconds"},
    {"top --count 1 --sort size", 2, "top has no column size"},
    {"top --count 1 --events drain", 2, "top: takes no --events"},
    {"--socket /nowhere/s top --count 1", 3, "/nowhere/s"},
};

START_TEST(refusals)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct program ctl;
        program_start(
            &ctl, F8_TEST_CTL, NULL, "--socket %s %s", server.socket, refused[i].arguments);
        program_expect(&ctl, refused[i].status);
        ck_assert_msg(strstr(ctl.err, refused[i].says), "%s: %s", refused[i].arguments, ctl.err);
        program_done(&ctl);
    }
}
END_TEST

/* Frames go on without a daemon; the exit status says how it was at the end. */
START_TEST(frames_without_a_daemon)
{
    struct program ctl;
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
    program_start(
        &ctl, F8_TEST_CTL, NULL, "--socket %s --json top --count 20 --interval 0.2", server.socket);
    for (off_t size = 0; size == 0; (void)poll(NULL, 0, 1))
        size = lseek(ctl.out_fd, 0, SEEK_END);
    test_daemon_kill(&server);
    program_expect(&ctl, 3);
    ck_assert_ptr_nonnull(strstr(ctl.out, "\"connected\":true"));
    ck_assert_ptr_nonnull(strstr(ctl.out, "\"connected\":false"));
    program_done(&ctl);
    test_daemon_restart(&server, NULL);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("top");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 2 * PATIENCE_S);
    tcase_add_test(tcase, draws_and_quits);
    tcase_add_test(tcase, fits_any_size);
    tcase_add_test(tcase, narrow_has_what_matters);
    tcase_add_test(tcase, resizes_at_once);
    tcase_add_test(tcase, keys_sort);
    tcase_add_loop_test(
        tcase, signals_restore_the_terminal, 0, (int)(sizeof(ends) / sizeof(ends[0])));
    tcase_add_test(tcase, a_signal_while_the_daemon_hangs);
    tcase_add_test(tcase, ctrl_c_and_ctrl_z);
    tcase_add_test(tcase, the_daemon_goes_and_comes_back);
    tcase_add_test(tcase, frames_as_text);
    tcase_add_test(tcase, waiting_rounds);
    tcase_add_test(tcase, rates_of_a_run);
    tcase_add_test(tcase, refusals);
    tcase_add_test(tcase, frames_without_a_daemon);
    return run_suite("top", tcase);
}
