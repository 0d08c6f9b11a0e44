/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs, groups, members and accounts: who finds which job, who may enter, what is charged to whom
 * and how a refusal names the holders, and when each object ends.
 */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/registry.h"
#include "tests/lib/suite.h"

#define MIB ((uint64_t)1 << 20)

static const struct config config = {.max_jobs = 3, .memory_per_uid = 10 * MIB};
static struct registry *registry;
static struct reason reason;

static void set_up(void)
{
    registry = registry_new(&config);
    reason.text[0] = '\0';
}

/* All must be gone by then. */
static void tear_down(void)
{
    ck_assert_ptr_null(registry_jobs(registry));
    registry_free(registry);
}

static int enter_with(uid_t uid, const char *name, const char *token, struct job **ret_job)
{
    return registry_enter_job(
        registry, uid, name, (const uint8_t *)token, strlen(token), 5, ret_job, &reason);
}

static struct job *enter(uid_t uid, const char *name)
{
    struct job *job = NULL;
    ck_assert_msg(enter_with(uid, name, "", &job) == F8_OK, "%s", reason.text);
    return job;
}

static void assert_has(const char *part)
{
    ck_assert_msg(strstr(reason.text, part), "\"%s\" lacks \"%s\"", reason.text, part);
}

static struct registry_totals totals(void)
{
    struct registry_totals result;
    registry_count(registry, &result);
    return result;
}

/* ---- Jobs ---- */

START_TEST(jobs_are_of_a_uid_and_a_name)
{
    struct job *a = enter(1, "train"), *same = enter(1, "train");
    struct job *other_uid = enter(2, "train"), *other_name = enter(1, "eval");
    ck_assert_ptr_eq(a, same);
    ck_assert_uint_eq(a->clients, 2);
    ck_assert_ptr_ne(a, other_uid);
    ck_assert_ptr_ne(a, other_name);
    ck_assert_uint_ne(a->id, other_uid->id);
    ck_assert_uint_eq(a->opened, 5);
    ck_assert_uint_eq(totals().jobs, 3);
    registry_leave_job(a);
    ck_assert_uint_eq(totals().jobs, 3);
    registry_leave_job(same);
    ck_assert_uint_eq(totals().jobs, 2);
    registry_leave_job(other_uid);
    registry_leave_job(other_name);
}
END_TEST

START_TEST(tokens_separate_runs)
{
    struct job *job = NULL, *untouched = NULL;
    ck_assert_int_eq(enter_with(1, "train", "secret", &job), F8_OK);
    static const char *const wrong[] = {"", "secreT", "secre", "secrets"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_int_eq(enter_with(1, "train", wrong[i], &untouched), F8_EPERM);
        assert_has("job train has another token than the one given");
        ck_assert_ptr_null(untouched);
    }
    ck_assert_uint_eq(job->clients, 1);
    ck_assert_int_eq(enter_with(1, "train", "secret", &job), F8_OK);
    registry_leave_job(job);
    registry_leave_job(job);
    /* The first joiner of a new run sets a new one. */
    ck_assert_int_eq(enter_with(1, "train", "", &job), F8_OK);
    ck_assert_int_eq(enter_with(1, "train", "secret", &untouched), F8_EPERM);
    registry_leave_job(job);
}
END_TEST

START_TEST(jobs_are_limited)
{
    struct job *jobs[3] = {enter(1, "a"), enter(1, "b"), enter(2, "a")}, *job = NULL;
    ck_assert_int_eq(enter_with(3, "d", "", &job), F8_ELIMIT);
    assert_has("job d is one more than the limit of 3 jobs");
    ck_assert_ptr_null(job);
    ck_assert_ptr_eq(enter(1, "a"), jobs[0]); /* an old one takes more clients */
    registry_leave_job(jobs[0]);
    registry_leave_job(jobs[1]);
    jobs[1] = enter(3, "d");
    for (int i = 0; i < 3; i++)
        registry_leave_job(jobs[i]);
}
END_TEST

/* ---- Accounts ---- */

