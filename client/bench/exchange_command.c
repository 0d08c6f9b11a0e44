/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `f8bench exchange`: the parent makes the network and forks a process for each host, which sends
 * its part to all others, directly and along a ring in turns, and leaves its times and the counters
 * of its cable in memory that all share. The parent waits for them and reports medians.
 */
#include "exchange_command.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/bench/exchange.h"
#include "client/bench/median.h"
#include "client/bench/shared.h"
#include "client/plural.h"

#define SCHEMA     "f8bench-exchange/1"
#define MAX_ROUNDS 1000

enum pattern { DIRECT, RING, NUM_PATTERNS };

static const char *const pattern_names[] = {"direct", "ring"};

struct settings {
    uint32_t hosts;
    uint64_t bytes; /* of each host's part */
    uint32_t rounds;
    struct network_shape shape;
    bool json;
};

/* One pattern in one round, as one host has it. */
struct sample {
    double begin, end;
    struct network_traffic traffic;
};

/* What the processes share. */
struct board {
    pthread_barrier_t barrier;
    struct sockaddr_storage addresses[NETWORK_MAX_HOSTS];
    struct bench_error errors[NETWORK_MAX_HOSTS];
    struct sample samples[MAX_ROUNDS][NUM_PATTERNS][NETWORK_MAX_HOSTS];
};

/* Medians over the rounds. */
struct result {
    double seconds;             /* from the first host's begin to the last one's end */
    double in_bytes, out_bytes; /* of the host that had most of them */
};

static const char help[] =
    "usage: f8bench exchange [OPTION]...\n\n"
    "Hosts in network namespaces (as root) send one another their parts over plain TCP.\n\n"
    "  --hosts N       2 to 64 (default 2)\n"
    "  --bytes N       of each host's part (default 67108864)\n"
    "  --rounds N      1 to 1000 (default 9)\n"
    "  --rate-mbit N   of each cable, each way, in 10^6 bits a second (default: unlimited)\n"
    "  --delay-us N    of each cable, one way, in microseconds (default: none)\n"
    "  --json          print one JSON object\n"
    "  --help          print this\n";

static int number(
    const char *flag, const char *text, uint64_t least, uint64_t most, uint64_t *ret_number)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || strchr(text, '-') != NULL || value < least ||
        value > most) {
        fprintf(stderr, "f8bench: --%s %s: must be a number from %" PRIu64 " to %" PRIu64 "\n",
            flag, text, least, most);
        return -1;
    }
    *ret_number = value;
    return 0;
}

/* 0: go on; -1: wrong, as stderr says; 1: --help was printed. */
static int parse(int argc, char **argv, struct settings *settings)
{
    static const struct {
        uint64_t least, most, usual;
    } limits[] = {{2, NETWORK_MAX_HOSTS, 2}, {0, UINT64_C(1) << 36, 64 << 20}, {1, MAX_ROUNDS, 9},
        {0, 1000000, 0}, {0, 10000000, 0}};
    enum { NUM_NUMBERS = 5, JSON = NUM_NUMBERS, HELP };
    static const struct option flags[] = {{"hosts", required_argument, NULL, 0},
        {"bytes", required_argument, NULL, 1}, {"rounds", required_argument, NULL, 2},
        {"rate-mbit", required_argument, NULL, 3}, {"delay-us", required_argument, NULL, 4},
        {"json", no_argument, NULL, JSON}, {"help", no_argument, NULL, HELP}, {NULL, 0, NULL, 0}};
    uint64_t values[NUM_NUMBERS];
    bool json = false;
    int id;

    for (int i = 0; i < NUM_NUMBERS; i++) {
        values[i] = limits[i].usual;
    }
    while ((id = getopt_long(argc, argv, ":", flags, NULL)) != -1) {
        if (id == HELP) {
            fputs(help, stdout);
            return 1;
        }
        if (id == JSON) {
            json = true;
        } else if (id >= NUM_NUMBERS) {
            fprintf(stderr, "f8bench: %s: %s (see f8bench exchange --help)\n", argv[optind - 1],
                id == ':' ? "a value is missing" : "no such flag, or it takes no value");
            return -1;
        } else if (number(flags[id].name, optarg, limits[id].least, limits[id].most, &values[id]) !=
                   0) {
            return -1;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "f8bench: %s: arguments must be flags\n", argv[optind]);
        return -1;
    }
    *settings = (struct settings){.hosts = (uint32_t)values[0],
        .bytes = values[1],
        .rounds = (uint32_t)values[2],
        .shape = {.rate_mbit = (uint32_t)values[3], .delay_us = (uint32_t)values[4]},
        .json = json};
    return 0;
}

