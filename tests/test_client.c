/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's handles: connecting, regions, joining, registering in packets, forked children,
 * and that the example trainer runs.
 */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/one_rank.h"
#include "tests/lib/suite.h"

extern char **environ;

/* ---- connecting and joining ---- */

START_TEST(connect_needs_a_job)
{
    struct f8_client *client = NULL;
    struct f8_connect_options options = {.socket = "/nonexistent"};
    assert_fails(f8_connect(&options, &client), F8_EINVAL, "job's name is missing");
    char name[300];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    options.job = name;
    assert_fails(
        f8_connect(&options, &client), F8_EINVAL, "job's name has 299 bytes, the limit is 255");
    options.job = "a\nb";
    assert_fails(f8_connect(&options, &client), F8_EINVAL, "control character U+000A at byte 1");
    options.job = "test";
    assert_fails(f8_connect(&options, &client), F8_ENODAEMON, "/nonexistent (no such file");
    assert_fails(f8_connect(NULL, &client), F8_EINVAL, "NULL");
    ck_assert_ptr_null(client);
    f8_close(NULL);
}
END_TEST

START_TEST(null_handles)
{
    int done;
    assert_fails(f8_gather(NULL, 0, 0, NULL), F8_EINVAL, "NULL");
    assert_fails(f8_seal(NULL, NULL), F8_EINVAL, "NULL");
    assert_fails(f8_region_free(NULL), F8_EINVAL, "NULL");
    assert_fails(f8_test(NULL, 1, &done, NULL), F8_EINVAL, "NULL");
    ck_assert_str_eq(f8_status_name(F8_EMISMATCH), "F8_EMISMATCH");
    ck_assert_str_eq(f8_status_text(F8_EMISMATCH), "ranks disagree");
    ck_assert_str_eq(f8_version(), F8_VERSION);
}
END_TEST

START_TEST(join_checks_rank)
{
    struct fake_daemon daemon;
    struct f8_client *client;
    struct f8_group *group = NULL;
    fake_start(&daemon, fake_serve);
    const struct f8_connect_options options = {.socket = daemon.socket, .job = "test"};
    ck_assert_int_eq(f8_connect(&options, &client), F8_OK);
    assert_fails(f8_group_join(client, "dp", 2, 2, &group), F8_EINVAL, "rank 2 of 2");
    assert_fails(f8_group_join(client, "", 0, 2, &group), F8_EINVAL, "group's name is missing");
    daemon.fail_status = F8_EMISMATCH;
    daemon.fail_body = F8__REQUEST__BODY_JOIN;
    assert_fails(f8_group_join(client, "dp", 0, 2, &group), F8_EMISMATCH, "refused by the test");
    daemon.fail_body = 0;
    ck_assert_int_eq(f8_group_join(client, "dp", 0, 2, &group), F8_OK);
    f8_close(client);
    fake_stop(&daemon);
}
END_TEST

/* ---- regions ---- */

