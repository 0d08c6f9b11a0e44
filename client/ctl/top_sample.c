/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at the daemon and takes differences: see top.h. The daemon is asked for its status, groups
 * and rounds each time; for its weights only as often as their list costs little, since a model may
 * have ten thousand.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/ctl/sort.h"
#include "client/ctl/top.h"
#include "client/error.h"

/* After a list of weights that took t to fetch, none is asked for until this many t are over. */
#define REST 50

/* Frames that show that the daemon was restarted. */
#define RESTART_FRAMES 10

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A counter that has gone back is another group's, or another daemon's. */
static double rate(uint64_t before, uint64_t after, double seconds)
{
    return after >= before && seconds > 0 ? (double)(after - before) / seconds : NAN;
}

static const struct top_rates unknown = {NAN, NAN, NAN, NAN, NAN};

/* ---- groups ---- */

static bool same_group(const F8__GroupInfo *a, const F8__GroupInfo *b)
{
    return a->uid == b->uid && strcmp(a->job, b->job) == 0 && strcmp(a->name, b->name) == 0;
}

/* As it was in the look before, most likely in the same place. */
static const F8__GroupInfo *find_group(
    const struct top_look *before, const F8__GroupInfo *group, size_t place)
{
    const void *const *rows = before->groups.rows;
    size_t count = before->groups.num_rows;

    if (place < count && same_group(rows[place], group)) {
        return rows[place];
    }
    for (size_t i = 0; i < count; i++) {
        if (same_group(rows[i], group)) {
            return rows[i];
        }
    }
    return NULL;
}

static struct top_rates group_rates(
    const F8__GroupInfo *before, const F8__GroupInfo *group, double seconds)
{
    if (before == NULL || group->gathers < before->gathers) {
        return unknown;
    }
    return (struct top_rates){
        .gathers = rate(before->gathers, group->gathers, seconds),
        .bytes = rate(before->gathered_bytes, group->gathered_bytes, seconds),
        .saturated = rate(before->saturated, group->saturated, seconds),
        .nan = rate(before->nan, group->nan, seconds),
        .stale = rate(before->stale, group->stale, seconds),
    };
}

static const F8__RoundInfo *find_round(const struct top_look *look, const F8__GroupInfo *group)
{
    for (size_t i = 0; i < look->rounds.num_rows; i++) {
        const F8__RoundInfo *round = look->rounds.rows[i];

        if (round->uid == group->uid && strcmp(round->group, group->name) == 0 &&
            strcmp(round->job, group->job) == 0) {
            return round;
        }
    }
    return NULL;
}

/* Of groups that were there before. */
static void add_rates(struct top_rates *sum, const struct top_rates *rates)
{
    if (!isnan(rates->gathers)) {
        sum->gathers += rates->gathers;
        sum->bytes += rates->bytes;
        sum->saturated += rates->saturated;
        sum->nan += rates->nan;
        sum->stale += rates->stale;
    }
}

static int compare_looks(const struct top_look *before, struct top_look *look)
{
    double seconds = look->time - before->time;

    look->rows = calloc(look->groups.num_rows + 1, sizeof(*look->rows));
    if (look->rows == NULL) {
        return error_set(F8_ENOMEM, "no memory for %zu groups", look->groups.num_rows);
    }
    look->total = before->taken ? (struct top_rates){0} : unknown;
    for (size_t i = 0; i < look->groups.num_rows; i++) {
        const F8__GroupInfo *group = look->groups.rows[i];
        struct top_group *row = &look->rows[i];

        row->info = group;
        row->round = find_round(look, group);
        row->rates =
            group_rates(before->taken ? find_group(before, group, i) : NULL, group, seconds);
        add_rates(&look->total, &row->rates);
        look->waiting += row->round != NULL && strncmp(row->round->state, "waiting", 7) == 0;
    }
    return F8_OK;
}

static void look_done(struct top_look *look)
{
    fetch_done(&look->status);
    fetch_done(&look->groups);
    fetch_done(&look->rounds);
    free(look->rows);
    *look = (struct top_look){0};
}

static int look(struct ctl *ctl, struct top_look *look)
{
    int status = fetch(ctl, F8__VIEW__STATUS, NULL, &look->status);

    if (status == F8_OK && look->status.num_rows != 1) {
        status = error_set(F8_EPROTO, "the daemon told no status");
    }
    if (status == F8_OK) {
        status = fetch(ctl, F8__VIEW__GROUPS, "", &look->groups);
        look->time = now();
    }
    if (status == F8_OK) {
        status = fetch(ctl, F8__VIEW__ROUNDS, "", &look->rounds);
    }
    return status;
}

/* ---- weights ---- */

static bool same_list(const F8__WeightInfo *a, const F8__WeightInfo *b)
{
    return a->uid == b->uid && strcmp(a->group, b->group) == 0 && strcmp(a->job, b->job) == 0;
}

