/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame of f8ctl top as one line of JSON. Rates are null in the first look at a daemon, or at a
 * group or weight. See top.h.
 */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "client/ctl/print_json.h"
#include "client/ctl/top.h"

/* Weights of a frame, unless --top says. */
#define WEIGHTS 10

static json_t *rate_or_null(double rate)
{
    return isnan(rate) ? json_null() : json_real(rate);
}

/* Into the object, beside what it has. */
static void add_rates(json_t *object, const struct top_rates *rates)
{
    json_object_set_new(object, "gathers_per_second", rate_or_null(rates->gathers));
    json_object_set_new(object, "saturated_per_second", rate_or_null(rates->saturated));
    json_object_set_new(object, "nan_per_second", rate_or_null(rates->nan));
    json_object_set_new(object, "stale_per_second", rate_or_null(rates->stale));
}

static json_t *object_of_group(const struct top_group *group)
{
    json_t *object = json_of_group(group->info);

    if (object == NULL) {
        return json_null(); /* its name is not UTF-8 */
    }
    add_rates(object, &group->rates);
    json_object_set_new(object, "bytes_per_second", rate_or_null(group->rates.bytes));
    json_object_set_new(object, "failed_rounds", json_integer((json_int_t)group->info->failed));
    json_object_set_new(
        object, "round", group->round != NULL ? json_of_round(group->round) : json_null());
    return object;
}

static json_t *object_of_weight(const struct top_weight *weight)
{
    json_t *object = json_of_weight(weight->info);

    if (object == NULL) {
        return json_null();
    }
    add_rates(object, &weight->rates);
    return object;
}

static json_t *groups_of(const struct top *top)
{
    json_t *list = json_array();

    for (size_t i = 0; i < top->look.groups.num_rows; i++) {
        json_array_append_new(list, object_of_group(&top->look.rows[i]));
    }
    return list;
}

static json_t *weights_of(const struct top *top)
{
    size_t limit = top->ctl->top > 0 ? top->ctl->top : WEIGHTS;
    json_t *list = json_array();

    for (size_t i = 0; i < top->weights.fetched.num_rows && i < limit; i++) {
        json_array_append_new(list, object_of_weight(top->weights.sorted[i]));
    }
    return list;
}

int top_print_json(const struct top *top)
{
    json_t *frame = json_pack("{s:b, s:s?}", "connected", (int)top->connected, "note",
        top->note[0] != '\0' ? top->note : NULL);

    if (frame != NULL && top->look.taken) {
        json_object_set_new(frame, "status", json_of_status(top->look.status.rows[0]));
        add_rates(frame, &top->look.total);
        json_object_set_new(frame, "bytes_per_second", rate_or_null(top->look.total.bytes));
        json_object_set_new(frame, "waiting_rounds", json_integer((json_int_t)top->look.waiting));
        json_object_set_new(frame, "groups", groups_of(top));
        json_object_set_new(frame, "weights", weights_of(top));
    }
    return json_print(top->ctl, "top", frame);
}
