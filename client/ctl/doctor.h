/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rooms of f8ctl doctor share: checks in tables, each with its remedy, and what they find.
 * doctor.c runs them and prints; doctor_host.c and those whose tables it runs look at this host;
 * doctor_path.c tests the way to another; doctor_meet.c tests both daemons, with doctor_gather.c as
 * the trainer.
 */
#ifndef F8CTL_DOCTOR_H
#define F8CTL_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/ctl/ctl.h"

#define DOCTOR_MAX_FINDINGS 64
#define DOCTOR_VALUE_SIZE   512
#define DOCTOR_REMEDY_SIZE  320

enum doctor_result { DOCTOR_OK, DOCTOR_WARNING, DOCTOR_FAILED };

struct doctor;

/* A row of a table of checks. */
struct check {
    const char *what;   /* "path MTU" */
    const char *remedy; /* told with each finding that is not ok, unless that has one of its own */
    /* Adds what it finds; false: the checks after it in the table would find nothing. */
    bool (*run)(struct doctor *doctor, const struct check *check);
};

struct finding {
    const struct check *check; /* borrowed: from its table */
    enum doctor_result result;
    char of[64]; /* the address that it is about; empty: none */
    char value[DOCTOR_VALUE_SIZE];
    char remedy[DOCTOR_REMEDY_SIZE];
    double number;    /* what was measured, in this unit */
    const char *unit; /* a literal; NULL: nothing was */
};

/* One run of the command. */
struct doctor {
    struct ctl *ctl;     /* borrowed: from main */
    int64_t deadline_ms; /* of the monotonic clock: when --timeout is over */
    void *own;           /* borrowed: from who runs the table; its checks know what it is */
    const char *about; /* borrowed: from who runs the table: findings are of it; "" or an address */
    bool hold;         /* print nothing for now: results may change */
    size_t count, printed;
    struct finding findings[DOCTOR_MAX_FINDINGS];
};

/* Runs the checks of a table in order, up to one that says that the others are in vain. */
void doctor_run(struct doctor *doctor, const struct check *checks, size_t count);

/*
 * Adds a finding about doctor->about and gives it, for a number; past the last place the last one
 * is replaced.
 */
struct finding *doctor_add(struct doctor *doctor, const struct check *check,
    enum doctor_result result, const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Gives the finding another remedy than its check has: one that names what was found. */
void doctor_remedy(struct finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints what was not printed yet, unless it is held, or one JSON object is to be printed. */
void doctor_print(struct doctor *doctor);

/* Of --timeout, in ms; 0: it is over. */
int doctor_left(const struct doctor *doctor);

/* Milliseconds of the monotonic clock. */
double doctor_clock(void);

/* Connects ctl->channel as an operator, if it is not. F8_OK or what channel_open gave. */
int doctor_connect(struct doctor *doctor);

/* This host. */
void doctor_host(struct doctor *doctor);

/* The way to ctl->peer, a name or address. */
void doctor_path(struct doctor *doctor);

/* The way through both daemons; `id` is what the other host was given, NULL: make one. */
void doctor_meet(struct doctor *doctor, const uint8_t *id);

#endif
