/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the counters and times that the ranks left to the figures of hosts. Pure; called by
 * summary.c.
 */
#include "summary_hosts.h"

#include <math.h>
#include <stdlib.h>

#include "client/bench/median.h"
#include "client/bench/summary.h"

/* What a packet has before its payload: Ethernet, IPv4, and TCP with a timestamp. */
#define HEADER_BYTES (14 + 20 + 32)

#define GATHER ((1u << TIME_SEND) | (1u << TIME_POST_GATHER))

/* Room for a value of each step, and where they are from. */
struct steps {
    struct shared *shared; /* borrowed: from the outcome */
    uint32_t count;
    double *values; /* owned by summary_hosts_make */
};

enum counter { IN_BYTES, OUT_BYTES, IN_PAYLOAD, OUT_PAYLOAD };

static double counter_of(const struct network_traffic *traffic, enum counter counter)
{
    switch (counter) {
    case IN_BYTES:
        return (double)traffic->in_bytes;
    case OUT_BYTES:
        return (double)traffic->out_bytes;
    case IN_PAYLOAD:
        return (double)traffic->in_bytes - HEADER_BYTES * (double)traffic->in_packets;
    default:
        return (double)traffic->out_bytes - HEADER_BYTES * (double)traffic->out_packets;
    }
}

static double median_counter(const struct steps *steps, uint32_t host, enum counter counter)
{
    for (uint32_t step = 0; step < steps->count; step++) {
        steps->values[step] = counter_of(shared_traffic_of(steps->shared, step, host), counter);
    }
    return median(steps->values, steps->count);
}

/* From the first begin to the last end of the ranks that have any. */
static double span_of(
    struct shared *shared, uint32_t step, enum shared_time begin, enum shared_time end)
{
    double first = INFINITY;
    double last = 0;

    for (uint32_t rank = 0; rank < shared->num_ranks; rank++) {
        double from = *shared_time_of(shared, step, rank, begin);
        if (from > 0) {
            first = fmin(first, from);
            last = fmax(last, *shared_time_of(shared, step, rank, end));
        }
    }
    return last > first ? last - first : 0;
}

static double gather_of(struct shared *shared, uint32_t step)
{
    return summary_slowest(shared, 0, shared->num_ranks, step, GATHER);
}

static double ratio(double of, double to)
{
    return to > 0 ? of / to : 0;
}

static double median_gather(const struct steps *steps)
{
    for (uint32_t step = 0; step < steps->count; step++) {
        steps->values[step] = gather_of(steps->shared, step);
    }
    return median(steps->values, steps->count);
}

/* Of a yardstick: its median time, and that of how many times as fast the gather was. */
static double median_span(
    const struct steps *steps, enum shared_time begin, enum shared_time end, double *ret_ratio)
{
    for (uint32_t step = 0; step < steps->count; step++) {
        steps->values[step] =
            ratio(span_of(steps->shared, step, begin, end), gather_of(steps->shared, step));
    }
    *ret_ratio = median(steps->values, steps->count);
    for (uint32_t step = 0; step < steps->count; step++) {
        steps->values[step] = span_of(steps->shared, step, begin, end);
    }
    return median(steps->values, steps->count);
}

static void make_host(const struct options *options, const struct model *model,
    const struct steps *steps, uint32_t number, struct summary_host *host)
{
    host->ranks = layout_first_rank(options, number + 1) - layout_first_rank(options, number);
    for (uint32_t other = 0; other < options->hosts; other++) {
        host->least_in += (double)layout_exchanged(options, model, other, number);
        host->least_out += (double)layout_exchanged(options, model, number, other);
    }
    host->wire_in = median_counter(steps, number, IN_BYTES);
    host->wire_out = median_counter(steps, number, OUT_BYTES);
    host->payload_in = median_counter(steps, number, IN_PAYLOAD);
    host->payload_out = median_counter(steps, number, OUT_PAYLOAD);
}

static void add_host(const struct summary_host *host, struct summary_hosts *all)
{
    all->wire_ratio = fmax(all->wire_ratio, ratio(host->wire_in, host->least_in));
    all->wire_ratio = fmax(all->wire_ratio, ratio(host->wire_out, host->least_out));
    all->payload_ratio = fmax(all->payload_ratio, ratio(host->payload_in, host->least_in));
    all->payload_ratio = fmax(all->payload_ratio, ratio(host->payload_out, host->least_out));
}

int summary_hosts_make(const struct options *options, const struct model *model,
    struct shared *shared, struct summary_hosts *ret_hosts)
{
    struct summary_hosts hosts = {.num_hosts = options->hosts, .counted = options_counts(options)};
    struct steps steps = {.shared = shared, .count = options->steps};
    double most = 0;

    steps.values = calloc(options->steps, sizeof(*steps.values));
    if (steps.values == NULL) {
        return -1;
    }
    for (uint32_t i = 0; i < options->hosts; i++) {
        make_host(options, model, &steps, i, &hosts.hosts[i]);
        add_host(&hosts.hosts[i], &hosts);
        most = fmax(most, hosts.hosts[i].least_in);
    }
    hosts.gather_gbps = ratio(most, median_gather(&steps)) * 1e-9;
    hosts.raw_s = median_span(&steps, TIME_RAW_BEGIN, TIME_RAW_END, &hosts.raw_ratio);
    hosts.raw_gbps = ratio(most, hosts.raw_s) * 1e-9;
    hosts.torch_s = median_span(&steps, TIME_TORCH_BEGIN, TIME_TORCH_END, &hosts.torch_ratio);
    free(steps.values);
    *ret_hosts = hosts;
    return 0;
}
