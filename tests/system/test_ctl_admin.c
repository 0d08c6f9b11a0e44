/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl as an operator changes things with it, against a real daemon with real ranks: amaxes that
 * are reset and stay so over a kill, jobs that are evicted or are not dead, a drain that is waited
 * for, called off or turned into a signal's, what is logged; and that nothing is destroyed unasked.
 */
#include <check.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/program.h"
#include "lib/ranks.h"
#include "lib/raw_client.h"
#include "lib/state_rank.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define LONG "1000" /* seconds of a drain that no test waits for */

static struct test_daemon server;

/* f8ctl with these words after --socket, which must end so, with this in what it prints. */
static void ctl(int status, const char *part, const char *words)
{
    struct program program;
    program_start(&program, F8_TEST_CTL, NULL, "--socket %s %s", server.socket, words);
    program_expect(&program, status);
    ck_assert_msg(strstr(program.out, part) || strstr(program.err, part),
        "%s: \"%s\" is not in:\n%s%s", words, part, program.out, program.err);
    program_done(&program);
}

/* The integer under the key of what a command prints with --json. */
static long ask_number(const char *words, const char *key, const char *field)
{
    json_t *value = program_ask_ctl(server.socket, words, key);
    ck_assert_msg(json_is_integer(json_object_get(value, field)), "%s: no %s", words, field);
    long number = (long)json_integer_value(json_object_get(value, field));
    json_decref(value);
    return number;
}

static void stop(void)
{
    test_daemon_end(&server);
    test_daemon_drop_states(&server);
    (void)unlink(server.log);
    ck_assert_int_eq(rmdir(server.directory), 0);
}

/* ---- reset-amax ---- */

/* Whether the weight is initialised, as f8ctl shows it. */
static bool initialised(void)
{
    json_t *rows = program_ask_ctl(server.socket, "amax", "amax");
    const json_t *value = json_object_get(json_array_get(rows, 0), "initialised");
    ck_assert(json_is_boolean(value));
    bool is = json_is_true(value);
    json_decref(rows);
    return is;
}

START_TEST(reset_outlives_the_daemon)
{
    struct state_rank rank;
    test_daemon_start(&server, NULL);
    state_rank_join(&server, &rank, &(struct state_setup){.history = 4});
    state_rank_well(state_rank_seal(&rank, F8_STATE_FRESH, 0));
    state_rank_step(&rank, 2);
    ck_assert(initialised());
    ctl(2, "forgets the amax history of the delayed weights layers.* of all jobs: give --yes",
        "reset-amax layers.*");
    ck_assert(initialised());
    ctl(1, "no delayed weight is called wq (f8ctl amax", "reset-amax wq --yes");
    ctl(1, "no delayed weight is called layers.* in a job like no*",
        "reset-amax layers.* --job no* --yes");
    ck_assert_int_eq(ask_number("reset-amax layers.* --job x --yes", "reset_amax", "weights"), 1);
    ck_assert(!initialised());
    test_daemon_await_log(&server,
        "job x, group dp: the amax history of 1 weights is forgotten, as an operator (uid ");
    test_daemon_kill(&server);
    state_rank_close(&rank);
    test_daemon_restart(&server, NULL);
    state_rank_join(&server, &rank, &(struct state_setup){.history = 4});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 1));
    ck_assert(!initialised());
    state_rank_step(&rank, 8);
    ck_assert(initialised());
    state_rank_close(&rank);
    stop();
}
END_TEST

/* A step after the other, while amaxes are reset all the time: the ranks notice nothing. */
static int train_on(void *argument)
{
    const int *go = argument;
    struct state_rank rank;
    state_rank_join(&server, &rank, &(struct state_setup){0});
    state_rank_well(state_rank_seal(&rank, F8_STATE_FRESH, 0));
    for (struct pollfd end = {.fd = go[0], .events = POLLIN}; poll(&end, 1, 0) == 0;)
        state_rank_step(&rank, 1);
    state_rank_close(&rank);
    return EXIT_SUCCESS;
}

START_TEST(reset_in_the_midst_of_a_run)
{
    int go[2];
    pid_t pids[1];
    test_daemon_start(&server, NULL);
    ck_assert_int_eq(pipe(go), 0);
    pid_t rank = test_fork(train_on, go);
    (void)program_await_gathers(server.socket, 1, pids);
    for (int i = 0; i < 10; i++)
        ctl(0, "forgot the amax history of 1 weight in 1 group;", "reset-amax * --yes");
    ck_assert_int_eq(write(go[1], "", 1), 1);
    ck_assert_int_eq(test_wait(rank), EXIT_SUCCESS);
    stop();
}
END_TEST

