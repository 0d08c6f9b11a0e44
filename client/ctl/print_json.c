/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows as JSON objects. Numbers stay numbers; floats also come as the bits they are, since JSON
 * has no NaN and no exact fp32. Called by the commands; single-threaded.
 */
#include "client/ctl/print_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/columns_devices.h"

#define INT(value) ((json_int_t)(value))

static const char *or_unknown(const char *name)
{
    return name != NULL ? name : "unknown";
}

static json_t *array_of_u32(const uint32_t *numbers, size_t count)
{
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++) {
        json_array_append_new(array, json_integer(numbers[i]));
    }
    return array;
}

static json_t *array_of_u64(const uint64_t *numbers, size_t count)
{
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++) {
        json_array_append_new(array, json_integer(INT(numbers[i])));
    }
    return array;
}

json_t *json_of_real(uint32_t bits, bool known)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return known && isfinite(value) ? json_real((double)value) : json_null();
}

json_t *json_of_bits(uint32_t bits, bool known)
{
    char text[16];

    snprintf(text, sizeof(text), "0x%08" PRIx32, bits);
    return known ? json_string(text) : json_null();
}

/* A count of changes; 0 means that it is not known. */
static json_t *version_of(uint64_t version)
{
    return version > 0 ? json_integer(INT(version)) : json_null();
}

static json_t *json_of_device(uint32_t number, const F8__DeviceInfo *d)
{
    char uuid[TABLE_MAX_CELL];

    device_uuid_text(uuid, d);
    return json_pack("{s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "number", INT(number),
        "uuid", uuid, "name", d->name, "pci", d->pci, "memory", INT(d->memory), "memory_free",
        INT(d->memory_free), "arena_bytes", INT(d->arena_bytes), "mapped_bytes",
        INT(d->mapped_bytes), "compute_capability", INT(d->compute_capability), "clients",
        INT(d->clients));
}

/* What is not there, or not known, is null: a version, or why there is none. */
static json_t *text_of(const char *text)
{
    return text[0] != '\0' ? json_string(text) : json_null();
}

static json_t *number_of(uint32_t number)
{
    return number > 0 ? json_integer(INT(number)) : json_null();
}

static void add_cuda(json_t *object, const F8__StatusInfo *s)
{
    json_t *devices = json_array();

    for (size_t d = 0; d < s->n_devices; d++) {
        json_array_append_new(devices, json_of_device((uint32_t)d, s->devices[d]));
    }
    json_object_set_new(object, "no_cuda", text_of(s->cuda));
    json_object_set_new(object, "cuda_driver", number_of(s->cuda_driver));
    json_object_set_new(object, "cuda_runtime", number_of(s->cuda_runtime));
    json_object_set_new(object, "nccl", number_of(s->nccl));
    json_object_set_new(object, "no_nccl", text_of(s->nccl_reason));
    json_object_set_new(object, "communicators", json_integer(INT(s->communicators)));
    json_object_set_new(object, "warm_communicators", json_integer(INT(s->warm_communicators)));
    json_object_set_new(object, "simulated", json_boolean(s->simulated));
    json_object_set_new(object, "devices", devices);
}

/* By which interface other hosts are reached, or why by none; null: the daemon knows of no hosts */
static void add_place(json_t *object, const F8__StatusInfo *s)
{
    json_object_set_new(object, "hosts_interface", text_of(s->hosts_interface));
    json_object_set_new(object, "hosts_address", text_of(s->hosts_address));
    json_object_set_new(object, "no_hosts", text_of(s->hosts_reason));
}

/* Helpers that wait for their group to come back. */
static void add_kept(json_t *object, const F8__StatusInfo *s)
{
    json_t *array = json_array();

    for (size_t i = 0; i < s->n_kept_engines; i++) {
        const F8__KeptEngine *kept = s->kept_engines[i];
        json_array_append_new(
            array, json_pack("{s:s, s:I, s:I, s:I}", "group", kept->group, "pid", INT(kept->pid),
                       "hosts", INT(kept->hosts), "left_ms", INT(kept->left_ms)));
    }
    json_object_set_new(object, "kept_helpers", array);
}

/* The other host of each rank; null: it is on this one, or not known yet. */
static json_t *array_of_hosts(char *const *hosts, size_t count)
{
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++) {
        json_array_append_new(array, text_of(hosts[i]));
    }
    return array;
}

