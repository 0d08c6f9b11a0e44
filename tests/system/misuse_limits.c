/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse: more than is configured, and what belongs to others. */
#include <check.h>
#include <grp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol.h"
#include "system/misuse.h"

#define STRANGER 65534

static int connect_to(
    const struct scene *scene, const char *job, const char *token, struct f8_client **ret_client)
{
    const struct f8_connect_options options = {
        .socket = scene->daemon.socket, .job = job, .token = token};
    return f8_connect(&options, ret_client);
}

/* ---- limits ---- */

static void connections(struct scene *scene)
{
    struct f8_client *client;
    scene_note(scene, connect_to(scene, "run", NULL, &client));
}

static void jobs(struct scene *scene)
{
    struct f8_client *client;
    scene_note(scene, connect_to(scene, "other", NULL, &client));
    ck_assert_int_eq(connect_to(scene, "run", NULL, &client), F8_OK);
    f8_close(client);
}

static void world_size(struct scene *scene)
{
    struct f8_group *group;
    scene_note(scene, f8_group_join(scene->ranks[0].client, "dp", 0, 3, &group));
}

static void groups(struct scene *scene)
{
    struct f8_group *group;
    scene_note(scene, f8_group_join(scene->ranks[0].client, "tp", 0, 2, &group));
    scene_note(scene, f8_group_join(scene->ranks[1].client, "tp", 0, 2, &group));
}

static void regions(struct scene *scene)
{
    struct f8_region *region, *second;
    void *memory;
    struct f8_client *client = scene->ranks[0].client;
    ck_assert_int_eq(f8_region_alloc(client, 1, &region, &memory), F8_OK);
    ck_assert_int_eq(f8_region_alloc(client, 1, &second, &memory), F8_OK);
    scene_note(scene, f8_region_alloc(client, 1, &second, &memory));
    ck_assert_int_eq(f8_region_free(region), F8_OK);
    ck_assert_int_eq(f8_region_alloc(client, 1, &second, &memory), F8_OK);
}

static void weights(struct scene *scene)
{
    struct f8_weight_desc descs[RANK_WEIGHTS];
    struct f8_bucket_desc buckets[RANK_BUCKETS];
    struct rank *rank = &scene->ranks[0];
    rank_weights(rank, descs);
    rank_buckets(buckets);
    scene_note(scene, f8_register(rank->group, descs, RANK_WEIGHTS, buckets, RANK_BUCKETS));
    ck_assert_int_eq(f8_register(rank->group, descs, 4, buckets, 2), F8_OK);
}

static void rounds(struct scene *scene)
{
    struct rank *rank = &scene->ranks[0];
    ck_assert_int_eq(f8_gather(rank->group, EMBED, 0, rank->stream), F8_OK);
    ck_assert_int_eq(f8_gather(rank->group, LAYER_0, 0, rank->stream), F8_OK);
    scene_note(scene, rank_gather(rank, LAYER_1, 0));
}

/* ---- tokens ---- */

static void tokens(struct scene *scene)
{
    struct f8_client *first, *second;
    ck_assert_int_eq(connect_to(scene, "secret", "open sesame", &first), F8_OK);
    ck_assert_int_eq(connect_to(scene, "secret", "open sesame", &second), F8_OK);
    f8_close(second);
    scene_note(scene, connect_to(scene, "secret", "open barley", &second));
    scene_note(scene, connect_to(scene, "secret", "", &second));
    scene_note(scene, connect_to(scene, "secret", NULL, &second));
    f8_close(first);
}

/* ---- another uid ---- */

/* A child of another uid, in the socket's group, and where its outcome goes. */
struct stranger {
    const struct scene *scene; /* borrowed: from the row */
    struct outcome (*act)(const struct scene *scene);
    struct outcome *outcome; /* owned: a shared mapping */
};

static int run_stranger(void *argument)
{
    struct stranger *stranger = argument;
    const gid_t groups[] = {getegid()}; /* that of the socket */
    if (setgroups(1, groups) != 0 || setgid(STRANGER) != 0 || setuid(STRANGER) != 0)
        return EXIT_FAILURE;
    *stranger->outcome = stranger->act(stranger->scene);
    return EXIT_SUCCESS;
}

