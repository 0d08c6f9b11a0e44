/* SPDX-License-Identifier: Apache-2.0 */
/* Lists, scalings and forms for the tests of states: see state_fixture.h. */
#include "lib/state_fixture.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "status.h"

struct weight state_fixture_weight(void)
{
    return (struct weight){
        .shape = {8, 4},
        .ndim = 2,
        .dtype = F8_PROTO_F32,
        .flavour = F8_PROTO_DELAYED,
        .format = F8_PROTO_E4M3FN,
        .history_length = 16,
        .history_algorithm = F8_PROTO_HISTORY_MAX,
    };
}

struct weight_list *state_fixture_list(void)
{
    struct weight_list *list = weights_new(4);
    ck_assert_ptr_nonnull(list);
    return list;
}

void state_fixture_add(struct weight_list *list, const char *name, const struct weight *weight)
{
    struct reason reason;
    int status = weights_add(list, name, weight, 1 << 20, &reason);
    ck_assert_msg(status == F8_OK, "%s", reason.text);
}

struct weight_list *state_fixture_model(void)
{
    struct weight_list *list = state_fixture_list();
    struct weight wq = state_fixture_weight(), wk = wq, norm = wq, wv = wq;
    wq.dtype = F8_PROTO_BF16;
    wk.format = F8_PROTO_E5M2;
    wk.power_of_two = true;
    wk.history_length = 3;
    wk.history_algorithm = F8_PROTO_HISTORY_MOST_RECENT;
    norm.flavour = F8_PROTO_RAW;
    wv.flavour = F8_PROTO_DYNAMIC;
    state_fixture_add(list, "layers.0.wq", &wq);
    state_fixture_add(list, "norm", &norm);
    state_fixture_add(list, "layers.0.wk", &wk);
    state_fixture_add(list, "layers.0.wv", &wv);
    return list;
}

static uint32_t next(uint32_t *seed)
{
    return *seed = *seed * 1664525u + 1013904223u;
}

static void fill(struct scaling *scaling, const struct weight *weight, uint32_t *seed)
{
    uint32_t scale = 0x00800000u + next(seed) % 0x7e000000u; /* finite, above 0 */
    memcpy(&scaling->scale, &scale, sizeof(scale));
    scaling->amax = next(seed) >> 1; /* any bits but the sign: a NaN too */
    scaling->gathers = next(seed);
    scaling->saturated = next(seed);
    scaling->nan = next(seed);
    scaling->stale = next(seed);
    scaling->amax_seen = true;
    scaling->scale_seen = true;
    scaling->ready = true;
    scaling->delayed.kept = next(seed);
    scaling->delayed.syncs = (uint64_t)next(seed) << 32;
    scaling->delayed.newest = next(seed) % weight->history_length;
    for (uint32_t i = 0; i < weight->history_length; i++)
        scaling->delayed.history[i] = next(seed) >> 1;
}

struct scaling *state_fixture_scalings(const struct weight_list *list, uint32_t seed)
{
    struct scaling *scalings = scaling_new(list);
    ck_assert_ptr_nonnull(scalings);
    for (uint32_t w = 0; w < list->num_weights && seed; w++)
        if (state_has(&list->weights[w]))
            fill(&scalings[w], &list->weights[w], &seed);
    return scalings;
}

static bool same_one(const struct weight *weight, const struct scaling *a, const struct scaling *b)
{
    bool same = memcmp(&a->scale, &b->scale, sizeof(a->scale)) == 0 && a->amax == b->amax &&
                a->gathers == b->gathers && a->saturated == b->saturated && a->nan == b->nan &&
                a->stale == b->stale && a->amax_seen == b->amax_seen &&
                a->scale_seen == b->scale_seen && a->ready == b->ready &&
                a->delayed.kept == b->delayed.kept && a->delayed.syncs == b->delayed.syncs;
    for (uint32_t i = 0; i < weight->history_length && same; i++)
        same = scaling_history(a, weight, i) == scaling_history(b, weight, i);
    return same;
}

bool state_fixture_same(
    const struct weight_list *list, const struct scaling *a, const struct scaling *b)
{
    bool same = true;
    for (uint32_t w = 0; w < list->num_weights && same; w++)
        if (state_has(&list->weights[w]))
            same = same_one(&list->weights[w], &a[w], &b[w]);
    return same;
}

struct state_form state_fixture_form(
    const struct weight_list *list, const struct scaling *scalings, uint64_t syncs)
{
    const struct state_owner owner = {
        .uid = 1000,
        .job = "../job",
        .group = "dp/../x",
        .token = (const uint8_t *)"secret",
        .token_size = 6,
    };
    struct state_form form;
    struct reason reason;
    int status = state_form_make(&owner, list, scalings, syncs, &form, &reason);
    ck_assert_msg(status == F8_OK, "%s", reason.text);
    return form;
}

int state_fixture_files(const char *directory, void (*call)(const char *path))
{
    int count = 0;
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        char path[512];
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        if (call)
            call(path);
        count++;
    }
    if (entries)
        (void)closedir(entries);
    return count;
}

static void remove_file(const char *path)
{
    (void)unlink(path);
}

void state_fixture_remove_files(const char *directory)
{
    (void)state_fixture_files(directory, remove_file);
}
