/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest trainer over several hosts: a rank that gathers a float8 matrix, three steps long,
 * from ranks of all hosts. Start f8gatherd on each, get an id on one of them by `f8ctl unique-id`,
 * then start one of these per rank:  trainer_hosts RANK WORLD_SIZE LOCAL_RANKS ID [SOCKET] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <f8client.h>

enum { ROWS = 101, COLS = 64, STEPS = 3 };

static void check(int status, const char *call)
{
    if (status == F8_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", call, f8_status_name(status), f8_error_text());
    exit(EXIT_FAILURE);
}
#define CHECK(call) check(call, #call)

/* What `f8ctl unique-id` prints; a trainer that has a store asks f8_unique_id on rank 0 instead. */
static void read_id(const char *digits, uint8_t id[F8_UNIQUE_ID_SIZE])
{
    for (int i = 0; i < F8_UNIQUE_ID_SIZE; i++)
        if (strlen(digits) != 2 * F8_UNIQUE_ID_SIZE ||
            sscanf(digits + 2 * i, "%2hhx", &id[i]) < 1) {
            fprintf(stderr, "%s: no id of %d hexadecimal digits\n", digits, 2 * F8_UNIQUE_ID_SIZE);
            exit(EXIT_FAILURE);
        }
}

static void step(struct f8_group *group, uint32_t rank, int number)
{
    struct f8_view view;
    f8_ticket ticket;
    unsigned sum = 0;
    CHECK(f8_changed(group, 0, 1));
    CHECK(f8_precompute(group, F8_DEFAULT_DEADLINE, NULL, &ticket));
    CHECK(f8_wait(group, ticket, F8_FOREVER, NULL));
    CHECK(f8_gather(group, 0, F8_DEFAULT_DEADLINE, NULL));
    CHECK(f8_post_gather(group, 0, F8_FOREVER, &view, 1, NULL));
    for (int i = 0; i < ROWS * COLS; i++)
        sum = sum * 31 + ((const unsigned char *)view.data)[i];
    printf("rank %u step %d: scale %g, bytes %08x\n", rank, number, (double)*view.scale, sum);
    CHECK(f8_release(group, 0, NULL));
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: trainer_hosts RANK WORLD_SIZE LOCAL_RANKS ID [SOCKET]\n");
        return 2;
    }
    uint32_t rank = (uint32_t)atoi(argv[1]), world_size = (uint32_t)atoi(argv[2]);
    uint8_t id[F8_UNIQUE_ID_SIZE];
    struct f8_connect_options options = {.job = "example", .socket = argc > 5 ? argv[5] : NULL};
    struct f8_hosts hosts = {.id = id, .local_ranks = (uint32_t)atoi(argv[3])};
    struct f8_client *client;
    struct f8_group *group;
    read_id(argv[4], id);
    CHECK(f8_connect(&options, &client));
    CHECK(f8_group_join_hosts(client, "dp", rank, world_size, &hosts, &group));

    uint32_t chunk = (ROWS + world_size - 1) / world_size, begin = rank * chunk;
    uint32_t rows = begin >= ROWS ? 0 : begin + chunk > ROWS ? ROWS - begin : chunk;
    struct f8_region *region;
    void *memory;
    CHECK(f8_region_alloc(client, chunk * COLS * sizeof(float), &region, &memory));
    struct f8_weight_desc weight = {.name = "w",
        .ndim = 2,
        .shape = {ROWS, COLS},
        .dtype = F8_F32,
        .flavour = F8_DYNAMIC,
        .format = F8_E4M3FN,
        .region = region};
    struct f8_bucket_desc bucket = {.name = "layers.0", .first = 0, .count = 1};
    CHECK(f8_register(group, &weight, 1, &bucket, 1));
    CHECK(f8_seal(group, NULL)); /* waits for the ranks of all hosts */
    for (int number = 0; number < STEPS; number++) {
        for (uint32_t i = 0; i < rows * COLS; i++)
            ((float *)memory)[i] = (float)(begin * COLS + i) / (ROWS * COLS) - 0.5F * (float)number;
        step(group, rank, number);
    }
    f8_close(client);
}
