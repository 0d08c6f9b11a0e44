/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's side of the CUDA backend with modules that only pretend: where it looks, each reason
 * why there is none, completions and log lines of other threads, and the end of a process in which
 * CUDA hangs. Needs no CUDA.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/backend_cuda.h"
#include "proto/status.h"
#include "tests/lib/suite.h"

/* Where the build put them. */
#define MODULE(name) TEST_MODULES "/" name ".so"

#define MODULE_NAME "/lib/f8gather/f8gatherd-cuda.so"

static const struct config config = {.cuda_limit_ms = 1000, .linger_ms = 1000};
static struct reason reason;

static void assert_has(const char *part)
{
    ck_assert_msg(strstr(reason.text, part) != NULL, "\"%s\" lacks \"%s\"", reason.text, part);
}

static void refuse(const char *path, int expected)
{
    const struct backend_module *module = NULL;
    reason.text[0] = '\0';
    int status = backend_cuda_load(path, &module, &reason);
    ck_assert_msg(status == expected, "%d: %s", status, reason.text);
    ck_assert_ptr_null(module);
}

START_TEST(what_is_wrong_with_a_module_is_told)
{
    refuse("/none/f8gatherd-cuda.so", F8_ENOENT);
    assert_has("/none/f8gatherd-cuda.so is not there");
    refuse(MODULE("module_unresolved"), F8_ENOENT);
    assert_has("f8_test_function_that_nobody_has");
    refuse(MODULE("module_no_symbol"), F8_ENOENT);
    assert_has("f8_backend_module");
    refuse(MODULE("module_other_abi"), F8_EVERSION);
    assert_has("the interface 4711");
    refuse(MODULE("module_other_version"), F8_EVERSION);
    assert_has("f8gather 99.1");
    assert_has("this daemon of " F8_VERSION);
}
END_TEST

START_TEST(a_file_that_is_no_library_is_told)
{
    char path[] = "/tmp/f8-module-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "text", 4), 4);
    (void)close(fd);
    refuse(path, F8_ENOENT);
    assert_has(path);
    assert_has("does not load");
    (void)unlink(path);
}
END_TEST

/* ---- beside the program ---- */

static void copy_file(const char *from, const char *to)
{
    struct stat status;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    ck_assert(in >= 0 && out >= 0 && fstat(in, &status) == 0);
    ck_assert_int_eq(sendfile(out, in, NULL, (size_t)status.st_size), status.st_size);
    (void)close(in);
    (void)close(out);
}

/* What this program says of its module when it is that file: main() with an argument. */
static void ask_copy(const char *program)
{
    FILE *output = popen(program, "r");
    ck_assert_ptr_nonnull(output);
    reason.text[0] = '\0';
    (void)!fgets(reason.text, sizeof(reason.text), output);
    ck_assert_int_eq(pclose(output), 0);
}

START_TEST(it_is_looked_for_beside_the_program)
{
    char directory[] = "/tmp/f8-program-XXXXXX", path[64], program[96], module[96];
    ck_assert_ptr_nonnull(mkdtemp(directory));
    static const char *const folders[] = {"/bin", "/lib", "/lib/f8gather"};
    for (int i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof(path), "%s%s", directory, folders[i]);
        ck_assert_int_eq(mkdir(path, 0700), 0);
    }
    (void)snprintf(program, sizeof(program), "%s/bin/program", directory);
    (void)snprintf(module, sizeof(module), "%s" MODULE_NAME, directory);
    copy_file("/proc/self/exe", program);
    (void)strcat(program, " open");
    ask_copy(program);
    assert_has("no CUDA module: ");
    assert_has("/bin/../lib/f8gather/f8gatherd-cuda.so is not there");

    copy_file(MODULE("module_right"), module);
    ask_copy(program);
    ck_assert_str_eq(reason.text, "opened: fake\n");
    ck_assert_int_eq(setenv("FAKE_MODULE_REFUSES", "1", 1), 0);
    ask_copy(program);
    assert_has("was told to refuse");
    ck_assert_int_eq(unsetenv("FAKE_MODULE_REFUSES"), 0);

    (void)snprintf(path, sizeof(path), "rm -r %s", directory);
    ck_assert_int_eq(system(path), 0);
}
END_TEST

