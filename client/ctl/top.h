/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rooms of f8ctl top share: a frame, which is the difference of two looks at the daemon.
 * top.c runs the command, top_sample.c looks and takes differences, top_text.c and top_json.c show
 * a frame, top_screen.c is the terminal. One thread.
 */
#ifndef F8CTL_TOP_H
#define F8CTL_TOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/ctl/ctl.h"
#include "client/ctl/fetch.h"

#define TOP_NOTE 640

/* Per second since the look before; NAN: there was none to compare with. */
struct top_rates {
    double gathers, bytes;
    double saturated, nan; /* elements */
    double stale;          /* gathers */
};

struct top_group {
    const F8__GroupInfo *info;  /* borrowed: from the look */
    const F8__RoundInfo *round; /* borrowed: what is under way; NULL: nothing is */
    struct top_rates rates;
};

/* A row of columns_top. Its bytes are not counted. */
struct top_weight {
    const F8__WeightInfo *info; /* borrowed: from the look */
    struct top_rates rates;
};

/* The weights as they were last asked for: rarer than the rest, where they are many. */
struct top_weights {
    struct fetched fetched;  /* owned */
    struct top_weight *rows; /* owned: in the daemon's order */
    const void **sorted;     /* owned: pointers to rows */
    double time;             /* monotonic, seconds; 0: there are none yet */
    double due;              /* when they may be asked for again */
};

/* A look at the daemon, and what has changed since the look before. */
struct top_look {
    struct fetched status, groups, rounds; /* owned */
    struct top_group *rows;                /* owned: by group */
    struct top_rates total;
    size_t waiting; /* rounds */
    double time;    /* monotonic, seconds */
    bool taken;
};

struct top {
    struct ctl *ctl; /* borrowed */
    struct top_look look;
    struct top_weights weights;
    const struct table_column *sort;
    bool descending;
    char note[TOP_NOTE]; /* what is wrong, or was; empty: nothing */
    unsigned int frames; /* that the note has still to be shown in; 0: until it changes */
    uint32_t pid;        /* of the daemon of the last look */
    uint64_t uptime_ms;  /* at that look */
    bool connected;
};

/* Looks, and reconnects if need be. What goes wrong is in the note. */
void top_take(struct top *top);
void top_done(struct top *top);

/* Sorts the weights anew, as top->sort says. */
void top_sort(struct top *top);

/*
 * The frame as text of at most that many lines, 0 for no limit; owned by the caller. NULL if memory
 * is out. With `keys` its last line says what keys do.
 */
char *top_text(const struct top *top, unsigned int lines, bool keys);

/* The same as one line of JSON, on standard output: an exit status. */
int top_print_json(const struct top *top);

/* The terminal: all of it is ours from open to close, or to a signal that ends f8ctl. */
void top_screen_open(void);
void top_screen_close(void);
unsigned int top_screen_lines(void);
void top_screen_draw(const char *text);

/* Waits for a key, which it returns, at most so long: 0 if the time is over, or the window has
 * another size; -1 if there will be no more keys. */
int top_screen_key(int milliseconds);

#endif
