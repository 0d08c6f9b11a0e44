/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scaling state as the library deals with it: where a seal takes it from, the count of syncs,
 * and exports; what is sent, what is refused, and what the daemon is not believed.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/one_rank.h"
#include "tests/lib/suite.h"

/* Larger than a packet, so that it must come by a descriptor. */
#define STATE_SIZE ((size_t)200001)

static unsigned char state[STATE_SIZE];

static void must(int status)
{
    ck_assert_msg(status == F8_OK, "%s: %s", f8_status_name(status), f8_error_text());
}

static void fill_state(void)
{
    for (size_t i = 0; i < STATE_SIZE; i++)
        state[i] = (unsigned char)(i * 31 + (i >> 8));
}

static int state_memfd(size_t size)
{
    int memfd = memfd_create("state", MFD_CLOEXEC);
    ck_assert_int_ge(memfd, 0);
    ck_assert_int_eq(write(memfd, state, size), (ssize_t)size);
    return memfd;
}

/* ---- seal ---- */

START_TEST(options_are_sent)
{
    struct one_rank rank;
    static const struct f8_seal_options options[] = {{.state = F8_STATE_FRESH},
        {.state = F8_STATE_CONTINUE}, {.state = F8_STATE_CONTINUE, .syncs = 41},
        {.state = F8_STATE_CONTINUE, .syncs = F8_ANY_SYNCS}};
    one_rank_join(&rank, 2);
    must(f8_seal(rank.group, &options[_i]));
    ck_assert_uint_eq(rank.daemon.seal_state, options[_i].state);
    ck_assert_uint_eq(rank.daemon.seal_syncs, options[_i].syncs);
    ck_assert_int_eq(rank.daemon.seal_memfd, -1);
    one_rank_stop(&rank);
}
END_TEST

/* What the last Seal brought is the state, and nobody can change it any more. */
static void assert_imported(struct one_rank *rank)
{
    struct stat stat;
    static unsigned char got[STATE_SIZE];
    int memfd = rank->daemon.seal_memfd;
    ck_assert_uint_eq(rank->daemon.seal_state, F8_STATE_IMPORT);
    ck_assert_int_ge(memfd, 0);
    ck_assert_int_eq(fstat(memfd, &stat), 0);
    ck_assert_int_eq(stat.st_size, (off_t)STATE_SIZE);
    ck_assert_int_eq(read(memfd, got, STATE_SIZE), (ssize_t)STATE_SIZE); /* from the start */
    ck_assert_int_eq(memcmp(got, state, STATE_SIZE), 0);
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    ck_assert_int_eq(fcntl(memfd, F_GET_SEALS), seals);
}

START_TEST(import_comes_with_every_seal)
{
    struct one_rank rank;
    fill_state();
    const struct f8_seal_options options = {
        .state = F8_STATE_IMPORT, .import = state, .import_size = STATE_SIZE};
    one_rank_join(&rank, 2);
    rank.daemon.fail_status = F8_EMISMATCH;
    rank.daemon.fail_body = F8__REQUEST__BODY_SEAL;
    assert_fails(f8_seal(rank.group, &options), F8_EMISMATCH, "refused by the test");
    assert_imported(&rank);
    rank.daemon.fail_body = 0;
    must(f8_seal(rank.group, &options));
    assert_imported(&rank);
    must(f8_group_rejoin(rank.group));
    must(f8_seal(rank.group, &options));
    assert_imported(&rank);
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_SEAL], 3);
    must(f8_group_rejoin(rank.group));
    must(f8_seal(rank.group, NULL));
    ck_assert_int_eq(rank.daemon.seal_memfd, -1);
    ck_assert_uint_eq(rank.daemon.seal_state, F8_STATE_FRESH);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(bad_options)
{
    struct one_rank rank;
    static const struct {
        struct f8_seal_options options;
        const char *text;
    } rows[] = {{{.state = (enum f8_state)3}, "no state 3"},
        {{.syncs = 5}, "syncs is 5, which only F8_STATE_CONTINUE uses"},
        {{.state = F8_STATE_IMPORT, .import = state, .import_size = 1, .syncs = 5}, "syncs is 5"},
        {{.state = F8_STATE_IMPORT, .import = state}, "F8_STATE_IMPORT without bytes"},
        {{.state = F8_STATE_IMPORT, .import_size = 1}, "F8_STATE_IMPORT without bytes"},
        {{.import = state, .import_size = 9}, "import_size is 9, but only F8_STATE_IMPORT"},
        {{.state = F8_STATE_CONTINUE, .import_size = 9}, "import_size is 9"}};
    one_rank_join(&rank, 2);
    assert_fails(f8_seal(rank.group, &rows[_i].options), F8_EINVAL, rows[_i].text);
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_SEAL], 0);
    must(f8_seal(rank.group, NULL));
    one_rank_stop(&rank);
}
END_TEST

