/* SPDX-License-Identifier: Apache-2.0 */
/* f8ctl on a pseudo-terminal: see ctl_terminal.h. */
#include "tests/lib/ctl_terminal.h"

#include <check.h>
#include <errno.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* All that comes until the other side is closed, which a terminal tells by EIO. */
static void read_all(int terminal, char *text, size_t size)
{
    size_t length = 0;
    char buffer[4096];

    for (;;) {
        ssize_t got = read(terminal, buffer, sizeof(buffer));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        for (ssize_t i = 0; i < got; i++) {
            if (buffer[i] != '\r' && length + 1 < size) {
                text[length++] = buffer[i];
            }
        }
    }
    text[length] = '\0';
}

int ctl_run_on_terminal(
    const char *environment, const char *arguments, int columns, char *text, size_t size)
{
    struct winsize shape = {.ws_row = 24, .ws_col = (unsigned short)columns};
    const char *program = getenv("F8CTL");
    char command[1024];
    int terminal, status;
    pid_t pid;

    ck_assert_msg(program != NULL, "F8CTL must name the program to test");
    snprintf(command, sizeof(command), "unset NO_COLOR; TERM=xterm %s exec %s %s", environment,
        program, arguments);
    pid = forkpty(&terminal, NULL, NULL, &shape);
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    read_all(terminal, text, size);
    close(terminal);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
