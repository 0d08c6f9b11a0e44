/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of an index through real daemons: daemon_run.c starts them and the ranks and counts,
 * rank.c is one rank. A run is all tensors of one world size as one group, with places of their
 * own or with shared slots; or all steps of delayed.tsv, of which delayed_rank.c is one rank.
 */
#ifndef F8_TESTS_CONFORMANCE_DAEMON_RUN_H
#define F8_TESTS_CONFORMANCE_DAEMON_RUN_H

#include "tests/conformance/daemons.h"
#include "tests/conformance/steps.h"
#include "tests/conformance/tensors.h"

/* What one rank found of one tensor. Zero: it did not come so far. */
struct verdict {
    bool compared;
    char wrong[128]; /* empty: nothing */
};

/* Why one rank could not go on; empty: it could. */
struct excuse {
    char text[512];
};

struct daemon_run {
    struct placement placement; /* borrows the daemons, like all here from daemon_run.c */
    char job[64];
    uint32_t world;
    uint32_t slots;                /* 0: every bucket has its own place */
    const struct tensor **tensors; /* borrowed: those by precompute come last */
    const struct steps *steps;     /* borrowed: in place of tensors */
    size_t count;                  /* of tensors or steps */
    struct verdict *verdicts;      /* borrowed: shared with the ranks: [rank * count + tensor] */
    struct excuse *excuses;        /* borrowed: shared with the ranks: by rank */
};

/* Runs index->tensors and index->steps, if there are any. A daemon that fails is a failure of the
 * index. */
void daemon_run(const struct row *index);

/* The life of a rank process, on tensors or on steps; its exit status. */
int rank_run(const struct daemon_run *run, uint32_t rank);
int delayed_rank_run(const struct daemon_run *run, uint32_t rank);

#endif
