/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl export and import against a fake daemon: what is asked for, what is written and sent, that
 * a file is there whole or not at all, and exit statuses.
 */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/ctl_fake.h"
#include "lib/suite.h"

#define SIZE 200000 /* more than a buffer */
#define TEXT 4096

static char directory[64], file[96], text[TEXT];
static char terminal[SIZE + TEXT];
static uint8_t state[SIZE];

/* How the fake daemon answers. */
static enum {
    WILLING,
    REFUSES,
    SILENT,
    SHORT,   /* says that the export is larger than it is */
    WITHOUT, /* answers an export with something else */
    KEEPS_NOTHING,
    KEEPS_SILENT, /* does not tell for how long */
} manner;

/* What it was asked. */
static char asked_job[64], asked_group[64];
static uint32_t asked_uid;
static uint8_t imported[SIZE + 1];
static ssize_t imported_size;
static int imported_seals;

static int make_state(void)
{
    int memfd = memfd_create("state", MFD_CLOEXEC);
    ck_assert_int_eq(write(memfd, state, SIZE), SIZE);
    return memfd;
}

static bool answer_export(int fd, const F8__Request *request)
{
    F8__Reply reply = F8__REPLY__INIT;
    F8__ExportReply export = F8__EXPORT_REPLY__INIT;
    F8__PingReply ping = F8__PING_REPLY__INIT;
    int memfd = make_state();
    reply.id = request->id;
    reply.body_case = F8__REPLY__BODY_EXPORT;
    reply.export = &export;
    export.size = manner == SHORT ? SIZE + 1 : SIZE;
    export.syncs = 42;
    if (manner == WITHOUT) {
        reply.body_case = F8__REPLY__BODY_PING;
        reply.ping = &ping;
    }
    bool sent = fake_reply(fd, &reply, manner == WITHOUT ? -1 : memfd);
    (void)close(memfd);
    return sent;
}

static void note(const char *job, uint32_t uid, const char *group)
{
    (void)snprintf(asked_job, sizeof(asked_job), "%s", job);
    (void)snprintf(asked_group, sizeof(asked_group), "%s", group);
    asked_uid = uid;
}

/* The job's states, and those of a namesake of another uid; none if nothing is kept. */
static bool answer_jobs(int fd, const F8__Request *request)
{
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;
    F8__JobInfo jobs[] = {F8__JOB_INFO__INIT, F8__JOB_INFO__INIT};
    F8__JobInfo *list[] = {&jobs[0], &jobs[1]};
    jobs[0].name = jobs[1].name = (char *)"run";
    jobs[0].uid = 7;
    jobs[0].left_ms = 599500;
    jobs[1].uid = 8;
    jobs[1].left_ms = 1000;
    inspect.jobs = list;
    inspect.n_jobs = manner == KEEPS_NOTHING ? 0 : 2;
    return ctl_fake_inspected(fd, request, &inspect);
}

static bool answer(int fd, const F8__Request *request, int memfd)
{
    if (request->body_case == F8__REQUEST__BODY_INSPECT)
        return manner == KEEPS_SILENT ? fake_reply_status(fd, request->id, F8_EINVAL, "none")
                                      : answer_jobs(fd, request);
    if (request->body_case == F8__REQUEST__BODY_IMPORT) {
        note(request->import->job, request->import->uid, request->import->group_name);
        imported_size = pread(memfd, imported, sizeof(imported), 0);
        imported_seals = fcntl(memfd, F_GET_SEALS);
    } else {
        note(request->export->job, request->export->uid, request->export->group_name);
    }
    if (manner == SILENT)
        return true;
    if (manner == REFUSES)
        return fake_reply_status(fd, request->id, F8_ENOENT, "nothing is stored for it");
    if (request->body_case == F8__REQUEST__BODY_EXPORT)
        return answer_export(fd, request);
    return fake_reply_status(fd, request->id, F8_OK, "");
}

static void ask(const char *arguments, int status)
{
    char all[512];
    (void)snprintf(all, sizeof(all), "%s %s", arguments, file);
    int got = ctl_fake_run(answer, all, text, sizeof(text));
    ck_assert_msg(got == status, "%s: status %d: %s", arguments, got, text);
}

