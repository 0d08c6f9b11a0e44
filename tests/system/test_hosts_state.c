/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaling states of groups over several hosts: they continue over breaks, restarts of a rank, of
 * the trainers and of a host, bit for bit as a run that nothing befell; and states that hosts have
 * stored and that do not go together are refused by the names of the hosts. Ranks 0 and 1 are on
 * host0, ranks 2 and 3 on host1.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/host_ranks.h"
#include "lib/suite.h"

#define WORLD 4

static struct test_hosts hosts;
static struct host_ranks ranks, alone;

static void start(void)
{
    test_hosts_start(&hosts, 2, NULL);
    host_ranks_init(&ranks, &host_plan_delayed, &hosts, 2);
}

static void stop(void)
{
    host_ranks_end(&ranks);
    test_hosts_stop(&hosts);
}

static void steps(struct host_ranks *what, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        host_ranks_must(what, 0, WORLD, host_rank_step);
}

/* That the ranks gathered what they would have in one run on one host. */
static void same_as_undisturbed(uint32_t count)
{
    struct host_plan undisturbed = host_plan_delayed;
    undisturbed.group = "alone";
    host_ranks_init(&alone, &undisturbed, &hosts, 1);
    host_ranks_start(&alone);
    steps(&alone, count);
    host_ranks_same(&ranks, &alone);
    host_ranks_end(&alone);
}

static void continue_from_now_on(void)
{
    ranks.plan.seal.state = F8_STATE_CONTINUE;
    ranks.plan.seal.syncs = F8_ANY_SYNCS;
}

static uint64_t syncs_of(uint32_t rank)
{
    uint64_t syncs;
    ck_assert_int_eq(f8_syncs(ranks.ranks[rank].group, &syncs), F8_OK);
    return syncs;
}

static void close_all(void)
{
    host_ranks_must(&ranks, 0, WORLD, host_rank_close);
}

/* All trainers end and come again. */
static void restart_all(void)
{
    close_all();
    host_ranks_new_id(&ranks);
    host_ranks_start(&ranks);
}

START_TEST(trainers_continue)
{
    host_ranks_start(&ranks);
    steps(&ranks, 3);
    continue_from_now_on();
    restart_all();
    for (uint32_t r = 0; r < WORLD; r++)
        ck_assert_uint_eq(syncs_of(r), 3);
    steps(&ranks, 3);
    same_as_undisturbed(6);
}
END_TEST

START_TEST(trainers_import_what_one_rank_exported)
{
    void *state;
    size_t size;
    host_ranks_start(&ranks);
    steps(&ranks, 3);
    ck_assert_int_eq(f8_export(ranks.ranks[2].group, &state, &size), F8_OK);
    ranks.plan.keep = false;
    steps(&ranks, 2); /* lost */
    ranks.plan.keep = true;
    ranks.plan.seal.state = F8_STATE_IMPORT;
    ranks.plan.seal.import = state;
    ranks.plan.seal.import_size = size;
    for (uint32_t r = 0; r < WORLD; r++)
        ranks.ranks[r].step = 3;
    restart_all();
    steps(&ranks, 3);
    same_as_undisturbed(6);
    free(state);
}
END_TEST

/* ---- what hosts have stored ---- */

/* What host1 has stored: kept aside while its daemon does not run, and put back. */
static void host1_states(const char *command)
{
    char line[512];
    const struct test_daemon *daemon = &hosts.daemons[1];
    (void)snprintf(line, sizeof(line), command, daemon->socket, daemon->directory);
    ck_assert_msg(system(line) == 0, "%s", line); /* NOLINT: paths of ours */
}

/* The states of host0 and host1 are so many syncs apart, and no rank is there. */
static void make_apart(uint32_t syncs)
{
    host_ranks_start(&ranks);
    steps(&ranks, 3);
    continue_from_now_on();
    close_all();
    test_daemon_end(&hosts.daemons[1]);
    host1_states("cp -a %s.state %s/aside");
    test_hosts_restart(&hosts, 1);
    host_ranks_new_id(&ranks);
    host_ranks_start(&ranks);
    steps(&ranks, syncs);
    close_all();
    test_daemon_end(&hosts.daemons[1]);
    host1_states("rm -r %1$s.state && mv %2$s/aside %1$s.state");
    test_hosts_restart(&hosts, 1);
    host_ranks_new_id(&ranks);
}

/* It was stopped before it had stored the last sync, of which others have told their ranks. */
START_TEST(a_host_that_is_one_sync_behind_follows)
{
    make_apart(1);
    host_ranks_start(&ranks);
    for (uint32_t r = 0; r < WORLD; r++)
        ck_assert_uint_eq(syncs_of(r), 4);
    steps(&ranks, 3);
    same_as_undisturbed(7);
}
END_TEST

START_TEST(a_host_that_is_two_syncs_behind_is_refused)
{
    make_apart(2);
    host_ranks_must(&ranks, 0, WORLD, host_rank_join);
    host_ranks_all(&ranks, 0, WORLD, host_rank_seal);
    host_ranks_failed(&ranks, 0, WORLD, F8_EMISMATCH,
        "the stored states of group dp are apart: host host1 has seen 3 syncs where host host0 has "
        "seen 5");
}
END_TEST

