/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A data x tensor parallel mesh in the rooms: four clients, of which two each are the ranks of
 * gather groups dp0 and dp1, and all are those of their amax group. Weights are w0 in bucket b0
 * and w1 in b1; every shard holds one value, so that amaxes are what a test writes. An operator
 * looks on.
 */
#ifndef F8_TESTS_MESH_H
#define F8_TESTS_MESH_H

#include "tests/lib/rooms.h"

#define MESH_RANKS   4
#define MESH_WEIGHTS 2

/* A membership: what a client needs to know of it. */
struct seat {
    uint32_t group;
    uint64_t generation;
};

struct mesh {
    struct rooms rooms;
    struct client operator_;
    struct client clients[MESH_RANKS];
    struct seat dp[MESH_RANKS], mesh[MESH_RANKS];
    float *shards[MESH_RANKS]; /* owned: the mapped region of each */
    bool on_devices;
    uint32_t flavour; /* of the weights; may be changed before they are registered */
};

/* All meshes from now on are on so many devices; 0: on the host. The seed is for their order. */
void mesh_use_devices(uint32_t num_devices, uint64_t seed);

/* All joined, to their gather groups and then to "mesh"; nothing is registered. */
void mesh_open(struct mesh *mesh, uint32_t flavour);
void mesh_close(struct mesh *mesh);

/* The client, with its next requests going to the group of that seat. */
struct client *mesh_dp(struct mesh *mesh, uint32_t rank);
struct client *mesh_all(struct mesh *mesh, uint32_t rank);

/* Where the client is since its last join. */
struct seat seat_of(const struct client *client);

/* Registers the weights of a rank, with amax group `amax_group`. */
void mesh_register(struct mesh *mesh, uint32_t rank, uint32_t amax_group);

/* Seals the gather groups, then the amax group. */
void mesh_seal(struct mesh *mesh);

/* mesh_open, mesh_register with "mesh" as the amax group, mesh_seal. */
void mesh_start(struct mesh *mesh, uint32_t flavour);

/* Rejoins all groups, as after a break, and seals them. */
void mesh_rejoin(struct mesh *mesh);

/* Writes a rank's shard of a weight: all its elements are `value`. */
void mesh_write(struct mesh *mesh, uint32_t rank, uint32_t weight, float value);

/* Asks the ranks first to end-1 for something, of their gather groups or of the amax group. */
typedef uint64_t mesh_ask_fn(struct client *client);
void mesh_ask_dp(struct mesh *mesh, uint32_t first, uint32_t end, mesh_ask_fn *ask, uint64_t *ids);
void mesh_ask_all(struct mesh *mesh, mesh_ask_fn *ask, uint64_t *ids);

/* Requests for mesh_ask_dp. */
uint64_t ask_gather_b0(struct client *client);
uint64_t ask_gather_b1(struct client *client);
uint64_t ask_seal_plain(struct client *client);

/* Awaits answers to requests of ranks first to end-1, which must be good ones. */
void mesh_ok(struct mesh *mesh, uint32_t first, uint32_t end, const uint64_t *ids);

/* A round of the amax group on all ranks; a gather of a bucket and its release on all ranks. */
void mesh_whole(struct mesh *mesh, mesh_ask_fn *ask);
void mesh_gather(struct mesh *mesh, uint32_t bucket);

/* Turns the loop until so many gathers wait for another group. */
void mesh_await_waiting(struct mesh *mesh, uint32_t count);

/* What the operator sees of a weight; valid until the next call. */
const F8__WeightInfo *mesh_weight(struct mesh *mesh, const char *group, const char *weight);

/* The bits of a value, and those of the scale that follows from it as an amax. */
uint32_t bits_of(float value);
uint32_t scale_bits(float amax);

#endif
