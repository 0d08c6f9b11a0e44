/* SPDX-License-Identifier: Apache-2.0 */
/* A second process of the same program: see twin.h. */
#include "tests/gpu/twin.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void need(bool is_right, const char *what, int error)
{
    if (is_right)
        return;
    fprintf(stderr, "%s: %s\n", what, error ? strerror(error) : "the other process has ended");
    exit(EXIT_FAILURE);
}

void twin_start(struct twin *twin, const char *role)
{
    char program[] = "/proc/self/exe", word[32];
    char *arguments[] = {program, word, NULL};
    posix_spawn_file_actions_t actions;
    int sockets[2];
    (void)snprintf(word, sizeof(word), "%s", role);
    need(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0, "socketpair", errno);
    need(posix_spawn_file_actions_init(&actions) == 0, "posix_spawn_file_actions_init", ENOMEM);
    int error = posix_spawn_file_actions_adddup2(&actions, sockets[1], TWIN_SOCKET);
    need(error == 0, "posix_spawn_file_actions_adddup2", error);
    error = posix_spawn(&twin->pid, program, &actions, NULL, arguments, environ);
    need(error == 0, "posix_spawn", error);
    posix_spawn_file_actions_destroy(&actions);
    close(sockets[1]);
    twin->socket = sockets[0];
}

void twin_send(int socket, const void *message, size_t size)
{
    ssize_t sent = send(socket, message, size, MSG_NOSIGNAL);
    need(sent == (ssize_t)size, "send", sent < 0 ? errno : EMSGSIZE);
}

void twin_receive(int socket, void *message, size_t size)
{
    ssize_t received = recv(socket, message, size, 0);
    need(received > 0, "recv", received < 0 ? errno : 0);
    need(received == (ssize_t)size, "recv", EBADMSG);
}

bool twin_end(struct twin *twin)
{
    int status;
    close(twin->socket);
    need(waitpid(twin->pid, &status, 0) == twin->pid, "waitpid", errno);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

double twin_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

double twin_median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return values[count / 2];
}
