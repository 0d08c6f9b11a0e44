/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of a run, for people and as JSON. Called by main after all processes have ended.
 */
#include "report.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "client/bench/report_hosts.h"
#include "client/plural.h"
#include "proto/protocol.h"

#define SCHEMA "f8bench/1"

/* "bfloat16", or "mixed": files may have several. */
static const char *source_dtype(const struct model *model)
{
    for (uint32_t i = 1; i < model->num_weights; i++) {
        if (model->weights[i].dtype != model->weights[0].dtype) {
            return "mixed";
        }
    }
    return f8_proto_dtype_name(model->weights[0].dtype);
}

static void print_bytes(const char *what, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;

    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    printf("%s %.*f %s", what, unit > 0 ? 1 : 0, value, units[unit]);
}

/* The devices by name, each once: simulated ones say so themselves. */
static void print_devices(const struct report *report)
{
    const struct shared *shared = report->outcome->shared;
    uint32_t num_ranks = shared != NULL ? shared->num_ranks : 0;
    const char *between = "on ";

    for (uint32_t i = 0; i < num_ranks; i++) {
        uint32_t before = 0;
        while (before < i && strcmp(shared->ranks[before].device, shared->ranks[i].device) != 0) {
            before++;
        }
        if (before == i && shared->ranks[i].device[0] != '\0') {
            printf("%s%s", between, shared->ranks[i].device);
            between = ", ";
        }
    }
    printf("%s", between[0] == ',' ? "\n" : "");
}

static void print_head(const struct report *report)
{
    const struct options *options = report->options;
    const struct model *model = report->model;

    printf("%s: %u weight%s in %u bucket%s, %s to %s, %s; %u rank%s, %u step%s", model->name,
        model->num_weights, plural(model->num_weights), model->num_buckets,
        plural(model->num_buckets), source_dtype(model), f8_proto_format_name(options->format),
        f8_proto_flavour_name(options->flavour), options->ranks, plural(options->ranks),
        options->steps, plural(options->steps));
    if (options->dp > 0) {
        printf(", mesh dp=%u,tp=%u", options->dp, options->tp);
    }
    if (options->hsdp > 1) {
        printf(", %u groups of replicas", options->hsdp);
    }
    if (options->jobs > 1) {
        printf(", %u jobs", options->jobs);
    }
    if (options->hosts > 0) {
        printf(" on %u host%s", options->hosts, plural(options->hosts));
    }
    if (options->slots > 0) {
        printf(", %u slots", options->slots);
    }
    printf("\n");
    print_devices(report);
    for (uint32_t i = 0; i < model->num_skipped; i++) {
        printf("skipped: %s\n", model->skipped[i]);
    }
}

static void print_phases(const struct summary_times *summary)
{
    printf("\n%-12s %12s %10s %10s\n", "phase", "median", "GB/s", "x memcpy");
    for (uint32_t i = 0; i < summary->num_phases; i++) {
        const struct summary_phase *phase = &summary->phases[i];
        printf("%-12s %9.3f ms", phase->name, phase->median_s * 1e3);
        if (phase->gbps > 0) {
            printf(" %10.2f %10.2f", phase->gbps, phase->memcpy_ratio);
        } else {
            printf(" %10s %10s", "-", "-");
        }
        printf("\n");
    }
    printf("plain memcpy in the same run: %.2f GB/s; changing the weights took %.3f ms a step\n",
        summary->memcpy_gbps, summary->change_s * 1e3);
}

static double p50(const struct histogram *gathers)
{
    return histogram_percentile(gathers, 0.5);
}

static double p99(const struct histogram *gathers)
{
    return histogram_percentile(gathers, 0.99);
}

static void print_job(const char *name, const struct histogram *gathers,
    const struct summary_times *times, const struct summary_counts *counts)
{
    const struct summary_phase *total = &times->phases[times->num_phases - 1];

    printf("%-6s %9.3f ms %9.3f ms %9.3f ms %14" PRIu64 " %10" PRIu64 "\n", name,
        p50(gathers) * 1e3, p99(gathers) * 1e3, total->median_s * 1e3, counts->checked_bytes,
        counts->mismatches);
}