static json_t *array_of_names(char *const *names, size_t count)
{
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++) {
        json_array_append_new(array, json_string(names[i]));
    }
    return array;
}

/* Files beside the socket that are not used, and for how long those are kept that nobody uses. */
static json_t *json_of_states(const F8__StatusInfo *s)
{
    return json_pack("{s:I, s:o, s:i, s:o, s:i}", "keep_ms", INT(s->state_keep_ms), "damaged",
        array_of_names(s->states_damaged, s->n_states_damaged), "num_damaged",
        (int)s->num_states_damaged, "newer", array_of_names(s->states_newer, s->n_states_newer),
        "num_newer", (int)s->num_states_newer);
}

/* The states' snapshots; null: none are kept. */
static json_t *json_of_snapshots(const F8__StatusInfo *s)
{
    if (s->state_directory[0] == '\0') {
        return json_null();
    }
    return json_pack("{s:s, s:i, s:I, s:o, s:o, s:o, s:i, s:o, s:i, s:I}", "directory",
        s->state_directory, "groups", (int)s->snapshots, "bytes", INT(s->snapshot_bytes), "age_ms",
        s->snapshot_done ? json_integer(INT(s->snapshot_age_ms)) : json_null(), "failure",
        text_of(s->snapshot_reason), "damaged",
        array_of_names(s->snapshots_damaged, s->n_snapshots_damaged), "num_damaged",
        (int)s->num_snapshots_damaged, "newer",
        array_of_names(s->snapshots_newer, s->n_snapshots_newer), "num_newer",
        (int)s->num_snapshots_newer, "interval_ms", INT(s->snapshot_interval_ms));
}

json_t *json_of_status(const void *row)
{
    const F8__StatusInfo *s = row;
    json_t *object = json_pack(
        "{s:s, s:i, s:I, s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:s}",
        "version", s->version, "pid", (int)s->pid, "uptime_ms", INT(s->uptime_ms), "socket",
        s->socket, "kernels", s->kernels, "threads", (int)s->threads, "connections",
        (int)s->connections, "jobs", (int)s->jobs, "groups", (int)s->groups, "weights",
        INT(s->weights), "region_bytes", INT(s->region_bytes), "arena_bytes", INT(s->arena_bytes),
        "gathers", INT(s->gathers), "failed_rounds", INT(s->failed_rounds), "memory_limit",
        INT(s->memory_limit), "backend", s->backend);

    if (object != NULL) {
        add_cuda(object, s);
        add_place(object, s);
        add_kept(object, s);
        json_object_set_new(object, "states", json_of_states(s));
        json_object_set_new(object, "snapshots", json_of_snapshots(s));
        json_object_set_new(object, "metrics", text_of(s->metrics));
    }
    return object;
}

json_t *json_of_job(const void *row)
{
    const F8__JobInfo *j = row;

    return json_pack("{s:s, s:I, s:i, s:i, s:I, s:I, s:o, s:i, s:I, s:o}", "name", j->name, "uid",
        INT(j->uid), "clients", (int)j->clients, "groups", (int)j->groups, "region_bytes",
        INT(j->region_bytes), "arena_bytes", INT(j->arena_bytes), "age_ms",
        columns_job_is_there(j) ? json_integer(INT(j->age_ms)) : json_null(), "states",
        (int)j->states, "state_bytes", INT(j->state_bytes), "left_ms",
        j->left_ms > 0 ? json_integer(INT(j->left_ms)) : json_null());
}

/* On which devices the ranks are; null and none on the host. */
static void add_devices(json_t *object, const F8__GroupInfo *g)
{
    json_t *devices = json_array();

    for (size_t r = 0; r < g->n_devices; r++) {
        json_array_append_new(devices, json_integer(g->devices[r]));
    }
    json_object_set_new(object, "devices", devices);
    json_object_set_new(object, "exchange", text_of(g->exchange));
    json_object_set_new(object, "exchanges", json_integer(INT(g->exchanges)));
    json_object_set_new(
        object, "copy_engine_exchanges", json_integer(INT(g->copy_engine_exchanges)));
    json_object_set_new(object, "window", json_boolean(g->window));
    json_object_set_new(object, "warm", json_boolean(g->warm));
}

/* What an engine moved; NCCL does not tell. */
static json_t *moved_of(const F8__GroupInfo *g, uint64_t bytes)
{
    return g->engine_untold ? json_null() : json_integer(INT(bytes));
}

