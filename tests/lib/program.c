/* SPDX-License-Identifier: Apache-2.0 */
/* Programs as a user runs them: see program.h. */
#include "lib/program.h"

#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lib/device_memory.h"
#include "lib/test_daemon.h"

#define MAX_ARGUMENTS 64

static int memory_file(void)
{
    int fd = memfd_create("program", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

/* In the child; dies with the test. */
static void become(
    const struct program *program, const char *path, const char *directory, char *arguments)
{
    char *argv[MAX_ARGUMENTS] = {strdup(path)};
    for (int i = 1; i < MAX_ARGUMENTS - 1 && arguments; i++)
        do
            argv[i] = strsep(&arguments, " ");
        while (argv[i] && *argv[i] == '\0');
    if (directory)
        (void)setenv("TMPDIR", directory, 1);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(program->out_fd, STDOUT_FILENO);
    (void)dup2(program->err_fd, STDERR_FILENO);
    (void)execv(path, argv);
    _exit(127);
}

void program_start(
    struct program *program, const char *path, const char *directory, const char *format, ...)
{
    char arguments[1024];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(arguments, sizeof(arguments), format, list);
    va_end(list);
    ck_assert_int_lt(length, (int)sizeof(arguments));
    *program = (struct program){.out_fd = memory_file(), .err_fd = memory_file()};
    (void)fflush(NULL);
    program->pid = fork();
    if (program->pid == 0)
        become(program, path, directory, arguments);
    ck_assert_int_ge(program->pid, 0);
}

/* All of a file, which is closed. */
static char *slurp(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)size + 1);
    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(pread(fd, text, (size_t)size, 0), size);
    (void)close(fd);
    return text;
}

void program_wait(struct program *program)
{
    program->status = test_wait(program->pid);
    program->out = slurp(program->out_fd);
    program->err = slurp(program->err_fd);
}

void program_expect(struct program *program, int status)
{
    program_wait(program);
    ck_assert_msg(program->status == status, "it ended with %d instead of %d; it printed:\n%s%s",
        program->status, status, program->out, program->err);
}

void program_done(struct program *program)
{
    free(program->out);
    free(program->err);
    *program = (struct program){0};
}

json_t *program_json(const struct program *program)
{
    json_error_t error;
    json_t *object = json_loads(program->out, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json_is_object(object), "no JSON object: %s: %s", error.text, program->out);
    return object;
}

json_t *program_ask_ctl(const char *socket, const char *command, const char *key)
{
    struct program ctl;
    json_t *value = NULL;
    program_start(&ctl, F8_TEST_CTL, NULL, "--socket %s --json %s", socket, command);
    program_wait(&ctl);
    if (ctl.status == 0) {
        json_t *object = program_json(&ctl);
        value = json_incref(json_object_get(object, key));
        json_decref(object);
        ck_assert_msg(value != NULL, "no %s in: %s", key, ctl.out);
    }
    program_done(&ctl);
    return value;
}

/* Whether this group has gathered, with all ranks there. */
static bool has_gathered(const json_t *group, size_t ranks, pid_t *ret_pids)
{
    const json_t *pids = json_object_get(group, "pids");
    bool gathered = json_integer_value(json_object_get(group, "gathers")) > 0;
    for (size_t r = 0; gathered && r < ranks; r++) {
        ret_pids[r] = (pid_t)json_integer_value(json_array_get(pids, r));
        gathered = ret_pids[r] > 0;
    }
    return gathered;
}

static bool any_has_gathered(const char *socket, size_t ranks, pid_t *ret_pids)
{
    json_t *groups = program_ask_ctl(socket, "groups", "groups");
    bool gathered = false;
    for (size_t i = 0; !gathered && i < json_array_size(groups); i++)
        gathered = has_gathered(json_array_get(groups, i), ranks, ret_pids);
    json_decref(groups);
    return gathered;
}

pid_t program_await_gathers(const char *socket, size_t ranks, pid_t *ret_pids)
{
    for (int i = 0; !any_has_gathered(socket, ranks, ret_pids); i++) {
        ck_assert_msg(i < 6000, "nothing is gathered at %s", socket);
        (void)poll(NULL, 0, 10);
    }
    json_t *status = program_ask_ctl(socket, "status", "status");
    pid_t daemon = (pid_t)json_integer_value(json_object_get(status, "pid"));
    json_decref(status);
    ck_assert_int_gt(daemon, 0);
    return daemon;
}

const char *program_bench_device(void)
{
    static char flags[512];
    if (device_memory_used())
        (void)snprintf(flags, sizeof(flags), "--daemon %s --device cuda --cuda-memory %s",
            test_daemon_program(), getenv("F8_TEST_DEVICE"));
    return flags;
}

uint64_t program_bench_copies(unsigned ranks)
{
    unsigned devices = device_memory_used() ? (unsigned)device_memory_devices() : 1;
    return ranks < devices ? ranks : devices;
}