/* How long ranks wait for a bucket; job by job where there are several. */
static void print_jobs(const struct summary *summary)
{
    if (summary->num_jobs == 1) {
        printf("gather of a bucket, from asking: p50 %.3f ms, p99 %.3f ms\n",
            p50(&summary->gathers) * 1e3, p99(&summary->gathers) * 1e3);
        return;
    }
    printf("all of the slowest job; job by job, and together:\n\n");
    printf("%-6s %12s %12s %12s %14s %10s\n", "job", "gather p50", "gather p99", "total median",
        "bytes checked", "mismatches");
    for (uint32_t i = 0; i < summary->num_jobs; i++) {
        const struct summary_job *job = &summary->jobs[i];
        char name[16];
        snprintf(name, sizeof(name), "%u", i);
        print_job(name, &job->gathers, &job->times, &job->counts);
    }
    print_job("all", &summary->gathers, &summary->times, &summary->counts);
}

/* Of all hosts. */
static uint64_t arena_bytes(const struct report *report)
{
    uint64_t bytes = 0;

    for (uint32_t host = 0; host < NETWORK_MAX_HOSTS; host++) {
        bytes += report->outcome->probes[host].arena_bytes;
    }
    return bytes;
}

static void print_sizes(const struct report *report)
{
    const struct summary *summary = report->summary;
    const struct probe *probe = &report->outcome->probes[0];

    print_bytes("source", summary->bytes.source);
    print_bytes(", gathered", summary->bytes.gathered);
    print_bytes(" (float8", summary->bytes.float8);
    printf(")");
    if (probe->known) {
        print_bytes(", arena", arena_bytes(report));
    }
    printf(", %.2f round trips a bucket\n", summary->round_trips_per_bucket);
}

/* Why a run is not well, in a few words or a text; NULL if it is. */
static const char *complaint(const struct report *report)
{
    const struct summary *summary = report->summary;

    if (report->outcome->failed) {
        return report->outcome->error.text;
    }
    if (report->options->plant != PLANT_NONE) {
        return summary->counts.mismatches > 0 || report->outcome->mismatch_anywhere
                   ? "a difference was planted, and found"
                   : "a difference was planted, and not found";
    }
    if (summary->counts.mismatches > 0) {
        return "gathered weights differ from what they must be";
    }
    if (report->outcome->mismatch_anywhere) {
        return "gathered weights differ on another host";
    }
    return summary->ok ? NULL : "nothing was checked";
}

void report_text(const struct report *report)
{
    const struct summary *summary = report->summary;
    const char *wrong = complaint(report);

    print_head(report);
    if (!report->outcome->failed && report->options->host > 0) {
        printf("this is host %u; the report of all is host 0's\n\n", report->options->host);
    } else if (!report->outcome->failed) {
        print_sizes(report);
        print_phases(&summary->times);
        print_jobs(summary);
        if (summary->hosts.num_hosts > 0) {
            report_hosts_text(report);
        }
        if (report->outcome->ctl != NULL) {
            printf("\n%s", report->outcome->ctl);
        }
        printf("\n");
    }
    print_bytes("checked:", summary->counts.checked_bytes);
    printf(", mismatches: %" PRIu64 "\n", summary->counts.mismatches);
    if (summary->first != NULL) {
        printf("first mismatch: %s\n", summary->first);
    }
    if (wrong == NULL) {
        printf("f8bench: OK\n");
    } else {
        printf("f8bench: FAILED (%s)\n", wrong);
    }
}

static json_t *json_phases(const struct summary_times *summary)
{
    json_t *object = json_object();

    for (uint32_t i = 0; i < summary->num_phases; i++) {
        const struct summary_phase *phase = &summary->phases[i];
        json_object_set_new(object, phase->name,
            json_pack("{s:f, s:f, s:f}", "median_s", phase->median_s, "gbps", phase->gbps,
                "memcpy_ratio", phase->memcpy_ratio));
    }
    return object;
}

static json_t *json_job(const struct summary_job *job)
{
    const struct summary_counts *counts = &job->counts;

    return json_pack("{s:b, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o}", "ok",
        counts->mismatches == 0 && counts->checked_bytes > 0, "checked_bytes",
        (json_int_t)counts->checked_bytes, "mismatches", (json_int_t)counts->mismatches, "gathers",
        (json_int_t)counts->gathers, "syncs", (json_int_t)counts->syncs, "gather_p50_s",
        p50(&job->gathers), "gather_p99_s", p99(&job->gathers), "memcpy_gbps",
        job->times.memcpy_gbps, "change_s", job->times.change_s, "phases",
        json_phases(&job->times));
}

