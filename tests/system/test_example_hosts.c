/* SPDX-License-Identifier: Apache-2.0 */
/*
 * examples/trainer_hosts.c as its comment says to run it, over two daemons that share the loopback:
 * all ranks of both get the same scales and bytes; and an id that is none is refused.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/program.h"
#include "lib/suite.h"
#include "lib/test_daemon.h"

#define RANKS 4

static struct test_daemon daemons[2];

static void start(void)
{
    static const char *const arguments[][7] = {
        {"--socket-ifname", "lo", "--host-name", "a", "--linger", "0", NULL},
        {"--socket-ifname", "lo", "--host-name", "b", "--linger", "0", NULL}};
    for (int i = 0; i < 2; i++)
        test_daemon_start(&daemons[i], arguments[i]);
}

static void stop(void)
{
    for (int i = 0; i < 2; i++)
        test_daemon_stop(&daemons[i]);
}

/* What a rank printed, with its number taken out of the lines. */
static void without_rank(char *text)
{
    for (char *at = strstr(text, "rank "); at; at = strstr(at + 1, "rank "))
        at[strlen("rank ")] = '#';
}

START_TEST(all_ranks_print_the_same)
{
    struct program ctl, ranks[RANKS];
    program_start(&ctl, F8_TEST_CTL, NULL, "--socket %s unique-id", daemons[0].socket);
    program_expect(&ctl, 0);
    ctl.out[strcspn(ctl.out, "\n")] = '\0';
    for (int r = 0; r < RANKS; r++)
        program_start(&ranks[r], F8_TRAINER_HOSTS, NULL, "%d %d 2 %s %s", r, RANKS, ctl.out,
            daemons[r / 2].socket);
    for (int r = 0; r < RANKS; r++) {
        program_expect(&ranks[r], 0);
        ck_assert_ptr_nonnull(strstr(ranks[r].out, " step 2: scale 448, bytes "));
        without_rank(ranks[r].out);
        ck_assert_str_eq(ranks[r].out, ranks[0].out);
    }
    for (int r = 0; r < RANKS; r++)
        program_done(&ranks[r]);
    program_done(&ctl);
}
END_TEST

START_TEST(what_is_no_id_is_refused)
{
    struct program rank;
    program_start(&rank, F8_TRAINER_HOSTS, NULL, "0 2 1 beef %s", daemons[0].socket);
    program_expect(&rank, 1);
    ck_assert_ptr_nonnull(strstr(rank.err, "beef: no id of 256 hexadecimal digits"));
    program_done(&rank);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("example_hosts");
    tcase_add_checked_fixture(cases, start, stop);
    tcase_add_test(cases, all_ranks_print_the_same);
    tcase_add_test(cases, what_is_no_id_is_refused);
    return run_suite("example_hosts", cases);
}