static void as_stranger(struct scene *scene, struct outcome (*act)(const struct scene *scene))
{
    if (geteuid() != 0) {
        scene->skipped = "only root can become another uid";
        return;
    }
    struct stranger stranger = {.scene = scene, .act = act};
    stranger.outcome = mmap(
        NULL, sizeof(*stranger.outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(stranger.outcome, MAP_FAILED);
    ck_assert_int_eq(chmod(scene->daemon.directory, 0711), 0);
    ck_assert_int_eq(test_wait(test_fork(run_stranger, &stranger)), EXIT_SUCCESS);
    scene->outcomes[scene->num_outcomes++] = *stranger.outcome;
    (void)munmap(stranger.outcome, sizeof(*stranger.outcome));
}

/* The same job and group by name, and yet another: the rank is free and the world another. */
static struct outcome join_the_same_name(const struct scene *scene)
{
    struct f8_client *client;
    struct f8_group *group;
    int status = connect_to(scene, "run", NULL, &client);
    if (status != F8_OK)
        return outcome_of(status);
    struct outcome outcome = outcome_of(f8_group_join(client, "dp", 0, 3, &group));
    f8_close(client);
    return outcome;
}

static void other_uids_job(struct scene *scene)
{
    as_stranger(scene, join_the_same_name);
}

static struct outcome ask_as_operator(const struct scene *scene)
{
    struct raw_client raw;
    F8__Hello hello = F8__HELLO__INIT;
    F8__Request request = F8__REQUEST__INIT;
    hello.major = F8_PROTO_MAJOR;
    hello.role = F8__ROLE__ADMIN;
    request.body_case = F8__REQUEST__BODY_HELLO;
    request.hello = &hello;
    raw_open(&raw, &scene->daemon);
    struct outcome outcome = raw_try(&raw, &request, NULL, 0);
    raw_close(&raw);
    return outcome;
}

static void other_uids_operator(struct scene *scene)
{
    as_stranger(scene, ask_as_operator);
}

static const struct misuse rows[] = {
    {"too many connections", CONNECTED, connections, F8_ELIMIT,
        "did not take the connection: the daemon has 2 connections, the limit (--max-connections)",
        {"--max-connections", "2"}},
    {"too many jobs", CONNECTED, jobs, F8_ELIMIT,
        "job other is one more than the limit of 1 jobs (--max-jobs)", {"--max-jobs", "1"}},
    {"too many ranks", CONNECTED, world_size, F8_EINVAL,
        "group dp: world size 3 is not from 1 to 2 (--max-ranks)", {"--max-ranks", "2"}},
    {"too many groups", JOINED, groups, F8_ELIMIT,
        "group tp is one more than the limit of 1 groups of one client (--max-groups)",
        {"--max-groups", "1"}},
    {"too many regions", CONNECTED, regions, F8_ELIMIT,
        "this client has 2 regions, the limit (--max-regions)", {"--max-regions", "2"}},
    {"too many weights", JOINED, weights, F8_ELIMIT,
        "weight layers.1.weight is one more than the limit of 4 weights (--max-weights)",
        {"--max-weights", "4"}},
    {"too many rounds", SEALED, rounds, F8_ELIMIT,
        "rank 0 is 2 collectives ahead of another rank of group dp, the limit (--max-rounds)",
        {"--max-rounds", "2"}},
    {"wrong token", DAEMON_ONLY, tokens, F8_EPERM,
        "job secret has another token than the one given: it belongs to another run", {0}},
    {"another uid's job of the same name", JOINED, other_uids_job, F8_OK, "", {0}},
    {"operator of another uid", JOINED, other_uids_operator, F8_EPERM,
        "uid 65534 may not inspect or administer this daemon: it takes root, the daemon's own uid, "
        "or membership of its admin-group, which is not set",
        {0}},
};

const struct misuse_table misuse_limits = MISUSE_TABLE("limits", rows);
