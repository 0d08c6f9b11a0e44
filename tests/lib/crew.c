/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that a test leads from mark to mark: see crew.h. */
#include "tests/lib/crew.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lib/patience.h"
#include "lib/test_daemon.h"

/* In the child: it keeps its own two ends only, so that a dead member is seen by its pipes. */
__attribute__((noreturn)) static void become_member(struct crew *crew, uint32_t index,
    const int said[2], const int told[2], crew_body *body, const void *argument)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint32_t i = 0; i < index; i++) {
        (void)close(crew->said[i]);
        (void)close(crew->told[i]);
    }
    (void)close(said[0]);
    (void)close(told[1]);
    struct crew_member member = {.index = index, .said = said[1], .told = told[0]};
    int status = body(&member, argument);
    (void)fflush(NULL);
    _exit(status);
}

void crew_start(struct crew *crew, uint32_t size, crew_body *body, const void *argument)
{
    ck_assert_uint_le(size, CREW_MAX);
    *crew = (struct crew){.size = size};
    (void)fflush(NULL);
    for (uint32_t i = 0; i < size; i++) {
        int said[2], told[2];
        ck_assert_int_eq(pipe2(said, O_CLOEXEC), 0);
        ck_assert_int_eq(pipe2(told, O_CLOEXEC), 0);
        crew->pids[i] = fork();
        ck_assert_int_ge(crew->pids[i], 0);
        if (crew->pids[i] == 0)
            become_member(crew, i, said, told, body, argument);
        (void)close(said[1]);
        (void)close(told[0]);
        crew->said[i] = said[0];
        crew->told[i] = told[1];
    }
}

void crew_await(struct crew *crew)
{
    for (uint32_t i = 0; i < crew->size; i++) {
        struct pollfd fd = {.fd = crew->said[i], .events = POLLIN};
        char mark;
        if (crew->pids[i] == 0)
            continue;
        ck_assert_msg(poll(&fd, 1, PATIENCE_MS) == 1, "member %u does not come to its mark", i);
        ck_assert_msg(read(fd.fd, &mark, 1) == 1, "member %u ended before its mark", i);
    }
}

void crew_go(struct crew *crew)
{
    for (uint32_t i = 0; i < crew->size; i++)
        if (crew->pids[i] != 0)
            ck_assert_int_eq(write(crew->told[i], "", 1), 1);
}

static int end_member(struct crew *crew, uint32_t index)
{
    int status = test_wait(crew->pids[index]);
    (void)close(crew->said[index]);
    (void)close(crew->told[index]);
    crew->pids[index] = 0;
    return status;
}

void crew_kill(struct crew *crew, uint32_t index)
{
    ck_assert_int_eq(kill(crew->pids[index], SIGKILL), 0);
    (void)end_member(crew, index);
}

void crew_end(struct crew *crew, int status)
{
    for (uint32_t i = 0; i < crew->size; i++)
        if (crew->pids[i] != 0)
            ck_assert_int_eq(end_member(crew, i), status);
}

void crew_mark(struct crew_member *member)
{
    char go;
    if (member->said < 0)
        return;
    if (write(member->said, "", 1) != 1)
        _exit(1);
    while (read(member->told, &go, 1) < 0)
        if (errno != EINTR)
            _exit(1);
}
