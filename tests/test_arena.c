/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas: what they promise to the daemon (zeroed, aligned, reserved, not inherited), and that a
 * process which was given the descriptor finds no way to write, grow, shrink or reseal it.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/arena.h"
#include "proto/status.h"
#include "tests/lib/suite.h"

#define HUGE_PAGE (2 << 20)
#define SIZE      (HUGE_PAGE + 3 * 4096) /* a huge page and a tail that is none */

static struct arena *open_arena(void)
{
    struct arena *arena = NULL;
    struct reason reason = {""};
    int r = arena_create(SIZE, &arena, &reason);
    ck_assert_msg(r == F8_OK, "%s", reason.text);
    return arena;
}

static bool is_filled(const uint8_t *data, size_t size, uint8_t byte)
{
    return data[0] == byte && memcmp(data, data + 1, size - 1) == 0;
}

/* ---- Ways to write, tried in a child; each tells whether it was refused ---- */

static uint8_t *map_read_only(int fd)
{
    return mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
}

static int reopen_writable(int fd)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

static bool refuses_shared_writable_mapping(int fd)
{
    return mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED;
}

static bool refuses_mprotect(int fd)
{
    void *data = map_read_only(fd);
    return data != MAP_FAILED && mprotect(data, SIZE, PROT_READ | PROT_WRITE) < 0;
}

static bool refuses_reopened_mapping(int fd)
{
    int again = reopen_writable(fd);
    return again < 0 || refuses_shared_writable_mapping(again);
}

static bool refuses_reopened_write(int fd)
{
    int again = reopen_writable(fd);
    return again < 0 || write(again, "x", 1) < 0;
}

static bool refuses_write(int fd)
{
    return write(fd, "x", 1) < 0;
}

static bool refuses_pwrite(int fd)
{
    return pwrite(fd, "x", 1, SIZE - 1) < 0;
}

static bool refuses_sendfile(int fd)
{
    int source = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    return source >= 0 && sendfile(fd, source, NULL, 64) < 0;
}

static bool refuses_proc_mem(int fd)
{
    uint8_t *data = map_read_only(fd);
    int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    return data != MAP_FAILED && mem >= 0 && pwrite(mem, "x", 1, (off_t)(uintptr_t)data) < 0;
}

/* A private mapping may be written, but what is written stays private. */
static bool keeps_private_writes_private(int fd)
{
    uint8_t *shared = map_read_only(fd);
    uint8_t *copy = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (shared == MAP_FAILED || copy == MAP_FAILED)
        return false;
    memset(copy, 'x', SIZE);
    return is_filled(shared, SIZE, 0);
}

static bool refuses_shrinking(int fd)
{
    return ftruncate(fd, 4096) < 0 && ftruncate(fd, 0) < 0;
}

static bool refuses_growing(int fd)
{
    return ftruncate(fd, 2 * SIZE) < 0 && fallocate(fd, 0, SIZE, 4096) < 0;
}

static bool refuses_punching(int fd)
{
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0;
}

static bool refuses_removal(int fd)
{
    void *data = map_read_only(fd);
    return data != MAP_FAILED && madvise(data, 4096, MADV_REMOVE) < 0;
}

static bool refuses_more_seals(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) < 0;
}

static const struct {
    const char *name;
    bool (*holds)(int fd);
    bool always; /* also on a memfd without seals */
} attempts[] = {
    {"mmap PROT_WRITE MAP_SHARED", refuses_shared_writable_mapping, false},
    {"mprotect of a read-only mapping", refuses_mprotect, false},
    {"mmap after reopening O_RDWR", refuses_reopened_mapping, false},
    {"write after reopening O_RDWR", refuses_reopened_write, false},
    {"write", refuses_write, false},
    {"pwrite", refuses_pwrite, false},
    {"sendfile", refuses_sendfile, false},
    {"/proc/self/mem", refuses_proc_mem, true},
    {"MAP_PRIVATE", keeps_private_writes_private, true},
    {"ftruncate to less", refuses_shrinking, false},
    {"ftruncate to more", refuses_growing, false},
    {"fallocate punching a hole", refuses_punching, false},
    {"MADV_REMOVE", refuses_removal, false},
    {"F_ADD_SEALS", refuses_more_seals, false},
};

