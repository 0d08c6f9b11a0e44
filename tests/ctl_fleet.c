/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_fleet WEIGHTS PROGRAM [ARGUMENT]...: runs f8ctl, with the fake fleet as its daemon. For tests
 * that are scripts, and for people who want to see what a large fleet looks like.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/fake_fleet.h"

int main(int argc, char **argv)
{
    static struct fake_daemon fake;
    int status = -1;
    pid_t pid;

    if (argc < 3) {
        fprintf(stderr, "usage: ctl_fleet WEIGHTS PROGRAM [ARGUMENT]...\n");
        return 2;
    }
    fleet_set_weights(strtoull(argv[1], NULL, 10));
    fake_start(&fake, fleet_serve);
    setenv("F8GATHERD_SOCKET", fake.socket, 1);
    pid = fork();
    if (pid == 0) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    fake_stop(&fake);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
