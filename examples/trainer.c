/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest trainer: a rank that gathers a float8 matrix and a norm, three steps long. Start
 * f8gatherd, then one of these per rank:  trainer RANK WORLD_SIZE [SOCKET] */
#include <stdio.h>
#include <stdlib.h>
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

int main(int argc, char **argv)
{
    uint32_t rank = argc > 2 ? (uint32_t)atoi(argv[1]) : 0;
    uint32_t world_size = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
    struct f8_connect_options options = {.socket = argc > 3 ? argv[3] : NULL, .job = "example"};
    struct f8_client *client;
    struct f8_group *group;
    CHECK(f8_connect(&options, &client));
    CHECK(f8_group_join(client, "dp", rank, world_size, &group));

    /* This rank's rows of both weights, cut as torch.chunk does: the last ranks have fewer. */
    uint32_t chunk = (ROWS + world_size - 1) / world_size, begin = rank * chunk;
    uint32_t rows = begin >= ROWS ? 0 : begin + chunk > ROWS ? ROWS - begin : chunk;
    struct f8_region *region;
    void *memory;
    CHECK(f8_region_alloc(client, chunk * (COLS + 1) * sizeof(float), &region, &memory));
    float *matrix = (float *)memory, *norm = matrix + chunk * COLS;
    /* clang-format off */
    struct f8_weight_desc weights[] = {
        {.name = "w", .ndim = 2, .shape = {ROWS, COLS}, .dtype = F8_F32, .flavour = F8_DYNAMIC,
            .format = F8_E4M3FN, .region = region},
        {.name = "norm", .ndim = 1, .shape = {ROWS}, .dtype = F8_F32, .flavour = F8_RAW,
            .region = region, .offset = chunk * COLS * sizeof(float)}};
    /* clang-format on */
    struct f8_bucket_desc bucket = {.name = "layers.0", .first = 0, .count = 2};
    CHECK(f8_register(group, weights, 2, &bucket, 1));
    CHECK(f8_seal(group, NULL));

    for (int step = 0; step < STEPS; step++) {
        for (uint32_t i = 0; i < rows * COLS; i++)
            matrix[i] = (float)(begin * COLS + i) / (ROWS * COLS) - 0.5F * (float)step;
        for (uint32_t i = 0; i < rows; i++)
            norm[i] = (float)(step + 1);
        f8_ticket ticket;
        struct f8_view views[2];
        CHECK(f8_changed(group, 0, 2));
        CHECK(f8_precompute(group, F8_DEFAULT_DEADLINE, NULL, &ticket)); /* all ranks: the scales */
        CHECK(f8_wait(group, ticket, F8_FOREVER, NULL));
        CHECK(f8_pre_gather(group, 0, NULL));                  /* optional: this rank is ready */
        CHECK(f8_gather(group, 0, F8_DEFAULT_DEADLINE, NULL)); /* all ranks; returns at once */
        CHECK(f8_post_gather(group, 0, F8_FOREVER, views, 2, NULL));
        printf("rank %u step %d: scale %g, first byte 0x%02x, norm %g\n", rank, step,
            (double)*views[0].scale, *(const unsigned char *)views[0].data,
            (double)*(const float *)views[1].data);
        CHECK(f8_release(group, 0, NULL));
    }
    f8_close(client);
}