#ifdef F8_HAVE_GLOO
/* A group over hosts, all of whose ranks are on this one. */
static void seal_over_hosts(struct state_rank *rank)
{
    const struct f8_connect_options options = {.socket = server.socket, .job = "x"};
    uint8_t id[F8_UNIQUE_ID_SIZE];
    struct f8_region *region;
    void *address;
    state_rank_well(f8_connect(&options, &rank->client));
    state_rank_well(f8_unique_id(rank->client, id));
    state_rank_well(f8_group_join_hosts(
        rank->client, "dp", 0, 1, &(struct f8_hosts){.id = id, .local_ranks = 1}, &rank->group));
    state_rank_well(f8_region_alloc(rank->client, 4096, &region, &address));
    const struct f8_weight_desc weight = {.name = "w",
        .ndim = 1,
        .shape = {STATE_RANK_COUNT},
        .dtype = F8_F32,
        .flavour = F8_DELAYED,
        .format = F8_E4M3FN,
        .region = region};
    state_rank_well(
        f8_register(rank->group, &weight, 1, &(struct f8_bucket_desc){.name = "b", .count = 1}, 1));
    state_rank_well(state_rank_seal(rank, F8_STATE_FRESH, 0));
}

START_TEST(groups_over_hosts_are_refused)
{
    static const char *const loopback[] = {"--socket-ifname", "=lo", NULL};
    struct state_rank rank = {0};
    test_daemon_start(&server, loopback);
    seal_over_hosts(&rank);
    ctl(1,
        "group dp of job x spans hosts, which must all forget at once: have its trainer call "
        "f8_invalidate; nothing was reset",
        "reset-amax w --yes");
    f8_close(rank.client);
    stop();
}
END_TEST

#endif

/* ---- evict ---- */

START_TEST(dead_job_is_evicted)
{
    struct state_rank rank;
    char words[64];
    test_daemon_start(&server, NULL);
    state_rank_leave(&server, NULL); /* its state lingers */
    json_t *jobs = program_ask_ctl(server.socket, "jobs", "jobs");
    const json_t *job = json_array_get(jobs, 0);
    ck_assert_uint_eq(json_array_size(jobs), 1);
    ck_assert_str_eq(json_string_value(json_object_get(job, "name")), "x");
    ck_assert_int_eq(json_integer_value(json_object_get(job, "clients")), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(job, "states")), 1);
    ck_assert_int_gt(json_integer_value(json_object_get(job, "state_bytes")), 0);
    ck_assert_int_gt(json_integer_value(json_object_get(job, "left_ms")), 0);
    ck_assert(json_is_null(json_object_get(job, "age_ms")));
    json_decref(jobs);
    ctl(0, "x", "completion evictable");
    ctl(2, "drops all that is kept of job x of uid ", "evict x");
    ctl(1, "nothing is kept of a job y", "evict y --yes");
    ctl(1, "(--uid says whose it is); evict takes a job's name, no glob", "evict x* --yes");
    ctl(1, "f8ctl groups lists the groups that there are", "export y dp -");
    ctl(1, "nothing is kept of a job x of uid 4711", "evict x --uid 4711 --yes");
    state_rank_join(&server, &rank, &(struct state_setup){0});
    json_t *names = program_ask_ctl(server.socket, "completion evictable", "completion");
    ck_assert_uint_eq(json_array_size(json_object_get(names, "evictable")), 0);
    json_decref(names);
    (void)snprintf(words, sizeof(words), "is not dead, it has 1 clients: pid %d", (int)getpid());
    ctl(1, words, "evict x --yes");
    state_rank_close(&rank);
    ck_assert_int_eq(ask_number("evict x --yes", "evict", "states"), 1);
    test_daemon_await_log(&server, "is evicted by an operator (uid ");
    state_rank_join(&server, &rank, &(struct state_setup){0});
    ck_assert_int_eq(state_rank_seal(&rank, F8_STATE_CONTINUE, 3), F8_ENOENT);
    state_rank_close(&rank);
    stop();
}
END_TEST

/* ---- drain ---- */

/* Two ranks, the first of which waits in a gather for the second. */
static void start_waiting(struct rank *ranks, const char *drain)
{
    const char *arguments[] = {"--drain", drain, "--log-level", "debug", NULL};
    test_daemon_start(&server, arguments);
    ranks_start(ranks, 2, server.socket);
    ck_assert_int_eq(
        f8_gather(ranks[0].group, LAYER_0, F8_DEFAULT_DEADLINE, ranks[0].stream), F8_OK);
    rank_settle(&ranks[0]);
}