static int open_and_tell(void)
{
    uv_loop_t loop;
    struct backend *backend = NULL;
    if (uv_loop_init(&loop) < 0)
        return EXIT_FAILURE;
    int status = backend_cuda_open(&loop, &config, &backend, &reason);
    if (status < 0)
        (void)printf("%s\n", reason.text);
    else
        (void)printf("opened: %s\n", backend->ops->name);
    backend_free(backend);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- with a module ---- */

static uv_loop_t loop;
static struct backend *backend;
static int finished;

static void setup(void)
{
    const struct backend_module *module;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    int status = backend_cuda_load(MODULE("module_right"), &module, &reason);
    ck_assert_msg(status == F8_OK, "%s", reason.text);
    ck_assert_int_eq(backend_cuda_start(&loop, &config, module, &backend, &reason), F8_OK);
    ck_assert(backend_is_device(backend));
    finished = 0;
}

static void teardown(void)
{
    backend_free(backend);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void on_finished(struct backend_work *work, int status)
{
    (void)work;
    ck_assert_int_eq(status, F8_OK);
    finished++;
}

START_TEST(the_loop_runs_while_something_is_outstanding)
{
    struct backend_work work = {.finished = on_finished, .job = 1};
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0); /* nothing is */
    for (int i = 1; i <= 3; i++) {
        backend_submit(backend, &work);
        ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
        ck_assert_int_eq(finished, i);
    }
}
END_TEST

/* What a child wrote to standard error, where the log goes; its exit status. */
static int run_child(uint32_t job, char *ret_log, size_t size)
{
    int fds[2], status;
    ck_assert_int_eq(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct backend_work work = {.finished = on_finished, .job = job};
        (void)dup2(fds[1], STDERR_FILENO);
        (void)close(fds[1]);
        setup(); /* here: a loop does not survive a fork */
        backend_submit(backend, &work);
        (void)uv_run(&loop, UV_RUN_DEFAULT);
        _exit(0);
    }
    (void)close(fds[1]);
    size_t used = 0;
    ssize_t got;
    while (used < size - 1 && (got = read(fds[0], ret_log + used, size - 1 - used)) > 0)
        used += (size_t)got;
    ret_log[used] = '\0';
    (void)close(fds[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(lines_of_other_threads_come_into_the_log)
{
    ck_assert_int_eq(run_child(1, reason.text, sizeof(reason.text)), 0);
    assert_has("cuda: a line from another thread");
}
END_TEST

START_TEST(a_call_that_does_not_come_back_ends_the_process)
{
    ck_assert_int_eq(run_child(13, reason.text, sizeof(reason.text)), EXIT_FAILURE);
    assert_has("CUDA has not come back for 1000 seconds from cudaTestOfPatience");
}
END_TEST

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return open_and_tell();
    Suite *suite = suite_create("backend_cuda");
    TCase *tests = tcase_create("loading");
    tcase_add_test(tests, what_is_wrong_with_a_module_is_told);
    tcase_add_test(tests, a_file_that_is_no_library_is_told);
    tcase_add_test(tests, it_is_looked_for_beside_the_program);
    suite_add_tcase(suite, tests);
    tests = tcase_create("running");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_loop_runs_while_something_is_outstanding);
    suite_add_tcase(suite, tests);
    tests = tcase_create("children");
    tcase_add_test(tests, lines_of_other_threads_come_into_the_log);
    tcase_add_test(tests, a_call_that_does_not_come_back_ends_the_process);
    suite_add_tcase(suite, tests);
    return run_cases(suite);
}
