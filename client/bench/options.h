/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the command line of `f8bench run` asks for. Filled by main.c, read-only afterwards.
 */
#ifndef F8BENCH_OPTIONS_H
#define F8BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/bench/addresses.h"
#include "client/bench/gpu.h"
#include "client/bench/network.h"
#include "client/f8client.h"

/* A difference that the run makes itself, to show that its checker finds one. */
enum plant {
    PLANT_NONE,
    PLANT_BYTE,
    PLANT_SCALE,
};

#define OPTIONS_MAX_FILES   256
#define OPTIONS_MAX_DEVICES 64
#define OPTIONS_MAX_SOCKET  108 /* with its end, as in sockaddr_un */

struct options {
    const char *model;                      /* borrowed: from argv, like all strings here */
    const char *weights[OPTIONS_MAX_FILES]; /* safetensors files; if none: the model */
    uint32_t num_weights;
    uint32_t blocks; /* 0: the model's default */
    uint32_t ranks;  /* of each job */
    uint32_t dp;     /* 0: no mesh; else ranks are dp x tp */
    uint32_t tp;     /* tensor parallel parts; 1 without a mesh */
    uint32_t hsdp;   /* groups of replicas; 1: no replicas */
    uint32_t jobs;
    uint32_t hosts;             /* each with a daemon of its own; 0: one daemon, no network */
    struct addresses addresses; /* of hosts that are machines with an f8bench each; else none */
    uint32_t host;              /* this one of them; 0 where there are none */
    bool host_given;
    char interface[IF_NAMESIZE]; /* that has its address */
    uint32_t deadline_s;         /* how long they wait for one another */
    const char *ifname;          /* of hosts that are no network namespaces; NULL: they are */
    struct network_shape shape;  /* of the cables of network namespaces */
    bool torch;                  /* compare with torch.distributed */
    uint32_t steps;
    uint64_t seed;
    enum f8_flavour flavour;
    uint32_t history_length; /* F8_DELAYED; */
    enum f8_history history;
    enum f8_format format;
    enum f8_dtype dtype;
    uint32_t slots;       /* 0: every bucket has its own place */
    uint32_t check_every; /* steps */
    enum plant plant;
    bool precompute;
    bool pre_gather;
    bool power_of_two;
    bool json;
    bool ctl;                         /* show f8ctl's view at the end */
    bool cuda;                        /* the shards lie on CUDA devices */
    int devices[OPTIONS_MAX_DEVICES]; /* of the ranks, in turn; */
    uint32_t num_devices;             /* 0: all that there are */
    enum gpu_memory cuda_memory;
    const char *socket; /* of a daemon that runs, or with hosts a list; NULL: start them */
    const char *daemon; /* the program to start; NULL: f8gatherd beside f8bench */
};

/* The interface of hosts. */
const char *options_interface(const struct options *options);

/* Reads --hosts. 0, or -1: stderr says what is wrong with it. */
int options_take_hosts(const char *text, struct options *options);

/* Whether each host has an interface of its own, on which its bytes can be counted. */
bool options_counts(const struct options *options);

/* How long a collective may wait for ranks: between machines as long as these wait for one
 * another, else F8_DEFAULT_DEADLINE. */
int64_t options_deadline_ms(const struct options *options);

/* The path of a host's daemon in --socket. 0, or -1: it has no such part, or it is too long. */
int options_socket_of(const struct options *options, uint32_t host, char *path, size_t size);

/* Whether what is told of hosts goes together, and with the rest; else -1, and stderr says why.
 * Finds the interface of --host. Called by options_parse. */
int options_check_hosts(struct options *options);

/* "host" or "cuda". */
const char *options_device_name(const struct options *options);

/* "byte", "scale"; NULL for none. */
const char *options_plant_name(enum plant plant);

/*
 * Reads the arguments after `run`. 0: go on; -1: a flag or value is wrong, and stderr says which;
 * 1: --help was printed.
 */
int options_parse(int argc, char **argv, struct options *ret_options);

#endif