START_TEST(charges_are_of_the_uid)
{
    struct job *a = enter(1, "a"), *b = enter(1, "b"), *other = enter(2, "a");
    ck_assert_int_eq(registry_charge_region(a, "the region", 4 * MIB, &reason), F8_OK);
    ck_assert_int_eq(registry_charge_arena(b, "the arena of group g", 5 * MIB, &reason), F8_OK);
    ck_assert_int_eq(registry_charge_region(a, "the region", MIB + 1, &reason), F8_ELIMIT);
    assert_has("the region needs 1.0 MiB, but uid 1 holds 9.0 MiB of its 10.0 MiB "
               "(--memory-per-uid)");
    assert_has("; job a holds regions of 4.0 MiB and arenas of 0.0 MiB");
    assert_has("; job b holds regions of 0.0 MiB and arenas of 5.0 MiB");
    ck_assert_int_eq(registry_charge_region(other, "the region", 10 * MIB, &reason), F8_OK);
    ck_assert_int_eq(registry_charge_region(a, "the region", MIB, &reason), F8_OK);
    ck_assert_int_eq(registry_charge_arena(a, "the arena", 1, &reason), F8_ELIMIT);
    ck_assert_int_eq(registry_charge_arena(a, "the arena", UINT64_MAX, &reason), F8_ELIMIT);
    ck_assert_uint_eq(totals().region_bytes, 15 * MIB);
    ck_assert_uint_eq(totals().arena_bytes, 5 * MIB);
    registry_discharge_region(a, 5 * MIB);
    registry_discharge_region(other, 10 * MIB);
    ck_assert_int_eq(registry_charge_arena(a, "the arena", 5 * MIB, &reason), F8_OK);
    registry_discharge_arena(a, 5 * MIB);
    registry_discharge_arena(b, 5 * MIB);
    ck_assert_uint_eq(totals().region_bytes + totals().arena_bytes, 0);
    registry_leave_job(a);
    registry_leave_job(b);
    registry_leave_job(other);
}
END_TEST

START_TEST(long_refusals_are_cut)
{
    char names[3][240];
    struct job *jobs[3];
    for (int i = 0; i < 3; i++) {
        memset(names[i], 'a' + i, sizeof(names[i]) - 1);
        names[i][sizeof(names[i]) - 1] = '\0';
        jobs[i] = enter(1, names[i]);
        ck_assert_int_eq(registry_charge_region(jobs[i], "the region", MIB, &reason), F8_OK);
    }
    ck_assert_int_eq(registry_charge_region(jobs[0], "the region", 8 * MIB, &reason), F8_ELIMIT);
    ck_assert_uint_eq(strlen(reason.text), REASON_SIZE - 1);
    for (int i = 0; i < 3; i++) {
        registry_discharge_region(jobs[i], MIB);
        registry_leave_job(jobs[i]);
    }
}
END_TEST

/* ---- Groups and members ---- */

START_TEST(job_lives_as_long_as_its_groups)
{
    struct job *job = enter(1, "train");
    struct group *group = registry_add_group(job, "dp", 2);
    ck_assert_uint_eq(group->generation, 1);
    ck_assert_int_eq(group->state, GROUP_FORMING);
    ck_assert_ptr_eq(registry_find_group(job, "dp"), group);
    ck_assert_ptr_null(registry_find_group(job, "tp"));
    registry_leave_job(job);
    ck_assert_uint_eq(totals().jobs, 1);
    ck_assert_uint_eq(totals().groups, 1);
    ck_assert_ptr_eq(enter(1, "train"), job); /* comes back to the same job */
    registry_free_group(group);
    ck_assert_uint_eq(totals().groups, 0);
    ck_assert_uint_eq(totals().jobs, 1);
    registry_leave_job(job);
    ck_assert_uint_eq(totals().jobs, 0);
}
END_TEST

START_TEST(group_ends_a_job_without_clients)
{
    struct job *job = enter(1, "train");
    struct group *first = registry_add_group(job, "a", 1),
                 *second = registry_add_group(job, "b", 1);
    ck_assert_uint_ne(first->id, second->id);
    registry_leave_job(job);
    registry_free_group(first);
    ck_assert_uint_eq(totals().jobs, 1);
    registry_free_group(second);
    ck_assert_uint_eq(totals().jobs, 0);
}
END_TEST

