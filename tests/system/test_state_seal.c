/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a seal takes the state from: fresh, stored, imported; every refusal by name, and that it
 * drops nothing; export and import by clients and operators. A real daemon, one rank or two.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "f8client.h"
#include "lib/admin_link.h"

#define COUNT 64

static struct test_daemon host;

struct rank {
    struct f8_client *client;
    struct f8_group *group;
    float *memory;
};

/* What a rank registers; zeros are the defaults. */
struct setup {
    const char *token, *name;
    uint32_t rank, world_size, history;
    enum f8_dtype dtype;
};

static void well(int status)
{
    ck_assert_msg(status == F8_OK, "%s: %s", f8_status_name(status), f8_error_text());
}

static void join(struct rank *rank, const struct setup *setup)
{
    const struct f8_connect_options options = {
        .socket = host.socket, .job = "x", .token = setup->token};
    uint32_t world_size = setup->world_size ? setup->world_size : 1;
    struct f8_region *region;
    void *address;
    well(f8_connect(&options, &rank->client));
    well(f8_group_join(rank->client, "dp", setup->rank, world_size, &rank->group));
    well(f8_region_alloc(rank->client, 4096, &region, &address));
    rank->memory = address;
    const struct f8_weight_desc weight = {
        .name = setup->name ? setup->name : "layers.0.wq",
        .ndim = 1,
        .shape = {COUNT},
        .dtype = setup->dtype ? setup->dtype : F8_F32,
        .flavour = F8_DELAYED,
        .format = F8_E4M3FN,
        .history_length = setup->history,
        .region = region,
    };
    const struct f8_bucket_desc bucket = {.name = "b", .count = 1};
    well(f8_register(rank->group, &weight, 1, &bucket, 1));
}

static int seal(struct rank *rank, enum f8_state state, uint64_t syncs)
{
    const struct f8_seal_options options = {.state = state, .syncs = syncs};
    return f8_seal(rank->group, &options);
}

/* Re-joins after a refusal, and is refused again. */
static void refused_again(struct rank *rank, uint64_t syncs, int status, const char *text)
{
    well(f8_group_rejoin(rank->group));
    ck_assert_int_eq(seal(rank, F8_STATE_CONTINUE, syncs), status);
    ck_assert_msg(strstr(f8_error_text(), text) != NULL, "%s", f8_error_text());
}

static void step(struct rank *rank, float amax)
{
    f8_ticket ticket;
    rank->memory[0] = amax;
    well(f8_gather(rank->group, 0, F8_DEFAULT_DEADLINE));
    well(f8_post_gather(rank->group, 0, F8_FOREVER, NULL, 0));
    well(f8_release(rank->group, 0));
    well(f8_sync(rank->group, F8_DEFAULT_DEADLINE, &ticket));
    well(f8_wait(rank->group, ticket, F8_FOREVER));
}

static uint64_t syncs_of(struct rank *rank)
{
    uint64_t syncs;
    well(f8_syncs(rank->group, &syncs));
    return syncs;
}

/* A run of three syncs that is over: what the tests begin with. */
static void leave_state(const char *token)
{
    struct rank rank;
    join(&rank, &(struct setup){.token = token});
    well(seal(&rank, F8_STATE_CONTINUE, 0)); /* with nothing stored: fresh */
    ck_assert_uint_eq(syncs_of(&rank), 0);
    for (int i = 1; i <= 3; i++)
        step(&rank, (float)i);
    f8_close(rank.client);
}

static void set_up(void)
{
    test_daemon_start(&host, NULL);
}

static void tear_down(void)
{
    test_daemon_drop_states(&host);
    test_daemon_stop(&host);
}

START_TEST(continues_where_it_was)
{
    struct rank rank;
    leave_state(NULL);
    join(&rank, &(struct setup){0});
    ck_assert_int_eq(seal(&rank, F8_STATE_CONTINUE, 2), F8_EMISMATCH);
    ck_assert_str_eq(f8_error_text(),
        "the stored state of job x, group dp has seen 3 syncs, where the seal continues at sync 2");
    refused_again(&rank, 0, F8_EMISMATCH, "has seen 3 syncs, where the seal continues at sync 0");
    well(f8_group_rejoin(rank.group));
    well(seal(&rank, F8_STATE_CONTINUE, 3));
    ck_assert_uint_eq(syncs_of(&rank), 3);
    step(&rank, 4);
    ck_assert_uint_eq(syncs_of(&rank), 4);
    f8_close(rank.client);
    join(&rank, &(struct setup){0});
    well(seal(&rank, F8_STATE_CONTINUE, F8_ANY_SYNCS));
    ck_assert_uint_eq(syncs_of(&rank), 4);
    f8_close(rank.client);
    join(&rank, &(struct setup){0});
    well(f8_seal(rank.group, NULL)); /* fresh: what was stored is gone */
    ck_assert_uint_eq(syncs_of(&rank), 0);
    f8_close(rank.client);
}
END_TEST

