/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer that outlives its daemon: delayed scales, one sync a step, and one way back from what
 * goes wrong. docs/checkpoints.md explains it. Start f8gatherd, then one of these per rank:
 * trainer_restart RANK WORLD_SIZE STEPS [SOCKET]; kill the daemon and start it again meanwhile. */
#include <stdio.h>
#include <stdlib.h>
#include <f8client.h>

enum { ROWS = 64, COLS = 64, PATIENCE_MS = 60000 };

struct trainer {
    uint32_t rank, world_size;
    struct f8_client *client;
    struct f8_group *group;
    float *matrix;
    uint64_t syncs; /* that this rank was told of: the step that comes next */
};

static void stop(const char *call, int status)
{
    fprintf(stderr, "%s: %s: %s\n", call, f8_status_name(status), f8_error_text());
    exit(EXIT_FAILURE);
}

static void check(int status, const char *call)
{
    if (status != F8_OK)
        stop(call, status);
}
#define CHECK(call) check(call, #call)

static int seal(struct trainer *trainer, uint64_t syncs)
{
    struct f8_seal_options options = {.state = F8_STATE_CONTINUE, .syncs = syncs};
    return f8_seal(trainer->group, &options);
}

/* Once: after a restart of the daemon, the library does all of this again. */
static void set_up(struct trainer *trainer, const char *socket)
{
    struct f8_connect_options options = {
        .job = "example-restart", .socket = socket, .reconnect_ms = PATIENCE_MS};
    struct f8_region *region;
    void *memory;
    CHECK(f8_connect(&options, &trainer->client));
    CHECK(
        f8_group_join(trainer->client, "dp", trainer->rank, trainer->world_size, &trainer->group));
    CHECK(f8_region_alloc(trainer->client, ROWS * COLS * sizeof(float), &region, &memory));
    trainer->matrix = memory;
    struct f8_weight_desc weight = {.name = "w",
        .ndim = 2,
        .shape = {ROWS, COLS},
        .dtype = F8_F32,
        .flavour = F8_DELAYED,
        .format = F8_E4M3FN,
        .region = region};
    struct f8_bucket_desc bucket = {.name = "layers.0", .first = 0, .count = 1};
    CHECK(f8_register(trainer->group, &weight, 1, &bucket, 1));
    CHECK(seal(trainer, 0)); /* a new run; one that resumes: see docs/checkpoints.md */
}

/* All of a step that the daemon takes part in; the first failure ends it. */
static int step(struct trainer *trainer, float *ret_scale)
{
    struct f8_view view;
    f8_ticket ticket;
    int status = f8_changed(trainer->group, 0, 1);
    if (status == F8_OK)
        status = f8_gather(trainer->group, 0, F8_DEFAULT_DEADLINE, NULL);
    if (status == F8_OK)
        status = f8_post_gather(trainer->group, 0, F8_FOREVER, &view, 1, NULL);
    if (status != F8_OK)
        return status;
    *ret_scale = *view.scale; /* forward and backward would use the view here */
    status = f8_release(trainer->group, 0, NULL);
    if (status == F8_OK)
        status = f8_sync(trainer->group, F8_DEFAULT_DEADLINE, &ticket);
    return status == F8_OK ? f8_wait(trainer->group, ticket, F8_FOREVER, NULL) : status;
}

/* The daemon ended and is there again, or another rank ended: back to a sealed group. */
static void recover(struct trainer *trainer, int status)
{
    while (status == F8_EBROKEN || status == F8_ERANKDEAD) {
        status = f8_group_rejoin(trainer->group);
        if (status == F8_OK)
            status = seal(trainer, F8_ANY_SYNCS);
    }
    check(status, "step");
}

/* Whether the step that was interrupted is done: its sync happened, only the answer was lost. */
static int is_done(struct trainer *trainer)
{
    uint64_t syncs;
    CHECK(f8_syncs(trainer->group, &syncs));
    if (syncs != trainer->syncs && syncs != trainer->syncs + 1) {
        fprintf(stderr, "the daemon has a state of %llu syncs, these weights have seen %llu\n",
            (unsigned long long)syncs, (unsigned long long)trainer->syncs);
        exit(EXIT_FAILURE); /* resume from a checkpoint */
    }
    return syncs == trainer->syncs + 1;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: trainer_restart RANK WORLD_SIZE STEPS [SOCKET]\n");
        return EXIT_FAILURE;
    }
    struct trainer trainer = {
        .rank = (uint32_t)atoi(argv[1]), .world_size = (uint32_t)atoi(argv[2])};
    uint64_t steps = (uint64_t)atoll(argv[3]);
    float scale = 0;
    set_up(&trainer, argc > 4 ? argv[4] : NULL);
    while (trainer.syncs < steps) {
        /* The optimizer: each rank's shard is written once a step. */
        for (uint32_t i = 0; i < ROWS * COLS / trainer.world_size; i++)
            trainer.matrix[i] = (float)((trainer.syncs * 31 + i * 7 + trainer.rank) % 97 + 1);
        int status;
        while ((status = step(&trainer, &scale)) != F8_OK) {
            recover(&trainer, status);
            if (is_done(&trainer))
                break;
        }
        trainer.syncs++;
        if (trainer.rank == 0 && trainer.syncs % 100 == 0) {
            printf("step %llu: scale %a\n", (unsigned long long)trainer.syncs, (double)scale);
            fflush(stdout);
        }
    }
    f8_close(trainer.client);
}