#define NUM_ATTEMPTS ((int)(sizeof(attempts) / sizeof(attempts[0])))

/* Whether attempt i is refused to a child that was given fd. */
static bool holds_in_child(int i, int fd)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(attempts[i].holds(fd) ? 0 : 1);
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status), "%s ended the child: %#x", attempts[i].name, (unsigned)status);
    return WEXITSTATUS(status) == 0;
}

START_TEST(nobody_else_can_write)
{
    struct arena *arena = open_arena();
    struct stat st;
    ck_assert_msg(holds_in_child(_i, arena->fd), "%s is not refused", attempts[_i].name);
    ck_assert_int_eq(fstat(arena->fd, &st), 0);
    ck_assert_int_eq(st.st_size, SIZE);
    ck_assert_msg(is_filled(arena->data, SIZE, 0), "%s changed bytes", attempts[_i].name);
    arena_free(arena);
}
END_TEST

/* The attempts themselves are sound: it is the seals that refuse them. */
START_TEST(without_seals_the_attempts_succeed)
{
    int fd = memfd_create("f8-arena-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, SIZE), 0);
    ck_assert_msg(holds_in_child(_i, fd) == attempts[_i].always, "%s tells nothing about the seals",
        attempts[_i].name);
    (void)close(fd);
}
END_TEST

/* ---- What the daemon gets ---- */

START_TEST(zeroed_aligned_and_reserved)
{
    struct arena *arena = open_arena();
    struct stat st;
    ck_assert_uint_eq(arena->size, SIZE);
    ck_assert_uint_eq((uintptr_t)arena->data % HUGE_PAGE, 0);
    ck_assert_int_eq(fstat(arena->fd, &st), 0);
    ck_assert_int_eq(st.st_size, SIZE);
    ck_assert_int_ge(st.st_blocks * 512, SIZE);
    ck_assert(is_filled(arena->data, SIZE, 0));
    ck_assert_int_eq(fcntl(arena->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    ck_assert_int_eq(fcntl(arena->fd, F_GET_SEALS),
        F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
    arena_free(arena);
    arena_free(NULL);
}
END_TEST

/* Runs in the child: waits for the daemon's write, then looks. */
static bool sees_the_write(int fd, int ready, int written)
{
    char byte;
    const uint8_t *data = map_read_only(fd);
    if (data == MAP_FAILED || !is_filled(data, SIZE, 0))
        return false;
    if (write(ready, "r", 1) != 1 || read(written, &byte, 1) != 1)
        return false;
    return is_filled(data, SIZE, 0x5a);
}

START_TEST(daemon_writes_after_the_seal_and_clients_see_it)
{
    struct arena *arena = open_arena();
    int ready[2], written[2], status;
    char byte;
    ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(written, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(written[1]);
        _exit(sees_the_write(arena->fd, ready[1], written[0]) ? 0 : 1);
    }
    (void)close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    memset(arena->data, 0x5a, SIZE);
    ck_assert_int_eq(write(written[1], "w", 1), 1);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    (void)close(ready[0]);
    (void)close(written[0]);
    (void)close(written[1]);
    arena_free(arena);
}
END_TEST

START_TEST(what_was_mapped_before_the_seal_still_writes)
{
    struct arena *arena = NULL;
    struct reason reason = {""};
    ck_assert_int_eq(arena_reserve(SIZE, &arena, &reason), F8_OK);
    ck_assert_int_eq(fcntl(arena->fd, F_GET_SEALS), 0);
    uint8_t *before = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, 0);
    ck_assert_ptr_ne(before, MAP_FAILED);

    ck_assert_int_eq(arena_seal(arena, &reason), F8_OK);
    ck_assert(refuses_shared_writable_mapping(arena->fd));
    memset(before, 0x5a, SIZE);
    ck_assert(is_filled(arena->data, SIZE, 0x5a));
    ck_assert_int_eq(arena_seal(arena, &reason), F8_EINTERNAL);
    ck_assert_ptr_nonnull(strstr(reason.text, "cannot seal an arena of "));
    (void)munmap(before, SIZE);
    arena_free(arena);
}
END_TEST

static int count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;
    while (maps && fgets(line, sizeof(line), maps))
        count += strstr(line, "memfd:f8gather-arena") != NULL;
    return maps && fclose(maps) == 0 ? count : -1;
}

START_TEST(children_do_not_inherit_the_writable_mapping)
{
    struct arena *arena = open_arena();
    int status;
    ck_assert_int_eq(count_mappings(), 1);
    pid_t pid = fork();
    if (pid == 0)
        _exit(count_mappings() == 0 ? 0 : 1);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    arena_free(arena);
    ck_assert_int_eq(count_mappings(), 0);
}
END_TEST

/* ---- Shortage ---- */

static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count;
}

static void expect_failure(uint64_t size, int status, const char *advice)
{
    struct arena *arena = (struct arena *)&size;
    struct reason reason = {""};
    char number[32];
    int descriptors = count_descriptors();
    (void)snprintf(number, sizeof(number), "%ju bytes", (uintmax_t)size);

    ck_assert_int_eq(arena_create(size, &arena, &reason), status);
    ck_assert_ptr_eq(arena, &size);
    ck_assert_msg(
        strstr(reason.text, number) && strstr(reason.text, advice), "\"%s\"", reason.text);
    ck_assert_int_eq(count_descriptors(), descriptors);
    ck_assert_int_eq(count_mappings(), 0);
}

START_TEST(more_than_the_host_has_is_refused)
{
    expect_failure((uint64_t)1 << 43, F8_ENOMEM, "free memory");
    expect_failure((uint64_t)1 << 60, F8_ENOMEM, "free memory");
    expect_failure(UINT64_MAX - 4095, F8_ENOMEM, "free memory");
}
END_TEST

/* Makes ftruncate fail, after the memfd is there. */
START_TEST(failure_half_way_leaves_nothing)
{
    struct rlimit limit, small;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = SIZE - 4096;
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    expect_failure(SIZE, F8_ENOMEM, "File too large");
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    (void)signal(SIGXFSZ, before);
}
END_TEST

/* Makes mmap fail. Sanitizers need address space of their own, so not under them. */
START_TEST(no_address_space_leaves_nothing)
{
    struct rlimit limit, small;
    if (getenv("CK_FORK") && strcmp(getenv("CK_FORK"), "no") == 0) {
        fprintf(stderr, "skipped: a limit on address space stops sanitizers\n");
        return;
    }
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
    small = limit;
    small.rlim_cur = (rlim_t)256 << 20;
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &small), 0);
    expect_failure((uint64_t)512 << 20, F8_ENOMEM, "mmap");
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
}
END_TEST