START_TEST(nothing_stored_is_said)
{
    struct rank rank;
    join(&rank, &(struct setup){0});
    ck_assert_int_eq(seal(&rank, F8_STATE_CONTINUE, 5), F8_ENOENT);
    ck_assert_str_eq(f8_error_text(),
        "nothing is stored for job x, group dp, where the seal continues at sync 5");
    refused_again(&rank, F8_ANY_SYNCS, F8_ENOENT, "nothing is stored for job x, group dp");
    f8_close(rank.client);
}
END_TEST

START_TEST(other_weights_are_named_and_drop_nothing)
{
    struct rank rank;
    leave_state(NULL);
    join(&rank, &(struct setup){.dtype = F8_BF16});
    ck_assert_int_eq(seal(&rank, F8_STATE_CONTINUE, 3), F8_EMISMATCH);
    ck_assert_str_eq(f8_error_text(),
        "the stored state of group dp has weight layers.0.wq as float32 e4m3fn, history 16 max; "
        "the group registers bfloat16 e4m3fn, history 16 max");
    f8_close(rank.client);
    join(&rank, &(struct setup){.history = 4});
    ck_assert_int_eq(seal(&rank, F8_STATE_CONTINUE, 3), F8_EMISMATCH);
    f8_close(rank.client);
    join(&rank, &(struct setup){.name = "embed"});
    ck_assert_int_eq(seal(&rank, F8_STATE_CONTINUE, 3), F8_EMISMATCH);
    ck_assert_ptr_nonnull(strstr(
        f8_error_text(), "has layers.0.wq as delayed weight 0 where the group registers embed"));
    f8_close(rank.client);
    join(&rank, &(struct setup){0});
    well(seal(&rank, F8_STATE_CONTINUE, 3));
    f8_close(rank.client);
}
END_TEST

START_TEST(another_token_cannot_continue)
{
    struct rank rank;
    leave_state("secret");
    join(&rank, &(struct setup){.token = "other"});
    ck_assert_int_eq(seal(&rank, F8_STATE_CONTINUE, 3), F8_EPERM);
    ck_assert_str_eq(
        f8_error_text(), "the stored state of job x, group dp is of a run with another token");
    f8_close(rank.client);
    join(&rank, &(struct setup){.token = "secret"});
    well(seal(&rank, F8_STATE_CONTINUE, 3));
    f8_close(rank.client);
}
END_TEST

START_TEST(survives_a_kill_and_an_orderly_end)
{
    struct rank rank;
    leave_state(NULL);
    test_daemon_kill(&host);
    test_daemon_restart(&host, NULL);
    join(&rank, &(struct setup){0});
    well(seal(&rank, F8_STATE_CONTINUE, 3));
    step(&rank, 5);
    ck_assert_int_eq(kill(host.pid, SIGTERM), 0);
    ck_assert_int_eq(test_wait(host.pid), 0);
    f8_close(rank.client);
    test_daemon_restart(&host, NULL);
    join(&rank, &(struct setup){0});
    well(seal(&rank, F8_STATE_CONTINUE, 4));
    f8_close(rank.client);
}
END_TEST

/* The group's own daemon has newer values in memory: those of the file count. */
START_TEST(continue_forgets_what_was_not_synced)
{
    struct rank rank;
    void *before, *after;
    size_t size, size_after;
    leave_state(NULL);
    join(&rank, &(struct setup){0});
    well(seal(&rank, F8_STATE_CONTINUE, 3));
    well(f8_export(rank.group, &before, &size));
    rank.memory[0] = 100;
    well(f8_gather(rank.group, 0, F8_DEFAULT_DEADLINE));
    well(f8_post_gather(rank.group, 0, F8_FOREVER, NULL, 0));
    f8_close(rank.client);
    join(&rank, &(struct setup){0});
    well(seal(&rank, F8_STATE_CONTINUE, 3));
    well(f8_export(rank.group, &after, &size_after));
    ck_assert_uint_eq(size, size_after);
    ck_assert_mem_eq(before, after, size);
    f8_close(rank.client);
    free(before);
    free(after);
}
END_TEST

