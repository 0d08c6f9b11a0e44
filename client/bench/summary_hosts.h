/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of a run over hosts: what passed the network in a step against the least that must,
 * and how long the gathers took against plain TCP and torch.distributed. Called by main, through
 * summary.c.
 */
#ifndef F8BENCH_SUMMARY_HOSTS_H
#define F8BENCH_SUMMARY_HOSTS_H

#include "client/bench/layout.h"
#include "client/bench/network.h"
#include "client/bench/run.h"

/* Bytes of a step; the counted ones are medians over the steps. */
struct summary_host {
    uint32_t ranks;
    double least_in, least_out;     /* what its ranks' groups must get and send, directly, once */
    double wire_in, wire_out;       /* what passed its interface, as network_traffic counts */
    double payload_in, payload_out; /* the same without the headers of TCP and below: estimates */
};

struct summary_hosts {
    uint32_t num_hosts; /* 0: there are none, or the run failed */
    struct summary_host hosts[NETWORK_MAX_HOSTS];
    bool counted; /* false: no host has an interface of its own */
    /* Of the host, and the direction, where they are worst: */
    double wire_ratio;    /* wire bytes to the least */
    double payload_ratio; /* payload to the least */
    /* Rates are those of the host that must get most, in bytes a second * 1e-9. Ratios are medians
       of those of each step. */
    double gather_gbps;
    double raw_s, raw_gbps, raw_ratio; /* the gather's rate to that of plain TCP */
    double torch_s, torch_ratio;       /* the same to torch's all-gather; 0: it was not asked for */
};

/* Of a run that did not fail. -1 if memory is out. */
int summary_hosts_make(const struct options *options, const struct model *model,
    struct shared *shared, struct summary_hosts *ret_hosts);

#endif
