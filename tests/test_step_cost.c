/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step costs the client, counted by replacing the functions: one sendmsg and one recvmsg a
 * gather, one sendmsg a release, and no allocation at all. The counts are this thread's own, so
 * the fake daemon's do not mix in.
 */
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/lib/one_rank.h"
#include "tests/lib/suite.h"

static _Thread_local int num_sends, num_receives, num_allocations;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

void *malloc(size_t size)
{
    num_allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    num_allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    num_allocations++;
    return __libc_realloc(memory, size);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    num_sends++;
    return syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    num_receives++;
    return syscall(SYS_recvmsg, fd, message, flags);
}

#define STEPS 200

/* Runs steps and keeps the counts apart from what the checks of the test itself may allocate. */
static int run_steps(struct one_rank *rank, int *ret_counts)
{
    struct f8_view views[2];
    f8_ticket ticket;
    int status = F8_OK;
    num_sends = num_receives = num_allocations = 0;
    for (int i = 0; i < STEPS && status == F8_OK; i++) {
        status = f8_precompute(rank->group, F8_DEFAULT_DEADLINE, NULL, &ticket);
        if (status == F8_OK)
            status = f8_wait(rank->group, ticket, F8_FOREVER, NULL);
        if (status == F8_OK)
            status = f8_gather(rank->group, LAYER_0, F8_DEFAULT_DEADLINE, NULL);
        if (status == F8_OK)
            status = f8_post_gather(rank->group, LAYER_0, F8_FOREVER, views, 2, NULL);
        if (status == F8_OK)
            status = f8_release(rank->group, LAYER_0, NULL);
    }
    ret_counts[0] = num_sends;
    ret_counts[1] = num_receives;
    ret_counts[2] = num_allocations;
    return status;
}

START_TEST(steps)
{
    struct one_rank rank;
    int counts[3];
    one_rank_seal(&rank, 2);
    ck_assert_int_gt(num_allocations, 0); /* the replacement is in place */
    ck_assert_int_eq(run_steps(&rank, counts), F8_OK);
    ck_assert_int_eq(counts[0], 3 * STEPS);
    ck_assert_int_eq(counts[1], 2 * STEPS);
    ck_assert_int_eq(counts[2], 0);
    one_rank_stop(&rank);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("step_cost");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, steps);
    return run_suite("step_cost", tcase);
}
