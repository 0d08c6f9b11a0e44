/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States that come and go as bytes: exported by a rank or an operator, imported in a seal or by an
 * operator, and refused by name. A real daemon.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "lib/admin_link.h"
#include "lib/state_rank.h"
#include "lib/suite.h"

static struct test_daemon host;

static void set_up(void)
{
    test_daemon_start(&host, NULL);
}

static void tear_down(void)
{
    test_daemon_drop_states(&host);
    test_daemon_stop(&host);
}

static int import(struct state_rank *rank, const void *bytes, size_t size)
{
    const struct f8_seal_options options = {
        .state = F8_STATE_IMPORT, .import = bytes, .import_size = size};
    return f8_seal(rank->group, &options);
}

/* The header's checksum is right: it is another release's, and not damaged. */
static void set_version(uint8_t *bytes, uint32_t version)
{
    uint32_t head, crc = 0;
    memcpy(&head, bytes + 16, sizeof(head));
    memcpy(bytes + 8, &version, sizeof(version));
    memcpy(bytes + 12, &crc, sizeof(crc));
    crc = (uint32_t)crc32(0, bytes, head);
    memcpy(bytes + 12, &crc, sizeof(crc));
}

START_TEST(import_is_what_was_exported)
{
    struct state_rank rank;
    void *bytes, *again;
    size_t size, size_again;
    state_rank_leave(&host, "secret");
    state_rank_join(&host, &rank, &(struct state_setup){.token = "secret"});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 3));
    state_rank_well(f8_export(rank.group, &bytes, &size));
    state_rank_step(&rank, 9);
    state_rank_close(&rank);
    state_rank_join(&host, &rank, &(struct state_setup){.token = "secret"});
    ((uint8_t *)bytes)[size - 1] ^= 1;
    ck_assert_int_eq(import(&rank, bytes, size), F8_EINVAL);
    ck_assert_ptr_nonnull(strstr(f8_error_text(), "the import of group dp is damaged"));
    ((uint8_t *)bytes)[size - 1] ^= 1;
    set_version(bytes, 2);
    state_rank_well(f8_group_rejoin(rank.group));
    ck_assert_int_eq(import(&rank, bytes, size), F8_EVERSION);
    ck_assert_ptr_nonnull(strstr(f8_error_text(), "has format version 2"));
    set_version(bytes, 1);
    state_rank_well(f8_group_rejoin(rank.group));
    state_rank_well(import(&rank, bytes, size));
    ck_assert_uint_eq(state_rank_syncs(&rank), 3);
    state_rank_well(f8_export(rank.group, &again, &size_again));
    ck_assert_uint_eq(size, size_again);
    ck_assert_mem_eq(bytes, again, size);
    state_rank_close(&rank);
    free(bytes);
    free(again);
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

/* Puts a scale into the first weight of an export, with checksums that are right. */
static void set_scale(uint8_t *bytes, size_t size, uint32_t scale)
{
    uint32_t head, crc;
    memcpy(&head, bytes + 16, sizeof(head));
    memcpy(bytes + head + 16, &scale, sizeof(scale));
    crc = (uint32_t)crc32(0, bytes + head + 4, (uInt)(size - head - 4));
    memcpy(bytes + head, &crc, sizeof(crc));
}

/* Neither a seal nor an operator stores a scale that no cast can use. */
START_TEST(a_scale_of_no_use_is_refused)
{
    struct state_rank rank;
    uint8_t bytes[4096];
    int fd, link = admin_link_open(&host, F8__ROLE__ADMIN, "");
    state_rank_leave(&host, NULL);
    F8__Reply *reply = ask_export(link, "dp", &fd);
    size_t size = reply->export->size;
    f8__reply__free_unpacked(reply, NULL);
    ck_assert_int_eq(pread(fd, bytes, sizeof(bytes), 0), (ssize_t)size);
    set_scale(bytes, size, 0x7fc00000);
    int forged = admin_link_memfd(bytes, size);
    expect(ask_import(link, "dp", forged), F8_EINVAL, "with scale nan (bits 0x7fc00000)");
    state_rank_join(&host, &rank, &(struct state_setup){0});
    ck_assert_int_eq(import(&rank, bytes, size), F8_EINVAL);
    ck_assert_ptr_nonnull(strstr(f8_error_text(), "the import of group dp has weight "));
    state_rank_close(&rank);
    (void)close(forged);
    (void)close(fd);
    (void)close(link);
}
END_TEST

/* The rank's state as it is exported, which must be that of before, unless that is NULL. */
static uint8_t *export_same(const struct state_rank *rank, uint8_t *before, size_t *size)
{
    void *bytes;
    size_t before_size = *size;
    state_rank_well(f8_export(rank->group, &bytes, size));
    if (before) {
        ck_assert_uint_eq(*size, before_size);
        ck_assert_mem_eq(bytes, before, *size);
        free(before);
    }
    return bytes;
}