/* ---- in the process of a host ---- */

static struct exchange_sizes sizes_of(const struct settings *settings, uint32_t host)
{
    struct exchange_sizes sizes = {{0}, {0}};

    for (uint32_t other = 0; other < settings->hosts; other++) {
        sizes.out[other] = sizes.in[other] = other == host ? 0 : settings->bytes;
    }
    return sizes;
}

static int run_once(struct exchange *exchange, const struct exchange_sizes *sizes,
    const struct settings *settings, enum pattern pattern, struct bench_error *error)
{
    uint64_t parts[NETWORK_MAX_HOSTS];

    if (pattern == DIRECT) {
        return exchange_direct(exchange, sizes, error);
    }
    for (uint32_t host = 0; host < settings->hosts; host++) {
        parts[host] = settings->bytes;
    }
    return exchange_ring(exchange, parts, error);
}

/* A pattern, between barriers, timed and counted. */
static int measure(struct exchange *exchange, const struct exchange_sizes *sizes,
    const struct settings *settings, enum pattern pattern, struct board *board,
    struct sample *sample, struct bench_error *error)
{
    struct network_traffic before = {0};
    struct network_traffic after = {0};
    int result = network_count_own(NETWORK_INTERFACE, &before);

    pthread_barrier_wait(&board->barrier);
    sample->begin = shared_now();
    if (run_once(exchange, sizes, settings, pattern, error) != 0) {
        return -1;
    }
    sample->end = shared_now();
    pthread_barrier_wait(&board->barrier);
    if (result != 0 || network_count_own(NETWORK_INTERFACE, &after) != 0) {
        return bench_fail(error, "there is no " NETWORK_INTERFACE " to count on");
    }
    sample->traffic = network_traffic_between(&before, &after);
    return 0;
}

static int run_rounds(struct exchange *exchange, uint32_t host, const struct settings *settings,
    struct board *board, struct bench_error *error)
{
    struct exchange_sizes sizes = sizes_of(settings, host);
    struct sample unused;

    /* Once each to warm the connections up. */
    for (int pattern = 0; pattern < NUM_PATTERNS; pattern++) {
        if (measure(exchange, &sizes, settings, (enum pattern)pattern, board, &unused, error) !=
            0) {
            return -1;
        }
    }
    for (uint32_t round = 0; round < settings->rounds; round++) {
        for (int pattern = 0; pattern < NUM_PATTERNS; pattern++) {
            if (measure(exchange, &sizes, settings, (enum pattern)pattern, board,
                    &board->samples[round][pattern][host], error) != 0) {
                return -1;
            }
        }
    }
    return exchange_check(exchange, &sizes, error);
}

