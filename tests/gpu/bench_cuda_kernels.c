/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_cuda_kernels [ROUNDS]: the speed of the CUDA kernels on the first device against a plain
 * device copy in the same run. Every round measures all of them in turn, by events; what counts is
 * the median, and its ratio to that of the copy, both in bytes read and written. Once over a few
 * large tensors, once over many small ones. Not a test: nothing is asserted.
 */
#include "kernels/cuda/cuda_kernels.h"
#include "proto/status.h"
#include "tests/kernel_support.h"
#include "tests/lib/cuda_device.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_ROUNDS 101
#define MAX_JOBS   32
#define MAX_TASKS  16384
#define SIZE       ((size_t)1 << 30) /* bytes of all sources */

enum job_kind { JOB_MEMCPY, JOB_TABLE, JOB_DEQUANTISE };

struct job {
    enum job_kind kind;
    const char *name;
    enum f8cu_op op;
    enum f8k_dtype dtype;
    enum f8k_format format;
    bool fused;              /* a cast that takes the amax too */
    size_t dst_offset;       /* 1: destinations that are aligned to nothing */
    double bytes;            /* read and written */
    struct f8cu_task *table; /* owned: of the device */
    uint32_t num_tasks, num_parts;
    float milliseconds[MAX_ROUNDS];
};

struct bench {
    uint8_t *src, *dst; /* owned: of the device, SIZE bytes and a little more */
    uint32_t *amaxes;   /* owned: of the device, one for each task */
    struct f8k_counts *counts;
    float *scale;
    size_t tensor; /* bytes of one source */
    cudaEvent_t begin, end;
    struct job jobs[MAX_JOBS];
    size_t count;
};

static void need(bool is_right, const char *what)
{
    if (is_right)
        return;
    fprintf(stderr, "%s: %s\n", what, f8cu_error());
    exit(EXIT_FAILURE);
}

/* The same weights again and again, as bf16, of magnitudes below 2; as fp32 they are weights too.
 */
static void fill_weights(const struct bench *bench)
{
    static uint8_t weights[1 << 24];
    struct rng rng = {.state = 1};
    for (size_t i = 0; i < sizeof(weights) / 2; i++)
        set_element(F8K_BF16, weights, i, ((uint32_t)rng_next(&rng) & 0x81ff) | 0x3c00);
    for (size_t at = 0; at < SIZE; at += sizeof(weights))
        device_upload(bench->src + at, weights, sizeof(weights));
}

static void add_job(struct bench *bench, struct job job)
{
    static struct f8cu_task table[MAX_TASKS];
    double dst_bytes = job.op == F8CU_AMAX ? 0 : 1;
    size_t size = job.kind == JOB_DEQUANTISE || job.op == F8CU_COPY ? 1 : f8k_dtype_size(job.dtype);
    if (job.op == F8CU_TO_BF16 && job.kind == JOB_TABLE)
        dst_bytes = 2;
    if (job.kind == JOB_DEQUANTISE)
        dst_bytes = (double)f8k_dtype_size(job.dtype);
    job.num_tasks = (uint32_t)(SIZE / bench->tensor);
    for (uint32_t i = 0; i < job.num_tasks; i++) {
        table[i] = (struct f8cu_task){.src = bench->src + i * bench->tensor,
            .dst = bench->dst + i * bench->tensor + job.dst_offset,
            .count = bench->tensor / size,
            .scale = bench->scale,
            .amax = job.op == F8CU_AMAX || job.fused ? bench->amaxes + i : NULL,
            .counts = bench->counts + i,
            .first_part = job.num_parts,
            .op = (uint8_t)job.op,
            .dtype = (uint8_t)job.dtype,
            .format = (uint8_t)job.format};
        job.num_parts += f8cu_parts(table[i].count);
    }
    job.bytes = (double)SIZE * (1 + dst_bytes / (double)size);
    if (job.kind == JOB_DEQUANTISE) /* the whole of dst is written, from as many codes */
        job.bytes = (double)SIZE * (1 + 1 / dst_bytes);
    job.table = device_alloc(job.num_tasks * sizeof(*table));
    device_upload(job.table, table, job.num_tasks * sizeof(*table));
    bench->jobs[bench->count++] = job;
}

static void run_job(const struct bench *bench, const struct job *job)
{
    void *stream = device_stream();
    int status = F8_OK;
    if (job->kind == JOB_MEMCPY)
        status = cudaMemcpyAsync(bench->dst, bench->src, SIZE, cudaMemcpyDeviceToDevice, stream);
    else if (job->kind == JOB_DEQUANTISE)
        status = f8cu_dequantise(job->format, bench->src, job->dtype, bench->dst,
            SIZE / f8k_dtype_size(job->dtype), bench->scale, stream);
    else if (job->op == F8CU_AMAX)
        status = f8cu_amax(job->table, job->num_tasks, job->num_parts, stream);
    else
        status = f8cu_write(job->table, job->num_tasks, job->num_parts, stream);
    need(status == F8_OK, job->name);
}

