/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of misuse: what a trainer can do wrong, and with which words it is told. Each row
 * runs against a real daemon of its own; test_misuse.c drives the tables, misuse_*.c hold them.
 */
#ifndef F8_TESTS_MISUSE_H
#define F8_TESTS_MISUSE_H

#include "lib/raw_client.h"
#include "lib/ranks.h"
#include "lib/test_daemon.h"

#define SCENE_RANKS    2
#define SCENE_OUTCOMES 8

/* How far the two ranks are when the misuse begins; a stage contains those before it. */
enum stage {
    DAEMON_ONLY,
    CONNECTED,
    JOINED,
    REGISTERED,
    SEALED,
    HOLDING, /* both hold EMBED and LAYER_0 */
};

/* What a row works on. What it puts into outcomes is held against the row's expectation. */
struct scene {
    struct test_daemon daemon;
    struct rank ranks[SCENE_RANKS];
    struct outcome outcomes[SCENE_OUTCOMES];
    uint32_t num_outcomes;
    const char *skipped; /* borrowed: literal; why the misuse cannot be committed here */
};

struct misuse {
    const char *name;
    enum stage stage;
    void (*commit)(struct scene *scene);
    int status;       /* of every outcome */
    const char *text; /* part of every outcome's text; '@' stands for the pid of this process */
    const char *arguments[3]; /* of the daemon; NULL: none */
};

struct misuse_table {
    const char *name;
    const struct misuse *rows; /* borrowed: static */
    uint32_t num_rows;
};

#define MISUSE_TABLE(name, rows)                                                                   \
    {                                                                                              \
        (name), (rows), sizeof(rows) / sizeof((rows)[0])                                           \
    }

/* Appends what a call returned, with its text. */
void scene_note(struct scene *scene, int status);

/* Appends the outcomes of both ranks' last ranks_all. */
void scene_note_ranks(struct scene *scene);

extern const struct misuse_table misuse_order, misuse_register, misuse_ranks, misuse_memory,
    misuse_limits, misuse_packets;

#endif
