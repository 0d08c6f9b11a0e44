/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of `f8bench run`: one list makes the flags and their help. Called by main, once; a
 * wrong flag or value is told on standard error with its name.
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/model.h"

/* X(ID, "flag", "VALUE" or NULL, "help") */
#define OPTION_LIST(X)                                                                             \
    X(WEIGHTS, "weights", "FILE", "gather the tensors of a safetensors file; may be repeated")     \
    X(MODEL, "model", "NAME", "random weights of a model's true shapes (default llama3-8b-block)") \
    X(BLOCKS, "blocks", "N", "blocks of the model (default: 1, or all of a small model)")          \
    X(RANKS, "ranks", "N", "processes of a job, 1 to 256 (default 4)")                             \
    X(MESH, "mesh", "dp=D,tp=T", "D x T ranks: each weight cut over T, gathered by groups of D")   \
    X(HSDP, "hsdp", "R", "ranks in R groups that hold the full weights each")                      \
    X(JOBS, "jobs", "N", "so many jobs at once, each with its own ranks and weights (default 1)")  \
    X(HOSTS, "hosts", "N|LIST",                                                                    \
        "spread the ranks over N hosts, or those of a LIST, 2 to 64 (see below)")                  \
    X(HOST, "host", "K", "this machine is the K-th of a LIST, counted from 0")                     \
    X(DEADLINE, "deadline", "SECONDS",                                                             \
        "how long hosts of a LIST wait for one another, 1 to 86400 (default 300)")                 \
    X(IFNAME, "ifname", "NAME", "hosts share this interface: no network namespaces, no root")      \
    X(RATE, "rate-mbit", "N",                                                                      \
        "of a namespace's cable each way, 10^6 bits a second (default: any)")                      \
    X(DELAY, "delay-us", "N", "of a namespace's cable one way, microseconds (default: none)")      \
    X(TORCH, "torch", NULL,                                                                        \
        "compare with torch.distributed's Gloo all-gather: python3 with torch")                    \
    X(STEPS, "steps", "N", "steps (default 5)")                                                    \
    X(SEED, "seed", "N", "of random weights, changes, and plants (default 1)")                     \
    X(FLAVOUR, "flavour", "NAME", "scales of 2-D weights: dynamic, delayed or static (dynamic)")   \
    X(HISTORY, "history", "N", "syncs that a delayed scale follows from, 1 to 1024 (default 16)")  \
    X(HISTORY_ALGORITHM, "history-algorithm", "NAME", "max or most-recent of them (default max)")  \
    X(FP8, "fp8", "NAME", "e4m3fn or e5m2 (default e4m3fn)")                                       \
    X(DTYPE, "dtype", "NAME", "float32, bfloat16 or float16, of a --model (default bfloat16)")     \
    X(POWER_OF_TWO, "power-of-two", NULL,                                                          \
        "round dynamic and delayed scales down to powers of two")                                  \
    X(SLOTS, "slots", "N", "buckets share N places, at least 2 (default 0: each has its own)")     \
    X(NO_PRECOMPUTE, "no-precompute", NULL, "compute dynamic scales inside the gathers")           \
    X(PRE_GATHER, "pre-gather", NULL, "announce each gather with f8_pre_gather")                   \
    X(DEVICE, "device", "NAME", "where the shards lie: host or cuda (default host)")               \
    X(DEVICES, "devices", "N,N,...", "CUDA devices that ranks take in turn (default: all)")        \
    X(CUDA_MEMORY, "cuda-memory", "KIND", "legacy (cudaMalloc) or vmm (default legacy)")           \
    X(CHECK, "check", "N", "check the gathered bytes of every N-th step (default 1)")              \
    X(PLANT, "plant", "KIND", "falsify one byte or scale, which must be found")                    \
    X(SOCKET, "socket", "PATH", "use the daemon at this socket, or N of them: PATH,PATH,...")      \
    X(DAEMON, "daemon", "PATH", "the daemon to start (default: f8gatherd beside f8bench)")         \
    X(CTL, "ctl", NULL, "show f8ctl's view of the scales at the end")                              \
    X(JSON, "json", NULL, "print one JSON object")                                                 \
    X(HELP, "help", NULL, "print this")                                                            \
    X(VERSION, "version", NULL, "print the version")

#define MAX_RANKS 256
#define MAX_JOBS  64

enum option_id {
    OPTION_BASE = 256, /* above all characters, which getopt returns too */
#define OPTION_ENUM(id, flag, value, help) OPTION_##id,
    OPTION_LIST(OPTION_ENUM)
#undef OPTION_ENUM
};