/* The whole life of a host's process; its exit status. */
static int be_host(const struct network *network, uint32_t host, const struct settings *settings,
    struct board *board)
{
    struct bench_error *error = &board->errors[host];
    struct exchange_sizes sizes = sizes_of(settings, host);
    struct exchange_place place = {
        .host = host, .num_hosts = settings->hosts, .addresses = board->addresses};
    struct exchange *exchange = NULL;
    int result;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (network_enter(network, host) != 0) {
        bench_fail(error, "cannot enter host %" PRIu32 ": %s", host, strerror(errno));
        return 1;
    }
    place.listener = exchange_listen(NETWORK_INTERFACE, &board->addresses[host], error);
    if (place.listener < 0) {
        return 1;
    }
    pthread_barrier_wait(&board->barrier);
    result = exchange_open(&place, &sizes, &exchange, error);
    if (result == 0) {
        result = run_rounds(exchange, host, settings, board, error);
    }
    exchange_close(exchange);
    close(place.listener);
    return result == 0 ? 0 : 1;
}

/* ---- in the parent ---- */

/* Takes leave of one that has ended: forgets its pid. -1: it did not end well. */
static int reap(pid_t *pids, uint32_t count, const struct board *board, struct bench_error *error)
{
    int status = 0;
    pid_t pid = wait(&status);

    for (uint32_t host = 0; host < count; host++) {
        const char *why = board->errors[host].text;
        if (pids[host] != pid) {
            continue;
        }
        pids[host] = 0;
        if (status != 0) {
            return bench_fail(error, "the process of host %" PRIu32 " failed: %.600s", host,
                why[0] != '\0' ? why : "it was killed");
        }
    }
    return 0;
}

/* Waits for all; the first that does not end well ends the others. */
static int await_hosts(
    pid_t *pids, uint32_t count, const struct board *board, struct bench_error *error)
{
    struct bench_error later;
    int result = 0;

    for (uint32_t ended = 0; ended < count; ended++) {
        if (reap(pids, count, board, result == 0 ? error : &later) != 0) {
            result = -1;
            for (uint32_t host = 0; host < count; host++) {
                if (pids[host] > 0) {
                    kill(pids[host], SIGKILL);
                }
            }
        }
    }
    return result;
}

static int run_hosts(const struct network *network, const struct settings *settings,
    struct board *board, struct bench_error *error)
{
    pid_t pids[NETWORK_MAX_HOSTS];
    uint32_t started = 0;
    int result = 0;

    fflush(NULL);
    for (uint32_t host = 0; host < settings->hosts; host++) {
        pids[host] = fork();
        if (pids[host] == 0) {
            _exit(be_host(network, host, settings, board));
        }
        if (pids[host] < 0) {
            result =
                bench_fail(error, "no process for host %" PRIu32 ": %s", host, strerror(errno));
            break;
        }
        started++;
    }
    if (result == 0) {
        return await_hosts(pids, started, board, error);
    }
    for (uint32_t host = 0; host < started; host++) {
        kill(pids[host], SIGKILL);
        waitpid(pids[host], NULL, 0);
    }
    return result;
}

static struct board *board_new(uint32_t hosts)
{
    struct board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (board == MAP_FAILED) {
        return NULL;
    }
    if (shared_init_barrier(&board->barrier, hosts) != 0) {
        munmap(board, sizeof(*board));
        return NULL;
    }
    return board;
}

static int measure_all(
    const struct settings *settings, struct board **ret_board, struct bench_error *error)
{
    struct network *network = NULL;
    struct board *board = board_new(settings->hosts);
    int result = board != NULL ? 0 : bench_no_memory(error);

    if (result == 0) {
        result = network_new(settings->hosts, &network, error);
    }
    for (uint32_t host = 0; result == 0 && host < settings->hosts; host++) {
        result = network_shape(network, host, &settings->shape, error);
    }
    if (result == 0) {
        result = run_hosts(network, settings, board, error);
    }
    network_free(network);
    *ret_board = board;
    return result;
}