static int import(struct rank *rank, const void *bytes, size_t size)
{
    const struct f8_seal_options options = {
        .state = F8_STATE_IMPORT, .import = bytes, .import_size = size};
    return f8_seal(rank->group, &options);
}

START_TEST(import_is_what_was_exported)
{
    struct rank rank;
    void *bytes, *again;
    size_t size, size_again;
    leave_state("secret");
    join(&rank, &(struct setup){.token = "secret"});
    well(seal(&rank, F8_STATE_CONTINUE, 3));
    well(f8_export(rank.group, &bytes, &size));
    step(&rank, 9);
    f8_close(rank.client);
    join(&rank, &(struct setup){.token = "secret"});
    ((uint8_t *)bytes)[size - 1] ^= 1;
    ck_assert_int_eq(import(&rank, bytes, size), F8_EINVAL);
    ck_assert_ptr_nonnull(strstr(f8_error_text(), "the import of group dp is damaged"));
    ((uint8_t *)bytes)[size - 1] ^= 1;
    ((uint8_t *)bytes)[8]++; /* the version */
    well(f8_group_rejoin(rank.group));
    ck_assert_int_eq(import(&rank, bytes, size), F8_EVERSION);
    ck_assert_ptr_nonnull(strstr(f8_error_text(), "has format version 2"));
    ((uint8_t *)bytes)[8]--;
    well(f8_group_rejoin(rank.group));
    well(import(&rank, bytes, size));
    ck_assert_uint_eq(syncs_of(&rank), 3);
    well(f8_export(rank.group, &again, &size_again));
    ck_assert_uint_eq(size, size_again);
    ck_assert_mem_eq(bytes, again, size);
    f8_close(rank.client);
    free(bytes);
    free(again);
}
END_TEST

/* A rank of a gather group whose amaxes are taken over another group; its first scale is given. */
static void run_linked(enum f8_state state, uint64_t syncs, float amax, float *ret_scale)
{
    const struct f8_connect_options options = {.socket = host.socket, .job = "x"};
    const struct f8_seal_options seal_of_both = {.state = state, .syncs = syncs};
    struct rank rank;
    struct f8_group *mesh;
    struct f8_region *region;
    struct f8_view view = {0};
    void *address, *none;
    size_t size;
    f8_ticket ticket;
    uint64_t seen;
    well(f8_connect(&options, &rank.client));
    well(f8_group_join(rank.client, "mesh", 0, 1, &mesh));
    well(f8_group_join(rank.client, "dp", 0, 1, &rank.group));
    well(f8_region_alloc(rank.client, 4096, &region, &address));
    *(float *)address = amax;
    const struct f8_weight_desc weight = {.name = "w",
        .ndim = 1,
        .shape = {COUNT},
        .dtype = F8_F32,
        .flavour = F8_DELAYED,
        .format = F8_E4M3FN,
        .amax_group = mesh,
        .region = region};
    const struct f8_bucket_desc bucket = {.name = "b", .count = 1};
    well(f8_register(rank.group, &weight, 1, &bucket, 1));
    well(f8_seal(rank.group, &seal_of_both));
    well(f8_seal(mesh, &seal_of_both));
    well(f8_syncs(mesh, &seen));
    ck_assert_uint_eq(seen, syncs);
    well(f8_gather(rank.group, 0, F8_DEFAULT_DEADLINE));
    well(f8_post_gather(rank.group, 0, F8_FOREVER, &view, 1));
    *ret_scale = *view.scale;
    well(f8_release(rank.group, 0));
    well(f8_sync(mesh, F8_DEFAULT_DEADLINE, &ticket));
    well(f8_wait(mesh, ticket, F8_FOREVER));
    ck_assert_int_eq(f8_export(rank.group, &none, &size), F8_ENOENT);
    f8_close(rank.client);
}

/* The state is the amax group's, and its sources follow it. */
START_TEST(amax_groups_continue)
{
    float scale;
    run_linked(F8_STATE_CONTINUE, 0, 7, &scale);
    ck_assert_float_eq(scale, 448.0f / 7);
    run_linked(F8_STATE_CONTINUE, 1, 2, &scale);
    ck_assert_float_eq(scale, 448.0f / 7);
    run_linked(F8_STATE_FRESH, 0, 2, &scale);
    ck_assert_float_eq(scale, 448.0f / 2);
}
END_TEST