static const struct option long_options[] = {
#define OPTION_ROW(id, flag, value, help)                                                          \
    {flag, (value) != NULL ? required_argument : no_argument, NULL, OPTION_##id},
    OPTION_LIST(OPTION_ROW)
#undef OPTION_ROW
        {NULL, 0, NULL, 0},
};

/* A word that stands for a number. */
struct word {
    const char *word;
    int value;
};

static const struct word flavours[] = {
    {"dynamic", F8_DYNAMIC}, {"delayed", F8_DELAYED}, {"static", F8_STATIC}, {NULL, 0}};
static const struct word histories[] = {
    {"max", F8_HISTORY_MAX}, {"most-recent", F8_HISTORY_MOST_RECENT}, {NULL, 0}};
static const struct word formats[] = {{"e4m3fn", F8_E4M3FN}, {"e5m2", F8_E5M2}, {NULL, 0}};
static const struct word dtypes[] = {
    {"float32", F8_F32}, {"bfloat16", F8_BF16}, {"float16", F8_F16}, {NULL, 0}};
static const struct word devices[] = {{"host", false}, {"cuda", true}, {NULL, 0}};
static const struct word memories[] = {{"legacy", GPU_LEGACY}, {"vmm", GPU_VMM}, {NULL, 0}};
static const struct word plants[] = {{"byte", PLANT_BYTE}, {"scale", PLANT_SCALE}, {NULL, 0}};

const char *options_device_name(const struct options *options)
{
    return devices[options->cuda ? 1 : 0].word;
}

const char *options_plant_name(enum plant plant)
{
    return plant == PLANT_NONE ? NULL : plants[plant - 1].word;
}

static void print_hosts_help(void)
{
    printf(
        "\n\nN hosts are network namespaces of this machine, joined by a switch, which needs root; "
        "with\n--ifname or --socket they are only daemons. Ranks are spread in order, evenly.\n"
        "\nA LIST, ADDRESS[:PORT],ADDRESS,..., is of machines: start f8bench on each with the same "
        "flags\nand its own --host. That of host 0 listens at its address (port %d unless told), "
        "and reports.\nEach starts a daemon of its own, or uses the one at --socket.\n",
        ADDRESSES_PORT);
}

static void print_help(void)
{
    static const struct {
        const char *flag;
        const char *value;
        const char *help;
    } rows[] = {
#define OPTION_HELP(id, flag, value, help) {flag, value, help},
        OPTION_LIST(OPTION_HELP)
#undef OPTION_HELP
    };

    printf("usage: f8bench run [OPTION]...\n\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char flag[64];
        snprintf(flag, sizeof(flag), "--%s%s%s", rows[i].flag, rows[i].value ? " " : "",
            rows[i].value ? rows[i].value : "");
        printf("  %-24s %s\n", flag, rows[i].help);
    }
    printf("\nModels:");
    for (uint32_t i = 0; model_builtin_name(i) != NULL; i++) {
        printf(" %s", model_builtin_name(i));
    }
    print_hosts_help();
    printf("\nExit status: 0 all was right, 1 it was not, 2 wrong usage, 130 interrupted.\n");
}

static const char *flag_of(int id)
{
    return long_options[id - OPTION_BASE - 1].name;
}

/* The value of a flag as a number from `least` to `most`. */
static int number(int id, const char *text, uint64_t least, uint64_t most, uint64_t *ret_number)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || strchr(text, '-') != NULL || value < least ||
        value > most) {
        fprintf(stderr, "f8bench: --%s %s: must be a number from %" PRIu64 " to %" PRIu64 "\n",
            flag_of(id), text, least, most);
        return -1;
    }
    *ret_number = value;
    return 0;
}

static int number32(int id, const char *text, uint32_t least, uint32_t most, uint32_t *ret_number)
{
    uint64_t value = 0;

    if (number(id, text, least, most, &value) != 0) {
        return -1;
    }
    *ret_number = (uint32_t)value;
    return 0;
}

static int word(int id, const char *text, const struct word *words, int *ret_value)
{
    for (const struct word *w = words; w->word != NULL; w++) {
        if (strcmp(w->word, text) == 0) {
            *ret_value = w->value;
            return 0;
        }
    }
    fprintf(stderr, "f8bench: --%s %s: must be one of", flag_of(id), text);
    for (const struct word *w = words; w->word != NULL; w++) {
        fprintf(stderr, " %s", w->word);
    }
    fprintf(stderr, "\n");
    return -1;
}

static int add_file(const char *path, struct options *options)
{
    if (options->num_weights == OPTIONS_MAX_FILES) {
        fprintf(stderr, "f8bench: --weights %s: %d files are the limit\n", path, OPTIONS_MAX_FILES);
        return -1;
    }
    options->weights[options->num_weights++] = path;
    return 0;
}