static struct result summarize(
    const struct settings *settings, const struct board *board, enum pattern pattern)
{
    double seconds[MAX_ROUNDS];
    double in[MAX_ROUNDS];
    double out[MAX_ROUNDS];

    for (uint32_t round = 0; round < settings->rounds; round++) {
        const struct sample *samples = board->samples[round][pattern];
        double begin = samples[0].begin;
        double end = samples[0].end;
        in[round] = out[round] = 0;
        for (uint32_t host = 0; host < settings->hosts; host++) {
            const struct sample *sample = &samples[host];
            begin = fmin(begin, sample->begin);
            end = fmax(end, sample->end);
            in[round] = fmax(in[round], (double)sample->traffic.in_bytes);
            out[round] = fmax(out[round], (double)sample->traffic.out_bytes);
        }
        seconds[round] = end - begin;
    }
    return (struct result){.seconds = median(seconds, settings->rounds),
        .in_bytes = median(in, settings->rounds),
        .out_bytes = median(out, settings->rounds)};
}

/* What each host must get, and send, at least. */
static double payload_of(const struct settings *settings)
{
    return (double)settings->bytes * (settings->hosts - 1);
}

static double ratio(double of, double to)
{
    return to > 0 ? of / to : 0;
}

static void report_text(const struct settings *settings, const struct result *results)
{
    double payload = payload_of(settings);

    printf("%" PRIu32 " hosts, %" PRIu64 " bytes each, %" PRIu32 " round%s", settings->hosts,
        settings->bytes, settings->rounds, plural(settings->rounds));
    if (settings->shape.rate_mbit > 0) {
        printf(", %" PRIu32 " Mbit/s", settings->shape.rate_mbit);
    }
    if (settings->shape.delay_us > 0) {
        printf(", %" PRIu32 " us one way", settings->shape.delay_us);
    }
    printf("\n\n%-8s %12s %14s %18s %18s\n", "pattern", "median", "GB/s per host",
        "in: wire/payload", "out: wire/payload");
    for (int i = 0; i < NUM_PATTERNS; i++) {
        printf("%-8s %9.3f ms %14.3f %18.4f %18.4f\n", pattern_names[i], results[i].seconds * 1e3,
            ratio(payload, results[i].seconds) * 1e-9, ratio(results[i].in_bytes, payload),
            ratio(results[i].out_bytes, payload));
    }
}

static int report_json(const struct settings *settings, const struct result *results)
{
    json_t *object = json_pack("{s:s, s:i, s:I, s:i, s:i, s:i, s:f}", "schema", SCHEMA, "hosts",
        (int)settings->hosts, "bytes", (json_int_t)settings->bytes, "rounds", (int)settings->rounds,
        "rate_mbit", (int)settings->shape.rate_mbit, "delay_us", (int)settings->shape.delay_us,
        "payload_bytes", payload_of(settings));
    int result;

    for (int i = 0; object != NULL && i < NUM_PATTERNS; i++) {
        json_object_set_new(object, pattern_names[i],
            json_pack("{s:f, s:f, s:f, s:f}", "median_s", results[i].seconds, "gbps",
                ratio(payload_of(settings), results[i].seconds) * 1e-9, "wire_in_bytes",
                results[i].in_bytes, "wire_out_bytes", results[i].out_bytes));
    }
    result = object != NULL ? json_dumpf(object, stdout, JSON_COMPACT) : -1;
    printf("\n");
    json_decref(object);
    return result;
}

int exchange_command(int argc, char **argv)
{
    struct settings settings;
    struct result results[NUM_PATTERNS];
    struct bench_error error;
    struct board *board = NULL;
    int status = parse(argc, argv, &settings);

    if (status != 0) {
        return status > 0 ? 0 : 2;
    }
    status = measure_all(&settings, &board, &error);
    for (int i = 0; status == 0 && i < NUM_PATTERNS; i++) {
        results[i] = summarize(&settings, board, (enum pattern)i);
    }
    if (board != NULL) {
        munmap(board, sizeof(*board));
    }
    if (status != 0) {
        fprintf(stderr, "f8bench: %s\n", error.text);
        return 1;
    }
    if (!settings.json) {
        report_text(&settings, results);
        return 0;
    }
    return report_json(&settings, results) == 0 ? 0 : 1;
}
