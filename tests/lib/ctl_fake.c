/* SPDX-License-Identifier: Apache-2.0 */
/* f8ctl against a fake daemon of the test's own answers: see ctl_fake.h. */
#include "tests/lib/ctl_fake.h"

#include <check.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/lib/ctl_run.h"
#include "tests/lib/ctl_terminal.h"

static ctl_fake_answer *current; /* of the call that runs: scripts have no argument of their own */

static void serve(struct fake_daemon *daemon, int fd)
{
    bool more = fake_hello(fd);
    (void)daemon;
    while (more) {
        int memfd = -1;
        F8__Request *request = fake_receive(fd, &memfd);
        more = request && current(fd, request, memfd);
        if (request)
            fake_free(request);
        if (memfd >= 0)
            (void)close(memfd);
    }
}

bool ctl_fake_inspected(int fd, const F8__Request *request, F8__InspectReply *inspect)
{
    F8__Reply reply = F8__REPLY__INIT;
    reply.id = request->id;
    reply.body_case = F8__REPLY__BODY_INSPECT;
    reply.inspect = inspect;
    return fake_reply(fd, &reply, -1);
}

/* Where it runs: in a pipe, unless there are columns. */
struct where {
    const char *environment; /* borrowed */
    int columns;
};

static int run(ctl_fake_answer *answer, const char *arguments, const struct where *where,
    char *text, size_t size)
{
    struct fake_daemon fake;
    char all[512];
    current = answer;
    fake_start(&fake, serve);
    (void)snprintf(all, sizeof(all), "--socket %s %s", fake.socket, arguments);
    int status = where->columns > 0
                     ? ctl_run_on_terminal(where->environment, all, where->columns, text, size)
                     : ctl_run(all, text, size);
    fake_stop(&fake);
    return status;
}

int ctl_fake_run(ctl_fake_answer *answer, const char *arguments, char *text, size_t size)
{
    return run(answer, arguments, &(struct where){.columns = 0}, text, size);
}

int ctl_fake_on_terminal(ctl_fake_answer *answer, const char *environment, const char *arguments,
    int columns, char *text, size_t size)
{
    const struct where where = {.environment = environment, .columns = columns};
    return run(answer, arguments, &where, text, size);
}

void ctl_fake_must(ctl_fake_answer *answer, const char *arguments, char *text, size_t size)
{
    int status = ctl_fake_run(answer, arguments, text, size);
    ck_assert_msg(status == 0, "f8ctl %s: status %d: %s", arguments, status, text);
}
