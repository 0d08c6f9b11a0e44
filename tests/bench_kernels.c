/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_kernels [ROUNDS]: the speed of every kernel variant against what the machine can do in the
 * same run: memcpy (bytes read and written) and a plain sum (bytes read). Every round measures
 * all of them in turn; the median of the rounds' ratios is what counts, because neighbours on a
 * shared machine move the absolute figures. "amax;cast" is one pass after the other, "amax+cast"
 * the cast that takes the amax; both are rated by the bytes of one pass. One thread. Not a test:
 * nothing is asserted.
 */
#include "kernels/fp8.h"
#include "tests/kernel_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MAX_ROUNDS 101
#define MAX_CASES  96

enum job_kind {
    JOB_MEMCPY,
    JOB_SUM,
    JOB_AMAX,
    JOB_CAST,
    JOB_AMAX_CAST,  /* one after the other */
    JOB_CAST_FUSED, /* the cast takes the amax */
    JOB_DEQUANTISE,
    JOB_TO_BF16
};

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
    uint8_t *src[F8K_F16 + 1]; /* owned: `size` bytes of weights of each type; [0] as of fp32 */
    uint8_t *dst;              /* owned: `size` bytes */
    float scale;               /* of the weights, to e4m3fn */
    size_t size;               /* bytes of the larger array of a job */
    int repeats;               /* calls in one measurement */
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
    uint32_t amax = 0;
    const uint8_t *src = bench->src[job->dtype];
    struct f8k_cast cast = {.src = src,
        .dst = bench->dst,
        .count = count,
        .scale = job->format == F8K_E5M2 ? bench->scale * 128 : bench->scale,
        .dtype = job->dtype,
        .format = job->format,
        .stream = job->stream};
    switch (job->kind) {
    case JOB_MEMCPY:
        memcpy(bench->dst, src, bench->size);
        break;
    case JOB_SUM:
        sink = sum(src, bench->size);
        break;
    case JOB_AMAX:
        sink = job->ops->amax(job->dtype, src, count);
        break;
    case JOB_CAST:
        job->ops->cast(&cast, &counts);
        break;
    case JOB_AMAX_CAST:
        sink = job->ops->amax(job->dtype, src, count);
        job->ops->cast(&cast, &counts);
        break;
    case JOB_CAST_FUSED:
        cast.amax = &amax;
        job->ops->cast(&cast, &counts);
        sink = amax;
        break;
    case JOB_DEQUANTISE:
        job->ops->dequantise(job->format, src, job->dtype, bench->dst, count, bench->scale);
        break;
    case JOB_TO_BF16:
        job->ops->to_bf16((const float *)(const void *)src, (void *)bench->dst, count);
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
            for (enum job_kind kind = JOB_CAST; kind <= JOB_CAST_FUSED; kind++)
                add_job(bench, (struct job){.kind = kind,
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
    static const char *const kinds[] = {
        "memcpy", "sum", "amax", "cast", "amax;cast", "amax+cast", "dequantise", "to_bf16"};
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

/* About normal, with a standard deviation of 0.02: what trained weights look like. */
static float random_weight(struct rng *rng)
{
    uint64_t bits[2] = {rng_next(rng), rng_next(rng)};
    float total = 0;
    for (int i = 0; i < 8; i++)
        total += (float)(bits[i / 4] >> (i % 4 * 16) & 0xffff) * 0x1p-16f - 0.5f;
    return total * 0.0245f;
}

/* Weights in each type: a million, then the same again. */
static void fill_weights(struct bench *bench)
{
    const size_t whole = bench->size / 4, million = (size_t)1 << 20;
    const size_t count = whole < million ? whole : million;
    struct rng rng = {.state = 5};
    for (size_t i = 0; i < count; i++) {
        float weight = random_weight(&rng);
        set_element(F8K_F32, bench->src[F8K_F32], i, f8k_bits_of(weight));
        set_element(F8K_BF16, bench->src[F8K_BF16], i, f8k_to_bf16(weight));
        set_element(F8K_F16, bench->src[F8K_F16], i, f8k_to_f16(weight));
    }
    for (size_t d = 0; d < 3; d++) {
        uint8_t *src = bench->src[all_dtypes[d]];
        size_t part = count * f8k_dtype_size(all_dtypes[d]);
        for (size_t at = part; at < bench->size; at += part)
            memcpy(src + at, src, bench->size - at < part ? bench->size - at : part);
    }
    bench->src[0] = bench->src[F8K_F32];
    uint32_t amax = f8k_ops()->amax(F8K_F32, bench->src[F8K_F32], count);
    bench->scale = f8k_scale(amax, F8K_F32, F8K_E4M3FN, F8K_SCALE_DIRECT, false);
}

/* Out of the cache the reference is left out: it is far from any limit and takes long. */
static void run(const char *title, size_t size, int repeats, bool stream, int rounds)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    if (!bench) {
        perror("bench_kernels");
        exit(EXIT_FAILURE);
    }
    bench->size = size;
    bench->repeats = repeats;
    bench->dst = map_pages(size);
    for (size_t d = 0; d < 3; d++)
        bench->src[all_dtypes[d]] = map_pages(size);
    fill_weights(bench);
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
