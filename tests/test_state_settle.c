/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots that were removed, and those who wait until the disk has that: by the order of what is
 * done to the directory, on a disk that fails, is full, or does not answer. What the store asks of
 * the disk comes to the functions of this file.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/loop_turn.h"
#include "lib/snapshot_fixture.h"
#include "lib/suite.h"
#include "status.h"

static struct snapshot_fixture fixture;

/* ---- the disk ---- */

static char order[64]; /* r: a snapshot was removed; s: the directory was synced; t: one was told */
static atomic_uint in_order;
static atomic_bool is_broken, is_held, are_files_held;
static sem_t held;               /* as often as a sync was let go */
static sem_t files_held;         /* as often as a file was */
static atomic_uint files_synced; /* or at it */

static void note(char what)
{
    unsigned at = atomic_fetch_add(&in_order, 1);
    if (at + 1 < sizeof(order))
        order[at] = what;
}

int unlinkat(int directory, const char *name, int flags)
{
    if (strstr(name, ".snapshot"))
        note('r');
    return (int)syscall(SYS_unlinkat, directory, name, flags);
}

static void sync_file(void)
{
    (void)atomic_fetch_add(&files_synced, 1);
    while (atomic_load(&are_files_held) && sem_wait(&files_held) < 0)
        ;
}

int fsync(int fd)
{
    struct stat what;
    if (fstat(fd, &what) < 0 || !S_ISDIR(what.st_mode)) {
        sync_file();
        return (int)syscall(SYS_fsync, fd);
    }
    while (atomic_load(&is_held) && sem_wait(&held) < 0)
        ;
    if (atomic_load(&is_broken)) {
        errno = EIO;
        return -1;
    }
    note('s');
    return (int)syscall(SYS_fsync, fd);
}

static void let_go(void)
{
    atomic_store(&is_held, false);
    ck_assert_int_eq(sem_post(&held), 0);
}

/* The file that is at it, and those behind it if they are to go too. */
static void let_files_go(bool all)
{
    atomic_store(&are_files_held, !all);
    ck_assert_int_eq(sem_post(&files_held), 0);
}

/* ---- who waits ---- */

struct settling {
    struct state_waiter waiter; /* first: it is cast */
    struct state_pass pass;
    uint32_t told;
};

static void on_told(struct state_waiter *waiter, const struct state_pass *pass)
{
    struct settling *settling = (struct settling *)waiter;
    settling->pass = *pass;
    settling->told++;
    note('t');
}

static bool settle(struct settling *settling)
{
    *settling = (struct settling){.waiter = {.done = on_told}};
    return state_store_settle(fixture.store, &settling->waiter);
}

static void stop(uv_timer_t *timer)
{
    (void)uv_timer_stop(timer);
}

/* Nothing but what waits keeps the loop running. */
static void run(void)
{
    ck_assert_int_eq(uv_run(&fixture.loop, UV_RUN_DEFAULT), 0);
}

static void set_up_with(uint64_t patience_ms)
{
    snapshot_set_up(&fixture);
    snapshot_close(&fixture);
    fixture.patience_ms = patience_ms;
    snapshot_open(&fixture);
    atomic_store(&is_broken, false);
    atomic_store(&is_held, false);
    atomic_store(&are_files_held, false);
    ck_assert_int_eq(sem_init(&held, 0, 0), 0);
    ck_assert_int_eq(sem_init(&files_held, 0, 0), 0);
    (void)snapshot_put(&fixture, "dp");
    ck_assert_int_eq(snapshot_pass(&fixture).status, F8_OK);
    memset(order, 0, sizeof(order));
    atomic_store(&in_order, 0);
}

static void set_up(void)
{
    set_up_with(STATE_SAVER_PATIENCE_MS);
}

static void set_up_impatient(void)
{
    set_up_with(50);
}

/* With time for a test to go on before the patience ends anew. */
static void set_up_patient(void)
{
    set_up_with(1000);
}

static void tear_down(void)
{
    snapshot_tear_down(&fixture);
    ck_assert_int_eq(sem_destroy(&held), 0);
    ck_assert_int_eq(sem_destroy(&files_held), 0);
}

/* ---- a disk that is well ---- */

START_TEST(nobody_waits_where_nothing_was_removed)
{
    struct settling settling;
    ck_assert(!settle(&settling));
    (void)snapshot_put(&fixture, "new");
    state_replaced(snapshot_find(&fixture, "new")); /* it has no snapshot yet */
    ck_assert(!settle(&settling));
    run();
    ck_assert_uint_eq(settling.told, 0);
}
END_TEST