/* A second rank, in a thread of its own. */
struct second {
    struct rank rank;
    struct f8_seal_options options;
    int status;
};

static void *seal_second(void *argument)
{
    struct second *second = argument;
    second->status = f8_seal(second->rank.group, &second->options);
    return NULL;
}

static void seal_differently(
    const struct f8_seal_options *a, const struct f8_seal_options *b, const char *text)
{
    struct rank first;
    struct second second = {.options = *b};
    pthread_t thread;
    join(&first, &(struct setup){.world_size = 2});
    join(&second.rank, &(struct setup){.world_size = 2, .rank = 1});
    ck_assert_int_eq(pthread_create(&thread, NULL, seal_second, &second), 0);
    ck_assert_int_eq(f8_seal(first.group, a), F8_EMISMATCH);
    ck_assert_msg(strstr(f8_error_text(), text) != NULL, "%s", f8_error_text());
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(second.status, F8_EMISMATCH);
    f8_close(first.client);
    f8_close(second.rank.client);
}

START_TEST(ranks_must_agree)
{
    const struct f8_seal_options fresh = {0}, third = {.state = F8_STATE_CONTINUE, .syncs = 3},
                                 any = {.state = F8_STATE_CONTINUE, .syncs = F8_ANY_SYNCS};
    const struct f8_seal_options x = {.state = F8_STATE_IMPORT, .import = "x", .import_size = 1},
                                 y = {.state = F8_STATE_IMPORT, .import = "y", .import_size = 1};
    seal_differently(&fresh, &third, ") sealed with the stored state of sync 3 where rank 0 (pid ");
    seal_differently(&third, &any, ") sealed with the stored state where rank 0 (pid ");
    seal_differently(&x, &y, ") sealed with an import of 1 bytes, checksum 0x");
}
END_TEST

static F8__Reply *ask_import(int link, const char *group, int fd)
{
    F8__Import message = F8__IMPORT__INIT;
    F8__Request request = F8__REQUEST__INIT;
    int none;
    message.job = (char *)"x";
    message.uid = getuid();
    message.group_name = (char *)group;
    request.body_case = F8__REQUEST__BODY_IMPORT;
    request.import = &message;
    F8__Reply *reply = admin_link_ask(link, &request, fd, &none);
    ck_assert_int_eq(none, -1);
    return reply;
}

static F8__Reply *ask_export(int link, const char *group, int *ret_fd)
{
    F8__Export message = F8__EXPORT__INIT;
    F8__Request request = F8__REQUEST__INIT;
    message.job = (char *)"x";
    message.uid = getuid();
    message.group_name = (char *)group;
    request.body_case = F8__REQUEST__BODY_EXPORT;
    request.export = &message;
    return admin_link_ask(link, &request, -1, ret_fd);
}

static void expect(F8__Reply *reply, int status, const char *text)
{
    ck_assert_msg(reply->status == status && strstr(reply->text, text) != NULL, "%d: %s",
        reply->status, reply->text);
    f8__reply__free_unpacked(reply, NULL);
}

START_TEST(operators_export_and_import)
{
    struct rank rank;
    uint8_t bytes[4096];
    int link = admin_link_open(&host, F8__ROLE__ADMIN, ""), fd, copy;
    expect(ask_export(link, "dp", &fd), F8_ENOENT, "nothing is stored for job x, group dp of uid");
    leave_state("secret");
    F8__Reply *reply = ask_export(link, "dp", &fd);
    ck_assert_int_eq(reply->body_case, F8__REPLY__BODY_EXPORT);
    ck_assert_uint_eq(reply->export->syncs, 3);
    size_t size = reply->export->size;
    f8__reply__free_unpacked(reply, NULL);
    ck_assert_int_eq(pread(fd, bytes, sizeof(bytes), 0), (ssize_t)size);
    ck_assert_int_lt(ftruncate(fd, 0), 0); /* it is sealed */
    ck_assert_int_lt(pwrite(fd, bytes, 1, 0), 0);
    expect(ask_import(link, "dp", -1), F8_EREGION, "came with 0 descriptors");
    expect(ask_import(link, "", fd), F8_EINVAL, "allowed are 1 to 255");
    bytes[100] ^= 4;
    int damaged = admin_link_memfd(bytes, size);
    expect(ask_import(link, "dp", damaged), F8_EINVAL, "the import of group dp is damaged");
    expect(ask_import(link, "dp", fd), F8_OK, "");
    expect(ask_import(link, "../copy", fd), F8_OK, "");
    join(&rank, &(struct setup){.token = "secret"});
    expect(ask_import(link, "dp", fd), F8_EBUSY, "group dp of job x has members");
    well(seal(&rank, F8_STATE_CONTINUE, 3));
    expect(ask_import(link, "dp", fd), F8_EBUSY, "group dp of job x has members");
    f8_close(rank.client);
    reply = ask_export(link, "../copy", &copy);
    ck_assert_uint_eq(reply->export->syncs, 3);
    f8__reply__free_unpacked(reply, NULL);
    (void)close(copy);
    (void)close(damaged);
    (void)close(fd);
    (void)close(link);
}
END_TEST

