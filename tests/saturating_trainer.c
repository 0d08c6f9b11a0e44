/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saturating_trainer SOCKET JOB GROUP WEIGHT: one rank whose one delayed weight saturates in every
 * other step, until it is killed: what there is to be found in the examples of f8ctl(1). Started by
 * tests/system/man_examples.py.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "f8client.h"

#define COUNT 64

/* Values that the scale of the step before does not fit, in every other step. */
#define SMALL 1.0F
#define LARGE 100.0F

/* Between steps: nobody is to measure it. */
#define PAUSE_MS 5

static void check(const char *call, int status)
{
    if (status == F8_OK)
        return;
    (void)fprintf(stderr, "%s: %s: %s\n", call, f8_status_name(status), f8_error_text());
    exit(1);
}

static float *begin(struct f8_client *client, struct f8_group *group, const char *name)
{
    struct f8_region *region;
    void *memory;
    check("f8_region_alloc", f8_region_alloc(client, COUNT * sizeof(float), &region, &memory));
    const struct f8_weight_desc weight = {.name = name,
        .ndim = 1,
        .shape = {COUNT},
        .dtype = F8_F32,
        .flavour = F8_DELAYED,
        .format = F8_E4M3FN,
        .history_length = 1,
        .region = region};
    const struct f8_bucket_desc bucket = {.name = "layers.0", .count = 1};
    check("f8_register", f8_register(group, &weight, 1, &bucket, 1));
    check("f8_seal", f8_seal(group, NULL));
    return memory;
}

static void step(struct f8_group *group, float *values, float value)
{
    f8_ticket ticket;
    for (int i = 0; i < COUNT; i++)
        values[i] = value;
    check("f8_changed", f8_changed(group, 0, 1));
    check("f8_gather", f8_gather(group, 0, F8_DEFAULT_DEADLINE, NULL));
    check("f8_post_gather", f8_post_gather(group, 0, F8_FOREVER, NULL, 0, NULL));
    check("f8_release", f8_release(group, 0, NULL));
    check("f8_sync", f8_sync(group, F8_DEFAULT_DEADLINE, &ticket));
    check("f8_wait", f8_wait(group, ticket, F8_FOREVER, NULL));
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        (void)fprintf(stderr, "usage: saturating_trainer SOCKET JOB GROUP WEIGHT\n");
        return 2;
    }
    const struct f8_connect_options options = {.socket = argv[1], .job = argv[2]};
    struct f8_client *client;
    struct f8_group *group;
    check("f8_connect", f8_connect(&options, &client));
    check("f8_group_join", f8_group_join(client, argv[3], 0, 1, &group));
    float *values = begin(client, group, argv[4]);
    for (unsigned n = 0;; n++) {
        step(group, values, n % 2 == 0 ? SMALL : LARGE);
        (void)poll(NULL, 0, PAUSE_MS);
    }
}
