/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_kernels [ROUNDS]: the speed of every kernel variant against what the machine can do in the
 * same run: memcpy (bytes read and written) and a plain sum (bytes read). Every round measures
 * all of them in turn; the median of the rounds' ratios is what counts, because neighbours on a
 * shared machine move the absolute figures. One thread. Not a test: nothing is asserted.
 */
#include "tests/kernel_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MAX_ROUNDS 101
#define MAX_CASES  64

enum job_kind { JOB_MEMCPY, JOB_SUM, JOB_AMAX, JOB_CAST, JOB_DEQUANTISE, JOB_TO_BF16 };

struct job {
    enum job_kind kind;
    const struct f8k_ops *ops;
    enum f8k_dtype dtype;
    enum f8k_format format;
    bool stream;
    size_t bytes; /* read and written by one call */
    double seconds[MAX_ROUNDS];
};

struct bench {
    uint8_t *src, *dst; /* owned: `size` bytes each */
    size_t size;        /* bytes of the larger array of a job */
    int repeats;        /* calls in one measurement */
    struct job jobs[MAX_CASES];
    size_t count;
};

static volatile uint64_t sink;

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static uint8_t *map_pages(size_t size)
{
    size_t huge = (size_t)2 << 20, rounded = (size + huge - 1) / huge * huge;
    void *map =
        mmap(NULL, rounded + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        perror("bench_kernels: mmap");
        exit(EXIT_FAILURE);
    }
    uint8_t *aligned = (uint8_t *)(((uintptr_t)map + huge - 1) / huge * huge);
    madvise(aligned, rounded, MADV_HUGEPAGE);
    memset(aligned, 1, rounded);
    return aligned;
}

typedef uint64_t lanes __attribute__((vector_size(16)));

/* Independent sums, so that the loads are the limit. */
static uint64_t sum(const uint8_t *bytes, size_t size)
{
    const lanes *v = (const void *)bytes;
    lanes a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i + 8 <= size / sizeof(*v); i += 8) {
        a += v[i] + v[i + 1];
        b += v[i + 2] + v[i + 3];
        c += v[i + 4] + v[i + 5];
        d += v[i + 6] + v[i + 7];
    }
    a += b + c + d;
    return a[0] + a[1];
}

static void run_job(const struct bench *bench, const struct job *job)
{
    size_t count = job->dtype ? bench->size / f8k_dtype_size(job->dtype) : 0;
    struct f8k_counts counts = {0};
    struct f8k_cast cast = {.src = bench->src,
        .dst = bench->dst,
        .count = count,
        .scale = 200.0f,
        .dtype = job->dtype,
        .format = job->format,
        .stream = job->stream};
    switch (job->kind) {
    case JOB_MEMCPY:
        memcpy(bench->dst, bench->src, bench->size);
        break;
    case JOB_SUM:
        sink = sum(bench->src, bench->size);
        break;
    case JOB_AMAX:
        sink = job->ops->amax(job->dtype, bench->src, count);
        break;
    case JOB_CAST:
        job->ops->cast(&cast, &counts);
        break;
    case JOB_DEQUANTISE:
        job->ops->dequantise(job->format, bench->src, job->dtype, bench->dst, count, 200.0f);
        break;
    case JOB_TO_BF16:
        job->ops->to_bf16((const float *)(const void *)bench->src, (void *)bench->dst, count);
        break;
    }
}

static void add_job(struct bench *bench, struct job job)
{
    size_t count = job.dtype ? bench->size / f8k_dtype_size(job.dtype) : 0;
    bool reads_only = job.kind == JOB_AMAX || job.kind == JOB_SUM;
    size_t other = job.kind == JOB_MEMCPY    ? bench->size
                   : job.kind == JOB_TO_BF16 ? 2 * count
                                             : count;
    if (bench->count == MAX_CASES) {
        fprintf(stderr, "bench_kernels: more than %d jobs; raise MAX_CASES\n", MAX_CASES);
        exit(EXIT_FAILURE);
    }
    job.bytes = bench->size + (reads_only ? 0 : other);
    bench->jobs[bench->count++] = job;
}