/* Of a group over several hosts; null for others. */
static void add_engine(json_t *object, const F8__GroupInfo *g)
{
    json_t *engine = json_null();

    if (g->hosts > 0) {
        engine = json_pack("{s:o, s:o, s:s, s:o, s:o, s:I, s:I}", "name", text_of(g->engine), "pid",
            number_of(g->engine_pid), "interface", g->interface, "bytes_sent",
            moved_of(g, g->bytes_sent), "bytes_received", moved_of(g, g->bytes_received),
            "control_bytes_sent", INT(g->control_sent), "control_bytes_received",
            INT(g->control_received));
    }
    json_object_set_new(object, "hosts", json_integer(g->hosts));
    json_object_set_new(object, "engine", engine);
}

/* What its hosts wait for; null for a group of one host, or once they have met. */
static void add_meeting(json_t *object, const F8__GroupInfo *g)
{
    json_t *meeting = json_null();

    if (g->meeting[0] != '\0') {
        meeting = json_pack("{s:s, s:I, s:I, s:i}", "waits_for", g->meeting, "since_ms",
            INT(g->meeting_ms), "left_ms", INT(g->meeting_left_ms), "ranks_missing",
            (int)g->ranks_missing);
    }
    json_object_set_new(object, "meeting", meeting);
}

json_t *json_of_group(const void *row)
{
    const F8__GroupInfo *g = row;

    json_t *object = json_pack(
        "{s:s, s:I, s:s, s:I, s:s, s:s, s:i, s:o, s:i, s:i, s:i, s:I, s:I, s:I, s:I}", "job",
        g->job, "uid", INT(g->uid), "name", g->name, "generation", INT(g->generation), "state",
        g->state, "cause", g->cause, "world_size", (int)g->world_size, "pids",
        array_of_u32(g->pids, g->n_pids), "weights", (int)g->weights, "buckets", (int)g->buckets,
        "slots", (int)g->slots, "arena_bytes", INT(g->arena_bytes), "collectives",
        INT(g->collectives), "gathers", INT(g->gathers), "float8_bytes", INT(g->float8_bytes));

    if (object != NULL) {
        add_devices(object, g);
        add_engine(object, g);
        add_meeting(object, g);
        json_object_set_new(object, "rank_hosts", array_of_hosts(g->rank_hosts, g->n_rank_hosts));
    }
    return object;
}

json_t *json_of_host(const void *row)
{
    const F8__HostInfo *h = row;

    json_t *meeting = json_null();

    if (h->meeting) {
        meeting = json_pack(
            "{s:I, s:I}", "since_ms", INT(h->meeting_ms), "left_ms", INT(h->meeting_left_ms));
    }
    return json_pack("{s:s, s:I, s:s, s:s, s:s, s:o, s:I, s:b, s:b, s:b, s:o}", "job", h->job,
        "uid", INT(h->uid), "group", h->group, "name", h->name, "address", h->address, "ranks",
        array_of_u32(h->ranks, h->n_ranks), "silent_ms", INT(h->silent_ms), "here", h->here, "root",
        h->root, "lost", h->lost, "meeting", meeting);
}

/* What belongs to the scale of a weight. */
static void add_scale(json_t *object, const F8__WeightInfo *w)
{
    bool aged = w->version > 0 && w->scale_version > 0;

    json_object_set_new(object, "scale", json_of_real(w->scale, w->scale_known));
    json_object_set_new(object, "scale_bits", json_of_bits(w->scale, w->scale_known));
    json_object_set_new(object, "amax", json_of_real(w->amax, w->amax_known));
    json_object_set_new(object, "amax_bits", json_of_bits(w->amax, w->amax_known));
    json_object_set_new(object, "version", version_of(w->version));
    json_object_set_new(object, "scale_version", version_of(w->scale_version));
    json_object_set_new(
        object, "age", aged ? json_integer(INT(w->version) - INT(w->scale_version)) : json_null());
    json_object_set_new(object, "stale", json_integer(INT(w->stale)));
    json_object_set_new(object, "saturated", json_integer(INT(w->saturated)));
    json_object_set_new(object, "nan", json_integer(INT(w->nan)));
}