START_TEST(who_waits_is_told_after_the_sync)
{
    struct settling first, second;
    state_replaced(snapshot_find(&fixture, "dp"));
    ck_assert(settle(&first));
    ck_assert(settle(&second));
    run();
    ck_assert_str_eq(order, "rstt");
    ck_assert_uint_eq(first.told, 1);
    ck_assert_uint_eq(second.told, 1);
    ck_assert(first.pass.settled && second.pass.settled);
    ck_assert_int_eq(first.pass.status, F8_OK);
    ck_assert(!settle(&first));
}
END_TEST

/* The sync that is under way may have begun before the removal: another one follows. */
START_TEST(a_pass_that_had_begun_is_not_enough)
{
    struct settling settling;
    atomic_store(&is_held, true);
    state_drop(snapshot_find(&fixture, "dp"));
    uv_timer_t turn;
    (void)uv_timer_init(&fixture.loop, &turn);
    (void)uv_timer_start(&turn, stop, 0, 0);
    (void)loop_turn(&fixture.loop); /* the pass begins */
    uv_close((uv_handle_t *)&turn, NULL);
    ck_assert(settle(&settling));
    let_go();
    run();
    ck_assert_str_eq(order, "rsst");
    ck_assert(settling.pass.settled);
}
END_TEST

START_TEST(the_last_pass_tells_them_too)
{
    struct settling settling;
    state_drop(snapshot_find(&fixture, "dp"));
    ck_assert(settle(&settling));
    state_saver_finish(fixture.saver);
    run();
    ck_assert_uint_eq(settling.told, 1);
    ck_assert(settling.pass.settled);
    ck_assert(!state_saver_is_stuck(fixture.saver));
}
END_TEST

START_TEST(without_a_directory_nobody_waits)
{
    struct settling settling;
    snapshot_close(&fixture);
    fixture.config.state_dir[0] = '\0';
    snapshot_open(&fixture);
    state_replaced(snapshot_find(&fixture, "dp"));
    ck_assert(!settle(&settling));
    run();
}
END_TEST

/* ---- a disk that fails ---- */

START_TEST(a_sync_that_fails_is_told)
{
    struct settling settling;
    atomic_store(&is_broken, true);
    state_drop(snapshot_find(&fixture, "dp"));
    ck_assert(settle(&settling));
    run();
    ck_assert_uint_eq(settling.told, 1);
    ck_assert_int_eq(settling.pass.status, F8_EIO);
    ck_assert(!settling.pass.settled);
    ck_assert_ptr_nonnull(strstr(settling.pass.reason.text, "cannot sync the state directory "));
    atomic_store(&is_broken, false);
    ck_assert(settle(&settling)); /* it is not over yet */
    run();
    ck_assert_int_eq(settling.pass.status, F8_OK);
    ck_assert(settling.pass.settled);
    ck_assert(!settle(&settling));
}
END_TEST

/* A directory in the file's place cannot be unlinked, by nobody. */
START_TEST(a_removal_that_fails_is_told)
{
    struct settling settling;
    ck_assert_int_eq(mkdir(snapshot_path(&fixture, 1, "previous"), 0700), 0);
    state_drop(snapshot_find(&fixture, "dp"));
    for (int i = 0; i < 2; i++) {
        ck_assert(settle(&settling));
        run();
        ck_assert_int_eq(settling.pass.status, F8_EIO);
        ck_assert(!settling.pass.settled);
        ck_assert_ptr_nonnull(strstr(settling.pass.reason.text, "cannot remove the snapshot "));
    }
    ck_assert_int_eq(rmdir(snapshot_path(&fixture, 1, "previous")), 0);
    ck_assert(settle(&settling));
    run();
    ck_assert(settling.pass.settled);
    ck_assert(!settle(&settling));
}
END_TEST