static void assert_says(const char *part)
{
    ck_assert_msg(strstr(text, part), "it says: %s, not: %s", text, part);
}

static void set_up(void)
{
    manner = WILLING;
    for (size_t i = 0; i < SIZE; i++)
        state[i] = (uint8_t)(i * 7 + i / 256);
    (void)strcpy(directory, "/tmp/f8-ctl-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    (void)snprintf(file, sizeof(file), "%s/state", directory);
}

/* Nothing but the file itself may be left in the directory. */
static void tear_down(void)
{
    (void)unlink(file);
    ck_assert_int_eq(rmdir(directory), 0);
}

static size_t read_file(uint8_t *bytes, size_t size)
{
    FILE *stream = fopen(file, "r");
    ck_assert_ptr_nonnull(stream);
    size_t got = fread(bytes, 1, size, stream);
    (void)fclose(stream);
    return got;
}

static void write_file(const void *bytes, size_t size)
{
    FILE *stream = fopen(file, "w");
    ck_assert_ptr_nonnull(stream);
    ck_assert_uint_eq(fwrite(bytes, 1, size, stream), size);
    ck_assert_int_eq(fclose(stream), 0);
}

START_TEST(export_writes_the_file)
{
    static uint8_t written[SIZE + 1];
    struct stat stat;
    char expected[256];
    mode_t mask = umask(0027);
    ask("export run dp@tp=0", 0);
    umask(mask);
    ck_assert_str_eq(asked_job, "run");
    ck_assert_str_eq(asked_group, "dp@tp=0");
    ck_assert_uint_eq(asked_uid, geteuid());
    (void)snprintf(expected, sizeof(expected),
        "wrote %s: 200000 bytes of group dp@tp=0 of job run, uid %u, as of sync 42\n", file,
        (unsigned)geteuid());
    ck_assert_str_eq(text, expected);
    ck_assert_uint_eq(read_file(written, sizeof(written)), SIZE);
    ck_assert_mem_eq(written, state, SIZE);
    ck_assert_int_eq(lstat(file, &stat), 0);
    ck_assert_uint_eq(stat.st_mode & 07777, 0640);
    ck_assert_uint_eq(stat.st_nlink, 1);
}
END_TEST

START_TEST(export_replaces_only_by_force)
{
    static uint8_t written[SIZE + 1];
    write_file("precious", 8);
    ask("export run dp", 1);
    assert_says("/state is there already: --force replaces it\n");
    ck_assert_uint_eq(read_file(written, sizeof(written)), 8);
    ask("--force --uid 4294967295 export run dp", 0);
    ck_assert_uint_eq(asked_uid, UINT32_MAX);
    ck_assert_uint_eq(read_file(written, sizeof(written)), SIZE);
    ck_assert_mem_eq(written, state, SIZE);
}
END_TEST

/* The kind of what is there by that name, which may be a link. */
static mode_t kind_of(const char *name)
{
    struct stat stat;
    ck_assert_int_eq(lstat(name, &stat), 0);
    return stat.st_mode & S_IFMT;
}

START_TEST(force_writes_through_devices)
{
    char home[sizeof(file)];
    (void)strcpy(home, file);
    (void)strcpy(file, "/dev/full");
    ask("export run dp", 1);
    assert_says("/dev/full is a device: --force writes to it");
    ask("--force export run dp", 1);
    assert_says("/dev/full: No space left on device");
    ck_assert_uint_eq(kind_of(file), S_IFCHR);
    (void)strcpy(file, "/dev/null");
    ask("--force export run dp", 0);
    assert_says("wrote /dev/null: 200000 bytes");
    ck_assert_uint_eq(kind_of(file), S_IFCHR);
    (void)strcpy(file, home);
}
END_TEST

/* A reader gets it all, and the FIFO stays. */
START_TEST(force_writes_through_a_fifo)
{
    static uint8_t written[SIZE + 1];
    char command[512];
    ck_assert_int_eq(mkfifo(file, 0600), 0);
    (void)snprintf(command, sizeof(command), "cat %s >%s.read; cat %s.read; rm %s.read", file, file,
        file, file);
    FILE *reader = popen(command, "r");
    ck_assert_ptr_nonnull(reader);
    ask("--force export run dp", 0);
    ck_assert_uint_eq(fread(written, 1, sizeof(written), reader), SIZE);
    ck_assert_mem_eq(written, state, SIZE);
    ck_assert_int_eq(pclose(reader), 0);
    ck_assert_uint_eq(kind_of(file), S_IFIFO);
}
END_TEST

START_TEST(force_follows_links_to_files)
{
    static uint8_t written[SIZE + 1];
    char target[128];
    (void)snprintf(target, sizeof(target), "%s/target", directory);
    ck_assert_int_eq(symlink("target", file), 0);
    ask("--force export run dp", 1);
    assert_says("/state is a symbolic link that leads to no file: No such file or directory");
    ck_assert_int_ne(access(target, F_OK), 0);
    FILE *stream = fopen(target, "w");
    ck_assert_ptr_nonnull(stream);
    ck_assert_int_eq(fclose(stream), 0);
    ask("export run dp", 1);
    assert_says("/state is there already");
    ask("--force export run dp", 0);
    ck_assert_uint_eq(kind_of(file), S_IFLNK);
    ck_assert_uint_eq(kind_of(target), S_IFREG);
    ck_assert_uint_eq(read_file(written, sizeof(written)), SIZE);
    ck_assert_mem_eq(written, state, SIZE);
    ck_assert_int_eq(unlink(target), 0);
}
END_TEST

START_TEST(force_leaves_directories)
{
    ck_assert_int_eq(mkdir(file, 0700), 0);
    ask("--force export run dp", 1);
    assert_says("/state is a directory, and not replaced: name a file");
    ck_assert_int_eq(rmdir(file), 0);
    ck_assert_int_eq(symlink("/dev/null", file), 0);
    ask("--force export run dp", 1);
    assert_says("/state is a symbolic link to /dev/null, which is no regular file");
    ck_assert_uint_eq(kind_of("/dev/null"), S_IFCHR);
}
END_TEST

START_TEST(export_as_json)
{
    ask("--json export run dp", 0);
    json_t *object = json_loads(text, 0, NULL);
    const json_t *export = json_object_get(object, "export");
    ck_assert_int_eq(json_integer_value(json_object_get(export, "syncs")), 42);
    ck_assert_int_eq(json_integer_value(json_object_get(export, "bytes")), SIZE);
    ck_assert_str_eq(json_string_value(json_object_get(export, "file")), file);
    json_decref(object);
}
END_TEST

/* Whatever fails, there is no file, nor a part of one. */
START_TEST(failed_export_leaves_nothing)
{
    manner = REFUSES;
    ask("export run dp", 1);
    ck_assert_str_eq(text, "f8ctl: nothing is stored for it\n");
    manner = SHORT;
    ask("export run dp", 1);
    assert_says("sent an export of 200000 bytes, and says that it has 200001");
    manner = WITHOUT;
    ask("export run dp", 1);
    assert_says("answered an export without one");
    manner = SILENT;
    ask("--timeout 0.05 export run dp", 3);
    ck_assert_int_ne(access(file, F_OK), 0);
    manner = WILLING;
    (void)snprintf(file, sizeof(file), "%s/no/state", directory);
    ask("export run dp", 1);
    assert_says("cannot be made: No such file or directory");
}
END_TEST

START_TEST(import_sends_the_file)
{
    write_file(state, SIZE);
    ask("import run dp --uid 7 --yes", 0);
    assert_says("stored ");
    assert_says("200000 bytes of group dp of job run, uid 7, kept for 9 min 59 s unless a seal "
                "continues it\n");
    ck_assert_str_eq(asked_job, "run");
    ck_assert_str_eq(asked_group, "dp");
    ck_assert_uint_eq(asked_uid, 7);
    ck_assert_int_eq(imported_size, SIZE);
    ck_assert_mem_eq(imported, state, SIZE);
    ck_assert_int_eq(imported_seals, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
}
END_TEST

/* The value of left_ms in what an import says. */
static json_int_t left_of_import(void)
{
    ask("--json import run dp --uid 7 --yes", 0);
    json_t *object = json_loads(text, 0, NULL);
    const json_t *import = json_object_get(object, "import");
    const json_t *left = json_object_get(import, "left_ms");
    ck_assert_int_eq(json_integer_value(json_object_get(import, "bytes")), SIZE);
    ck_assert(json_is_integer(left) || json_is_null(left));
    json_int_t value = json_is_null(left) ? -1 : json_integer_value(left);
    json_decref(object);
    return value;
}

START_TEST(import_says_how_long_it_is_kept)
{
    write_file(state, SIZE);
    ck_assert_int_eq(left_of_import(), 599500);
    manner = KEEPS_NOTHING;
    ask("import run dp --uid 7 --yes", 0);
    assert_says("uid 7, and either continued by a seal already or not kept (--linger 0)\n");
    ck_assert_int_eq(left_of_import(), 0);
    manner = KEEPS_SILENT;
    ask("import run dp --uid 7 --yes", 0);
    assert_says("of job run, uid 7\n");
    ck_assert_int_eq(left_of_import(), -1);
}
END_TEST

START_TEST(import_is_refused)
{
    ask("import run dp --yes", 1);
    assert_says("/state cannot be read: No such file or directory");
    write_file("", 0);
    ask("import run dp --yes", 1);
    assert_says("/state is empty: f8ctl export writes what this reads");
    write_file(state, SIZE);
    manner = REFUSES;
    ask("import run dp --yes", 1);
    ck_assert_str_eq(text, "f8ctl: nothing is stored for it\n");
    manner = SILENT;
    ask("--timeout 0.05 import run dp --yes", 3);
    assert_says("did not answer within 50 ms");
}
END_TEST

/* What has no end, or none yet, is not waited for. */
START_TEST(import_takes_regular_files_only)
{
    ck_assert_int_eq(mkfifo(file, 0600), 0);
    ask("--timeout 1 import run dp --yes", 1);
    assert_says("/state is no regular file: name one that has the state");
    int writer = open(file, O_RDWR | O_CLOEXEC);
    ask("--timeout 1 import run dp --yes", 1);
    assert_says("/state is no regular file");
    (void)close(writer);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(mkdir(file, 0700), 0);
    ask("import run dp --yes", 1);
    assert_says("/state is no regular file");
    ck_assert_int_eq(rmdir(file), 0);
    ck_assert_int_eq(symlink("/dev/zero", file), 0);
    ask("import run dp --yes", 1);
    assert_says("/state is no regular file");
}
END_TEST

/* Bytes for programs would garble what the terminal shows. */
START_TEST(export_spares_the_terminal)
{
    for (size_t i = 0; i < SIZE; i++)
        state[i] = 'x';
    int status =
        ctl_fake_on_terminal(answer, "", "export run dp -", 80, terminal, sizeof(terminal));
    ck_assert_int_eq(status, 2);
    ck_assert_msg(
        strstr(terminal, "standard output is a terminal, and the state is binary"), "%s", terminal);
    ck_assert_ptr_null(strstr(terminal, "xxx"));
    status =
        ctl_fake_on_terminal(answer, "", "--force export run dp -", 80, terminal, sizeof(terminal));
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(strspn(terminal, "x"), SIZE);
    ctl_fake_must(answer, "export run dp -", terminal, sizeof(terminal));
    ck_assert_uint_eq(strspn(terminal, "x"), SIZE);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("ctl_transfer");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, export_writes_the_file);
    tcase_add_test(cases, export_replaces_only_by_force);
    tcase_add_test(cases, force_writes_through_devices);
    tcase_add_test(cases, force_writes_through_a_fifo);
    tcase_add_test(cases, force_follows_links_to_files);
    tcase_add_test(cases, force_leaves_directories);
    tcase_add_test(cases, export_as_json);
    tcase_add_test(cases, failed_export_leaves_nothing);
    tcase_add_test(cases, import_sends_the_file);
    tcase_add_test(cases, import_says_how_long_it_is_kept);
    tcase_add_test(cases, import_is_refused);
    tcase_add_test(cases, import_takes_regular_files_only);
    tcase_add_test(cases, export_spares_the_terminal);
    return run_suite("ctl_transfer", cases);
}
