/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_ipc [ROUNDS]: what legacy CUDA IPC and inter-process events cost between two processes on
 * the first device, in microseconds. The one process has memory and an event, as a trainer; the
 * other, started anew, opens them, as the daemon. What is read over the mapping is checked, and so
 * is the order that the events make: a wrong value ends the program with status 1.
 */
#include "tests/gpu/twin.h"
#include "tests/lib/cuda_device.h"

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROUNDS 1001
#define SIZE       ((size_t)64 << 20)
#define MARK       0x5a5a5a5au

/* What the trainer shares, and how often the daemon is to open it. */
struct offer {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
    uint32_t rounds;
};

/* Microseconds. */
struct times {
    double median, least, most;
};

struct answer {
    cudaIpcEventHandle_t event; /* the daemon's */
    double first_open;
    struct times open, close, open_event, destroy_event;
};

/* What the daemon does for one round trip. */
enum trip {
    TRIP_MESSAGES, /* answers, and no more */
    TRIP_EVENTS,   /* its stream waits for the trainer's event, and records its own */
    TRIP_COPY,     /* in between copies the first word to the second */
    TRIP_END,
};

static double samples[2][MAX_ROUNDS];

static void need(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(EXIT_FAILURE);
}

static void need_word(uint32_t seen, uint32_t wanted, const char *what)
{
    if (seen == wanted)
        return;
    fprintf(stderr, "%s: 0x%08x, not 0x%08x\n", what, seen, wanted);
    exit(EXIT_FAILURE);
}

static struct times times_of(double *values, size_t count)
{
    double median = twin_median(values, count);
    return (struct times){median, values[0], values[count - 1]};
}

static cudaEvent_t shared_event(cudaIpcEventHandle_t *ret_handle)
{
    cudaEvent_t event;
    need(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming),
        "cudaEventCreateWithFlags");
    need(cudaIpcGetEventHandle(ret_handle, event), "cudaIpcGetEventHandle");
    return event;
}

/* ---- the daemon ---- */

static double open_memory(cudaIpcMemHandle_t handle, void **ret_memory)
{
    double begin = twin_now();
    need(cudaIpcOpenMemHandle(ret_memory, handle, cudaIpcMemLazyEnablePeerAccess),
        "cudaIpcOpenMemHandle");
    return (twin_now() - begin) * 1e6;
}

static double close_memory(void *memory)
{
    double begin = twin_now();
    need(cudaIpcCloseMemHandle(memory), "cudaIpcCloseMemHandle");
    return (twin_now() - begin) * 1e6;
}

static void measure_memory(const struct offer *offer, struct answer *answer)
{
    void *memory;
    uint32_t word = 0;
    answer->first_open = open_memory(offer->memory, &memory);
    device_download(&word, memory, sizeof(word));
    need_word(word, MARK, "the first word of the other process");
    close_memory(memory);
    for (uint32_t i = 0; i < offer->rounds; i++) {
        samples[0][i] = open_memory(offer->memory, &memory);
        samples[1][i] = close_memory(memory);
    }
    answer->open = times_of(samples[0], offer->rounds);
    answer->close = times_of(samples[1], offer->rounds);
}

static void measure_events(const struct offer *offer, struct answer *answer)
{
    for (uint32_t i = 0; i < offer->rounds; i++) {
        cudaEvent_t event;
        double begin = twin_now();
        need(cudaIpcOpenEventHandle(&event, offer->event), "cudaIpcOpenEventHandle");
        double opened = twin_now();
        need(cudaEventDestroy(event), "cudaEventDestroy");
        samples[0][i] = (opened - begin) * 1e6;
        samples[1][i] = (twin_now() - opened) * 1e6;
    }
    answer->open_event = times_of(samples[0], offer->rounds);
    answer->destroy_event = times_of(samples[1], offer->rounds);
}

/* Answers round trips until the end is asked for. */
static void serve(uint32_t *words, cudaEvent_t theirs, cudaEvent_t ours)
{
    cudaStream_t stream = device_stream();
    for (;;) {
        enum trip trip;
        twin_receive(TWIN_SOCKET, &trip, sizeof(trip));
        if (trip == TRIP_END)
            return;
        if (trip != TRIP_MESSAGES)
            need(cudaStreamWaitEvent(stream, theirs, 0), "cudaStreamWaitEvent");
        if (trip == TRIP_COPY)
            need(
                cudaMemcpyAsync(words + 1, words, sizeof(*words), cudaMemcpyDeviceToDevice, stream),
                "cudaMemcpyAsync");
        if (trip != TRIP_MESSAGES)
            need(cudaEventRecord(ours, stream), "cudaEventRecord");
        twin_send(TWIN_SOCKET, &trip, sizeof(trip));
    }
}

static int be_daemon(void)
{
    struct offer offer;
    struct answer answer = {0};
    void *memory;
    cudaEvent_t theirs;
    if (!device_open())
        return EXIT_FAILURE;
    twin_receive(TWIN_SOCKET, &offer, sizeof(offer));
    measure_memory(&offer, &answer);
    measure_events(&offer, &answer);
    open_memory(offer.memory, &memory);
    need(cudaIpcOpenEventHandle(&theirs, offer.event), "cudaIpcOpenEventHandle");
    cudaEvent_t ours = shared_event(&answer.event);
    twin_send(TWIN_SOCKET, &answer, sizeof(answer));
    serve(memory, theirs, ours);
    device_wait();
    need(cudaEventDestroy(theirs), "cudaEventDestroy");
    need(cudaEventDestroy(ours), "cudaEventDestroy");
    close_memory(memory);
    device_close();
    return EXIT_SUCCESS;
}

