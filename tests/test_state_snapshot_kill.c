/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that stores states and saves them all the time is killed at random moments, hundreds
 * of times, and after each the runtime directory is emptied, as by a reboot, or not. What the next
 * one finds is whole, no older than the last pass that had ended, and nothing that was dropped.
 */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/snapshot_fixture.h"
#include "lib/suite.h"

#define MOMENT_US 30000
#define SEED      20261130u

/* What the killed one told, each before or after it happened. */
struct told {
    uint64_t begun;  /* the sync that is being stored */
    uint64_t kept;   /* the sync that is stored */
    uint64_t saved;  /* the sync that is in a snapshot, all the way */
    uint64_t life;   /* of the group's state: 0 before the first; changes before a seal is fresh */
    uint64_t sealed; /* the life whose state is stored, and the one before it gone */
    uint64_t rebooted; /* the runtime directory was emptied, and nobody has looked since */
    uint64_t failed;   /* line of the check that failed */
};

static struct snapshot_fixture fixture;
static int kills = 300;

#define EXPECT(told, condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (told)->failed = __LINE__;                                                             \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static const struct scaling *values_of(uint64_t syncs)
{
    return syncs % 2 ? fixture.before : fixture.after;
}

/* Each life has syncs of its own: which life a state is of can be told. */
#define SYNCS_OF(life) ((life)*1000000 + 1)

static void seal(struct told *told)
{
    uint64_t first = SYNCS_OF(told->life + 1);
    told->life++;
    told->begun = first;
    struct state *state = snapshot_put(&fixture, "dp");
    state_sync(state, first, fixture.list, values_of(first));
    told->saved = 0; /* from here on it may be there or not */
    state_replaced(state);
    told->kept = first;
    told->sealed = told->life;
}

/* What must be there, after a reboot or without one. */
/* Gives the sync that is stored; 0: none that this test has made. */
static uint64_t check(struct told *told)
{
    bool rebooted = told->rebooted != 0;
    struct state_saved saved;
    state_store_saved(fixture.store, &saved);
    EXPECT(told, saved.damaged->count == 0);
    const struct state *state = snapshot_find(&fixture, "dp");
    if (!state) {
        EXPECT(told, rebooted ? told->saved == 0 : told->kept == 0);
        return 0;
    }
    uint64_t syncs = state_values_syncs(state_values(state));
    if (syncs == 1) /* it was stored, and killed before its first sync */
        return 0;
    EXPECT(told, syncs <= told->begun);
    EXPECT(told, syncs >= (rebooted ? told->saved : told->kept));
    EXPECT(told, syncs >= SYNCS_OF(told->sealed)); /* nothing of a life before */
    EXPECT(told, snapshot_has(&fixture, "dp", syncs, values_of(syncs)));
    return syncs;
}

static void live(struct told *told)
{
    snapshot_open(&fixture);
    uint64_t syncs = check(told);
    told->kept = syncs;
    told->rebooted = 0;
    if (syncs == 0)
        seal(told);
    for (;;) {
        if (told->kept % 5 == 0)
            seal(told);
        syncs = state_values_syncs(state_values(snapshot_find(&fixture, "dp"))) + 1;
        told->begun = syncs;
        state_sync(snapshot_find(&fixture, "dp"), syncs, fixture.list, values_of(syncs));
        told->kept = syncs;
        EXPECT(told, snapshot_pass(&fixture).status == 0);
        told->saved = syncs;
    }
}

START_TEST(killed_at_any_moment)
{
    unsigned seed = SEED;
    struct told *told =
        mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(told, MAP_FAILED);
    snapshot_set_up(&fixture);
    snapshot_close(&fixture);
    for (int i = 0; i < kills; i++) {
        pid_t pid = fork();
        if (pid == 0)
            live(told);
        struct timespec moment = {.tv_nsec = (long)(rand_r(&seed) % MOMENT_US) * 1000};
        (void)nanosleep(&moment, NULL);
        (void)kill(pid, SIGKILL);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        ck_assert_msg(told->failed == 0, "kill %d: line %llu", i, (unsigned long long)told->failed);
        if (rand_r(&seed) % 2 == 0)
            continue;
        told->rebooted = 1;
        state_fixture_remove_files(fixture.states);
    }
    (void)printf("%d kills in %llu lives\n", kills, (unsigned long long)told->life);
    ck_assert_uint_gt(told->life, (uint64_t)kills / 30);
    snapshot_open(&fixture);
    snapshot_tear_down(&fixture);
    (void)munmap(told, sizeof(*told));
}
END_TEST

/* test_state_snapshot_kill [KILLS] */
int main(int argc, char **argv)
{
    if (argc > 1)
        kills = atoi(argv[1]);
    TCase *tcase = tcase_create("kills");
    tcase_set_timeout(tcase, 240 + kills);
    tcase_add_test(tcase, killed_at_any_moment);
    return run_suite("state_snapshot_kill", tcase);
}