/* The second asks too, so that what is under way ends. */
static void end_waiting(struct rank *ranks)
{
    ck_assert_int_eq(rank_gather(&ranks[1], LAYER_0, F8_DEFAULT_DEADLINE), F8_OK);
    ck_assert_int_eq(f8_post_gather(ranks[0].group, LAYER_0, F8_FOREVER, ranks[0].views[LAYER_0],
                         BUCKET_WEIGHTS, ranks[0].stream),
        F8_OK);
}

static void close_ranks(struct rank *ranks)
{
    rank_close(&ranks[0]);
    rank_close(&ranks[1]);
}

/* It has ended in good order. */
static void ended(void)
{
    ck_assert_int_eq(test_wait(server.pid), EXIT_SUCCESS);
    ck_assert_msg(access(server.socket, F_OK) < 0, "the socket was left behind");
    (void)unlink(server.log);
    ck_assert_int_eq(rmdir(server.directory), 0);
}

/* Whether a rank of another group is let in. */
static int join_late(void)
{
    struct rank late;
    rank_connect(&late, server.socket);
    int status = f8_group_join(late.client, "late", 0, 1, &late.group);
    rank_close(&late);
    return status;
}

START_TEST(drain_waits_for_what_is_under_way)
{
    struct rank ranks[2];
    struct program waits;
    start_waiting(ranks, LONG);
    ctl(2, "and all runs on this host: give --yes", "drain");
    ck_assert_int_eq(join_late(), F8_OK);
    ctl(0, "once the collectives of 1 group have ended, of group dp of job run for one",
        "drain --yes");
    ck_assert_int_eq(join_late(), F8_ECONN);
    test_daemon_await_log(&server, "told by an operator (uid ");
    test_daemon_await_log(&server, ") disconnected"); /* f8ctl has not died, it has ended */
    program_start(&waits, F8_TEST_CTL, NULL, "--socket %s drain --wait --yes", server.socket);
    test_daemon_await_log(&server, " waits for the end");
    end_waiting(ranks);
    program_expect(&waits, 0);
    ck_assert_msg(strstr(waits.out, " has ended\n"), "%s", waits.out);
    program_done(&waits);
    ended();
    close_ranks(ranks);
}
END_TEST

/* Waits, bounded, until the program, which goes on, has printed something. */
static void await_any_output(const struct program *program)
{
    char printed;
    for (int i = 0; i < PATIENCE_MS / 10; i++) {
        if (pread(program->out_fd, &printed, 1, 0) == 1)
            return;
        (void)poll(NULL, 0, 10);
    }
    ck_abort_msg("it never printed anything");
}

/* Whoever waits for the end, or watches, is told what was cut. */
START_TEST(drain_says_what_it_cuts)
{
    struct rank ranks[2];
    struct program watch;
    start_waiting(ranks, "2");
    program_start(&watch, F8_TEST_CTL, NULL,
        "--socket %s watch --since 0 --events group-sealed,round-failed", server.socket);
    await_any_output(&watch); /* it watches */
    ctl(0, "has ended, and has cut the collectives of 1 group after 2 s, of group dp of job run",
        "drain --wait --yes");
    program_expect(&watch, 3);
    ck_assert_msg(
        strstr(watch.out, "run/dp: cut: f8gatherd ends, and has waited for 2 s"), "%s", watch.out);
    program_done(&watch);
    ended();
    close_ranks(ranks);
}
END_TEST

START_TEST(idle_daemon_ends_at_once)
{
    test_daemon_start(&server, NULL);
    json_t *drain = program_ask_ctl(server.socket, "drain --wait --yes", "drain");
    ck_assert_str_eq(json_string_value(json_object_get(drain, "state")), "ended");
    json_decref(drain);
    ended();
}
END_TEST