/* Where the weights of the same group begin in the list before; its end if they were not there. */
static size_t find_list(const struct top_weights *before, const F8__WeightInfo *weight)
{
    size_t i = 0;

    while (i < before->fetched.num_rows && !same_list(before->fetched.rows[i], weight)) {
        i++;
    }
    return i;
}

static struct top_rates weight_rates(
    const F8__WeightInfo *before, const F8__WeightInfo *weight, double seconds)
{
    return (struct top_rates){
        .gathers = rate(before->gathers, weight->gathers, seconds),
        .bytes = NAN,
        .saturated = rate(before->saturated, weight->saturated, seconds),
        .nan = rate(before->nan, weight->nan, seconds),
        .stale = rate(before->stale, weight->stale, seconds),
    };
}

/* The weights of a group are in the same order each time, as long as it is sealed the same. */
static int compare_weights(const struct top_weights *before, struct top_weights *weights)
{
    size_t count = weights->fetched.num_rows, from = 0;

    weights->rows = calloc(count + 1, sizeof(*weights->rows));
    weights->sorted = calloc(count + 1, sizeof(*weights->sorted));
    if (weights->rows == NULL || weights->sorted == NULL) {
        return error_set(F8_ENOMEM, "no memory for %zu weights", count);
    }
    for (size_t i = 0; i < count; i++) {
        const F8__WeightInfo *weight = weights->fetched.rows[i];
        struct top_weight *row = &weights->rows[i];

        if (i == 0 || !same_list(weights->fetched.rows[i - 1], weight)) {
            from = find_list(before, weight);
        }
        *row = (struct top_weight){.info = weight, .rates = unknown};
        if (from < before->fetched.num_rows) {
            const F8__WeightInfo *was = before->fetched.rows[from++];
            if (same_list(was, weight) && strcmp(was->name, weight->name) == 0) {
                row->rates = weight_rates(was, weight, weights->time - before->time);
            }
        }
    }
    return F8_OK;
}

static void weights_done(struct top_weights *weights)
{
    fetch_done(&weights->fetched);
    free(weights->rows);
    free(weights->sorted);
    *weights = (struct top_weights){0};
}

/* By what the column says; those alike by what they saturated in all. */
void top_sort(struct top *top)
{
    struct top_weights *weights = &top->weights;
    size_t count = weights->fetched.num_rows;

    for (size_t i = 0; i < count; i++) {
        weights->sorted[i] = &weights->rows[i];
    }
    if (sort_rows(sort_find(&columns_top, "saturated"), true, weights->sorted, count) != F8_OK ||
        sort_rows(top->sort, top->descending, weights->sorted, count) != F8_OK) {
        snprintf(top->note, sizeof(top->note), "the weights are not sorted: %s", error_text());
    }
}

static int take_weights(struct top *top)
{
    struct top_weights weights = {0};
    double begin = now();
    int status;

    if (begin < top->weights.due) {
        return F8_OK;
    }
    status = fetch(top->ctl, F8__VIEW__WEIGHTS, NULL, &weights.fetched);
    weights.time = now();
    weights.due = weights.time + REST * (weights.time - begin);
    if (status == F8_OK) {
        status = compare_weights(&top->weights, &weights);
    }
    if (status != F8_OK) {
        weights_done(&weights);
        return status;
    }
    weights_done(&top->weights);
    top->weights = weights;
    top_sort(top);
    return F8_OK;
}

/* ---- all of it ---- */

static void forget(struct top *top)
{
    look_done(&top->look);
    weights_done(&top->weights);
}

/* Another daemon counts anew: nothing of before is compared with it. */
static void notice_restart(struct top *top, const F8__StatusInfo *status)
{
    bool same = status->pid == top->pid && status->uptime_ms >= top->uptime_ms;

    if (top->pid != 0 && !same) {
        snprintf(top->note, sizeof(top->note),
            "f8gatherd was restarted: pid %u is gone, this is pid %u", top->pid, status->pid);
        top->frames = RESTART_FRAMES;
        forget(top);
    } else if (top->frames == 0 || --top->frames == 0) {
        top->note[0] = '\0';
    }
    top->pid = status->pid;
    top->uptime_ms = status->uptime_ms;
}

static int take(struct top *top)
{
    struct top_look next = {0};
    int status = ctl_connect(top->ctl);

    if (status == F8_OK) {
        status = look(top->ctl, &next);
    }
    if (status == F8_OK) {
        notice_restart(top, next.status.rows[0]);
        status = compare_looks(&top->look, &next);
    }
    if (status == F8_OK) {
        next.taken = true;
        look_done(&top->look);
        top->look = next;
        return take_weights(top);
    }
    look_done(&next);
    return status;
}

void top_take(struct top *top)
{
    int status = take(top);

    top->connected = status == F8_OK;
    if (top->connected) {
        return;
    }
    snprintf(top->note, sizeof(top->note), "%s", error_text());
    top->frames = 0;
    if (status != F8_EDEADLINE) {
        channel_close(top->ctl->channel);
        top->ctl->channel = NULL;
    }
    forget(top);
}

void top_done(struct top *top)
{
    forget(top);
}