/* What belongs to the syncs of a delayed weight; null for others. */
static void add_syncs(json_t *object, const F8__WeightInfo *w)
{
    bool delayed = w->flavour == F8_PROTO_DELAYED;
    const char *algorithm = or_unknown(f8_proto_history_name(w->history_algorithm));
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{"syncs", w->syncs}, {"since_sync", w->since_sync}, {"kept", w->kept},
        {"history_length", w->history_length}};

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        json_object_set_new(
            object, counts[i].key, delayed ? json_integer(INT(counts[i].value)) : json_null());
    }
    json_object_set_new(
        object, "history_algorithm", delayed ? json_string(algorithm) : json_null());
    json_object_set_new(
        object, "initialised", delayed ? json_boolean(w->initialised) : json_null());
    json_object_set_new(
        object, "amax_group", json_string(w->amax_group[0] != '\0' ? w->amax_group : w->group));
}

json_t *json_of_weight(const void *row)
{
    const F8__WeightInfo *w = row;
    json_t *object = json_pack("{s:s, s:I, s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:b, s:s, s:I, s:I}",
        "job", w->job, "uid", INT(w->uid), "group", w->group, "bucket", w->bucket, "name", w->name,
        "shape", array_of_u64(w->shape, w->n_shape), "dtype",
        or_unknown(f8_proto_dtype_name(w->dtype)), "flavour",
        or_unknown(f8_proto_flavour_name(w->flavour)), "format",
        or_unknown(f8_proto_format_name(w->format)), "power_of_two", (int)w->power_of_two, "wire",
        w->wire, "bytes", INT(w->bytes), "gathers", INT(w->gathers));

    if (object != NULL) {
        add_scale(object, w);
        add_syncs(object, w);
    }
    return object;
}

json_t *json_of_amax(const void *row)
{
    const F8__WeightInfo *w = row;
    json_t *object = json_of_weight(w);
    json_t *reals = json_array(), *bits = json_array();

    for (size_t i = 0; i < w->n_history; i++) {
        json_array_append_new(reals, json_of_real(w->history[i], true));
        json_array_append_new(bits, json_of_bits(w->history[i], true));
    }
    json_object_set_new(object, "history", reals);
    json_object_set_new(object, "history_bits", bits);
    return object;
}

json_t *json_of_bucket(const void *row)
{
    const F8__BucketInfo *b = row;

    return json_pack("{s:s, s:I, s:s, s:s, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:o}", "job", b->job,
        "uid", INT(b->uid), "group", b->group, "name", b->name, "weights", INT(b->weights),
        "shared", (int)b->shared, "bytes", INT(b->bytes), "gathers", INT(b->gathers), "saturated",
        INT(b->saturated), "nan", INT(b->nan), "stale", INT(b->stale), "holders",
        array_of_u32(b->holders, b->n_holders));
}

json_t *json_of_round(const void *row)
{
    const F8__RoundInfo *r = row;

    return json_pack("{s:s, s:I, s:s, s:I, s:s, s:s, s:I, s:s, s:o, s:o, s:o, s:I}", "job", r->job,
        "uid", INT(r->uid), "group", r->group, "collective", INT(r->collective), "kind", r->kind,
        "bucket", r->bucket, "waited_ms", INT(r->waited_ms), "state", r->state, "missing_ranks",
        array_of_u32(r->missing_ranks, r->n_missing_ranks), "missing_pids",
        array_of_u32(r->missing_pids, r->n_missing_pids), "missing_hosts",
        array_of_hosts(r->missing_hosts, r->n_missing_hosts), "deadline_ms", INT(r->deadline_ms));
}

int json_print(struct ctl *ctl, const char *key, json_t *value)
{
    json_t *object = json_pack("{s:s, s:s?}", "schema", CTL_SCHEMA, "socket",
        ctl->channel != NULL ? channel_socket(ctl->channel) : NULL);
    int result = -1;

    if (object != NULL && json_object_set_new(object, key, value) == 0) {
        result = json_dumpf(object, stdout, JSON_COMPACT);
        printf("\n");
    }
    json_decref(object);
    if (result != 0) {
        fprintf(stderr, "f8ctl: cannot print the answer: no memory, or standard output is gone\n");
        return CTL_REFUSED;
    }
    return CTL_OK;
}

int json_print_rows(struct ctl *ctl, const char *key, json_t *(*object_of)(const void *row),
    const void *const *rows, size_t num_rows)
{
    json_t *array = json_array();

    for (size_t i = 0; i < num_rows; i++) {
        /* a text that is not UTF-8 makes no object; the list must not hide the row */
        json_t *object = object_of(rows[i]);
        json_array_append_new(array, object != NULL ? object : json_null());
    }
    return json_print(ctl, key, array);
}
