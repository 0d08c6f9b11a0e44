/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data x tensor parallel meshes over several hosts: whichever of the two goes over the hosts, the
 * scales follow from the full weights, by each of the ways to make them; what happens in one group
 * happens to all that share its amaxes, on all hosts; and replicas of a sharded model, on the same
 * hosts or on others, know nothing of one another. Ranks are threads of this process, but for one
 * that dies.
 */
#include <check.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "lib/device_memory.h"
#include "lib/mesh_rank.h"
#include "lib/patience.h"
#include "lib/suite.h"
#include "lib/test_hosts.h"

#define MOST_RANKS  8
#define MOST_GROUPS (MOST_RANKS + 1)

static struct test_hosts hosts;
static struct mesh_rank ranks[MOST_RANKS];
static int outcomes[MOST_RANKS];
static bool absent[MOST_RANKS]; /* takes no part in what is called on all */
static uint8_t ids[MOST_GROUPS][F8_UNIQUE_ID_SIZE];
static struct f8_hosts gathers_over[MOST_RANKS], mesh_over[MOST_RANKS];

static void start(void)
{
    static const char *const arguments[] = {"--linger", "0", NULL};
    test_hosts_start(&hosts, 2, arguments);
}

static void stop(void)
{
    for (uint32_t r = 0; r < MOST_RANKS; r++)
        mesh_rank_close(&ranks[r]);
    test_hosts_stop(&hosts);
}

typedef int rank_call(struct mesh_rank *rank);

struct errand {
    rank_call *call;
    uint32_t rank;
};

static void *run_errand(void *argument)
{
    const struct errand *errand = argument;
    outcomes[errand->rank] = errand->call(&ranks[errand->rank]);
    return NULL;
}

