/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows the operator's view of a run: runs the f8ctl beside this program against the run's daemon
 * and keeps what it prints for the report. Called by the parent while the ranks hold their group.
 */
#include <limits.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/bench/run_private.h"

/* Copies everything until the other end is closed. */
static void read_all(int fd, FILE *to)
{
    char piece[4096];
    ssize_t got;

    while ((got = read(fd, piece, sizeof(piece))) > 0 || (got < 0 && errno == EINTR)) {
        fwrite(piece, 1, got > 0 ? (size_t)got : 0, to);
    }
}

static int show_job(struct runner *runner, const char *job, FILE *to)
{
    struct bench_error *error = &runner->outcome->error;
    char program[PATH_MAX];
    int ends[2];
    int status = 0;
    pid_t pid;

    if (daemon_beside("f8ctl", program, sizeof(program)) != 0 || pipe(ends) != 0) {
        return bench_fail(error, "cannot run f8ctl: %s", strerror(errno));
    }
    pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        sigprocmask(SIG_SETMASK, &runner->old_signals, NULL);
        execl(program, program, "--socket", runner->sockets[0].path, "--job", job, "scales",
            (char *)NULL);
        fprintf(stderr, "cannot run %s: %s\n", program, strerror(errno));
        _exit(127);
    }
    close(ends[1]);
    read_all(ends[0], to);
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        return bench_fail(error, "%s scales ended with status %d", program,
            pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    return 0;
}

int run_ctl(struct runner *runner)
{
    size_t size;
    FILE *memory = open_memstream(&runner->outcome->ctl, &size);
    int result = memory != NULL ? 0 : bench_no_memory(&runner->outcome->error);

    for (uint32_t i = 0; result == 0 && i < runner->options->jobs; i++) {
        result = show_job(runner, runner->jobs[i].run.job, memory);
    }
    if (memory != NULL) {
        fclose(memory);
    }
    return result;
}
