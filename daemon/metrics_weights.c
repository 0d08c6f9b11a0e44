/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The families of single weights, which are only shown to those who ask for them: a model has
 * thousands. See metrics_private.h.
 */
#include "daemon/metrics_private.h"

#include <string.h>

/* One sample of a weight, if there is one. */
typedef void weight_sample(struct metrics_text *text, enum metrics_family family,
    const struct metrics_labels *labels, const struct scaling *scaling);

static void scale_sample(struct metrics_text *text, enum metrics_family family,
    const struct metrics_labels *labels, const struct scaling *scaling)
{
    if (scaling->scale_seen)
        metrics_value(text, family, labels, (double)scaling->scale);
}

static void amax_sample(struct metrics_text *text, enum metrics_family family,
    const struct metrics_labels *labels, const struct scaling *scaling)
{
    float amax;
    memcpy(&amax, &scaling->amax, sizeof(amax));
    if (scaling->amax_seen)
        metrics_value(text, family, labels, (double)amax);
}

#define COUNTER_SAMPLE(field)                                                                      \
    static void field##_sample(struct metrics_text *text, enum metrics_family family,              \
        const struct metrics_labels *labels, const struct scaling *scaling)                        \
    {                                                                                              \
        metrics_count(text, family, labels, scaling->field);                                       \
    }
COUNTER_SAMPLE(gathers)
COUNTER_SAMPLE(saturated)
COUNTER_SAMPLE(nan)
COUNTER_SAMPLE(stale)

/* Those of an amax group are others', which are shown there. */
static uint32_t own_weights(const struct group *group)
{
    return group->list && !group->sources ? group->list->num_weights : 0;
}

/* How many weights of the group are shown, of which `*room` more may be. */
static uint32_t take_room(const struct group *group, uint32_t *room)
{
    uint32_t count = own_weights(group);
    if (count > *room)
        count = *room;
    *room -= count;
    return count;
}

static void family_of_all(struct metrics_text *text, enum metrics_family family,
    weight_sample *sample, const struct metrics_groups *groups)
{
    uint32_t room = METRICS_MAX_WEIGHTS;
    metrics_family(text, family);
    for (uint32_t g = 0; g < groups->num_listed; g++) {
        const struct group *group = groups->listed[g];
        struct metrics_labels labels;
        metrics_group_labels(&labels, group);
        size_t size = labels.size;
        uint32_t count = take_room(group, &room);
        for (uint32_t w = 0; w < count; w++) {
            labels.size = size;
            metrics_label(&labels, "weight", group->list->weights[w].name);
            sample(text, family, &labels, &group->scalings[w]);
        }
    }
}

static uint64_t count_unlisted(
    const struct metrics_source *source, const struct metrics_groups *groups)
{
    uint32_t room = METRICS_MAX_WEIGHTS;
    uint64_t all = 0, shown = 0;
    for (const struct job *job = registry_jobs(source->registry); job; job = job->next)
        for (const struct group *group = job->groups; group; group = group->next)
            all += own_weights(group);
    for (uint32_t g = 0; g < groups->num_listed; g++)
        shown += take_room(groups->listed[g], &room);
    return all - shown;
}

void metrics_weight_families(struct metrics_text *text, const struct metrics_source *source,
    const struct metrics_groups *groups)
{
    static const struct {
        enum metrics_family family;
        weight_sample *sample;
    } shown[] = {
        {METRICS_WEIGHT_SCALE, scale_sample},
        {METRICS_WEIGHT_AMAX, amax_sample},
        {METRICS_WEIGHT_GATHERS, gathers_sample},
        {METRICS_WEIGHT_SATURATED, saturated_sample},
        {METRICS_WEIGHT_NAN, nan_sample},
        {METRICS_WEIGHT_STALE, stale_sample},
    };
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
        family_of_all(text, shown[i].family, shown[i].sample, groups);
    metrics_family(text, METRICS_WEIGHTS_UNLISTED);
    metrics_count(text, METRICS_WEIGHTS_UNLISTED, NULL, count_unlisted(source, groups));
}
