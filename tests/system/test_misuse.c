/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives the tables of misuse: each row against a daemon of its own, which must give the row's
 * status and words, go on, hold nothing more when the clients are gone, and end in order.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "system/misuse.h"
#include "tests/lib/suite.h"

static const struct misuse_table *const tables[] = {&misuse_order, &misuse_register, &misuse_ranks,
    &misuse_memory, &misuse_limits, &misuse_packets};

void scene_note(struct scene *scene, int status)
{
    ck_assert_uint_lt(scene->num_outcomes, SCENE_OUTCOMES);
    scene->outcomes[scene->num_outcomes++] = outcome_of(status);
}

void scene_note_ranks(struct scene *scene)
{
    ck_assert_uint_le(scene->num_outcomes, SCENE_OUTCOMES - SCENE_RANKS);
    for (uint32_t r = 0; r < SCENE_RANKS; r++)
        scene->outcomes[scene->num_outcomes++] = scene->ranks[r].outcome;
}

static int hold_two(struct rank *rank)
{
    int status = rank_gather(rank, EMBED, F8_DEFAULT_DEADLINE);
    return status == F8_OK ? rank_gather(rank, LAYER_0, F8_DEFAULT_DEADLINE) : status;
}

static void set_the_stage(struct scene *scene, enum stage stage)
{
    struct rank *ranks = scene->ranks;
    for (uint32_t r = 0; r < SCENE_RANKS; r++) {
        if (stage >= CONNECTED)
            rank_connect(&ranks[r], scene->daemon.socket);
        if (stage >= JOINED)
            rank_join(&ranks[r], r, SCENE_RANKS);
        if (stage >= REGISTERED)
            rank_register(&ranks[r]);
    }
    if (stage >= SEALED)
        ranks_must(ranks, SCENE_RANKS, rank_seal);
    if (stage >= HOLDING)
        ranks_must(ranks, SCENE_RANKS, hold_two);
}

/* The row's text with this process's pid for each '@'. */
static void expand(const char *text, char *buffer, size_t size)
{
    size_t used = 0;
    for (; *text; text++) {
        if (*text == '@')
            used += (size_t)snprintf(buffer + used, size - used, "%d", (int)getpid());
        else
            buffer[used++] = *text;
        ck_assert_uint_lt(used, size - 1);
    }
    buffer[used] = '\0';
}

static void check_outcomes(const struct misuse *row, const struct scene *scene)
{
    char text[1024];
    expand(row->text, text, sizeof(text));
    ck_assert_msg(scene->num_outcomes > 0, "%s: nothing was tried", row->name);
    for (uint32_t i = 0; i < scene->num_outcomes; i++) {
        const struct outcome *outcome = &scene->outcomes[i];
        ck_assert_msg(outcome->status == row->status, "%s: outcome %u is %s, not %s: %s", row->name,
            i, f8_status_name(outcome->status), f8_status_name(row->status), outcome->text);
        ck_assert_msg(strstr(outcome->text, text), "%s: outcome %u says \"%s\", not \"%s\"",
            row->name, i, outcome->text, text);
    }
}

static void run_row(const struct misuse *row)
{
    struct scene scene = {.num_outcomes = 0};
    test_daemon_start(&scene.daemon, row->arguments);
    int before = daemon_descriptors(&scene.daemon);
    set_the_stage(&scene, row->stage);
    row->commit(&scene);
    if (scene.skipped)
        (void)fprintf(stderr, "skipped: %s: %s\n", row->name, scene.skipped);
    else
        check_outcomes(row, &scene);
    for (uint32_t r = 0; r < SCENE_RANKS; r++)
        rank_close(&scene.ranks[r]);
    daemon_await_empty(&scene.daemon, before);
    test_daemon_stop(&scene.daemon);
}

/* Row number `number` over all tables; NULL past the end. */
static const struct misuse *find_row(uint32_t number)
{
    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
        if (number < tables[t]->num_rows)
            return &tables[t]->rows[number];
        number -= tables[t]->num_rows;
    }
    return NULL;
}

START_TEST(misuse)
{
    run_row(find_row((uint32_t)_i));
}
END_TEST

int main(void)
{
    int rows = 0;
    while (find_row((uint32_t)rows))
        rows++;
    TCase *tcase = tcase_create("rows");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, misuse, 0, rows);
    return run_suite("misuse", tcase);
}
