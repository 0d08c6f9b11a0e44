/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f8ctl doctor as one of two trainers, which gather a few bytes and then many, and look at each.
 * Called by doctor_meet.c. What fails is told by error_text().
 */
#ifndef F8CTL_DOCTOR_GATHER_H
#define F8CTL_DOCTOR_GATHER_H

#include <stdint.h>

#include "client/ctl/doctor.h"
#include "client/f8client.h"

/* Bytes that each of the two sends to the other in a large gather, which makes 64 MiB of them. */
#define GATHER_LARGE ((size_t)32 << 20)
#define GATHER_SMALL 64

struct gather {
    struct doctor *doctor;    /* borrowed: for the time that is left */
    struct f8_client *client; /* owned */
    struct f8_group *group;   /* borrowed: from client */
    uint32_t *words;          /* borrowed: from client; the shards, the small one first */
    uint32_t rank;            /* of 2 */
    uint32_t round;           /* counts gathers, as the other rank does */
};

/* Connects as a trainer of job "f8ctl-doctor". */
int gather_open(struct gather *gather, struct doctor *doctor);
void gather_close(struct gather *gather);

/* Joins and seals the group of that name, which waits for the other host. */
int gather_meet(struct gather *gather, const char *group, const uint8_t *id);

/* The median time of a small gather, in microseconds. */
int gather_small(struct gather *gather, double *ret_us);

/* What comes from the other host in large gathers, in GB/s (10^9 bytes): the median. */
int gather_large(struct gather *gather, double *ret_gb_s);

/* Keeps the other one from seeing this rank leave before it has got all. Fails in silence. */
void gather_part(struct gather *gather);

#endif