/* The import is the trainer's number of bytes: one that no memory holds is an error, no crash. */
START_TEST(import_of_impossible_size)
{
    struct one_rank rank;
    const struct f8_seal_options options = {
        .state = F8_STATE_IMPORT, .import = state, .import_size = SIZE_MAX};
    one_rank_join(&rank, 2);
    assert_fails(f8_seal(rank.group, &options), F8_ENOMEM, "no memory for import of");
    one_rank_stop(&rank);
}
END_TEST

/* ---- the count of syncs ---- */

static uint64_t syncs_of(struct f8_group *group)
{
    uint64_t syncs = 0;
    must(f8_syncs(group, &syncs));
    return syncs;
}

typedef int start_call(struct f8_group *group, int64_t deadline_ms, f8_ticket *ret_ticket);

static int precompute(struct f8_group *group, int64_t deadline_ms, f8_ticket *ret_ticket)
{
    return f8_precompute(group, deadline_ms, NULL, ret_ticket);
}

static int run(struct f8_group *group, start_call *call)
{
    f8_ticket ticket;
    must(call(group, 0, &ticket));
    return f8_wait(group, ticket, F8_FOREVER, NULL);
}

START_TEST(syncs_are_counted)
{
    struct one_rank rank;
    uint64_t syncs = 99;
    one_rank_join(&rank, 2);
    assert_fails(f8_syncs(rank.group, &syncs), F8_EORDER, "not sealed");
    ck_assert_uint_eq(syncs, 99);
    rank.daemon.syncs = 42;
    must(f8_seal(rank.group, NULL));
    assert_fails(f8_syncs(rank.group, NULL), F8_EINVAL, "ret_syncs");
    ck_assert_uint_eq(syncs_of(rank.group), 42);
    must(run(rank.group, precompute));
    must(run(rank.group, f8_invalidate));
    ck_assert_uint_eq(syncs_of(rank.group), 42);
    must(run(rank.group, f8_sync));
    must(run(rank.group, f8_sync));
    ck_assert_uint_eq(syncs_of(rank.group), 44);
    rank.daemon.fail_status = F8_ERANKDEAD;
    rank.daemon.fail_body = F8__REQUEST__BODY_SYNC;
    ck_assert_int_eq(run(rank.group, f8_sync), F8_ERANKDEAD);
    ck_assert_uint_eq(syncs_of(rank.group), 44);
    rank.daemon.syncs = 45; /* the sync was done, only its reply was lost */
    must(f8_group_rejoin(rank.group));
    must(f8_seal(rank.group, NULL));
    ck_assert_uint_eq(syncs_of(rank.group), 45);
    one_rank_stop(&rank);
}
END_TEST

/* ---- export ---- */