/* ---- the trainer ---- */

struct trainer {
    struct twin daemon;
    uint32_t *words; /* owned: of the device, SIZE bytes */
    cudaEvent_t ours, theirs;
    uint32_t rounds;
};

/* What the daemon's copy must have found: it came behind the trainer's memset. */
static void check_copy(const struct trainer *trainer, uint32_t round)
{
    uint32_t word = 0;
    device_download(&word, trainer->words + 1, sizeof(word));
    need_word(word, (round & 0xff) * 0x01010101u, "the word that was copied behind the event");
}

/* One way to the daemon's stream and back. */
static double take_trip(const struct trainer *trainer, enum trip trip, uint32_t round)
{
    cudaStream_t stream = device_stream();
    enum trip done;
    double begin = twin_now();
    if (trip == TRIP_COPY)
        need(cudaMemsetAsync(trainer->words, (int)(round & 0xff), sizeof(uint32_t), stream),
            "cudaMemsetAsync");
    if (trip != TRIP_MESSAGES)
        need(cudaEventRecord(trainer->ours, stream), "cudaEventRecord");
    twin_send(trainer->daemon.socket, &trip, sizeof(trip));
    twin_receive(trainer->daemon.socket, &done, sizeof(done));
    if (trip != TRIP_MESSAGES) {
        need(cudaStreamWaitEvent(stream, trainer->theirs, 0), "cudaStreamWaitEvent");
        need(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
    return (twin_now() - begin) * 1e6;
}

static struct times measure_trips(const struct trainer *trainer, enum trip trip)
{
    take_trip(trainer, trip, 0); /* warms up */
    for (uint32_t i = 0; i < trainer->rounds; i++) {
        samples[0][i] = take_trip(trainer, trip, i);
        if (trip == TRIP_COPY)
            check_copy(trainer, i);
    }
    return times_of(samples[0], trainer->rounds);
}

/* The events without another process. */
static struct times measure_alone(const struct trainer *trainer)
{
    cudaStream_t stream = device_stream();
    for (uint32_t i = 0; i < trainer->rounds; i++) {
        double begin = twin_now();
        need(cudaEventRecord(trainer->ours, stream), "cudaEventRecord");
        need(cudaStreamWaitEvent(stream, trainer->ours, 0), "cudaStreamWaitEvent");
        need(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        samples[0][i] = (twin_now() - begin) * 1e6;
    }
    return times_of(samples[0], trainer->rounds);
}

static void print_times(const char *what, struct times times)
{
    printf("%-52s %10.1f %10.1f %10.1f\n", what, times.median, times.least, times.most);
}

static void measure(struct trainer *trainer)
{
    struct offer offer = {.rounds = trainer->rounds};
    struct answer answer;
    enum trip end = TRIP_END;
    need(cudaIpcGetMemHandle(&offer.memory, trainer->words), "cudaIpcGetMemHandle");
    trainer->ours = shared_event(&offer.event);
    twin_send(trainer->daemon.socket, &offer, sizeof(offer));
    twin_receive(trainer->daemon.socket, &answer, sizeof(answer));
    need(cudaIpcOpenEventHandle(&trainer->theirs, answer.event), "cudaIpcOpenEventHandle");
    printf("%u rounds; microseconds%29s %10s %10s %10s\n", trainer->rounds, "", "median", "least",
        "most");
    double first = answer.first_open;
    print_times("first open of 64 MiB by legacy IPC", (struct times){first, first, first});
    print_times("open again", answer.open);
    print_times("close", answer.close);
    print_times("open an event", answer.open_event);
    print_times("destroy an opened event", answer.destroy_event);
    print_times("record, wait, synchronise in one process", measure_alone(trainer));
    print_times("round trip of two messages", measure_trips(trainer, TRIP_MESSAGES));
    print_times("the same with an event each way", measure_trips(trainer, TRIP_EVENTS));
    print_times(
        "the same with a memset and a copy between them", measure_trips(trainer, TRIP_COPY));
    need(cudaEventDestroy(trainer->theirs), "cudaEventDestroy");
    twin_send(trainer->daemon.socket, &end, sizeof(end));
}

static int be_trainer(uint32_t rounds)
{
    struct trainer trainer = {.rounds = rounds};
    uint32_t mark = MARK;
    if (!device_open())
        return 77;
    trainer.words = device_alloc(SIZE);
    device_upload(trainer.words, &mark, sizeof(mark));
    twin_start(&trainer.daemon, "daemon");
    measure(&trainer);
    bool well = twin_end(&trainer.daemon);
    need(cudaEventDestroy(trainer.ours), "cudaEventDestroy");
    device_free(trainer.words);
    device_close();
    return well ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "daemon") == 0)
        return be_daemon();
    int rounds = argc > 1 ? atoi(argv[1]) : 201;
    if (argc > 2 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: %s [ROUNDS], from 1 to %d\n", argv[0], MAX_ROUNDS);
        return 2;
    }
    return be_trainer((uint32_t)rounds);
}