/* An import serves any token once, and then the one that took it over. */
START_TEST(first_to_continue_takes_an_import_over)
{
    struct rank rank;
    int fd, link = admin_link_open(&host, F8__ROLE__ADMIN, "");
    leave_state(NULL);
    f8__reply__free_unpacked(ask_export(link, "dp", &fd), NULL);
    test_daemon_kill(&host);
    test_daemon_drop_states(&host);
    test_daemon_restart(&host, NULL);
    (void)close(link);
    link = admin_link_open(&host, F8__ROLE__ADMIN, "");
    expect(ask_import(link, "dp", fd), F8_OK, "");
    join(&rank, &(struct setup){.token = "mine"});
    well(seal(&rank, F8_STATE_CONTINUE, 3));
    f8_close(rank.client);
    join(&rank, &(struct setup){.token = "yours"});
    ck_assert_int_eq(seal(&rank, F8_STATE_CONTINUE, 3), F8_EPERM);
    f8_close(rank.client);
    (void)close(fd);
    (void)close(link);
}
END_TEST

START_TEST(trainers_do_not_import)
{
    int link = admin_link_open(&host, F8__ROLE__TRAINER, "x");
    expect(ask_import(link, "dp", -1), F8_EPERM, "may not inspect or import");
    (void)close(link);
}
END_TEST

/* The daemon may make files as large as the arena, and the state is larger: that seal fails. */
START_TEST(full_disk_fails_the_seal_by_name)
{
    struct rank rank;
    struct rlimit old, small;
    leave_state(NULL);
    ck_assert_int_eq(prlimit(host.pid, RLIMIT_FSIZE, NULL, &old), 0);
    small = (struct rlimit){.rlim_cur = 8300, .rlim_max = old.rlim_max};
    ck_assert_int_eq(prlimit(host.pid, RLIMIT_FSIZE, &small, NULL), 0);
    join(&rank, &(struct setup){.history = 1024});
    ck_assert_int_eq(f8_seal(rank.group, NULL), F8_EIO);
    ck_assert_ptr_eq(
        strstr(f8_error_text(), "cannot store the state of group dp: the file takes 8440 bytes: "),
        f8_error_text());
    f8_close(rank.client);
    ck_assert_int_eq(prlimit(host.pid, RLIMIT_FSIZE, &old, NULL), 0);
    join(&rank, &(struct setup){0});
    well(seal(&rank, F8_STATE_CONTINUE, 3)); /* what was stored still is */
    f8_close(rank.client);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("state_seal");
    TCase *tcase = tcase_create("processes");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, continues_where_it_was);
    tcase_add_test(tcase, nothing_stored_is_said);
    tcase_add_test(tcase, other_weights_are_named_and_drop_nothing);
    tcase_add_test(tcase, another_token_cannot_continue);
    tcase_add_test(tcase, survives_a_kill_and_an_orderly_end);
    tcase_add_test(tcase, continue_forgets_what_was_not_synced);
    tcase_add_test(tcase, import_is_what_was_exported);
    tcase_add_test(tcase, amax_groups_continue);
    tcase_add_test(tcase, ranks_must_agree);
    tcase_add_test(tcase, operators_export_and_import);
    tcase_add_test(tcase, first_to_continue_takes_an_import_over);
    tcase_add_test(tcase, trainers_do_not_import);
    tcase_add_test(tcase, full_disk_fails_the_seal_by_name);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