/* "dp=D,tp=T" */
static int mesh(const char *text, struct options *options)
{
    unsigned dp = 0;
    unsigned tp = 0;
    int end = 0;
    bool read = sscanf(text, "dp=%4u,tp=%4u%n", &dp, &tp, &end) == 2 && text[end] == '\0';

    if (!read || dp == 0 || tp == 0 || dp * tp > MAX_RANKS) {
        fprintf(stderr, "f8bench: --mesh %s: must be dp=D,tp=T with D x T ranks, 1 to %d of them\n",
            text, MAX_RANKS);
        return -1;
    }
    options->dp = dp;
    options->tp = tp;
    return 0;
}

/* "0,1" */
static int device_list(const char *text, struct options *options)
{
    const char *at = text;

    for (;;) {
        char *end;
        long device = strtol(at, &end, 10);
        bool is_number = at[0] >= '0' && at[0] <= '9' && device <= INT_MAX;
        if (!is_number || (*end != ',' && *end != '\0') ||
            options->num_devices == OPTIONS_MAX_DEVICES) {
            fprintf(stderr, "f8bench: --devices %s: must be numbers such as 0,1 (at most %d)\n",
                text, OPTIONS_MAX_DEVICES);
            return -1;
        }
        options->devices[options->num_devices++] = (int)device;
        if (*end == '\0') {
            return 0;
        }
        at = end + 1;
    }
}

/* The values that are one of some words. */
static int take_word(int id, const char *text, struct options *options)
{
    int value = 0;
    int result = 0;

    switch (id) {
    case OPTION_FLAVOUR:
        result = word(id, text, flavours, &value);
        options->flavour = (enum f8_flavour)value;
        return result;
    case OPTION_HISTORY_ALGORITHM:
        result = word(id, text, histories, &value);
        options->history = (enum f8_history)value;
        return result;
    case OPTION_FP8:
        result = word(id, text, formats, &value);
        options->format = (enum f8_format)value;
        return result;
    case OPTION_DTYPE:
        result = word(id, text, dtypes, &value);
        options->dtype = (enum f8_dtype)value;
        return result;
    case OPTION_DEVICE:
        result = word(id, text, devices, &value);
        options->cuda = value != 0;
        return result;
    case OPTION_CUDA_MEMORY:
        result = word(id, text, memories, &value);
        options->cuda_memory = (enum gpu_memory)value;
        return result;
    default: /* OPTION_PLANT */
        result = word(id, text, plants, &value);
        options->plant = (enum plant)value;
        return result;
    }
}

/* The options that have a value. */
static int take_value(int id, const char *text, struct options *options)
{
    switch (id) {
    case OPTION_WEIGHTS:
        return add_file(text, options);
    case OPTION_MODEL:
        options->model = text;
        return 0;
    case OPTION_SOCKET:
        options->socket = text;
        return 0;
    case OPTION_DAEMON:
        options->daemon = text;
        return 0;
    case OPTION_IFNAME:
        options->ifname = text;
        return 0;
    case OPTION_HOSTS:
        return options_take_hosts(text, options);
    case OPTION_HOST:
        options->host_given = true;
        return number32(id, text, 0, NETWORK_MAX_HOSTS - 1, &options->host);
    case OPTION_DEADLINE:
        return number32(id, text, 1, 86400, &options->deadline_s);
    case OPTION_RATE:
        return number32(id, text, 1, 1000000, &options->shape.rate_mbit);
    case OPTION_DELAY:
        return number32(id, text, 1, 10000000, &options->shape.delay_us);
    case OPTION_BLOCKS:
        return number32(id, text, 1, 10000, &options->blocks);
    case OPTION_RANKS:
        return number32(id, text, 1, MAX_RANKS, &options->ranks);
    case OPTION_STEPS:
        return number32(id, text, 1, 1000000, &options->steps);
    case OPTION_SEED:
        return number(id, text, 0, INT64_MAX, &options->seed);
    case OPTION_SLOTS:
        return number32(id, text, 0, 1000, &options->slots);
    case OPTION_CHECK:
        return number32(id, text, 1, 1000000, &options->check_every);
    case OPTION_MESH:
        return mesh(text, options);
    case OPTION_DEVICES:
        return device_list(text, options);
    case OPTION_HSDP:
        return number32(id, text, 1, MAX_RANKS, &options->hsdp);
    case OPTION_JOBS:
        return number32(id, text, 1, MAX_JOBS, &options->jobs);
    case OPTION_HISTORY:
        return number32(id, text, 1, 1024, &options->history_length);
    default:
        return take_word(id, text, options);
    }
}

