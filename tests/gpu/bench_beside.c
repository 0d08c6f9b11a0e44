/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_beside [ROUNDS [MILLISECONDS [MATRIX [KIB]]]]: how much a trainer's matmul loop and the
 * daemon's cast kernel or device copy slow each other on the first device. The two are processes of
 * their own, started anew; this one only tells them when to work and touches no device. In each
 * round each works alone, then both at once, for the same time; what counts is the median rate. All
 * works are queued without a pause, which is more than a daemon does: the worst case. Not a test.
 */
#include "kernels/cuda/cuda_kernels.h"
#include "proto/status.h"
#include "tests/gpu/matmul.h"
#include "tests/gpu/twin.h"
#include "tests/lib/cuda_device.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROUNDS 101
#define AHEAD      4 /* launches in the queue: the device never waits for the host */

enum work { WORK_NONE, WORK_MATMUL, WORK_CAST, WORK_COPY };

static const char *const work_names[] = {"-", "matmul", "cast", "copy"};

struct sizes {
    uint32_t rounds, milliseconds;
    uint32_t matrix; /* rows and columns */
    uint32_t kib;    /* that a cast or copy reads */
};

/* One process. */
struct worker {
    struct sizes sizes;
    uint8_t *src, *dst;      /* owned: of the device */
    float *a, *b, *c;        /* owned: of the device */
    float *scale;            /* owned: of the device */
    struct f8cu_task *table; /* owned: of the device, one cast */
    uint32_t num_parts;
    cudaEvent_t events[AHEAD];
};

static void need(bool is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
    exit(EXIT_FAILURE);
}

static size_t bytes_read(const struct sizes *sizes)
{
    return (size_t)sizes->kib << 10;
}

/* ---- the workers ---- */

static void *zeros(size_t bytes)
{
    void *device = device_alloc(bytes);
    need(cudaMemsetAsync(device, 0, bytes, device_stream()) == cudaSuccess, "cudaMemsetAsync");
    return device;
}

static void open_daemon(struct worker *worker)
{
    size_t bytes = bytes_read(&worker->sizes);
    float scale = 200;
    worker->src = zeros(bytes);
    worker->dst = zeros(bytes);
    worker->scale = zeros(sizeof(scale));
    device_upload(worker->scale, &scale, sizeof(scale));
    const struct f8cu_task cast = {.src = worker->src,
        .dst = worker->dst,
        .count = bytes / 2,
        .scale = worker->scale,
        .op = F8CU_CAST,
        .dtype = F8K_BF16,
        .format = F8K_E4M3FN};
    worker->num_parts = f8cu_parts(cast.count);
    worker->table = device_alloc(sizeof(cast));
    device_upload(worker->table, &cast, sizeof(cast));
}

static void open_trainer(struct worker *worker)
{
    size_t bytes = (size_t)worker->sizes.matrix * worker->sizes.matrix * sizeof(float);
    worker->a = zeros(bytes);
    worker->b = zeros(bytes);
    worker->c = zeros(bytes);
}

static void close_worker(const struct worker *worker)
{
    void *all[] = {
        worker->src, worker->dst, worker->a, worker->b, worker->c, worker->scale, worker->table};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i])
            device_free(all[i]);
    for (size_t i = 0; i < AHEAD; i++)
        need(cudaEventDestroy(worker->events[i]) == cudaSuccess, "cudaEventDestroy");
    device_close();
}

static void launch(const struct worker *worker, enum work work)
{
    void *stream = device_stream();
    if (work == WORK_MATMUL)
        need(matmul(worker->a, worker->b, worker->c, worker->sizes.matrix, stream) == cudaSuccess,
            "matmul");
    else if (work == WORK_CAST)
        need(f8cu_write(worker->table, 1, worker->num_parts, stream) == F8_OK, f8cu_error());
    else
        need(cudaMemcpyAsync(worker->dst, worker->src, bytes_read(&worker->sizes),
                 cudaMemcpyDeviceToDevice, stream) == cudaSuccess,
            "cudaMemcpyAsync");
}

/*
 * Launches that end in a second, of two at least. The time before and after, a quarter of it each,
 * is not counted: then the other process may not have begun, or have ended.
 */
static double rate_of(const struct worker *worker, enum work work)
{
    double window = worker->sizes.milliseconds * 1e-3, begin = twin_now() + window / 4;
    double now = 0, first = 0, last = 0;
    uint64_t count = 0;
    for (uint64_t i = 0; now < begin + window * 5 / 4 || count == 0; i++) {
        if (i >= AHEAD) {
            need(cudaEventSynchronize(worker->events[i % AHEAD]) == cudaSuccess, work_names[work]);
            now = twin_now();
            if (first > 0 && (now < begin + window || count == 0)) {
                count++;
                last = now;
            }
            if (first == 0 && now >= begin)
                first = now;
        }
        launch(worker, work);
        need(cudaEventRecord(worker->events[i % AHEAD], device_stream()) == cudaSuccess,
            "cudaEventRecord");
    }
    device_wait();
    return (double)count / (last - first);
}

/* Answers each work with its rate, until there is none. */
static int be_worker(bool is_trainer)
{
    struct worker worker = {0};
    enum work work;
    if (!device_open())
        return EXIT_FAILURE;
    twin_receive(TWIN_SOCKET, &worker.sizes, sizeof(worker.sizes));
    for (size_t i = 0; i < AHEAD; i++)
        need(cudaEventCreateWithFlags(&worker.events[i], cudaEventDisableTiming) == cudaSuccess,
            "cudaEventCreateWithFlags");
    if (is_trainer)
        open_trainer(&worker);
    else
        open_daemon(&worker);
    for (;;) {
        twin_receive(TWIN_SOCKET, &work, sizeof(work));
        if (work == WORK_NONE)
            break;
        double rate = rate_of(&worker, work);
        twin_send(TWIN_SOCKET, &rate, sizeof(rate));
    }
    close_worker(&worker);
    return EXIT_SUCCESS;
}