START_TEST(drain_is_called_off)
{
    struct rank ranks[2];
    struct program waits;
    start_waiting(ranks, LONG);
    ctl(1, "there is no drain", "drain --cancel");
    ctl(2, "do not go together", "drain --cancel --wait");
    ctl(0, "once the collectives", "drain --yes");
    program_start(&waits, F8_TEST_CTL, NULL, "--socket %s drain --wait --yes", server.socket);
    test_daemon_await_log(&server, " waits for the end");
    ctl(0, "goes on", "drain --cancel");
    test_daemon_await_log(&server, "the drain is called off by an operator (uid ");
    program_expect(&waits, 1);
    ck_assert_msg(strstr(waits.err, "the drain was called off by uid "), "%s", waits.err);
    program_done(&waits);
    ctl(0, "drain-cancelled  the drain was called off by uid ",
        "watch --since 0 --events drain-cancelled --count 1");
    ck_assert_int_eq(join_late(), F8_OK);
    end_waiting(ranks);
    close_ranks(ranks);
    stop();
}
END_TEST

START_TEST(wait_has_a_limit)
{
    struct rank ranks[2];
    start_waiting(ranks, LONG);
    ctl(1, "has not ended in 200 ms; it still drains", "drain --wait --yes --timeout 0.2");
    /* What a signal has begun is the service manager's, who waits for it. */
    test_daemon_signal(&server, SIGTERM, "SIGTERM: waits at most");
    ctl(1, "only a drain by f8ctl can be called off", "drain --cancel");
    end_waiting(ranks);
    ended();
    close_ranks(ranks);
}
END_TEST

/* ---- log-level ---- */

START_TEST(level_holds_until_a_reload)
{
    struct rank rank;
    test_daemon_start(&server, NULL);
    ctl(0, "info", "log-level");
    ctl(0, "error, was info", "log-level error");
    ctl(0, "debug, was error", "log-level debug");
    test_daemon_await_log(&server, "log-level is \"debug\" now, it was \"error\"");
    rank_connect(&rank, server.socket);
    rank_close(&rank);
    test_daemon_await_log(&server, "f8gatherd: debug: ");
    ctl(2, "loud is no log level", "log-level loud");
    test_daemon_signal(&server, SIGHUP, "SIGHUP: reading the settings again");
    json_t *level = program_ask_ctl(server.socket, "log-level", "log_level");
    ck_assert_str_eq(json_string_value(json_object_get(level, "level")), "info");
    json_decref(level);
    stop();
}
END_TEST

/* ---- the question ---- */

/* f8ctl evict on a terminal where this is typed: its exit status, and what is to be seen there. */
static int type(const char *answer, char *screen, size_t size)
{
    int terminal, status;
    size_t length = 0;
    pid_t pid = forkpty(&terminal, NULL, NULL, NULL);
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)execl(F8_TEST_CTL, "f8ctl", "--socket", server.socket, "evict", "x", (char *)NULL);
        _exit(127);
    }
    ck_assert_int_eq(write(terminal, answer, strlen(answer)), (ssize_t)strlen(answer));
    for (ssize_t n; (n = read(terminal, screen + length, size - 1 - length)) > 0;)
        length += (size_t)n;
    screen[length] = '\0';
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    (void)close(terminal);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(terminals_are_asked)
{
    char screen[4096];
    test_daemon_start(&server, NULL);
    state_rank_leave(&server, NULL);
    ck_assert_int_eq(type("y\n", screen, sizeof(screen)), 1);
    ck_assert_msg(strstr(screen, "This drops all that is kept of job x of uid"), "%s", screen);
    ck_assert_msg(strstr(screen, "Type \"yes\" to go on: "), "%s", screen);
    ck_assert_msg(strstr(screen, "nothing was done"), "%s", screen);
    ck_assert_int_eq(type("\004", screen, sizeof(screen)), 1); /* end of file */
    ck_assert_msg(strstr(screen, "nothing was done"), "%s", screen);
    ck_assert_int_eq(type("yes\n", screen, sizeof(screen)), 0);
    ck_assert_msg(strstr(screen, "evicted job x"), "%s", screen);
    stop();
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("ctl_admin");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, reset_outlives_the_daemon);
    tcase_add_test(tcase, reset_in_the_midst_of_a_run);
#ifdef F8_HAVE_GLOO
    tcase_add_test(tcase, groups_over_hosts_are_refused);
#endif
    tcase_add_test(tcase, dead_job_is_evicted);
    tcase_add_test(tcase, drain_waits_for_what_is_under_way);
    tcase_add_test(tcase, drain_says_what_it_cuts);
    tcase_add_test(tcase, idle_daemon_ends_at_once);
    tcase_add_test(tcase, drain_is_called_off);
    tcase_add_test(tcase, wait_has_a_limit);
    tcase_add_test(tcase, level_holds_until_a_reload);
    tcase_add_test(tcase, terminals_are_asked);
    return run_suite("ctl_admin", tcase);
}