START_TEST(freed_group_gives_its_arena_back)
{
    struct job *job = enter(1, "train");
    struct group *group = registry_add_group(job, "dp", 2);
    ck_assert_int_eq(registry_charge_arena(job, "the arena", 8192, &reason), F8_OK);
    group->arena_bytes = 8192;
    ck_assert_int_eq(arena_create(8192, &group->arena, &reason), F8_OK);
    registry_free_group(group);
    ck_assert_uint_eq(totals().arena_bytes, 0);
    registry_leave_job(job);
}
END_TEST

static struct region *map_region(void)
{
    struct region *region = NULL;
    int fd = memfd_create("f8-registry-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, 4096), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    ck_assert_int_eq(region_map(fd, &region, &reason), F8_OK);
    (void)close(fd);
    return region;
}

static void add_weight(struct member *member, const char *name)
{
    struct weight weight = {
        .ndim = 1, .shape = {4}, .dtype = F8_PROTO_F32, .flavour = F8_PROTO_RAW};
    ck_assert_int_eq(member_reserve(member, member->list->num_weights + 1), F8_OK);
    ck_assert_int_eq(weights_add(member->list, name, &weight, 100, &reason), F8_OK);
}

START_TEST(departed_members_keep_their_shards)
{
    struct job *job = enter(1, "train");
    struct group *group = registry_add_group(job, "dp", 2);
    struct region *region = map_region();
    int session;
    struct member *member = group_add_member(group, 1, 4711, &session);
    ck_assert_ptr_eq(group->members[1], member);
    ck_assert(!group_is_empty(group));
    ck_assert_uint_eq(group_present(group), 1);
    add_weight(member, "w");
    ck_assert_ptr_null(member_weight_in(member, region));
    member_set_shard(member, 0, region, 16);
    member_set_shard(member, 0, region, 32);
    ck_assert_uint_eq(region->refs, 2);
    ck_assert_str_eq(member_weight_in(member, region), "w");

    group_remove_member(member);
    ck_assert(group_is_empty(group));
    ck_assert_ptr_eq(group->departed, member);
    ck_assert_ptr_null(member->session);
    ck_assert_uint_eq(region->refs, 2);
    ck_assert_ptr_nonnull(group_add_member(group, 1, 4712, &session)); /* the seat is free */
    group_bury(group);
    ck_assert_ptr_null(group->departed);
    ck_assert_uint_eq(region->refs, 1);
    group_remove_member(group->members[1]);
    registry_free_group(group); /* buries who is left */
    region_unref(region);
    registry_leave_job(job);
}
END_TEST

START_TEST(room_for_shards_grows_zeroed)
{
    struct job *job = enter(1, "train");
    struct group *group = registry_add_group(job, "dp", 1);
    struct member *member = group_add_member(group, 0, 1, NULL);
    for (uint32_t count = 1; count < 300; count++) {
        ck_assert_int_eq(member_reserve(member, count), F8_OK);
        ck_assert_ptr_null(member->shards[count - 1].region);
        ck_assert_uint_eq(member->versions[count - 1], SCALING_VERSION_UNKNOWN);
        member->versions[count - 1] = count;
    }
    for (uint32_t w = 0; w < 299; w++)
        ck_assert_uint_eq(member->versions[w], w + 1);
    group->generation++;
    ck_assert_uint_eq(group_present(group), 0); /* a member of the generation before */
    group_remove_member(member);
    registry_free_group(group);
    registry_leave_job(job);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("registry");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, jobs_are_of_a_uid_and_a_name);
    tcase_add_test(tcase, tokens_separate_runs);
    tcase_add_test(tcase, jobs_are_limited);
    tcase_add_test(tcase, charges_are_of_the_uid);
    tcase_add_test(tcase, long_refusals_are_cut);
    tcase_add_test(tcase, job_lives_as_long_as_its_groups);
    tcase_add_test(tcase, group_ends_a_job_without_clients);
    tcase_add_test(tcase, freed_group_gives_its_arena_back);
    tcase_add_test(tcase, departed_members_keep_their_shards);
    tcase_add_test(tcase, room_for_shards_grows_zeroed);
    return run_suite("registry", tcase);
}