/* Nor does it hold up what can be removed, wherever that is in the list. */
START_TEST(a_removal_that_fails_is_alone)
{
    struct settling settling;
    char stuck[256];
    (void)snapshot_put(&fixture, "other");
    ck_assert_int_eq(snapshot_pass(&fixture).status, F8_OK);
    ck_assert_int_eq(mkdir(snapshot_path(&fixture, 1, "previous"), 0700), 0);
    ck_assert_int_eq(mkdir(snapshot_path(&fixture, 2, "previous"), 0700), 0);
    state_drop(snapshot_find(&fixture, "dp"));
    state_drop(snapshot_find(&fixture, "other"));
    for (uint64_t well = 1; well <= 2; well++) {
        ck_assert_int_eq(rmdir(snapshot_path(&fixture, well, "previous")), 0);
        ck_assert(settle(&settling));
        run();
        ck_assert_int_lt(access(snapshot_path(&fixture, well, "snapshot"), F_OK), 0);
        (void)snprintf(stuck, sizeof(stuck), "%s", snapshot_path(&fixture, 2, "previous"));
        ck_assert_int_eq(settling.pass.settled, well == 2);
        ck_assert_int_eq(strstr(settling.pass.reason.text, stuck) != NULL, well == 1);
    }
    ck_assert(!settle(&settling));
}
END_TEST

/* Nothing can be saved there, but removals are as well as done. */
START_TEST(a_full_disk_takes_removals)
{
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
    struct rlimit before;
    struct settling settling;
    state_drop(snapshot_find(&fixture, "dp"));
    ck_assert(settle(&settling));
    (void)signal(SIGXFSZ, SIG_IGN);
    int limited = prlimit(0, RLIMIT_FSIZE, &none, &before); /* Check has files, too */
    (void)uv_run(&fixture.loop, UV_RUN_DEFAULT);
    (void)prlimit(0, RLIMIT_FSIZE, &before, NULL);
    ck_assert_int_eq(limited, 0);
    ck_assert_int_eq(settling.pass.status, F8_EIO);
    ck_assert(settling.pass.settled);
    ck_assert(!settle(&settling));
}
END_TEST

/* ---- a disk that does not answer ---- */

static void never(uv_timer_t *timer)
{
    (void)timer;
    ck_abort_msg("nobody is told");
}

/* Turns the loop, which a stuck disk does not keep running, until who waits is told. */
static void await(const struct settling *settling)
{
    uv_timer_t patience;
    (void)uv_timer_init(&fixture.loop, &patience);
    (void)uv_timer_start(&patience, never, 60000, 0);
    while (settling->told == 0)
        (void)loop_turn(&fixture.loop);
    uv_close((uv_handle_t *)&patience, NULL);
    run();
}

/* Lets go, and turns the loop until the pass that was stuck, and what follows it, has ended. */
static void await_disk(void)
{
    uv_timer_t patience;
    (void)uv_timer_init(&fixture.loop, &patience);
    (void)uv_timer_start(&patience, never, 60000, 0);
    let_go();
    while (state_saver_is_stuck(fixture.saver))
        (void)loop_turn(&fixture.loop);
    uv_close((uv_handle_t *)&patience, NULL);
    run();
}

START_TEST(nobody_waits_for_ever)
{
    struct settling settling, asking, late;
    asking = (struct settling){.waiter = {.done = on_told}};
    atomic_store(&is_held, true);
    state_drop(snapshot_find(&fixture, "dp"));
    ck_assert(settle(&settling));
    await(&settling);
    ck_assert_int_eq(settling.pass.status, F8_EIO);
    ck_assert(!settling.pass.settled);
    ck_assert_ptr_nonnull(
        strstr(settling.pass.reason.text, "/snapshots has not answered for 0.05 s"));
    ck_assert_int_eq(state_saver_last(fixture.saver)->status, F8_EIO);
    ck_assert_uint_gt(state_saver_last(fixture.saver)->succeeded, 0);
    ck_assert(settle(&late)); /* of the same pass: told soon, not at once */
    ck_assert_uint_eq(late.told, 0);
    ck_assert_int_eq(state_saver_ask(fixture.saver, &asking.waiter, &fixture.reason), F8_OK);
    run();
    ck_assert_int_eq(late.pass.status, F8_EIO);
    ck_assert_int_eq(asking.pass.status, F8_EIO);
    await_disk();
    ck_assert_int_eq(state_saver_last(fixture.saver)->status, F8_OK);
    ck_assert_uint_eq(settling.told, 1);
    ck_assert_uint_eq(late.told, 1);
    ck_assert_uint_eq(asking.told, 1);
    ck_assert(!settle(&late));
    ck_assert_int_eq(snapshot_pass(&fixture).status, F8_OK);
}
END_TEST