/* ---- ranks and hosts that are replaced ---- */

/* Until the break has come here. */
static int gather_until_broken(struct host_rank *rank)
{
    int status = F8_OK;
    while (status == F8_OK)
        status = host_rank_gather(rank);
    return status;
}

static void await_break(uint32_t first, uint32_t end, const char *text)
{
    ranks.plan.keep = false;
    host_ranks_all(&ranks, first, end, gather_until_broken);
    ranks.plan.keep = true;
    for (uint32_t r = first; r < end; r++)
        host_ranks_failed(&ranks, r, r + 1, ranks.ranks[r].status, text);
}

/* The helpers stay, with their connections. */
START_TEST(a_rank_is_started_again)
{
    pid_t helpers[2];
    char text[64];
    host_ranks_start(&ranks);
    steps(&ranks, 3);
    for (uint32_t h = 0; h < 2; h++)
        helpers[h] = test_hosts_engine(&hosts, h, "dp").pid;
    continue_from_now_on();
    for (uint32_t r = 0; r < WORLD; r++) {
        host_ranks_must(&ranks, r, r + 1, host_rank_close);
        (void)snprintf(text, sizeof(text), "rank %u (pid ", r);
        await_break(0, r, text);
        await_break(r + 1, WORLD, text);
        host_ranks_must(&ranks, 0, r, host_rank_rejoin);
        host_ranks_must(&ranks, r, r + 1, host_rank_join);
        host_ranks_must(&ranks, r + 1, WORLD, host_rank_rejoin);
        host_ranks_must(&ranks, 0, WORLD, host_rank_seal);
        steps(&ranks, 2);
    }
    for (uint32_t h = 0; h < 2; h++)
        ck_assert_int_eq(test_hosts_engine(&hosts, h, "dp").pid, helpers[h]);
    same_as_undisturbed(3 + 2 * WORLD);
}
END_TEST

/* host1 is replaced by one that knows nothing; or host0, whose daemon is the root. */
/* The run ends, and begins anew with another id: as a trainer that was started again. */
static void run_again(void)
{
    host_ranks_end(&ranks);
    host_ranks_init(&ranks, &host_plan_delayed, &hosts, 2);
    host_ranks_start(&ranks);
}

/* Its engines outlive a run, once they have let go of its arena: then the next takes them over. */
START_TEST(a_run_that_comes_back_finds_its_engines)
{
    bool found = false;
    host_ranks_start(&ranks);
    uint64_t seal = test_hosts_engine(&hosts, 0, "dp").sent;
    steps(&ranks, 1);
    for (int tries = 0; tries < 50 && !found; tries++) {
        pid_t helpers[2];
        found = true;
        for (uint32_t h = 0; h < 2; h++)
            helpers[h] = test_hosts_engine(&hosts, h, "dp").pid;
        run_again();
        for (uint32_t h = 0; h < 2; h++)
            found = found && test_hosts_engine(&hosts, h, "dp").pid == helpers[h];
    }
    ck_assert(found);
    /* What was sent for the run before is not this one's. */
    ck_assert_uint_eq(test_hosts_engine(&hosts, 0, "dp").sent, seal);
    steps(&ranks, 3);
    same_as_undisturbed(3);
}
END_TEST

START_TEST(a_host_is_replaced)
{
    uint32_t lost = _i == 0 ? 1 : 0, first = 2 * lost, other = 2 - first;
    host_ranks_start(&ranks);
    steps(&ranks, 3);
    continue_from_now_on();
    test_daemon_kill(&hosts.daemons[lost]);
    await_break(other, other + 2, lost == 1 ? "host host1 (" : "host0");
    host_ranks_must(&ranks, first, first + 2, host_rank_close);
    test_daemon_drop_states(&hosts.daemons[lost]);
    test_hosts_restart(&hosts, lost);
    host_ranks_new_id(&ranks);
    host_ranks_must(&ranks, other, other + 2, host_rank_rejoin_hosts);
    host_ranks_must(&ranks, first, first + 2, host_rank_join);
    host_ranks_must(&ranks, 0, WORLD, host_rank_seal);
    for (uint32_t r = 0; r < WORLD; r++)
        ck_assert_uint_eq(syncs_of(r), 3);
    steps(&ranks, 3);
    same_as_undisturbed(6);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("hosts_state");
    TCase *cases = tcase_create("hosts_state");
    tcase_add_checked_fixture(cases, start, stop);
    tcase_add_test(cases, trainers_continue);
    tcase_add_test(cases, trainers_import_what_one_rank_exported);
    tcase_add_test(cases, a_host_that_is_one_sync_behind_follows);
    tcase_add_test(cases, a_host_that_is_two_syncs_behind_is_refused);
    tcase_add_test(cases, a_rank_is_started_again);
    tcase_add_test(cases, a_run_that_comes_back_finds_its_engines);
    tcase_add_loop_test(cases, a_host_is_replaced, 0, 2);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(void)
{
    return test_hosts_possible() ? run_cases(make_suite()) : TEST_HOSTS_SKIP;
}