/* None of a run that failed. */
static json_t *json_jobs(const struct summary *summary)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < summary->num_jobs; i++) {
        json_array_append_new(array, json_job(&summary->jobs[i]));
    }
    return array;
}

/* null where there is no mesh. */
static json_t *json_mesh(const struct options *options)
{
    return options->dp > 0 ? json_pack("{s:i, s:i}", "dp", (int)options->dp, "tp", (int)options->tp)
                           : json_null();
}

static json_t *json_skipped(const struct model *model)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < model->num_skipped; i++) {
        json_array_append_new(array, json_string(model->skipped[i]));
    }
    return array;
}

/* The device of each rank; empty on the host. */
static json_t *json_devices(const struct shared *shared)
{
    json_t *array = json_array();

    for (uint32_t i = 0; shared != NULL && i < shared->num_ranks; i++) {
        if (shared->ranks[i].device[0] != '\0') {
            json_array_append_new(array, json_string(shared->ranks[i].device));
        }
    }
    return array;
}

/* What was run. */
static json_t *json_settings(const struct report *report)
{
    const struct options *options = report->options;
    const struct model *model = report->model;

    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:o, s:o, s:i, s:i, s:i, s:i, s:i, s:I, s:b, "
                     "s:o, s:s, s:o}",
        "schema", SCHEMA, "model", model->name, "flavour", f8_proto_flavour_name(options->flavour),
        "fp8", f8_proto_format_name(options->format), "dtype", source_dtype(model), "ranks",
        (int)options->ranks, "mesh", json_mesh(options), "hsdp",
        options->hsdp > 1 ? json_integer(options->hsdp) : json_null(), "jobs", (int)options->jobs,
        "steps", (int)options->steps, "slots", (int)options->slots, "weights",
        (int)model->num_weights, "buckets", (int)model->num_buckets, "seed",
        (json_int_t)options->seed, "precompute", options->precompute, "skipped",
        json_skipped(model), "device", options_device_name(options), "device_names",
        json_devices(report->outcome->shared));
}

/* What came out. */
static json_t *json_results(const struct report *report)
{
    const struct summary *summary = report->summary;

    return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "ok",
        summary->ok, "source_bytes", (json_int_t)summary->bytes.source, "gathered_bytes",
        (json_int_t)summary->bytes.gathered, "fp8_bytes", (json_int_t)summary->bytes.float8,
        "checked_bytes", (json_int_t)summary->counts.checked_bytes, "mismatches",
        (json_int_t)summary->counts.mismatches, "syncs", (json_int_t)summary->counts.syncs,
        "round_trips_per_bucket", summary->round_trips_per_bucket, "gather_p50_s",
        p50(&summary->gathers), "gather_p99_s", p99(&summary->gathers), "memcpy_gbps",
        summary->times.memcpy_gbps, "change_s", summary->times.change_s, "phases",
        json_phases(&summary->times), "per_job", json_jobs(summary));
}

static void set_string(json_t *object, const char *key, const char *value)
{
    json_object_set_new(object, key, value != NULL ? json_string(value) : json_null());
}

int report_json(const struct report *report)
{
    const struct probe *probe = &report->outcome->probes[0];
    json_t *object = json_settings(report);
    json_t *results = json_results(report);
    int result = -1;

    if (object != NULL && results != NULL && json_object_update(object, results) == 0) {
        json_object_set_new(object, "arena_bytes",
            probe->known ? json_integer((json_int_t)arena_bytes(report)) : json_null());
        json_object_set_new(object, "host",
            report->options->addresses.count > 0 ? json_integer(report->options->host)
                                                 : json_null());
        json_object_set_new(object, "network",
            report->summary->hosts.num_hosts > 0 ? report_hosts_json(report) : json_null());
        set_string(object, "daemon_version",
            probe->daemon_version[0] != '\0' ? probe->daemon_version : NULL);
        set_string(object, "error", complaint(report));
        set_string(object, "first_mismatch", report->summary->first);
        result = json_dumpf(object, stdout, JSON_COMPACT);
        printf("\n");
    }
    json_decref(object);
    json_decref(results);
    return result;
}

int report_json_error(const char *text)
{
    json_t *object = json_pack("{s:s, s:b, s:s}", "schema", SCHEMA, "ok", 0, "error", text);
    int result = object != NULL ? json_dumpf(object, stdout, JSON_COMPACT) : -1;

    printf("\n");
    json_decref(object);
    return result;
}