/* All options. 0, -1 or 1 as options_parse. */
static int take(int id, struct options *options)
{
    switch (id) {
    case OPTION_POWER_OF_TWO:
        options->power_of_two = true;
        return 0;
    case OPTION_NO_PRECOMPUTE:
        options->precompute = false;
        return 0;
    case OPTION_PRE_GATHER:
        options->pre_gather = true;
        return 0;
    case OPTION_TORCH:
        options->torch = true;
        return 0;
    case OPTION_CTL:
        options->ctl = true;
        return 0;
    case OPTION_JSON:
        options->json = true;
        return 0;
    case OPTION_HELP:
        print_help();
        return 1;
    case OPTION_VERSION:
        printf("f8bench %s\n", F8_VERSION);
        return 1;
    default:
        return take_value(id, optarg, options);
    }
}

/* What no single flag can tell. */
static int check_together(const struct options *options)
{
    if (options->slots == 1) {
        fprintf(stderr, "f8bench: --slots 1: gathering ahead by one needs at least 2 slots "
                        "(or 0: every bucket its own place)\n");
        return -1;
    }
    if (options->model != NULL && options->num_weights > 0) {
        fprintf(stderr, "f8bench: --model %s: cannot go with --weights %s\n", options->model,
            options->weights[0]);
        return -1;
    }
    if (!options->cuda && (options->num_devices > 0 || options->cuda_memory != GPU_LEGACY)) {
        fprintf(stderr, "f8bench: --%s: only --device cuda has any\n",
            options->num_devices > 0 ? "devices" : "cuda-memory");
        return -1;
    }
    if (options->socket != NULL && options->daemon != NULL) {
        fprintf(stderr, "f8bench: --daemon %s: cannot go with --socket %s\n", options->daemon,
            options->socket);
        return -1;
    }
    return 0;
}

/* How the ranks stand to each other; ranks is 0 where it was not given. */
static int arrange_ranks(struct options *options)
{
    uint32_t mesh_ranks = options->dp * options->tp;

    if (mesh_ranks > 0 && options->hsdp > 1) {
        fprintf(stderr, "f8bench: --hsdp %u: cannot go with --mesh dp=%u,tp=%u\n", options->hsdp,
            options->dp, options->tp);
        return -1;
    }
    if (mesh_ranks > 0 && options->ranks > 0 && options->ranks != mesh_ranks) {
        fprintf(stderr, "f8bench: --ranks %u: --mesh dp=%u,tp=%u has %u\n", options->ranks,
            options->dp, options->tp, mesh_ranks);
        return -1;
    }
    if (options->ranks == 0) {
        options->ranks = mesh_ranks > 0 ? mesh_ranks : 4;
    }
    if (options->ranks % options->hsdp != 0) {
        fprintf(stderr, "f8bench: --hsdp %u: %u ranks are not as many in each group\n",
            options->hsdp, options->ranks);
        return -1;
    }
    return 0;
}

static int arrange_history(struct options *options)
{
    if (options->flavour != F8_DELAYED && options->history_length > 0) {
        fprintf(stderr, "f8bench: --history %u: only --flavour delayed has one\n",
            options->history_length);
        return -1;
    }
    if (options->flavour != F8_DELAYED && options->history != F8_HISTORY_MAX) {
        fprintf(
            stderr, "f8bench: --history-algorithm most-recent: only --flavour delayed has one\n");
        return -1;
    }
    if (options->history_length == 0) {
        options->history_length = 16;
    }
    return 0;
}

int options_parse(int argc, char **argv, struct options *ret_options)
{
    struct options options = {.tp = 1,
        .hsdp = 1,
        .jobs = 1,
        .steps = 5,
        .seed = 1,
        .flavour = F8_DYNAMIC,
        .format = F8_E4M3FN,
        .dtype = F8_BF16,
        .check_every = 1,
        .precompute = true};
    int id;

    while ((id = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
        int result;
        if (id == '?' || id == ':') {
            fprintf(stderr, "f8bench: %s: %s (see f8bench run --help)\n", argv[optind - 1],
                id == ':' ? "a value is missing" : "no such flag, or it takes no value");
            return -1;
        }
        result = take(id == 'h' ? OPTION_HELP : id, &options);
        if (result != 0) {
            return result;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "f8bench: %s: arguments must be flags\n", argv[optind]);
        return -1;
    }
    if (check_together(&options) != 0 || arrange_ranks(&options) != 0 ||
        arrange_history(&options) != 0 || options_check_hosts(&options) != 0) {
        return -1;
    }
    if (options.deadline_s == 0) {
        options.deadline_s = 300;
    }
    if (options.model == NULL) {
        options.model = "llama3-8b-block";
    }
    if (options.flavour != F8_DYNAMIC) {
        options.precompute = false; /* there is nothing to compute */
    }
    *ret_options = options;
    return 0;
}
