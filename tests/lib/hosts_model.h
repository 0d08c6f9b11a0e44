/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of one group over several hosts, whose daemons' rooms run in one process over the fakes of
 * fake_hosts.h: takes one of the things that may happen next, at random, until nothing can. Held to
 * this: each request is answered once; a collective ends alike on all hosts, unless a host or an
 * engine was lost; engines are asked alike; and whatever went wrong, all ranks come to the end of
 * their program at last. Fails the test, with the seed, where it does not hold. One thread.
 */
#ifndef F8_TESTS_HOSTS_MODEL_H
#define F8_TESTS_HOSTS_MODEL_H

#include <stdint.h>

/* What may go wrong. */
enum {
    MODEL_DEATHS = 1,
    MODEL_LEAVES = 2,
    MODEL_HELPERS = 4,
    MODEL_PARTITIONS = 8,
    MODEL_MISMATCHES = 16,
    MODEL_IDS =
        32, /* of a host with several ranks, one enters with an id that is not the others' */
};

struct hosts_model_shape {
    uint32_t num_hosts, local_ranks;
    uint32_t faults; /* at most */
    uint32_t kinds;  /* of them: MODEL_ bits */
};

/* From the beginning to the end of all ranks; how many events it took. */
uint32_t hosts_model_run(const struct hosts_model_shape *shape, uint64_t seed);

#endif