START_TEST(region_alloc_gives_aligned_zeros)
{
    struct one_rank rank;
    struct f8_region *region;
    void *address;
    one_rank_join(&rank, 1);
    assert_fails(f8_region_alloc(rank.client, 0, &region, &address), F8_EINVAL, "0 bytes");
    const size_t size = (5 << 20) + 13;
    ck_assert_int_eq(f8_region_alloc(rank.client, size, &region, &address), F8_OK);
    ck_assert_uint_eq((uintptr_t)address % (2 << 20), 0);
    const char *bytes = address;
    ck_assert(bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
    memset(address, 1, size);
    rank.daemon.fail_status = F8_EBUSY;
    rank.daemon.fail_body = F8__REQUEST__BODY_REGION_DROP;
    assert_fails(f8_region_free(region), F8_EBUSY, "refused by the test");
    ((char *)address)[0] = 2; /* still there */
    rank.daemon.fail_body = 0;
    ck_assert_int_eq(f8_region_free(region), F8_OK);
    one_rank_stop(&rank);
}
END_TEST

static int memfd_of(size_t size, int seals)
{
    int memfd = memfd_create("shard", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(memfd, (off_t)size), 0);
    if (seals)
        ck_assert_int_eq(fcntl(memfd, F_ADD_SEALS, seals), 0);
    return memfd;
}

START_TEST(region_share_says_what_is_wrong)
{
    struct one_rank rank;
    struct f8_region *region = NULL;
    one_rank_join(&rank, 1);
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int unsealed = memfd_of(4096, 0), empty = memfd_of(0, F_SEAL_SHRINK);
    int good = memfd_of(4096, F_SEAL_SHRINK);
    assert_fails(f8_region_share(rank.client, -1, &region), F8_EREGION, "descriptor -1");
    assert_fails(f8_region_share(rank.client, file, &region), F8_EREGION, "is not a memfd");
    assert_fails(f8_region_share(rank.client, unsealed, &region), F8_EREGION, "F_SEAL_SHRINK");
    assert_fails(f8_region_share(rank.client, empty, &region), F8_EREGION, "is empty");
    ck_assert_ptr_null(region);
    rank.daemon.fail_status = F8_ELIMIT;
    rank.daemon.fail_body = F8__REQUEST__BODY_REGION_ADD;
    assert_fails(f8_region_share(rank.client, good, &region), F8_ELIMIT, "refused by the test");
    rank.daemon.fail_body = 0;
    ck_assert_int_eq(f8_region_share(rank.client, good, &region), F8_OK);
    ck_assert_int_eq(f8_region_free(region), F8_OK);
    const int all[] = {file, unsealed, empty, good};
    for (int i = 0; i < 4; i++)
        close(all[i]);
    one_rank_stop(&rank);
}
END_TEST

/* ---- registration ---- */

#define MANY 5000

START_TEST(many_weights_in_few_packets)
{
    struct one_rank rank;
    static struct f8_weight_desc weights[MANY];
    static char names[MANY][64];
    const struct f8_bucket_desc bucket = {.name = "all", .first = 0, .count = MANY};
    one_rank_join(&rank, 2);
    size_t bytes = 0;
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof(names[i]), "model.layers.%d.self_attn.q_proj.weight", i);
        weights[i] = (struct f8_weight_desc){.name = names[i],
            .ndim = 2,
            .shape = {4096, 4096},
            .dtype = F8_BF16,
            .flavour = F8_DYNAMIC,
            .format = F8_E4M3FN};
        bytes += strlen(names[i]) + 20;
    }
    ck_assert_int_eq(f8_register(rank.group, weights, MANY, &bucket, 1), F8_OK);
    int packets = rank.daemon.counts[F8__REQUEST__BODY_REGISTER];
    ck_assert_int_eq(rank.daemon.weights, MANY);
    ck_assert_int_eq(rank.daemon.more, packets - 1);
    ck_assert_int_gt(packets, 1);
    ck_assert_int_le(packets, (int)(bytes / F8_PROTO_MAX_PACKET) + 2);
    one_rank_stop(&rank);
}
END_TEST

static const struct f8_weight_desc good_weight = {.name = "w",
    .ndim = 1,
    .shape = {8},
    .dtype = F8_F32,
    .flavour = F8_DYNAMIC,
    .format = F8_E4M3FN};

/* What is wrong with a weight, and what is said. */
static void spoil_weight(int row, struct f8_weight_desc *weight, const char **ret_text)
{
    static const char *const texts[] = {"weight's name is missing", "has 0 dimensions",
        "has 9 dimensions", "no dtype 9", "no flavour 9", "no float8 format 0",
        "more than 2^48 elements", "more than 2^48 elements"};
    *ret_text = texts[row];
    switch (row) {
    case 0:
        weight->name = NULL;
        break;
    case 1:
        weight->ndim = 0;
        break;
    case 2:
        weight->ndim = 9;
        break;
    case 3:
        weight->dtype = (enum f8_dtype)9;
        break;
    case 4:
        weight->flavour = (enum f8_flavour)9;
        break;
    case 5:
        weight->format = (enum f8_format)0;
        break;
    case 6:
        weight->shape[0] = UINT64_MAX;
        break;
    default:
        weight->ndim = 3;
        weight->shape[1] = weight->shape[2] = (uint64_t)1 << 40;
    }
}