/* Each rank's call on a thread of its own. */
static void on_all(uint32_t first, uint32_t end, rank_call *call)
{
    struct errand errands[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    for (uint32_t r = first; r < end; r++) {
        errands[r] = (struct errand){call, r};
        outcomes[r] = F8_OK;
        if (!absent[r])
            ck_assert_int_eq(pthread_create(&threads[r], NULL, run_errand, &errands[r]), 0);
    }
    for (uint32_t r = first; r < end; r++)
        if (!absent[r])
            ck_assert_int_eq(pthread_join(threads[r], NULL), 0);
}

static void must(uint32_t first, uint32_t end, rank_call *call)
{
    on_all(first, end, call);
    for (uint32_t r = first; r < end; r++)
        ck_assert_msg(
            outcomes[r] == F8_OK, "rank %u: %s: %s", r, f8_status_name(outcomes[r]), ranks[r].text);
}

/* Ids of so many groups, all with host0 as their root. */
static void make_ids(uint32_t count)
{
    const struct f8_connect_options options = {.socket = hosts.daemons[0].socket, .job = "ids"};
    struct f8_client *client;
    ck_assert_int_eq(f8_connect(&options, &client), F8_OK);
    for (uint32_t i = 0; i < count; i++)
        ck_assert_msg(f8_unique_id(client, ids[i]) == F8_OK, "%s", f8_error_text());
    f8_close(client);
}

static void place(uint32_t rank, const struct mesh_plan *plan, uint32_t host)
{
    ranks[rank] = (struct mesh_rank){.number = rank, .plan = *plan};
    ranks[rank].plan.socket = hosts.daemons[host].socket;
    ranks[rank].plan.job = "run";
}

static const struct {
    uint32_t dp, tp;
    bool tp_over_hosts; /* else dp is; the other one is within each host */
} shapes[] = {{2, 2, false}, {4, 2, false}, {2, 3, false}, {2, 2, true}, {3, 2, true}};

#define NUM_SHAPES 5
#define NUM_MODES  3

/* Halves of dp or tp are on either host; groups that one host has whole are its own. */
static void lay_out(uint32_t dp, uint32_t tp, bool tp_over_hosts, enum mesh_mode mode)
{
    make_ids(tp + 1);
    for (uint32_t r = 0; r < dp * tp; r++) {
        struct mesh_plan plan = {
            .dp = dp, .tp = tp, .mode = mode, .own = dp == tp, .seed = 3 + dp + 5 * tp};
        uint32_t host = tp_over_hosts ? r / dp * 2 / tp : r % dp * 2 / dp;
        gathers_over[r] = (struct f8_hosts){.id = ids[r / dp], .local_ranks = dp / 2};
        mesh_over[r] = (struct f8_hosts){.id = ids[tp], .local_ranks = dp * tp / 2};
        plan.gathers_over = tp_over_hosts ? NULL : &gathers_over[r];
        plan.mesh_over = &mesh_over[r];
        place(r, &plan, host);
    }
}

/* Until the break of another rank's leaving has come here. */
static int gather_until_broken(struct mesh_rank *rank)
{
    int status = F8_OK;
    while (status == F8_OK)
        status = mesh_rank_gather(rank);
    return status;
}

/* Rank 0 leaves, and comes back: with new ids where its host had no other rank of the group. */
static void restart_rank_0(uint32_t all, uint32_t num_ids)
{
    mesh_rank_close(&ranks[0]);
    on_all(1, all, gather_until_broken);
    if (ranks[0].plan.gathers_over && ranks[0].plan.gathers_over->local_ranks == 1)
        make_ids(num_ids);
    for (uint32_t r = 1; r < all; r++)
        ck_assert_msg(strstr(ranks[r].text, " left"), "rank %u: %s", r, ranks[r].text);
    must(0, 1, mesh_rank_join);
    must(1, all, mesh_rank_rejoin);
}

/* What moves bytes between the hosts is called what it is; only helpers tell how many. */
static void expect_engine(const char *group)
{
    struct test_engine engine = test_hosts_engine(&hosts, 0, group);
    bool on_devices = device_memory_used();
    ck_assert_str_eq(engine.name, on_devices ? "nccl" : "gloo");
    ck_assert_int_eq(engine.untold, on_devices);
    ck_assert_int_eq(engine.pid != 0, !on_devices);
    ck_assert_int_eq(engine.sent != 0, !on_devices);
    ck_assert_int_eq(engine.received != 0, !on_devices);
}

START_TEST(scales_follow_from_full_weights)
{
    uint32_t shape = (uint32_t)_i % NUM_SHAPES, all = shapes[shape].dp * shapes[shape].tp;
    lay_out(shapes[shape].dp, shapes[shape].tp, shapes[shape].tp_over_hosts,
        (enum mesh_mode)(_i / NUM_SHAPES));
    must(0, all, mesh_rank_join);
    must(0, all, mesh_rank_seal);
    must(0, all, mesh_rank_steps);
    expect_engine("mesh");
    for (uint32_t r = 0; r < all; r++)
        ranks[r].plan.seed++;
    restart_rank_0(all, shapes[shape].tp + 1);
    must(0, all, mesh_rank_seal);
    must(0, all, mesh_rank_steps);
}
END_TEST

/* ---- What goes wrong ---- */

/* On each host scales would follow from that host's ranks alone. */
START_TEST(amax_group_must_be_on_all_hosts)
{
    lay_out(2, 1, false, MESH_IN_GATHER);
    for (uint32_t r = 0; r < 2; r++)
        ranks[r].plan.alone = true;
    must(0, 2, mesh_rank_join);
    on_all(0, 2, mesh_rank_seal);
    bool told = false;
    for (uint32_t r = 0; r < 2; r++) { /* the first; maybe the other finds a broken group then */
        ck_assert_int_lt(outcomes[r], 0);
        told = told || strstr(ranks[r].text, "is in no rank of its amax group mesh, which is not "
                                             "on that host");
    }
    ck_assert_msg(told, "rank 0: %s; rank 1: %s", ranks[0].text, ranks[1].text);
}
END_TEST

static int gather_bucket(struct mesh_rank *rank, uint32_t bucket)
{
    int status = f8_gather(rank->gathers, bucket, 20000, rank->stream);
    if (status == F8_OK)
        status = f8_post_gather(rank->gathers, bucket, F8_FOREVER, NULL, 0, rank->stream);
    return mesh_rank_note(rank, status);
}

static int gather_by_group(struct mesh_rank *rank)
{
    return gather_bucket(rank, rank->number / 2);
}

static int gather_by_rank(struct mesh_rank *rank)
{
    return gather_bucket(rank, rank->number % 2);
}

/*
 * Of the two groups one gathers what the other does not, and each would wait for amaxes of its
 * bucket for ever: as groups of a host each, and as groups over both. Or the ranks of each group
 * are on two hosts and at odds themselves.
 */
static const struct {
    bool tp_over_hosts;
    rank_call *gather;
    const char *texts[3];
} orders[] = {
    {true, gather_by_group,
        {" gathers b0", "and both need amaxes over group mesh", " on host host"}},
    {false, gather_by_group, {" gathers b0", " gathers b1", "need amaxes over group mesh"}},
    {false, gather_by_rank, {" asked for gather of b0", " asked for gather of b1", "rank 1 (pid "}},
};

#define NUM_ORDERS 3

START_TEST(opposite_order)
{
    lay_out(2, 2, orders[_i].tp_over_hosts, MESH_IN_GATHER);
    must(0, 4, mesh_rank_join);
    must(0, 4, mesh_rank_seal);
    on_all(0, 4, orders[_i].gather);
    for (uint32_t r = 0; r < 4; r++) {
        ck_assert_msg(outcomes[r] == F8_EMISMATCH || outcomes[r] == F8_EBROKEN, "%s: %s",
            f8_status_name(outcomes[r]), ranks[r].text);
        for (int t = 0; t < 3; t++)
            ck_assert_msg(strstr(ranks[r].text, orders[_i].texts[t]), "%s", ranks[r].text);
    }
    must(0, 4, mesh_rank_rejoin);
    must(0, 4, mesh_rank_seal);
    must(0, 4, mesh_rank_steps);
}
END_TEST

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* How long after a death the last survivor is told, in ms, with what a busy machine takes. */
#define LIMIT_MS (1000 + PATIENCE_MS / 6)

#define VICTIM 3 /* of 2 x 2 ranks: host1's of the second gather group */

static int join_seal_steps(struct mesh_rank *rank)
{
    int status = mesh_rank_join(rank);
    if (status == F8_OK)
        status = mesh_rank_seal(rank);
    return status == F8_OK ? mesh_rank_steps(rank) : status;
}

static int victims_life(void *argument)
{
    const int *ready = argument;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = join_seal_steps(&ranks[VICTIM]);
    if (write(*ready, status == F8_OK ? "+" : "-", 1) != 1)
        return EXIT_FAILURE;
    for (;;)
        (void)pause();
}

/* Forks the victim first: this process has no threads then, and has not used CUDA. */
static pid_t start_with_victim(void)
{
    int ready[2];
    char byte = 0;
    ck_assert_int_eq(pipe(ready), 0);
    pid_t victim = test_fork(victims_life, &ready[1]);
    absent[VICTIM] = true;
    must(0, 4, join_seal_steps);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(byte, '+');
    (void)close(ready[0]);
    (void)close(ready[1]);
    return victim;
}

/* A gather on the way, of which nobody knows whether it will end. */
static int ask_gather(struct mesh_rank *rank)
{
    return mesh_rank_note(rank, f8_gather(rank->gathers, 0, 0, rank->stream));
}

static int end_gather(struct mesh_rank *rank)
{
    int status = f8_post_gather(rank->gathers, 0, F8_FOREVER, NULL, 0, rank->stream);
    if (status == F8_OK)
        status = f8_release(rank->gathers, 0, rank->stream);
    return status == F8_OK ? gather_until_broken(rank) : mesh_rank_note(rank, status);
}

static int precompute_until_broken(struct mesh_rank *rank)
{
    int status = F8_OK;
    while (status == F8_OK)
        status = mesh_rank_whole(rank);
    return status;
}

static void expect_told(const char *what)
{
    for (uint32_t r = 0; r < 4; r++)
        ck_assert_msg(absent[r] || (outcomes[r] < 0 && outcomes[r] != F8_EDEADLINE &&
                                       strstr(ranks[r].text, what)),
            "rank %u: %s: \"%s\" lacks \"%s\"", r, f8_status_name(outcomes[r]), ranks[r].text,
            what);
}

/* All of the survivors' groups break, on all hosts, and say why. */
static void expect_broken(const char *what)
{
    uint64_t began = now_ms();
    on_all(0, 4, end_gather);
    expect_told(what);
    on_all(0, 4, precompute_until_broken);
    expect_told(what);
    uint64_t took = now_ms() - began;
    ck_assert_msg(took <= LIMIT_MS, "the last rank was told after %" PRIu64 " ms", took);
}

/* Those who were absent come back, with new ids, to the others. */
static void begin_anew(void)
{
    make_ids(3);
    for (uint32_t r = 0; r < 4; r++) {
        ranks[r].plan.seed++;
        if (!absent[r])
            continue;
        absent[r] = false;
        mesh_rank_close(&ranks[r]);
        must(r, r + 1, mesh_rank_join);
        absent[r] = true;
    }
    must(0, 4, mesh_rank_rejoin);
    memset(absent, 0, sizeof(absent));
    must(0, 4, mesh_rank_seal);
    must(0, 4, mesh_rank_steps);
}

START_TEST(death_breaks_all_groups)
{
    char what[64];
    lay_out(2, 2, _i / NUM_MODES == 1, (enum mesh_mode)(_i % NUM_MODES));
    pid_t victim = start_with_victim();
    must(0, 4, ask_gather);
    ck_assert_int_eq(kill(victim, SIGKILL), 0);
    ck_assert_int_eq(test_wait(victim), -SIGKILL);
    (void)snprintf(what, sizeof(what), "(pid %d", (int)victim);
    expect_broken(what);
    begin_anew();
}
END_TEST

/* With a daemon go its ranks of all groups; groups that are not on its host share their fate. */
START_TEST(lost_host_breaks_all_groups)
{
    bool tp_over_hosts = _i / NUM_MODES == 1;
    lay_out(2, 2, tp_over_hosts, (enum mesh_mode)(_i % NUM_MODES));
    must(0, 4, join_seal_steps);
    for (uint32_t r = 0; r < 4; r++)
        absent[r] = ranks[r].plan.socket == hosts.daemons[1].socket;
    must(0, 4, ask_gather);
    test_daemon_kill(&hosts.daemons[1]);
    expect_broken("host1");
    test_hosts_restart(&hosts, 1);
    begin_anew();
}
END_TEST

/* ---- Groups that share nothing ---- */

/* Two replicas of two ranks each: either both over both hosts, or each on a host of its own. */
START_TEST(replicas_take_no_part)
{
    bool over_hosts = _i % 2 == 0;
    make_ids(4);
    for (uint32_t r = 0; r < 4; r++) {
        uint32_t replica = r / 2;
        struct mesh_plan plan = {.dp = 2,
            .tp = 1,
            .mode = (enum mesh_mode)(_i / 2),
            .seed = replica,
            .replica = replica + 1};
        gathers_over[r] = (struct f8_hosts){.id = ids[2 * replica], .local_ranks = 1};
        mesh_over[r] = (struct f8_hosts){.id = ids[2 * replica + 1], .local_ranks = 1};
        plan.gathers_over = over_hosts ? &gathers_over[r] : NULL;
        plan.mesh_over = over_hosts ? &mesh_over[r] : NULL;
        place(r, &plan, over_hosts ? r % 2 : replica);
        ranks[r].number = r % 2;
    }
    must(0, 4, mesh_rank_join);
    must(0, 2, mesh_rank_seal); /* neither waits for the other */
    must(0, 2, mesh_rank_steps);
    must(2, 4, mesh_rank_seal);
    for (uint32_t r = 0; r < 2; r++)
        ranks[r].plan.first = MESH_STEPS;
    must(0, 4, mesh_rank_steps);
    mesh_rank_close(&ranks[0]);
    for (uint32_t r = 2; r < 4; r++)
        ranks[r].plan.first = MESH_STEPS;
    must(2, 4, mesh_rank_steps);
}
END_TEST

/* Until the first host's daemon has been told of a seal by the other's: more than a heartbeat. */
static void await_told(uint64_t before)
{
    for (int ms = 0; ms < PATIENCE_MS; ms += 5) {
        if (test_hosts_engine(&hosts, 0, "dp@tp=0").told >= before + 200)
            return;
        (void)poll(NULL, 0, 5);
    }
    ck_abort_msg("host 0 was told nothing");
}

/* One host's ranks ask for the seal before the other's have joined the amax group. */
START_TEST(a_host_seals_before_the_other_knows_the_amax_group)
{
    struct errand errands[4];
    pthread_t threads[4];
    lay_out(2, 2, false, MESH_PRECOMPUTE);
    for (uint32_t r = 0; r < 4; r++)
        must(r, r + 1, r % 2 == 0 ? mesh_rank_join_gathers : mesh_rank_join);
    uint64_t told = test_hosts_engine(&hosts, 0, "dp@tp=0").told;
    for (uint32_t r = 1; r < 4; r += 2) {
        errands[r] = (struct errand){mesh_rank_seal, r};
        ck_assert_int_eq(pthread_create(&threads[r], NULL, run_errand, &errands[r]), 0);
    }
    await_told(told);
    for (uint32_t r = 0; r < 4; r += 2)
        must(r, r + 1, mesh_rank_join);
    for (uint32_t r = 0; r < 4; r += 2) {
        errands[r] = (struct errand){mesh_rank_seal, r};
        ck_assert_int_eq(pthread_create(&threads[r], NULL, run_errand, &errands[r]), 0);
    }
    for (uint32_t r = 0; r < 4; r++) {
        ck_assert_int_eq(pthread_join(threads[r], NULL), 0);
        ck_assert_msg(outcomes[r] == F8_OK, "rank %u: %s", r, ranks[r].text);
    }
    must(0, 4, mesh_rank_steps);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("hosts_mesh");
    if (!test_hosts_possible())
        return TEST_HOSTS_SKIP;
    tcase_add_checked_fixture(cases, start, stop);
    tcase_add_loop_test(cases, scales_follow_from_full_weights, 0, NUM_SHAPES * NUM_MODES);
    tcase_add_test(cases, amax_group_must_be_on_all_hosts);
    tcase_add_loop_test(cases, death_breaks_all_groups, 0, 2 * NUM_MODES);
    tcase_add_loop_test(cases, lost_host_breaks_all_groups, 0, 2 * NUM_MODES);
    tcase_add_loop_test(cases, opposite_order, 0, NUM_ORDERS);
    tcase_add_test(cases, a_host_seals_before_the_other_knows_the_amax_group);
    tcase_add_loop_test(cases, replicas_take_no_part, 0, 2 * NUM_MODES);
    return run_suite("hosts_mesh", cases);
}