/* ---- who tells them ---- */

enum { TRAINER, DAEMON, NUM_PROCESSES };

static const char *const roles[NUM_PROCESSES] = {"trainer", "daemon"};

/* What both do at once. */
static const enum work scenarios[][NUM_PROCESSES] = {
    {WORK_MATMUL, WORK_NONE},
    {WORK_NONE, WORK_CAST},
    {WORK_NONE, WORK_COPY},
    {WORK_MATMUL, WORK_CAST},
    {WORK_MATMUL, WORK_COPY},
};

#define NUM_SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

static double rates[NUM_SCENARIOS][NUM_PROCESSES][MAX_ROUNDS];

static void run_scenario(const struct twin *twins, size_t scenario, uint32_t round)
{
    const enum work *works = scenarios[scenario];
    for (int p = 0; p < NUM_PROCESSES; p++)
        if (works[p] != WORK_NONE)
            twin_send(twins[p].socket, &works[p], sizeof(works[p]));
    for (int p = 0; p < NUM_PROCESSES; p++)
        if (works[p] != WORK_NONE)
            twin_receive(twins[p].socket, &rates[scenario][p][round], sizeof(double));
}

/* Of a launch: floating point operations, or bytes read and written. */
static double amount(const struct sizes *sizes, enum work work)
{
    double n = sizes->matrix, bytes = (double)bytes_read(sizes);
    if (work == WORK_MATMUL)
        return 2 * n * n * n;
    return work == WORK_CAST ? bytes * 1.5 : bytes * 2;
}

static void print_rates(const struct sizes *sizes)
{
    printf(
        "matmul: fp32, %u x %u; cast: bf16 to e4m3fn, %u KiB; copy: %u KiB; medians of %u windows "
        "of %u ms\n",
        sizes->matrix, sizes->matrix, sizes->kib, sizes->kib, sizes->rounds, sizes->milliseconds);
    printf("%-9s %-8s %-8s %18s %9s\n", "process", "work", "beside", "rate", "of alone");
    for (int p = 0; p < NUM_PROCESSES; p++) {
        double alone[WORK_COPY + 1] = {0};
        for (size_t s = 0; s < NUM_SCENARIOS; s++) {
            enum work work = scenarios[s][p], beside = scenarios[s][!p];
            if (work == WORK_NONE)
                continue;
            double rate = twin_median(rates[s][p], sizes->rounds) * amount(sizes, work);
            if (beside == WORK_NONE)
                alone[work] = rate;
            printf("%-9s %-8s %-8s %10.1f %s %8.0f%%\n", roles[p], work_names[work],
                work_names[beside], rate * 1e-9, work == WORK_MATMUL ? "GFLOP/s" : "GB/s   ",
                100 * rate / alone[work]);
        }
    }
}

static int run(const struct sizes *sizes)
{
    struct twin twins[NUM_PROCESSES];
    const enum work none = WORK_NONE;
    int count = 0;
    bool well = true;
    cudaError_t error = cudaGetDeviceCount(&count); /* makes no context */
    if (error != cudaSuccess || count == 0) {
        printf("skipped: no CUDA device: %s\n", cudaGetErrorString(error));
        return 77;
    }
    for (int p = 0; p < NUM_PROCESSES; p++) {
        twin_start(&twins[p], roles[p]);
        twin_send(twins[p].socket, sizes, sizeof(*sizes));
    }
    for (size_t s = 0; s < NUM_SCENARIOS; s++) /* warms up */
        run_scenario(twins, s, 0);
    for (uint32_t round = 0; round < sizes->rounds; round++)
        for (size_t s = 0; s < NUM_SCENARIOS; s++)
            run_scenario(twins, s, round);
    for (int p = 0; p < NUM_PROCESSES; p++) {
        twin_send(twins[p].socket, &none, sizeof(none));
        well = twin_end(&twins[p]) && well;
    }
    print_rates(sizes);
    return well ? EXIT_SUCCESS : EXIT_FAILURE;
}

static bool take(int argc, char **argv, int at, uint32_t most, uint32_t *value)
{
    long given = argc > at ? atol(argv[at]) : (long)*value;
    *value = (uint32_t)given;
    return given >= 1 && given <= (long)most;
}

int main(int argc, char **argv)
{
    struct sizes sizes = {.rounds = 9, .milliseconds = 300, .matrix = 2048, .kib = 256 << 10};
    for (int p = 0; p < NUM_PROCESSES; p++)
        if (argc == 2 && strcmp(argv[1], roles[p]) == 0)
            return be_worker(p == TRAINER);
    if (argc > 5 || !take(argc, argv, 1, MAX_ROUNDS, &sizes.rounds) ||
        !take(argc, argv, 2, 60000, &sizes.milliseconds) ||
        !take(argc, argv, 3, 16384, &sizes.matrix) || sizes.matrix % MATMUL_TILE != 0 ||
        !take(argc, argv, 4, 4 << 20, &sizes.kib)) {
        fprintf(stderr,
            "usage: %s [ROUNDS [MILLISECONDS [MATRIX [KIB]]]]: at most %d, 60000, 16384 (a "
            "multiple "
            "of %d), %d\n",
            argv[0], MAX_ROUNDS, MATMUL_TILE, 4 << 20);
        return 2;
    }
    return run(&sizes);
}
