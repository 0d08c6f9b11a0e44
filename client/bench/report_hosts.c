/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What passed the network, host by host, and the rates against the yardsticks; for people and as
 * JSON. Called by report.c.
 */
#include "report_hosts.h"

#include <inttypes.h>
#include <stdio.h>

/* "1.004 x", or "-" where nothing was counted or nothing must pass. */
static void print_ratio(double bytes, double least, bool counted)
{
    if (counted && least > 0) {
        printf(" %12.4f", bytes / least);
    } else {
        printf(" %12s", "-");
    }
}

static void print_host(const struct summary_hosts *all, uint32_t number, const struct probe *probe)
{
    const struct summary_host *host = &all->hosts[number];

    printf("%-6" PRIu32 " %5" PRIu32 " %12.0f", number, host->ranks, host->least_in);
    print_ratio(host->wire_in, host->least_in, all->counted);
    print_ratio(host->payload_in, host->least_in, all->counted);
    printf(" %12.0f", host->least_out);
    print_ratio(host->wire_out, host->least_out, all->counted);
    print_ratio(host->payload_out, host->least_out, all->counted);
    if (probe->known) {
        printf(" %12" PRIu64 " %12" PRIu64 " %9" PRIu64 " %9" PRIu64, probe->engine_received,
            probe->engine_sent, probe->control_received, probe->control_sent);
    }
    printf("\n");
}

void report_hosts_text(const struct report *report)
{
    const struct summary_hosts *all = &report->summary->hosts;

    printf("\nbytes of a step by host, at least; on the wire and without headers, times that; and "
           "what\nf8ctl counts of the whole run, by the engine and by control connections\n\n");
    printf("%-6s %5s %12s %12s %12s %12s %12s %12s %12s %12s %9s %9s\n", "host", "ranks", "in",
        "wire", "payload", "out", "wire", "payload", "engine in", "engine out", "ctl in",
        "ctl out");
    for (uint32_t i = 0; i < all->num_hosts; i++) {
        print_host(all, i, &report->outcome->probes[i]);
    }
    if (!all->counted) {
        printf("the wire was not counted: the hosts share an interface\n");
    }
    printf("gathers over hosts: %.3f GB/s into a host, %.2f of plain TCP in the same run (%.3f "
           "GB/s, %.3f ms)\n",
        all->gather_gbps, all->raw_ratio, all->raw_gbps, all->raw_s * 1e3);
    if (all->torch_s > 0) {
        printf(
            "torch.distributed's Gloo all-gather of as many bytes: %.3f ms; the gathers are %.2f "
            "times as fast\n",
            all->torch_s * 1e3, all->torch_ratio);
    }
}

static json_t *counted(double bytes, bool is_counted)
{
    return is_counted ? json_real(bytes) : json_null();
}

static json_t *json_host(
    const struct summary_hosts *all, const struct summary_host *host, const struct probe *probe)
{
    return json_pack("{s:i, s:f, s:f, s:o, s:o, s:o, s:o, s:b, s:I, s:I, s:I, s:I}", "ranks",
        (int)host->ranks, "least_in_bytes", host->least_in, "least_out_bytes", host->least_out,
        "wire_in_bytes", counted(host->wire_in, all->counted), "wire_out_bytes",
        counted(host->wire_out, all->counted), "payload_in_bytes",
        counted(host->payload_in, all->counted), "payload_out_bytes",
        counted(host->payload_out, all->counted), "daemon_counters", probe->known,
        "engine_in_bytes", (json_int_t)probe->engine_received, "engine_out_bytes",
        (json_int_t)probe->engine_sent, "control_in_bytes", (json_int_t)probe->control_received,
        "control_out_bytes", (json_int_t)probe->control_sent);
}

json_t *report_hosts_json(const struct report *report)
{
    const struct summary_hosts *all = &report->summary->hosts;
    const struct options *options = report->options;
    json_t *by_host = json_array();

    for (uint32_t i = 0; i < all->num_hosts; i++) {
        json_array_append_new(by_host, json_host(all, &all->hosts[i], &report->outcome->probes[i]));
    }
    return json_pack("{s:i, s:s, s:i, s:i, s:o, s:o, s:f, s:f, s:f, s:f, s:o, s:o, s:o}", "hosts",
        (int)all->num_hosts, "interface", options_interface(options), "rate_mbit",
        (int)options->shape.rate_mbit, "delay_us", (int)options->shape.delay_us, "wire_ratio",
        counted(all->wire_ratio, all->counted), "payload_ratio",
        counted(all->payload_ratio, all->counted), "gather_gbps", all->gather_gbps, "raw_gbps",
        all->raw_gbps, "raw_s", all->raw_s, "raw_ratio", all->raw_ratio, "torch_s",
        counted(all->torch_s, all->torch_s > 0), "torch_ratio",
        counted(all->torch_ratio, all->torch_s > 0), "by_host", by_host);
}