/* The end does not wait for it either, and knows why. */
START_TEST(the_end_does_not_wait_for_ever)
{
    atomic_store(&is_held, true);
    state_drop(snapshot_find(&fixture, "dp"));
    state_saver_finish(fixture.saver);
    run();
    ck_assert(state_saver_is_stuck(fixture.saver));
    await_disk();
}
END_TEST

/* ---- a disk that hangs, and answers in the midst of a pass ---- */

static void count(void *owner, const struct state_pass *pass)
{
    (void)pass;
    ++*(uint32_t *)owner;
}

static void ask(struct settling *asking)
{
    *asking = (struct settling){.waiter = {.done = on_told}};
    ck_assert_int_eq(state_saver_ask(fixture.saver, &asking->waiter, &fixture.reason), F8_OK);
}

/* Of two files, the disk has answered for one, for too long, and is at the other. */
static void hang_twice(void)
{
    struct settling first;
    static uv_timer_t patience; /* is closed by a later turn */
    (void)snapshot_put(&fixture, "one");
    (void)snapshot_put(&fixture, "two");
    atomic_store(&files_synced, 0);
    atomic_store(&are_files_held, true);
    ask(&first);
    await(&first);
    ck_assert_int_eq(first.pass.status, F8_EIO);
    let_files_go(false);
    (void)uv_timer_init(&fixture.loop, &patience);
    (void)uv_timer_start(&patience, never, 60000, 0);
    while (atomic_load(&files_synced) < 2) { /* the thread tells the loop of nothing then */
        (void)uv_run(&fixture.loop, UV_RUN_NOWAIT);
        (void)poll(NULL, 0, 1);
    }
    uv_close((uv_handle_t *)&patience, NULL);
}

/* Who comes then is not told what is over, and the end takes what it can. */
START_TEST(a_disk_that_answers_again_is_waited_for)
{
    struct settling late;
    hang_twice();
    ask(&late);
    state_saver_finish(fixture.saver);
    let_files_go(true);
    run();
    ck_assert(!state_saver_is_stuck(fixture.saver));
    ck_assert_uint_eq(late.told, 1);
    ck_assert_int_eq(late.pass.status, F8_OK);
    ck_assert_int_eq(state_saver_last(fixture.saver)->status, F8_OK);
    ck_assert_uint_eq(state_saver_counts(fixture.saver).failed, 1);
}
END_TEST

/* Each time has its patience; the pass fails once. */
START_TEST(a_disk_may_hang_twice)
{
    struct settling late;
    uint32_t told = 0;
    state_saver_listen(fixture.saver, count, &told);
    hang_twice();
    ask(&late);
    await(&late);
    ck_assert_int_eq(late.pass.status, F8_EIO);
    ck_assert_uint_eq(told, 2);
    ck_assert_uint_eq(state_saver_counts(fixture.saver).failed, 1);
    let_files_go(true);
    await_disk();
    ck_assert_int_eq(snapshot_pass(&fixture).status, F8_OK);
    ck_assert_uint_eq(state_saver_counts(fixture.saver).failed, 1);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("settle"), *hangs = tcase_create("hangs"),
          *answers = tcase_create("answers");
    tcase_set_timeout(tcase, 120);
    tcase_set_timeout(hangs, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_checked_fixture(hangs, set_up_impatient, tear_down);
    tcase_set_timeout(answers, 120);
    tcase_add_checked_fixture(answers, set_up_patient, tear_down);
    tcase_add_test(tcase, nobody_waits_where_nothing_was_removed);
    tcase_add_test(tcase, who_waits_is_told_after_the_sync);
    tcase_add_test(tcase, a_pass_that_had_begun_is_not_enough);
    tcase_add_test(tcase, the_last_pass_tells_them_too);
    tcase_add_test(tcase, without_a_directory_nobody_waits);
    tcase_add_test(tcase, a_sync_that_fails_is_told);
    tcase_add_test(tcase, a_removal_that_fails_is_told);
    tcase_add_test(tcase, a_removal_that_fails_is_alone);
    tcase_add_test(tcase, a_full_disk_takes_removals);
    tcase_add_test(hangs, nobody_waits_for_ever);
    tcase_add_test(hangs, the_end_does_not_wait_for_ever);
    tcase_add_test(hangs, a_disk_may_hang_twice);
    tcase_add_test(answers, a_disk_that_answers_again_is_waited_for);
    Suite *suite = suite_create("state_settle");
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, hangs);
    suite_add_tcase(suite, answers);
    return run_cases(suite);
}
