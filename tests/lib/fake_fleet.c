/* SPDX-License-Identifier: Apache-2.0 */
/* A fake daemon with all there is to show: see fake_fleet.h. On the fake daemon's thread. */
#include "tests/lib/fake_fleet.h"

#include <fnmatch.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/fake_fleet_views.h"

#define LONG_NAME                                                                                  \
    "long.................................................................................."       \
    "................................................................................end"

const char *const fleet_hostile[FLEET_HOSTILE] = {
    "<script>alert('name')</script>",
    "\"><img src=http://example.invalid/x onerror=alert(1)>",
    "</svg></table></style><!-- & &amp; ]]>",
    "bad \xff\xc0\xaf\xed\xa0\x80 utf-8 \033[31m\n\001",
    "right\xe2\x80\xaeto\xe2\x81\xa6left",
    LONG_NAME,
};

#define PAGE   120
#define SYNCS  1024
#define WINDOW 16

static _Atomic uint64_t num_weights = FLEET_HOSTILE + 6;
static atomic_uint stats_asked;

void fleet_set_weights(uint64_t count)
{
    num_weights = count;
}

uint32_t fleet_stats_asked(void)
{
    return stats_asked;
}

static uint32_t bits_of(double value)
{
    float number = (float)value;
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return bits;
}

/* The amax of a sync of the i-th weight: a wave over some octaves, with faults in some. */
static uint32_t amax_of(uint64_t i, uint64_t sync)
{
    if (i == 0 && sync % 97 < 2) {
        return bits_of(NAN);
    }
    if (i == 1 && sync > 40 && sync < 50) {
        return bits_of(INFINITY);
    }
    if (i == 2 && sync % 50 < 12) {
        return 0;
    }
    return bits_of(exp2(3 * sin((double)sync / (20 + (double)i)) - (double)(i % 5)));
}

static void name_of(uint64_t i, char *name, size_t size)
{
    if (i < FLEET_HOSTILE) {
        snprintf(name, size, "%s", fleet_hostile[i]);
    } else {
        snprintf(name, size, "model.layers.%u.mlp.weight", (unsigned)(i - FLEET_HOSTILE));
    }
}

struct weight_memory {
    F8__WeightInfo info;
    char name[256];
    uint64_t shape[2];
    uint32_t history[WINDOW];
};

static void make_weight(struct weight_memory *weight, uint64_t i)
{
    F8__WeightInfo *info = &weight->info;
    bool delayed = i < FLEET_HOSTILE || i % 2 == 0;

    f8__weight_info__init(info);
    name_of(i, weight->name, sizeof(weight->name));
    weight->shape[0] = 4096;
    weight->shape[1] = 1024 + i;
    info->job = (char *)"run<b>";
    info->uid = 1000;
    info->group = (char *)"dp";
    info->bucket = (char *)"layers";
    info->name = weight->name;
    info->shape = weight->shape;
    info->n_shape = 2;
    info->dtype = F8_PROTO_BF16;
    info->flavour = delayed ? F8_PROTO_DELAYED : F8_PROTO_DYNAMIC;
    info->format = F8_PROTO_E4M3FN;
    info->wire = (char *)"e4m3fn";
    info->amax = amax_of(i, SYNCS);
    info->scale = bits_of(448);
    info->scale_known = info->amax_known = true;
    info->version = 900 + i;
    info->scale_version = 900 + i - i % 3;
    info->gathers = 1000;
    info->saturated = i % 7 == 0 ? 1000 * i + 5 : 0;
    info->nan = i == 0 ? 12 : 0;
    info->stale = i % 5 == 0 ? 1 + i : 0;
    info->bytes = weight->shape[0] * weight->shape[1];
    info->syncs = SYNCS;
    info->since_sync = 1;
    info->kept = i == 2 ? 240 : 0;
    info->initialised = delayed;
    info->history_length = WINDOW;
    info->history = weight->history;
    info->n_history = delayed ? WINDOW : 0;
    for (uint64_t h = 0; h < WINDOW; h++) {
        weight->history[h] = amax_of(i, SYNCS - h);
    }
}

static void answer_weights(F8__InspectReply *reply, const F8__Inspect *ask)
{
    static struct weight_memory weights[PAGE];
    static F8__WeightInfo *list[PAGE];
    uint64_t i = ask->cursor;

    for (; i < num_weights && reply->n_weights < PAGE; i++) {
        size_t n = reply->n_weights;
        make_weight(&weights[n], i);
        list[n] = &weights[n].info;
        reply->n_weights += ask->name[0] == '\0' || fnmatch(ask->name, weights[n].name, 0) == 0;
    }
    reply->weights = list;
    reply->cursor = i < num_weights ? i : 0;
}

/* The first that matches, which is all that is asked for. */
static void answer_history(F8__InspectReply *reply, const F8__Inspect *ask)
{
    static F8__HistoryInfo info;
    static F8__HistoryInfo *list[] = {&info};
    static char name[256];
    static uint32_t amax[SYNCS], scale[SYNCS];
    uint64_t i = 0;

    for (; i < num_weights; i++) {
        name_of(i, name, sizeof(name));
        if (fnmatch(ask->name, name, 0) == 0) {
            break;
        }
    }
    if (i == num_weights || fnmatch(ask->job[0] != '\0' ? ask->job : "*", "run<b>", 0) != 0) {
        return;
    }
    f8__history_info__init(&info);
    info.job = (char *)"run<b>";
    info.uid = 1000;
    info.group = (char *)"dp";
    info.name = name;
    info.newest = SYNCS;
    info.amax = amax;
    info.scale = scale;
    info.n_amax = info.n_scale = i == 4 ? 3 : SYNCS;
    for (uint64_t s = 0; s < info.n_amax; s++) {
        amax[s] = amax_of(i, SYNCS - s);
        scale[s] = bits_of(exp2(floor(5 - 3 * sin((double)(SYNCS - s) / (20 + (double)i)))));
    }
    reply->histories = list;
    reply->n_histories = 1;
}

static bool answer(int fd, const F8__Request *request)
{
    F8__Reply reply = F8__REPLY__INIT;
    F8__InspectReply inspect = F8__INSPECT_REPLY__INIT;

    if (request->body_case != F8__REQUEST__BODY_INSPECT) {
        return fake_reply_status(fd, request->id, F8_EUNKNOWN, "the fleet is only looked at");
    }
    switch (request->inspect->view) {
    case F8__VIEW__WEIGHTS:
    case F8__VIEW__AMAX:
        answer_weights(&inspect, request->inspect);
        break;
    case F8__VIEW__HISTORY:
        answer_history(&inspect, request->inspect);
        break;
    case F8__VIEW__STATS:
        fleet_stats(&inspect, request->inspect, ++stats_asked);
        break;
    default:
        fleet_view(&inspect, request->inspect, num_weights);
    }
    reply.id = request->id;
    reply.body_case = F8__REPLY__BODY_INSPECT;
    reply.inspect = &inspect;
    return fake_reply(fd, &reply, -1);
}

void fleet_serve(struct fake_daemon *daemon, int fd)
{
    bool more = fake_hello(fd);

    (void)daemon;
    stats_asked = 0;
    while (more) {
        F8__Request *request = fake_receive(fd, NULL);
        more = request != NULL && answer(fd, request);
        if (request != NULL) {
            fake_free(request);
        }
    }
}