static void add_variant(struct bench *bench, const struct f8k_ops *ops, bool stream)
{
    for (size_t d = 0; d < 3; d++) {
        enum f8k_dtype dtype = all_dtypes[d];
        add_job(bench, (struct job){.kind = JOB_AMAX, .ops = ops, .dtype = dtype});
        for (size_t f = 0; f < 2; f++)
            add_job(bench, (struct job){.kind = JOB_CAST,
                               .ops = ops,
                               .dtype = dtype,
                               .format = all_formats[f],
                               .stream = stream});
        add_job(bench,
            (struct job){.kind = JOB_DEQUANTISE, .ops = ops, .dtype = dtype, .format = F8K_E4M3FN});
    }
    add_job(bench, (struct job){.kind = JOB_TO_BF16, .ops = ops, .dtype = F8K_F32});
}

static void measure(struct bench *bench, int rounds)
{
    for (int round = -1; round < rounds; round++) /* one round to warm up */
        for (size_t i = 0; i < bench->count; i++) {
            double start = now();
            for (int n = 0; n < bench->repeats; n++)
                run_job(bench, &bench->jobs[i]);
            if (round >= 0)
                bench->jobs[i].seconds[round] = (now() - start) / bench->repeats;
        }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median over the rounds of a job's rate, divided by another's of the same round if given. */
static double median(const struct job *job, const struct job *base, int rounds)
{
    double values[MAX_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        double rate = (double)job->bytes / job->seconds[i];
        values[i] = base ? rate / ((double)base->bytes / base->seconds[i]) : rate / 1e9;
    }
    qsort(values, (size_t)rounds, sizeof(values[0]), compare_doubles);
    return values[rounds / 2];
}

static void print_table(const struct bench *bench, const char *title, int rounds)
{
    static const char *const kinds[] = {"memcpy", "sum", "amax", "cast", "dequantise", "to_bf16"};
    printf("\n%s: %zu KiB of the wider type, %d rounds\n", title, bench->size >> 10, rounds);
    printf("%-6s %-10s %-9s %-7s %8s %10s %10s\n", "", "", "", "", "GB/s", "to memcpy", "to sum");
    for (size_t i = 0; i < bench->count; i++) {
        const struct job *job = &bench->jobs[i];
        printf("%-6s %-10s %-9s %-7s %8.2f %10.3f %10.3f\n", job->ops ? job->ops->name : "",
            kinds[job->kind], job->dtype ? f8k_dtype_name(job->dtype) : "",
            job->format ? f8k_format_name(job->format) : "", median(job, NULL, rounds),
            median(job, &bench->jobs[0], rounds), median(job, &bench->jobs[1], rounds));
    }
}

/* The reference is far from any limit: it is measured where that takes little time. */
static void run(const char *title, size_t size, int repeats, bool stream, int rounds)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    if (!bench) {
        perror("bench_kernels");
        exit(EXIT_FAILURE);
    }
    bench->size = size;
    bench->repeats = repeats;
    bench->src = map_pages(size);
    bench->dst = map_pages(size);
    struct rng rng = {.state = 5};
    for (size_t i = 0; i < size / 2; i++) /* weights: of magnitude below 2 in bf16 and fp16 */
        set_element(F8K_BF16, bench->src, i, (uint32_t)(rng_next(&rng) & 0x83ff) | 0x3800);
    add_job(bench, (struct job){.kind = JOB_MEMCPY});
    add_job(bench, (struct job){.kind = JOB_SUM});
    for (size_t i = stream && f8k_variant(1) ? 1 : 0; f8k_variant(i); i++)
        add_variant(bench, f8k_variant(i), stream);
    measure(bench, rounds);
    print_table(bench, title, rounds);
    free(bench); /* the mappings stay until the program ends: there are few */
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 11;
    if (rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: %s [ROUNDS], from 1 to %d\n", argv[0], MAX_ROUNDS);
        return 2;
    }
    run("in L2", (size_t)256 << 10, 50, false, rounds);
    run("in DRAM, streaming stores", (size_t)256 << 20, 1, true, rounds);
    return EXIT_SUCCESS;
}