START_TEST(no_descriptor_left_is_a_limit)
{
    struct rlimit limit, small;
    struct arena *arena = NULL;
    struct reason reason = {""};
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)close(next);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    small = limit;
    small.rlim_cur = (rlim_t)next;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &small), 0);
    int r = arena_create(SIZE, &arena, &reason);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_int_eq(r, F8_ELIMIT);
    ck_assert_ptr_nonnull(strstr(reason.text, "limit on open files"));
}
END_TEST

static TCase *shortage_cases(void)
{
    TCase *tcase = tcase_create("shortage");
    tcase_add_test(tcase, more_than_the_host_has_is_refused);
    tcase_add_test(tcase, failure_half_way_leaves_nothing);
    tcase_add_test(tcase, no_address_space_leaves_nothing);
    tcase_add_test(tcase, no_descriptor_left_is_a_limit);
    return tcase;
}

int main(void)
{
    Suite *suite = suite_create("arena");
    TCase *tcase = tcase_create("arena");
    tcase_add_test(tcase, zeroed_aligned_and_reserved);
    tcase_add_test(tcase, daemon_writes_after_the_seal_and_clients_see_it);
    tcase_add_test(tcase, what_was_mapped_before_the_seal_still_writes);
    tcase_add_test(tcase, children_do_not_inherit_the_writable_mapping);
    tcase_add_loop_test(tcase, nobody_else_can_write, 0, NUM_ATTEMPTS);
    tcase_add_loop_test(tcase, without_seals_the_attempts_succeed, 0, NUM_ATTEMPTS);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, shortage_cases());
    return run_cases(suite);
}