START_TEST(bad_weights)
{
    struct one_rank rank;
    struct f8_weight_desc weights[2] = {good_weight, good_weight};
    const char *text;
    one_rank_join(&rank, 2);
    spoil_weight(_i, &weights[1], &text);
    assert_fails(f8_register(rank.group, weights, 2, NULL, 0), F8_EINVAL, text);
    ck_assert_int_eq(rank.daemon.counts[F8__REQUEST__BODY_REGISTER], 0);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(what_the_daemon_lacks)
{
    struct fake_daemon daemon;
    struct f8_client *client;
    struct f8_group *group;
    int has = -1;
    fake_start(&daemon, fake_serve);
    daemon.capability = "flavour.raw";
    const struct f8_connect_options options = {.socket = daemon.socket, .job = "test"};
    ck_assert_int_eq(f8_connect(&options, &client), F8_OK);
    ck_assert_int_eq(f8_capability(client, "flavour.raw", &has), F8_OK);
    ck_assert_int_eq(has, 1);
    ck_assert_int_eq(f8_capability(client, "flavour.static", &has), F8_OK);
    ck_assert_int_eq(has, 0);
    ck_assert_int_eq(f8_capability(client, "no such thing", &has), F8_OK);
    ck_assert_int_eq(has, 0);
    ck_assert_int_eq(f8_group_join(client, "dp", 0, 1, &group), F8_OK);
    const struct f8_weight_desc weight = {.name = "w",
        .ndim = 1,
        .dtype = F8_F32,
        .flavour = F8_STATIC,
        .format = F8_E5M2,
        .static_scale = 1};
    assert_fails(f8_register(group, &weight, 1, NULL, 0), F8_EVERSION,
        "weight w needs flavour.static, which f8gatherd 0.0.0-fake");
    f8_close(client);
    fake_stop(&daemon);
}
END_TEST

START_TEST(bad_buckets)
{
    struct one_rank rank;
    const struct f8_weight_desc weights[2] = {good_weight, good_weight};
    one_rank_join(&rank, 2);
    struct f8_bucket_desc buckets[2] = {{"a", 0, 2, 0}, {"b", 1, 1, 0}};
    assert_fails(f8_register(rank.group, weights, 2, buckets, 2), F8_EINVAL,
        "weight 1 is in bucket a and in bucket b");
    buckets[0].count = 3;
    assert_fails(f8_register(rank.group, weights, 2, buckets, 1), F8_EINVAL,
        "bucket a has weights 0 to 3 (not included), but 2 are registered");
    buckets[0].count = 0;
    assert_fails(f8_register(rank.group, weights, 2, buckets, 1), F8_EINVAL, "bucket a");
    buckets[0].name = "";
    assert_fails(f8_register(rank.group, weights, 2, buckets, 1), F8_EINVAL, "name is missing");
    assert_fails(f8_register(rank.group, NULL, 2, NULL, 0), F8_EINVAL, "NULL");
    one_rank_stop(&rank);
}
END_TEST

/* A refused registration leaves nothing: the same indices can be registered again. */
START_TEST(refused_registration_is_forgotten)
{
    struct one_rank rank;
    const struct f8_bucket_desc buckets[2] = {{"a", 0, 1, 0}, {"b", 1, 1, 0}};
    one_rank_join(&rank, 2);
    rank.daemon.fail_status = F8_EEXIST;
    rank.daemon.fail_body = F8__REQUEST__BODY_REGISTER;
    assert_fails(
        f8_register(rank.group, &good_weight, 1, buckets, 1), F8_EEXIST, "refused by the test");
    rank.daemon.fail_body = 0;
    ck_assert_int_eq(f8_register(rank.group, &good_weight, 1, buckets, 1), F8_OK);
    ck_assert_int_eq(f8_register(rank.group, &good_weight, 1, buckets + 1, 1), F8_OK);
    one_rank_stop(&rank);
}
END_TEST

START_TEST(region_of_another_client)
{
    struct one_rank rank, other;
    struct f8_region *region;
    void *address;
    one_rank_join(&rank, 1);
    one_rank_join(&other, 1);
    ck_assert_int_eq(f8_region_alloc(other.client, 64, &region, &address), F8_OK);
    struct f8_weight_desc weight = good_weight;
    weight.region = region;
    assert_fails(
        f8_register(rank.group, &weight, 1, NULL, 0), F8_EREGION, "region of another client");
    one_rank_stop(&other);
    one_rank_stop(&rank);
}
END_TEST

/* ---- fork ---- */

/* In the child: every call is refused, closing frees; 0 if so. */
static int child_result(struct one_rank *rank)
{
    struct f8_traffic traffic;
    struct f8_view view = {.data = NULL};
    if (f8_gather(rank->group, EMBED, 0, NULL) != F8_EFORKED)
        return 1;
    if (f8_release(rank->group, LAYER_0, NULL) != F8_EFORKED)
        return 2;
    if (f8_traffic_read(rank->client, &traffic) != F8_EFORKED)
        return 3;
    if (f8_view_check(rank->group, &view) != F8_EFORKED)
        return 4;
    if (!strstr(f8_error_text(), "child"))
        return 5;
    f8_close(rank->client);
    return 0;
}

START_TEST(forked_child_is_refused)
{
    struct one_rank rank;
    struct f8_view views[2];
    int status;
    one_rank_seal(&rank, 1);
    ck_assert_int_eq(f8_gather(rank.group, LAYER_0, 0, NULL), F8_OK);
    ck_assert_int_eq(f8_post_gather(rank.group, LAYER_0, F8_FOREVER, views, 2, NULL), F8_OK);
    pid_t child = fork();
    if (child == 0)
        _exit(child_result(&rank));
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "the child was killed by signal %d", WTERMSIG(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    /* The parent goes on as if nothing had been. */
    ck_assert_int_eq(f8_view_check(rank.group, &views[0]), F8_OK);
    ck_assert_int_eq(((const volatile char *)views[0].data)[0], 0);
    ck_assert_int_eq(f8_release(rank.group, LAYER_0, NULL), F8_OK);
    one_rank_hold(&rank, LAYER_0);
    one_rank_stop(&rank);
}
END_TEST

/* A child that lives on does not keep the connection open: the daemon sees f8_close at once. */
START_TEST(close_reaches_the_daemon_past_a_child)
{
    struct one_rank rank;
    int gate[2];
    one_rank_seal(&rank, 1);
    ck_assert_int_eq(pipe(gate), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(gate[1]);
        _exit((int)read(gate[0], &byte, 1));
    }
    one_rank_stop(&rank); /* joins the daemon's thread, which waits for the end */
    close(gate[0]);
    close(gate[1]);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

/* ---- the example ---- */

START_TEST(example_trainer_runs)
{
    struct fake_daemon daemon;
    fake_start(&daemon, fake_serve);
    daemon.arena = memfd_create("arena", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(daemon.arena, 1 << 20), 0);
    char *const arguments[] = {(char *)(uintptr_t)F8_TRAINER, (char *)(uintptr_t) "0",
        (char *)(uintptr_t) "2", daemon.socket, NULL};
    pid_t child;
    int status;
    ck_assert_int_eq(posix_spawn(&child, F8_TRAINER, NULL, NULL, arguments, environ), 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    fake_stop(&daemon);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(daemon.counts[F8__REQUEST__BODY_PRECOMPUTE], 3);
    ck_assert_int_eq(
        daemon.counts[F8__REQUEST__BODY_GATHER], daemon.counts[F8__REQUEST__BODY_RELEASE]);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("client");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, connect_needs_a_job);
    tcase_add_test(tcase, null_handles);
    tcase_add_test(tcase, join_checks_rank);
    tcase_add_test(tcase, region_alloc_gives_aligned_zeros);
    tcase_add_test(tcase, region_share_says_what_is_wrong);
    tcase_add_test(tcase, many_weights_in_few_packets);
    tcase_add_loop_test(tcase, bad_weights, 0, 8);
    tcase_add_test(tcase, what_the_daemon_lacks);
    tcase_add_test(tcase, bad_buckets);
    tcase_add_test(tcase, refused_registration_is_forgotten);
    tcase_add_test(tcase, region_of_another_client);
    tcase_add_test(tcase, forked_child_is_refused);
    tcase_add_test(tcase, close_reaches_the_daemon_past_a_child);
    tcase_add_test(tcase, example_trainer_runs);
    return run_suite("client", tcase);
}
