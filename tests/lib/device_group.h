/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One group of ranks on devices, in the rooms: rank r on device r modulo their number. Its weights
 * are w0 in bucket b0 and w1 in b1; every shard holds one value, so that amaxes, scales and
 * gathered bytes are plain to see. An operator looks on.
 */
#ifndef F8_TESTS_DEVICE_GROUP_H
#define F8_TESTS_DEVICE_GROUP_H

#include "tests/lib/device_backend.h"
#include "tests/lib/rooms.h"

#define GROUP_MAX_RANKS 4

struct device_group {
    struct rooms rooms;
    struct client operator_;
    struct client clients[GROUP_MAX_RANKS];
    float *shards[GROUP_MAX_RANKS];         /* owned: the mapped region of each */
    const uint8_t *arenas[GROUP_MAX_RANKS]; /* owned: as each has mapped it; NULL before a seal */
    uint64_t arena_size, ids[GROUP_MAX_RANKS]; /* of the last requests of all */
    uint32_t num_ranks, flavour;
    uint32_t slots; /* that all buckets share; 0: each has a place of its own */
};

/* All joined and registered. */
void device_group_open(
    struct device_group *group, uint32_t num_ranks, uint32_t num_devices, uint32_t flavour);
/* The same, with buckets that share so many slots. */
void device_group_open_shared(struct device_group *group, uint32_t num_ranks, uint32_t num_devices,
    uint32_t flavour, uint32_t slots);
void device_group_close(struct device_group *group);

/* One more client that enters as that rank, and registers; its memory is new. */
void device_group_enter(struct device_group *group, uint32_t rank, uint32_t pid);
/* The present client of a rank takes part in the next generation. */
void device_group_rejoin(struct device_group *group, uint32_t rank);

/* Seals, and maps the arenas anew. */
void device_group_seal(struct device_group *group);

/* Writes a rank's shard of a weight, at once: the devices may be reading it. */
void device_group_write(struct device_group *group, uint32_t rank, uint32_t weight, float value);
/* The same of all ranks: `value` times rank + 1. */
void device_group_write_all(struct device_group *group, uint32_t weight, float value);

/* Asks on all ranks; the replies that must come, and be good ones; the refusals. */
typedef uint64_t device_group_ask(struct client *client);
void device_group_all(struct device_group *group, device_group_ask *ask);
void device_group_ok(struct device_group *group);
void device_group_refused(struct device_group *group, int status, const char *part);
/* Turns the loop for as long as anything goes on; checks that none of the requests is answered. */
void device_group_unanswered(struct device_group *group);

uint64_t ask_gather_w0(struct client *client);
uint64_t ask_gather_w1(struct client *client);
uint64_t ask_sealing(struct client *client);
void device_group_release(struct device_group *group, uint32_t weight);
/* All three for a whole gather. */
void device_group_gather(struct device_group *group, uint32_t weight);

/*
 * Whether all ranks can read what they gathered last, with this scale, and the rank's part
 * of it as `value` times rank + 1. Does not wait for devices.
 */
bool device_group_reads(struct device_group *group, float scale, float value);
void device_group_expect(struct device_group *group, float scale, float value);
float device_group_scale(float amax);

/* What the operator sees of a weight and of the group now; valid until the next call. */
const F8__WeightInfo *device_group_weight(struct device_group *group, uint32_t weight);
const F8__GroupInfo *device_group_info(struct device_group *group);

#endif