static void measure(struct bench *bench, int rounds)
{
    for (int round = -1; round < rounds; round++) /* the first one warms up */
        for (size_t j = 0; j < bench->count; j++) {
            float milliseconds = 0;
            cudaEventRecord(bench->begin, device_stream());
            run_job(bench, &bench->jobs[j]);
            cudaEventRecord(bench->end, device_stream());
            need(cudaEventSynchronize(bench->end) == cudaSuccess, bench->jobs[j].name);
            cudaEventElapsedTime(&milliseconds, bench->begin, bench->end);
            if (round >= 0)
                bench->jobs[j].milliseconds[round] = milliseconds;
        }
}

static int compare(const void *a, const void *b)
{
    float first = *(const float *)a, second = *(const float *)b;
    return (first > second) - (first < second);
}

static double speed(struct job *job, int rounds)
{
    qsort(job->milliseconds, (size_t)rounds, sizeof(float), compare);
    return job->bytes / ((double)job->milliseconds[rounds / 2] * 1e6);
}

static void print_table(struct bench *bench, int rounds)
{
    double copy = speed(&bench->jobs[0], rounds);
    printf(
        "%zu tensors of %zu KiB, %d rounds\n", SIZE / bench->tensor, bench->tensor >> 10, rounds);
    printf("%-28s %-9s %-7s %9s %8s\n", "kernel", "source", "format", "GB/s", "of copy");
    for (size_t j = 0; j < bench->count; j++) {
        struct job *job = &bench->jobs[j];
        const char *dtype = f8k_dtype_name(job->dtype), *format = f8k_format_name(job->format);
        double gigabytes = j == 0 ? copy : speed(job, rounds);
        printf("%-28s %-9s %-7s %9.0f %7.0f%%\n", job->name, dtype ? dtype : "-",
            format ? format : "-", gigabytes, 100 * gigabytes / copy);
    }
}

static void add_jobs(struct bench *bench)
{
    add_job(bench, (struct job){.kind = JOB_MEMCPY, .name = "cudaMemcpyAsync", .op = F8CU_COPY});
    add_job(bench, (struct job){.kind = JOB_TABLE, .name = "copy", .op = F8CU_COPY});
    for (size_t d = 0; d < 3; d++) {
        struct job job = {.kind = JOB_TABLE, .name = "amax", .dtype = all_dtypes[d]};
        add_job(bench, job);
        job.op = F8CU_CAST;
        job.name = "cast";
        for (size_t f = 0; f < 2; f++) {
            job.format = all_formats[f];
            add_job(bench, job);
        }
        job.format = F8K_E4M3FN;
        job.name = "cast and amax";
        job.fused = true;
        add_job(bench, job);
        job.name = "cast and amax, unaligned dst";
        job.dst_offset = 1;
        add_job(bench, job);
        add_job(bench, (struct job){.kind = JOB_DEQUANTISE,
                           .name = "dequantise",
                           .dtype = all_dtypes[d],
                           .format = F8K_E4M3FN});
    }
    add_job(bench,
        (struct job){.kind = JOB_TABLE, .name = "to bf16", .op = F8CU_TO_BF16, .dtype = F8K_F32});
}

static void run(size_t tensor, int rounds)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    float scale = 200;
    need(bench != NULL, "calloc");
    bench->tensor = tensor;
    bench->src = device_alloc(SIZE + 64);
    bench->dst = device_alloc(SIZE + 64);
    bench->amaxes = device_alloc(MAX_TASKS * sizeof(*bench->amaxes));
    bench->counts = device_alloc(MAX_TASKS * sizeof(*bench->counts));
    bench->scale = device_alloc(sizeof(scale));
    device_upload(bench->scale, &scale, sizeof(scale));
    need(cudaEventCreate(&bench->begin) == cudaSuccess, "cudaEventCreate");
    need(cudaEventCreate(&bench->end) == cudaSuccess, "cudaEventCreate");
    fill_weights(bench);
    add_jobs(bench);
    measure(bench, rounds);
    print_table(bench, rounds);
    for (size_t j = 0; j < bench->count; j++)
        device_free(bench->jobs[j].table);
    cudaEventDestroy(bench->begin);
    cudaEventDestroy(bench->end);
    device_free(bench->src);
    device_free(bench->dst);
    device_free(bench->amaxes);
    device_free(bench->counts);
    device_free(bench->scale);
    free(bench);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 21;
    if (rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: %s [ROUNDS], from 1 to %d\n", argv[0], MAX_ROUNDS);
        return 2;
    }
    if (!device_open())
        return 77;
    run((size_t)64 << 20, rounds);
    run((size_t)64 << 10, rounds);
    device_close();
    return EXIT_SUCCESS;
}
