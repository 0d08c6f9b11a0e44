/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon after another, all of them one fake. The script runs on the fake daemon's thread, all
 * else on the test's.
 */
#include "tests/lib/in_turn.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static atomic_int serving; /* the connection that is there; the test ends it */
atomic_bool in_turn_away;

void in_turn_serve(struct fake_daemon *daemon, int fd)
{
    for (int next = fd; next >= 0;) {
        serving = fd;
        fake_serve(daemon, fd);
        if (in_turn_away)
            fake_await_go(daemon);
        next = accept4(daemon->listener, NULL, NULL, SOCK_CLOEXEC);
        if (next >= 0) {
            ck_assert_int_eq(dup3(next, fd, O_CLOEXEC), fd); /* which ends the one before */
            close(next);
        }
    }
}

void in_turn_end(void)
{
    ck_assert_int_eq(shutdown(serving, SHUT_RDWR), 0);
}

void must(int status)
{
    ck_assert_msg(status == F8_OK, "%s: %s", f8_status_name(status), f8_error_text());
}

void in_turn_recover(struct one_rank *rank)
{
    must(f8_group_rejoin(rank->group));
    must(one_rank_seal_again(rank));
    one_rank_hold(rank, EMBED);
    must(f8_release(rank->group, EMBED, NULL));
    must(f8_changed(rank->group, 1, 1)); /* and when it answers this, it has seen the release */
}