START_TEST(export_gives_the_bytes)
{
    struct one_rank rank;
    void *data = NULL;
    size_t size = 0;
    fill_state();
    one_rank_join(&rank, 2);
    rank.daemon.export_memfd = state_memfd(STATE_SIZE);
    must(f8_export(rank.group, &data, &size));
    ck_assert_uint_eq(rank.daemon.group, FAKE_GROUP);
    ck_assert_uint_eq(size, STATE_SIZE);
    ck_assert_int_eq(memcmp(data, state, size), 0);
    /* And in again. */
    const struct f8_seal_options options = {
        .state = F8_STATE_IMPORT, .import = data, .import_size = size};
    must(f8_seal(rank.group, &options));
    free(data);
    assert_imported(&rank);
    assert_fails(f8_export(rank.group, NULL, &size), F8_EINVAL, "NULL");
    assert_fails(f8_export(NULL, &data, &size), F8_EINVAL, "NULL");
    one_rank_stop(&rank);
}
END_TEST

START_TEST(bad_exports)
{
    struct one_rank rank;
    void *data = &rank;
    size_t size = 7;
    one_rank_join(&rank, 2);
    rank.daemon.fail_status = F8_ENOENT;
    rank.daemon.fail_body = F8__REQUEST__BODY_EXPORT;
    assert_fails(f8_export(rank.group, &data, &size), F8_ENOENT, "refused by the test");
    rank.daemon.fail_body = 0;
    rank.daemon.export_size = 100;
    assert_fails(f8_export(rank.group, &data, &size), F8_EPROTO, "group dp without one");
    rank.daemon.export_memfd = state_memfd(50);
    assert_fails(
        f8_export(rank.group, &data, &size), F8_EPROTO, "of 50 bytes, and says that it has 100");
    rank.daemon.export_size = 49;
    assert_fails(f8_export(rank.group, &data, &size), F8_EPROTO, "has 49");
    rank.daemon.export_size = 0;
    assert_fails(f8_export(rank.group, &data, &size), F8_EPROTO, "has 0");
    ck_assert_ptr_eq(data, &rank);
    ck_assert_uint_eq(size, 7);
    rank.daemon.export_size = 50;
    must(f8_export(rank.group, &data, &size));
    ck_assert_uint_eq(size, 50);
    free(data);
    one_rank_stop(&rank);
}
END_TEST

/* ---- an older daemon ---- */

/* It would pass over the fields that it does not know: the library does not let it. */
START_TEST(older_daemon)
{
    struct fake_daemon daemon;
    struct f8_client *client;
    struct f8_group *group, *mesh;
    void *data;
    size_t size;
    fake_start(&daemon, fake_serve);
    daemon.capability = "flavour.dynamic";
    const struct f8_connect_options options = {.socket = daemon.socket, .job = "test"};
    must(f8_connect(&options, &client));
    must(f8_group_join(client, "dp", 0, 1, &group));
    must(f8_group_join(client, "mesh", 0, 1, &mesh));
    struct f8_weight_desc weight = {.name = "w",
        .ndim = 1,
        .dtype = F8_F32,
        .flavour = F8_DYNAMIC,
        .format = F8_E5M2,
        .amax_group = mesh};
    assert_fails(f8_register(group, &weight, 1, NULL, 0), F8_EVERSION,
        "weight w needs amax-group, which f8gatherd 0.0.0-fake");
    weight.amax_group = group;
    must(f8_register(group, &weight, 1, NULL, 0));
    assert_fails(f8_export(group, &data, &size), F8_EVERSION, "f8_export of group dp needs state");
    const struct f8_seal_options seal = {.state = F8_STATE_CONTINUE};
    assert_fails(
        f8_seal(group, &seal), F8_EVERSION, "f8_seal with a state of group dp needs state");
    must(f8_seal(group, NULL));
    f8_close(client);
    fake_stop(&daemon);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("client_state");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, options_are_sent, 0, 4);
    tcase_add_test(tcase, import_comes_with_every_seal);
    tcase_add_loop_test(tcase, bad_options, 0, 7);
    tcase_add_test(tcase, import_of_impossible_size);
    tcase_add_test(tcase, syncs_are_counted);
    tcase_add_test(tcase, export_gives_the_bytes);
    tcase_add_test(tcase, bad_exports);
    tcase_add_test(tcase, older_daemon);
    return run_suite("client_state", tcase);
}