static uint32_t scale_of(const uint8_t *bytes)
{
    uint32_t head, scale;
    memcpy(&head, bytes + 16, sizeof(head));
    memcpy(&scale, bytes + head + 16, sizeof(scale));
    return scale;
}

/* Seeds as none should be, and the scales that they give; both are kept by the syncs after them. */
static const struct {
    float amax;
    uint32_t scale;
} seeds[] = {{NAN, 0x7fc00000}, {INFINITY, 0}};

/* Such a state is a state: it outlives a killed daemon, and comes back from an export. */
START_TEST(an_unsound_seed_comes_back)
{
    struct state_rank rank;
    uint8_t *bytes;
    size_t size = 0;
    int link, fd;
    state_rank_join(&host, &rank, &(struct state_setup){.history = 2});
    state_rank_well(state_rank_seal(&rank, F8_STATE_FRESH, 0));
    for (int i = 0; i < _i / 2 * 2 + 1; i++) /* its amax has left the window after two more */
        state_rank_step(&rank, i > 0 ? 0 : seeds[_i % 2].amax);
    bytes = export_same(&rank, NULL, &size);
    ck_assert_uint_eq(scale_of(bytes), seeds[_i % 2].scale);
    test_daemon_kill(&host);
    test_daemon_restart(&host, NULL);
    state_rank_close(&rank);
    state_rank_join(&host, &rank, &(struct state_setup){.history = 2});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, F8_ANY_SYNCS));
    bytes = export_same(&rank, bytes, &size);
    state_rank_close(&rank);
    link = admin_link_open(&host, F8__ROLE__ADMIN, "");
    fd = admin_link_memfd(bytes, size);
    expect(ask_import(link, "dp", fd), F8_OK, "");
    state_rank_join(&host, &rank, &(struct state_setup){.history = 2});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, F8_ANY_SYNCS));
    bytes = export_same(&rank, bytes, &size);
    state_rank_close(&rank);
    state_rank_join(&host, &rank, &(struct state_setup){.history = 2});
    state_rank_well(import(&rank, bytes, size));
    bytes = export_same(&rank, bytes, &size);
    state_rank_step(&rank, 2); /* sound again */
    free(bytes);
    bytes = export_same(&rank, NULL, &size);
    ck_assert_uint_eq(scale_of(bytes), 0x43600000); /* 448 / 2 */
    free(bytes);
    state_rank_close(&rank);
    (void)close(fd);
    (void)close(link);
}
END_TEST

START_TEST(operators_export_and_import)
{
    struct state_rank rank;
    uint8_t bytes[4096];
    int link = admin_link_open(&host, F8__ROLE__ADMIN, ""), fd, copy;
    expect(ask_export(link, "dp", &fd), F8_ENOENT, "nothing is stored for job x, group dp of uid");
    state_rank_leave(&host, "secret");
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
    state_rank_join(&host, &rank, &(struct state_setup){.token = "secret"});
    expect(ask_import(link, "dp", fd), F8_EBUSY, "group dp of job x has members");
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 3));
    expect(ask_import(link, "dp", fd), F8_EBUSY, "group dp of job x has members");
    state_rank_close(&rank);
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
    struct state_rank rank;
    int fd, link = admin_link_open(&host, F8__ROLE__ADMIN, "");
    state_rank_leave(&host, NULL);
    f8__reply__free_unpacked(ask_export(link, "dp", &fd), NULL);
    test_daemon_kill(&host);
    test_daemon_drop_states(&host);
    test_daemon_restart(&host, NULL);
    (void)close(link);
    link = admin_link_open(&host, F8__ROLE__ADMIN, "");
    expect(ask_import(link, "dp", fd), F8_OK, "");
    state_rank_join(&host, &rank, &(struct state_setup){.token = "mine"});
    state_rank_well(state_rank_seal(&rank, F8_STATE_CONTINUE, 3));
    state_rank_close(&rank);
    state_rank_join(&host, &rank, &(struct state_setup){.token = "yours"});
    ck_assert_int_eq(state_rank_seal(&rank, F8_STATE_CONTINUE, 3), F8_EPERM);
    state_rank_close(&rank);
    (void)close(fd);
    (void)close(link);
}
END_TEST

START_TEST(trainers_do_not_import)
{
    int link = admin_link_open(&host, F8__ROLE__TRAINER, "x");
    expect(ask_import(link, "dp", -1), F8_EPERM, "may not inspect, import or administer");
    (void)close(link);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("processes");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, import_is_what_was_exported);
    tcase_add_test(tcase, a_scale_of_no_use_is_refused);
    tcase_add_loop_test(tcase, an_unsound_seed_comes_back, 0, 4);
    tcase_add_test(tcase, operators_export_and_import);
    tcase_add_test(tcase, first_to_continue_takes_an_import_over);
    tcase_add_test(tcase, trainers_do_not_import);
    return run_suite("state_import", tcase);
}
